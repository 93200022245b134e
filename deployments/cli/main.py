"""The command line: each command is a function in the module of its group, imported when it is asked for.

Exit codes: 0 done and good; 1 the work itself failed; 2 wrong usage or an invalid profile, nothing was changed;
3 could not find out; 130 interrupted.
"""

from __future__ import annotations

import os
import sys

from deployments.exit_codes import shown

NOT_BUILT = {
    "bootstrap": "setting a cluster up",
}
"""Commands promised and not built yet; each says so in one line and exits 2."""


def main() -> None:
    """Entry point of `primus`."""
    words = [word for word in sys.argv[1:] if not word.startswith("-")]
    if words and words[0] in NOT_BUILT:
        sys.stderr.write(f"primus {words[0]}: {NOT_BUILT[words[0]]} is not built yet\n")
        sys.exit(2)
    sys.exit(_run())


def _run() -> int:
    with shown() as outcome:
        from typer.main import get_group

        from deployments.cli.app import app
        from tasks.addresses import prepare

        prepare(os.environ)

        code = get_group(app).main(prog_name="primus", standalone_mode=False)
        outcome.code = code if isinstance(code, int) else 0
    return outcome.code


if __name__ == "__main__":
    main()
