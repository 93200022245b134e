"""Components on a cluster: what is there, the first three applied by ourselves, the rest by one workflow.

Argo, JobSet and Kueue come first, through the API server itself; there is no Argo that could. Everything else is one
workflow, called after what it does: whoever comes after a kill finds it and goes on watching.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import yaml

from profiles.bootstrap.components import BuiltInSource
from profiles.bootstrap.inventory import Mirror
from profiles.cluster import ClusterProfile
from profiles.errors import NotFound, PrimusError, ProfileError, Unavailable
from profiles.health import HealthValues
from profiles.loading.load import load_workspace
from profiles.vocabulary import VerdictWord
from tasks.bootstrap.certificates import awaited_certificates, show_certificates
from tasks.bootstrap.installer import installing, living_workflows
from tasks.bootstrap.mirror import checked_authority, mirror_bytes
from tasks.cluster import Cluster, Manifest
from tasks.workflow_runs import ENDED, follow_workflow, phase_of, submit_workflow
from workflows import labels
from workflows.bootstrap.components import ASK, PUT, REPORT, ComponentsPlan, components_workflow
from workflows.bootstrap.endurance import given
from workflows.bootstrap.removal import Leaving, RemovalPlan, removal_workflow
from workflows.model.bootstrap import Stage
from workflows.model.components import (
    NAMESPACE,
    ChosenComponent,
    InstalledComponent,
    installed_of,
    note_name,
    objects_of,
    pinned,
    report_of,
)
from workflows.model.manifest import part
from workflows.model.ownership import signed
from workflows.model.workflow import workflow_pods
from workflows.platform.health import health
from workflows.platform.workspace import workspace
from workflows.programs.runtime.kubernetes_api import Api, ApiError
from workflows.programs.serving.install import Options, begin
from workflows.programs.serving.objects import (
    DEFINITIONS,
    Applier,
    ObjectsError,
    definitions_of,
    marked,
    own_objects,
)
from workflows.programs.serving.world import condition, phase, why_not

FIRST_SECONDS = 300.0
"""For the definitions and objects of one of the first three."""
REMOVE_SECONDS = 600.0
NUMBERS = 900
"""Workflows of different content find names of their own among so many."""
BEGIN_SECONDS = 300.0
"""For Argo's controller to look at a workflow, its image pulled: until then nobody else ends one."""
SHOWN = 4
STEP_ENDED = ("Succeeded", "Failed", "Error")
KUBERNETES = Path(__file__).parents[2] / "deployments" / "kubernetes"
FILES = {
    "runner": ("accounts/control.yaml", "base/server.yaml", "base/runner.yaml", "base/network.yaml"),
    "monitor": ("base/monitor.yaml",),
}
_Loader = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
Tell = Callable[[str], None]


@dataclass(frozen=True)
class ComponentsSite:
    """One cluster and the components that it is to have."""

    profile: ClusterProfile
    chosen: tuple[ChosenComponent, ...]
    """All of them, each behind what it needs, with the digests of their sources."""
    api: Api
    """The API server, for objects of any kind."""
    seam: Cluster
    """The same cluster, in the namespace of the workflow (`workflows.model.components.NAMESPACE`)."""
    nodes: int = 1
    ledger: str = ""

    @property
    def mirror(self) -> Mirror:
        """Where everything comes from."""
        return self.profile.bootstrap.mirror if self.profile.bootstrap else Mirror()

    @property
    def authority(self) -> str:
        """Certificate authority of the mirror (PEM).

        Raises:
            ProfileError: the file cannot be read, or holds no certificates.
        """
        return checked_authority(self.mirror)


