"""A cluster in memory: its pods do what a table says, its time passes where somebody waits, and it starts no process.

What may be written, what JobSets, workflows and the scheduler do comes from the pure parts of the embedded cluster.
Simulated are the store, the kubelets, the containers and the time. `tests/simulated/test_seam_contract.py` keeps it
honest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from profiles.errors import NotFound, PrimusError, Refused, Unavailable
from tasks.cluster import Answered, Manifest, Seen
from tasks.embedded import admission
from tasks.embedded.control.jobsets import pod_state
from tasks.embedded.control.nodes import node_object, set_ready
from tasks.embedded.control.pods import create_pods, deleting, end_pods, put_status
from tasks.embedded.control.scheduler import HOSTS_ANNOTATION, Scheduler
from tasks.embedded.control.workflows import pod_facts
from tasks.embedded.engine.argo.state import ResourceFacts
from tasks.embedded.engine.argo.workflow import advance
from tasks.embedded.engine.kube.jobset import advance_jobset
from tasks.embedded.engine.kube.pods import conditions, failed_status
from tasks.embedded.objects import (
    END_ANNOTATION,
    JOBSET_LABEL,
    OUTPUT_VALUES_ANNOTATION,
    WORKFLOW_LABEL,
    entries,
    is_finished,
    mark_deleted,
    matches,
    section,
)
from tasks.embedded.spec import NodeSpec
from tests.support.simulated.store import Clock, MemoryCache, MemoryStore

REACTION_SECONDS = 0.01
"""Controllers, scheduler and kubelets react so much later than what they react to."""


@dataclass(frozen=True)
class Act:
    """What a pod's container does once it runs."""

    seconds: float | None = 0.0
    """Until it ends by itself; None: it does not."""
    exit_code: int = 0
    lines: tuple[str, ...] = ()
    """Printed at once."""
    last_lines: tuple[str, ...] = ()
    """Printed when it ends by itself."""
    message: str = ""
    """Left behind as its termination message."""
    stopped_exit_code: int = 143
    """Where it is told to end before it does so by itself: 128 + SIGTERM."""
    stopped_message: str = ""
    """Left behind then."""
    outputs: Mapping[str, str] = field(default_factory=dict[str, str])
    """Output parameters of a workflow's step."""
    port: int = 0
    answer: Callable[[str, str, str, bytes], Answered] | None = None
    """To method, path, token and body of a request to `port`."""


