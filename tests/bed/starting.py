"""Build what is missing, then start a bed and say when each part is ready."""

from __future__ import annotations

import fcntl
import json
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from tests.bed import (
    artifacts,
    building,
    certificates,
    controllers,
    debian,
    images,
    kwok,
    machine,
    manifests,
    network,
    nodes,
    options,
    plane,
    prebuilt,
    supervisor,
    tenancy,
)
from tests.bed.api import Api
from tests.bed.commands import BedError, until
from tests.bed.layout import Cache, Folder
from tests.bed.options import Options
from tests.bed.processes import Processes


class Clock:
    """Says what is reached, with the seconds since the start."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self.times: dict[str, float] = {}

    def mark(self, what: str) -> None:
        """Say and keep it."""
        self.times[what] = round(time.monotonic() - self._began, 1)
        print(f"[{self.times[what]:6.1f} s] {what}", flush=True)


@contextmanager
def alone(cache: Cache) -> Generator[None]:
    """Only one build at a time in one cache; a second one waits for the first."""
    with (cache.root / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"another build works in {cache.root}; waiting for it", flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def build(cache: Cache, everything: bool = False) -> None:
    """All binaries, manifests and images; a moment where nothing changed.

    Args:
        cache: where they lie.
        everything: compile also what only single tests ask for.
    """
    debian.need_root()
    installed = debian.install()
    if installed:
        print(f"installed: {', '.join(installed)}", flush=True)
    cache.make()
    progress = building.Progress()
    with alone(cache):
        prebuilt.take(cache, prebuilt.missing(cache, everything), progress.say)
        left = building.missing(cache, everything)
        if left:
            debian.need_go()
            names = ", ".join(component.name for family in left for component in family)
            progress.say(f"to compile, into {cache.root}: {names} (all of them: a quarter of an hour on two cores)")
            building.build(cache, left, progress)
        manifests.have(cache, everything, progress.say)
        changed = images.refresh(cache)
        if changed:
            progress.say(f"image layers written: {', '.join(changed)}")


def up(cache: Cache, folder: Folder, wanted: Options) -> None:
    """Start a bed; returns when everything in it is ready.

    Raises:
        BedError: one runs here already, or a part did not become ready.
    """
    debian.need_root()
    if options.load(folder) is not None or network.namespaces():
        raise BedError("a bed is up, or was not taken down: see `status`, then `down`")
    if any(Path("/run/netns").glob("primus-lab*")):
        raise BedError("a lab is up on this machine: take it down first (make lab-down)")
    clock, processes = Clock(), Processes(folder)
    folder.make()
    options.save(folder, wanted)
    machine.note(folder)
    network.up(wanted)
    certificates.make(folder, wanted)
    clock.mark("networks and certificates")
    with ThreadPoolExecutor(max_workers=max(1, wanted.nodes)) as lanes:
        runtimes = [lanes.submit(nodes.start_runtime, cache, folder, node, processes) for node in wanted.real_nodes()]
        api = plane.start(cache, folder, wanted, processes)
        clock.mark("API server ready")
        api.ensure_all(plane.dns_rights())
        processes.start(plane.dns(cache, folder, wanted))
        artifacts.start(wanted, processes)
        place = controllers.Place(cache, folder, wanted, processes, api, clock.mark)
        hooks = controllers.define(place)
        for runtime in runtimes:
            runtime.result()
    clock.mark(f"{wanted.nodes} x containerd with images")
    for node in wanted.real_nodes():
        nodes.start_kubelet(cache, folder, wanted, node, processes)
    controllers.start(place, hooks)
    _fill(cache, folder, wanted, processes, place.api, clock)
    (folder.root / "times.json").write_text(json.dumps(clock.times, indent=1) + "\n", encoding="utf-8")


def _fill(cache: Cache, folder: Folder, wanted: Options, processes: Processes, api: Api, clock: Clock) -> None:
    """Nodes and what a team finds."""
    for node in wanted.real_nodes():
        nodes.settle(api, wanted, node)
    clock.mark(f"{wanted.nodes} real nodes Ready")
    if wanted.kwok:
        kwok.start(cache, folder, wanted, processes, api)
        clock.mark(f"{wanted.kwok} played nodes Ready")
    tenancy.settle(api, folder, wanted)
    (folder.root / "shared").mkdir(exist_ok=True)
    health = f"http://{wanted.plane}:{plane.DNS_HEALTH_PORT}/ready"
    until("name server ready", lambda: plane.healthy(health))
    until("artifact repository ready", lambda: artifacts.ready(wanted))
    supervisor.start(folder, processes)
    clock.mark("name server, artifacts, queues and service accounts ready: the bed is up")
