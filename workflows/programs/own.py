"""Where these programs were started from, so that one can start another, and where they say how they ended."""

from __future__ import annotations

import os
import sys
from typing import List, Mapping

PROGRAMS = os.path.dirname(os.path.abspath(__file__))
"""Their folder; in the archive where they run from one, from which Python can import all the same."""
_ROOT = os.path.dirname(os.path.dirname(PROGRAMS))

TERMINATION_LOG = "/dev/termination-log"
"""Kubernetes puts a file there; outside of a pod there is none, and none is made."""


def termination_log(environment: Mapping[str, str]) -> str:
    """Path of the termination message; "": nobody reads one."""
    return environment.get("PRIMUS_TERMINATION_LOG", "") or (TERMINATION_LOG if os.path.exists(TERMINATION_LOG) else "")


def archive_path() -> str:
    """The archive that this program was started from; "" where it runs from folders."""
    return _ROOT if os.path.isfile(_ROOT) else ""


def command(subcommand: str) -> List[str]:
    """Arguments that start a subcommand of the same programs with the same Python, apart from the environment's."""
    archive = archive_path()
    where = archive or os.path.join(_ROOT, "workflows", "programs", "main.py")
    return [sys.executable, "-I", "-S", where, subcommand]