def open_components(
    profile: ClusterProfile, chosen: Sequence[ChosenComponent], nodes: int, ledger: str = ""
) -> ComponentsSite:
    """The cluster of a profile, as components see it. Nothing is asked until the first call."""
    from tasks.kubernetes.any_object import AnyObject  # noqa: PLC0415 - half a second that a laptop need not pay
    from tasks.kubernetes.api_server import ApiServer  # noqa: PLC0415 - likewise
    from tasks.kubernetes.cluster import KubernetesCluster  # noqa: PLC0415 - likewise
    from tasks.kubernetes.configuration import configuration_of  # noqa: PLC0415 - likewise

    server = ApiServer(lambda: configuration_of(profile.context, kubeconfig=profile.kubeconfig))
    seam = KubernetesCluster(profile.model_copy(update={"namespace": NAMESPACE}), server)
    return ComponentsSite(profile, tuple(chosen), AnyObject(server), seam, nodes, ledger)


def look_components(api: Api) -> dict[str, InstalledComponent]:
    """What is there, by the notes in the cluster; nothing where there is no such namespace.

    Raises:
        Unavailable: the API server does not answer, or refuses.
    """
    query = {"labelSelector": labels.COMPONENT}
    try:
        return installed_of(api.items(f"/api/v1/namespaces/{NAMESPACE}/configmaps", query))
    except ApiError as error:
        raise Unavailable(f"components: {error}") from error


def bring_components(site: ComponentsSite, names: Collection[str], tell: Tell) -> dict[str, str]:
    """Install and prove these; the ids of the steps that failed, with the innermost words. Others are left alone."""
    asked = tuple(one for one in site.chosen if one.name in names)
    failures: dict[str, str] = {}
    applied: list[Manifest] = []
    try:
        fresh, plan = _planned(site, asked)
        with installing(site.api, site.seam, tell):
            if _end_others(site, plan.fingerprint, tell):
                fresh, plan = _planned(site, asked)
            for one in (one for one in asked if one.profile.first and one.name in fresh):
                tell(f"{one.name} {one.profile.version}: applying")
                applied += _apply_first(site, one)
            if awaited := awaited_certificates(applied):
                tell(f"waiting for certificates of {', '.join(one.namespace for one in awaited)}")
                show_certificates(site.api, awaited)
            failures = _told(plan, _run(site, plan, tell))
    except (PrimusError, ApiError, ObjectsError, OSError) as error:
        failures = {f"{Stage.COMPONENTS}/{one.name}": str(error) for one in asked}
    return failures


def _planned(site: ComponentsSite, asked: tuple[ChosenComponent, ...]) -> tuple[frozenset[str], ComponentsPlan]:
    """Names of those that must be installed as things are now, and what one workflow does with all of them."""
    there = look_components(site.api)
    fresh = frozenset(one.name for one in asked if _must_be_applied(one, there.get(one.name)))
    install = frozenset(one.name for one in asked if not one.profile.first and one.name in fresh)
    built_in = built_in_objects(site.profile, asked)
    return fresh, ComponentsPlan(site.profile, asked, install, 0, built_in, site.nodes, site.authority, site.ledger)


def _end_others(site: ComponentsSite, own: str, tell: Tell) -> bool:
    """Whether a workflow of an earlier command, that does something else, still ran; it has ended by now.

    Two at once would meet in one chart, and ending one amid an install leaves the chart locked: so it is followed to
    its end. One that nobody has begun yet has done nothing, and is taken away. `own`: name or fingerprint of what is
    to run.
    """
    found = False
    for other in living_workflows(site.seam):
        name, wanted = str(part(other, "metadata")["name"]), part(other, "metadata", "annotations").get(labels.WANTED)
        if own in (name, wanted):
            continue
        found = True
        if not phase_of(other):
            _gone(site, name)
            continue
        tell(f"workflow {name} of an earlier command still runs: its end comes first")
        with contextlib.suppress(NotFound):
            for _ in follow_workflow(site.seam, name):
                pass
    return found


def _must_be_applied(one: ChosenComponent, there: InstalledComponent | None) -> bool:
    """It is not there as it is wanted, or it is and was seen not to serve: asking again mends nothing."""
    if there is None or there.wanted != one.wanted:
        return True
    report = there.report
    return report is not None and report.wanted == one.wanted and report.word == VerdictWord.FAIL


