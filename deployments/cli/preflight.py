"""`primus preflight` and `primus render preflight`: test nodes now, or print the workflows of a test."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deployments.cli.app import All, AsJson, ClusterName, app, named_nodes, render_app
from deployments.cli.approvals import who
from deployments.exit_codes import FAILED, GOOD, UNKNOWN, goes_on, out, out_json, say
from deployments.screen.tables import fitted, folded, rows_of, terminal_columns
from flows.decisions.node_tests.fabric.groups import finding_text
from flows.decisions.node_tests.fabric.model import FabricFinding, Measurement
from flows.decisions.node_tests.grading.model import NodeGrade
from profiles.admission import launcher_of, own_suite
from profiles.checks.catalogue import DEPTHS, Depth
from profiles.checks.suite import SuiteProfile
from profiles.cluster import ClusterProfile
from profiles.errors import ProfileError
from profiles.loading.load import load_cluster, load_hardware, load_run, load_suite
from profiles.vocabulary import VerdictWord
from tasks.settings import Settings, localised

if TYPE_CHECKING:
    from flows.testing.links import FabricTestResult, LinksOutcome, PairTestResult
    from flows.testing.nodes import Outcome

Json = dict[str, Any]

Suite = Annotated[
    str,
    typer.Option("--suite", help="Suite by name or path; else any-machine on an embedded cluster, smoke elsewhere."),
]
DepthName = Annotated[str, typer.Option("--depth", help="Only this depth: smoke, device, fabric, storage or training.")]
Nodes = Annotated[str, typer.Option("--nodes", metavar="A,B", help="Names of nodes; else all of them.")]
Trial = Annotated[
    str,
    typer.Option(
        "--trial",
        metavar="RUN_PROFILE",
        help="A run that is tried on the nodes for a few steps; nothing else is tested without --suite or --depth.",
    ),
]
Launcher = Annotated[
    str,
    typer.Option(
        "--launcher", help="Who starts the tests: kubernetes (the cluster itself), ansible (by SSH) or slurm."
    ),
]


@app.command("preflight")
def run_preflight(  # noqa: PLR0913 - each is a flag that was promised
    cluster: ClusterName = "",
    suite: Suite = "",
    depth: DepthName = "",
    nodes: Nodes = "",
    launcher: Launcher = "",
    trial: Trial = "",
    *,
    every: All = False,
    as_json: AsJson = False,
) -> int:
    """Test nodes: what was measured, against which limit, with the evidence. Verdicts stand in the ledger.

    A check that crashes, hangs or prints nothing readable is unknown, and unknown is not healthy. What varies and
    failed once is measured again before the node is blamed. Exit code 0: all passed; 1: a node failed; 3: one is
    unknown.

    Example: primus preflight --nodes node-0,node-1
    """
    # 0 where every node passed, 1 where one failed, 3 where one is unknown or in use and none failed.
    settings = Settings.from_environment(os.environ)
    profile = localised(load_cluster(cluster or settings.cluster), settings.home)
    named = named_nodes(nodes)
    _check_words(profile, suite, depth, launcher, trial)
    from flows.preflight import PreflightRequest, prove_requested  # Prefect, which takes seconds
    from tasks.context import at_hand

    settings.make_home()
    wanted = PreflightRequest(suite, depth, named, launcher=launcher, trial=trial, by=who())
    goes_on("stopped waiting; what was begun on nodes ends by itself; the same command takes up what it finds")
    with at_hand(settings):
        tests = prove_requested(profile, settings, wanted, say)
    if as_json:
        out_json([part for test in tests for part in documents_of(profile.name, test)])
    else:
        out("\n\n".join(part for test in tests for part in texts_of(test, terminal_columns(), every=every)))
    words = [word for test in tests for word in test.words.values()]
    words += [VerdictWord.UNKNOWN for test in tests for _ in test.busy]
    return FAILED if VerdictWord.FAIL in words else UNKNOWN if VerdictWord.UNKNOWN in words else GOOD


def _check_words(profile: ClusterProfile, suite: str, depth: str, launcher: str, trial: str) -> None:
    """What is wrong by itself is refused before anything of weight is imported.

    Raises:
        ProfileError: no such suite, depth, launcher or run profile.
    """
    load_suite(suite or profile.admission.suite or own_suite(profile.engine), cluster=profile)
    if depth and depth not in DEPTHS:
        raise ProfileError("depth", f"must be one of {', '.join(DEPTHS)}, got {depth!r}")
    try:
        launcher_of(profile.engine, launcher, profile.bare_metal, profile.slurm)
    except ValueError as error:
        field, _, reason = str(error).partition(": ")
        raise ProfileError(field, reason) from error
    if trial:
        load_run(trial)


@render_app.command("preflight")
def print_preflight_workflow(
    cluster: ClusterName = "", suite: Suite = "", depth: DepthName = "", nodes: Nodes = "", *, as_json: AsJson = False
) -> int:
    """The workflows of a test of nodes: a short pod on each, rack by rack.

    Example: primus render preflight --cluster local
    """
    from workflows.node_tests.pods import places_of

    settings = Settings.from_environment(os.environ)
    profile = localised(load_cluster(cluster or settings.cluster), settings.home)
    chosen = load_suite(suite or profile.admission.suite or own_suite(profile.engine), cluster=profile)
    places = places_of(profile, named_nodes(nodes), 1.0)
    documents = [item for one in _depths(profile, chosen, depth) for item in _documents(profile, chosen, one, places)]
    if as_json:
        out_json(documents)
    else:
        import yaml

        # The C writer where PyYAML was built with it: ten times as fast, and a fleet is 131 documents.
        writer = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
        out(yaml.dump_all(documents, Dumper=writer, sort_keys=False, width=120))
    return GOOD


def _documents(profile: ClusterProfile, suite: SuiteProfile, depth: Depth, places: dict[str, str]) -> list[Json]:
    from workflows.node_tests.preflight import MOST, planned, preflight_workflow

    names = list(places)
    parts = [names[begin : begin + MOST] for begin in range(0, len(names), MOST)]
    return [
        preflight_workflow(planned(profile, suite, depth, {name: places[name] for name in part}, number)).to_dict()
        for number, part in enumerate(parts, 1)
    ]


def _depths(profile: ClusterProfile, suite: SuiteProfile, wanted: str) -> tuple[Depth, ...]:
    from workflows.node_tests.preflight import node_checks

    kinds = [load_hardware(pool.hardware) for pool in profile.pools]
    made: tuple[Depth, ...] = tuple(one for one in DEPTHS if any(node_checks(suite, one, kind) for kind in kinds))
    found: list[Depth] = [depth for depth in made if not wanted or str(depth) == wanted]
    if not found:
        raise ProfileError(
            "depth", f"suite {suite.name} has checks of single nodes at {', '.join(made)}, got {wanted!r}"
        )
    return tuple(found)


def links_document(outcome: LinksOutcome) -> Json:
    """A test between nodes as JSON; bandwidths of groups in GB/s, one a rail; pairs' figures in their checks' units."""
    return {
        "suite": outcome.suite,
        "depth": "fabric",
        "kind": "links",
        "seconds": round(outcome.seconds, 3),
        "seed": outcome.seed,
        "fabrics": [_fabric(one) for one in outcome.fabrics],
        "pairs": [_pairs(one) for one in outcome.pairs],
        "nodes": [
            {"node": node, "verdict": str(grade.verdict), "reasons": list(grade.reasons)}
            for node, grade in outcome.grades.items()
        ],
    }


def links_text(outcome: LinksOutcome, columns: int, *, every: bool = False) -> str:
    """What is bad first, then a line a node; many good nodes are counted unless `every` one is wanted."""
    words = [grade.verdict for grade in outcome.grades.values()]
    counted = ", ".join(f"{words.count(word)} {word}" for word in VerdictWord if word in words)
    lines = [f"{outcome.suite}, between nodes: {counted}; {outcome.seconds:.1f} s"]
    for one in outcome.fabrics:
        groups = len(one.tested.reads)
        lines.append(
            f"{one.hardware}: {one.rounds} rounds, {groups} groups by {one.by or 'nobody'}; {one.tested.limit.why}"
        )
        lines += [f"bad: {finding_text(finding)}" for finding in one.tested.answer.findings] or [
            "nothing bad was found"
        ]
        notes = dict.fromkeys(note for item in one.tested.reads for note in item.notes)
        lines += [f"note: {note}" for note in notes]
        if one.tested.answer.spent:
            lines.append("the rounds were used up before everything was known")
    for two in outcome.pairs:
        summary = (
            f"{len(two.results)} pairs of {len(two.grades)} nodes in {two.rounds} round{'s' if two.rounds > 1 else ''}"
        )
        lines.append(f"{two.hardware}: {summary}: {', '.join(two.checks)}")
        lines += [f"bad: {line}" for line in _missing(two)]
        lines += [f"note: {note}" for note in two.notes]
    return "\n".join([*lines, *_node_lines(outcome.grades, columns, every=every)])


def _node_lines(grades: Mapping[str, NodeGrade], columns: int, *, every: bool) -> list[str]:
    """A table of the nodes' checks; nodes of which everything passed are only counted where there are many."""
    shown, count = folded(list(grades.items()), lambda item: _all_passed(item[1]), every=every)
    rows = [row for node, grade in shown for row in rows_of(node, str(grade.verdict), grade.reasons)]
    names = ("node", "verdict", "check", "measured", "limit", "evidence")
    lines = [fitted(rows, names, columns, giving="evidence", dropped=("limit",))] if rows else []
    return [*lines, *([f"{count:,} nodes passed every check; --all shows each"] if count else [])]


