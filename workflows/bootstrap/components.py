"""The one workflow that brings all components of a cluster: each is installed, then asked whether it serves.

A DAG: whatever does not need another one goes side by side, and nothing is begun behind a proof that failed. What runs
in its pods is our own program (`workflows.programs.serving`) and, for charts, helm.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hera.workflows import DAG, Container, Parameter, RawArtifact, RetryStrategy, Task, UserContainer, Workflow, models

from profiles.bootstrap.components import BuiltInSource, ChartSource, InlineSource, ManifestsSource, nested
from profiles.bootstrap.inventory import Mirror
from profiles.cluster import ClusterProfile
from workflows import labels
from workflows.attempt import commands, pods
from workflows.attempt.commands import PROGRAMS, whole_seconds
from workflows.attempt.placeholders import folder_variable
from workflows.attempt.pods import Part
from workflows.attempt.templates import DEADLINE_MARGIN_SECONDS, LOST_POD_RETRIES, MAIN
from workflows.model.components import FINGERPRINT_CHARACTERS, NAMESPACE, ChosenComponent, objects_of
from workflows.model.ownership import marks
from workflows.programs.serving import install, main
from workflows.tolerations import EVERYTHING

PIPELINE = "bootstrap"
INSTALLER = "primus-installer"
"""Service account that installs: it may do everything while there is something to install."""
INSTALL, PROVE = "install-", "prove-"
"""Beginning of the steps' names; the component's follows."""
PUT, ASK = "put-", "ask-"
"""Beginning of the templates' names, which pods are called after: the component's place follows, not its long name."""
REPORT = "report"
INSTALL_SECONDS = 900
"""For one component to be applied, or its release to come up."""
START_SECONDS = 60
HELM_STEP_SECONDS = 2 * INSTALL_SECONDS + 2 * START_SECONDS
"""Two things of `INSTALL_SECONDS` each, and what stands before them. A release that does not come up is taken back in
as long again: one whose helm is ended amid that stays pending, and no later helm touches it."""
KEEP_SECONDS = 24 * 3600
AT_ONCE = 8
"""Components side by side: no more than an API server and a registry notice."""
CHART_VOLUME = "chart"
CHART_MOUNT = "/primus/chart"
OBJECTS = "/primus/objects/objects.json"
VALUES = "/primus/values/values.json"
HELM_RESOURCES: Part = {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}}
Manifest = dict[str, Any]


@dataclass(frozen=True)
class ComponentsPlan:
    """One round of installing and proving, decided."""

    cluster: ClusterProfile
    chosen: tuple[ChosenComponent, ...]
    """All that are proven, each behind what it needs."""
    install: frozenset[str]
    """Names of those that are installed before; the flow's own first ones are never among them."""
    number: int
    """Of the round: a counter of the ledger."""
    built_in: Mapping[str, Sequence[Manifest]] = field(default_factory=dict[str, Sequence[Manifest]], hash=False)
    """Objects of our own components, by name."""
    nodes: int = 1
    """How many nodes there are."""
    authority: str = ""
    """Certificate authority of the mirror (PEM); "": the images' own ones."""
    ledger: str = ""
    """Identity of the one that asks; it stands in the name."""

    @property
    def name(self) -> str:
        """Of the workflow."""
        return labels.components_name(self.cluster.name, self.number, self.ledger)

    @property
    def fingerprint(self) -> str:
        """Of all that it does: the same plan finds the workflow that an earlier driver made."""
        said = [self.cluster.name, self.ledger, sorted(self.install), [(one.name, one.wanted) for one in self.chosen]]
        return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:FINGERPRINT_CHARACTERS]

    @property
    def mirror(self) -> Mirror:
        """Where everything comes from."""
        return self.cluster.bootstrap.mirror if self.cluster.bootstrap else Mirror()


def installer() -> list[Manifest]:
    """What must be there before the workflow: its namespace, its account, and the right to install."""
    subject = {"kind": "ServiceAccount", "name": INSTALLER, "namespace": NAMESPACE}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": INSTALLER, "namespace": NAMESPACE}},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": INSTALLER},
            "roleRef": role,
            "subjects": [subject],
        },
    ]


def components_workflow(plan: ComponentsPlan) -> Manifest:
    """The workflow's manifest.

    Every proof leaves its report as output `report` and in the component's note; one that is not `pass` fails its step,
    and so the workflow.

    Raises:
        ValueError: nothing to do.
    """
    if not plan.chosen:
        raise ValueError("chosen: must hold at least one component")
    place = {one.name: number for number, one in enumerate(plan.chosen)}
    with Workflow(name=plan.name, **frame(plan.cluster, plan.ledger, deadline_seconds(plan))) as workflow:
        for one in plan.chosen:
            if one.name in plan.install:
                _install(plan, one, f"{PUT}{place[one.name]}")
            _prove(plan, one, f"{ASK}{place[one.name]}")
        with DAG(name=MAIN, fail_fast=False):
            for one in plan.chosen:
                before = [f"{PROVE}{name}" for name in (*one.profile.needs, *one.profile.after) if name in place]
                if one.name in plan.install:
                    _task(f"{INSTALL}{one.name}", f"{PUT}{place[one.name]}", before)
                    before = [f"{INSTALL}{one.name}"]
                _task(f"{PROVE}{one.name}", f"{ASK}{place[one.name]}", before)
    manifest: Manifest = workflow.to_dict()
    manifest["metadata"]["annotations"][labels.WANTED] = plan.fingerprint
    for template in manifest["spec"]["templates"]:
        template.pop("failFast", None)  # it stands in the DAG too, where it belongs
    return manifest


