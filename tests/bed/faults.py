"""What happens to real nodes: power cut, freeze, cable pulled; and their return."""

from __future__ import annotations

import signal

from tests.bed import groups, network, nodes
from tests.bed.api import Api
from tests.bed.commands import succeeds, until
from tests.bed.layout import Folder
from tests.bed.options import Node, Options
from tests.bed.processes import Processes


def kill(node: Node, processes: Processes) -> None:
    """No goodbye: kubelet, containerd and every process of every pod get SIGKILL."""
    processes.mark_stopped(nodes.components(node))
    groups.end(node.name)


def revive(folder: Folder, options: Options, node: Node, processes: Processes, api: Api) -> None:
    """Start a killed node again; returns when it is Ready and counts its GPUs."""
    runtime, *others = nodes.components(node)
    processes.start_again(runtime)
    client = ("ctr", "--address", nodes.socket(folder, node), "-n", "k8s.io")
    until(f"{runtime} answers, see {processes.log(runtime)}", lambda: succeeds(*client, "version"))
    for name in others:
        processes.start_again(name)
    nodes.settle(api, options, node)


def freeze(node: Node, processes: Processes, *, pods: bool = False) -> None:
    """The node's programs stand still; with `pods` everything on it does."""
    if pods:
        groups.send(node.name, signal.SIGSTOP)
    for name in nodes.components(node):
        processes.send(name, signal.SIGSTOP)


def thaw(node: Node) -> None:
    """Everything on it goes on."""
    groups.send(node.name, signal.SIGCONT)


def cut(node: Node) -> None:
    """Nobody reaches it and it reaches nobody; its pods run on."""
    network.cut(node)


def mend(node: Node) -> None:
    """The cable is back."""
    network.mend(node)
