"""The command line: each command is a function in the module of its group, imported when it is asked for.

Exit codes: 0 done and good; 1 the work itself failed; 2 wrong usage or an invalid profile, nothing was changed;
3 could not find out; 130 interrupted.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence

from deployments.exit_codes import hold_streams, out, shown
from profiles.errors import ProfileError


def main() -> None:
    """Entry point of `primus`."""
    hold_streams()
    if sys.argv[1:2] == ["__complete"] and len(sys.argv) > 3:
        from deployments.screen.candidates import answer

        sys.exit(answer(sys.argv[2], sys.argv[3:]))
    sys.exit(_run())


def _run() -> int:
    with shown() as outcome:
        if sys.argv[1:] == ["--version"]:
            from importlib.metadata import version

            out(f"primus {version('primus-flows')}")
            return 0
        from typer.main import get_group

        from deployments.cli.app import app
        from tasks.addresses import prepare

        refuse_no_words(sys.argv[1:])
        prepare(os.environ)

        code = get_group(app).main(prog_name="primus", standalone_mode=False, obj=outcome)
        outcome.code = code if isinstance(code, int) else 0
    return outcome.code


def refuse_no_words(words: Sequence[str]) -> None:
    """Names, reasons and values are text and stand in the ledger; only a file that is there may be called anything.

    Empty words come from empty variables of a shell: `--run "$RUN"` would show the runs of everybody.

    Raises:
        ProfileError: an argument is empty, or no text in the encoding of this machine.
    """
    for place, word in enumerate(words):
        if word == "--":
            return
        if re.fullmatch("(--[a-z-]+=)?", word):
            before = word[:-1] or words[place - 1] if word or place else ""
            field = before if before.startswith("-") else f"argument {place + 1}"
            raise ProfileError(field, "is empty: leave it out, or give it a value")
        if not word.isprintable() and any("\ud800" <= mark <= "\udfff" for mark in word) and not os.path.lexists(word):
            raise ProfileError(ascii(word), f"is no text in {sys.getfilesystemencoding()}: write it anew")


if __name__ == "__main__":
    main()
