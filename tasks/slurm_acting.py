"""Slurm told what tests found: verdicts for its prolog, drains of what failed, and their end. Nothing here raises.

What could not be done is told; the ledger has it, and the next test does it again. Unknown neither drains nor resumes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from profiles.admission import Slurm
from profiles.errors import NotFound, PrimusError, ProfileError, Refused
from profiles.vocabulary import VerdictWord
from tasks import slurm_commands, slurm_nodes
from tasks.slurm_answers import NODE_FORMAT, NodeLine, nodes_in
from tasks.verdict_marks import Told

NAMED = 8
"""Nodes that a line names."""

Tell = Callable[[str], None]


def act_by_slurm(settings: Slurm, told: Sequence[Told], tell: Tell, *, most: int) -> None:
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


def _publish(folder: Path, told: Sequence[Told], tell: Tell) -> None:
    for count, one in enumerate(told):
        try:
            slurm_nodes.publish_verdict(folder, one.node, one.word, one.check, one.at)
        except ProfileError as error:
            tell(f"a verdict was not published for the prolog: {error}")
        except PrimusError as error:
            tell(f"verdicts of {len(told) - count} nodes were not published for the prolog: {error}")
            return


def _nodes() -> dict[str, NodeLine]:
    """All nodes of this Slurm by name: whoever counts our drains must see those outside of a partition, too.

    Raises:
        Unavailable, ProfileError, Refused: as `slurm_commands.ask`.
    """
    return nodes_in(slurm_commands.ask(["sinfo", "--noheader", "--Node", "--all", f"--format={NODE_FORMAT}"]))


def _is_out(line: NodeLine) -> bool:
    """Whether it is drained, and by us."""
    return line.state.startswith(slurm_nodes.DRAINED) and slurm_nodes.is_ours(line)


def _ours_that_pass(verdicts: Mapping[str, Told], known: Mapping[str, NodeLine]) -> list[str]:
    passed = [one.node for one in verdicts.values() if one.word is VerdictWord.PASS]
    return [node for node in passed if node in known and _is_out(known[node])]


def _failed(verdicts: Mapping[str, Told], known: Mapping[str, NodeLine], tell: Tell) -> list[Told]:
    """Those that failed and still get jobs, in their order."""
    failed = [one for one in verdicts.values() if one.word is VerdictWord.FAIL]
    strange = [one.node for one in failed if one.node not in known]
    if strange:
        tell(f"{_some(strange)} failed and cannot be drained: Slurm has no such node")
    there = [one for one in failed if one.node in known]
    return [one for one in there if not known[one.node].state.startswith(slurm_nodes.DRAINED)]


def _resume(nodes: Sequence[str], tell: Tell) -> set[str]:
    """Those that get jobs again; raises Unavailable, ProfileError."""
    return _each("resumed", {node: lambda node=node: slurm_nodes.resume_node(node) for node in nodes}, tell)


def _drain(failed: Sequence[Told], room: int, tell: Tell) -> None:
    """As many as there is room for; raises Unavailable, ProfileError."""
    allowed, rest = failed[: max(0, room)], failed[max(0, room) :]
    words = {one.node: one.check or one.depth for one in allowed}
    acts = {node: lambda node=node, word=word: slurm_nodes.drain_node(node, word) for node, word in words.items()}
    _each("drained", acts, tell)
    if rest:
        beyond = "the brake of the cluster profile is reached, a person decides about them"
        tell(f"{_some([one.node for one in rest])} failed and stay in Slurm: {beyond}")


def _each(done: str, acts: Mapping[str, Callable[[], str]], tell: Tell) -> set[str]:
    """The nodes with which it worked; those that Slurm refuses are told in one line a reason.

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
