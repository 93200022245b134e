"""What the Prefect server shows of a run: progress, a page, tables, and its moments as log lines. Pure.

The page is Markdown as the server renders it: tables and images by data address, no HTML of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flows.decisions.accounting.report import goodput_of
from flows.decisions.recovery.incarnations import by_attempt
from flows.decisions.recovery.straggler import sentences
from flows.decisions.text import PlotLine, bar, blame, duration_text, first_names, markdown_text, picture
from flows.decisions.views.approvals import answer_links, approval_sheet
from flows.decisions.views.status import (
    Json,
    Surroundings,
    act_text,
    ended_words,
    node_rows,
    note_sentences,
    outcome_words,
    status_of,
    troubles_of,
)
from profiles.resolve import Resolved
from profiles.vocabulary import FINISHED
from workflows.model.checkpoints import removed, standing
from workflows.model.events import PageGround, RunPage, Sheet
from workflows.model.records import TOLD, AttemptRecord, CheckpointRecord, IncidentRecord, StepRow, Story
from workflows.model.why import DriverSight
from workflows.programs.progress.pace import BEAT_SECONDS, beats

NEWEST = 20
"""Attempts and incidents on the page; the tables hold `ROWS`, `primus status` all."""
ROWS = 200
BAR = 24
"""Characters of a whole bar."""
CELL_CHARACTERS = 400
"""Others' words in one place of the page at most; `primus status` has all of them."""
NO_STEPS = "no step was completed yet"


def page_of(resolved: Resolved, ground: PageGround) -> RunPage:
    """Every artifact of a run as it stands now."""
    story, run = ground.story, ground.story.run.name
    steps = [row for number in sorted(ground.steps) for row in ground.steps[number]]
    goodput = goodput_of(story, ground.steps, resolved.gpus, ground.now) if ground.all_steps else {}
    around = Surroundings(
        ground.now, driver=DriverSight(alive=True), steps=steps, by_attempt=ground.steps, goodput=goodput
    )
    status = status_of(story, resolved, around)
    attempts = [_attempt_row(item, status["incidents"]) for item in status["attempts"]]
    incidents = [_incident_row(item) for item in troubles_of(status["incidents"])]
    first = _progress(f"run-{run}-progress", status)
    return RunPage(
        (
            first,
            Sheet(f"run-{run}", "markdown", _markdown(ground, status), f"Where **{run}** stands: {status['state']}"),
            Sheet(f"run-{run}-attempts", "table", attempts[-ROWS:], f"Attempts of {run}"),
            Sheet(f"run-{run}-incidents", "table", incidents[-ROWS:], f"Incidents of {run}, and what was done"),
            Sheet(f"run-{run}-nodes", "table", node_rows(story)[:ROWS], f"Nodes of {run}, those with trouble first"),
            *(approval_sheet(item, story, ground.form) for item in story.approvals),
        )
    )


def _progress(key: str, status: Json) -> Sheet:
    step, total, eta = status["step"], status["steps"], status["eta_seconds"]
    if step is None:
        return Sheet(key, "progress", 0.0, f"{status['state']}: {NO_STEPS}")
    of = f" of {total}" if total else ""
    left = f", {duration_text(eta)} to go" if eta is not None and status["state"] == "running" else ""
    share = min(100.0, 100.0 * step / total) if total else 0.0
    return Sheet(key, "progress", round(share, 1), f"{status['state']}: step {step}{of}{left}")


def _markdown(ground: PageGround, status: Json) -> str:
    sections: list[tuple[str, Callable[[], str]]] = [
        ("", lambda: _head(status)),
        ("Waits for you", lambda: _waits(status, ground.form)),
        ("Slow ranks and jumps", lambda: "\n".join(f"* {_cell(line)}" for line in sentences(status))),
        ("Loss", lambda: _loss(ground)),
        ("Throughput", lambda: _throughput(ground)),
        ("Incidents", lambda: "\n".join(map(_incident_line, troubles_of(status["incidents"])[-NEWEST:]))),
        ("Only told", lambda: "\n".join(f"* {_cell(line)}" for line in note_sentences(status["incidents"]))),
        ("What people did", lambda: "\n".join(f"* {_cell(act_text(row))}" for row in status["acts"][-NEWEST:])),
        (
            "Attempts",
            lambda: "\n".join(_attempt_line(row, status["incidents"]) for row in status["attempts"][-NEWEST:]),
        ),
        ("Checkpoints", lambda: table(_checkpoint_rows(ground.story.checkpoints))),
        ("Where the time went", lambda: _goodput(status)),
        ("Commands", lambda: _commands(status["run"])),
        ("Links", lambda: "\n".join(f"* [{title}]({address})" for title, address in ground.links)),
    ]
    written = [(title, text) for title, make in sections if (text := make())]
    return "\n\n".join(f"## {title}\n\n{text}" if title else text for title, text in written) + "\n"


