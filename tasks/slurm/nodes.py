"""Nodes taken out of Slurm and given back, by what tests found: verdicts for its prolog, drains, and their end.

A drain's reason says that it is ours, and only our own drains are resumed: neither the reason nor the drain of other
people is touched. Both need the rights of Slurm's operators. Verdicts that a prolog reads are files, one a node that
failed (`deployments/slurm/prolog.sh`).

`act_by_slurm` raises nothing: what could not be done is reported, the ledger has it, and the next test does it again.
Unknown neither drains nor resumes.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from profiles.admission import Slurm
from profiles.errors import NotFound, PrimusError, ProfileError, Refused, Unavailable
from profiles.vocabulary import VerdictWord
from tasks.nodes.marks import VerdictMark
from tasks.slurm import commands
from tasks.slurm.commands import NODE_FORMAT, NodeLine, nodes_in
from workflows.node_tests.slurm_job import NODE_NAME

Tell = Callable[[str], None]

OURS = "primus:"
"""Beginning of the reasons of what we drained."""
MOST_CHARACTERS = 200
DRAINED = ("drain", "fail")
"""Beginnings of states that `resume_node` ends."""

RIGHTLESS = ("denied", "invalid user id")
"""Parts of what Slurm says to people who may not drain nodes: versions differ."""

NAMED = 8
"""Nodes that a line names."""


def reason_of(check: str) -> str:
    """The Reason of a node that failed this check: one short line."""
    plain = "".join(mark if mark.isprintable() else " " for mark in check)
    return f"{OURS} {' '.join(plain.split()) or 'preflight'}"[:MOST_CHARACTERS]


def is_ours(node: NodeLine) -> bool:
    """Whether we took it out: by the beginning of its reason."""
    return node.reason.startswith(OURS)


def drain_node(node: str, check: str) -> str:
    """Keep new jobs away from a node that failed; jobs on it go on. Doing it again changes nothing.

    `check` is what it failed, for the Reason.

    Returns:
        What was done, in words.

    Raises:
        NotFound: Slurm has no such node.
        Refused: this user may not drain nodes.
        Unavailable: slurmctld does not answer; nothing was done.
        ProfileError: Slurm's commands are not on this machine.
    """
    found = commands.node_line(_checked(node))
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
    found = commands.node_line(_checked(node))
    if not found.state.startswith(DRAINED):
        return f"{node} is not drained: it is {found.state}"
    if not is_ours(found):
        return f"{node} was drained by somebody else and stays so: {found.reason or 'no reason given'}"
    _update(node, "State=RESUME")
    return f"{node} gets jobs from Slurm again"


def publish_verdict(folder: Path, node: str, verdict: VerdictWord, check: str, at: float) -> None:
    """Write what the prolog reads: a file a node, whose one line is the verdict, the check, and Unix seconds.

    All nodes see the folder and only we write there; it is made where it is missing. `check` is what the node failed
    ("": nothing), `at` (Unix seconds) when it was tested.

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
        commands.ask(["scontrol", "update", f"NodeName={node}", *words])
    except Refused as error:
        rightless = any(part in error.reason.lower() for part in RIGHTLESS)
        advice = "ask as SlurmUser, root or an operator" if rightless else "nothing was changed"
        raise Refused("scontrol", f"{node}: {error.reason}; {advice}") from error


def act_by_slurm(settings: Slurm, told: Sequence[VerdictMark], tell: Tell, *, most: int) -> None:
    """Publish verdicts where a folder is named; where `drain` says so, resume what passes again and drain what failed.

    Doing it again changes nothing. Two that act at the same moment may drain more than `most` together: take turns.

    Args:
        settings: of the cluster.
        told: what is to be believed of nodes, one a node; the others are left alone.
        tell: gets a line for whatever was done, and for what could not be done.
        most: nodes of this Slurm that may be drained by us at once, those that we or the prolog drained before
            included. What is beyond it is told and left to a person.
    """
    verdicts = {one.node: one for one in told}
    if settings.verdicts:
        _publish(Path(settings.verdicts), list(verdicts.values()), tell)
    if not verdicts or not (settings.drain or settings.verdicts):
        return
    try:
        known = _nodes()
        if settings.drain:
            ended = _resume(_ours_that_pass(verdicts, known), tell)
            ours = sum(node not in ended and _is_out(line) for node, line in known.items())
            _drain(_failed(verdicts, known, tell), most - ours, tell)
        else:
            _tell_of_drained(_ours_that_pass(verdicts, known), tell)
    except PrimusError as error:
        tell(f"Slurm was not told all that was found: {error}")


