"""Which objects break the keeper: each is looked at alone, with the very functions of a round. None of them writes.

Asked only after a round broke, so a sound cluster pays nothing for it. Workflows are not among them: the interpreter
breaks on one workflow at a time, and their driver ends that one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator

from tasks.embedded.cache import Cache
from tasks.embedded.engine.jobset import PodState, advance_jobset
from tasks.embedded.engine.placement import Gang, NodeFacts, PodWish, place
from tasks.embedded.jobsets import going, pod_state
from tasks.embedded.nodes import node_facts
from tasks.embedded.objects import BREAKS, END_ANNOTATION, JOBSET_LABEL, WORKFLOW_LABEL, Object, section
from tasks.embedded.pod_ends import earlier, end_reason
from tasks.embedded.scheduler import Scheduler, message_of, pod_names
from tasks.embedded.store import BrokenObjectError
from tasks.embedded.workflows import pod_facts

ROOM = {"cpu": 10**12, "memory": 10**18, "pods": 10**6}


def find_broken(cache: Cache, settings: Object) -> Iterator[tuple[str, str, str]]:
    """Kind and name of every object that breaks the keeper by itself, and how."""
    probes: dict[str, Callable[[Cache, Object, Object], None]] = {
        "Node": _try_node,
        "Pod": _try_pod,
        "JobSet": _try_jobset,
    }
    for kind, probe in probes.items():
        for name, manifest in list(cache[kind].items()):
            try:
                probe(cache, manifest, settings)
            except BrokenObjectError as error:
                yield error.kind, error.name, error.problem
            except BREAKS as error:
                yield kind, name, f"{type(error).__name__}: {error}"


def _try_node(cache: Cache, node: Object, settings: Object) -> None:
    del cache, settings
    wish = PodWish("probe", requests={"cpu": 1}, node_selector={"kubernetes.io/hostname": "probe"})
    place([node_facts(node)], [(node["metadata"]["name"], wish)], [Gang("probe", (wish,))])


def _try_pod(cache: Cache, pod: Object, settings: Object) -> None:
    metadata, labels = pod["metadata"], section(pod["metadata"], "labels")
    texts = {"nodeName": pod["spec"], "podIP": pod["status"], "creationTimestamp": metadata}
    for field, part in texts.items():
        if not isinstance(part.get(field), str | None):
            raise TypeError(f"{field}: a text is needed, not {part[field]!r}")
    end_reason(pod)
    earlier(pod, 0)
    json.loads(section(metadata, "annotations").get(END_ANNOTATION, "{}")).get("reason")
    pod_names(pod)
    message_of(pod)
    gang = Scheduler(cache, section(settings, "priority_classes")).gang_of(pod)
    place([NodeFacts("probe", {}, ROOM)], [("probe", gang.pods[0])], [gang])
    if JOBSET_LABEL in labels:
        pod_state(pod)
    if WORKFLOW_LABEL in labels:
        pod_facts(pod)


def _try_jobset(cache: Cache, jobset: Object, settings: Object) -> None:
    going(jobset)
    mine = cache.pods(JOBSET_LABEL, jobset["metadata"]["name"])
    sound = [state for pod in mine if (state := _or_none(pod)) is not None]
    advance_jobset(jobset, sound, time.time(), settings["pod_backoff_initial_seconds"])


def _or_none(pod: Object) -> PodState | None:
    """A broken pod is blamed itself, not its JobSet."""
    try:
        return pod_state(pod)
    except BREAKS:
        return None
