"""`primus status` and `primus runs` as values for people and programs, from the story of a run. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from flows.decisions.policy import POLICY
from flows.decisions.recovery.incarnations import by_attempt, incarnations
from flows.decisions.recovery.straggler import slow_ranks_document
from flows.decisions.text import age, timestamp
from profiles.vocabulary import FINISHED, Action, KnownBy, NodeAction
from workflows.labels import attempt_name
from workflows.model.attempt import LIVING
from workflows.model.checkpoints import durable_step, standing
from workflows.model.records import (
    LASTING,
    TOLD,
    Act,
    Actor,
    ApprovalRecord,
    AttemptRecord,
    IncidentRecord,
    StepRow,
    Story,
    one_line,
)
from workflows.model.runs import RunLine
from workflows.model.why import DriverSight
from workflows.programs.progress.pace import pace_of

if TYPE_CHECKING:
    from profiles.cluster import ClusterProfile
    from profiles.resolve import Resolved
    from workflows.model.cluster import Pod


Json = dict[str, Any]
NOBODY = DriverSight(alive=False)


@dataclass(frozen=True)
class Surroundings:
    """What the ledger does not know."""

    now: float
    driver: DriverSight = NOBODY
    pods: tuple[Pod, ...] = ()
    steps: Sequence[StepRow] = ()
    """All steps of the run, in the order they were completed."""
    by_attempt: Mapping[int, Sequence[StepRow]] = field(default_factory=lambda: {})
    """The same by attempt, where they were read."""
    goodput: Mapping[str, Any] = field(default_factory=lambda: {})


def status_of(story: Story, resolved: Resolved, around: Surroundings) -> Json:
    """The document of `primus status RUN --json`."""
    attempt, run = story.attempt, story.run
    step = around.steps[-1].step if around.steps else (attempt.last_step if attempt else None)
    pace = None if run.state in FINISHED else pace_of(((row.step, row.at) for row in around.steps), around.now)
    total = resolved.run.steps or None
    rows = attempt_rows(story, around.by_attempt)
    left = None if pace is None or not total or step is None else round(max(0, total - step) / pace.whole, 1)
    return {
        "run": run.name,
        "state": str(run.state),
        "why": run.why,
        "automation": "paused" if story.paused else "on",
        "paused_why": paused_why(story),
        "mode": str(run.mode),
        "profile": run.profile,
        "cluster": run.cluster,
        "owner": run.owner,
        "tags": dict(run.tags),
        "driver": _driver(story, around.driver),
        "driver_end": "" if run.state in FINISHED else around.driver.told_end(story.lease),
        "step": step,
        "steps": total,
        "loss": next((row.loss for row in reversed(around.steps) if row.loss is not None), None),
        "steps_per_second": None if pace is None else round(pace.steps_per_second, 3),
        "eta_seconds": left,
        "last_checkpoint_step": max((item.step for item in standing(story.checkpoints)), default=None),
        "last_durable_step": durable_step(story.checkpoints),
        **slow_ranks_document(story),
        "roles": _roles(around.pods),
        "attempts": [row | _link(item, resolved.cluster) for item, row in zip(story.attempts, rows, strict=True)],
        "incidents": [incident_row(item) for item in story.incidents],
        "approvals": [approval_row(item) for item in story.approvals],
        "acts": [act_row(item) for item in story.acts],
        "goodput": dict(around.goodput),
    }


def attempt_rows(story: Story, steps: Mapping[int, Sequence[StepRow]]) -> list[Json]:
    """All attempts as people see them, with their incarnations; `steps` by attempt, where they were read."""
    mine = by_attempt(story.incidents)
    return [
        attempt_row(item) | {"incarnations": incarnations(item, mine.get(item.number, ()), steps.get(item.number, ()))}
        for item in story.attempts
    ]


def paused_why(story: Story) -> str | None:
    """Why automatic actions are halted, with who said so; None where they are not."""
    if not story.paused:
        return None
    everything = story.extra.get("everything_paused")
    if everything is not None:
        return f"every run: {everything}"
    return next((mark.detail for mark in reversed(story.marks) if mark.kind == "paused"), "")


def _driver(story: Story, seen: DriverSight) -> Json | None:
    if story.lease is None:
        return None
    driver = story.lease.driver
    return {"host": driver.host, "pid": driver.pid, "alive": seen.alive}


def _roles(pods: tuple[Pod, ...]) -> list[Json]:
    roles: dict[str, list[Json]] = {}
    for pod in pods:
        roles.setdefault(pod.role, []).append(
            {
                "name": pod.name,
                "node": pod.node,
                "ranks": list(pod.ranks),
                "state": pod.phase.lower(),
                "exit_code": pod.exit_code,
                "released_at": timestamp(pod.finished_at),
                "diagnosis": pod.reason or None,
            }
        )
    return [{"role": role, "pods": members} for role, members in sorted(roles.items())]


def _link(attempt: AttemptRecord, cluster: ClusterProfile) -> Json:
    """Where people may look at the attempt's workflow, until Argo has pruned it."""
    base = cluster.endpoints.argo_url.rstrip("/")
    if not base or attempt.submitted_at is None:
        return {}
    return {"link": f"{base}/workflows/{cluster.namespace}/{attempt_name(attempt.run, attempt.number)}"}


