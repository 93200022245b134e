"""From the cluster's objects to facts: pure readings of JSON, tolerant of everything that may be missing."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, cast

from profiles.resolve import Resolved
from profiles.vocabulary import VerdictWord
from tasks.cluster import Manifest
from tasks.observe.gang_status import gang_news
from workflows import labels
from workflows.model.attempt import NEVER_STARTED, CoordinatorFacts, NodeFacts, PodFacts
from workflows.model.cluster import LIVE
from workflows.model.fleet import NodeCandidate
from workflows.model.gang_status import PROGRAM_MARKS
from workflows.model.manifest import Json, seconds
from workflows.model.records import MarkRecord
from workflows.wire import Termination, from_json

Names = Mapping[str, str]


def pod_facts(pod: Json, processes_per_node: int, deciding_role: str) -> PodFacts:
    """What a Pod object says. The first container that went wrong speaks for the pod."""
    metadata, status = pod.get("metadata", {}), pod.get("status", {})
    marks: Json = metadata.get("labels", {})
    role = marks.get(labels.ROLE, "")
    index = int(marks.get("batch.kubernetes.io/job-completion-index", "0") or 0)
    state = _container_state(status)
    waiting, ended = state.get("waiting", {}), state.get("terminated", {})
    conditions = {item["type"]: item for item in status.get("conditions", [])}
    unplaced = conditions.get("PodScheduled", {})
    code = ended.get("exitCode")
    first = index * processes_per_node
    return PodFacts(
        name=metadata.get("name", ""),
        role=role,
        index=index,
        node=pod.get("spec", {}).get("nodeName", "") or "",
        phase=status.get("phase", "Pending"),
        reason=status.get("reason") or ended.get("reason") or waiting.get("reason") or "",
        message=status.get("message") or waiting.get("message") or _runtime_said(ended),
        exit_code=code,
        signal=ended.get("signal") or (code - 128 if isinstance(code, int) and code > 128 else None),
        finished_at=seconds(ended.get("finishedAt")),
        ranks=tuple(range(first, first + processes_per_node)) if role == deciding_role else (),
        disrupted=conditions.get("DisruptionTarget", {}).get("status") == "True",
        unschedulable=unplaced.get("message", "") if unplaced.get("status") == "False" else "",
        deleted="deletionTimestamp" in metadata,
    )


def _runtime_said(ended: Json) -> str:
    """Why a container never started. A message of one that did is the launcher's own: see `termination`."""
    return str(ended.get("message") or "") if ended.get("reason") in NEVER_STARTED else ""


def _container_state(status: Json) -> Json:
    statuses = [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]
    states: list[Json] = [item.get("state", {}) for item in statuses]
    for state in states:
        if state.get("terminated", {}).get("exitCode", 0) != 0 or state.get("waiting", {}).get("reason"):
            return state
    return states[-1] if states else {}


def termination(pod: Json) -> Termination | None:
    """The launcher's summary from the container's termination message; None where there is none or it is unreadable."""
    for item in pod.get("status", {}).get("containerStatuses", []):
        for state in (item.get("state", {}), item.get("lastState", {})):
            message = state.get("terminated", {}).get("message")
            if message:
                try:
                    return from_json(Termination, message)
                except ValueError:
                    continue
    return None


def node_facts(node: Json) -> NodeFacts:
    """What a Node object says. A Ready condition that is neither True nor False is None: the cluster does not know."""
    conditions = {item["type"]: item for item in node.get("status", {}).get("conditions", [])}
    ready, spec = conditions.get("Ready", {}), node.get("spec", {})
    return NodeFacts(
        name=node.get("metadata", {}).get("name", ""),
        ready={"True": True, "False": False}.get(ready.get("status", "Unknown")),
        reason=ready.get("reason", ""),
        unschedulable=bool(spec.get("unschedulable", False)),
        taints=tuple(
            f"{item.get('key', '')}={item.get('value', '')}:{item.get('effect', '')}" for item in spec.get("taints", [])
        ),
    )


