"""`primus diagnose`: what anybody's log files say of a failure; no server, no cluster."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from deployments.diagnosis_view import document, show
from deployments.edge import GOOD, UNKNOWN, out_json, say
from flows.decisions.diagnose import Diagnosis, diagnose
from flows.decisions.foreign import evidence_from
from flows.decisions.learning import Learning
from flows.decisions.selection import Selection, select, select_all
from flows.decisions.telling import Teller
from tasks.log_files import LogFile, find_logs

PROVISIONAL_BYTES = 2 << 20
"""The ends of all logs that a first answer is made from; logs that are no longer have none."""
PROVISIONAL_LINES = 1200
PROVISIONAL_CHATTER = 10


def diagnose_logs(names: Sequence[str], *, as_json: bool) -> int:
    """Read the logs and answer; 3 where there was nothing to read.

    Raises:
        NotFound: there is no such file.
        ProfileError: a named file cannot be read.
    """
    logs, passed = find_logs(names)
    for text in passed:
        say(f"primus: passed over: {text}")
    if sys.stderr.isatty():
        _say_first(logs)
    selections = select_all(logs)
    for log in logs:
        for text in log.broken:
            say(f"primus: {text}")
    found = diagnose(evidence_from(selections))
    empty = not any(text.strip() for item in selections for _, texts in item.runs for text in texts)
    if as_json:
        out_json(document(found, selections))
    elif not empty:
        show(found, selections)
    if empty:
        say(f"primus: there was nothing to read in {', '.join(names)}")
    return UNKNOWN if empty else GOOD


def _say_first(logs: Sequence[LogFile]) -> None:
    """Tell people who wait what the ends of the logs say, before all is read."""
    known = sum(log.size_bytes or 0 for log in logs)
    if known <= PROVISIONAL_BYTES:
        if any(log.path is None for log in logs) and sys.stdin.isatty():
            say("primus: reading standard input until its end (Ctrl-D)")
        return
    found = provisional(logs)
    blamed = ", ".join(node or f"rank {rank}" for node, rank in found.culprits[:4])
    say(
        f"from the ends of the logs: {found.fault_class} ({found.confidence:.2f})"
        f"{f', blamed: {blamed}' if blamed else ''}; reading all {known / 1e6:.0f} MB ..."
    )


def provisional(logs: Sequence[LogFile]) -> Diagnosis:
    """What the last megabytes of the logs say. Numbers of lines mean nothing in it."""
    learning, each = Learning(Teller(PROVISIONAL_CHATTER)), PROVISIONAL_BYTES // max(1, len(logs))
    most = max(8, PROVISIONAL_LINES // max(1, len(logs)))
    ends: list[Selection] = [select(log.name, [log.tail(each)], learning, most) for log in logs]
    return diagnose(evidence_from(ends))