def ended_words(attempt: AttemptRecord) -> str:
    """That an attempt has ended, once: its launchers' own records, read at the end of the run, may tell of more."""
    heard = "no step was heard of" if attempt.last_step is None else f"last step heard of {attempt.last_step}"
    return f"attempt {attempt.number} ended: {attempt.outcome}, {heard}"


def outcome_words(row: Json, incidents: Sequence[Json]) -> str:
    """How an attempt ended; of one that has not been ended whether it lives, by the incidents that ended it."""
    fatal = [
        item
        for item in troubles_of(incidents)
        if item["attempt"] == row["number"]
        and item["action"] not in (str(Action.RESTART_IN_PLACE), str(Action.NONE))
        and item["signal"] not in tuple(map(str, LIVING))
    ]
    if row["outcome"] or not fatal:
        return row["outcome"] or "lives"
    return f"failed: {fatal[-1]['class'] or fatal[-1]['signal']}"


def step_words(status: Json) -> str:
    """The step at which a run is, of how many."""
    total = f" of {status['steps']}" if status["steps"] else ""
    return f"no step yet{total}" if status["step"] is None else f"step {status['step']}{total}"


def attempt_row(attempt: AttemptRecord) -> Json:
    """One attempt as people see it."""
    return {
        "number": attempt.number,
        "why": attempt.why,
        "nodes": list(attempt.nodes),
        "started_at": timestamp(attempt.submitted_at or attempt.planned_at),
        "ended_at": timestamp(attempt.ended_at),
        "outcome": attempt.outcome,
        "resumed_from_step": attempt.resumed_from_step,
        "resume_proof": None if attempt.resume_proof is None else str(attempt.resume_proof),
        "first_step": attempt.first_step,
        "last_step": attempt.last_step,
        "restarts_in_place": attempt.restarts_in_place,
        "interval_steps": attempt.interval_steps,
        "advised_interval_steps": attempt.advised_steps,
    }


def approval_row(approval: ApprovalRecord) -> Json:
    """One question as people see it."""
    return {
        "id": approval.id,
        "question": approval.question,
        "state": approval.state,
        "asked_at": timestamp(approval.asked_at),
        "expires_at": timestamp(approval.expires_at),
        "answered_at": timestamp(approval.answered_at),
        **{f"answered_{key}": value for key, value in person_row(approval.answerer).items()},
        "why": approval.why,
    }


def person_row(by: Actor | None) -> Json:
    """Who did something and how that is known; `claim` is what he calls himself, and stands for nothing."""
    if by is None:
        return {"by": None, "known_by": None, "claim": None}
    return {"by": by.name or None, "known_by": str(by.known_by), "claim": by.claim or None}


def said_by(row: Json, prefix: str = "") -> str:
    """The same for people: `by ada@login-1 (os-user)`; "" where it was nobody."""
    name, known_by, claim = (row[f"{prefix}{key}"] for key in ("by", "known_by", "claim"))
    return f"by {Actor(name or '', KnownBy(known_by), claim or '')}" if known_by else ""


def act_row(act: Act) -> Json:
    """What a person did, as people see it."""
    row = {"at": timestamp(act.at), "what": act.what, "subject": act.subject, "why": one_line(act.why)}
    return row | person_row(act.by)


def act_text(row: Json) -> str:
    """The same in one line."""
    about = f" {row['subject']}" if row["what"] in ("approve", "deny") else ""
    return f"{row['at']}  {row['what']}{about} {said_by(row)}: {row['why']}"


