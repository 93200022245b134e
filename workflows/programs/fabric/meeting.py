"""How the members of a group find each other: each publishes a card in a shared folder.

A card has the addresses on which its owner listens (one for each fabric NIC that has one here, else the pod's own) and
a key. A member that connects proves that it has read the card, so only those who can read the folder get in, and no key
is in a manifest, a log or a parameter. Linux only; a NIC that cannot be read is no rail.
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

CARD_SUFFIX = ".card"
MISSED_SUFFIX = ".over"
"""Suffix of a file by which one member reports a missing rank, so that no member waits any longer."""
TURN_FILE = "turn"
"""File in a round's folder on whose lock groups of one machine wait for each other."""
TURN_SHARE = 0.4
"""Share of the remaining time that a group waits for its turn; then it measures beside the group that holds it."""
BOOT_ID_PATH = "/proc/sys/kernel/random/boot_id"
MACHINE_CHARACTERS = 12
FIRST_LOOK_SECONDS, LAST_LOOK_SECONDS = 0.01, 0.25
"""Time between two looks at the folder: short at first; later longer, so that a thousand members spare the storage."""
STALE_SECONDS = 24 * 3600.0
"""Age from which a round's folder is removed: killed members leave their cards behind."""


@dataclass(frozen=True)
class MemberCard:
    """One member of a group."""

    rank: int
    node: str
    addresses: Tuple[Tuple[str, int], ...]
    """Address and port of each rail `[rails]`."""
    key: str
    """Hexadecimal; a member that connects proves that it knows the key."""
    gpu_port: int = 0
    """Of rank 0: rendezvous port of the GPUs' processes."""


class CardSummary(NamedTuple):
    """The part of a card that is in its file's name, so that a thousand members need not open each other's cards."""

    machine: str
    means: str
    """How it can measure: `gpus` or `sockets`."""


def machine_id(boot: str = BOOT_ID_PATH) -> str:
    """Identity of the machine: equal for two members exactly where one machine stands for both of their nodes."""
    try:
        with open(boot, encoding="ascii") as file:
            return file.read().replace("-", "").strip()[:MACHINE_CHARACTERS]
    except OSError:
        return "".join(letter for letter in os.uname().nodename if letter.isalnum())[:MACHINE_CHARACTERS] or "unknown"


