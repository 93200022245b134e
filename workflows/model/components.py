"""Components in values: what a cluster is to get, what is there, and the note that is left of each in the cluster.

The note is a ConfigMap beside the workflow that installs: which version, as what, and how it served when it was asked
last. It outlives the workflow; whoever looks reads all notes by one list.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeGuard, cast

from profiles.bootstrap.components import (
    BuiltInSource,
    ChartSource,
    ComponentProfile,
    InlineSource,
    ManifestsSource,
    filled,
)
from profiles.bootstrap.release import ReleaseImage
from profiles.vocabulary import VerdictWord
from workflows import labels
from workflows.model.manifest import Json, part
from workflows.tolerations import LOST, STARTUP
from workflows.wire import ServingReport, from_json

NAMESPACE = "primus-bootstrap"
"""Where the workflow that installs runs, and the notes are kept."""
NOTE = "primus-component-"
"""Beginning of a note's name; the component's follows."""
FINGERPRINT_CHARACTERS = 16
GIVEN = 2
"""Raised whenever what we give to objects of the first components changes (`workflows.bootstrap.endurance.given`), so
that clusters that stand get it with the next `primus bootstrap`."""


@dataclass(frozen=True)
class ChosenComponent:
    """A component as one cluster gets it."""

    profile: ComponentProfile
    values: Mapping[str, Any]
    """By dotted name, all of them."""
    sha256: str = ""
    """Digest of its source, from its profile or as the site's mirror says it; "": nobody says it, or it needs none."""
    made_of: str = ""
    """Fingerprint of its objects as they are sent and of where images come from (`made_of`); "": of no cluster yet."""

    to_new_nodes: bool = False
    """Its pods run on nodes that no test has passed yet: the start-up taint is tolerated (`workflows.tolerations`)."""

    standby: bool = False
    """Its controllers have a second pod each on another node (`workflows.programs.serving.objects.standing_by`)."""

    endpoint: str = ""
    """`address:port` at which its pods find the API; "": by the address of the service."""

    @property
    def name(self) -> str:
        """Of the component."""
        return self.profile.name

    @property
    def fetched(self) -> bool:
        """Whether it comes from the mirror."""
        return isinstance(self.profile.source, ChartSource | ManifestsSource)

    @property
    def wanted(self) -> str:
        """Fingerprint of everything that makes it what it is."""
        profile = self.profile
        source = profile.source.model_dump(mode="json", exclude={"origin", "helm_image", "sha256"})
        images = {image.name: image.digest for image in profile.images}
        said = [profile.version, source, self.sha256, dict(self.values), images, profile.namespace, profile.crds]
        said.append(self.made_of)
        said += [STARTUP, *LOST] if self.to_new_nodes else []
        said += ["standby"] if self.standby else []
        said += [f"endpoint {self.endpoint}"] if self.endpoint else []
        said += [f"given {GIVEN}"] if profile.first else []
        text = json.dumps(said, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:FINGERPRINT_CHARACTERS]

    @property
    def known(self) -> dict[str, Any]:
        """Values by which placeholders are filled."""
        return {**self.values, "namespace": self.profile.namespace, "version": self.profile.version}

    def proof_parameters(self, nodes: int, cluster: str) -> dict[str, str]:
        """What its proof is told; parameters that nobody says are left out."""
        known = {**self.known, "nodes": nodes, "cluster": cluster}
        found: dict[str, Any] = filled(self.profile.proof.parameters, known)
        return {name: str(value) for name, value in found.items()}


@dataclass(frozen=True)
class InstalledComponent:
    """A component that is there, by its note."""

    name: str
    version: str
    wanted: str
    """Fingerprint of what it was installed as; "": it is being installed, or that failed."""
    report: ServingReport | None = None
    """How it served when it was asked last; None: it never was, or what was noted cannot be read."""


