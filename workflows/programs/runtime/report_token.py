"""Tokens of our programs: the one that controls, and the one with which the ranks of one pod may report their progress.

Both are read from files: what stands in an environment is printed by `env`, by traces and by every child.
"""

from __future__ import annotations

import contextlib
import os
from typing import Generator, Mapping, MutableMapping

from workflows.programs.runtime import flags

VARIABLE = "PRIMUS_REPORT_TOKEN_FILE"
SECRETS = ("PRIMUS_TOKEN", "PRIMUS_TOKEN_FILE", "PRIMUS_FOLDER_TOKEN", "PRIMUS_REPORT_TOKEN")
"""Of an environment: no child of ours gets these."""


def token_from(environment: Mapping[str, str]) -> str:
    """The token that controls, of PRIMUS_TOKEN or the file that PRIMUS_TOKEN_FILE names; "" where none is given.

    Raises:
        flags.UsageError: the file cannot be read, or it is no token.
    """
    token, path = environment.get("PRIMUS_TOKEN", ""), environment.get("PRIMUS_TOKEN_FILE", "")
    where = "PRIMUS_TOKEN"
    if not token and path:
        where = "PRIMUS_TOKEN_FILE"
        try:
            with open(path, encoding="ascii") as file:
                token = file.read().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise flags.UsageError(f"PRIMUS_TOKEN_FILE: {path} cannot be read: {error}") from error
        if not token:
            raise flags.UsageError(f"PRIMUS_TOKEN_FILE: {path} is empty")
    if token and (not token.isascii() or not token.isprintable() or " " in token):
        raise flags.UsageError(f"{where}: is no token: use printable ASCII without spaces")
    return token


def forget_secrets(environment: MutableMapping[str, str]) -> None:
    """Take our secrets out of this process' environment, once they were read: children inherit the rest."""
    for name in SECRETS:
        environment.pop(name, None)


@contextlib.contextmanager
def kept(token: str) -> Generator[str, None, None]:
    """Path of a file that holds the token, for its owner only, in the pod's own /tmp; gone afterwards.

    "" where there is no token, or nowhere to write it: then nobody reports by himself, and training goes on.
    """
    folder = os.path.join(os.environ.get("TMPDIR") or "/tmp", f"primus-{os.getpid()}-{os.urandom(8).hex()}")  # noqa: S108
    path = os.path.join(folder, "report-token")
    try:
        yield path if token and _written(folder, path, token) else ""
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)
        with contextlib.suppress(OSError):
            os.rmdir(folder)


def _written(folder: str, path: str, token: str) -> bool:
    try:
        os.mkdir(folder, 0o700)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(token)
    except OSError:
        return False
    return True


def report_token(token: str, role: str, pod_index: int) -> str:
    """The token by which a pod's ranks report progress; derived from the attempt's token, so nobody has to store it."""
    import hashlib  # not everybody who reads this module makes one
    import hmac

    return hmac.new(token.encode(), f"report:{role}:{pod_index}".encode("utf-8", "replace"), hashlib.sha256).hexdigest()


def same(one: str, other: str) -> bool:
    """Whether two tokens are equal, in a time that tells nothing; an empty one never is."""
    import hmac

    return bool(one) and hmac.compare_digest(one.encode("utf-8", "replace"), other.encode("utf-8", "replace"))
