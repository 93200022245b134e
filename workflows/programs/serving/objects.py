"""Objects of any kind: where they live in the API, in which order they are applied, and how they go again."""

from __future__ import annotations

import time
from typing import Callable, Dict, List, Mapping, Sequence, Tuple, cast
from urllib.parse import quote

from workflows.programs.runtime.kubernetes_api import Api, ApiError, Json
from workflows.programs.serving.world import LOST, STARTUP, condition

DEFINITION = "CustomResourceDefinition"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
FIRST = ("Namespace", DEFINITION, "PriorityClass", "StorageClass", "ServiceAccount", "Secret", "ConfigMap")
LAST = (
    "APIService",
    "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration",
    "ValidatingAdmissionPolicyBinding",
)
"""Whoever intercepts requests comes when whoever answers them is there."""
WAIT_SECONDS = 1.0
VOLUMES = ("PersistentVolumeClaim", "PersistentVolume")
"""What holds data, or points to it."""
COMPONENT = "primus-flows.io/component"
WANTED = "primus-flows.io/wanted"
POD_TEMPLATES: Mapping[str, Tuple[str, ...]] = {
    "Pod": ("spec",),
    "Deployment": ("spec", "template", "spec"),
    "DaemonSet": ("spec", "template", "spec"),
    "StatefulSet": ("spec", "template", "spec"),
    "ReplicaSet": ("spec", "template", "spec"),
    "Job": ("spec", "template", "spec"),
    "CronJob": ("spec", "jobTemplate", "spec", "template", "spec"),
}
"""Where kinds keep what their pods are."""


class ObjectsError(Exception):
    """An object is refused, or what must come or go does not in time; the message says which and why."""


