"""What may stand at the cursor of a shell, without importing more than a tree of words: a key must answer at once.

`completion.json` beside this module has that tree, made of the parser itself (`make golden`). Names of runs, nodes and
questions come from the ledger, which is asked for a fifth of a second; where it does not answer there are none.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import sqlite3
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TREE = Path(__file__).with_name("completion.json")
ASKED_SECONDS = 0.2
MOST = 500
"""Names of a kind, the newest first: nobody reads more."""
FILES = "\t"
"""The line by which a shell is told that files may be named too."""
QUERIES = {
    "runs": "SELECT name FROM runs ORDER BY created_at DESC",
    "nodes": "SELECT node FROM node_states UNION "
    "SELECT node FROM (SELECT node FROM verdicts ORDER BY seq DESC LIMIT 9999) AS newest",
    "approvals": "SELECT id FROM approvals WHERE state = 'waiting' ORDER BY asked_at DESC",
}
_PLAIN = re.compile(r"[\w./:@%+=,-]+")
"""A word that no shell reads as anything else."""
Json = dict[str, Any]
Names = Callable[[str], Sequence[str]]


@dataclass
class Candidates:
    """Words that may stand there, with what each is."""

    words: dict[str, str] = field(default_factory=dict[str, str])
    files: bool = False


def candidates(words: Sequence[str], current: str, tree: Json, names: Names) -> Candidates:
    """What may stand for `current`, of which a beginning is typed, behind the whole `words`."""
    command, rest = tree, list(words)
    while rest and "commands" in command:
        command = command["commands"].get(rest.pop(0), {})
    if "commands" in command:
        return _beginning(current, {name: one["help"] for name, one in command["commands"].items()})
    if not command or "--" in rest:
        return Candidates()
    options: Json = command["options"]
    before, waiting = _read(rest, options)
    if waiting is not None:
        return _of_kind(waiting, current, tree, names)
    if current.startswith("-"):
        return _option(current, options, rest, tree, names)
    kinds = command["arguments"]
    if before >= len(kinds) and not command.get("many"):
        return Candidates()
    return _of_kind(kinds[min(before, len(kinds) - 1)], current, tree, names) if kinds else Candidates()


def _read(words: Sequence[str], options: Json) -> tuple[int, str | None]:
    """How many arguments stand among the words of a command, and the kind of the option that waits for its value."""
    before, waiting = 0, None
    for word in words:
        if waiting is not None:
            waiting = None
        elif len(word) > 1 and word.startswith("-"):
            waiting = options.get(word, {}).get("kind")
        else:
            before += 1
    return before, waiting


def _option(current: str, options: Json, words: Sequence[str], tree: Json, names: Names) -> Candidates:
    name, equals, begun = current.partition("=")
    if equals:
        found = _of_kind(options.get(name, {}).get("kind", ""), begun, tree, names)
        return Candidates({f"{name}={word}": told for word, told in found.words.items()}, found.files)
    used = {word.partition("=")[0] for word in words}
    return _beginning(
        current, {name: one["help"] for name, one in options.items() if one.get("again") or name not in used}
    )


def _of_kind(kind: str, current: str, tree: Json, names: Names) -> Candidates:
    found: Json = tree["kinds"].get(kind) or {}
    begun, comma, last = current.rpartition(",") if found.get("list") else ("", "", current)
    known = dict.fromkeys([*found.get("words", ()), *(names(found["names"]) if "names" in found else ())], "")
    made = _beginning(last, known)
    return Candidates({f"{begun}{comma}{word}": "" for word in made.words}, found.get("files", False))


def _beginning(current: str, known: dict[str, str]) -> Candidates:
    return Candidates(
        {word: told for word, told in known.items() if word.startswith(current) and _PLAIN.fullmatch(word)}
    )


def names_of(what: str) -> list[str]:
    """Names that this home's ledger knows; of nodes, those of its embedded clusters too."""
    home = Path(os.environ.get("PRIMUS_HOME") or "~/.primus").expanduser()
    found = list[str]()
    signal.signal(signal.SIGALRM, _too_long)
    signal.setitimer(signal.ITIMER_REAL, ASKED_SECONDS)
    with suppress(Exception):  # whatever it is: a key that is pressed has no place to say why
        found += _asked(home, QUERIES[what])
    signal.setitimer(signal.ITIMER_REAL, 0)
    if what == "nodes":
        found += [path.name.removesuffix(".json") for path in home.glob("clusters/*/objects/Node/*")]
    return list(dict.fromkeys(found))[:MOST]


def _too_long(_number: int, _frame: object) -> None:
    raise TimeoutError


def _asked(home: Path, query: str) -> list[str]:
    url = os.environ.get("PRIMUS_LEDGER_URL", "")
    if not url and (path := os.environ.get("PRIMUS_LEDGER_URL_FILE")):
        url = Path(path).read_text(encoding="utf-8").strip()
    if url.startswith("postgresql"):
        import psycopg  # only where the ledger is there

        with psycopg.connect(re.sub(r"^postgresql\+\w+:", "postgresql:", url)) as connection:
            return [name for (name,) in connection.execute(f"{query} LIMIT {MOST}".encode())]
    file = url.removeprefix("sqlite:///") or str(home / "ledger.sqlite")
    with closing(sqlite3.connect(f"{Path(file).as_uri()}?mode=ro", uri=True, timeout=0.1)) as database:
        deadline = time.monotonic() + ASKED_SECONDS
        database.set_progress_handler(lambda: time.monotonic() > deadline, 10_000)  # no signal is heard meanwhile
        return [name for (name,) in database.execute(f"{query} LIMIT {MOST}")]


def answer(shell: str, words: Sequence[str]) -> int:
    """Print the candidates for the last word, as the script of a shell reads them: a line each.

    Bash gives its line as one word, since it breaks words at `=` and `:`; it wants what stands behind the last break.
    """
    before, current = _bash_words(words[0]) if shell == "bash" else (list(words[:-1]), words[-1])
    with suppress(OSError, ValueError, KeyError):
        found = candidates(before, current, json.loads(TREE.read_bytes()), names_of)
        behind = max(current.rfind("="), current.rfind(":")) + 1 if shell == "bash" else 0
        for word, told in found.words.items():
            sys.stdout.write(f"{word[behind:]}\t{told}\n" if told and shell != "bash" else f"{word[behind:]}\n")
        sys.stdout.write(f"{FILES}\n" if found.files else "")
        sys.stdout.flush()
    return 0


def _bash_words(line: str) -> tuple[list[str], str]:
    for closed in (line, f"{line}'", f'{line}"'):
        with suppress(ValueError):
            words = shlex.split(closed)[1:]
            return (words, "") if closed == line and line[-1:].isspace() else (words[:-1], words[-1] if words else "")
    return [], ""
