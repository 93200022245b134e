"""The nodes of an attempt, proven as the cluster profile wants it: only nodes with stale proofs are tested.

Where the profile wants nothing before a run, failures of tests still keep nodes away, and the attempt's own gate tests
the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from flows.decisions.node_tests.grading.admission import judged, to_test, waits_for_proofs
from flows.decisions.node_tests.grading.model import Depth as Level
from flows.decisions.node_tests.grading.standing import NodeStanding
from flows.decisions.recovery.nodes import NodeChoice, NodeNeed, choose_nodes
from flows.decisions.text import first_names
from flows.testing.proofs import standings_now, suite_of
from profiles.errors import Conflict, Refused
from profiles.resolve import Resolved
from profiles.vocabulary import RunState
from tasks.context import patient, touch, world
from tasks.nodes.holds import give_nodes_back, held_nodes
from tasks.runs.actions import node_candidates
from tasks.runs.state import read_story, set_state, wait_until
from workflows import labels

AGAIN_SECONDS = 30.0
"""Nodes that nobody could test are tested again after so long, while the run waits for them."""
NAMED = 8


class _StopError(Exception):
    """A person stopped the run while nodes were tested for it."""


def admitted(resolved: Resolved, run: str, number: int, need: NodeNeed) -> NodeChoice | None:
    """Nodes for an attempt, tested where the profile wants it; None: nothing began, and the ledger is read again."""
    profile = resolved.cluster
    allowed, tried = profile.admission.unknown_allowed, dict[str, str]()
    while True:
        candidates = node_candidates(resolved, run, number)
        standings = _standings(resolved, tuple(node.name for node in candidates))
        choice = choose_nodes(judged(candidates, standings, allowed, tried), need)
        if why := waits_for_proofs(choice):
            set_state(run, _waiting(number), why)
            wait_until(run, world().now() + AGAIN_SECONDS)
            return None
        nodes = to_test(choice, standings, allowed, tried)
        if nodes and Level.FABRIC in profile.admission.depths.before_run:
            nodes = choice.nodes  # a node is proven beside those with which it will train
        if not nodes:
            if profile.admission.depths.before_run:
                _free(run)
            return choice
        named = first_names(nodes, NAMED)
        set_state(run, _waiting(number), f"tests {named} before they train")
        try:
            tried |= dict.fromkeys(nodes, prove_nodes(resolved, run, nodes, named))
        except _StopError:
            return None


@touch("tests {named} before they train")
def prove_nodes(resolved: Resolved, run: str, nodes: tuple[str, ...], named: str) -> str:
    """Test nodes as the profile wants it before a run; why there is no verdict, "" where there is one.

    Raises:
        _StopError: a person stopped the run meanwhile.
    """
    # Judging stands on numpy: a quarter of a second that only runs which want proofs have to wait for.
    from flows.testing.prove import Manner, prove  # noqa: PLC0415

    profile = resolved.cluster
    pools = dict.fromkeys(nodes, resolved.pool.name)
    try:
        wanted, owner = profile.admission.depths.before_run, labels.hold_owner(run)
        prove(profile, suite_of(profile), wanted, pools, _heeding(run), Manner(owner=owner, strict=True))
    except Conflict as error:
        return str(error)
    except Refused as error:
        return f"the cluster does not take the test: {error}"
    return ""


@patient
def _free(run: str) -> None:
    """Give back nodes that a driver held for this run and died before it could release them."""
    owner = labels.hold_owner(run)
    give_nodes_back([name for name, held_by in held_nodes().items() if held_by == owner], owner)


def _heeding(run: str) -> Callable[[str], None]:
    """A listener for the progress of the tests: it reports it, and ends the wait where a person stopped the run."""

    def tell(message: str) -> None:
        if any(request.kind == "stop" and request.done_at is None for request in read_story(run).requests):
            raise _StopError(message)

    return tell


def _standings(resolved: Resolved, nodes: tuple[str, ...]) -> Mapping[str, NodeStanding]:
    wanted = tuple(Level(depth) for depth in resolved.cluster.admission.depths.before_run)
    return patient(standings_now)(resolved.cluster, nodes, wanted)


def _waiting(number: int) -> RunState:
    return RunState.PENDING if number == 1 else RunState.RECOVERING