def _head(status: Json) -> str:
    total = f" of {status['steps']}" if status["steps"] else ""
    loss = "not known" if status["loss"] is None else f"{status['loss']:.4g}"
    speed = "not known" if status["steps_per_second"] is None else f"{status['steps_per_second']:.4g} steps/s"
    driver = status["driver"]
    rows = [
        ("step", f"{status['step']}{total}" if status["step"] is not None else NO_STEPS),
        ("loss", loss),
        ("speed", speed if status["state"] not in FINISHED else "ended"),
        ("durable checkpoint", "none yet" if status["last_durable_step"] is None else status["last_durable_step"]),
        ("profile", f"{status['profile']} on {status['cluster']}"),
        ("automation", f"{status['automation']}, mode {status['mode']}"),
        ("driver", f"process {driver['pid']} on {driver['host']}" if driver else "none"),
    ]
    facts = table([{"what": name, "now": value} for name, value in rows])
    return f"# {status['run']}: {status['state']}\n\n{_cell(status['why'])}\n\n{facts}"


def _waits(status: Json, form: str) -> str:
    open_ones = [item for item in status["approvals"] if item["state"] == "waiting"]
    return "\n\n".join(
        f'{_cell(item["question"])}\n\n```\nprimus approve {item["id"]} --why "..."\n'
        f'primus deny {item["id"]} --why "..."\n```'
        + (f"\n\n{links}" if (links := answer_links(item["id"], form)) else "")
        for item in open_ones
    )


def _loss(ground: PageGround) -> str:
    lines = _by_attempt(ground, lambda rows: [(row.step, row.loss) for row in rows if row.loss is not None])
    return picture("loss over steps", lines, f"loss of {ground.story.run.name} over steps") if lines else ""


def _throughput(ground: PageGround) -> str:
    return picture(
        "steps per second over steps",
        _by_attempt(ground, _speeds),
        f"steps per second of {ground.story.run.name} over steps",
    )


def _speeds(rows: Sequence[StepRow]) -> list[tuple[float, float]]:
    took = rows[-1].at - rows[0].at
    return [
        (one.step, one.steps / one.seconds)
        for one in beats(((row.step, row.at) for row in rows), max(BEAT_SECONDS, took / 60))
    ]


def _by_attempt(
    ground: PageGround, points: Callable[[Sequence[StepRow]], Sequence[tuple[float, float]]]
) -> list[PlotLine]:
    """A line for each attempt; steps that were thrown away and done again by a later one are dashed."""
    lines: list[PlotLine] = []
    numbers = [number for number in sorted(ground.steps) if ground.steps[number]][-6:]
    for place, number in enumerate(numbers):
        rows = ground.steps[number]
        redone = min((ground.steps[later][0].step for later in numbers[place + 1 :]), default=None)
        kept = [row for row in rows if redone is None or row.step < redone]
        lost = [row for row in rows if redone is not None and row.step >= redone]
        if kept:
            lines.append(PlotLine(f"attempt {number}", tuple(points(kept))))
        if lost:
            lines.append(PlotLine(f"{number}, rolled back", tuple(points(lost)), dashed=True))
    return [line for line in lines if line.points]


def _attempt_row(item: Json, incidents: Sequence[Json]) -> Json:
    nodes = item["nodes"]
    return {
        "attempt": item["number"],
        "began": _moment(item["started_at"]),
        "ended": _moment(item["ended_at"]),
        "outcome": outcome_words(item, incidents),
        "steps": "none" if item["first_step"] is None else f"{item['first_step']} to {item['last_step']}",
        "resumed from": "the beginning" if item["resumed_from_step"] is None else f"step {item['resumed_from_step']}",
        "proof": item["resume_proof"] or "",
        "restarts in place": item["restarts_in_place"],
        "nodes": first_names(nodes, 8),
        "why": item["why"],
    }


