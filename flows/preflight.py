"""The preflight flow: which nodes are tested, how deeply, and what was found; no run goes on an unproven node."""

from __future__ import annotations

import logging
import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from prefect import flow

from flows.testing.due import prove_due
from flows.testing.nodes import Outcome, Tell
from flows.testing.proofs import suite_of
from flows.testing.prove import Manner, has_checks, prove
from profiles.checks.catalogue import DEPTHS, Depth, Launcher
from profiles.checks.suite import SuiteProfile
from profiles.cluster import ClusterProfile
from profiles.errors import ProfileError
from profiles.loading.load import load_cluster, load_run, resolve
from profiles.run import RunProfile
from profiles.vocabulary import VerdictWord
from tasks.cluster import using
from tasks.clusters import open_cluster
from tasks.context import session, world
from tasks.node_tests.launchers import launcher_for, names_of
from tasks.nodes.holds import users
from tasks.observe.nodes import stream_nodes
from tasks.prefect.automations import asked_by
from tasks.settings import Settings, localised, make_own_storage
from workflows.attempt.trial import tried
from workflows.model.nodes import people_of
from workflows.model.records import Actor, one_line


def depths_of(
    suite: SuiteProfile, profile: ClusterProfile, wanted: str, launcher: Launcher = "kubernetes"
) -> tuple[Depth, ...]:
    """The depths of which nodes of this cluster make checks, the shallowest first; or the one that is asked for.

    Raises:
        ProfileError: no such depth, or the suite has no check of it for these nodes.
    """
    if wanted and wanted not in DEPTHS:
        raise ProfileError("depth", f"must be one of {', '.join(DEPTHS)}, got {wanted!r}")
    made: tuple[Depth, ...] = tuple(depth for depth in DEPTHS if has_checks(profile, suite, depth, launcher))
    found: list[Depth] = [depth for depth in made if not wanted or str(depth) == wanted]
    if not found:
        what = f"of depth {wanted} " if wanted else ""
        raise ProfileError("suite", f"{suite.name} has no check {what}for this cluster's nodes")
    return tuple(found)


def pools_of(
    profile: ClusterProfile, wanted: Sequence[str], *, idle_only: bool = False, launcher: Launcher = "kubernetes"
) -> dict[str, str]:
    """The nodes that are to be tested, with their pool; `idle_only` leaves out those whose GPUs are in use.

    Raises:
        ProfileError: one of them is no node of the cluster.
    """
    known = _pools_by_node(profile, launcher)
    missing = [name for name in wanted if name not in known]
    if missing:
        raise ProfileError("nodes", f"{', '.join(missing)}: no such node; there are {', '.join(list(known)[:8])}")
    busy = users(profile) if idle_only and launcher == "kubernetes" else {}
    return {name: known[name] for name in wanted or known if name not in busy}


def _pools_by_node(profile: ClusterProfile, launcher: Launcher) -> dict[str, str]:
    """Every node that this launcher reaches, with its pool."""
    if launcher == "kubernetes":
        return {node.name: node.pool for node in stream_nodes(profile)}
    return {name: _pool_by_name(profile, name) for name in names_of(profile, launcher)}


def _pool_by_name(profile: ClusterProfile, node: str) -> str:
    """The pool whose prefix the node's name has, the longest one; else the first pool: there are no labels to ask."""
    fitting = [pool for pool in profile.pools if pool.node_prefix and node.startswith(pool.node_prefix)]
    return max(fitting, key=lambda pool: len(pool.node_prefix), default=profile.pools[0]).name


def trial_of(run: str, profile: ClusterProfile, launcher: Launcher, named: Mapping[str, str]) -> RunProfile | None:
    """The run whose program is tried on nodes of this cluster; None where none is named.

    `named`: nodes that were named for it, with their pool.

    Raises:
        ProfileError: there is no such run profile, it does not fit the cluster, or cannot be tried on those nodes.
    """
    if not run:
        return None
    if launcher != "kubernetes":
        raise ProfileError("trial", f"pods of a gang are needed for it, which launcher {launcher} does not start")
    found = load_run(run)
    resolved = tried(resolve(found, profile), "")
    others = [node for node, pool in named.items() if pool != resolved.pool.name]
    if others:
        raise ProfileError("nodes", f"{', '.join(others)}: not of pool {resolved.pool.name}, which run {run} takes")
    return found


