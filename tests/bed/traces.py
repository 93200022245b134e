"""Taking the bed down leaves nothing, as the machine itself tells: found without the bed's own books."""

from __future__ import annotations

import json
from pathlib import Path

from tests.bed import machine, samples, stopping, up
from tests.bed.commands import BedError, run
from tests.bed.layout import Folder, cache, folder
from tests.bed.up import CONTROLLERS, Bed


def burden(bed: Bed) -> None:
    """All components run, and a pod that would run on for minutes.

    Raises:
        BedError: something of the bed is not well.
    """
    bed.settle()
    idle = [name for name in CONTROLLERS if not bed.processes.running(name)]
    if idle:
        raise BedError(f"not running: {', '.join(idle)}")
    busy = samples.pod("stays", "default", samples.pod_spec(samples.BUSYBOX, ["sleep", "600"]), "node-0")
    bed.api.ensure(busy)
    samples.wait_phase(bed, busy, "Running")


def down_at_work(here: Folder) -> list[str]:
    """Take the bed down amid its work, whatever state it is in; what is left, or was not well before, in words."""
    bed = up.find()
    if bed is None:
        return down(here)
    wrong: list[str] = []
    try:
        burden(bed)
    except (BedError, OSError) as error:
        wrong = [f"the bed was not well when it was taken down: {error}"]
    return wrong + down(here)


def down(here: Folder) -> list[str]:
    """Take the bed down, and again; what is left by its own books and by the machine's, in words."""
    noted = here.machine.read_text(encoding="utf-8") if here.machine.exists() else '{"kernel": {}, "absent": []}'
    before = json.loads(noted)
    left = stopping.down(here)
    now = machine.kernel()
    left += [
        f"kernel setting {name}={now[name]}, was {was}" for name, was in before["kernel"].items() if now[name] != was
    ]
    left += [f"folder {path}" for path in before["absent"] if Path(path).exists()]
    left += [f"{here.record}: a bed counts as up"] if here.record.exists() else []
    left += traces()
    left += [f"when it was taken down once more: {what}" for what in stopping.down(here)]
    return list(dict.fromkeys(left))


def traces() -> list[str]:
    """Mounts, control groups, networks and processes of the bed that the machine shows."""
    top = str(folder().root)
    mounts = [f"mount {line}" for line in Path("/proc/mounts").read_text().splitlines() if top in line]
    groups = [f"control group {path}" for path in Path("/sys/fs/cgroup").glob("**/primus-bed*")]
    links = [f"link {line}" for line in run("ip", "-o", "link", "show").splitlines() if "pbed" in line]
    routes = [f"route {line}" for line in run("ip", "route", "show").splitlines() if "pbed" in line]
    spaces = Path("/run/netns").glob("primus-bed*") if Path("/run/netns").exists() else ()
    return [*mounts, *groups, *links, *routes, *(f"network namespace {path}" for path in spaces), *_programs(top)]


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
            found.append(f"process {path.parent.name}: {command[:200]}")
    return found