def _task(name: str, template: str, before: Sequence[str]) -> None:
    Task(name=name, template=template, depends=" && ".join(f"{one}.Succeeded" for one in before) or None)


def frame(cluster: ClusterProfile, ledger: str, deadline: int) -> dict[str, Any]:
    """What the workflow says of itself, but for its name."""
    ours = {labels.PIPELINE: PIPELINE}
    secrets = [models.LocalObjectReference(name=secret) for secret in cluster.image_pull_secrets]
    return {
        "namespace": NAMESPACE,
        "labels": ours,
        "annotations": marks(0, ledger),
        "entrypoint": MAIN,
        "service_account_name": INSTALLER,
        "active_deadline_seconds": deadline,
        "parallelism": AT_ONCE,
        "pod_gc": models.PodGC(strategy="OnPodSuccess"),
        "ttl_strategy": models.TTLStrategy(seconds_after_completion=KEEP_SECONDS),
        "pod_metadata": models.Metadata(labels=ours),
        "image_pull_secrets": secrets or None,
        "security_context": models.PodSecurityContext.model_validate(pods.pod_security(cluster)),
        "tolerations": [models.Toleration.model_validate(EVERYTHING)],
    }


def deadline_seconds(plan: ComponentsPlan) -> int:
    """After so long the whole workflow is ended: what its longest chain may take."""
    ends: dict[str, int] = {}
    for one in plan.chosen:
        begin = max((ends.get(name, 0) for name in (*one.profile.needs, *one.profile.after)), default=0)
        own = _prove_seconds(one) + (_install_seconds(one) if one.name in plan.install else 0)
        ends[one.name] = begin + own
    return max(ends.values()) * (-(-len(plan.chosen) // AT_ONCE)) + DEADLINE_MARGIN_SECONDS


def _install_seconds(one: ChosenComponent) -> int:
    return HELM_STEP_SECONDS if isinstance(one.profile.source, ChartSource) else INSTALL_SECONDS + START_SECONDS


def _prove_seconds(one: ChosenComponent) -> int:
    return whole_seconds(one.profile.proof.deadline_seconds) + 2 * START_SECONDS


def _prove(plan: ComponentsPlan, one: ChosenComponent, template: str) -> None:
    mounts = [{"name": commands.OUTPUTS_VOLUME, "mountPath": pods.OUTPUTS_MOUNT}]
    options = main.Options(
        component=one.name,
        proof=one.profile.proof.kind,
        parameters=json.dumps(_parameters(plan, one), sort_keys=True),
        version=one.profile.version,
        wanted=one.wanted,
        deadline_seconds=one.profile.proof.deadline_seconds,
        namespace=NAMESPACE,
        image=plan.cluster.programs_image,
        out_dir=f"$({folder_variable(commands.OUTPUTS_VOLUME)})",
    )
    found = models.ValueFrom(path=f"{pods.OUTPUTS_MOUNT}/{REPORT}", default="")
    Container(
        name=template,
        command=[PROGRAMS, "prove-serving", *options.argv()],
        outputs=[Parameter(name=REPORT, value_from=found)],
        active_deadline_seconds=_prove_seconds(one),
        volumes=[models.Volume.model_validate(pods.empty_volume(commands.OUTPUTS_VOLUME))],
        **own_pod(plan.cluster, mounts),
    )


def _parameters(plan: ComponentsPlan, one: ChosenComponent) -> dict[str, str]:
    found = one.proof_parameters(plan.nodes, plan.cluster.name)
    image = plan.cluster.admission.gpu_image
    return {**found, "image": image} if one.profile.proof.kind == "gpu" and image and "image" not in found else found


def own_pod(
    cluster: ClusterProfile, mounts: Sequence[Part], variables: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """What every container of our programs says of itself."""
    environment = [
        *pods.folder_environment(mounts),
        *(pods.variable(name, value) for name, value in (variables or {}).items() if value),
    ]
    return {
        "image": cluster.programs_image,
        "env": [models.EnvVar.model_validate(item) for item in environment] or None,
        "resources": models.ResourceRequirements.model_validate(pods.OWN_RESOURCES),
        "security_context": models.SecurityContext.model_validate(pods.container_security()),
        "volume_mounts": [models.VolumeMount.model_validate(mount) for mount in mounts] or None,
        "retry_strategy": RetryStrategy(limit=LOST_POD_RETRIES, retry_policy="OnError"),
    }


def _install(plan: ComponentsPlan, one: ChosenComponent, template: str) -> None:
    match one.profile.source:
        case ChartSource() as source:
            _chart(plan, one, source, template)
        case ManifestsSource() | InlineSource() | BuiltInSource():
            _objects(plan, one, template)


def _objects(plan: ComponentsPlan, one: ChosenComponent, template: str) -> None:
    """Applied by our own program: from the workflow itself, or from the mirror by digest."""
    own = objects_of(one, plan.built_in, plan.mirror.registry)
    options = install.Options(
        component=one.name,
        do="apply",
        version=one.profile.version,
        wanted=one.wanted,
        namespace=one.profile.namespace,
        notes_in=NAMESPACE,
        objects=OBJECTS if own is not None else "",
        url="" if own is not None else source_url(plan.mirror, one),
        sha256="" if own is not None else one.sha256,
        crd=one.profile.crds,
        to_new_nodes=one.to_new_nodes,
        deadline_seconds=float(INSTALL_SECONDS),
    )
    install_step(plan.cluster, template, options, own, plan.authority)


def install_step(
    cluster: ClusterProfile,
    template: str,
    options: install.Options,
    own: Sequence[Manifest] | None = None,
    authority: str = "",
) -> None:
    """A step of our own program: with these objects in the workflow itself, or what its flags say."""
    data = RawArtifact(name="objects", path=OBJECTS, data=json.dumps(own)) if own is not None else None
    Container(
        name=template,
        command=[PROGRAMS, "install-component", *options.argv()],
        inputs=[data] if data else None,
        active_deadline_seconds=INSTALL_SECONDS + START_SECONDS,
        **own_pod(cluster, [], {install.AUTHORITY: authority}),
    )


def source_url(mirror: Mirror, one: ChosenComponent) -> str:
    """Where pods fetch the component's source; "" for one that needs none."""
    source = one.profile.source
    if isinstance(source, InlineSource | BuiltInSource):
        return ""
    return f"{mirror.files_url.rstrip('/')}/{source.path}"


def _chart(plan: ComponentsPlan, one: ChosenComponent, source: ChartSource, template: str) -> None:
    """Fetched by our own program, installed by helm, and taken back where it does not come up."""
    folder = f"$({folder_variable(CHART_VOLUME)})"
    options = install.Options(
        component=one.name,
        do="fetch",
        version=one.profile.version,
        namespace=one.profile.namespace,
        notes_in=NAMESPACE,
        url=source_url(plan.mirror, one),
        sha256=one.sha256,
        to=folder,
    )
    words = [
        *("upgrade", "--install", one.name, f"{folder}/{install.CHART}"),
        *("--namespace", one.profile.namespace, "--create-namespace", "--values", VALUES),
        *("--atomic", "--timeout", f"{INSTALL_SECONDS}s", "--history-max", "3"),
    ]
    values = RawArtifact(name="values", path=VALUES, data=json.dumps(chart_values(one, source, plan.mirror)))
    helm_step(plan.cluster, template, source.helm_image, words, options, plan.authority, values)


def helm_step(
    cluster: ClusterProfile,
    template: str,
    image: str,
    words: Sequence[str],
    before: install.Options,
    authority: str = "",
    values: RawArtifact | None = None,
) -> None:
    """Helm with these words, behind what our own program does first in the same pod."""
    mounts = [{"name": CHART_VOLUME, "mountPath": CHART_MOUNT}]
    first = own_pod(cluster, mounts, {install.AUTHORITY: authority})
    retry = first.pop("retry_strategy")
    Container(
        name=template,
        image=image,
        command=["helm", *words],
        inputs=[values] if values else None,
        init_containers=[
            UserContainer(name=before.do, command=[PROGRAMS, "install-component", *before.argv()], **first)
        ],
        env=[models.EnvVar.model_validate(item) for item in helm_environment(mounts)],
        resources=models.ResourceRequirements.model_validate(HELM_RESOURCES),
        security_context=models.SecurityContext.model_validate(pods.container_security()),
        volume_mounts=[models.VolumeMount.model_validate(mount) for mount in mounts],
        volumes=[models.Volume.model_validate(pods.empty_volume(CHART_VOLUME))],
        active_deadline_seconds=HELM_STEP_SECONDS,
        retry_strategy=retry,
    )


def helm_environment(mounts: Sequence[Part]) -> list[Part]:
    """Where mounts are, and that helm writes beside the chart."""
    folder = f"$({folder_variable(CHART_VOLUME)})"
    homes = [pods.variable(f"HELM_{word}_HOME", folder) for word in ("CACHE", "CONFIG", "DATA")]
    return [*pods.folder_environment(mounts), *homes]


def chart_values(one: ChosenComponent, source: ChartSource, mirror: Mirror) -> dict[str, Any]:
    """What helm is told, nested as charts take it."""
    fields = one.profile.values
    told = {name: value for name, value in one.values.items() if not fields[name].for_proof}
    if source.registry_value and mirror.registry:
        told.setdefault(source.registry_value, mirror.registry)
    return nested(told)