def objects_of(
    one: ChosenComponent, built_in: Mapping[str, Sequence[Mapping[str, Any]]], registry: str
) -> list[dict[str, Any]] | None:
    """Objects of a component that need no mirror, with their images as nodes pull them; None: they come from there.

    `built_in` are those of our own components, by name; `registry` the mirror's, "" for none.

    Raises:
        KeyError: one of our own is missing.
    """
    source = one.profile.source
    if isinstance(source, ChartSource | ManifestsSource):
        return None
    found: list[Any] = filled(list(source.objects), one.known) if isinstance(source, InlineSource) else []
    if isinstance(source, BuiltInSource):
        found = [dict(item) for item in built_in[one.name]]
    references = {image.name: image_reference(image, registry) for image in one.profile.images}
    return [_with_images(item, lambda image: references.get(image, image)) for item in found]


def made_of(
    one: ChosenComponent, built_in: Mapping[str, Sequence[Mapping[str, Any]]], registry: str
) -> ChosenComponent:
    """The component with the fingerprint of its objects and of the registry; arguments as of `objects_of`.

    What comes from the mirror is known by its digest, and by the registry that its images are pulled from.

    Raises:
        KeyError: one of our own is missing.
    """
    text = json.dumps([registry, objects_of(one, built_in, registry)], sort_keys=True, default=str)
    return replace(one, made_of=hashlib.sha256(text.encode()).hexdigest()[:FINGERPRINT_CHARACTERS])


def image_reference(image: ReleaseImage, registry: str) -> str:
    """How nodes pull an image: from the mirror's registry where there is one, by digest where it is known."""
    name = image.name
    host, slash, rest = name.partition("/")
    if registry:
        own = "." in host or ":" in host or host == "localhost"
        name = f"{registry.rstrip('/')}/{rest if slash and own else name}"
    return f"{name}@{image.digest}" if image.digest else name


def _with_images(found: Any, pulled: Callable[[str], str]) -> Any:
    """A value of JSON in which every `image` is what `pulled` makes of it."""
    if _is_map(found):
        pairs = ((key, _with_images(value, pulled)) for key, value in found.items())
        return {key: pulled(value) if key == "image" and isinstance(value, str) else value for key, value in pairs}
    return [_with_images(one, pulled) for one in cast("list[Any]", found)] if isinstance(found, list) else found


def _is_map(found: Any) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(found, Mapping)


def pinned(one: ChosenComponent, objects: Sequence[Any], registry: str) -> list[dict[str, Any]]:
    """Published objects with the component's own images: projects' lists name `latest`, or registries of their tests.

    An image is known by the last word of its name, e.g. `kueue` of `…/kueue/kueue:main`.
    """
    own = {_last_word(image.name): image_reference(image, registry) for image in one.profile.images}
    return [_with_images(item, lambda image: own.get(_last_word(image), image)) for item in objects]


def _last_word(image: str) -> str:
    return image.partition("@")[0].rpartition("/")[2].partition(":")[0]


def note_name(component: str) -> str:
    """Name of a component's note."""
    return f"{NOTE}{component}"


def installed_of(notes: Iterable[Json]) -> dict[str, InstalledComponent]:
    """What is there by its notes (ConfigMaps with the label `workflows.labels.COMPONENT`), by name."""
    found: dict[str, InstalledComponent] = {}
    for note in notes:
        name = str(part(note, "metadata", "labels").get(labels.COMPONENT) or "")
        if name and part(note, "metadata").get("name") == note_name(name):
            data = part(note, "data")
            version, wanted = str(data.get("version") or ""), str(data.get("wanted") or "")
            found[name] = InstalledComponent(name, version, wanted, report_of(str(data.get("report") or "")))
    return found


def report_of(text: str) -> ServingReport | None:
    """What a proof reported; None where it cannot be read."""
    try:
        report = from_json(ServingReport, text)
    except ValueError:
        return None
    return report if report.word in {word.value for word in VerdictWord} else None
