"""A component: something that runs on the cluster because this project needs it, as data in `profiles/components`.

Where it comes from, what may be set, what it needs, how it is proven to serve, and how it goes again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeGuard, cast

from pydantic import Field, model_validator

from profiles.bootstrap.engines import Digest
from profiles.bootstrap.release import ReleaseImage
from profiles.errors import ProfileError
from profiles.values import ObjectName, PositiveSeconds, Text, Value, did_you_mean, wrong

Category = Literal[
    "pipelines",
    "gangs",
    "queues",
    "figures",
    "logs",
    "alerts",
    "certificates",
    "images",
    "storage",
    "gateway",
    "gpus",
    "ours",
]
ProofKind = Literal[
    "storage", "dns", "registry", "metrics", "logs", "gateway", "certificates", "gpu", "http", "api-service", "crd",
    "workflow", "gang",
]  # fmt: skip
PROOF_PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "storage": ("storage_class", "access_mode"),
    "dns": ("name",),
    "registry": ("url", "secret", "pulled_as"),
    "metrics": ("write_url", "query_url"),
    "logs": ("write_url", "query_url", "shipped"),
    "gateway": ("gateway_class", "url"),
    "certificates": ("issuer",),
    "gpu": ("resource", "image", "command"),
    "http": ("url", "path", "contains", "nodes", "deployments"),
    "api-service": ("name", "path"),
    "crd": ("object", "condition"),
    "workflow": (),
    "gang": ("queue", "namespace"),
}
"""What each proof may be told; everything is text. A parameter may hold `${value}`, as objects do."""
NEEDED_PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "storage": ("storage_class",),
    "registry": ("url",),
    "metrics": ("write_url", "query_url"),
    "logs": ("write_url", "query_url"),
    "gateway": ("gateway_class", "url"),
    "gpu": ("resource",),
    "http": ("url",),
    "api-service": ("name", "path"),
    "crd": ("object", "condition"),
}
PLACEHOLDER = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_.]*)\}")
"""`${retention}` in an object of a component, or in a proof's parameter, is the value of that name."""
GIVEN = ("namespace", "version", "nodes", "cluster")
"""Placeholders that no profile has to declare."""


class ChartSource(Value):
    """A chart archive, installed by helm as one release that is taken back where it does not come up."""

    kind: Literal["chart"]
    """Always `chart`."""
    path: Text
    """Of the archive, below the mirror's base URL."""
    sha256: Digest | None = None
    """Digest of the archive; none: the site's mirror has to say it before anything is installed."""
    origin: str = ""
    """Where its project publishes it; `bootstrap mirror --fill` takes it from there."""
    helm_image: Text = "docker.io/alpine/helm:3.22.0"
    """Image that has `helm`."""
    registry_value: str = ""
    """Value of the chart that takes the mirror's registry; empty: the nodes' own mirror of images is enough."""


class ManifestsSource(Value):
    """Objects as its project publishes them, one JSON list in the mirror."""

    kind: Literal["manifests"]
    """Always `manifests`."""
    path: Text
    """Of the list, below the mirror's base URL or folder."""
    sha256: Digest | None = None
    """Digest of the list; none: the site's mirror has to say it before anything is applied."""
    origin: str = ""
    """Where its project publishes it, as YAML; `bootstrap mirror --fill` takes it from there."""


class InlineSource(Value):
    """Objects that stand in the component's own profile; `${name}` in them is a value."""

    kind: Literal["inline"]
    """Always `inline`."""
    objects: tuple[dict[str, Any], ...] = Field(min_length=1)
    """In the order in which they are applied, definitions first."""


class BuiltInSource(Value):
    """This product's own objects."""

    kind: Literal["built_in"]
    """Always `built_in`."""
    part: Literal["health", "runner", "monitor", "workspace"]
    """`health`: the node daemon. `runner`, `monitor`: files of `deployments/kubernetes`; Secrets are the site's.
    `workspace`: of the workspace profile that value `profile` names."""


Source = Annotated[ChartSource | ManifestsSource | InlineSource | BuiltInSource, Field(discriminator="kind")]


