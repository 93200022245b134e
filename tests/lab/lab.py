"""A lab: hosts, their LAN, and what they find there; started, taken down, and nothing of it left."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from profiles.bootstrap.inventory import ComponentChoice
from tests.bed import debian
from tests.bed import network as bed_network
from tests.bed.commands import BedError, run, succeeds, until
from tests.bed.layout import ROOT
from tests.bed.starting import Clock
from tests.bed.stopping import mounts
from tests.lab import groups, images, machine, network, programs, releases, rootfs, shelf
from tests.lab.components import shelf as component_shelf
from tests.lab.hosts import Host, make_key
from tests.lab.layout import MOST_HOSTS, NAMESPACE, SERVER, VIRTUAL, Folder, Options, cache, folder

LAN = "lan"
"""Control group of the name server and the mirror."""
PACKAGES = {
    "systemd-nspawn": "systemd-container",
    "mmdebstrap": "mmdebstrap",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "ssh": "openssh-client",
}
"""What is looked for on this machine, and the package that has it."""


@dataclass(frozen=True)
class Lab:
    """One that is up."""

    folder: Folder
    options: Options

    @property
    def hosts(self) -> list[Host]:
        """All of them, by number."""
        return [Host(name, self.folder) for name in self.options.names()]

    def host(self, name: str) -> Host:
        """One by name (`n1`, or `1`); LookupError where there is none."""
        for host in self.hosts:
            if name in (host.name, host.name.removeprefix("n")):
                return host
        raise LookupError(f"no host '{name}': {', '.join(self.options.names())}")

    @property
    def profile(self) -> Path:
        """The cluster profile `made`."""
        return releases.profile_path(self.folder)

    def stock_next(self) -> Path:
        """Put the next patch of Kubernetes on the mirror; returns the path of its release."""
        releases.stock(programs.place(), build(), self.folder, programs.NEXT)
        return releases.release_path(self.folder, programs.NEXT)

    def stock_components(self, *more: ComponentChoice) -> Path:
        """Put components on the mirror; returns the path of a cluster profile that has them.

        `more`: beside those that runs need; those of `components.shelf.NAMES`, and others that need no mirror.
        """
        shelf.stock(self.folder)
        if more:
            component_shelf.stock(self.folder)
        return releases.write_whole_profile(self.folder, self.options, more)

    def renew(self, *hosts: Host) -> None:
        """Hosts as they were when the lab was new, but for their keys and machine-ids, which are others."""
        for host in hosts:
            host.renew(rootfs.have(cache()))

    def leader(self) -> Host | None:
        """The host that holds the API's virtual address."""
        for host in self.hosts:
            if host.is_on() and VIRTUAL in run("ip", "-n", network.namespace_of(host.name), "-o", "addr"):
                return host
        return None


def find() -> Lab | None:
    """The lab that is up in this checkout's folder."""
    options = folder().load()
    return Lab(folder(), options) if options else None


def refuse() -> None:
    """BedError where a lab, or a bed, is up on this machine: they would share its processors and its settings."""
    if network.namespaces():
        raise BedError("a lab is up on this machine, or was not taken down: python -m tests.lab down, in its checkout")
    if taken := network.strangers():
        raise BedError(f"the lab's addresses are somebody's on this machine (PRIMUS_LAB_NETWORK): {'; '.join(taken)}")
    if bed_network.namespaces():
        raise BedError("a bed is up on this machine: take it down first (make bed-down)")


def build(bare: bool = False) -> Path:
    """The root of all hosts, and the programs and images for them; returns the folder of the root.

    Args:
        bare: the root alone.
    """
    debian.need_root()
    installed = debian.install(PACKAGES)
    if installed:
        print(f"installed: {', '.join(installed)}", flush=True)
    root = rootfs.have(cache())
    if not bare:
        images.archive(programs.build(), root, programs.VERSION)
    return root