def _all_passed(grade: NodeGrade) -> bool:
    return all(str(word) == VerdictWord.PASS for word in (grade.verdict, *(one["verdict"] for one in grade.reasons)))


def _fabric(one: FabricTestResult) -> Json:
    from flows.testing.links import judged_by

    answer = one.tested.answer
    return {
        "hardware": one.hardware,
        "check": judged_by(one),
        "by": one.by,
        "rounds": one.rounds,
        "groups": len(one.tested.reads),
        "limit": one.tested.limit.floors[0].gigabytes_per_second,
        "limit_from": one.tested.limit.why,
        "spent": answer.spent,
        "findings": [_finding(finding) for finding in answer.findings],
        "proven": list(answer.proven),
        "unknown": [{"node": item.node, "why": item.why} for item in answer.unknown],
        "unexplained": [_measurement(item) for item in answer.unexplained],
    }


def _missing(two: PairTestResult) -> list[str]:
    """Nodes that failed a check of pairs."""
    return [
        f"{node}: {reason['check']}: {reason['evidence']}"
        for node, grade in two.grades.items()
        for reason in grade.reasons
        if reason["verdict"] == "fail" and reason.get("severity") != "warning"
    ]


def _pairs(two: PairTestResult) -> Json:
    """Every meeting with what each of the two measured when it asked the other."""
    return {
        "hardware": two.hardware,
        "checks": list(two.checks),
        "rounds": two.rounds,
        "meetings": [
            {
                "pair": list(one.meeting.pair),
                "said": {check: str(word) for check, word in one.meeting.verdicts.items()},
                "measured": {
                    check: {node: reason["measured"] for node, reason in both.items()}
                    for check, both in one.reasons.items()
                },
            }
            for one in two.results
        ],
    }


