"""Defaults of a home in a file: `config.toml` says what the environment leaves open, and flags outrank both.

It is read at the edge of each of our processes and becomes part of the environment, so whoever is started knows it too.
The file lies in the home, `PRIMUS_HOME/config.toml`, since two homes never see each other; `PRIMUS_CONFIG` names
another one, which alone may say where the home is.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

from profiles.errors import ProfileError
from profiles.values import did_you_mean
from profiles.vocabulary import Mode

CONFIG = "PRIMUS_CONFIG"
NAME = "config.toml"
MAX_BYTES = 1 << 16


@dataclass(frozen=True)
class Key:
    """A line of the file."""

    variable: str
    """Of the environment, for which it is the default."""
    meaning: str
    path: bool = False
    """It is one, or may be: relative to the file's folder, `~` is the user's home."""
    secret: bool = False
    """It may hold a password, and is shown nowhere."""
    words: tuple[str, ...] = ()
    """It must be one of these; empty: whoever uses it checks it."""


KEYS: Mapping[str, Key] = {
    "home": Key("PRIMUS_HOME", "where all state lives; only in a file that PRIMUS_CONFIG names", path=True),
    "cluster": Key("PRIMUS_CLUSTER", "the cluster profile where no --cluster is given: a name, or a path", path=True),
    "ledger_url": Key("PRIMUS_LEDGER_URL", "SQLAlchemy URL of the ledger", secret=True),
    "token_file": Key("PRIMUS_TOKEN_FILE", "the file with the token of our HTTP endpoints", path=True),
    "prefect_api_url": Key("PREFECT_API_URL", "the Prefect server, where it is not the home's own"),
    "kubeconfig": Key("KUBECONFIG", "the file with the contexts of Kubernetes", path=True),
    "mode": Key("PRIMUS_MODE", "observe, ask or act of new runs, where no --mode is given", words=tuple(Mode)),
    "owner": Key("PRIMUS_OWNER", "whose new runs are, where no --owner is given"),
}
_taken: dict[str, str] = {}
"""What this process took from the file, by variable."""


def config_file(environ: Mapping[str, str]) -> str:
    """Path of the file, whether or not it is there; "": nobody says where a home is."""
    named = environ.get(CONFIG, "")
    home = environ.get("PRIMUS_HOME", "") or (f"{environ['HOME']}/.primus" if environ.get("HOME") else "")
    return os.path.abspath(os.path.expanduser(named or f"{home}/{NAME}")) if named or home else ""


def read_config(environ: MutableMapping[str, str]) -> None:
    """Set each variable that the file says and that is not set. Safe to repeat; no file sets nothing.

    Raises:
        ProfileError: the file cannot be read, or says something that it cannot; key and file are named.
    """
    path = config_file(environ)
    for name, value in _said(path, named=bool(environ.get(CONFIG))).items():
        variable = KEYS[name].variable
        if not environ.get(variable):
            environ[variable] = _taken[variable] = value


def origin(variable: str, environ: Mapping[str, str]) -> str:
    """Where the value of a variable comes from: `environment`, `file` or `built-in`."""
    value = environ.get(variable, "")
    return "built-in" if not value else "file" if _taken.get(variable) == value else "environment"


def _said(path: str, *, named: bool) -> dict[str, str]:
    """What the file says, as its variables hold it."""
    try:
        with open(path, "rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        if not named and isinstance(error, FileNotFoundError | NotADirectoryError):
            return {}
        raise ProfileError(CONFIG if named else NAME, f"cannot read {path}: {error.strerror}") from error
    try:
        said = tomllib.loads(raw.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ProfileError(NAME, f'is no TOML, which is written as cluster = "local": {error}', path) from error
    return {name: _checked(name, value, path, named=named) for name, value in said.items()}


def _checked(name: str, value: Any, path: str, *, named: bool) -> str:
    key = KEYS.get(name)
    if key is None:
        raise ProfileError(name, "no such key" + did_you_mean(name, KEYS, "keys"), path)
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise ProfileError(name, f"must be text in quotes, not empty; got {value!r}", path)
    if key.words and value not in key.words:
        raise ProfileError(name, f"{value!r} is unknown{did_you_mean(value, key.words, 'words')}", path)
    if name == "home" and not named:
        raise ProfileError(name, f"cannot be said in a home's own file: say it in one that {CONFIG} names", path)
    if not key.path or (name == "cluster" and "/" not in value and not value.endswith((".yaml", ".yml"))):
        return value
    return os.path.normpath(os.path.join(os.path.dirname(path), os.path.expanduser(value)))
