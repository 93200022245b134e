"""The page of a bootstrap: hosts by stages, when each step was carried out, and how long until it was proven.

Two thousand hosts are as easy to read as three: hosts that are alike are one row, steps of one stage are one lane.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from statistics import median
from typing import Any, NamedTuple

from flows.decisions.bootstrap.summary import (
    OpenSteps,
    Table,
    alike,
    folded_names,
    group_name,
    open_steps,
    parts_of,
    stages_of,
)
from flows.decisions.text import markdown_text, timestamp
from flows.pages.frame import PLOT_WIDTH, duration, moment, plural, render
from flows.pages.plots import Bar
from flows.pages.style import BLUE, GREEN, GREY, ORANGE, PINK, RED, SKY, YELLOW
from workflows.model.bootstrap import CLUSTER, Stage, StepOutcome, StepRecord
from workflows.model.events import Sheet

Json = dict[str, Any]
STAGE_COLOURS = {
    Stage.HOSTS: BLUE,
    Stage.CONTROL_PLANE: ORANGE,
    Stage.WORKERS: GREEN,
    Stage.NETWORK: GREY,
    Stage.COMPONENTS: PINK,
    Stage.ADMISSION: YELLOW,
    Stage.PROOF: SKY,
}
"""Beside the name of each lane, which says it, too."""
OTHERS = RED
EACH_STEP = 24
"""Up to so many steps have a lane each; of more each stage has one."""
TICKS = 6
"""At most; a narrow window has room for as many."""
EVERY_SECONDS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
LAST_TICK = 0.93
"""Of the width: a later one has no room for its words."""
MARKS = {"pass": "✔", "fail": "✖", "unknown": "?", "not yet": "·"}
"""What stands in tables, each beside its word."""
MOST_ROWS, EACH_HOST = 200, 64
"""Rows of a table, and up to how many hosts have one each in an artifact."""
NAME_CHARACTERS = 240
"""Of names that are seen at once; more are unfolded."""
SLOWEST = 10
OPEN_COLUMNS = [
    ("stage", "stage", ""),
    ("names", "at", "names"),
    ("number", "number", "n"),
    ("word", "proof", "word"),
    ("said", "what was seen", "whole"),
]
KEY = "bootstrap"


class Names(NamedTuple):
    """Names of a row."""

    short: str
    more: str = ""
    """All of them, where they are too many to be seen at once."""


class Lane(NamedTuple):
    """One line of the time line."""

    name: str
    label: str
    """For readers who do not see it."""
    bars: Sequence[Bar]


class StepLanes(NamedTuple):
    """The time line of a command."""

    lanes: Sequence[Lane]
    ticks: Sequence[tuple[float, str]]
    """Place (0 to 1) and words of each mark."""
    about: str


def bootstrap_page(
    title: str,
    why: str,
    table: Table,
    steps: Sequence[StepOutcome],
    records: Sequence[StepRecord],
    since: float,
    notes: Sequence[str] = (),
) -> str:
    """The page of one command that began at `since` (Unix seconds); `notes` stand beside its steps."""
    done = [record for record in records if record.began_at >= since and record.ended_at is not None and record.tries]
    hosts, others = parts_of(table)
    broken, waiting = told_apart(steps, table)
    return render(
        "bootstrap.html",
        title=title,
        why=why,
        began=moment(timestamp(since)),
        first_numbers=first_numbers(hosts, others, done, since) if table else [],
        notes=[{"said": note} for note in notes],
        timeline=timeline(done, since),
        open_columns=OPEN_COLUMNS,
        parts_of_table=[
            (caption, what, [(stage, stage, "word") for stage in stages_of(part)], group_rows(part))
            for caption, what, part in (
                ("Hosts, those that are alike in one row", "hosts", hosts),
                ("Components, and the training run that proves the cluster", "components", others),
            )
            if part
        ],
        most_rows=MOST_ROWS,
        took=took_by_stage(done),
        slowest=slowest(steps),
        broken=[open_row(one, one.word) for one in broken],
        waiting=[open_row(one, "not yet") for one in waiting],
    )


def told_apart(steps: Sequence[StepOutcome], table: Table) -> tuple[tuple[OpenSteps, ...], tuple[OpenSteps, ...]]:
    """Steps that failed or of which nobody can tell, and those that were not begun: what they lack is no news."""
    begun: list[StepOutcome] = []
    others: list[StepOutcome] = []
    for step in steps:
        stage, _, subject = step.id.partition("/")
        (others if table.get(subject, {}).get(stage) == "not yet" else begun).append(step)
    return open_steps(begun), open_steps(others)


def first_numbers(hosts: Table, others: Table, done: Sequence[StepRecord], since: float) -> list[tuple[str, str]]:
    """How many hosts and components hold whole, and the time until the last proof."""
    last = max((record.ended_at or since for record in done), default=since)
    components = {subject: row for subject, row in others.items() if subject != CLUSTER}
    counted = [
        (f"{what} that hold", f"{sum(set(row.values()) == {'pass'} for row in part.values()):,} of {len(part):,}")
        for what, part in (("hosts", hosts), ("components", components))
        if part
    ]
    return [
        *counted,
        ("steps carried out", f"{len(done):,}"),
        ("until the last proof", duration(last - since) if done else "nothing was to be done"),
    ]


def group_rows(part: Table) -> list[Json]:
    """A row for those that are alike."""
    stages = stages_of(part)
    return [
        {"names": names_of(group.subjects), "number": f"{len(group.subjects):,}"}
        | {stage: marked(group.words.get(stage, "")) for stage in stages}
        for group in alike(part)
    ]


def open_row(one: OpenSteps, word: str) -> Json:
    """What does not hold, at whom, and what was seen."""
    row: Json = {"stage": one.stage, "names": names_of(one.subjects), "number": f"{len(one.subjects):,}"}
    return row | {"word": marked(word), "said": one.why}


def names_of(subjects: Sequence[str]) -> Names:
    """Their names, short enough to be read."""
    whole, short = folded_names(subjects), group_name(subjects, NAME_CHARACTERS)
    return Names(short, whole if whole != short else "")


def marked(word: str) -> str:
    """A word with its mark."""
    return f"{MARKS[word]} {word}" if word in MARKS else word


def took_by_stage(done: Sequence[StepRecord]) -> list[Json]:
    """How long steps of each stage took; all alike where they are many."""
    rows: list[Json] = []
    for stage in Stage:
        spans = {record.subject: _span(record) for record in done if record.stage is stage}
        if spans:
            last = max(spans, key=lambda subject: spans[subject])
            took = {"half": duration(median(spans.values())), "longest": duration(spans[last])}
            rows.append({"stage": stage.value, "number": f"{len(spans):,}", "last": last} | took)
    return rows


def slowest(steps: Sequence[StepOutcome]) -> list[Json]:
    """The steps of this command that took longest."""
    found = sorted((step for step in steps if step.seconds is not None), key=lambda step: -(step.seconds or 0.0))
    return [
        {"step": step.id, "what": step.summary, "took": duration(step.seconds), "said": step.why}
        for step in found[:SLOWEST]
    ]


def timeline(done: Sequence[StepRecord], since: float) -> StepLanes | None:
    """When each step was carried out and proven: a lane a step, or a stage where they are many; None: nothing was."""
    if not done:
        return None
    end = max(record.ended_at or since for record in done)
    span = max(end - since, 1.0)
    ordered = sorted(done, key=lambda record: (list(Stage).index(record.stage), record.began_at))
    if len(done) <= EACH_STEP:
        lanes = [_lane(record.id, [record], since, span) for record in sorted(done, key=lambda one: one.began_at)]
    else:
        lanes = [
            _lane(stage.value, list(group), since, span) for stage, group in groupby(ordered, lambda one: one.stage)
        ]
    every = next((step for step in EVERY_SECONDS if span / step <= TICKS), span)
    ticks = [(place / span, _whole(place)) for place in (every * number for number in range(int(span / every) + 1))]
    about = f"{plural(len(done), 'step')} in {duration(span)}, a mark every {_whole(every)}"
    return StepLanes(lanes, [tick for tick in ticks if tick[0] <= LAST_TICK], about)


def _whole(seconds: float) -> str:
    """A length of time that needs no tenths."""
    return f"{seconds:.0f} s" if seconds < 60 else duration(seconds)


def _lane(name: str, records: Sequence[StepRecord], since: float, span: float) -> Lane:
    """Steps that were begun together are one bar."""
    bars: list[Bar] = []
    for began, together in groupby(records, lambda record: record.began_at):
        batch = list(together)
        ended = max(record.ended_at or began for record in batch)
        x = (began - since) / span * PLOT_WIDTH
        width = min(max(2.0, (ended - began) / span * PLOT_WIDTH), PLOT_WIDTH - x)
        title = f"{batch[0].stage} of {names_of([record.subject for record in batch]).short}: {duration(ended - began)}"
        bars.append(
            Bar(x, width, STAGE_COLOURS.get(batch[0].stage, OTHERS), f"{title}, from {duration(began - since)}")
        )
    last = max(record.ended_at or since for record in records)
    label = f"{name}: from {duration(records[0].began_at - since)} to {duration(last - since)}"
    return Lane(name if len(records) == 1 else f"{name} ({len(records):,})", label, bars)


def _span(record: StepRecord) -> float:
    return (record.ended_at or record.began_at) - record.began_at


def key_of(cluster: str, what: str) -> str:
    """Key of an artifact: the same for each command on the cluster, so that its page has them one after the other."""
    return f"{KEY}-{cluster}-{what}"


def table_sheet(cluster: str, table: Mapping[str, Mapping[str, str]], why: str) -> Sheet:
    """The artifact of a flow run: hosts x stages; of very many hosts those that are alike in one row."""
    rows: list[Json] = []
    stages = stages_of(table)
    for part in parts_of(table):
        one_by_one = len(part) <= EACH_HOST
        groups = [((name,), row) for name, row in part.items()]
        groups = groups if one_by_one else [(group.subjects, group.words) for group in alike(part)]
        rows += [
            {"host or component": folded_names(names)}
            | ({} if len(table) <= EACH_HOST else {"number": len(names)})
            | {stage: marked(words.get(stage, "")) for stage in stages}
            for names, words in groups
        ]
    return Sheet(key_of(cluster, "hosts"), "table", rows[:MOST_ROWS], description=markdown_text(why))


def plan_sheet(cluster: str, verb: str, steps: Sequence[StepOutcome], notes: Sequence[str] = ()) -> Sheet:
    """The artifact of a flow run: what would be carried out, and what was found beside it."""
    lines = [f"# {markdown_text(cluster)}: {verb}", ""]
    missing = [step for step in steps if step.word != "pass"]
    if steps:
        lines += [f"{len(steps) - len(missing):,} of {plural(len(steps), 'step')} hold already.", ""]
    lines += [f"* {markdown_text(note)}" for note in notes[:MOST_ROWS]]
    lines += [f"* and {len(notes) - MOST_ROWS} more"] if len(notes) > MOST_ROWS else []
    lines += [""] if notes else []
    lines += _plan_rows(missing)
    return Sheet(key_of(cluster, "drift" if verb == "drift" else "plan"), "markdown", "\n".join(lines))


def _plan_rows(missing: Sequence[StepOutcome]) -> list[str]:
    """A row a step, or where there are very many a row for those of a stage of which the same was seen."""
    if not missing:
        return []
    if len(missing) <= EACH_HOST:
        rows = [(step.id, step.summary, f"{step.word}: {step.why}") for step in missing]
        return [*_markdown_head("step", "what it does", "now"), *map(_markdown_row, rows)]
    groups = open_steps(missing)
    rows = [(one.stage, f"{len(one.subjects):,}", one.id, f"{one.word}: {one.why}") for one in groups[:MOST_ROWS]]
    more = [f"\n{len(groups) - MOST_ROWS} more rows are not shown."] if len(groups) > MOST_ROWS else []
    return [*_markdown_head("stage", "steps", "which", "now"), *map(_markdown_row, rows), *more]


def _markdown_head(*titles: str) -> tuple[str, str]:
    return _markdown_row(titles), "|" + "---|" * len(titles)


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(markdown_text, cells))} |"