def _apply(site: ComponentsSite, objects: Sequence[Manifest], namespace: str, crds: Sequence[str]) -> None:
    Applier(site.api, time.monotonic() + FIRST_SECONDS).apply(objects, namespace, crds)


def _apply_first(site: ComponentsSite, one: ChosenComponent) -> list[Manifest]:
    """The note says that it is begun; then definitions and objects, each with its label. Returns them."""
    objects = source_objects(site, one)
    begin(Options(one.name, version=one.profile.version, notes_in=NAMESPACE), site.api)
    names = [part(item, "metadata").get("name") for item in objects if item.get("kind") == "Namespace"]
    own: list[Manifest] = [] if one.profile.namespace in names else [_namespace(one.profile.namespace)]
    found = [marked(given(one, item), one.name, one.wanted) for item in (*own, *objects)]
    _apply(site, found, one.profile.namespace, one.profile.crds)
    return found


def _namespace(name: str) -> Manifest:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def source_objects(site: ComponentsSite, one: ChosenComponent) -> list[Manifest]:
    """The component's objects, wherever they come from.

    Raises:
        ProfileError: it is a chart, nobody says its digest, the mirror has another one, or what it has is no list.
        Unavailable: the mirror does not answer.
    """
    own = objects_of(one, built_in_objects(site.profile, [one]), site.mirror.registry)
    if own is not None:
        return own
    source = one.profile.source
    if source.kind != "manifests":
        raise ProfileError(f"components.{one.name}.source", "is a chart, which only its workflow installs")
    data = mirror_bytes(site.mirror, source.path, one.sha256)
    return pinned(one, _listed(data, f"components.{one.name}.source.path", source.path), site.mirror.registry)


def _listed(data: bytes, field: str, path: str) -> list[Manifest]:
    try:
        found: Any = json.loads(data)
    except ValueError as error:
        raise ProfileError(field, f"{path} is no JSON: {error}") from error
    listed: Any = cast("Manifest", found).get("items") if isinstance(found, dict) else found
    if not isinstance(listed, list) or not all(isinstance(one, dict) for one in cast("list[Any]", listed)):
        raise ProfileError(field, f"{path} holds no JSON list of objects, and no object with `items`")
    return cast("list[Manifest]", listed)


def built_in_objects(profile: ClusterProfile, chosen: Sequence[ChosenComponent]) -> dict[str, list[Manifest]]:
    """Objects of our own components among these, by name.

    Raises:
        ProfileError: a value of one names a profile that there is not, or that is not its own.
    """
    found: dict[str, list[Manifest]] = {}
    for one in chosen:
        if isinstance(one.profile.source, BuiltInSource):
            found[one.name] = _built_in(profile, one, one.profile.source.part)
    return found


def _built_in(profile: ClusterProfile, one: ChosenComponent, name: str) -> list[Manifest]:
    namespace = one.profile.namespace
    if name == "health":
        return health(HealthValues(image=profile.programs_image, namespace=namespace))
    if name == "workspace":
        return _workspace(one)
    texts = ((KUBERNETES / file).read_text(encoding="utf-8") for file in FILES[name])
    found: list[Manifest] = [one for text in texts for one in yaml.load_all(text, Loader=_Loader) if one]
    if name == "runner":
        found.append(_site(profile, namespace))
    return found


def _workspace(one: ChosenComponent) -> list[Manifest]:
    field = f"components.{one.name}.values"
    found = load_workspace(str(one.values["profile"]))
    if found.name != one.profile.namespace:
        reason = f"workspace {found.name} has a namespace of that name, and the component stands for"
        raise ProfileError(f"{field}.profile", f"{reason} {one.profile.namespace}: copy the component's profile for it")
    if found.queue != one.values["queue"]:
        raise ProfileError(f"{field}.queue", f"workspace {found.name} has queue {found.queue} alone")
    return workspace(found)


