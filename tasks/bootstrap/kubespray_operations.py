"""Operations of a cluster's Kubespray in their order: each is told once, whoever follows it, and ended by a judgement.

An operation's folder is called after its number and what it does. A driver keeps beside it up to where it has told the
events, and at the end how it ended. So of a dead driver's operation a new one knows what is still to be told; what the
operation came to is judged by what hosts and cluster show, never by this.
"""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from profiles.vocabulary import VerdictWord
from tasks.bootstrap.kubespray import (
    OPERATION,
    PROCESS,
    KubesprayOutcome,
    KubespraySite,
    carry_out,
    fingerprint_of,
    follow,
    in_words,
    outcome_of,
    was_begun,
)
from tasks.bootstrap.kubespray_events import KubesprayEvent, KubesprayEvents, Recap, TaskDone, TaskFailed
from tasks.processes import recorded, write_whole
from tasks.ssh.plays import PlayEvent
from workflows.bootstrap.kubespray import KubesprayPlaybook

TOLD = "told.json"
KEPT = 12
"""Operations whose files stay; each playbook of a large cluster leaves some hundred megabytes."""
QUIETLY_KEPT = 50
"""Of what only logs of hosts get, so many lines may stand there twice after a kill."""
_NAME = re.compile(r"([0-9]{4})-[A-Za-z0-9.,_-]+")
_STRANGE = re.compile(r"[^A-Za-z0-9.,_-]+")
NAME_CHARACTERS, FINGERPRINT_CHARACTERS = 60, 12


@dataclass(frozen=True)
class Listeners:
    """Who hears of an operation."""

    tell: Callable[[str], None]
    """Gets what is of no single host, in one line."""
    hear: Callable[[PlayEvent], None]
    """Gets each task's end on each host."""
    logs: Path | None = None
    """Folder with a log for each host; None: none."""
    hosts: Collection[str] = ()
    """Of the inventory: what playbooks do on this machine has no log."""


def operate(
    site: KubespraySite, what: str, playbooks: Sequence[KubesprayPlaybook], listeners: Listeners
) -> KubesprayOutcome:
    """Carry these playbooks out as an operation of its own, or go on with the same one of a driver that died.

    Args:
        site: whose hosts.
        what: it does, in words that make a folder's name.
        playbooks: one after the other.
        listeners: who hears of it.

    Raises:
        Conflict, Refused, Unavailable: see `tasks.bootstrap.kubespray.carry_out`.
    """
    name = _name_for(site.home, _word(site, what, playbooks))
    teller = _Teller(site.home / name, listeners)
    outcome = carry_out(site, name, playbooks, teller.take, teller.place)
    teller.end(outcome)
    _forget_old(site.home)
    return outcome


def has_passed(site: KubespraySite, what: str, playbooks: Sequence[KubesprayPlaybook]) -> bool:
    """Whether the very same operation came through before: of one that only reads files nothing else can come."""
    word = _word(site, what, playbooks)
    return any(path.name[5:] == word and _told(path).get("word") == VerdictWord.PASS for path in _operations(site.home))


def unfinished(home: Path) -> tuple[str, ...]:
    """Operations that were begun and whose end nobody has heard, in their order."""
    return tuple(path.name for path in _operations(home) if not _told(path).get("word"))


def still_runs(home: Path, name: str) -> bool:
    """Whether a playbook of an operation runs now."""
    begun = [path for path in (home / name).glob("[0-9][0-9]") if was_begun(path)]
    return any(recorded(path / PROCESS) is not None for path in begun)


def take_up(home: Path, name: str, secrets: frozenset[str], listeners: Listeners) -> KubesprayOutcome:
    """Follow to its end what runs of an operation whose driver died; nothing new is begun.

    What it has not come to is for those to begin who have looked again.
    """
    folder = home / name
    teller = _Teller(folder, listeners)
    outcome = KubesprayOutcome(VerdictWord.UNKNOWN, "nothing of it was begun")
    begun = [path for path in sorted(folder.glob("[0-9][0-9]")) if was_begun(path)]
    for path in begun:
        reader = KubesprayEvents(int(path.name), secrets)
        for event in follow(folder, int(path.name), reader):
            teller.take_new(event)
        outcome = outcome_of(folder, int(path.name), reader)
    left = len(_playbooks(folder)) - len(begun)
    if left > 0 and outcome.word is VerdictWord.PASS:
        outcome = replace(outcome, word=VerdictWord.UNKNOWN, why=f"{left} of its playbooks were not begun")
    teller.end(outcome)
    return outcome


