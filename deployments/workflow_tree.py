"""A workflow's nodes as a tree of lines: phases, times, messages, outputs. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

Json = dict[str, Any]
MARKS = {
    "Succeeded": "✔",
    "Failed": "✖",
    "Error": "⚠",
    "Running": "●",
    "Pending": "◷",
    "Skipped": "○",
    "Omitted": "○",
}
"""What stands before a node, as Argo's own command line shows it."""
VALUE_LIMIT = 100
"""Characters of an output that a line shows; `--json` has all of it."""


@dataclass
class Branch:
    """A node and what hangs below it."""

    node: Json
    children: list[Branch] = field(default_factory=list["Branch"])


def tree_lines(status: Mapping[str, Any], name: str, now: float) -> list[str]:
    """The workflow and its nodes, a line each.

    Args:
        status: of the workflow, its nodes unpacked.
        name: of the workflow.
        now: seconds since 1970; how long running nodes take is counted up to it.
    """
    phase = str(status.get("phase") or "Pending")
    head = f"{MARKS.get(phase, '?')} {name}  {phase}{_seconds(status, now)}{_told(status)}"
    root = branches(status.get("nodes") or {}, name)
    lines = [head]
    if root is not None:
        lines += [f"  {text}" for text in output_lines(root.node)]
        lines += _below(root, now, "")
    return [*lines, *(f"  {text}" for text in output_lines({"outputs": status.get("outputs")}, "workflow output "))]


def _below(branch: Branch, now: float, indent: str) -> list[str]:
    lines: list[str] = []
    for index, child in enumerate(branch.children):
        last = index == len(branch.children) - 1
        deeper = indent + ("  " if last else "│ ")
        lines.append(indent + ("└─" if last else "├─") + _line(child.node, now))
        lines += [f"{deeper}{'│ ' if child.children else '  '}{text}" for text in output_lines(child.node)]
        lines += _below(child, now, deeper)
    return lines


def _line(node: Json, now: float) -> str:
    phase = str(node.get("phase") or "Pending")
    name, template = node.get("displayName") or node.get("name"), node.get("templateName")
    called = f" ({template})" if template and template != name else ""
    waits = "  waits to be resumed" if node.get("type") == "Suspend" and phase == "Running" else ""
    return f"{MARKS.get(phase, '?')} {name}{called}{_seconds(node, now)}{waits}{_told(node)}"


def _told(node: Mapping[str, Any]) -> str:
    message = " ".join(str(node.get("message") or "").split())
    return f"  {message}" if message else ""


def output_lines(node: Mapping[str, Any], prefix: str = "") -> list[str]:
    """A node's result, parameters and artifacts."""
    outputs: Json = node.get("outputs") or {}
    lines: list[str] = []
    if outputs.get("result"):
        lines.append(f"{prefix}result: {_short(outputs['result'])}")
    for item in outputs.get("parameters") or ():
        if "value" in item:
            lines.append(f"{prefix}{item['name']}: {_short(item['value'])}")
    lines += [f"{prefix}{item['name']}: artifact {item.get('path') or ''}".rstrip() for item in _artifacts(outputs)]
    return lines


def _artifacts(outputs: Json) -> list[Json]:
    return [item for item in outputs.get("artifacts") or () if not str(item["name"]).endswith("-logs")]


def _short(value: object) -> str:
    text = str(value).strip()
    first = text.splitlines()[0] if text else ""
    cut = first[:VALUE_LIMIT]
    return cut if cut == text else f"{cut} …"


def _seconds(node: Mapping[str, Any], now: float) -> str:
    if not node.get("startedAt") or node.get("phase") in ("Skipped", "Omitted"):
        return ""
    end = datetime.fromisoformat(node["finishedAt"]).timestamp() if node.get("finishedAt") else now
    return f"  {max(0.0, end - datetime.fromisoformat(node['startedAt']).timestamp()):.1f} s"


def branches(nodes: Mapping[str, Json], name: str) -> Branch | None:
    """The nodes as a tree: what a template called lies below it, attempts and items below their step.

    Groups of steps are not shown: their steps stand one after the other.
    """
    made = {key: Branch(node) for key, node in nodes.items() if node.get("type") != "StepGroup"}
    parents = {key: parent for key, parent in _parents(nodes) if parent in made}
    for key, branch in sorted(made.items(), key=lambda pair: _order(pair[1].node)):
        if key in parents and parents[key] != key:
            made[parents[key]].children.append(branch)
    root = next((branch for branch in made.values() if branch.node.get("name") == name), None)
    if root is not None:
        loose = [b for k, b in made.items() if k not in parents and b is not root]
        root.children += sorted(loose, key=lambda branch: _order(branch.node))
        if root.node.get("type") == "Retry":
            _fold(root)
    for branch in made.values():
        _fold(branch)
    return root


def _fold(branch: Branch) -> None:
    """A step that needed one attempt only is shown without it."""
    if branch.node.get("type") == "Retry" and len(branch.children) == 1:
        only = branch.children[0]
        branch.node = {**branch.node, "message": only.node.get("message") or branch.node.get("message")}
        branch.children = only.children


def _order(node: Json) -> tuple[str, str]:
    return str(node.get("startedAt") or "9"), str(node.get("name"))


def _parents(nodes: Mapping[str, Json]) -> Iterator[tuple[str, str]]:
    """Node id and the id of the node it is shown below."""
    fans = [(str(node["name"]), key) for key, node in nodes.items() if node.get("type") in ("Retry", "TaskGroup")]
    for key, node in nodes.items():
        name = str(node["name"])
        above = [(len(fan), id_) for fan, id_ in fans if id_ != key and _is_item(name, fan)]
        if above:
            yield key, max(above)[1]
        elif node.get("boundaryID"):
            yield key, str(node["boundaryID"])


def _is_item(name: str, fan: str) -> bool:
    """Whether a name is the fan's and `(index…)`."""
    return name.startswith(f"{fan}(") and name.endswith(")")