class RendezvousFolder:
    """The folder of one group in one round."""

    def __init__(self, path: str, rank: int, ranks: int) -> None:
        self.path, self.rank, self.ranks = path, rank, ranks
        self._mine = ""

    def publish(self, card: MemberCard, sign: CardSummary) -> None:
        """Publish the own card atomically, readable by its owner only.

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
        """Wait for the cards of all ranks; the ranks that are missing at the end, or that another member missed.

        `until` is by the monotonic clock.

        Raises:
            OSError: the folder cannot be read.
        """
        pause, came, every = FIRST_LOOK_SECONDS, set[int](), set(range(self.ranks))
        while True:
            there = set(self.summaries())
            if there == every:
                return []
            if (missed := self.missed_rank()) is not None:
                return [missed]
            came |= there  # a member that gave up a moment before us did come
            left = until - time.monotonic()
            if left <= 0:
                return sorted(every - came or every - there)
            time.sleep(min(pause, left))
            pause = min(LAST_LOOK_SECONDS, 2 * pause)

    def summaries(self) -> Dict[int, CardSummary]:
        """Card summaries of the ranks that are there."""
        found: Dict[int, CardSummary] = {}
        for name in os.listdir(self.path):
            words = name.split(".")
            if len(words) == len(CardSummary._fields) + 2 and words[0].isdigit() and int(words[0]) < self.ranks:
                found[int(words[0])] = CardSummary(words[1], words[2])
        return found

    def card(self, rank: int) -> MemberCard:
        """The card of a rank.

        Raises:
            OSError: it is not there, or cannot be read.
            ValueError: it is none.
        """
        sign = self.summaries().get(rank)
        if sign is None:
            raise FileNotFoundError(2, "has taken its card away", f"rank {rank}")
        with open(os.path.join(self.path, _name(rank, sign)), encoding="utf-8") as file:
            return _card(json.load(file))

    def end(self, missed: int) -> None:
        """Tell the others that a rank is missing; the file stays for members that come late. Never raises."""
        with contextlib.suppress(OSError):
            os.close(
                os.open(
                    os.path.join(self.path, f"{self.rank}.{missed}{MISSED_SUFFIX}"), os.O_CREAT | os.O_WRONLY, 0o600
                )
            )

    def missed_rank(self) -> Optional[int]:
        """The rank that another member reported missing; None: none.

        Raises:
            OSError: the folder cannot be read.
        """
        for name in sorted(os.listdir(self.path)):
            words = name[: -len(MISSED_SUFFIX)].split(".")
            if name.endswith(MISSED_SUFFIX) and len(words) == 2 and words[1].isdigit() and words[0] != str(self.rank):
                return int(words[1])
        return None

    def leave(self) -> None:
        """Remove the own card, and the folder if it is empty."""
        with contextlib.suppress(OSError):
            os.unlink(self._mine)
        with contextlib.suppress(OSError):  # others are still in it
            os.rmdir(self.path)
            above = os.path.dirname(self.path)
            if os.listdir(above) == [TURN_FILE]:
                os.unlink(os.path.join(above, TURN_FILE))
            os.rmdir(above)


def remove_stale_rounds(folder: str, now: float) -> None:
    """Remove leftovers of rounds from the day before, whose members were killed. Never raises."""
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            path = os.path.join(folder, name)
            with contextlib.suppress(OSError):
                if now - os.lstat(path).st_mtime > STALE_SECONDS:
                    shutil.rmtree(path, ignore_errors=True)


def ranks_on_shared_machines(signs: Mapping[int, CardSummary]) -> Set[int]:
    """Ranks whose machine stands for another rank's node as well."""
    counted = Counter(sign.machine for sign in signs.values())
    return {rank for rank, sign in signs.items() if counted[sign.machine] > 1}


@contextlib.contextmanager
def machine_turn(path: str, deadline: float) -> Generator[None, None, None]:
    """Hold the machine's turn by a lock on the file `path`; "": the group needs none.

    Rank 0 holds it for its group, and waits `TURN_SHARE` of the time until `deadline` (monotonic clock).
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


def _name(rank: int, sign: CardSummary) -> str:
    return f"{rank}.{sign.machine}.{sign.means}{CARD_SUFFIX}"


def _card(plain: Any) -> MemberCard:
    try:
        addresses = tuple((str(host), int(port)) for host, port in plain["addresses"])
        return MemberCard(int(plain["rank"]), str(plain["node"]), addresses, str(plain["key"]), int(plain["gpu_port"]))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"no card of a member: {error}") from error


@dataclass(frozen=True)
class Options(flags.Flags):
    """Place of this member and sizes of the measurements."""

    folder: str
    """Folder of the round; each group has one of its own in it."""
    group: int
    rank: int
    ranks: int
    """Members of the group."""
    meet_seconds: float = 60.0
    """Time after which a member that has not come counts as missing."""
    deadline_seconds: float = 120.0
    """Time for everything; then the report names what is still awaited, and the process ends."""
    all_reduce_bytes: int = 4 << 20
    all_to_all_bytes: int = 0
    """0: not made."""
    iterations: int = 3
    gpus: int = 0
    """GPUs of each node that take part; 0: measured by sockets."""
    out_dir: str = ""
    """Folder for the output parameter `report`; empty: standard output only."""


INFINIBAND = "/sys/class/infiniband"
ASK_ADDRESS = 0x8915
"""SIOCGIFADDR of Linux."""
LOOPBACK = "127.0.0.1"


def rail_addresses(pod_address: str, folder: str = INFINIBAND) -> Tuple[str, ...]:
    """Addresses of the rails `[rails]`, in the order of the NICs' names; at least one."""
    found: List[str] = []
    for nic in _list_folder(folder):
        for interface in _list_folder(os.path.join(folder, nic, "device", "net")):
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


def _list_folder(folder: str) -> List[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
