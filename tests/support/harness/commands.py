"""Commands of `primus` in the test's own process: for those that start nothing, and whose own were mostly imports."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from unittest import mock

from deployments.cli.main import main


def primus_here(
    *words: str, given: str = "", environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """What `primus` with these words says, and its exit code, as if it had been a process.

    Args:
        words: after `primus`.
        given: its standard input.
        environment: beside this process' own.
    """
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["primus", *words]),
        mock.patch.object(sys, "stdin", io.StringIO(given)),
        mock.patch.dict(os.environ, environment or {}),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as end:
            code = end.code
        else:
            raise AssertionError("the command line ends with an exit code")
    assert isinstance(code, int), code
    return subprocess.CompletedProcess(["primus", *words], code, out.getvalue(), err.getvalue())
