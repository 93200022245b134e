"""What a workflow did, whole: the same on two engines where everything that a user sees is the same.

Ids and the workflow's own name are drawn anew for each run, so names of nodes stand for them. The words of failures are
left to the cases: docs/workflow-run.md lists which differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tests.support.cases.conformance_cases import parameters_of, relative_nodes

Json = dict[str, Any]


def tree_of(found: Json) -> Json:
    """Phase and outputs of the workflow, and what each node is, got, gave and led to, by its name."""
    own = found["metadata"]
    status: Json = found["status"]
    names = {node["id"]: name for name, node in relative_nodes(found).items()}

    def plain(value: Any) -> Any:
        return value.replace(own["name"], "{name}").replace(own["uid"], "{uid}") if isinstance(value, str) else value

    def values(holder: Mapping[str, Any], part: str) -> Json:
        """Parameters with a value: Argo keeps one that was not written, without."""
        return {name: plain(value) for name, value in parameters_of(holder, part).items() if value is not None}

    def ids(given: Iterable[str]) -> list[str]:
        return sorted(plain(names.get(one, one)) for one in given)

    nodes = {
        plain(name): {
            "type": node["type"],
            "phase": node["phase"],
            "template": node.get("templateName", ""),
            "shown as": plain(node["displayName"]),
            "inputs": values(node, "inputs"),
            "outputs": values(node, "outputs"),
            "result": plain((node.get("outputs") or {}).get("result")),
            "exit code": (node.get("outputs") or {}).get("exitCode"),
            "artifacts": [item["name"] for item in (node.get("outputs") or {}).get("artifacts", ())],
            "children": ids(node.get("children") or ()),
            "last": ids(node.get("outboundNodes") or ()),
            "inside": names.get(node.get("boundaryID", ""), ""),
        }
        for name, node in relative_nodes(found).items()
    }
    return {"phase": status["phase"], "outputs": values(status, "outputs"), "nodes": nodes}


def differences(one: Json, other: Json) -> list[str]:
    """Where two trees differ, in words; none where they tell the same."""
    told = [f"{key}: {one[key]} / {other[key]}" for key in ("phase", "outputs") if one[key] != other[key]]
    nodes, others = one["nodes"], other["nodes"]
    told += [f"'{name}' is in one only" for name in sorted(nodes.keys() ^ others.keys())]
    return told + [
        f"'{name}' {key}: {nodes[name][key]} / {others[name][key]}"
        for name in sorted(nodes.keys() & others.keys())
        for key in nodes[name]
        if nodes[name][key] != others[name][key]
    ]