class ComponentValue(Value):
    """One thing that may be set."""

    type: Literal["text", "integer", "number", "boolean", "list", "map"]
    """What it must be."""
    description: Text
    """One sentence for people."""
    default: Any = None
    """Holds where the cluster profile says nothing; none: left to the chart, or to the site where `required`."""
    required: bool = False
    """The site has to say it."""
    choices: tuple[str, ...] = ()
    """Texts that it may be; none: any."""
    pattern: str = ""
    """Regular expression that the whole text must match; empty: any."""
    minimum: float | None = None
    """Of numbers; none: no least."""
    maximum: float | None = None
    """Of numbers; none: no most."""
    for_proof: bool = False
    """Told to the proof alone and not to the chart."""

    @model_validator(mode="after")
    def _default_fits(self) -> ComponentValue:
        if self.default is not None and (reason := misfit(self, self.default)):
            raise wrong("default", reason)
        return self


class ComponentProof(Value):
    """How it is shown to serve. That its pods run is none."""

    kind: ProofKind
    """Which proof."""
    parameters: dict[str, str] = {}
    """What that proof is told."""
    deadline_seconds: PositiveSeconds = 300.0
    """So long it may take to serve after it was installed; then the proof has failed."""

    @model_validator(mode="after")
    def _parameters_are_known(self) -> ComponentProof:
        known = PROOF_PARAMETERS[self.kind]
        for name in self.parameters:
            if name not in known:
                raise wrong("parameters", f'proof {self.kind} knows no "{name}"{did_you_mean(name, known)}')
        missing = [name for name in NEEDED_PARAMETERS.get(self.kind, ()) if not self.parameters.get(name)]
        if missing:
            raise wrong("parameters", f"proof {self.kind} needs {', '.join(missing)}")
        return self


class ComponentRemoval(Value):
    """How it goes: what people made of its kinds, then itself, then its definitions, then its namespace."""

    resources: tuple[Text, ...] = ()
    """Kinds whose objects go first, while their controller can still let go of them, as `plural.group`."""
    data: tuple[Text, ...] = ()
    """What holds data, in words; it goes only where that is asked for by name."""
    keeps_namespace: bool = False
    """Its namespace is shared or not ours."""


class ComponentProfile(Value):
    """One component of the shelf."""

    name: ObjectName
    """Of the component; a cluster profile chooses it by this."""
    description: Text
    """What it is for, in one sentence."""
    category: Category
    """Of which kind it is, whoever makes it."""
    version: Text
    """As its project calls it."""
    source: Source
    """Where its objects come from."""
    images: tuple[ReleaseImage, ...] = ()
    """Images that it runs."""
    values: dict[str, ComponentValue] = {}
    """What may be set, by dotted name; anything else is refused."""
    crds: tuple[Text, ...] = ()
    """Definitions that must be Established before anything that uses them is applied."""
    namespace: ObjectName
    """Where it lives."""
    needs: tuple[ObjectName, ...] = ()
    """Components that must serve before; they come with it."""
    after: tuple[ObjectName, ...] = ()
    """Components that must serve before where the cluster gets them too."""
    vendor: Literal["", "amd", "nvidia"] = ""
    """Only where a pool has GPUs of this vendor; empty: everywhere."""
    first: bool = False
    """Applied by the flow itself, before there is an Argo that could."""
    before_admission: bool = False
    """Nodes pass their tests only with it (devices, volumes): it comes before any of them takes work, with all that it
    needs, and its pods must tolerate the taint `primus-flows.io/startup`; those of charts by values."""
    proof: ComponentProof
    """How it is shown to serve."""
    removal: ComponentRemoval = ComponentRemoval()
    """How it goes again."""
    tried: bool = False
    """Whether `primus bootstrap` installed and proved it on a cluster whose pods run; what tests alone show is none."""
    not_tried: str = ""
    """Where it was not: what was not tried, in one sentence."""

    @model_validator(mode="after")
    def _says_what_was_tried(self) -> ComponentProfile:
        if self.tried == bool(self.not_tried):
            raise wrong("not_tried", "must say what was not tried, exactly where `tried` is false")
        return self

    @model_validator(mode="after")
    def _placeholders_are_values(self) -> ComponentProfile:
        used = {word for text in texts_of(self.proof.parameters) for word in PLACEHOLDER.findall(text)}
        if isinstance(self.source, InlineSource):
            used |= {word for text in texts_of(list(self.source.objects)) for word in PLACEHOLDER.findall(text)}
        known = (*self.values, *GIVEN)
        for word in sorted(used):
            if word not in known:
                raise wrong("values", f"${{{word}}} is used and no value is called so{did_you_mean(word, known)}")
        return self

    @model_validator(mode="after")
    def _needs_others(self) -> ComponentProfile:
        if self.name in self.needs:
            raise wrong("needs", "must not name the component itself")
        return self


