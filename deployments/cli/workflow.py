"""`primus workflow`: any Argo Workflow, submitted, watched and shown as a tree; those of a cluster listed, read, ended.

The lines of the tree (phases, times, messages, outputs) are computed from the workflow's status alone.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import textwrap
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from deployments.cli.app import AsJson, ClusterName, workflow_app
from deployments.cli.approvals import note_act
from deployments.exit_codes import FAILED, GOOD, UNKNOWN, goes_on, out, out_json, say
from profiles.errors import NotFound, ProfileError
from profiles.loading.load import load_cluster
from tasks.cluster import Cluster, Manifest
from tasks.clusters import open_cluster
from tasks.settings import Settings, localised
from tasks.workflow_runs import (
    ENDED,
    check_workflow,
    follow_workflow,
    in_the_only_namespace,
    log_of,
    phase_of,
    pods_of,
    read_workflow,
    submit_workflow,
    waits_of,
    with_name,
    with_parameters,
)
from workflows.model.nodes import people_of
from workflows.model.records import one_line
from workflows.model.workflow import unpacked
from workflows.programs.runtime.text import uncoloured

if TYPE_CHECKING:
    from rich.text import Text

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

TAIL_LINES = 20
"""Of the output of a failed step; `primus workflow logs` shows all."""
RESULT_LIMIT_BYTES = 256 * 1024
"""Of a longer result, Argo and the embedded cluster keep this much of its end."""
REDRAWS_PER_SECOND = 4


@workflow_app.command("run")
def workflow_run(
    file: Annotated[str, typer.Argument(help="Manifest of an Argo Workflow, YAML or JSON; - for standard input.")],
    cluster: ClusterName = "",
    parameters: Annotated[
        list[str] | None, typer.Option("-p", "--parameter", help="Workflow parameter as NAME=VALUE; may be repeated.")
    ] = None,
    name: Annotated[str, typer.Option("--name", help="Name of the workflow instead of the file's.")] = "",
    as_json: AsJson = False,
) -> int:
    """Run any Argo Workflow manifest: checked first, submitted, watched to its end, shown as a tree.

    What the embedded cluster does not run is refused by its path before anything starts (exit code 2). Ctrl-C stops
    watching, never the workflow. Exit code 0: Succeeded; 1: Failed or Error; 3: its end could not be found out.

    Example: primus workflow run hello.yaml -p message=hi
    """
    return run_workflow(RunOptions(file, cluster, tuple(parameters or ()), name, as_json))


@dataclass(frozen=True)
class RunOptions:
    """The flags of `primus workflow run`."""

    file: str
    """Path of the manifest; `-`: standard input."""
    cluster: str
    parameters: tuple[str, ...]
    name: str
    as_json: bool


class View(Protocol):
    """Shows the workflow while it runs."""

    def show(self, found: Manifest) -> None:
        """The workflow as it is now."""
        ...


def run_workflow(options: RunOptions) -> int:
    """Submit, wait, show: 0 Succeeded, 1 Failed or Error, 3 where its end cannot be found out.

    Raises:
        ProfileError: the file, a parameter or the cluster's name is wrong; nothing was started.
        Refused: the cluster does not accept the workflow; nothing was started.
        Conflict: another workflow has its name.
        Unavailable: the cluster does not answer.
    """
    source = "standard input" if options.file == "-" else one_line(options.file)
    manifest = with_parameters(read_workflow(_text_of(options.file), source), options.parameters)
    manifest = with_name(manifest, options.name)
    name = str(manifest["metadata"]["name"])
    settings = Settings.from_environment(os.environ)
    profile = localised(load_cluster(options.cluster or settings.cluster), settings.home)
    cluster = open_cluster(profile, settings.home)
    if profile.engine == "embedded":
        manifest, asked = in_the_only_namespace(manifest, profile.namespace)
        if asked:
            say(f"the file asks for namespace {asked}; {profile.name} has only {profile.namespace}, so it runs there")
    check_workflow(cluster, manifest, profile.namespace)
    try:
        goes_on(f"stopped watching; the workflow {name} goes on. Watch it again: {run_again(options, name)}")
        submit_workflow(cluster, manifest)
        note_act(people_of(profile.name), f"workflow run {name}", f"submitted {source}")
        say(f"workflow {name} on {profile.name}")
        found = _watched(cluster, name)
    except NotFound as error:
        say(f"primus: {error}: how it would have ended is not known")
        return UNKNOWN
    if options.as_json:
        out_json(found)
    else:
        out("\n".join([*tree_lines(found["status"], name, time.time()), *failed_output(cluster, found)]))
    return GOOD if phase_of(found) == "Succeeded" else FAILED


def run_again(options: RunOptions, name: str) -> str:
    """The command that watches this workflow again."""
    words = ["primus", "workflow", "run", options.file, "--name", name]
    words += ["--cluster", options.cluster] if options.cluster else []
    return shlex.join([*words, *(word for item in options.parameters for word in ("-p", item))])


def _text_of(file: str) -> str:
    try:
        raw = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return raw.decode("utf-8-sig")
    except OSError as error:
        raise ProfileError("FILE", f"cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ProfileError("FILE", f"{file} is not UTF-8 text") from error


def _watched(cluster: Cluster, name: str) -> Manifest:
    """The workflow once it has ended."""
    found: Manifest = {}
    with _view(name) as view:
        for one in follow_workflow(cluster, name):
            found = unpacked(one)
            view.show(found)
    return found


@contextmanager
def _view(name: str) -> Generator[View]:
    if not sys.stderr.isatty():
        yield _NoTree()
        return
    from rich.console import Console
    from rich.live import Live

    view = _LiveTree(name)
    console = Console(stderr=True)
    with Live(console=console, refresh_per_second=REDRAWS_PER_SECOND, transient=True, get_renderable=view.text):
        yield view


class _NoTree:
    """Tells a line of each step that cannot begin: standard error is no terminal, and nobody would see why it waits."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def show(self, found: Manifest) -> None:
        """Tell what is new."""
        for line in waits_of(found):
            if line not in self._told:
                self._told.add(line)
                say(line)