def _incident_row(item: Json) -> Json:
    back = item["resumed_after_seconds"]
    return {
        "when": _moment(item["at"]),
        "attempt": item["attempt"],
        "class": f"{item['class']} ({item['confidence']:.2f})" if item["class"] else "being diagnosed",
        "blamed": ", ".join(blame(culprit) for culprit in item["culprits"][:8]) or "nobody",
        "action": item["action"] or "being decided",
        "noticed after": duration_text(item["detected_after_seconds"]),
        "trains again after": "" if back is None else duration_text(back),
        "over": _moment(item["over_at"]),
        "why": item["why"] or (item["evidence"][0] if item["evidence"] else item["signal"]),
    }


def _attempt_line(item: Json, incidents: Sequence[Json]) -> str:
    """An attempt as a line of a list: a page is too narrow for a table with reasons."""
    row = {name: _cell(value) for name, value in _attempt_row(item, incidents).items()}
    until = f" to {row['ended'][11:]}" if row["ended"] else ""
    proof = f" (proof: {row['proof']})" if row["proof"] else ""
    times = item["restarts_in_place"]
    again = f", {times} restart{'s' if times > 1 else ''} in place" if times else ""
    return (
        f"* **attempt {row['attempt']}: {row['outcome']}**, {row['began']}{until}, steps {row['steps']}, from "
        f"{row['resumed from']}{proof}{again}, on {row['nodes'] or 'no nodes yet'}. {row['why']}"
    )


def _incident_line(item: Json) -> str:
    row = {name: _cell(value) for name, value in _incident_row(item).items()}
    back = f", trains again after {row['trains again after']}" if row["trains again after"] else ""
    back += f", over at {row['over'][11:]}" if row["over"] else ""
    return (
        f"* **{row['when']}, attempt {row['attempt']}: {row['class']}**, blamed: {row['blamed']}, noticed after "
        f"{row['noticed after']}{back}. **{row['action']}**: {row['why']}"
    )


def _checkpoint_rows(checkpoints: Sequence[CheckpointRecord]) -> list[Json]:
    """The newest of each tier, the newest that is proven, and how many were removed."""
    newest: dict[tuple[str, str], CheckpointRecord] = {}
    for item in standing(checkpoints):
        key = (item.tier, str(item.verdict))
        if key not in newest or item.step >= newest[key].step:
            newest[key] = item
    rows: list[Json] = [
        {"tier": tier, "step": item.step, "proof": verdict, "why": item.why, "path": item.path}
        for (tier, verdict), item in sorted(newest.items())
    ]
    if gone := removed(checkpoints):
        why = f"{len(gone)} older ones, {sum(one.bytes for one in gone) / 1e9:.3f} GB, went while it trained"
        rows.append({"tier": gone[-1].tier, "step": gone[-1].step, "proof": "removed", "why": why, "path": ""})
    return rows


def _goodput(status: Json) -> str:
    goodput = status["goodput"]
    whole = goodput.get("wall_seconds", 0.0) * goodput.get("gpus", 0)
    if not whole:
        return f"`primus report {status['run']}` says where every second went."
    lost = sorted(goodput["lost"].items(), key=lambda item: -item[1])
    parts = [("productive", goodput["productive_gpu_seconds"]), *lost]
    rows = [
        {
            "state": name,
            "GPU time": duration_text(seconds),
            "share": f"{seconds / whole:.1%}",
            "": bar(seconds / whole, BAR),
        }
        for name, seconds in parts
    ]
    return table(rows)


