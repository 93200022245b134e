"""The JobSet of one attempt: one replicated job a role and one for the coordinator."""

from __future__ import annotations

from typing import Any

from profiles.run import Role
from workflows import labels
from workflows.attempt import gang_pods
from workflows.attempt.gang_pods import Holder
from workflows.attempt.plan import AttemptPlan
from workflows.attempt.pods import Part

API_VERSION = "jobset.x-k8s.io/v1alpha2"
KEEP_SECONDS = 7 * 24 * 3600
"""An ended gang is deleted by the flow. Should no driver come for a week, the cluster cleans up."""
ENDLESS = 1_000_000
"""Restarts that never run out: the end of such a pod must not end the attempt. Kubernetes slows them down itself."""
INDEX_FIELD = "metadata.annotations['batch.kubernetes.io/job-completion-index']"


def jobset(plan: AttemptPlan, resume_from: str = "", resume_step: str = "") -> dict[str, Any]:
    """The JobSet's manifest.

    `resume_from`: value of PRIMUS_RESUME_FROM: a path as pods see it, a tag that the workflow fills, or empty;
    `resume_step`: of PRIMUS_RESUME_STEP, likewise.

    Raises:
        ProfileError: the profile asks for something that cannot be written down.
    """
    holder = Holder(coordinator_host(plan), INDEX_FIELD, resume_from=resume_from, resume_step=resume_step)
    return {
        "apiVersion": API_VERSION,
        "kind": "JobSet",
        "metadata": gang_pods.queued(plan),
        "spec": {**gang_spec(plan, holder), "ttlSecondsAfterFinished": plan.lasts_seconds or KEEP_SECONDS},
    }


def gang_spec(plan: AttemptPlan, holder: Holder) -> Part:
    """Specification of a JobSet with the whole gang, kept until somebody deletes it.

    Raises:
        ProfileError: the profile asks for something that cannot be written down.
    """
    gang_pods.check(plan)
    return {
        "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
        "successPolicy": {"operator": "All", "targetReplicatedJobs": [plan.role.name]},
        "failurePolicy": {"maxRestarts": 0},
        "replicatedJobs": [
            _coordinator_job(plan),
            *(_replicated_job(plan, role, holder) for role in plan.resolved.run.roles),
        ],
    }


def coordinator_host(plan: AttemptPlan) -> str:
    """Name under which pods of the attempt reach the coordinator (JobSet's headless service is called like itself)."""
    return f"{plan.name}-{labels.COORDINATOR_ROLE}-0-0.{plan.name}"


def _replicated_job(plan: AttemptPlan, role: Role, holder: Holder) -> Part:
    policy = _OUTCOMES[role.on_failure]
    job = {"backoffLimit": policy["backoffLimit"]}
    if "podFailurePolicy" in policy:
        job["podFailurePolicy"] = {"rules": policy["podFailurePolicy"]}
    pod = gang_pods.role_pod(plan, role, holder)
    return _job(plan, role.name, role.replicas, job, _restarting(pod, policy["restartPolicy"]))


def _coordinator_job(plan: AttemptPlan) -> Part:
    pod = _restarting(gang_pods.coordinator_pod(plan), "OnFailure")
    return _job(plan, labels.COORDINATOR_ROLE, 1, {"backoffLimit": ENDLESS}, pod)


def _restarting(pod: Part, policy: str) -> Part:
    return {**pod, "spec": {"restartPolicy": policy, **pod["spec"]}}


def _job(plan: AttemptPlan, role: str, pods_count: int, job: Part, pod: Part) -> Part:
    return {
        "name": role,
        "replicas": 1,
        "template": {
            "metadata": {"labels": gang_pods.pod_labels(plan, role)},
            "spec": {
                "parallelism": pods_count,
                "completions": pods_count,
                "completionMode": "Indexed",
                **gang_pods.optional("activeDeadlineSeconds", plan.lasts_seconds),
                **job,
                "template": pod,
            },
        },
    }


def _exit_rule(action: str) -> Part:
    return {"action": action, "onExitCodes": {"operator": "NotIn", "values": [0]}}


_OUTCOMES: dict[str, Part] = {
    # The rules change no outcome (one failed pod ends the attempt anyway); they write into the Job's condition which
    # pod it was and why, and that outlives the pod.
    "fail_attempt": {
        "restartPolicy": "Never",
        "backoffLimit": 0,
        "podFailurePolicy": [
            {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            _exit_rule("FailJob"),
        ],
    },
    "restart": {"restartPolicy": "OnFailure", "backoffLimit": 20},
    "ignore": {"restartPolicy": "Never", "backoffLimit": ENDLESS, "podFailurePolicy": [_exit_rule("Ignore")]},
}
"""What the end of a pod with an error means, by the role's `on_failure`."""