class SimulatedCluster:
    """Satisfies `tasks.cluster.Cluster`.

    Args:
        clock: its time.
        nodes: what it is made of.
        acts: what a pod that starts will do.
    """

    def __init__(self, clock: Clock, nodes: Sequence[NodeSpec], acts: Callable[[Manifest], Act]) -> None:
        self.name, self.namespace = "simulated", "default"
        self._clock, self._acts = clock, acts
        self._store = MemoryStore(clock, self._react)
        self._cache = MemoryCache(self._store)
        self._scheduler = Scheduler(self._cache, {})
        self._reacts = False
        self._running: dict[str, Act] = {}
        """By the uid of the pod; kept after its end."""
        self._ended: set[str] = set()
        """Uids of pods that ended by themselves."""
        self._results: dict[str, dict[str, ResourceFacts]] = {}
        self._dark: set[str] = set()
        for spec in nodes:
            self._store.put(self._stamped(node_object(spec)))

    # The Protocol.

    def apply(self, manifest: Manifest, *, dry_run: bool = False) -> Manifest:
        """See `Cluster.apply`."""
        if manifest.get("kind") == "PersistentVolumeClaim":
            raise Refused("kind", "the simulated cluster has no volumes")
        return admission.admit(self._store, self.namespace, manifest, dry_run=dry_run)

    def get(self, kind: str, name: str) -> Manifest | None:
        """See `Cluster.get`."""
        return self._store.get(kind, name)

    def list(self, kind: str, labels: Mapping[str, str] | None = None) -> list[Manifest]:
        """See `Cluster.list`."""
        return [item for item in self._store.list(kind) if matches(item, labels)]

    def watch(
        self, kind: str, labels: Mapping[str, str] | None = None, *, since: str | None = None, timeout_seconds: float
    ) -> Iterator[Seen]:
        """See `Cluster.watch`. Time passes while nothing is to be told."""
        deadline = self._clock.now() + timeout_seconds
        position = None if since is None else int(since)
        while True:
            if position is None or position < self._store.forgotten:
                anew, position = position is not None, self._store.version
                everything = self.list(kind, labels)
                if anew:
                    yield Seen("SYNC", {}, str(position))
                yield from [Seen("ADDED", item, str(position)) for item in everything]
            for change in self._store.changes_after(position):
                position = change.version
                told = change.told(labels) if change.kind == kind else None
                if told is not None:
                    yield told
            if self._store.version > position:
                continue
            if self._clock.now() >= deadline:
                return
            self._clock.step(deadline)

    def patch(self, kind: str, name: str, patch: Manifest) -> Manifest:
        """See `Cluster.patch`."""
        return admission.patch(self._store, self.namespace, kind, name, patch)

    def delete(self, kind: str, name: str, *, grace_seconds: int | None = None) -> None:
        """See `Cluster.delete`. Every container ends as soon as it is told to, whatever its grace."""
        admission.delete(self._store, kind, name, grace_seconds)

    def logs(self, pod: str, container: str = "", *, tail_lines: int | None = None) -> str:
        """See `Cluster.logs`."""
        lines = self._printed(self._pod(pod, container))
        kept = lines if tail_lines is None else lines[max(0, len(lines) - tail_lines) :]
        return "".join(f"{line}\n" for line in kept)

    def follow(self, pod: str, container: str = "", *, timeout_seconds: float) -> Iterator[str]:
        """See `Cluster.follow`."""
        deadline, told = self._clock.now() + timeout_seconds, 0
        found = self._pod(pod, container)
        while True:
            there = self._store.get("Pod", pod)
            lines = self._printed(there or found)
            yield from lines[told:]
            told = len(lines)
            if there is None or is_finished(there) or self._clock.now() >= deadline:
                return
            self._clock.step(deadline)

    def reaches(self, pod: str, *, timeout_seconds: float) -> bool | None:
        """See `Cluster.reaches`."""
        del timeout_seconds
        node = self._pod(pod)["spec"].get("nodeName")
        return None if node is None else node not in self._dark

    def call(
        self,
        pod: str,
        port: int,
        method: Literal["GET", "POST"],
        path: str,
        *,
        token: str = "",
        body: bytes = b"",
        timeout_seconds: float = 2.0,
    ) -> Answered:
        """See `Cluster.call`."""
        del timeout_seconds
        found = self._pod(pod)
        act = self._act_of(found)
        living = found["status"]["phase"] == "Running" and found["spec"]["nodeName"] not in self._dark
        if not living or act.answer is None or act.port != port:
            raise Unavailable(f"nobody answers at {pod}:{port}")
        return act.answer(method, path, token, body)

    def versions(self) -> Mapping[str, str]:
        """See `Cluster.versions`."""
        return {"engine": "simulated"}

    # What breaks it.

    def lose_node(self, name: str) -> None:
        """Its pods are dead at once, and the cluster says so.

        Raises:
            NotFound: no such node.
        """
        node = self._store.get("Node", name)
        if node is None:
            raise NotFound(f"there is no Node {name}")
        self._dark.add(name)
        message = f"node {name} lost its power"
        self._store.put(self._stamped(set_ready(node, "False", "PowerLost", message)))
        for pod in self._store.list("Pod"):
            if pod["spec"].get("nodeName") == name and not is_finished(pod):
                status = failed_status(pod["status"], "NodeLost", message, self._clock.stamp())
                self._store.put({**pod, "status": status})

    def made(self, kind: str) -> tuple[str, ...]:
        """Names of the objects of a kind that were ever made, in order, each as often as it was."""
        assert not self._store.forgotten, "changes were forgotten"
        changes = (change for change in self._store.changes_after(0) if change.kind == kind and not change.before)
        return tuple(json.loads(change.after)["metadata"]["name"] for change in changes)

    def forget_changes(self) -> None:
        """No watch can go on from a version of before."""
        self._store.forget()

    # What happens by itself.

    def _react(self) -> None:
        if not self._reacts:
            self._reacts = True
            self._clock.after(REACTION_SECONDS, self._reconcile)

    def _reconcile(self) -> None:
        """One round of everybody; what it changes is looked at in the next one."""
        self._reacts = False
        for workflow in self._store.list("Workflow"):
            self._advance_workflow(workflow)
        for jobset in self._store.list("JobSet"):
            self._advance_jobset(jobset)
        self._scheduler.run()
        for pod in self._store.list("Pod"):
            self._tend(pod)

    def _advance_workflow(self, workflow: Manifest) -> None:
        name, uid = workflow["metadata"]["name"], workflow["metadata"]["uid"]
        if deleting(workflow):
            return self._take_away(workflow, WORKFLOW_LABEL)
        results = self._results.setdefault(uid, {})
        facts = {pod["metadata"]["name"]: pod_facts(pod) for pod in self._cache.pods(WORKFLOW_LABEL, name)}
        step = advance(workflow, facts, results, self._clock.now())
        create_pods(self._cache, step.create_pods, self.namespace, workflow)
        for node, _, manifest in step.apply_resources:
            try:
                results[node] = ResourceFacts("Succeeded", object=self.apply(manifest))
            except PrimusError as error:
                results[node] = ResourceFacts("Failed", message=str(error))
            self._react()
        put_status(self._cache, "Workflow", workflow, step.status)
        end_pods(self._cache, step.delete_pods, "WorkflowEnded", "the workflow ended this step")
        self._wake_at(step.wake_at)

    def _advance_jobset(self, jobset: Manifest) -> None:
        name = jobset["metadata"]["name"]
        if deleting(jobset):
            return self._take_away(jobset, JOBSET_LABEL)
        pods = [pod_state(pod) for pod in self._cache.pods(JOBSET_LABEL, name)]
        step = advance_jobset(jobset, pods, self._clock.now(), REACTION_SECONDS)
        for pod in step.create:
            pod["metadata"]["annotations"].pop(HOSTS_ANNOTATION, None)  # there are no files of host names here
        create_pods(self._cache, step.create, self.namespace, jobset)
        put_status(self._cache, "JobSet", jobset, step.status)
        end_pods(self._cache, step.end, step.end_reason, step.end_message)
        for kind, doomed in (("Pod", step.end if step.forget else ()), ("JobSet", (name,) if step.delete else ())):
            for one in doomed:
                admission.delete(self._store, kind, one, None)
        self._wake_at(step.wake_at)

    def _wake_at(self, at: float | None) -> None:
        if at is not None:
            self._clock.after(at - self._clock.now(), self._react)

    def _take_away(self, owner: Manifest, label: str) -> None:
        pods = self._cache.pods(label, owner["metadata"]["name"])
        for pod in pods:
            if not deleting(pod):
                self._store.put(mark_deleted(pod, owner["metadata"].get("deletionGracePeriodSeconds")))
        if not pods:
            self._store.remove(owner["kind"], owner["metadata"]["name"])

    # Kubelets.

    def _tend(self, pod: Manifest) -> None:
        uid = pod["metadata"]["uid"]
        node = pod["spec"].get("nodeName")
        wish = section(pod["metadata"], "annotations").get(END_ANNOTATION)
        # Of a node without power nobody confirms anything: its pods go only where they are told to at once.
        unheard = node in self._dark and pod["metadata"].get("deletionGracePeriodSeconds") != 0
        if deleting(pod):
            if is_finished(pod) or node is None or not unheard:
                self._store.remove("Pod", pod["metadata"]["name"])
        elif is_finished(pod) or node in self._dark:
            return
        elif wish is not None:
            act = self._act_of(pod)
            told = json.loads(wish)
            pod["status"] |= {"reason": told["reason"], "message": told["message"]}
            self._end(pod, act.stopped_exit_code, act.stopped_message)
        elif node is not None and uid not in self._running and self._has_secrets(pod):
            self._start(pod)

    def _has_secrets(self, pod: Manifest) -> bool:
        """The kubelet starts nothing whose Secret is not there."""
        variables = [entry for container in pod["spec"]["containers"] for entry in entries(container, "env")]
        wanted: set[str] = {section(entry, "valueFrom", "secretKeyRef").get("name", "") for entry in variables} - {""}
        return all(self._store.get("Secret", name) for name in wanted)

    def _start(self, pod: Manifest) -> None:
        act = self._running[pod["metadata"]["uid"]] = self._acts(pod)
        state = {"running": {"startedAt": self._clock.stamp()}}
        self._write_status(pod, "Running", state)
        if act.seconds is not None:
            self._clock.after(
                act.seconds, partial(self._end_by_itself, pod["metadata"]["name"], pod["metadata"]["uid"])
            )

    def _end_by_itself(self, name: str, uid: str) -> None:
        pod = self._store.get("Pod", name)
        if pod is None or pod["metadata"]["uid"] != uid or is_finished(pod) or pod["spec"]["nodeName"] in self._dark:
            return
        self._ended.add(uid)
        act = self._running[uid]
        if act.outputs:
            values = json.dumps({"outputs": dict(act.outputs), "result": None})
            pod["metadata"]["annotations"] = {
                **section(pod["metadata"], "annotations"),
                OUTPUT_VALUES_ANNOTATION: values,
            }
        self._end(pod, act.exit_code, act.message)

    def _end(self, pod: Manifest, code: int, message: str) -> None:
        at = self._clock.stamp()
        terminated = {"exitCode": code, "reason": "Error" if code else "Completed", "startedAt": at, "finishedAt": at}
        if message:
            terminated["message"] = message
        started = pod["metadata"]["uid"] in self._running
        self._write_status(pod, "Failed" if code else "Succeeded", {"terminated": terminated} if started else None)

    def _write_status(self, pod: Manifest, phase: str, state: Manifest | None) -> None:
        """The pod's new status; `state` is that of its containers, None where none was started."""
        ready, at, status = phase == "Running", self._clock.stamp(), pod["status"]
        status |= {"phase": phase, "startTime": status.get("startTime", at)}
        status["conditions"] = conditions(phase, True, ready, at, entries(status, "conditions"))
        if state is not None:
            names = [container["name"] for container in pod["spec"]["containers"]]
            common = {"ready": ready, "restartCount": 0, "state": state}
            status["containerStatuses"] = [{"name": name, **common} for name in names]
        self._store.put(pod)

    def _pod(self, name: str, container: str = "") -> Manifest:
        found = self._store.get("Pod", name)
        if found is None or (container and container not in [one["name"] for one in found["spec"]["containers"]]):
            raise NotFound(f"there is no Pod {name} {container}".strip())
        return found

    def _printed(self, pod: Manifest) -> tuple[str, ...]:
        act = self._act_of(pod)
        return (*act.lines, *(act.last_lines if pod["metadata"]["uid"] in self._ended else ()))

    def _act_of(self, pod: Manifest) -> Act:
        return self._running.get(pod["metadata"]["uid"], Act())

    def _stamped(self, node: Manifest) -> Manifest:
        moments = dict.fromkeys(("lastHeartbeatTime", "lastTransitionTime"), self._clock.stamp())
        node["status"]["conditions"] = [{**condition, **moments} for condition in node["status"]["conditions"]]
        return node
