"""Pre-checks of 350 hosts, 20 over real SSH with the real program, 330 simulated, beside a plain `ssh host true`.

A simulated host is a shell that answers as a sound host does, without SSH between; it is in no pair. The real ones try
each other's ports and packets. What a whole fleet of pairs costs is measured by itself: one host that tries 349 peers,
each an address of this machine that really listens, and the judgement of 350 hosts that have all reached each other.
"""

from __future__ import annotations

import asyncio
import json
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from flows.decisions.bootstrap.prechecks.judge import prechecks
from profiles.bootstrap.inventory import ClusterHost, Ssh
from tasks.ssh.connections import Target, target
from tasks.ssh.failures import Way
from tasks.ssh.looking import Pairing, Question, look_at
from tests.support.builders.host_sights import GPU_NODE, PLANES, items, profile, sight_of
from tests.support.servers.ssh_hosts import SshHosts, missing_server
from workflows.model.host_facts import Unread
from workflows.programs.hosts.options import Options
from workflows.programs.hosts.reach import Listener, reach

REAL, SIMULATED, AT_ONCE = 20, 330, 50
GOAL_SECONDS = 30.0
PORT = 10250
ANSWERS = """
read size; head -c $size >/dev/null; read word
while read what rest; do
  case $what in
    clock) echo "$word clock {\\"time\\": $(date +%s.%N)}";;
    facts) printf '%s facts ' "$word"; cat FACTS;;
    listen) echo "$word ready {\\"listening\\": [], \\"udp\\": 0}";;
  esac
done
"""


@contextmanager
def servers(folder: Path) -> Generator[list[Target]]:
    """Real SSH servers, and how they are reached."""
    made = SshHosts(folder)
    try:
        for number in range(REAL):
            made.start(f"r{number}")
        ssh = Ssh(
            user=made.user,
            private_key_file=str(folder / "client"),
            known_hosts_file=str(folder / "known_hosts"),
            at_once=AT_ONCE,
        )
        hosts = {name: ClusterHost(address=one.address, port=one.port) for name, one in made.addresses.items()}
        yield [target(name, host, ssh) for name, host in hosts.items()]
    finally:
        made.stop()


def simulated(folder: Path) -> list[Target]:
    """Hosts that are shells."""
    found: list[Target] = []
    for number in range(SIMULATED):
        name = f"s{number}"
        file = folder / f"{name}.json"
        own = f"10.2.{number // 250}.{number % 250 + 1}"
        file.write_text(json.dumps({"items": items(name, controls=False, works=True, own=own)}) + "\n")
        script = ANSWERS.replace("FACTS", shlex.quote(str(file)))
        found.append(Target(name, ("sh", "-c", script), Way(name, "root", "", 10.0, "python3")))
    return found


def _run(words: list[str]) -> None:
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL)


def plain_seconds(targets: list[Target]) -> float:
    """The same hosts asked for nothing, as many at a time: `ssh host true`, `sh -c true`."""
    commands = [[*one.command[:-1], "true"] for one in targets]
    began = time.perf_counter()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(_run, commands))
    return time.perf_counter() - began


def look_seconds(targets: list[Target]) -> float:
    """The look at all of them."""
    questions = [
        Question(one, Options(fsync="/var/lib/etcd" if place < 3 else ""), f"127.2.0.{place + 1}", (PORT,))
        for place, one in enumerate(targets[:REAL])
    ]
    questions += [Question(one, Options(), "127.0.0.1", ()) for one in targets[REAL:]]
    real = {one.name for one in targets[:REAL]}

    def ports(source: str, peer: str) -> tuple[int, ...]:
        return (PORT,) if {source, peer} <= real else ()

    began = time.perf_counter()
    seen = asyncio.run(look_at(questions, AT_ONCE, Pairing(ports)))
    took = time.perf_counter() - began
    failed = [one.why for one in seen.values() if one.failure]
    assert not failed, failed[:3]
    reached = [one.reach for name, one in seen.items() if name in real and not isinstance(one.reach, Unread)]
    words = {word for way in reached for peer in real & way.keys() for word in way[peer].ports.values()}
    assert words == {"open"}, words
    return took


def reach_seconds() -> tuple[float, float]:
    """One host tries 349 peers: seconds of a clock and of a processor."""
    nonce = "0123456789abcdef"
    addresses = [f"127.3.{number // 250}.{number % 250 + 1}" for number in range(349)]
    made = [Listener(address, address, (PORT,), nonce) for address in addresses]
    peers = [
        {"name": address, "address": address, "ports": [PORT], "ours": one.listening, "udp": one.udp}
        for address, one in zip(addresses, made, strict=True)
    ]
    began, spent = time.perf_counter(), time.process_time()
    told = reach({"address": "127.3.9.1", "nonce": nonce, "mtu": 9000, "peers": peers})
    took = time.perf_counter() - began, time.process_time() - spent
    wrong = [row for row in told["peers"].values() if row["mtu"] != 9000 or set(row["ports"].values()) != {"open"}]
    assert not wrong, wrong[:3]
    return took


def judge_seconds() -> float:
    """The judgement of 350 hosts with all pairs."""
    names = {f"w{number}": {"address": f"10.1.{number // 250}.{number % 250 + 1}"} for number in range(347)}
    planes = {name: {"address": f"10.0.0.{place + 11}", "role": "control-plane"} for place, name in enumerate(PLANES)}
    told = profile(hosts={**planes, **names}, networks={"mtu": 9000, "pods": "10.128.0.0/14"})
    sight = sight_of(told)
    began = time.perf_counter()
    found = prechecks(told, {"gpu-node": GPU_NODE}, sight)
    took = time.perf_counter() - began
    assert not found.stopped, found.why
    return took


def main() -> int:
    """Print them; 1 where the goal was missed."""
    if reason := missing_server():
        print(reason)
        return 0
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        with servers(folder / "hosts") as real:
            targets = [*real, *simulated(folder)]
            plain = plain_seconds(targets)
            took = look_seconds(targets)
    judged = judge_seconds()
    clock, processor = reach_seconds()
    print(f"{REAL} hosts over real SSH, {SIMULATED} simulated by shells without SSH, {AT_ONCE} at once")
    print(f"look {took:.1f} s, judgement with all 122,150 ways {judged:.1f} s; goal {GOAL_SECONDS:.0f} s together")
    print(f"`ssh host true` (simulated: `sh -c true`) of each {plain:.1f} s")
    print(
        f"one host tries 349 peers, one port and packets of 9000 bytes each: {clock:.1f} s, {processor:.2f} s of a core"
    )
    return 0 if took + judged <= GOAL_SECONDS else 1


if __name__ == "__main__":
    sys.exit(main())
