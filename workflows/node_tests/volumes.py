"""Pods that test volumes, and what a claim and its pod say about the volume and whose fault a failure is. Pure.

Each pod has a volume of its own, claimed with the pod and removed with it. Kubernetes makes and removes the claim (a
generic ephemeral volume): nothing is left behind whatever dies, and we need no right to make claims. Such a pod does
nothing else, since one whose claim is never bound never starts. A claim that is never bound is the storage's failure:
it is reported, and leaves the node unknown, never bad.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hera.workflows import Container, Parameter, models

from profiles.cluster import ClusterProfile
from workflows import labels
from workflows.attempt import commands, pods
from workflows.attempt.commands import whole_seconds
from workflows.attempt.placeholders import folder_variable
from workflows.programs.parsers.text import EVIDENCE_CHARACTERS, ParsedOutput, Reading
from workflows.programs.probes import run
from workflows.programs.probes.call import Call, to_json

VOLUME = "volume-"
"""Beginning of the templates' names; the number of the pool follows."""
CLAIMED = "claimed"
"""Name of the volume."""
MOUNT = "/primus/claimed"
SIZE = "128Mi"
"""Of a claim: twice what is written; some providers of storage round it up to a GiB."""
WORK_SHARE = 0.5
"""Of the time, for writing and reading once the volume is mounted."""
USER = 65532
"""Of our own image: files of a new volume are root's, and its group gets them."""


def volume_seconds(calls: Sequence[Call]) -> int:
    """From the claim to the end of its pod; what takes longer is ended, also where the pod still waits."""
    return whole_seconds(max((call.deadline_seconds for call in calls), default=0.0))


def volume_pod(cluster: ClusterProfile, test: str, name: str, calls: Sequence[Call]) -> Container:
    """The template of the pods with a volume.

    The cluster has a storage class (`admission.storage_class`); the calls are of the probe `volume`.
    """
    paths = {commands.OUTPUTS_VOLUME: pods.OUTPUTS_MOUNT, CLAIMED: MOUNT}
    mounts = [{"name": volume, "mountPath": path} for volume, path in paths.items()]
    environment = [*pods.folder_environment(mounts), pods.field_variable("PRIMUS_NODE", "spec.nodeName")]
    seconds = volume_seconds(calls)
    options = run.Options(
        calls=to_json(tuple(calls)),
        path=f"$({folder_variable(CLAIMED)})",
        deadline_seconds=WORK_SHARE * seconds,
        out_dir=f"$({folder_variable(commands.OUTPUTS_VOLUME)})",
    )
    group = cluster.run_as_user if cluster.run_as_user is not None else USER
    report = models.ValueFrom(path=f"{pods.OUTPUTS_MOUNT}/report", default="{}")
    return Container(
        name=name,
        image=cluster.programs_image,
        command=[commands.PROGRAMS, "probe", *options.argv()],
        inputs=[Parameter(name="node")],
        outputs=[Parameter(name="report", value_from=report)],
        env=[models.EnvVar.model_validate(item) for item in environment],
        resources=models.ResourceRequirements.model_validate(pods.OWN_RESOURCES),
        security_context=models.SecurityContext.model_validate(pods.container_security()),
        pod_security_context=models.PodSecurityContext.model_validate({**pods.pod_security(cluster), "fsGroup": group}),
        volume_mounts=[models.VolumeMount.model_validate(mount) for mount in mounts],
        volumes=[models.Volume.model_validate({"name": CLAIMED, "ephemeral": _claim(cluster, test)})],
        node_selector={labels.HOSTNAME: "{{inputs.parameters.node}}"},
        active_deadline_seconds=seconds,
        # Counts from the pod's creation, so that one whose volume is never bound ends too.
        timeout=f"{seconds}s",
    )


def _claim(cluster: ClusterProfile, test: str) -> pods.Part:
    metadata = {"labels": {labels.TEST: test}, "annotations": {labels.NODE: "{{inputs.parameters.node}}"}}
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": SIZE}},
        "storageClassName": cluster.admission.storage_class,
    }
    return {"volumeClaimTemplate": {"metadata": metadata, "spec": spec}}


@dataclass(frozen=True)
class NodeClaim:
    """One node's claim, from its creation until it is gone."""

    report: ParsedOutput | None = None
    """What the pod told; None: nothing."""
    bound: bool = False
    """The claim was seen bound."""
    ran: bool = False
    """The pod was seen running, or has told."""
    ready_seconds: float = 0.0
    """From the pod's creation until it began to write: claimed, bound, mounted, started."""
    worked_seconds: float = 0.0
    """Written and read back."""
    gone_seconds: float | None = None
    """From the pod's end until its claim was gone; None: it was still there at the last look."""
    said: str = ""
    """The last thing that the cluster said of the pod while it waited, or of its end."""


def claim_readings(claim: NodeClaim, storage_class: str, limit_seconds: float) -> ParsedOutput:
    """Readings of the probe `volume`.

    The pod is ended after `limit_seconds`.

    Returns:
        `volume_faults` (count, as the pod told it), `volume_claims_stuck` (count: it was not bound, or did not go) and
        `volume_seconds` (s, all steps). A claim that was not bound leaves `volume_faults` out, and the reason says why.
    """
    because = f": {claim.said}" if claim.said else ""
    if claim.report is not None:
        return _whole(claim, claim.report, storage_class)
    if claim.ran:
        return ParsedOutput(unknown=f"the pod with the volume ended without a report{because}")
    if claim.bound:
        return ParsedOutput(
            unknown=f"the volume is bound, and its pod did not start within {limit_seconds:g} s{because}"
        )
    why = f"no volume of storage class {storage_class} was bound within {limit_seconds:g} s{because}"
    stuck = Reading("volume_claims_stuck", 1.0, "count", line=why[:EVIDENCE_CHARACTERS])
    return ParsedOutput((stuck,), f"{why}; this is the storage's failure, not the node's")


def _whole(claim: NodeClaim, report: ParsedOutput, storage_class: str) -> ParsedOutput:
    gone = claim.gone_seconds
    ended = f"gone after {gone:.2g} s" if gone is not None else "not gone: look at who holds the claim"
    steps = f"bound and mounted after {claim.ready_seconds:.2g} s, worked on {claim.worked_seconds:.2g} s, {ended}"
    line = f"{storage_class}: {steps}"
    took = claim.ready_seconds + claim.worked_seconds + (gone or 0.0)
    readings = [
        *(replace(one, line=f"{one.line}; {steps}"[:EVIDENCE_CHARACTERS]) for one in report.readings),
        Reading("volume_claims_stuck", 0.0 if gone is not None else 1.0, "count", line=line),
    ]
    if gone is not None:
        readings.append(Reading("volume_seconds", round(took, 3), "s", line=line))
    return ParsedOutput(tuple(readings), report.unknown)