class Kinds:
    """Where kinds live, as the API itself tells; asked once for each group, again where a kind is new."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._known: Dict[Tuple[str, str], Tuple[str, bool]] = {}

    def path(self, manifest: Json, namespace: str) -> str:
        """Of the object; without a namespace of its own it is in `namespace`.

        Raises:
            ApiError: nobody answers, or the API serves no such kind (404).
        """
        version, kind = str(manifest.get("apiVersion")), str(manifest.get("kind"))
        metadata = cast("Json", manifest.get("metadata") or {})
        plural, namespaced = self._place(version, kind)
        where = f"/namespaces/{quote(str(metadata.get('namespace') or namespace))}" if namespaced else ""
        return f"{root_of(version)}{where}/{plural}/{quote(str(metadata.get('name')), safe=':')}"

    def _place(self, version: str, kind: str) -> Tuple[str, bool]:
        if (version, kind) not in self._known:
            listed = cast("List[Json]", self._api.get(root_of(version)).get("resources") or [])
            for one in listed:
                if "/" not in str(one.get("name")):
                    self._known[version, str(one.get("kind"))] = (str(one.get("name")), bool(one.get("namespaced")))
        if (version, kind) not in self._known:
            raise ApiError(404, f"the cluster serves no {kind} of {version}")
        return self._known[version, kind]

    def of_group(self, plural_group: str) -> str:
        """Path of all objects of `plural.group`, over all namespaces; "" where nothing serves them."""
        plural, _, group = plural_group.partition(".")
        if not group:
            return f"/api/v1/{plural}"
        try:
            preferred = cast("Json", self._api.get(f"/apis/{group}").get("preferredVersion") or {})
        except ApiError as error:
            if error.code != 404:
                raise
            return ""
        return f"/apis/{preferred.get('groupVersion')}/{plural}"


def root_of(version: str) -> str:
    """Of a group and version, e.g. `v1` or `apps/v1`."""
    return f"/apis/{version}" if "/" in version else f"/api/{version}"


def in_order(objects: Sequence[Json]) -> List[Json]:
    """Namespaces and definitions first, whoever intercepts requests last; otherwise as they stand."""

    def rank(one: Json) -> int:
        kind = str(one.get("kind"))
        return FIRST.index(kind) if kind in FIRST else len(FIRST) + (1 + LAST.index(kind) if kind in LAST else 0)

    return sorted(objects, key=rank)


def marked(manifest: Json, component: str, wanted: str) -> Json:
    """The object, saying which component it belongs to and what that was installed as."""
    metadata = dict(cast("Json", manifest.get("metadata") or {}))
    metadata["labels"] = {**cast("Json", metadata.get("labels") or {}), COMPONENT: component}
    metadata["annotations"] = {**cast("Json", metadata.get("annotations") or {}), WANTED: wanted}
    return {**manifest, "metadata": metadata}


def tolerating(manifest: Json) -> Json:
    """The object, whose pods may run on nodes that no preflight has passed yet.

    Those of a Deployment leave a lost node soon, unless it says itself how long they stay. A DaemonSet's belong to
    their node, and a StatefulSet's do not move while their node is silent.
    """
    kind = str(manifest.get("kind"))
    path = POD_TEMPLATES.get(kind)
    return _with_tolerations(manifest, path, LOST if kind == "Deployment" else ()) if path else manifest


def _with_tolerations(found: Json, path: Tuple[str, ...], of_lost: Sequence[Json]) -> Json:
    if path:
        inner = cast("Json", found.get(path[0]) or {})
        return {**found, path[0]: _with_tolerations(inner, path[1:], of_lost)}
    own = [one for one in cast("List[Json]", found.get("tolerations") or []) if one not in (STARTUP, *of_lost)]
    said = {one.get("key") for one in own}
    return {**found, "tolerations": [*own, dict(STARTUP), *(dict(one) for one in of_lost if one["key"] not in said)]}


def standing_by(manifest: Json) -> Json:
    """The object with a second pod on another node where it is a Deployment of one.

    Of two controllers one leads; the other takes over within seconds where the first one's node is lost, instead of
    being made anew once Kubernetes has noticed that. Only pods of one version stand apart from each other: else those
    of a roll-out find the old ones on both nodes, and may end beside each other (`matchLabelKeys`, Kubernetes 1.27).
    """
    spec = cast("Json", manifest.get("spec") or {})
    if manifest.get("kind") != "Deployment" or spec.get("replicas", 1) != 1:
        return manifest
    template = cast("Json", spec.get("template") or {})
    pod = cast("Json", template.get("spec") or {})
    apart = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": spec.get("selector"),
        "matchLabelKeys": ["pod-template-hash"],
    }
    pod = {**pod, "topologySpreadConstraints": [*cast("List[Json]", pod.get("topologySpreadConstraints") or []), apart]}
    return {**manifest, "spec": {**spec, "replicas": 2, "template": {**template, "spec": pod}}}


def own_objects(objects: Sequence[Json], *, data: bool) -> List[Json]:
    """Those that go with their component: no namespaces and definitions, and volumes only with `data`."""
    stay = ("Namespace", DEFINITION) if data else ("Namespace", DEFINITION, *VOLUMES)
    return [one for one in objects if one.get("kind") not in stay]


def definitions_of(objects: Sequence[Json], named: Sequence[str]) -> List[str]:
    """Names of definitions among the objects, then of those that are named beside them; each once."""
    found = [cast("Json", one.get("metadata") or {}).get("name") for one in objects if one.get("kind") == DEFINITION]
    return list(dict.fromkeys((*(str(name) for name in found), *named)))


class Applier:
    """Applies and removes, with a limit on the whole."""

    def __init__(
        self,
        api: Api,
        deadline: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.api, self.kinds = api, Kinds(api)
        self._deadline, self._clock, self._sleep = deadline, clock, sleep

    def apply(self, objects: Sequence[Json], namespace: str, crds: Sequence[str]) -> int:
        """All of them in order, definitions Established before anything else; how many.

        A webhook that does not answer yet and a kind that is not served yet are waited for.

        Raises:
            ObjectsError: one is refused, or the time is up.
        """
        ordered = in_order(objects)
        early = [one for one in ordered if one.get("kind") in ("Namespace", DEFINITION)]
        for one in early:
            self._one(one, namespace)
        own = [str(one["metadata"]["name"]) for one in early if one.get("kind") == DEFINITION]
        self.established([*own, *(name for name in crds if name not in own)])
        for one in ordered[len(early) :]:
            self._one(one, namespace)
        return len(ordered)

    def _one(self, manifest: Json, namespace: str) -> None:
        what = f"{manifest.get('kind')} {cast('Json', manifest.get('metadata') or {}).get('name')}"

        def done() -> str:
            try:
                self.api.apply(self.kinds.path(manifest, namespace), manifest)
            except ApiError as error:
                refused = error.code in (400, 403, 405, 415, 422)
                if refused and "webhook" not in str(error):
                    raise ObjectsError(f"{what}: {error}") from error
                return str(error)
            return ""

        self._until(done, what)

    def established(self, names: Sequence[str]) -> None:
        """Wait until the API serves these definitions.

        Raises:
            ObjectsError: the time is up.
        """
        for name in names:
            self._until(lambda name=name: self._not_established(name), f"definition {name}")  # type: ignore[misc]

    def _not_established(self, name: str) -> str:
        try:
            found = self.api.get(f"{DEFINITIONS}/{name}")
        except ApiError as error:
            return str(error)
        return "" if condition(found, "Established") == "True" else "it is not Established"

    def _until(self, done: Callable[[], str], what: str) -> None:
        while True:
            why = done()
            if not why:
                return
            if self._clock() >= self._deadline:
                raise ObjectsError(f"{what}: {why}")
            self._sleep(WAIT_SECONDS)

    def remove_all_of(self, plural_group: str) -> int:
        """Every object of the kind, in all namespaces, while its controller can still let go of them; how many.

        Raises:
            ObjectsError: some stay, with what holds them.
        """
        place = self.kinds.of_group(plural_group)
        if not place:
            return 0
        root, _, plural = place.rpartition("/")
        gone = set(cast("Sequence[str]", ()))

        def left() -> str:
            try:
                found = self.api.items(place)
            except ApiError as error:
                if error.code == 404:
                    return ""
                raise
            for one in found:
                path = _path_of(root, plural, one)
                if path not in gone:
                    gone.add(path)
                    self.api.delete(path)
            return "; ".join(_held(one) for one in found[:4])

        self._until(left, f"removal of {plural_group}")
        return len(gone)

    def remove(self, objects: Sequence[Json], namespace: str) -> int:
        """These objects, the last applied first; each is waited for. How many were there.

        Raises:
            ObjectsError: one stays, with what holds it.
        """
        count = 0
        for one in reversed(in_order(objects)):
            try:
                path = self.kinds.path(one, namespace)
            except ApiError as error:
                if error.code == 404:
                    continue
                raise
            count += self.remove_path(path)
        return count

    def remove_path(self, path: str) -> int:
        """One object; 1 where it was there.

        Raises:
            ObjectsError: it stays, with what holds it.
        """
        there = [0]

        def left() -> str:
            try:
                found = self.api.get(path)
                if not there[0]:
                    there[0] = 1
                    self.api.delete(path)
                    found = self.api.get(path)
            except ApiError as error:
                if error.code == 404:
                    return ""
                raise
            return _held(found)

        self._until(left, f"removal of {path}")
        return there[0]


def _path_of(root: str, plural: str, found: Json) -> str:
    metadata = cast("Mapping[str, str]", found["metadata"])
    where = f"/namespaces/{metadata['namespace']}" if metadata.get("namespace") else ""
    return f"{root}{where}/{plural}/{quote(metadata['name'], safe=':')}"


def _held(found: Json) -> str:
    metadata = cast("Json", found.get("metadata") or {})
    finalizers = cast("List[str]", metadata.get("finalizers") or [])
    return f"{metadata.get('name')} is held by {', '.join(finalizers) or 'what it owns'}"