def _finding(finding: FabricFinding) -> Json:
    return {
        "kind": str(finding.kind),
        "members": list(finding.members),
        "switch": finding.switch,
        "rails": list(finding.rails),
        "confidence": finding.confidence,
        "why": finding.why,
        "evidence": [_measurement(item) for item in finding.evidence],
    }


def _measurement(measurement: Measurement) -> Json:
    rails = measurement.gigabytes_per_second
    return {"group": list(measurement.group), "gigabytes_per_second": None if rails is None else list(rails)}


def documents_of(cluster: str, tested: Outcome) -> list[Json]:
    """What nodes reported by themselves, and what was found between them, as JSON."""
    own = [preflight_document(cluster, tested)] if tested.grades or tested.busy else []
    between = [{"cluster": cluster, **links_document(tested.links)}] if tested.links is not None else []
    return [*own, *between]


def texts_of(tested: Outcome, columns: int, *, every: bool) -> list[str]:
    """The same for people."""
    own = [preflight_text(tested, columns, every=every)] if tested.grades or tested.busy else []
    return [*own, *([links_text(tested.links, columns, every=every)] if tested.links is not None else [])]


def preflight_document(cluster: str, tested: Outcome) -> Json:
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


def preflight_text(tested: Outcome, columns: int, *, every: bool = False) -> str:
    """A line a node, below it what did not pass; many good nodes are counted unless `every` one is wanted."""
    words = [grade.verdict for grade in tested.grades.values()]
    counted = ", ".join(f"{words.count(word)} {word}" for word in VerdictWord if word in words)
    head = f"{tested.suite}, {tested.depth}: {counted}; {tested.checks} checks a node, {tested.seconds:.1f} s"
    lines_without_answer = [f"no answer from {node}: {why}" for node, why in tested.why.items()]
    lines_without_answer += [f"not tested: {check}: {why}" for check, why in tested.left_out.items()]
    lines_without_answer += [f"not tested: {node}: {why}" for node, why in tested.busy.items()]
    return "\n".join([head, *_node_lines(tested.grades, columns, every=every), *lines_without_answer])
