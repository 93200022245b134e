"""Which commands a fork of a Python process can carry out: read from the command alone."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import List, Optional, Sequence, Tuple

_PYTHON = re.compile(r"python(3(\.\d+)?)?")
_FLAGS = frozenset("bBdEIOPqsSu")
"""Options of the interpreter that a parked process can be started with as well."""
_WITH_VALUE = frozenset("WX")


@dataclass(frozen=True)
class Program:
    """A command that a fork of a Python process can carry out."""

    interpreter: str
    options: Tuple[str, ...]
    """Of the interpreter."""
    name: str
    """Script, archive or folder as it was named; or module."""
    module: bool
    arguments: Tuple[str, ...]


def forkable(command: Sequence[str]) -> Optional[Program]:
    """How a command can be forked; None: it is no Python script or module, or its options are not known here."""
    if not command or not _PYTHON.fullmatch(os.path.basename(command[0])):
        return None
    words = list(command[1:])
    options: List[str] = []
    while words:
        word = words.pop(0)
        if not word.startswith("-"):
            return None if word.endswith(".pyc") or not word else _program(command[0], options, word, False, words)
        taken = _option(word, words)
        if taken is None:
            return None
        mine, module = taken
        options += mine
        if module:
            return _program(command[0], options, module, True, words)
    return None


def _program(interpreter: str, options: List[str], name: str, module: bool, arguments: List[str]) -> Program:
    return Program(interpreter, tuple(options), name, module, tuple(arguments))


def _option(word: str, words: List[str]) -> Optional[Tuple[List[str], str]]:
    """One word of options, as the interpreter reads it: what is kept of it, and the module it names; None: unknown."""
    letters = word[1:]
    for place, letter in enumerate(letters):
        if letter in _FLAGS:
            continue
        before, rest = letters[:place], letters[place + 1 :]
        if letter not in _WITH_VALUE and letter != "m":
            return None
        if not rest and not words:
            return None
        value = rest or words.pop(0)
        kept = [f"-{before}"] if before else []
        return (kept, value) if letter == "m" else ([*kept, f"-{letter}{value}"], "")
    return ([word], "") if letters else None