class _LiveTree:
    """The tree on a terminal, drawn anew a few times a second, so that the times of what runs move."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._status: dict[str, Any] = {}

    def show(self, found: Manifest) -> None:
        """Remember it for the next drawing."""
        self._status = found.get("status") or {}

    def text(self) -> Text:
        """What fits on the screen: the first line and the newest ones."""
        from rich.text import Text

        lines = [uncoloured(line) for line in tree_lines(self._status, self._name, time.time())]
        size = shutil.get_terminal_size()
        room = max(3, size.lines - 2)
        visible = lines if len(lines) <= room else [lines[0], f"… {len(lines) - room + 1} lines", *lines[2 - room :]]
        return Text("\n".join(visible))


def folded(line: str, columns: int) -> list[str]:
    """A line as several where the screen is narrower: why a step waits or failed is never cut off."""
    return textwrap.wrap(line, columns, subsequent_indent="      ", break_on_hyphens=False) or [""]


def failed_output(cluster: Cluster, found: Manifest) -> Iterator[str]:
    """The last lines that each step printed which failed."""
    for pod in pods_of(cluster, found) if phase_of(found) in ("Failed", "Error") else ():
        if pod.phase in ("Failed", "Error"):
            lines = log_of(cluster, pod.name, TAIL_LINES).splitlines()
            yield f"── {pod.node} printed {'last:' if lines else 'nothing'}"
            yield from (f"   {line}" for line in lines)


@dataclass
class Branch:
    """A node and what hangs below it."""

    node: Json
    children: list[Branch] = field(default_factory=list["Branch"])


def tree_lines(status: Mapping[str, Any], name: str, now: float) -> list[str]:
    """The workflow and its nodes, a line each."""
    phase = str(status.get("phase") or "Pending")
    root = branches(status.get("nodes") or {}, name)
    said = _node_line(status) or (_node_line(root.node) if root is not None else "")  # a lone pod is the root itself
    lines = [f"{MARKS.get(phase, '?')} {name}  {phase}{_seconds(status, now)}{said}"]
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
    return f"{MARKS.get(phase, '?')} {name}{called}{_seconds(node, now)}{waits}{_node_line(node)}"


def _node_line(node: Mapping[str, Any]) -> str:
    message = " ".join(str(node.get("message") or "").split())
    return f"  {message}" if message else ""


def output_lines(node: Mapping[str, Any], prefix: str = "") -> list[str]:
    """A node's result, parameters and artifacts."""
    outputs: Json = node.get("outputs") or {}
    lines: list[str] = []
    if outputs.get("result"):
        cut = " (only its last 256 KiB)" if len(str(outputs["result"]).encode()) >= RESULT_LIMIT_BYTES else ""
        lines.append(f"{prefix}result: {_short(outputs['result'])}{cut}")
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
        above = [
            (len(fan), id_) for fan, id_ in fans if id_ != key and name.startswith(f"{fan}(") and name.endswith(")")
        ]
        if above:
            yield key, max(above)[1]
        elif node.get("boundaryID"):
            yield key, str(node["boundaryID"])