class _Teller:
    """Tells events, and keeps up to where."""

    def __init__(self, folder: Path, listeners: Listeners) -> None:
        self._path, self._listeners = folder / TOLD, listeners
        self.place = str(_told(folder).get("place", ""))
        """Behind it nothing was told so far."""
        self._quiet = 0
        if listeners.logs is not None:
            listeners.logs.mkdir(parents=True, exist_ok=True)

    def take_new(self, event: KubesprayEvent) -> None:
        """As `take`, but for events that were told before."""
        if event.place > self.place:
            self.take(event)

    def take(self, event: KubesprayEvent) -> None:
        """Tell an event, and keep that it was told."""
        match event:
            case TaskDone(task=task, host=host, changed=changed):
                self._of_host(PlayEvent(host, task, "changed" if changed else "ok", ""))
            case TaskFailed(task=task, host=host, message=message, unreachable=unreachable):
                self._of_host(PlayEvent(host, task, "unreachable" if unreachable else "failed", message))
            case Recap():
                pass
            case _:
                self._listeners.tell(in_words(event))
        self.place = event.place
        self._quiet = self._quiet + 1 if isinstance(event, TaskDone) else 0
        if self._quiet % QUIETLY_KEPT == 0:
            self._keep({"place": self.place})

    def end(self, outcome: KubesprayOutcome) -> None:
        """Keep that it has ended, and how."""
        self._keep({"place": self.place, "word": outcome.word.value, "why": outcome.why})

    def _of_host(self, event: PlayEvent) -> None:
        listeners = self._listeners
        if listeners.logs is not None and event.host in listeners.hosts:
            at, said = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), f": {event.said}" if event.said else ""
            with (listeners.logs / f"{event.host}.log").open("a", encoding="utf-8") as file:
                file.write(f"{at} {event.ending:<11} {event.task}{said}\n")
        listeners.hear(event)

    def _keep(self, said: dict[str, str]) -> None:
        with suppress(OSError):  # a full disk holds nothing up: then something is told twice
            write_whole(self._path, json.dumps(said))


def _word(site: KubespraySite, what: str, playbooks: Sequence[KubesprayPlaybook]) -> str:
    """Of an operation's name, behind its number: another content is another word."""
    return f"{_STRANGE.sub('-', what)[:NAME_CHARACTERS]}-{fingerprint_of(site, playbooks)[:FINGERPRINT_CHARACTERS]}"


def _name_for(home: Path, word: str) -> str:
    """Of the newest operation, where it does the same and nobody heard its end; else of a new one."""
    there = list(_operations(home))
    if there and there[-1].name[5:] == word and not _told(there[-1]).get("word"):
        return there[-1].name
    number = int(there[-1].name[:4]) + 1 if there else 1
    return f"{number:04d}-{word}"


def _operations(home: Path) -> Iterator[Path]:
    """Folders of operations that were written down, in the order in which they were begun."""
    with suppress(FileNotFoundError):
        yield from (path for path in sorted(home.iterdir()) if _NAME.fullmatch(path.name) and _playbooks(path))


def _forget_old(home: Path) -> None:
    for path in list(_operations(home))[:-KEPT]:
        if _told(path).get("word"):
            shutil.rmtree(path, ignore_errors=True)


def _told(folder: Path) -> dict[str, str]:
    found = _read(folder / TOLD)
    return (
        {key: str(value) for key, value in cast("dict[str, object]", found).items()} if isinstance(found, dict) else {}
    )


def _playbooks(folder: Path) -> list[object]:
    found = _read(folder / OPERATION)
    return cast("list[object]", found) if isinstance(found, list) else []


def _read(path: Path) -> object:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
