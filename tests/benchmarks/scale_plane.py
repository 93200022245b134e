"""A control plane for thousands of played nodes: etcd, API server and KWOK of the bed's cache, in a network of its own.

The bed itself is made for short stories: there a node is lost after 8 s of silence, so a node's lease is renewed every
2 s, and thousands of those are more than its machine can bear. Here leases last 40 s, as a kubelet's do. Nothing that
others run is touched, and nothing is left.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from profiles.loading.load import load_workspace
from tests.bed import certificates, kwok, manifests, plane, tenancy
from tests.bed.api import Api, Manifest
from tests.bed.commands import until
from tests.bed.layout import Cache, Folder, cache
from tests.bed.options import Options
from tests.bed.processes import Program
from workflows.platform import workspace

INSIDE = "PRIMUS_BENCH_NETWORK"
LANES = 8
LEASE_SECONDS = 40
SPACE, HOME = "training", "primus-flows"
NEEDED = ("etcd", "kube-apiserver", "kwok")


def why_not() -> str:
    """Why there can be no such plane here; "" where there can."""
    if os.geteuid() != 0:
        return "it needs root"
    missing = [name for name in NEEDED if not (cache().binaries / name).exists()]
    return f"not built: {', '.join(missing)} (make bed-up builds them)" if missing else ""


def in_own_network(module: str) -> int | None:
    """Run the module again in a network namespace of its own; None where we are in it already."""
    if INSIDE in os.environ:
        return None
    command = ["unshare", "--net", sys.executable, "-m", module, *sys.argv[1:]]
    return subprocess.run(command, env={**os.environ, INSIDE: "1"}, check=False).returncode


@dataclass
class ScalePlane:
    """What runs, and how it is asked."""

    cache: Cache
    folder: Folder
    options: Options
    api: Api
    """Of the administrator."""
    programs: dict[str, subprocess.Popen[bytes]]

    def start(self, program: Program) -> None:
        """Start a program; it ends with the plane."""
        log = (self.folder.logs / f"{program.name}.log").open("ab")
        self.programs[program.name] = subprocess.Popen(program.command, stdout=log, stderr=log)
        log.close()

    def stop(self, name: str) -> None:
        """End one program."""
        program = self.programs.pop(name)
        program.terminate()
        try:
            program.wait(5.0)
        except subprocess.TimeoutExpired:
            program.kill()
            program.wait()

    def post_all(self, path: str, bodies: Iterable[Manifest]) -> None:
        """Create many objects over a few connections."""
        waiting, lock = iter(bodies), threading.Lock()

        def shared() -> Generator[Manifest]:
            while True:
                with lock:
                    body = next(waiting, None)
                if body is None:
                    return
                yield body

        with ThreadPoolExecutor(LANES) as lanes:
            for done in [lanes.submit(self.api.post_each, path, shared()) for _ in range(LANES)]:
                done.result()

    def play_nodes(self, first: int, end: int) -> None:
        """Create played nodes and wait until KWOK says that they are Ready."""
        self.post_all("/api/v1/nodes", (kwok.node(self.options, index) for index in range(first, end)))
        until(f"{end} nodes Ready", lambda: len(self.api.ready_nodes()) >= end, limit_s=240, every_s=1.0)


@contextmanager
def scale_plane() -> Generator[ScalePlane]:
    """Started, with the product's accounts and definitions in it; ended and removed afterwards."""
    root = Path(tempfile.mkdtemp(prefix="primus-scale-"))
    made = _started(root)
    try:
        yield made
    finally:
        for name in list(made.programs):
            made.stop(name)
        shutil.rmtree(root, ignore_errors=True)


def _started(root: Path) -> ScalePlane:
    here, folder, options = cache(), Folder(root), replace(Options(), nodes=0, grace_s=LEASE_SECONDS)
    folder.make()
    for command in (["link", "set", "lo", "up"], ["address", "add", f"{options.plane}/32", "dev", "lo"]):
        subprocess.run(["ip", *command], check=True)
    certificates.make(folder, options)
    made = ScalePlane(here, folder, options, Api(folder, options), {})
    made.start(plane.etcd(here, folder))
    server = plane.apiserver(here, folder, options)
    # Nobody would take the taint away that a new node gets until its controller has seen it.
    made.start(replace(server, command=[*server.command, "--disable-admission-plugins=TaintNodesByCondition"]))
    until(f"API server ready, see {folder.logs}", made.api.healthy, limit_s=60)
    authority = certificates.encoded(folder.certificates / "ca.crt")
    shipped = manifests.outside(manifests.load(here, "jobset"), 1, authority)
    definitions = [*filter(manifests.is_definition, [*shipped, *manifests.load(here, "argo-crds-minimal")])]
    made.api.ensure_all(definitions, lanes=3)
    tenancy.apply(made.api, [*workspace.control(HOME), *_team()])
    for ending, account in tenancy.ACCOUNTS.items():
        token = tenancy.request_token(made.api, account, HOME)
        certificates.write_account(folder, options, folder.account(ending), account, token, SPACE)
    made.start(_kwok(made))
    return made


def _kwok(made: ScalePlane) -> Program:
    return Program("kwok", kwok.command(made.cache, made.folder, made.options), "", "")


def _team() -> list[Manifest]:
    """The bed's workspace, as far as it can be without Kueue and without a controller that makes accounts."""
    kinds = {"Namespace", "ServiceAccount", "Role", "RoleBinding"}
    made = [item for item in workspace.workspace(load_workspace(str(tenancy.PROFILE))) if item["kind"] in kinds]
    about = {"name": "default", "namespace": SPACE}
    return [*made, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": about}]
