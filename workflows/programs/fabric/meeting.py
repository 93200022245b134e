"""How the members of a group find each other: each lays a card into a folder that all of them see.

A card says where its owner listens and holds a key that its owner made. Whoever connects proves that it has read the
card: nobody gets in who cannot read the folder, and no key stands in a manifest, a log or a parameter.

Standard library only, Python 3.9.

What a member of a group is asked. Standard library only, Python 3.9.

Which addresses a member listens on: one for each fabric NIC that has one here, else the pod's own.

Standard library only, Python 3.9. Linux only; whatever cannot be read is no rail.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import socket
import struct
import time
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any, Callable, Dict, Generator, List, Mapping, NamedTuple, Optional, Set, Tuple

from workflows.programs.runtime import flags

SUFFIX = ".card"
OVER = ".over"
"""Ends the name of a mark: one member found that the group is not whole, and nobody need wait any longer."""
TURN = "turn"
"""File in a round's folder on whose lock groups of one machine wait for each other."""
TURN_SHARE = 0.4
"""Of the time that is left: so long a group waits for its turn; then it measures beside whoever holds it."""
BOOT = "/proc/sys/kernel/random/boot_id"
MACHINE_CHARACTERS = 12
FIRST_LOOK_SECONDS, LAST_LOOK_SECONDS = 0.01, 0.25
"""Between two looks at the folder: soon at first; later so that a thousand members do not wear the storage out."""
STALE_SECONDS = 24 * 3600.0
"""A round's folder that is so old belongs to nobody: whoever was killed has left its card there."""


@dataclass(frozen=True)
class Card:
    """One member of a group."""

    rank: int
    node: str
    addresses: Tuple[Tuple[str, int], ...]
    """Address and port of each rail `[rails]`."""
    key: str
    """Hexadecimal. Who connects to it proves that it knows it."""
    gpu_port: int = 0
    """Rank 0: port where the processes of GPUs meet."""


class Sign(NamedTuple):
    """What the name of a card says without the card being opened: a thousand members need not read each other's."""

    machine: str
    means: str
    """By what it can measure: `gpus` or `sockets`."""


def machine_of(boot: str = BOOT) -> str:
    """What two members have in common exactly where one machine stands for both of their nodes."""
    try:
        with open(boot, encoding="ascii") as file:
            return file.read().replace("-", "").strip()[:MACHINE_CHARACTERS]
    except OSError:
        return "".join(letter for letter in os.uname().nodename if letter.isalnum())[:MACHINE_CHARACTERS] or "unknown"


class Folder:
    """The folder of one group in one round."""

    def __init__(self, path: str, rank: int, ranks: int) -> None:
        self.path, self.rank, self.ranks = path, rank, ranks
        self._mine = ""

    def lay(self, card: Card, sign: Sign) -> None:
        """Lay the own card, whole at once and readable by its owner only.

        Raises:
            OSError: the storage refuses.
        """
        os.makedirs(self.path, mode=0o700, exist_ok=True)
        unfinished = os.path.join(self.path, f".{self.rank}.{os.getpid()}")
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(asdict(card), file)
        self._mine = os.path.join(self.path, _name(self.rank, sign))
        os.replace(unfinished, self._mine)

    def wait(self, until: float) -> List[int]:
        """Wait for the cards of all ranks; those that are missing when the time is up, or whom another one missed.

        Args:
            until: by the monotonic clock.

        Raises:
            OSError: the folder cannot be read.
        """
        pause, came, every = FIRST_LOOK_SECONDS, set[int](), set(range(self.ranks))
        while True:
            there = set(self.signs())
            if there == every:
                return []
            if (missed := self.over()) is not None:
                return [missed]
            came |= there  # who gave up a moment before us did come
            left = until - time.monotonic()
            if left <= 0:
                return sorted(every - came or every - there)
            time.sleep(min(pause, left))
            pause = min(LAST_LOOK_SECONDS, 2 * pause)

    def signs(self) -> Dict[int, Sign]:
        """Of each rank whose card is there."""
        found: Dict[int, Sign] = {}
        for name in os.listdir(self.path):
            words = name.split(".")
            if len(words) == len(Sign._fields) + 2 and words[0].isdigit() and int(words[0]) < self.ranks:
                found[int(words[0])] = Sign(words[1], words[2])
        return found

    def card(self, rank: int) -> Card:
        """The card of a rank.

        Raises:
            OSError: it is not there, or cannot be read.
            ValueError: it is none.
        """
        sign = self.signs().get(rank)
        if sign is None:
            raise FileNotFoundError(2, "has taken its card away", f"rank {rank}")
        with open(os.path.join(self.path, _name(rank, sign)), encoding="utf-8") as file:
            return _card(json.load(file))

    def end(self, missed: int) -> None:
        """Tell the others that a rank is missed; it is left there, for whoever comes late. Never raises."""
        with contextlib.suppress(OSError):
            os.close(os.open(os.path.join(self.path, f"{self.rank}.{missed}{OVER}"), os.O_CREAT | os.O_WRONLY, 0o600))

    def over(self) -> Optional[int]:
        """The rank that another member missed; None where nobody said so.

        Raises:
            OSError: the folder cannot be read.
        """
        for name in sorted(os.listdir(self.path)):
            words = name[: -len(OVER)].split(".")
            if name.endswith(OVER) and len(words) == 2 and words[1].isdigit() and words[0] != str(self.rank):
                return int(words[1])
        return None

    def leave(self) -> None:
        """Take the own card away, and what nobody needs any more with it."""
        with contextlib.suppress(OSError):
            os.unlink(self._mine)
        with contextlib.suppress(OSError):  # others are still in it
            os.rmdir(self.path)
            above = os.path.dirname(self.path)
            if os.listdir(above) == [TURN]:
                os.unlink(os.path.join(above, TURN))
            os.rmdir(above)


