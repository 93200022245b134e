"""The page of a bootstrap: hosts by stages, when each step was carried out, and how long until it was proven."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flows.decisions.text import markdown_text
from flows.pages.frame import PLOT_HEIGHT, PLOT_WIDTH, duration, plural, render
from flows.pages.plots import Bar, Plot
from flows.pages.style import BLUE, GREEN, GREY, ORANGE, RED
from workflows.model.bootstrap import StepOutcome, StepRecord
from workflows.model.events import Sheet

Json = dict[str, Any]
STAGE_COLOURS = {
    "hosts": ("blue", BLUE),
    "control-plane": ("orange", ORANGE),
    "workers": ("green", GREEN),
    "network": ("grey", GREY),
}
OTHERS = ("red", RED)
ROW_SHARE = 0.8
"""Of the height of a row that its bar takes."""
MOST_BARS = 400
MARKS = {"pass": "✔", "fail": "✖", "unknown": "?", "not yet": "·"}
"""What stands in the table, each beside its word."""
MOST_ROWS = 200
KEY = "bootstrap"


def bootstrap_page(
    title: str,
    why: str,
    table: Mapping[str, Mapping[str, str]],
    steps: Sequence[StepOutcome],
    records: Sequence[StepRecord],
    since: float,
    notes: Sequence[str] = (),
) -> str:
    """The page of one command that began at `since` (Unix seconds); `notes` stand beside its steps."""
    stages = stages_of(table)
    done = [record for record in records if record.began_at >= since and record.ended_at is not None and record.tries]
    slowest = sorted((step for step in steps if step.seconds is not None), key=lambda step: -(step.seconds or 0.0))
    return render(
        "bootstrap.html",
        title=title,
        why=why,
        first_numbers=first_numbers(table, done, since) if table else [],
        notes=[{"said": note} for note in notes],
        timeline=timeline(done, since),
        stages=[(stage, stage, "") for stage in stages],
        rows=[{"subject": name, **{stage: row.get(stage, "") for stage in stages}} for name, row in table.items()],
        most_rows=MOST_ROWS,
        slowest=[
            {"step": step.id, "what": step.summary, "took": duration(step.seconds), "said": step.why}
            for step in slowest[:20]
        ],
        open_steps=[
            {"step": step.id, "word": step.word.value, "said": step.why} for step in steps if step.word != "pass"
        ],
    )


def stages_of(table: Mapping[str, Mapping[str, str]]) -> list[str]:
    """The stages of a table in their order."""
    return list(dict.fromkeys(stage for row in table.values() for stage in row))


def first_numbers(
    table: Mapping[str, Mapping[str, str]], done: Sequence[StepRecord], since: float
) -> list[tuple[str, str]]:
    """Hosts and components, how many hold whole, and the time until the last proof."""
    whole = sum(all(word == "pass" for word in row.values()) for row in table.values())
    last = max((record.ended_at or since for record in done), default=since)
    return [
        ("hosts and components", str(len(table))),
        ("hold whole", str(whole)),
        ("steps carried out", str(len(done))),
        ("until the last proof", duration(last - since) if done else "nothing was to be done"),
    ]


def timeline(done: Sequence[StepRecord], since: float) -> Plot | None:
    """When each step was carried out and proven, one bar a step, one above the other; None: nothing was."""
    if not done:
        return None
    end = max(record.ended_at or since for record in done)
    span = max(end - since, 1.0)
    shown = sorted(done, key=lambda record: record.began_at)[:MOST_BARS]
    height = PLOT_HEIGHT / len(shown)
    bars = [
        Bar(
            (record.began_at - since) / span * PLOT_WIDTH,
            max(2.0, ((record.ended_at or end) - record.began_at) / span * PLOT_WIDTH),
            STAGE_COLOURS.get(record.stage, OTHERS)[1],
            f"{record.id}: {duration((record.ended_at or end) - record.began_at)}",
            PLOT_HEIGHT - index * height,
            height * ROW_SHARE,
        )
        for index, record in enumerate(shown)
    ]
    colours = ", ".join(f"{stage} {word}" for stage, (word, _) in STAGE_COLOURS.items())
    label = f"{plural(len(shown), 'step')} in {duration(span)}, the first one at the top ({colours})"
    return Plot(label, ("first", "last"), ("0 s", duration(span)), bars=bars)


def table_sheet(table: Mapping[str, Mapping[str, str]], why: str) -> Sheet:
    """The artifact of a flow run: hosts x stages."""
    stages = stages_of(table)
    rows = [
        {"host": name} | {stage: f"{MARKS[row[stage]]} {row[stage]}" if stage in row else "" for stage in stages}
        for name, row in list(table.items())[:MOST_ROWS]
    ]
    more = f" ({len(table) - MOST_ROWS} more are not shown)" if len(table) > MOST_ROWS else ""
    return Sheet(f"{KEY}-hosts", "table", rows, description=markdown_text(why) + more)


def plan_sheet(cluster: str, steps: Sequence[StepOutcome], notes: Sequence[str] = ()) -> Sheet:
    """The artifact of a flow run: what would be carried out, and what was found beside it."""
    lines = [f"# {'Plan for ' if steps else ''}{markdown_text(cluster)}", ""]
    missing = [step for step in steps if step.word != "pass"]
    if steps:
        lines += [f"{len(steps) - len(missing)} of {plural(len(steps), 'step')} hold already.", ""]
    lines += [f"* {markdown_text(note)}" for note in notes[:MOST_ROWS]]
    lines += [f"* and {len(notes) - MOST_ROWS} more"] if len(notes) > MOST_ROWS else []
    lines += [""] if notes else []
    if missing:
        lines += ["| step | what it does | now |", "|---|---|---|"]
        lines += [
            f"| {markdown_text(step.id)} | {markdown_text(step.summary)} | {step.word}: {markdown_text(step.why)} |"
            for step in missing[:MOST_ROWS]
        ]
    return Sheet(f"{KEY}-plan", "markdown", "\n".join(lines))
