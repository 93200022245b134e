"""What a run of ansible-runner tells, event by event, in our own words: plays, failed tasks, hosts. Pure.

A new driver reads a dead one's files from the beginning and goes on behind the place that was told last.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from tasks.ssh.masking import masked

MOST_CHARACTERS = 600
"""Of a message; the end of it, where programs say why."""
_SECRET_NAMES = re.compile(r"pass|secret|token|credential|private_key(?!_file)|_key$", re.IGNORECASE)
SHORTEST_SECRET = 4
"""A shorter value would be masked in ordinary words."""


@dataclass(frozen=True)
class PlayBegan:
    """A play of a playbook begins."""

    place: str
    play: str


@dataclass(frozen=True)
class TaskDone:
    """A task came through on a host."""

    place: str
    task: str
    host: str
    changed: bool


@dataclass(frozen=True)
class TaskFailed:
    """A task failed on a host and nothing rescued it."""

    place: str
    play: str
    task: str
    host: str
    message: str
    """In the innermost tool's own words, secrets masked."""
    unreachable: bool


@dataclass(frozen=True)
class PlayEnded:
    """A play has ended, with how often tasks ended so over all hosts."""

    place: str
    play: str
    ok: int
    changed: int
    failed: int
    unreachable: int
    skipped: int


@dataclass(frozen=True)
class HostRecap:
    """What became of one host over the whole playbook."""

    ok: int = 0
    changed: int = 0
    failed: int = 0
    unreachable: int = 0


@dataclass(frozen=True)
class Recap:
    """The playbook has ended."""

    place: str
    hosts: Mapping[str, HostRecap]


KubesprayEvent = PlayBegan | TaskDone | TaskFailed | PlayEnded | Recap
"""`place` orders events of an operation and is where a new driver goes on."""


def place_of(run: int, number: int) -> str:
    """Of the event `number` of an operation's playbook `run`; places sort as text."""
    return f"{run:02d}/{number:08d}"


def secrets_in(variables: Mapping[str, object]) -> frozenset[str]:
    """Values that nobody may read, by the names of their variables."""
    found: set[str] = set()
    waiting: list[tuple[str, object]] = list(variables.items())
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, dict):
            waiting += [(str(key), item) for key, item in cast("dict[str, object]", value).items()]
        elif isinstance(value, list):
            waiting += [(name, item) for item in cast("list[object]", value)]
        elif _SECRET_NAMES.search(name) and len(str(value)) >= SHORTEST_SECRET and not isinstance(value, bool):
            found.add(str(value))
    return frozenset(found)


class KubesprayEvents:
    """Follows the events of one playbook in their order."""

    def __init__(self, run: int, secrets: Collection[str]) -> None:
        """`run`: number of the playbook in its operation."""
        self._run, self.secrets = run, secrets
        self._play = ""
        self._counts = Counter[str]()
        self.failures: list[TaskFailed] = []
        """All so far, the first one first."""
        self.recap: Recap | None = None

    def take(self, raw: Mapping[str, Any]) -> Iterator[KubesprayEvent]:
        """What an event of ansible-runner means; any text may come from a host."""
        kind, number = str(raw.get("event", "")), raw.get("counter", 0)
        place = place_of(self._run, number if isinstance(number, int) else 0)
        data = _mapping(raw.get("event_data"))
        match kind:
            case "playbook_on_play_start":
                yield from self._ended(place)
                self._play = masked(str(data.get("play") or data.get("name") or "a play"), self.secrets)
                yield PlayBegan(place, self._play)
            case "runner_on_ok":
                changed = bool(_mapping(data.get("res")).get("changed"))
                self._counts["ok"] += 1
                self._counts["changed"] += changed
                task = masked(str(data.get("task", "")), self.secrets)
                yield TaskDone(place, task, str(data.get("host", "")), changed)
            case "runner_on_skipped":
                self._counts["skipped"] += 1
            case "runner_on_failed" | "runner_on_unreachable" if not data.get("ignore_errors"):
                yield self._failed(place, data, kind == "runner_on_unreachable")
            case "playbook_on_stats":
                yield from self._ended(place)
                self.recap = Recap(place, _hosts(data))
                yield self.recap
            case _:
                pass

    def _ended(self, place: str) -> Iterator[PlayEnded]:
        if self._play:
            count = self._counts
            yield PlayEnded(
                *(place, self._play, count["ok"], count["changed"], count["failed"]),
                *(count["unreachable"], count["skipped"]),
            )
        self._play, self._counts = "", Counter[str]()

    def _failed(self, place: str, data: Mapping[str, Any], unreachable: bool) -> TaskFailed:
        self._counts["unreachable" if unreachable else "failed"] += 1
        said = said_of(_mapping(data.get("res")))
        words = masked(" ".join(said.split()), self.secrets)
        short = words if len(words) <= MOST_CHARACTERS else f"… {words[-MOST_CHARACTERS:]}"
        task, host = masked(str(data.get("task", "")), self.secrets), str(data.get("host", ""))
        failed = TaskFailed(place, self._play, task, host, short or "it said nothing", unreachable)
        self.failures.append(failed)
        return failed


def said_of(result: Mapping[str, Any]) -> str:
    """All that a failed task says, the most significant last; items of a loop one by one."""
    items = [_mapping(item) for item in _listed(result.get("results"))]
    inner = [said_of(item) for item in items if item.get("failed") or item.get("unreachable")]
    names = ("msg", "module_stdout", "stdout", "module_stderr", "stderr")
    own = [str(result[name]) for name in names if result.get(name) and not (inner and name == "msg")]
    return "\n".join(dict.fromkeys([*own, *inner]))


def _hosts(data: Mapping[str, Any]) -> dict[str, HostRecap]:
    counts = {name: _mapping(data.get(name)) for name in ("ok", "changed", "failures", "dark")}
    hosts = sorted({str(host) for told in counts.values() for host in told})
    return {host: HostRecap(*(_count(counts[name].get(host)) for name in counts)) for host in hosts}


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def _listed(value: object) -> Sequence[object]:
    return cast("list[object]", value) if isinstance(value, list) else ()
