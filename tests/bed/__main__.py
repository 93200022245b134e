"""`python -m tests.bed`: a real control plane with real nodes on this machine.

python -m tests.bed build --all           # compile what is missing; --all: also what single tests ask for
python -m tests.bed verify dns            # compile one family anew: is it what modules/PREBUILT.sha256 says?
python -m tests.bed pack FOLDER           # archives of what was compiled here, and PREBUILT.sha256
python -m tests.bed up --nodes 3 --kwok 2 # build, then start; returns when all is ready
python -m tests.bed status
python -m tests.bed stop kueue            # any component of `status`; start brings it back
python -m tests.bed kill node-1           # no goodbye; start node-1 brings it back
python -m tests.bed freeze node-1         # kubelet and containerd stand still; thaw
python -m tests.bed cut node-1            # its cable is pulled; mend
python -m tests.bed down --check          # amid its work; asks the machine itself, too, whether anything is left
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path

from tests.bed import faults, kwok, network, options, packing, prebuilt, starting, stopping, traces
from tests.bed.api import Api
from tests.bed.building import BuildError
from tests.bed.commands import BedError
from tests.bed.layout import Folder, cache, folder
from tests.bed.options import Options
from tests.bed.processes import Processes


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(
        "python -m tests.bed", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = top.add_subparsers(dest="command", required=True)
    commands.add_parser("build").add_argument("--all", action="store_true", help="also what single tests ask for")
    commands.add_parser("verify").add_argument("family", choices=[archive.name for archive in prebuilt.ARCHIVES])
    commands.add_parser("pack").add_argument("folder", type=Path)
    commands.add_parser("status")
    commands.add_parser("down").add_argument(
        "--check", action="store_true", help="with a pod at work, and looked after"
    )
    up = commands.add_parser("up")
    for name, kind in options.kinds().items():
        flag = f"--{name.removesuffix('_s').replace('_', '-')}"
        up.add_argument(flag, dest=name, type=kind, default=getattr(options.default(), name))
    for name in ("stop", "start", "kill", "freeze", "thaw", "cut", "mend"):
        one = commands.add_parser(name)
        one.add_argument("name", help="a component or a node, as `status` calls it")
        if name == "freeze":
            one.add_argument("--pods", action="store_true", help="all processes of its pods as well")
    return top


def main(words: list[str]) -> int:
    """Do it; the exit code."""
    asked = parser().parse_args(words)
    try:
        return dispatch(asked)
    except (BedError, BuildError, LookupError) as error:
        print(f"bed: {error}", file=sys.stderr)
        return 1


def dispatch(asked: argparse.Namespace) -> int:
    """One command; the exit code."""
    here = folder()
    if asked.command == "build":
        starting.build(cache(), everything=asked.all)
    elif asked.command == "verify":
        return verify(asked.family)
    elif asked.command == "pack":
        print("\n".join(packing.pack(cache(), asked.folder)))
    elif asked.command == "up":
        up(here, Options(**{name: getattr(asked, name) for name in options.kinds()}))
    elif asked.command == "down":
        return down(here, asked.check)
    elif asked.command == "status":
        return status(here)
    else:
        touch(asked, here)
    return 0


def verify(family: str) -> int:
    """Compile anew and compare; 1 where something differs."""
    cache().make()
    wrong = packing.verify(cache(), family)
    for words in wrong:
        print(f"differs: {words}", file=sys.stderr)
    if not wrong:
        print(f"{family}: compiled anew with {packing.go_version()}, the same to the byte")
    return 1 if wrong else 0


def up(here: Folder, wanted: Options) -> None:
    """Build and start, and say how to use it."""
    starting.build(cache())
    if options.load(here) is None:
        shutil.rmtree(here.logs, ignore_errors=True)
    starting.up(cache(), here, wanted)
    print(f"export KUBECONFIG={here.kubeconfig}\nexport PATH={cache().binaries}:$PATH  # kubectl")


def down(here: Folder, check: bool) -> int:
    """Stop all; 1 where something is left. `check`: as `traces.down_at_work`."""
    began = time.monotonic()
    left = traces.down_at_work(here) if check else stopping.down(here)
    for what in left:
        print(f"not as it should be: {what}" if check else f"left behind: {what}", file=sys.stderr)
    if not left:
        print(f"down after {time.monotonic() - began:.1f} s; nothing left: no process, mount, network, control group")
    return 1 if left else 0


def status(here: Folder) -> int:
    """Every component and node; 1 where one is not well."""
    known, processes = options.load(here), Processes(here)
    if known is None:
        print("no bed is up")
        return 1
    well = True
    for name in processes.names():
        process = processes.running(name)
        well &= bool(process)
        not_running = "stopped" if processes.is_stopped(name) else "NOT RUNNING"
        print(f"{name:28} {f'running, process {process}' if process else not_running}")
    try:
        ready = Api(here, known).ready_nodes()
    except (OSError, BedError) as error:
        print(f"API server: {error}")
        return 1
    for name in [node.name for node in known.real_nodes()] + [kwok.name(index) for index in range(known.kwok)]:
        well &= name in ready
        print(f"{name:28} {'Ready' if name in ready else 'NOT READY'}")
    return 0 if well else 1


def touch(asked: argparse.Namespace, here: Folder) -> None:
    """Something happens to one component or node."""
    known, processes = options.load(here), Processes(here)
    if known is None:
        raise BedError("no bed is up")
    name = asked.name
    if asked.command in ("stop", "start") and name in processes.names():
        processes.stop(name) if asked.command == "stop" else processes.start_again(name)
        return
    node = known.real_node(name)
    if asked.command in ("stop", "kill"):
        faults.kill(node, processes)
    elif asked.command == "start":
        faults.revive(here, known, node, processes, Api(here, known))
    elif asked.command == "freeze":
        faults.freeze(node, processes, pods=asked.pods)
    elif asked.command == "thaw":
        faults.thaw(node)
    else:
        network.cut(node) if asked.command == "cut" else network.mend(node)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