def up(options: Options, bare: bool = False) -> Lab:
    """Start a lab; returns when all hosts have booted and answer by SSH.

    Args:
        options: how many hosts.
        bare: the mirror is empty; nothing is compiled.

    Raises:
        BedError: one runs here already, or a host did not boot.
    """
    refuse()
    template, here = build(bare), folder()
    if not 1 <= options.hosts <= MOST_HOSTS:
        raise BedError(f"{options.hosts} hosts: a lab has 1 to {MOST_HOSTS}")
    clock = Clock()
    run("rm", "-rf", "--one-file-system", here.root)
    here.make()
    machine.note(here)
    here.save(options)
    lab = Lab(here, options)
    make_key(here.private_key, "lab")
    network.up()
    groups.spawn(LAN, [in_lan(names_server(template))], here.logs / "names.log")
    serve = (
        sys.executable,
        "-m",
        "http.server",
        "--bind",
        SERVER,
        "--directory",
        str(here.mirror),
        str(releases.MIRROR_PORT),
    )
    groups.spawn(LAN, [in_lan(serve)], here.logs / "mirror.log")
    groups.spawn(LAN, [f"cd {shlex.quote(str(ROOT))}", in_lan(registry_server(here))], here.logs / "registry.log")
    for host in lab.hosts:
        host.install(template)
    if not bare:
        releases.stock(programs.place(), template, here)
    releases.write_profile(here, options)
    clock.mark("LAN, keys, roots, mirror")
    with ThreadPoolExecutor(max_workers=MOST_HOSTS) as lanes:
        for done in [lanes.submit(host.power_on) for host in lab.hosts]:
            done.result()
    clock.mark(f"{options.hosts} hosts have booted and answer by SSH: the lab is up")
    return lab


def in_lan(command: Sequence[str]) -> str:
    """A line of a shell that runs a command in the LAN's network."""
    return shlex.join(["exec", "nsenter", f"--net=/run/netns/{NAMESPACE}", "--", *command])


def registry_server(here: Folder) -> list[str]:
    """The LAN's registry."""
    place = (SERVER, str(releases.REGISTRY_PORT), str(here.registry))
    return [sys.executable, "-m", "tests.lab.registry", *place]


def names_server(template: Path) -> list[str]:
    """The LAN's name server: names of hosts, of the API's address and of the mirror; all others it refuses."""
    known = {name: network.address_of(name) for name in Options(MOST_HOSTS).names()}
    known |= {"api": VIRTUAL, "mirror": SERVER}
    records = [f"--host-record={name}.lab,{name},{address}" for name, address in known.items()]
    quiet = ("--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv", "--no-hosts", "--pid-file=", "--user=root")
    where = ("--bind-interfaces", f"--listen-address={SERVER}", "--local=/lab/")
    return ["chroot", str(template), "/usr/sbin/dnsmasq", *quiet, *where, *records]


def down(here: Folder) -> list[str]:
    """Cut all power and remove everything; returns what is left of it, which should be nothing."""
    until("the end of all processes of the lab", _killed, 30.0)
    for point in mounts(here):
        run("umount", "-l", point, check=False)
    network.down()
    groups.remove()
    machine.restore(here)
    left = leftovers(here)
    if not left:
        run("rm", "-rf", "--one-file-system", here.root)
    return left


def _killed() -> bool:
    found = groups.members()
    for process in found:
        if succeeds("test", "-d", f"/proc/{process}"):
            os.kill(process, signal.SIGKILL)
    return not found


def leftovers(here: Folder) -> list[str]:
    """Everything of the lab that is still there, in words; the machine is asked, not what was written down."""
    return [
        *(f"process {number} in a control group" for number in sorted(groups.members())),
        *(f"process {number}, at work in the lab's folder" for number in sorted(users(here.root))),
        *(f"mount {point}" for point in mounts(here)),
        *(f"network {name}" for name in network.leftovers()),
        *(f"control group {path}" for path in groups.paths()),
        *machine.leftovers(here),
    ]


def users(root: Path) -> set[int]:
    """Processes whose root or working folder lies below a folder."""
    found: set[int] = set()
    for path in Path("/proc").glob("[0-9]*"):
        for name in ("root", "cwd", "exe"):
            try:
                if os.readlink(path / name).startswith(f"{root}/"):
                    found.add(int(path.name))
            except OSError:
                continue
    return found
