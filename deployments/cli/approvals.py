"""`primus approvals`, `approve`, `deny`, `pause`, `unpause` and `ledger`: answers, pauses, the raw history."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from dataclasses import asdict
from typing import Annotated, Any

import typer

from deployments.cli.app import AsJson, Limit, Since, Why, app
from deployments.exit_codes import GOOD, out, out_json, say, write
from flows.decisions.text import since_seconds, timestamp
from flows.decisions.views.approvals import approval_document, lines
from flows.decisions.views.status import person_row, said_by
from profiles.errors import PrimusError, ProfileError
from tasks.ledger.ledger import Ledger
from tasks.processes import own_user
from tasks.settings import Settings
from workflows.model.records import Actor, one_line


@app.command("approvals")
def list_approvals(*, as_json: AsJson = False) -> int:
    """Questions that wait for a person.

    Example: primus approvals
    """
    ledger, now = open_ledger(), time.time()
    waiting = ledger.waiting_approvals()
    if as_json:
        out_json([approval_document(item, now) for item in waiting])
    elif not waiting:
        out("nothing waits for a person")
    else:
        out("\n\n".join("\n".join(lines(item, now)) for item in waiting))
        tell_pause(ledger)
    return GOOD


@app.command()
def approve(approval: Annotated[str, typer.Argument(help="Id of the question.")], why: Why = "") -> int:
    """Say yes: the decision is carried out.

    Example: primus approve demo-1-a1-i1-approval --why "the rack is back"
    """
    return answer(approval, why, approved=True)


@app.command()
def deny(approval: Annotated[str, typer.Argument(help="Id of the question.")], why: Why = "") -> int:
    """Say no: nothing is done and the run stays stopped.

    Example: primus deny demo-1-a1-i1-approval --why "wait for Monday"
    """
    return answer(approval, why, approved=False)


@app.command()
def pause(
    run: Annotated[str, typer.Argument(help="Name of the run; empty with --all.")] = "",
    everything: Annotated[bool, typer.Option("--all", help="Every run of this ledger.")] = False,
    why: Why = "",
) -> int:
    """Halt every automatic action at once; training itself goes on.

    Example: primus pause --all --why "maintenance of the fabric"
    """
    return set_pause(run, why, everything=everything, paused=True)


@app.command()
def unpause(
    run: Annotated[str, typer.Argument(help="Name of the run; empty with --all.")] = "",
    everything: Annotated[bool, typer.Option("--all", help="Every run of this ledger.")] = False,
    why: Why = "",
) -> int:
    """Allow automatic actions again.

    Example: primus unpause --all
    """
    return set_pause(run, why, everything=everything, paused=False)


@app.command("ledger")
def show_ledger(
    run: Annotated[str, typer.Option("--run", help="Only this run.")] = "",
    since: Since = "",
    limit: Limit = 0,
    *,
    as_json: AsJson = False,
) -> int:
    """The raw history, oldest first.

    Example: primus ledger --run demo-1 --since 1h
    """
    # Printed as it is read, since it may be long.
    ledger = open_ledger()
    if run and not ledger.changes(run):
        ledger.story(run)  # says that there is none
    lines = ledger.history(run or None, since_seconds(since, time.time()), limit)
    rows = ({**asdict(line), "at": timestamp(line.at), **person_row(line.by)} for line in lines)
    if as_json:
        _stream_json(rows)
    else:
        for row in rows:
            shown = [row["at"], row["run"], row["kind"], row["subject"], said_by(row), row["why"]]
            out("  ".join(one_line(str(part)) for part in shown if part))
    return GOOD


def open_ledger() -> Ledger:
    """The ledger that the environment names."""
    return Ledger(Settings.from_environment(os.environ).ledger_url)


def who() -> Actor:
    """The person at the keyboard, as he stands beside what he does; he is told where that is not his own name."""
    found = own_user()
    if os.environ.get("SUDO_USER"):
        say(f"this stands in the ledger as done by {found}: sudo changes the real user id, which alone is believed")
    return found


def note_act(run: str, what: str, why: str) -> None:
    """Write down an act of which nothing else in the ledger tells; where it cannot be written that is said, no more."""
    try:
        open_ledger().act(run, what, why, who())
    except PrimusError as error:
        say(f"{what}: the ledger does not say who did it: {error}")


def tell_pause(ledger: Ledger) -> None:
    """Say that all automatic actions are paused, where they are."""
    why = ledger.everything_paused()
    if why is not None:
        out(f"\neverything is paused: {why}; go on: primus unpause --all")


def answer(approval: str, why: str, *, approved: bool) -> int:
    """Answer a question, once."""
    if not why:
        raise ProfileError("--why", "say why in a few words; it stands beside the decision for ever")
    ledger, now = open_ledger(), time.time()
    approval_record = ledger.answer(approval, approved, who(), why, now)
    at = timestamp(approval_record.answered_at)
    say(f"{approval_record.id}: {approval_record.state} by {approval_record.answerer} at {at}: {approval_record.why}")
    if approval_record.state == "approved" and not _is_driven(ledger, approval_record.run, now):
        say(f"nobody drives {approval_record.run} now: the answer stands, and is carried out by whoever continues it")
    return GOOD


def _is_driven(ledger: Ledger, run: str, now: float) -> bool:
    lease = ledger.lease(run)
    return lease is not None and lease.expires_at > now


def set_pause(run: str, why: str, *, everything: bool, paused: bool) -> int:
    """Stop or allow automatic actions of a run, or of all."""
    if everything == bool(run):
        raise ProfileError("RUN", "name one run, or say --all")
    ledger, target = open_ledger(), None if everything else run
    said = why or ("paused by hand" if paused else "allowed again")
    (ledger.pause if paused else ledger.unpause)(target, said, by=who())
    subject = run or "every run"
    say(f"{subject}: automatic actions are {'halted; training continues' if paused else 'allowed again'}")
    if target is not None and not paused and ledger.paused(target):
        say(f"everything is paused as well, {run} too: primus unpause --all")
    return GOOD


def _stream_json(rows: Iterable[dict[str, Any]]) -> None:
    """One JSON array, a row a line, written while it is read."""
    mark = "["
    for row in rows:
        write(mark + json.dumps(row, default=str))
        mark = ",\n"
    write("]\n" if mark != "[" else "[]\n")