def _publish(folder: Path, told: Sequence[VerdictMark], tell: Tell) -> None:
    for count, one in enumerate(told):
        try:
            publish_verdict(folder, one.node, one.word, one.check, one.at)
        except ProfileError as error:
            tell(f"a verdict was not published for the prolog: {error}")
        except PrimusError as error:
            tell(f"verdicts of {len(told) - count} nodes were not published for the prolog: {error}")
            return


def _nodes() -> dict[str, NodeLine]:
    """All nodes of this Slurm by name: our drains outside of a partition count, too.

    Raises:
        Unavailable, ProfileError, Refused: as `tasks.slurm.commands.ask`.
    """
    return nodes_in(commands.ask(["sinfo", "--noheader", "--Node", "--all", f"--format={NODE_FORMAT}"]))


def _is_out(line: NodeLine) -> bool:
    """Whether it is drained, and by us."""
    return line.state.startswith(DRAINED) and is_ours(line)


def _ours_that_pass(verdicts: Mapping[str, VerdictMark], known: Mapping[str, NodeLine]) -> list[str]:
    passed = [one.node for one in verdicts.values() if one.word is VerdictWord.PASS]
    return [node for node in passed if node in known and _is_out(known[node])]


def _failed(verdicts: Mapping[str, VerdictMark], known: Mapping[str, NodeLine], tell: Tell) -> list[VerdictMark]:
    """Those that failed and still get jobs, in their order."""
    failed = [one for one in verdicts.values() if one.word is VerdictWord.FAIL]
    strange = [one.node for one in failed if one.node not in known]
    if strange:
        tell(f"{_some(strange)} failed and cannot be drained: Slurm has no such node")
    there = [one for one in failed if one.node in known]
    return [one for one in there if not known[one.node].state.startswith(DRAINED)]


def _resume(nodes: Sequence[str], tell: Tell) -> set[str]:
    """Those that get jobs again; raises Unavailable, ProfileError."""
    return _each("resumed", {node: lambda node=node: resume_node(node) for node in nodes}, tell)


def _drain(failed: Sequence[VerdictMark], room: int, tell: Tell) -> None:
    """As many as there is room for; raises Unavailable, ProfileError."""
    allowed, rest = failed[: max(0, room)], failed[max(0, room) :]
    words = {one.node: one.check or one.depth for one in allowed}
    acts = {node: lambda node=node, word=word: drain_node(node, word) for node, word in words.items()}
    _each("drained", acts, tell)
    if rest:
        beyond = "the brake of the cluster profile is reached, a person decides about them"
        tell(f"{_some([one.node for one in rest])} failed and stay in Slurm: {beyond}")


def _each(done: str, acts: Mapping[str, Callable[[], str]], tell: Tell) -> set[str]:
    """The nodes with which it worked; those that Slurm refuses are reported in one line a reason.

    Raises:
        Unavailable, ProfileError: nobody answers, so the others are not tried.
    """
    good: set[str] = set()
    refused: dict[str, list[str]] = {}
    try:
        for node, act in acts.items():
            try:
                tell(act())
                good.add(node)
            except (Refused, NotFound) as error:
                why = str(error).replace(f"{node}: ", "")
                refused.setdefault(why, []).append(node)
    finally:
        for why, nodes in refused.items():
            tell(f"{_some(nodes)} could not be {done}: {why}")
    return good


def _tell_of_drained(nodes: Sequence[str], tell: Tell) -> None:
    if nodes:
        tell(f"{_some(nodes)} passed, but drained by our prolog before: scontrol update NodeName=… State=RESUME")


def _some(nodes: Sequence[str]) -> str:
    more = f" and {len(nodes) - NAMED} more" if len(nodes) > NAMED else ""
    return ", ".join(nodes[:NAMED]) + more