def coordinator_facts(body: bytes, now: float) -> CoordinatorFacts | None:
    """The coordinator's `/status`; None where it is unreadable."""
    try:
        said = json.loads(body)
    except ValueError:
        return None
    if not isinstance(said, dict):
        return None
    status = cast("dict[str, Any]", said)
    first: Json = status.get("first_step") or {}
    members: list[Json] = status.get("members") or []
    return CoordinatorFacts(
        at=now,
        told_at=_number(status.get("now")),
        incarnation=int(status.get("incarnation") or 0),
        step=status.get("step"),
        loss=_number(status.get("loss")),
        first_step=first.get("step"),
        first_step_at=first.get("at"),
        first_nan_step=status.get("first_nan_step"),
        last_checkpoint_step=status.get("last_checkpoint_step"),
        steps_per_second=_number(status.get("steps_per_second")),
        phase=str(status.get("phase") or ""),
        heard=tuple(
            (str(item.get("pod", "")), str(item.get("node", "")), float(item.get("last_heard_at") or 0.0))
            for item in members
        ),
        ranks=tuple((str(item.get("pod", "")), tuple(item.get("ranks") or ())) for item in members),
        launched_at=_number(status.get("launched_at")),
        failed_ranks=tuple(sorted(int(end["rank"]) for end in status.get("ended") or () if _badly(end))),
        news=gang_news(status),
    )


def moments(run: str, attempt: int, told: object) -> list[MarkRecord]:
    """When the ranks loaded and saved checkpoints, from `[[kind, at, detail], ...]` as programs tell it.

    What is unreadable or of another kind is left out: only the driver says what became of an attempt.
    """
    found: list[MarkRecord] = []
    for item in cast("list[Any]", told) if isinstance(told, list) else []:
        try:
            kind, at, detail = item
            if kind in PROGRAM_MARKS and math.isfinite(float(at)):
                found.append(MarkRecord(run, attempt, str(kind), float(at), str(detail)))
        except (ValueError, TypeError):
            continue
    return found


def _number(value: object) -> float | None:
    try:
        return None if value is None else float(str(value))
    except ValueError:
        return None


def _badly(end: object) -> bool:
    """Whether a rank's end as the coordinator tells it is a failure that nobody had asked for."""
    if not isinstance(end, dict):
        return False
    told = cast("dict[str, object]", end)
    return isinstance(told.get("rank"), int) and not told.get("requested") and told.get("exit_code") != 0


def is_ours(manifest: Manifest, run: str) -> bool:
    """The run label, not the name, decides what is ours."""
    return manifest.get("metadata", {}).get("labels", {}).get(labels.RUN) == run


def users_of(pods: Iterable[Json], run: str, attempt: int) -> dict[str, str]:
    """Nodes on which training pods of other runs or attempts live, with the name of that run."""
    found: dict[str, str] = {}
    for pod in pods:
        marks: Json = pod["metadata"].get("labels", {})
        owner = marks.get(labels.RUN, "")
        ours = owner == run and marks.get(labels.ATTEMPT) == str(attempt)
        training = marks.get(labels.ROLE, "") not in ("", labels.COORDINATOR_ROLE)
        node = pod.get("spec", {}).get("nodeName")
        if node and training and not ours and pod.get("status", {}).get("phase") in LIVE:
            found[node] = owner
    return found


def pool_selector(resolved: Resolved) -> Mapping[str, str]:
    """Labels of the nodes of the run's pool."""
    return resolved.pool.labels if resolved.cluster.engine == "kubernetes" else {labels.POOL: resolved.pool.name}


def node_candidate(node: Json, resolved: Resolved, busy: Names, out: Names, run: str = "") -> NodeCandidate:
    """A Node object as decisions see it, with who uses which (`busy`) and why we took which out (`out`).

    Taints that the run's pool names are tolerated; holds for tests of nodes for this `run` keep it from nothing.
    """
    facts = node_facts(node)
    marks: Json = node["metadata"].get("labels", {})
    keeps_away = tuple(
        taint
        for taint in facts.taints
        if taint not in resolved.pool.taints
        and not taint.endswith(":PreferNoSchedule")
        and not taint.startswith((labels.QUARANTINE_TAINT, "node.kubernetes.io/"))
        and taint != f"{labels.HOLD_TAINT}={labels.hold_owner(run)}:NoSchedule"
    )
    tainted = any(taint.startswith(labels.QUARANTINE_TAINT) for taint in facts.taints)
    word = marks.get(labels.VERDICT, "")
    return NodeCandidate(
        name=facts.name,
        pool=resolved.pool.name,
        ready=facts.ready,
        cordoned=facts.unschedulable,
        quarantined=out.get(facts.name, "tainted by us" if tainted else ""),
        taints=keeps_away,
        verdict=VerdictWord(word) if word in tuple(VerdictWord) else VerdictWord.UNKNOWN,
        busy=busy.get(facts.name, ""),
        spare=marks.get(labels.SPARE) == "true",
        rack=marks.get(labels.RACK, ""),
        block=marks.get(labels.BLOCK, ""),
    )
