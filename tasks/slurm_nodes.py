"""Nodes taken out of Slurm and given back: drained with a reason that says who did it, resumed only where that was us.

Needs the rights of Slurm's operators. What other people drained is theirs: neither their reason nor their drain is
touched. Verdicts that a prolog reads are files, one a node that failed (`deployments/slurm/prolog.sh`).
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from profiles.errors import ProfileError, Refused, Unavailable
from profiles.vocabulary import VerdictWord
from tasks import slurm_commands
from tasks.slurm_answers import NodeLine
from workflows.slurm_job import NODE_NAME

OURS = "primus:"
"""Beginning of the reasons of what we drained."""
MOST_CHARACTERS = 200
DRAINED = ("drain", "fail")
"""Beginnings of states that `resume_node` ends."""

RIGHTLESS = ("denied", "invalid user id")
"""Parts of what Slurm says to people who may not drain nodes: versions differ."""


def reason_of(check: str) -> str:
    """The Reason of a node that failed this check: one short line."""
    plain = "".join(mark if mark.isprintable() else " " for mark in check)
    return f"{OURS} {' '.join(plain.split()) or 'preflight'}"[:MOST_CHARACTERS]


def is_ours(node: NodeLine) -> bool:
    """Whether we took it out: by the beginning of its reason."""
    return node.reason.startswith(OURS)


def drain_node(node: str, check: str) -> str:
    """Keep new jobs away from a node that failed; jobs on it go on. Doing it again changes nothing.

    Args:
        node: its name in Slurm.
        check: what it failed, for the Reason.

    Returns:
        What was done, in words.

    Raises:
        NotFound: Slurm has no such node.
        Refused: this user may not drain nodes.
        Unavailable: slurmctld does not answer; nothing was done.
        ProfileError: Slurm's commands are not on this machine.
    """
    found = slurm_commands.node_line(_checked(node))
    if found.state.startswith(DRAINED):
        whose = "by us" if is_ours(found) else "by somebody else"
        return f"{node} is {found.state} already, {whose}: {found.reason or 'no reason given'}"
    _update(node, "State=DRAIN", f"Reason={reason_of(check)}")
    return f"{node} gets no new jobs from Slurm: {reason_of(check)}"


def resume_node(node: str) -> str:
    """Let jobs on a node again that we drained, and only then.

    Returns:
        What was done, in words.

    Raises:
        NotFound, Refused, Unavailable, ProfileError: as `drain_node`.
    """
    found = slurm_commands.node_line(_checked(node))
    if not found.state.startswith(DRAINED):
        return f"{node} is not drained: it is {found.state}"
    if not is_ours(found):
        return f"{node} was drained by somebody else and stays so: {found.reason or 'no reason given'}"
    _update(node, "State=RESUME")
    return f"{node} gets jobs from Slurm again"


def publish_verdict(folder: Path, node: str, verdict: VerdictWord, check: str, at: float) -> None:
    """Write what the prolog reads: a file a node, whose one line is the verdict, the check, and Unix seconds.

    Args:
        folder: that all nodes see and only we write; made where it is missing.
        node: its name in Slurm.
        verdict: pass, fail or unknown.
        check: what it failed; "": nothing.
        at: when it was tested.

    Raises:
        ProfileError: no name of a node.
        Unavailable: it cannot be written; what was there stands.
    """
    path, line = folder / _checked(node), f"{verdict} {reason_of(check)[len(OURS) :].strip()} {at:.0f}\n"
    try:
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=folder, prefix=".")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            os.fchmod(handle, 0o644)
            file.write(line)
        os.replace(temporary, path)
    except OSError as error:
        raise Unavailable(f"{path} cannot be written ({error.strerror}): the verdict stands in the ledger") from error


def withdraw_verdict(folder: Path, node: str) -> None:
    """Nothing is known of the node any more; absent is fine.

    Raises:
        ProfileError, Unavailable: as `publish_verdict`.
    """
    path = folder / _checked(node)
    try:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
    except OSError as error:
        raise Unavailable(f"{path} cannot be removed ({error.strerror})") from error


def _checked(node: str) -> str:
    if not NODE_NAME.fullmatch(node):
        raise ProfileError("node", f"{node!r} can be no node's name in Slurm")
    return node


def _update(node: str, *words: str) -> None:
    try:
        slurm_commands.ask(["scontrol", "update", f"NodeName={node}", *words])
    except Refused as error:
        rightless = any(part in error.reason.lower() for part in RIGHTLESS)
        advice = "ask as SlurmUser, root or an operator" if rightless else "nothing was changed"
        raise Refused("scontrol", f"{node}: {error.reason}; {advice}") from error
