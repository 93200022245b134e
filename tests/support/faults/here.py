"""The programs of a made-up node within the test's process: a process of Python for each probe takes most of the time.

Everything is run as in processes: the program's `main`, its threads, the node's tools, `main` of each probe with its
flags, the environment. Only the process of a probe is none: what it prints and how it ends is handed to whoever waits
for it.
"""

from __future__ import annotations

import builtins
import contextlib
import os
import threading
from collections.abc import Generator, Mapping, Sequence
from typing import Any, TextIO
from unittest.mock import patch

from tests.support.faults.stand_ins import MadeUp, StandIn, answer_of, stand_ins
from workflows.programs import main
from workflows.programs.probes import call, one
from workflows.programs.probes import run as probes_run
from workflows.programs.runtime.bounded import Ended, run_program


class ProgramsHere:
    """The programs of one node.

    Args:
        made_up: what differs from this machine.
        root: folder of the node's files.
    """

    def __init__(self, made_up: MadeUp, root: str) -> None:
        self._made_up, self._root = made_up, root
        self._printed = threading.local()

    def run(self, argv: Sequence[str], environment: Mapping[str, str]) -> str:
        """What the program prints.

        Raises:
            AssertionError: it does not end well.
        """
        own = [
            *stand_ins(self._made_up, self._root),
            (call, "run_program", self._run_program),
            (probes_run, "print", self._print),
            (one, "print", self._print),
        ]
        with patch.dict(os.environ, environment, clear=True), replaced(own):
            code, text = self._main(argv)
        assert code == 0, text
        return text

    def _main(self, argv: Sequence[str]) -> tuple[int, str]:
        self._printed.text = ""
        return main.main(list(argv)), self._printed.text

    def _print(self, *words: object, file: TextIO | None = None, flush: bool = False) -> None:
        self._printed.text += " ".join(map(str, words)) + "\n"

    def _run_program(self, argv: Sequence[str], seconds: float, **how: Any) -> Ended:
        if argv[2:3] != ["probe-one"]:
            return run_program(argv, seconds, **how)
        answer = answer_of(self._made_up, argv[2:])
        if not answer:
            return Ended(*self._main(argv[2:]))
        if answer["hangs"]:
            return Ended(None, answer["text"], problem=f"{how['name']} did not end within {seconds:g} s")
        return Ended(-answer["signal"] or answer["code"], answer["text"])


@contextlib.contextmanager
def replaced(stand_ins: Sequence[StandIn]) -> Generator[None]:
    """Stand-ins in their places; afterwards everything is as it was."""
    before = [(where, name, getattr(where, name, builtins)) for where, name, _ in stand_ins]
    try:
        for where, name, instead in stand_ins:
            setattr(where, name, instead)
        yield
    finally:
        for where, name, known in before:
            if known is builtins:  # only the built-in one was there
                delattr(where, name)
            else:
                setattr(where, name, known)
