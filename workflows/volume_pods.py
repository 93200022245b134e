"""Pods that test volumes: each has one of its own, which is claimed with the pod and goes with it.

Kubernetes makes and removes the claim (a generic ephemeral volume): nothing is left behind whoever dies, and nobody of
ours needs the right to make claims. Such a pod does nothing else, since one whose claim is never bound never starts.
"""

from __future__ import annotations

from collections.abc import Sequence

from hera.workflows import Container, Parameter, models

from profiles.cluster import ClusterProfile
from workflows import commands, labels, pods
from workflows.commands import whole_seconds
from workflows.placeholders import folder_variable
from workflows.programs import probe as probe_program
from workflows.programs.probe_call import Call, to_json

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

    Args:
        cluster: with a storage class (`admission.storage_class`).
        test: name of the workflow.
        name: of the template.
        calls: of the probe `volume`.
    """
    paths = {commands.OUTPUTS_VOLUME: pods.OUTPUTS_MOUNT, CLAIMED: MOUNT}
    mounts = [{"name": volume, "mountPath": path} for volume, path in paths.items()]
    environment = [*pods.folder_environment(mounts), pods.field_variable("PRIMUS_NODE", "spec.nodeName")]
    seconds = volume_seconds(calls)
    options = probe_program.Options(
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