def texts_of(found: Any) -> list[str]:
    """All texts of a value of JSON, keys included."""
    if isinstance(found, str):
        return [found]
    if _is_map(found):
        return [text for pair in found.items() for one in pair for text in texts_of(one)]
    return [text for one in cast("list[Any]", found) for text in texts_of(one)] if isinstance(found, list) else []


def _is_map(found: Any) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(found, Mapping)


_TYPES: Mapping[str, tuple[type, ...]] = {
    "text": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "list": (list, tuple),
    "map": (Mapping,),
}


def misfit(field: ComponentValue, value: Any) -> str:
    """Why the value cannot be that field's; "" where it can."""
    right = isinstance(value, _TYPES[field.type]) and (field.type == "boolean" or not isinstance(value, bool))
    if not right:
        return f"must be {'an' if field.type == 'integer' else 'a'} {field.type}, got {value!r}"
    if field.choices and value not in field.choices:
        return f"must be one of {', '.join(field.choices)}, got {value!r}"
    if field.pattern and not re.fullmatch(field.pattern, str(value)):
        return f"must match {field.pattern}, got {value!r}"
    if field.minimum is not None and value < field.minimum:
        return f"must be at least {field.minimum:g}, got {value!r}"
    if field.maximum is not None and value > field.maximum:
        return f"must be at most {field.maximum:g}, got {value!r}"
    return ""


def checked_values(component: ComponentProfile, given: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The component's values by dotted name: its defaults, what is given over them. Sorted by name.

    `given` may be nested or dotted; `where` is its place in the cluster profile, for messages.

    Raises:
        ProfileError: an unknown value, one of another type, or a required one that nobody says.
    """
    known = component.values
    found = {name: field.default for name, field in known.items() if field.default is not None}
    for name, value in _flat(known, given, ""):
        if name not in known:
            reason = f"component {component.name} has no such value{did_you_mean(name, known)}"
            raise ProfileError(f"{where}.values.{name}", reason)
        if reason := misfit(known[name], value):
            raise ProfileError(f"{where}.values.{name}", reason)
        found[name] = value
    missing = [name for name, field in known.items() if field.required and name not in found]
    if missing:
        reason = f"component {component.name} needs it: {known[missing[0]].description}"
        raise ProfileError(f"{where}.values.{missing[0]}", reason)
    return {name: found[name] for name in sorted(found)}


def _flat(known: Mapping[str, ComponentValue], given: Mapping[str, Any], prefix: str) -> list[tuple[str, Any]]:
    pairs: list[tuple[str, Any]] = []
    for key, value in given.items():
        name = f"{prefix}{key}"
        inner = _is_map(value) and name not in known and any(other.startswith(f"{name}.") for other in known)
        pairs += _flat(known, value, f"{name}.") if inner and _is_map(value) else [(name, value)]
    return pairs


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """`{"a.b": 1}` as `{"a": {"b": 1}}`, as charts take their values."""
    whole: dict[str, Any] = {}
    for name, value in values.items():
        *above, last = name.split(".")
        place = whole
        for key in above:
            place = place.setdefault(key, {})
        place[last] = value
    return whole


def filled(found: Any, values: Mapping[str, Any]) -> Any:
    """A value of JSON with its placeholders replaced; a text that is one placeholder alone becomes the value itself.

    A placeholder without a value is left out: as the value of a key with it, inside a text as nothing.
    """
    if isinstance(found, str):
        whole = PLACEHOLDER.fullmatch(found)
        if whole:
            return values.get(whole.group(1))
        return PLACEHOLDER.sub(lambda match: _text(values.get(match.group(1))), found)
    if _is_map(found):
        pairs = ((str(filled(key, values)), filled(value, values)) for key, value in found.items())
        return {key: value for key, value in pairs if value is not None}
    if isinstance(found, list | tuple):
        listed = (filled(one, values) for one in cast("list[Any]", found))
        return [one for one in listed if one is not None]
    return found


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)
