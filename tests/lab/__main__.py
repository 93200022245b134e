"""`python -m tests.lab`: real hosts on this machine, with systemd, sshd and a network of their own.

python -m tests.lab build             # what is made once: root file system, programs, images
python -m tests.lab up --hosts 3      # returns when all have booted and answer by SSH
python -m tests.lab status
python -m tests.lab ssh 1 uptime      # a command on n1; without one, a shell
python -m tests.lab power-cut 2       # no goodbye; power-on 2 brings it back
python -m tests.lab cut 2             # its cable is pulled; mend
python -m tests.lab next              # the next patch of Kubernetes on the mirror; prints its release
python -m tests.lab down --check      # asks the machine whether anything is left
"""

from __future__ import annotations

import argparse
import os
import sys
import time

from tests.bed.commands import BedError
from tests.lab import lab, network
from tests.lab.layout import Options, folder


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(
        "python -m tests.lab", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = top.add_subparsers(dest="command", required=True)
    commands.add_parser("build").add_argument("--bare", action="store_true", help="the root file system alone")
    commands.add_parser("status")
    commands.add_parser("down").add_argument("--check", action="store_true", help="fail where anything is left")
    commands.add_parser("next", help="put the next patch of Kubernetes on the mirror, for an upgrade")
    up = commands.add_parser("up")
    up.add_argument("--hosts", type=int, default=Options().hosts)
    up.add_argument("--bare", action="store_true", help="hosts alone: nothing on the mirror, nothing compiled")
    for name in ("ssh", "power-cut", "power-on", "shutdown", "cut", "mend"):
        one = commands.add_parser(name)
        one.add_argument("host", help="n1, or 1")
        if name == "ssh":
            one.add_argument("words", nargs=argparse.REMAINDER, help="a command; none: a shell")
    return top


def main(words: list[str]) -> int:
    """Do it; the exit code."""
    asked = parser().parse_args(words)
    try:
        return dispatch(asked)
    except (BedError, LookupError) as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1


def dispatch(asked: argparse.Namespace) -> int:
    """One command; the exit code."""
    if asked.command == "build":
        print(lab.build(asked.bare))
    elif asked.command == "up":
        tell(lab.up(Options(asked.hosts), asked.bare))
    elif asked.command == "down":
        return down(asked.check)
    elif asked.command == "status":
        return status()
    elif asked.command == "next":
        print(need().stock_next())
    else:
        touch(asked)
    return 0


def need() -> lab.Lab:
    """The one that is up; BedError where none is."""
    found = lab.find()
    if found is None:
        raise BedError("no lab is up")
    return found


def tell(made: lab.Lab) -> None:
    """How to use it."""
    print(f"cluster profile: {made.profile}")
    for host in made.hosts:
        print(" ".join(host.ssh()))


def down(check: bool) -> int:
    """Remove all; 1 where something is left, and where `check` finds no lab."""
    began, here = time.monotonic(), folder()
    if check and here.load() is None:
        print("lab: none is up in this checkout", file=sys.stderr)
        return 1
    left = lab.down(here)
    for what in left:
        print(f"left behind: {what}", file=sys.stderr)
    if not left:
        print(f"down after {time.monotonic() - began:.1f} s; nothing left: no process, mount, network, control group")
    return 1 if left else 0


def status() -> int:
    """Every host; 1 where one is not well."""
    found = lab.find()
    if found is None:
        print("no lab is up")
        return 1
    well = True
    for host in found.hosts:
        said = host.run("systemctl is-system-running", check=False).strip() if host.is_on() else "OFF"
        well &= said == "running"
        print(f"{host.name:4} {host.address:12} {said or 'does not answer'}")
    return 0 if well else 1


def touch(asked: argparse.Namespace) -> None:
    """Something happens to one host."""
    host = need().host(asked.host)
    if asked.command == "ssh":
        command = host.ssh(" ".join(asked.words))
        os.execvp(command[0], command)
    elif asked.command in ("cut", "mend"):
        network.cut(host.name) if asked.command == "cut" else network.mend(host.name)
    else:
        acts = {"power-cut": host.power_cut, "power-on": host.power_on, "shutdown": host.shutdown}
        acts[asked.command]()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
