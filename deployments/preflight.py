"""`primus preflight`: nodes tested now, with what was measured, the limit, and the evidence."""

from __future__ import annotations

import os
from typing import Any

from deployments import links
from deployments.edge import FAILED, GOOD, UNKNOWN, out, out_json, say
from deployments.tables import fitted, terminal_columns
from deployments.verdict_rows import rows_of
from flows.node_tests import Outcome
from flows.preflight import depths_of, pools_of, reached, trial_of
from flows.proofs import suite_of
from flows.proving import Manner, prove
from profiles.load import load_cluster
from profiles.vocabulary import VerdictWord
from tasks.launchers import launcher_for
from tasks.opening import localised
from tasks.session import at_hand
from tasks.settings import Settings

Json = dict[str, Any]


def run_preflight(
    cluster: str, suite: str, depth: str, nodes: str, launcher: str, trial: str = "", *, as_json: bool
) -> int:
    """Test nodes and show what was found.

    Returns:
        0 where every node passed, 1 where one failed, 3 where one is unknown or in use and none failed.

    Raises:
        ProfileError: no such cluster or suite; the suite does not fit the hardware; no such node or depth.
        Unavailable: the cluster or the ledger does not answer.
    """
    settings = Settings.from_environment(os.environ)
    settings.make_home()
    profile = localised(load_cluster(cluster or settings.cluster), settings.home)
    chosen, by = suite_of(profile, suite), launcher_for(profile, launcher)
    with at_hand(settings), reached(profile, settings, by):
        pools = pools_of(profile, [name for name in nodes.split(",") if name], launcher=by)
        run = trial_of(trial, profile, by, pools if nodes else {})
        depths = depths_of(chosen, profile, depth, by) if suite or depth or run is None else ()
        tests = prove(profile, chosen, depths, pools, say, Manner(by, trial=run))
    if as_json:
        out_json([part for test in tests for part in documents_of(profile.name, test)])
    else:
        out("\n\n".join(part for test in tests for part in texts_of(test, terminal_columns())))
    words = [word for test in tests for word in test.words.values()]
    words += [VerdictWord.UNKNOWN for test in tests for _ in test.busy]
    return FAILED if VerdictWord.FAIL in words else UNKNOWN if VerdictWord.UNKNOWN in words else GOOD


def documents_of(cluster: str, tested: Outcome) -> list[Json]:
    """What nodes told by themselves, and what was found between them, as JSON."""
    own = [document(cluster, tested)] if tested.grades or tested.busy else []
    between = [{"cluster": cluster, **links.document(tested.links)}] if tested.links is not None else []
    return [*own, *between]


def texts_of(tested: Outcome, columns: int) -> list[str]:
    """The same for people."""
    own = [text(tested, columns)] if tested.grades or tested.busy else []
    return [*own, *([links.text(tested.links, columns)] if tested.links is not None else [])]


def document(cluster: str, tested: Outcome) -> Json:
    """A test as JSON."""
    return {
        "cluster": cluster,
        "suite": tested.suite,
        "depth": tested.depth,
        "seconds": round(tested.seconds, 3),
        "nodes": [
            {"node": node, "verdict": str(grade.verdict), "reasons": list(grade.reasons)}
            for node, grade in tested.grades.items()
        ],
        "left_out": [{"check": check, "why": why} for check, why in tested.left_out.items()],
        "busy": [{"node": node, "why": why} for node, why in tested.busy.items()],
    }


def text(tested: Outcome, columns: int) -> str:
    """A line a node, below it what did not pass, and the figures of all nodes together."""
    words = [grade.verdict for grade in tested.grades.values()]
    counted = ", ".join(f"{words.count(word)} {word}" for word in VerdictWord if word in words)
    head = f"{tested.suite}, {tested.depth}: {counted}; {tested.checks} checks a node, {tested.seconds:.1f} s"
    rows = [row for node, grade in tested.grades.items() for row in rows_of(node, str(grade.verdict), grade.reasons)]
    shown = ("node", "verdict", "check", "measured", "limit", "evidence")
    told = [f"no answer from {node}: {why}" for node, why in tested.why.items()]
    told += [f"not tested: {check}: {why}" for check, why in tested.left_out.items()]
    told += [f"not tested: {node}: {why}" for node, why in tested.busy.items()]
    return "\n".join([head, fitted(rows, shown, columns, giving="evidence", dropped=("limit",)), *told])
