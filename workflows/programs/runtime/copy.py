"""Brings the program archive into a pod: run by an init container, from the programs' image into a shared folder.

    primus-programs copy --to=/primus/programs

The archive appears whole or not at all.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import List, Sequence

from workflows.programs.runtime import flags
from workflows.programs.runtime.files import archive_path

NAME = "programs.pyz"
BLOCK_BYTES = 1024 * 1024


@dataclass(frozen=True)
class Options(flags.Flags):
    """Where to copy to."""

    to: str
    """Folder; it is made where it does not exist."""


def parse(argv: Sequence[str]) -> Options:
    """The options in `argv`.

    Raises:
        flags.UsageError: names the flag, what is wrong and what would be right.
    """
    options = flags.from_argv(Options, argv)
    if not options.to:
        raise flags.UsageError("--to: must name a folder, got nothing; is the folder's variable set?")
    return options


def copy(source: str, folder: str) -> str:
    """Copy the file `source` into `folder` as `programs.pyz`, readable by every user; the new path.

    Raises:
        OSError: the source cannot be read or the folder cannot be written.
    """
    os.makedirs(folder, exist_ok=True)
    final = os.path.join(folder, NAME)
    unfinished = os.path.join(folder, f".{NAME}.{os.getpid()}")
    try:
        with open(source, "rb") as reader, open(unfinished, "wb") as writer:
            while True:
                block = reader.read(BLOCK_BYTES)
                if not block:
                    break
                writer.write(block)
            writer.flush()
            # Ranks may run as another user than the init container.
            os.fchmod(writer.fileno(), 0o755)
        os.replace(unfinished, final)
    except OSError:
        if os.path.exists(unfinished):
            os.unlink(unfinished)
        raise
    return final


@flags.program("copy")
def main(argv: List[str]) -> int:
    """Copy this program's own archive."""
    options = parse(argv)
    source = archive_path()
    if not source:
        print("copy: this program does not run from an archive; start it as python3 programs.pyz copy", file=sys.stderr)
        return 2
    try:
        path = copy(source, options.to)
    except OSError as error:
        print(f"copy: {error.filename or options.to}: {error.strerror}", file=sys.stderr, flush=True)
        return 1
    print(f"copy: {path}", flush=True)
    return 0
