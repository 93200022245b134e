"""One screen about a run that is watched: values in, something to draw out. Reads nothing, waits for nothing."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from textwrap import wrap
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from flows.decisions.lagging import sentences
from flows.decisions.spans import age
from flows.decisions.sparks import bar, sparkline
from profiles.vocabulary import FINISHED
from workflows.records import StepRow
from workflows.told import TOLD

Json = dict[str, Any]
STYLES = {"running": "green", "succeeded": "green", "pending": "cyan", "recovering": "yellow", "stopped": "yellow"} | {
    "waiting-for-approval": "bold yellow",
    "failed": "bold red",
    "unknown": "bold red",
}
ATTEMPTS, INCIDENTS, QUESTIONS, ODD = 3, 3, 2, 3
"""So many of each, the newest: the rest is in `primus status`."""
LABEL = 10
QUIET_SECONDS = 30.0
"""From here on the screen says how long ago the last step was."""


@dataclass(frozen=True)
class Trend:
    """The newest steps as the screen draws them."""

    losses: tuple[float | None, ...] = ()
    rates: tuple[float | None, ...] = ()
    """Steps per second between two steps."""
    last_at: float | None = None
    """Unix seconds of the last step."""


def trend_of(steps: Sequence[StepRow]) -> Trend:
    """What the steps tell."""
    rates = [
        (after.step - before.step) / (after.at - before.at)
        for before, after in pairwise(steps)
        if after.at > before.at and after.step > before.step
    ]
    return Trend(tuple(row.loss for row in steps), tuple(rates), steps[-1].at if steps else None)


def screen(status: Json, trend: Trend, now: float, width: int, height: int = 0) -> RenderableType:
    """The run on one screen.

    Args:
        status: the document of `primus status`, with or without pods and goodput.
        trend: its newest steps.
        now: Unix seconds.
        width: characters in a line.
        height: lines of the terminal; 0: as many as it takes. Where it takes more, older incidents and attempts go.
    """
    waiting = [item for item in status["approvals"] if item["state"] == "waiting"]
    top = [
        *_head(status, trend, now, width),
        *[line for item in waiting[:QUESTIONS] for line in _question(item, width)],
    ]
    top += [Text(), *_progress(status, trend, width)]
    foot = [Text(), _foot(status, width)]
    room = height - len(top) - len(foot) if height else sys.maxsize
    attempts = _section("attempts", [[_attempt(row, width)] for row in status["attempts"][-ATTEMPTS:]], room)
    room -= len(attempts)
    # What is only told stands above while it is so: it must not push out what was done something about.
    troubles = [row for row in status["incidents"] if row["signal"] not in TOLD]
    incidents = _section("incidents", [_incident(row, width) for row in troubles[-INCIDENTS:]], room)
    return Group(*top, *attempts, *incidents, *foot)


def _head(status: Json, trend: Trend, now: float, width: int) -> list[Text]:
    head = Text(f"{status['run']}  ", "bold")
    head.append(str(status["state"]), STYLES.get(status["state"], ""))
    head.append(f"  {status['profile']} on {status['cluster']}, mode {status['mode']}", "dim")
    lines = [_one_line(head, width), *_some_lines(status["why"], 2, width)]
    if status["paused_why"] is not None:
        lines += _some_lines(f"automatic actions are halted: {status['paused_why']}", 2, width, "bold yellow")
    lines += [line for said in sentences(status)[:ODD] for line in _some_lines(said, 1, width, "yellow")]
    silent = None if trend.last_at is None else now - trend.last_at
    if status["state"] == "running" and silent is not None and silent > QUIET_SECONDS:
        lines.append(Text(f"the last step was {age(silent)} ago", "yellow"))
    return lines


def _progress(status: Json, trend: Trend, width: int) -> list[Text]:
    step, total, rate = status["step"], status["steps"], status["steps_per_second"]
    told = {"step": "none completed yet" if step is None else str(step)}
    if step is not None and total:
        eta = f", {age(status['eta_seconds'])} to go" if status["eta_seconds"] is not None else ""
        told["step"] = f"{step} of {total}, {step / total:.0%}{eta}"
    if status["loss"] is not None:
        told["loss"] = f"{status['loss']:.4g}"
    if rate is not None:
        told["speed"] = f"{rate:.3g} steps/s"
    room = max(8, width - LABEL - 2 - max(map(len, told.values())))
    drawn = {
        "step": bar(step / total, room) if step is not None and total else "",
        "loss": sparkline(trend.losses, room),
        "speed": sparkline(trend.rates, room, bottom=0.0),
    }
    durable = status["last_durable_step"]
    kept = "none yet" if durable is None else f"step {durable} is proven and durable"
    lines = [_labelled(name, f"{drawn[name]} {text}".strip(), width, len(drawn[name])) for name, text in told.items()]
    return [*lines, _labelled("checkpoint", kept, width)]


def _attempt(row: Json, width: int) -> Text:
    steps = "no step yet" if row["first_step"] is None else f"steps {row['first_step']} to {row['last_step']}"
    came = f", from step {row['resumed_from_step']}" if row["resumed_from_step"] is not None else ""
    came += f", {row['restarts_in_place']} in place" if row["restarts_in_place"] else ""
    text = f"{row['number']:>3}  {row['outcome'] or 'lives':<16} {steps}{came}  {' '.join(row['nodes'])}"
    return _one_line(Text(text, "dim" if row["outcome"] else ""), width)


def _incident(row: Json, width: int) -> list[Text]:
    blamed = next((item["node"] or f"rank {item['rank']}" for item in row["culprits"]), "nobody")
    known = f"{row['class']} ({row['confidence']:.2f}), {blamed}" if row["class"] else row["signal"]
    back = row["resumed_after_seconds"]
    took = f" in {back:.1f} s" if back is not None else ""
    when = (f"  {(row['detected_at'] or '')[11:19]}  ", "dim")
    text = Text.assemble(when, f"{known} -> {row['action'] or 'not decided yet'}{took}")
    return [_one_line(text, width), *([_one_line(Text(f"{'':12}{row['why']}", "dim"), width)] if row["why"] else [])]


def _question(item: Json, width: int) -> list[Text]:
    asked = _some_lines(f"waits for you: {item['question']}", 3, width, "bold yellow")
    answers = [f'  primus {word} {item["id"]} --why "..."' for word in ("approve", "deny")]
    return [Text(), *asked, *(_one_line(Text(answer), width) for answer in answers)]


def _foot(status: Json, width: int) -> Text:
    if status["state"] in FINISHED:
        return _one_line(Text(f"where the time went: primus report {status['run']}", "dim"), width)
    held = _driver(status["driver"])
    return _one_line(Text(f"Ctrl-C stops watching, never the training; {held}", "dim"), width)


def _driver(driver: Json | None) -> str:
    if driver is None:
        return "no driver has taken it yet"
    return f"driven by process {driver['pid']} on {driver['host']}" if driver["alive"] else "its driver is gone"


def _section(title: str, entries: Sequence[Sequence[Text]], room: int) -> list[Text]:
    """A heading and the newest entries that there is room for."""
    kept = list(entries)
    while kept and 2 + sum(map(len, kept)) > room:
        kept.pop(0)
    return [Text(), Text(title, "bold"), *[line for entry in kept for line in entry]] if kept else []


def _some_lines(text: str, most: int, width: int, style: str = "") -> list[Text]:
    """The text in at most so many lines, broken between words."""
    lines = wrap(" ".join(text.split()), width, max_lines=most, placeholder="…")
    return [_one_line(Text(line, style), width) for line in lines]


def _labelled(label: str, text: str, width: int, drawn: int = 0) -> Text:
    """A fact with its name; the first `drawn` characters are a picture."""
    name = (label.ljust(LABEL + 1), "dim")
    return _one_line(Text.assemble(name, (text[:drawn], "cyan"), text[drawn:]), width)


def _one_line(text: Text, width: int) -> Text:
    text.truncate(width, overflow="ellipsis")
    text.no_wrap = True
    return text
