"""The conformance corpus: small workflows, each with what Argo's documents and source say must come of it.

Each file of `tests/conformance/` holds two documents: what is expected, and the Workflow. Names of nodes stand without
the workflow's own (`[0].a`, `.onExit`, `""` for the root). `run_all` needs nothing but the seam, so the same files run
on the embedded cluster and on a real controller.
"""

from __future__ import annotations

import itertools
import re
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from profiles.errors import Refused
from tasks.cluster import Cluster
from tasks.workflow_runs import ENDED, check_workflow, phase_of, read_workflow, submit_workflow, with_name
from tests.support.cases.yaml_files import read_all_yaml
from tests.support.running.waiting import patience
from workflows.model.workflow import unpacked

FOLDER = Path(__file__).resolve().parents[2] / "conformance"
DEADLINE_SECONDS = patience(240.0)
"""For all together; a real controller needs some seconds a step."""
KNOWN = {"says", "source", "needs", "phase", "message", "nodes", "absent", "order", "alone", "gap_seconds", "seconds",
         "outputs", "count", "refused"}  # fmt: skip
Json = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One file."""

    name: str
    expected: Json
    manifest: Json
    """With a name of its own."""

    @property
    def refused(self) -> bool:
        """Whether it is only about what the embedded cluster refuses before anything starts."""
        return "refused" in self.expected


def load_cases() -> list[Case]:
    """All files, by name."""
    cases = [_read(path) for path in sorted(FOLDER.glob("*.yaml"))]
    assert cases, f"no files in {FOLDER}"
    return cases


def _read(path: Path) -> Case:
    text = path.read_text(encoding="utf-8")
    expected = next(read_all_yaml(text))
    assert set(expected) <= KNOWN, f"{path.name}: unknown expectation {set(expected) - KNOWN}"
    assert expected["says"], path.name
    assert expected["source"], path.name
    assert ("phase" in expected) != ("refused" in expected), path.name
    return Case(path.stem, expected, with_name(read_workflow(text, path.name), ""))


def run_all(
    cluster: Cluster, cases: Iterable[Case], namespace: str, *, at_once: int = 1000, seconds: float = DEADLINE_SECONDS
) -> dict[str, Json]:
    """Run cases side by side, `at_once` of them; the ended objects (or the refusals) by the names of the cases.

    Whatever has not ended within `seconds` is given as it stands then; what was not even begun is missing.
    """
    found: dict[str, Json] = {}
    waiting: dict[str, str] = {}
    left, deadline = deque(cases), time.monotonic() + seconds
    while (left or waiting) and time.monotonic() < deadline:
        while left and len(waiting) < at_once:
            _begin(cluster, left.popleft(), namespace, found, waiting)
        for event in cluster.watch("Workflow", timeout_seconds=5.0):
            name = event.object.get("metadata", {}).get("name")
            if name in waiting and phase_of(event.object) in ENDED:
                found[waiting.pop(name)] = unpacked(event.object)
            if not waiting or (left and len(waiting) < at_once):
                break
    return found | {case: unpacked(cluster.get("Workflow", name) or {}) for name, case in waiting.items()}


def _begin(cluster: Cluster, case: Case, namespace: str, found: dict[str, Json], waiting: dict[str, str]) -> None:
    """Submit a case, or write down its refusal."""
    try:
        check_workflow(cluster, case.manifest, namespace)
    except Refused as error:
        found[case.name] = {"refused": error}
        return
    if not case.refused:
        waiting[submit_workflow(cluster, case.manifest)["metadata"]["name"]] = case.name


def check(case: Case, found: Json) -> None:
    """Hold one ended workflow against its expectation."""
    expected = case.expected
    if case.refused or "refused" in found:
        refusal = found.get("refused")
        assert isinstance(refusal, Refused), f"not refused, it should be at {expected.get('refused')}"
        assert refusal.path == expected.get("refused"), f"refused: {refusal}"
        return
    status: Json = found.get("status", {})
    nodes = relative_nodes(found)
    told = "\n".join(f"{name or 'root'}: {one['phase']} {one.get('message', '')}" for name, one in nodes.items())
    assert status.get("phase") == expected["phase"], f"{status.get('message', '')}\n{told}"
    if "message" in expected:
        _check_text(expected["message"], status.get("message", ""), "the workflow's message")
    for name, wanted in expected.get("nodes", {}).items():
        assert name in nodes, f"there is no node '{name}'\n{told}"
        _check_node(name, nodes[name], wanted, found["metadata"]["name"])
    assert not set(expected.get("absent", ())) & set(nodes), told
    assert expected.get("count", len(nodes)) == len(nodes), told
    for name, value in expected.get("outputs", {}).items():
        assert parameters_of(status).get(name) == value
    check_times(expected, nodes, status)


def relative_nodes(found: Json) -> dict[str, Json]:
    """Nodes by their names without the workflow's."""
    name = found["metadata"]["name"]
    return {node["name"].removeprefix(name): node for node in found["status"].get("nodes", {}).values()}


def parameters_of(holder: Mapping[str, Any], part: str = "outputs") -> dict[str, str]:
    """Values of parameters by name."""
    found: Json = holder.get(part) or {}
    return {item["name"]: item.get("value") for item in found.get("parameters", ())}


def _check_text(wanted: str, found: str, what: str) -> None:
    if wanted:
        assert re.search(wanted, found), f"{what} is '{found}', not '{wanted}'"
    else:
        assert not found, f"{what} is '{found}'"


def _check_node(name: str, node: Json, wanted: str | Json, workflow: str) -> None:
    fields: Json = {"phase": wanted} if isinstance(wanted, str) else wanted
    outputs: Json = node.get("outputs") or {}
    for field, value in fields.items():
        match field:
            case "phase" | "type":
                assert node[field] == value, f"{name}: {field} is {node[field]}: {node.get('message', '')}"
            case "message":
                _check_text(value, node.get("message", ""), f"{name}: message")
            case "result" | "exitCode":
                assert outputs.get(field) == _named(value, workflow), f"{name}: {field} is {outputs.get(field)!r}"
            case "parameters" | "inputs":
                given = parameters_of(node, "outputs" if field == "parameters" else "inputs")
                for key, text in value.items():
                    assert given.get(key) == _named(text, workflow), f"{name}: {field}.{key} is {given.get(key)!r}"
            case "artifacts":
                assert [item["name"] for item in outputs.get("artifacts", ())] == value, name
            case _:
                raise AssertionError(f"{name}: unknown expectation {field}")


def _named(value: str | None, workflow: str) -> str | None:
    return None if value is None else value.replace("{name}", workflow)


def _moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def check_times(expected: Json, nodes: Mapping[str, Json], status: Json) -> None:
    """Order and length. A real controller counts whole seconds, so what is equal is in order."""

    def begin(name: str) -> float:
        return _moment(nodes[name]["startedAt"])

    def end(name: str) -> float:
        return _moment(nodes[name]["finishedAt"])

    for first, second in expected.get("order", ()):
        assert end(first) <= begin(second), f"'{second}' began before '{first}' ended"
    alone = sorted(expected.get("alone", ()), key=begin)
    for first, second in itertools.pairwise(alone):
        assert end(first) <= begin(second), f"'{first}' and '{second}' ran at once"
    for pair, seconds in expected.get("gap_seconds", {}).items():
        first, second = pair.split(" ")
        assert begin(second) - end(first) >= seconds - 0.001, f"'{second}' began too early"
    if "seconds" in expected:
        least, most = expected["seconds"]
        took = _moment(status["finishedAt"]) - _moment(status["startedAt"])
        assert least <= took <= most, f"it took {took} s"
