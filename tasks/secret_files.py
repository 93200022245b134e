"""Secrets that our processes get by files, `NAME_FILE` for `NAME`: an environment is shown by `env`, `/proc` and tools.

`python -m tasks.secret_files MODULE WORDS…` starts one of our modules with what its files hold. They are read before
anything is imported, since Prefect reads its settings while it is imported, and stand in the memory of that process
alone: the environment with which it was started, which others see, has none of them.
"""

from __future__ import annotations

import os
import runpy
import secrets
import sys
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from profiles.errors import ProfileError

NAMES = (
    "PRIMUS_LEDGER_URL",
    "PREFECT_API_AUTH_STRING",
    "PREFECT_SERVER_API_AUTH_STRING",
    "PREFECT_SERVER_DATABASE_CONNECTION_URL",
    "PREFECT_API_DATABASE_CONNECTION_URL",
)
"""Variables that hold a password, or may. PRIMUS_TOKEN has a file of its own kind and never goes to a child."""
FOLDER, ONCE, STARTER = "secrets", ".once", "tasks.secret_files"
"""Of a home; how files end that whoever is started removes as soon as he has read them; this module."""


def read_secret_files(environ: MutableMapping[str, str]) -> None:
    """Set each variable whose file is named and that is not set itself; an empty file sets nothing. Safe to repeat.

    Raises:
        ProfileError: a file cannot be read.
    """
    for name in NAMES:
        path = environ.get(f"{name}_FILE", "")
        if not path or environ.get(name):
            continue
        try:
            value = Path(path).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ProfileError(f"{name}_FILE", f"cannot read {path}: {error}") from error
        if path.endswith(ONCE):
            Path(path).unlink(missing_ok=True)
            del environ[f"{name}_FILE"]
        if value:
            environ[name] = value


def by_files(home: Path, module: str, environment: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """Command and environment that start a module of ours once, with each secret in a file that it removes.

    Raises:
        OSError: the home cannot be written.
    """
    named = {name: environment[name] for name in NAMES if environment.get(name)}
    if not named:
        return [sys.executable, "-m", module], dict(environment)
    others = {name: value for name, value in environment.items() if name not in NAMES}
    files = {f"{name}_FILE": _file(home, name, value) for name, value in named.items()}
    return [sys.executable, "-m", STARTER, module], {**others, **files}


def _file(home: Path, name: str, value: str) -> str:
    folder = home / FOLDER
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / f"{name.lower()}-{secrets.token_hex(8)}{ONCE}"
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(value)
    return str(path)


def main() -> None:
    """Read the files, then be the module that is named."""
    try:
        read_secret_files(os.environ)
    except ProfileError as error:
        sys.exit(str(error))
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