def incident_row(incident: IncidentRecord) -> Json:
    """One incident as people see it."""
    back = incident.resumed_at
    return {
        "id": incident.id,
        "attempt": incident.attempt,
        "at": timestamp(incident.at),
        "detected_at": timestamp(incident.detected_at),
        "signal": incident.signal,
        "class": None if incident.fault_class is None else str(incident.fault_class),
        "confidence": round(incident.confidence, 3),
        "culprits": [{"node": node, "rank": rank} for node, rank in incident.culprits],
        "action": None if incident.action is None else str(incident.action),
        "why": incident.why,
        "would_change": incident.would_change,
        "step": incident.step,
        "fingerprint": incident.fingerprint,
        "evidence": list(incident.evidence),
        "charged": incident.charged,
        "detected_after_seconds": round(max(0.0, incident.detected_at - incident.at), 3),
        "resumed_after_seconds": None if back is None else round(back - incident.at, 3),
        "over_at": timestamp(incident.over_at),
    }


def troubles_of(incidents: Sequence[Json]) -> list[Json]:
    """Of rows of incidents those that are not only told: what counts as an incident in every report."""
    return [row for row in incidents if row["signal"] not in TOLD]


def note_sentences(incidents: Sequence[Json]) -> list[str]:
    """What was only told, a sentence for each kind however often it was: how many, what lasts, and the newest."""
    kinds: dict[str, list[Json]] = {}
    for row in incidents:
        if row["signal"] in TOLD:
            kinds.setdefault(row["signal"], []).append(row)
    return [_notes_of_kind(signal, rows) for signal, rows in kinds.items()]


def _notes_of_kind(signal: str, rows: Sequence[Json]) -> str:
    newest, lasting = rows[-1], sum(row["over_at"] is None for row in rows) if signal in LASTING else None
    about = {(item["node"], item["rank"]) for row in rows for item in row["culprits"]}
    words = [f"{signal}: {len(rows)} note{'' if len(rows) == 1 else 's'}"]
    words += [f"about {len(about)} ranks"] if len(about) > 1 else []
    words += [] if lasting is None else ["over" if not lasting else f"{lasting} of them not over"]
    return f"{', '.join(words)}; the newest ({newest['id']}): {newest['evidence'][0]}"


def document(line: RunLine) -> Json:
    """One entry of `primus runs --json`."""
    return {
        "run": line.name,
        "state": str(line.state),
        "profile": line.profile,
        "cluster": line.cluster,
        "owner": line.owner,
        "tags": dict(line.tags),
        "step": line.step,
        "loss": line.loss,
        "attempts": line.attempts,
        "why": line.why,
        "paused": line.paused,
        "created_at": timestamp(line.created_at),
        "ended_at": timestamp(line.ended_at),
        "last_step_at": timestamp(line.last_step_at),
    }


def row(line: RunLine, now: float) -> Json:
    """The run in one line."""
    return {
        "run": line.name,
        "state": f"{line.state} (paused)" if line.paused and line.state not in FINISHED else str(line.state),
        "profile": line.profile,
        "cluster": line.cluster,
        "owner": line.owner,
        "tags": tag_words(line.tags),
        "age": age(now - line.created_at),
        "step": line.step,
        "attempts": line.attempts,
        "why": line.why,
    }


def tag_words(tags: Mapping[str, str]) -> str:
    """Tags as people give them, `team=vision,long=`."""
    return ",".join(f"{name}={value}" for name, value in tags.items())


def headline(lines: Sequence[RunLine], *, more: bool) -> str:
    """How many are shown, how many of them have not ended, and how to see older ones."""
    living = sum(line.state not in FINISHED for line in lines)
    text = f"{len(lines)} run{'' if len(lines) == 1 else 's'}, {living} not ended"
    return f"{text}; older ones are left out: primus runs --limit 0" if more else text


def _is_the_programs(incident: IncidentRecord) -> bool:
    """Whether the program is to blame, or what it was given: the node where that showed did nothing."""
    return incident.fault_class is not None and POLICY[incident.fault_class].exception_blames_code


def node_rows(story: Story) -> list[Json]:
    """One row a node that any attempt had, those with trouble first, then by name."""
    held: dict[str, list[int]] = {}
    for attempt in story.attempts:
        for node in attempt.nodes:
            held.setdefault(node, []).append(attempt.number)
    blamed = Counter(node for item in story.troubles if not _is_the_programs(item) for node, _ in item.culprits if node)
    done = {(item.target, item.kind): item for item in story.actions if item.target}
    now = set(story.attempt.nodes) if story.attempt is not None and story.attempt.ended_at is None else set[str]()
    names = sorted({*held, *blamed, *(node for node, _ in done)}, key=lambda node: (-blamed[node], node))
    return [
        {
            "node": node,
            "trains now": "yes" if node in now else "no",
            "attempts": ", ".join(map(str, held.get(node, [])[-8:])),
            "blamed": blamed[node],
            "actions": "; ".join(f"{kind} {done[node, kind].state}" for kind in NodeAction if (node, kind) in done),
        }
        for node in names
    ]