def sweep(folder: str, now: float) -> None:
    """Remove what rounds of the day before have left in `folder`, where members were killed. Never raises."""
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            path = os.path.join(folder, name)
            with contextlib.suppress(OSError):
                if now - os.lstat(path).st_mtime > STALE_SECONDS:
                    shutil.rmtree(path, ignore_errors=True)


def shared(signs: Mapping[int, Sign]) -> Set[int]:
    """Ranks whose machine stands for another rank's node, too."""
    counted = Counter(sign.machine for sign in signs.values())
    return {rank for rank, sign in signs.items() if counted[sign.machine] > 1}


@contextlib.contextmanager
def turn_of(path: str, deadline: float) -> Generator[None, None, None]:
    """Hold the machine's turn where `path` names its file; "": nobody else is on this machine.

    Args:
        path: of the file; for the others of the group rank 0 holds it.
        deadline: by the monotonic clock; `TURN_SHARE` of the time until then is waited.
    """
    if not path:
        yield
        return
    patience = time.monotonic() + TURN_SHARE * max(0.0, deadline - time.monotonic())
    with open(path, "ab") as file:
        while True:
            with contextlib.suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            if time.monotonic() > patience:
                break
            time.sleep(0.005)
        yield  # the lock goes with the file, also where the process is killed


def _name(rank: int, sign: Sign) -> str:
    return f"{rank}.{sign.machine}.{sign.means}{SUFFIX}"


def _card(plain: Any) -> Card:
    try:
        addresses = tuple((str(host), int(port)) for host, port in plain["addresses"])
        return Card(int(plain["rank"]), str(plain["node"]), addresses, str(plain["key"]), int(plain["gpu_port"]))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"no card of a member: {error}") from error


@dataclass(frozen=True)
class Options:
    """Who we are and what is measured."""

    folder: str
    """Of the round; each group has one of its own in it."""
    group: int
    rank: int
    ranks: int
    """Members of the group."""
    meet_seconds: float = 60.0
    """Whoever has not come by then does not come."""
    deadline_seconds: float = 120.0
    """For everything; then the report says what was waited for, and the process ends."""
    all_reduce_bytes: int = 4 << 20
    all_to_all_bytes: int = 0
    """0: not made."""
    iterations: int = 3
    gpus: int = 0
    """GPUs of each node that take part; 0: measured by sockets."""
    out_dir: str = ""
    """Folder for the output parameter `report`; empty: standard output only."""

    def argv(self) -> List[str]:
        """These options as flags."""
        return flags.to_argv(self)


INFINIBAND = "/sys/class/infiniband"
ASK_ADDRESS = 0x8915
"""SIOCGIFADDR of Linux."""
LOOPBACK = "127.0.0.1"


def hosts(pod_address: str, folder: str = INFINIBAND) -> Tuple[str, ...]:
    """Addresses of the rails `[rails]`, in the order of the NICs' names; at least one."""
    found: List[str] = []
    for nic in _listed(folder):
        for interface in _listed(os.path.join(folder, nic, "device", "net")):
            address = address_of(interface)
            if address is not None and address not in found:
                found.append(address)
    return tuple(found) or (pod_address or LOOPBACK,)


def address_of(interface: str, ask: Callable[[int, int, bytes], bytes] = fcntl.ioctl) -> Optional[str]:
    """Its IPv4 address in this network namespace; None where there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            told = ask(asking.fileno(), ASK_ADDRESS, struct.pack("256s", interface[:15].encode()))
        except OSError:
            return None
    return socket.inet_ntoa(told[20:24])


def _listed(folder: str) -> List[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