def _site(profile: ClusterProfile, namespace: str) -> Manifest:
    """What kustomize makes of the site's folder: where the server is, and the cluster profile, for whom it is here."""
    here = profile.model_copy(update={"context": "", "kubeconfig": "", "bootstrap": None})
    text = yaml.safe_dump(here.model_dump(mode="json", exclude_defaults=True), sort_keys=False)
    data = {"prefect-api-url": "http://primus-prefect:4200/api", "cluster.yaml": text}
    metadata = {"name": "primus-site", "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def _run(site: ComponentsSite, plan: ComponentsPlan, tell: Tell) -> Manifest:
    """The workflow to its end: adopted where one that does the same runs, else made; one that has ended is replaced.

    Raises:
        Unavailable, Refused, NotFound, Foreign.
    """
    begin = int(plan.fingerprint, 16) % NUMBERS + 1
    own = replace(plan, number=begin)
    for number in range(begin, begin + NUMBERS):
        own = replace(plan, number=number)
        existing = site.seam.get("Workflow", own.name)
        same = existing is None or part(existing, "metadata", "annotations").get(labels.WANTED) == plan.fingerprint
        if existing is not None and phase_of(existing) in ENDED:
            _gone(site, own.name)
        elif not same:
            continue
        break
    manifest = components_workflow(own)
    return _followed(site, manifest, tell, own)


def _gone(site: ComponentsSite, name: str) -> None:
    site.seam.delete("Workflow", name)
    until = time.monotonic() + FIRST_SECONDS
    while site.seam.get("Workflow", name) is not None:
        if time.monotonic() > until:
            raise Unavailable(f"workflow {name} has ended and does not go")
        time.sleep(0.2)


def _followed(site: ComponentsSite, manifest: Manifest, tell: Tell, plan: ComponentsPlan | None = None) -> Manifest:
    """The workflow as it ended; what became of each component is told once, as it comes.

    Raises:
        Unavailable: Argo did not begin it in time; what its own pods wait for is said.
    """
    submit_workflow(site.seam, signed(manifest, site.ledger) if site.ledger else manifest)
    last, name, told = manifest, str(manifest["metadata"]["name"]), set[str]()
    tell(f"workflow {name}: submitted")
    until = time.monotonic() + BEGIN_SECONDS
    for last in follow_workflow(site.seam, name):
        if not phase_of(last) and time.monotonic() > until:
            why = _waiting(site) or "its controller says nothing"
            raise Unavailable(f"workflow {name} was not begun within {BEGIN_SECONDS:.0f} s: {why}")
        for line in _lines_of(plan, last) if plan else ():
            if line not in told:
                told.add(line)
                tell(line)
    return last


def _lines_of(plan: ComponentsPlan, workflow: Manifest) -> list[str]:
    """What became of each component so far."""
    put, asked = _last(workflow, PUT), _last(workflow, ASK)
    lines: list[str] = []
    for number, one in enumerate(plan.chosen):
        state, message, _ = put.get(number, ("", "", ""))
        if state in STEP_ENDED:
            came = "installed" if state == "Succeeded" else f"install {state.lower()}: {message}"
            lines.append(f"{one.name} {one.profile.version}: {came}")
        state, _, said = asked.get(number, ("", "", ""))
        report = report_of(said)
        if state in STEP_ENDED and report:
            lines.append(f"{one.name}: {report.word}: {report.why}")
        elif state == "Running":
            lines.append(f"{one.name}: asked whether it serves")
    return lines


def _waiting(site: ComponentsSite) -> str:
    """What pods of the flow's own first components wait for; "" where all run, or nobody tells."""
    found: list[str] = []
    for one in (one for one in site.chosen if one.profile.first):
        try:
            pods = site.api.items(f"/api/v1/namespaces/{one.profile.namespace}/pods")
        except ApiError:
            continue
        idle = [pod for pod in pods if phase(pod) != "Succeeded" and condition(pod, "Ready") != "True"]
        found += [f"{one.name}: {why_not(pod)}" for pod in idle]
    return "; ".join(found[:SHOWN])


def _told(plan: ComponentsPlan, ended: Manifest) -> dict[str, str]:
    """What did not come or does not serve, by id of its step, with the innermost words."""
    put, asked = _last(ended, PUT), _last(ended, ASK)
    found: dict[str, str] = {}
    for number, one in enumerate(plan.chosen):
        why = ""
        if one.name in plan.install and (step := put.get(number)) and step[0] != "Succeeded":
            why = f"its install {step[0].lower()}: {step[1] or 'no word'}"
        report = report_of(asked[number][2]) if number in asked else None
        if not why and (report is None or report.word != "pass"):
            said = part(ended, "status").get("message") or "no word"
            why = report.why if report else f"nobody asked it to serve: {said}"
        if why:
            found[f"{Stage.COMPONENTS}/{one.name}"] = why
    return found


def _last(ended: Manifest, beginning: str) -> dict[int, tuple[str, str, str]]:
    """Phase, message and report of the last pod of each template that begins so, by its number."""
    found: dict[int, tuple[str, str, str]] = {}
    for pod in sorted(workflow_pods(ended, beginning), key=lambda pod: pod.started_at or 0.0):
        number = pod.template.removeprefix(beginning)
        if number.isdigit():
            found[int(number)] = (pod.phase, pod.message, pod.outputs.get(REPORT, ""))
    return found


def remove_components(site: ComponentsSite, leaving: Sequence[Leaving], tell: Tell) -> dict[str, str]:
    """Take these away in their order: one workflow for all but the first three, which go last, by ourselves.

    Returns:
        Names of those that stay, with what holds them.
    """
    rest = tuple(one for one in leaving if not one.profile.first)
    try:
        if rest:
            built_in = built_in_objects(site.profile, [one.component for one in rest])
            plan = RemovalPlan(site.profile, rest, NUMBERS + 1, built_in, site.authority, site.ledger)
            with installing(site.api, site.seam, tell):
                ended = _removal(site, plan, tell)
            if phase_of(ended) != "Succeeded":
                return {one.component.name: _words(ended) for one in rest}
        for one in (one for one in leaving if one.profile.first):
            tell(f"{one.component.name}: removing")
            _remove_first(site, one)
    except (PrimusError, ApiError, ObjectsError, OSError) as error:
        return {one.component.name: str(error) for one in leaving}
    return {}


def _removal(site: ComponentsSite, plan: RemovalPlan, tell: Tell) -> Manifest:
    """The workflow that removes, to its end: one that still runs is adopted, one that has ended is replaced."""
    _end_others(site, plan.name, tell)
    existing = site.seam.get("Workflow", plan.name)
    if existing is not None and phase_of(existing) in ENDED:
        _gone(site, plan.name)
    return _followed(site, removal_workflow(plan), tell)


def _words(ended: Manifest) -> str:
    steps = [pod for pod in workflow_pods(ended) if pod.phase in ("Failed", "Error")]
    return f"{steps[0].name}: {steps[0].message}" if steps else str(part(ended, "status").get("message") or "no word")


def _remove_first(site: ComponentsSite, one: Leaving) -> None:
    applier = Applier(site.api, time.monotonic() + REMOVE_SECONDS)
    for kind in one.profile.removal.resources:
        applier.remove_all_of(kind)
    objects = source_objects(site, one.component)
    applier.remove(own_objects(objects, data=one.data), one.profile.namespace)
    for name in definitions_of(objects, one.profile.crds):
        applier.remove_path(f"{DEFINITIONS}/{name}")
    if one.namespace:
        applier.remove_path(f"/api/v1/namespaces/{one.namespace}")
    applier.remove_path(f"/api/v1/namespaces/{NAMESPACE}/configmaps/{note_name(one.component.name)}")