def in_words(tests: Sequence[Outcome]) -> str:
    """Tests in one line."""
    parts: list[str] = []
    for test in tests:
        words = test.words
        bad = [f"{node}: {word}" for node, word in words.items() if word is not VerdictWord.PASS]
        names = ", ".join(bad[:8]) + (" …" if len(bad) > 8 else "")
        passed = len(words) - len(bad)
        busy = f"; {len(test.busy)} in use" if test.busy else ""
        parts.append(f"{test.depth}: {passed} of {len(words)} pass" + (f" ({names})" if names else "") + busy)
    return "; ".join(parts) or "no node was to be tested"


@contextmanager
def reached(profile: ClusterProfile, settings: Settings, launcher: Launcher) -> Generator[None]:
    """Make the cluster current inside the block, where the launcher reaches nodes through it.

    Raises:
        Unavailable, Refused: it cannot be opened.
    """
    if launcher == "kubernetes":
        make_own_storage(profile, settings.home)
        with using(open_cluster(profile, settings.home)):
            yield
    else:
        yield


@dataclass(frozen=True)
class PreflightRequest:
    """Which nodes are to be tested and how; the fields of the flow's form, what is empty is the cluster profile's."""

    suite: str = ""
    depth: str = ""
    nodes: Sequence[str] = ()
    idle_only: bool = False
    launcher: str = ""
    due: str = ""
    trial: str = ""
    by: Actor | None = None
    """The person who asks; None: a timetable."""


def prove_requested(profile: ClusterProfile, settings: Settings, wanted: PreflightRequest, tell: Tell) -> list[Outcome]:
    """Test the nodes that are asked for, or those that are due; settings and ledger come from `tasks.context`.

    Raises:
        ProfileError: no such suite, depth, node or run; the suite does not fit the hardware.
        Conflict, Unavailable, Refused: as `prove` says.
    """
    suite, by = suite_of(profile, wanted.suite), launcher_for(profile, wanted.launcher)
    with reached(profile, settings, by):
        if wanted.due:
            note_request(profile, wanted)
            return prove_due(profile, tell, nightly=wanted.due == "nightly")
        pools = pools_of(profile, wanted.nodes, idle_only=wanted.idle_only, launcher=by)
        run = trial_of(wanted.trial, profile, by, pools if wanted.nodes else {})
        # A trial stands alone where no other test is named; where no node is idle no depth is asked for.
        by_depth = (wanted.suite or wanted.depth or run is None) and (pools or not wanted.idle_only)
        depths = depths_of(suite, profile, wanted.depth, by) if by_depth else ()
        note_request(profile, wanted)
        return prove(profile, suite, depths, pools, tell, Manner(by, trial=run))


def note_request(profile: ClusterProfile, wanted: PreflightRequest) -> None:
    """Write down who wants nodes tested, where that is a person."""
    if wanted.by is not None:
        what = f"{wanted.due or wanted.trial or wanted.suite or 'all'} on {', '.join(wanted.nodes) or 'every node'}"
        world().ledger.act(people_of(profile.name), "preflight", one_line(what), wanted.by)


@flow(name="preflight", flow_run_name="preflight {cluster} {suite}")
async def preflight(  # noqa: PLR0913, PLR0917 - a form's fields
    suite: str = "",
    cluster: str = "",
    depth: Literal["", "smoke", "device", "fabric", "storage", "training"] = "",
    nodes: list[str] | None = None,
    idle_only: bool = False,
    launcher: Literal["", "kubernetes", "ansible", "slurm"] = "",
    due: Literal["", "occasions", "nightly"] = "",
    trial: str = "",
) -> str:
    """Test nodes: what was measured, against which limit, with the evidence. Verdicts stand in the ledger.

    Args:
        suite: Name or path of a suite; empty: the cluster's, else any-machine on an embedded cluster, smoke elsewhere.
        cluster: Name of the cluster profile; empty: the one of the environment.
        depth: Only this depth; empty: all that the suite has for these nodes.
        nodes: Names of nodes; empty: all.
        idle_only: Leave out nodes whose GPUs somebody uses.
        launcher: Who starts the tests on the nodes; empty: the cluster itself.
        due: Only what the cluster profile wants now: of nodes to which something happened, or nightly of idle ones too.
            Suite, depth and nodes are then the profile's.
        trial: Run profile by name or path, tried on the nodes for a few steps; alone where no suite or depth is named.

    Returns:
        What was found, in one line.

    Raises:
        ProfileError: no such cluster, suite, depth, node or run; the suite does not fit the hardware.
    """
    settings = Settings.from_environment(os.environ)
    profile = localised(load_cluster(cluster or settings.cluster), settings.home)
    wanted = PreflightRequest(suite, depth, tuple(nodes or ()), idle_only, launcher, due, trial, asked_by())
    with session(settings):
        return in_words(prove_requested(profile, settings, wanted, logging.getLogger("primus").info))