Name = Annotated[str, typer.Argument(help="Name of the workflow.")]


@dataclass(frozen=True)
class _Place:
    """A cluster, and its name for people."""

    cluster: Cluster
    name: str
    people: str

    def workflow(self, name: str) -> Manifest:
        """The workflow of that name.

        Raises:
            NotFound: there is none.
        """
        found = self.cluster.get("Workflow", name)
        if found is None:
            raise NotFound(f"there is no workflow {name} on {self.name}; primus workflow list shows which are")
        return unpacked(found)


def _place(cluster: str) -> _Place:
    settings = Settings.from_environment(os.environ)
    profile = localised(load_cluster(cluster or settings.cluster), settings.home)
    return _Place(open_cluster(profile, settings.home), profile.name, people_of(profile.name))


@workflow_app.command("list")
def workflow_list(cluster: ClusterName = "", as_json: AsJson = False) -> int:
    """The workflows of a cluster with phase and message, the newest last.

    Example: primus workflow list --cluster training
    """
    place = _place(cluster)
    found = sorted(place.cluster.list("Workflow"), key=lambda one: str(one["metadata"].get("creationTimestamp")))
    if as_json:
        out_json(found)
        return GOOD
    for one in found:
        status: dict[str, Any] = one.get("status") or {}
        words = (one["metadata"]["name"], phase_of(one) or "Pending", str(status.get("startedAt") or "")[:19])
        out("  ".join([*(word for word in words if word), " ".join(str(status.get("message") or "").split())]).rstrip())
    if not found:
        say(f"no workflow on {place.name}")
    return GOOD


@workflow_app.command("show")
def workflow_show(name: Name, cluster: ClusterName = "", as_json: AsJson = False) -> int:
    """A workflow as a tree of its steps, with why it waits and the last lines of what failed.

    Example: primus workflow show hello-x2v4b
    """
    place = _place(cluster)
    found = place.workflow(name)
    if as_json:
        out_json(found)
        return GOOD
    out("\n".join([*tree_lines(found.get("status") or {}, name, time.time()), *failed_output(place.cluster, found)]))
    return GOOD


@workflow_app.command("logs")
def workflow_logs(
    name: Name,
    step: Annotated[str, typer.Option("--step", help="Only steps of this name; else all that have a pod.")] = "",
    cluster: ClusterName = "",
) -> int:
    """What the steps of a workflow printed, as long as their pods are there.

    Example: primus workflow logs hello-x2v4b --step build
    """
    place = _place(cluster)
    pods = [pod for pod in pods_of(place.cluster, place.workflow(name)) if not step or step in (pod.step, pod.node)]
    if not pods:
        raise NotFound(
            f"no pod of {f'step {step} of ' if step else ''}workflow {name} is there: none began, or it is gone"
        )
    for pod in pods:
        if len(pods) > 1:
            out(f"── {pod.node} ({pod.phase})")
        out(log_of(place.cluster, pod.name) or "(nothing was printed)")
    return GOOD


@workflow_app.command("stop")
def workflow_stop(
    name: Name,
    now: Annotated[bool, typer.Option("--now", help="Terminate: exit handlers do not run either.")] = False,
    cluster: ClusterName = "",
) -> int:
    """End a workflow: its steps are ended and no new ones begin; exit handlers still run.

    Example: primus workflow stop hello-x2v4b
    """
    place = _place(cluster)
    found = place.workflow(name)
    if phase_of(found) in ENDED:
        say(f"workflow {name} has ended already: {phase_of(found)}")
        return GOOD
    place.cluster.patch("Workflow", name, {"spec": {"shutdown": "Terminate" if now else "Stop"}})
    note_act(place.people, f"workflow stop {name}", "terminated" if now else "stopped")
    say(f"workflow {name} is being stopped; primus workflow show {name} tells when it has ended")
    return GOOD


@workflow_app.command("delete")
def workflow_delete(name: Name, cluster: ClusterName = "") -> int:
    """Delete a workflow with its pods, logs and artifacts; one that runs is ended.

    Example: primus workflow delete hello-x2v4b
    """
    place = _place(cluster)
    found = place.workflow(name)
    place.cluster.delete("Workflow", name)
    note_act(place.people, f"workflow delete {name}", f"deleted ({phase_of(found) or 'not started'})")
    say(f"workflow {name} is deleted")
    return GOOD