def _commands(run: str) -> str:
    lines = (
        f"primus status {run}    # where it stands, and why",
        f"primus logs {run} --first-failing",
        f"primus report {run} --html {run}.html",
        f'primus pause {run} --why "..."    # no automatic action; training continues',
        f'primus stop {run} --why "..."',
    )
    return "```\n" + "\n".join(lines) + "\n```"


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as a Markdown table; "" where there are none."""
    if not rows:
        return ""
    names = list(rows[0])
    lines = [names, ["---"] * len(names), *([_cell(row[name]) for name in names] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _moment(text: str | None) -> str:
    """An RFC 3339 time, to the second."""
    return "" if text is None else text[:19].replace("T", " ")


Moment = tuple[str, str]
"""What it is, the same whenever it is looked at; and what is said."""


def moments(story: Story) -> tuple[Moment, ...]:
    """Everything worth a line so far: attempts, incidents, decisions, questions, the end."""
    found: list[Moment] = []
    incidents = by_attempt(story.incidents)
    for attempt in story.attempts:
        mine = incidents.get(attempt.number, [])
        found += _begun(attempt)
        found += [moment for incident in mine if incident.went_on for moment in _of_living(incident)]
        found += _ended(attempt)
        found += [moment for incident in mine if not incident.went_on for moment in _of_incident(incident)]
    for approval in story.approvals:
        found.append(
            (
                f"{approval.id} asked",
                f'waits for an answer: {approval.question} (primus approve {approval.id} --why "...")',
            )
        )
        if approval.state != "waiting":
            said = "the question is" if approval.taken_back else f"{approval.state} by {approval.answerer or 'nobody'}:"
            found.append((f"{approval.id} {approval.state}", f"{said} {approval.why}"))
    if story.run.state in FINISHED:
        found.append((f"end {story.run.resumes}", f"{story.run.name} {story.run.state}: {story.run.why}"))
    return tuple(found)


def _begun(attempt: AttemptRecord) -> list[Moment]:
    name = f"attempt {attempt.number}"
    lines = [(f"{name} planned", f"{name} begins on {attempt.where}: {attempt.why}")]
    if attempt.first_step is not None:
        begins = "from the beginning" if attempt.resumed_from_step is None else f"from step {attempt.resumed_from_step}"
        lines.append((f"{name} trains", f"{name} trains {begins}, first step {attempt.first_step}"))
    return lines


def _ended(attempt: AttemptRecord) -> list[Moment]:
    if attempt.ended_at is None:
        return []
    return [(f"attempt {attempt.number} ended", ended_words(attempt))]


def _of_incident(incident: IncidentRecord) -> list[Moment]:
    lines = [(f"{incident.id} opened", f"incident {incident.id}: {incident.signal}: {incident.seen}")]
    if incident.fault_class is not None:
        blamed = ", ".join(blame({"node": node, "rank": rank}) for node, rank in incident.culprits[:8]) or "nobody"
        diagnosis = f"{incident.id} is {incident.fault_class} ({incident.confidence:.2f}), blamed: {blamed}"
        lines.append((f"{incident.id} {incident.fault_class}", diagnosis))
    if incident.action is not None:
        lines.append((f"{incident.id} {incident.action}", f"{incident.id}: {incident.action}, because {incident.why}"))
    back = incident.resumed_at
    if back is not None:
        lines.append(
            (f"{incident.id} resumed", f"{incident.id} is over: it trains again {back - incident.at:.1f} s after it")
        )
    return lines


def _of_living(incident: IncidentRecord) -> list[Moment]:
    """What an attempt lives on after was decided when it was written down: one line, and one when it is over."""
    if incident.signal in TOLD:
        return _of_note(incident)
    if incident.settled_itself:
        return _of_incident(incident)
    lines = [(f"{incident.id} opened", f"{incident.why}: {incident.seen} ({incident.fault_class})")]
    if incident.resumed_at is not None:
        took = incident.resumed_at - incident.at
        lines.append((f"{incident.id} resumed", f"attempt {incident.attempt} trains again {took:.2f} s after it"))
    return lines


def _of_note(incident: IncidentRecord) -> list[Moment]:
    lines = [(f"{incident.id} opened", f"{incident.why} ({incident.fault_class})")]
    if incident.over_at is not None:
        took = incident.over_at - incident.at
        lines.append((f"{incident.id} over", f"{incident.signal} is over after {took:.1f} s: {incident.seen}"))
    return lines


def _cell(value: object) -> str:
    """What others say, as far as a cell has room for it."""
    return markdown_text(value, CELL_CHARACTERS)
