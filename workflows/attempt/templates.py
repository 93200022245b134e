"""Argo templates that all our pipelines are made of, and the frame around them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml
from hera.workflows import Container, Parameter, Resource, RetryStrategy, Workflow, models

from workflows import labels
from workflows.attempt import commands, pods
from workflows.attempt.plan import AttemptPlan
from workflows.attempt.pods import Part
from workflows.model import ownership

_Dumper = yaml.CSafeDumper if yaml.__with_libyaml__ else yaml.SafeDumper
"""Both write the same text; PyYAML with libyaml is ten times faster."""
LOST_POD_RETRIES = 2
"""A probe pod that vanished (Argo's `Error`) is started again; one that ended with an error said something."""
REFUSED_TRIES, REFUSED_WAIT_SECONDS, REFUSED_TRY_SECONDS = 12, 2, 15
"""So often an object is applied again that no webhook could look at, so long after the try before, and so long one
takes at most: 5 s for its pod, 10 s (Kubernetes' default) for the webhook. The real engine takes 5 s for a pod at
least, so that they fill 80 s and more: services have forgotten the lost pod by then."""
REFUSED_SECONDS = REFUSED_TRIES * (REFUSED_WAIT_SECONDS + REFUSED_TRY_SECONDS)
AGAIN = " || ".join(
    (
        f"(lastRetry.status == 'Error' && asInt(retries) < {LOST_POD_RETRIES})",
        "((lastRetry.message contains 'failed calling webhook' || lastRetry.message contains 'context deadline "
        "exceeded') && not (lastRetry.message contains 'denied the request'))",
    )
)
"""Whether an object is applied again, as an expression of Argo over the try before: its pod vanished, or the API server
got no word from a webhook (`failed calling webhook "…": … context deadline exceeded`, code 500). One that answered and
refuses (`admission webhook "…" denied the request: …`) says the same again."""
KEEP_SECONDS = 24 * 3600
"""Ended workflows are kept a day; what they found is in the ledger by then."""
DEADLINE_MARGIN_SECONDS = 120
"""Beyond the longest step: time for the controller to start pods and pass on results."""
MAIN = "main"
ENDLESS_WIDTH = 1 << 20


@dataclass(frozen=True)
class ProgramStep:
    """A pod of the programs image that writes its findings into one file an output parameter."""

    name: str
    """Name of the template."""
    command: Sequence[str]
    """The program's command line."""
    outputs: Mapping[str, str]
    """Output parameters with their value for a pod that left no such file."""
    deadline_seconds: int
    """The pod is ended after this time."""
    on_node: bool = False
    """The template takes an input parameter `node` and runs there; else in the pool, away from suspects."""
    resources: Part = field(default_factory=lambda: pods.OWN_RESOURCES)
    """The pod's resources."""
    tolerations: Sequence[Part] = ()
    """Beyond those of the pool's taints."""
    environment: Sequence[Part] = ()
    """Beyond what every program of ours is told."""
    reads_kernel_log: bool = False
    """The pod may read what the node's kernel said."""


def workflow(plan: AttemptPlan, name: str, pipeline: str, deadline_seconds: int) -> Workflow:
    """The frame of a pipeline: names, labels, limits. Use it as a context manager and add the templates.

    `deadline_seconds` is what the longest chain of steps may take; a margin for the engine is added.
    """
    cluster = plan.resolved.cluster
    marks = {**plan.marks, **labels.labels(plan.run, plan.attempt, pipeline)}
    volumes = [*pods.storage_volumes(cluster), pods.empty_volume(commands.OUTPUTS_VOLUME)]
    return Workflow(
        name=name,
        namespace=plan.namespace,
        labels=marks,
        annotations=ownership.marks(plan.fencing, plan.ledger),
        entrypoint=MAIN,
        service_account_name=cluster.service_account,
        active_deadline_seconds=deadline_seconds + DEADLINE_MARGIN_SECONDS,
        pod_gc=models.PodGC(strategy="OnPodSuccess"),
        ttl_strategy=models.TTLStrategy(seconds_after_completion=KEEP_SECONDS),
        pod_metadata=models.Metadata(labels=marks),
        image_pull_secrets=[models.LocalObjectReference(name=secret) for secret in cluster.image_pull_secrets] or None,
        security_context=models.PodSecurityContext.model_validate(pods.pod_security(cluster)),
        tolerations=[models.Toleration.model_validate(item) for item in pods.tolerations(plan.resolved.pool)] or None,
        volumes=[models.Volume.model_validate(volume) for volume in volumes],
    )


def program(plan: AttemptPlan, step: ProgramStep) -> Container:
    """The template of a step that runs one of our programs."""
    mounts = pods.volume_mounts(plan.resolved.cluster, {commands.OUTPUTS_VOLUME: pods.OUTPUTS_MOUNT})
    environment = [*pods.own_environment(plan, mounts), *step.environment]
    selector = (
        {labels.HOSTNAME: "{{inputs.parameters.node}}"}
        if step.on_node
        else pods.node_selector(plan.resolved.cluster, plan.resolved.pool)
    )
    affinity = {} if step.on_node else pods.node_affinity(plan, ())
    # A template's own tolerations replace the workflow's.
    tolerations = [*pods.tolerations(plan.resolved.pool), *step.tolerations] if step.tolerations else []
    security = pods.container_security(reads_kernel_log=step.reads_kernel_log)
    return Container(
        name=step.name,
        image=plan.resolved.cluster.programs_image,
        command=list(step.command),
        inputs=[Parameter(name="node")] if step.on_node else None,
        outputs=[_output(key, default) for key, default in step.outputs.items()],
        env=[models.EnvVar.model_validate(item) for item in environment],
        resources=models.ResourceRequirements.model_validate(step.resources),
        security_context=models.SecurityContext.model_validate(security),
        volume_mounts=[models.VolumeMount.model_validate(mount) for mount in mounts],
        node_selector=selector or None,
        affinity=models.Affinity.model_validate(affinity) if affinity else None,
        tolerations=[models.Toleration.model_validate(item) for item in tolerations] or None,
        active_deadline_seconds=step.deadline_seconds,
        retry_strategy=RetryStrategy(limit=LOST_POD_RETRIES, retry_policy="OnError"),
    )


def apply(name: str, manifest: Mapping[str, Any], inputs: Sequence[str], deadline_seconds: int) -> Resource:
    """A step that applies `manifest` by its fixed name.

    No condition to wait for and no owner: the object's life does not hang on the workflow's. A webhook that does not
    answer is asked again (`AGAIN`), for up to `REFUSED_SECONDS` beyond `deadline_seconds`, which one try may take; what
    the API server said last is the message of the last try.
    """
    return Resource(
        name=name,
        action="apply",
        flags=["--server-side", f"--field-manager={labels.FIELD_MANAGER}"],
        inputs=[Parameter(name=key) for key in inputs],
        manifest=text(manifest),
        active_deadline_seconds=deadline_seconds,
        retry_strategy=RetryStrategy(
            limit=REFUSED_TRIES,
            retry_policy="Always",
            expression=AGAIN,
            backoff=models.Backoff(duration=f"{REFUSED_WAIT_SECONDS}s"),
        ),
    )


def text(manifest: Mapping[str, Any]) -> str:
    """One YAML document with the keys in their order; the same text for equal manifests."""
    # The copy shares no part with itself: anchors would be hard to read, and not every reader knows them.
    return yaml.dump(
        json.loads(json.dumps(manifest)), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=ENDLESS_WIDTH
    )


def _output(name: str, default: str) -> Parameter:
    path = f"{pods.OUTPUTS_MOUNT}/{name}"
    return Parameter(name=name, value_from=models.ValueFrom(path=path, default=default))
