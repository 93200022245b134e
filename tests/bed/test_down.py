"""Taking the bed down leaves nothing, as the machine itself tells."""

from __future__ import annotations

import json
from pathlib import Path

from tests.bed import machine, samples, starting, stopping, up
from tests.bed.commands import run
from tests.bed.layout import cache, folder
from tests.bed.up import CONTROLLERS, Bed


def test_down_with_all_controllers_up_leaves_nothing(bed: Bed) -> None:
    assert all(bed.processes.running(name) for name in CONTROLLERS)
    busy = samples.pod("stays", "default", samples.pod_spec(samples.BUSYBOX, ["sleep", "600"]), "node-0")
    bed.api.ensure(busy)
    samples.wait_phase(bed, busy, "Running")
    before, wanted = json.loads(bed.folder.machine.read_text(encoding="utf-8")), bed.options
    try:
        assert stopping.down(bed.folder) == []
        assert traces() == []
        assert machine.kernel() == before["kernel"]
        assert [path for path in before["absent"] if Path(path).exists()] == []
        assert up.find() is None
        assert stopping.down(bed.folder) == [], "twice is as good as once"
    finally:
        if up.find() is None:
            starting.up(cache(), folder(), wanted)
    again = up.find()
    assert again is not None
    assert again.wrong() == []


def traces() -> list[str]:
    """Everything of the bed that the machine shows, found without the bed's own books."""
    top = str(folder().root)
    mounts = [line for line in Path("/proc/mounts").read_text().splitlines() if top in line]
    groups = [str(path) for path in Path("/sys/fs/cgroup").glob("**/primus-bed*")]
    links = [line for line in run("ip", "-o", "link", "show").splitlines() if "pbed" in line]
    routes = [line for line in run("ip", "route", "show").splitlines() if "pbed" in line]
    spaces = [str(path) for path in Path("/run/netns").glob("primus-bed*")] if Path("/run/netns").exists() else []
    return [*mounts, *groups, *links, *routes, *spaces, *_programs(top)]


def _programs(top: str) -> list[str]:
    """Processes whose command names the folder of the bed or what was compiled; tests without a bed may validate."""
    own, beside = str(cache().binaries), str(cache().binaries / "validate")
    found: list[str] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if f"{top}/" in command or (command.startswith(own) and not command.startswith(beside)):
            found.append(command[:200])
    return found
