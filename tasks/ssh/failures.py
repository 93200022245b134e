"""How an SSH client failed, by what it said and how it ended: one kind, one sentence with what to do."""

from __future__ import annotations

from dataclasses import dataclass

from tasks.ssh.host_program import TOO_OLD, TOO_OLD_CODE
from workflows.model.host_sight import LookFailure
from workflows.programs.runtime.text import uncoloured

SAID_CHARACTERS = 300
SSH_CODE = 255
"""Of OpenSSH's client where it, and not the command, failed."""
NOT_FOUND_CODE = 127


@dataclass(frozen=True)
class Way:
    """By which way a host was asked, for sentences."""

    where: str
    """Address and port."""
    user: str
    known_hosts: str
    """Path of the file with the hosts' keys."""
    connect_seconds: float
    python: str


def failure_of(way: Way, said: str, code: int | None) -> tuple[LookFailure, str]:
    """The kind and the sentence, from what the client wrote to standard error and its exit code; None: it was ended.

    What is said is the client's own only where the client itself failed: else it is of what ran on the host.
    """
    kind = _by_words(said) if code in (SSH_CODE, None) else None
    if kind is None and code == TOO_OLD_CODE and TOO_OLD in said:
        kind = LookFailure.NO_PYTHON
    if kind is None and code == NOT_FOUND_CODE:
        kind = LookFailure.NO_PYTHON
    kind = kind or LookFailure.LOST
    return kind, _sentence(kind, way, said, code)


_WORDS: tuple[tuple[str, LookFailure], ...] = (
    ("remote host identification has changed", LookFailure.HOST_KEY_CHANGED),
    ("host key is known for", LookFailure.HOST_KEY_UNKNOWN),
    ("host key verification failed", LookFailure.HOST_KEY_UNKNOWN),
    ("permission denied (", LookFailure.PERMISSION_DENIED),
    ("too many authentication failures", LookFailure.PERMISSION_DENIED),
    ("could not resolve hostname", LookFailure.UNRESOLVED),
    ("connection refused", LookFailure.REFUSED),
    ("no route to host", LookFailure.UNREACHABLE),
    ("network is unreachable", LookFailure.UNREACHABLE),
    ("timed out", LookFailure.UNREACHABLE),
    ("banner exchange", LookFailure.UNREACHABLE),
)
"""In this order: what a changed key makes ssh say names other things too."""


def _by_words(said: str) -> LookFailure | None:
    lower = said.lower()
    return next((kind for words, kind in _WORDS if words in lower), None)


def _sentence(kind: LookFailure, way: Way, said: str, code: int | None) -> str:
    where, file, python = way.where, way.known_hosts, way.python
    look = "on the host's console with `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub`"
    found = next((line for line in said.splitlines() if TOO_OLD in line), "").removeprefix(TOO_OLD).strip()
    lost = f"the connection to {where} ended" + (f" with {code}" if code is not None else "")
    sentences = {
        LookFailure.HOST_KEY_CHANGED: f"the key of {where} is another than the one in {file}: find out why (a "
        f"host set up anew, or another one at its address), compare it {look}, only then remove the old line",
        LookFailure.HOST_KEY_UNKNOWN: f"the key of {where} is not in {file}: compare it {look}, then add it",
        LookFailure.PERMISSION_DENIED: f"{where} does not let {way.user} in: look at the user and private_key_file",
        LookFailure.UNRESOLVED: f"the name of {where} cannot be resolved here",
        LookFailure.REFUSED: f"{where} refuses the connection: no SSH server listens there",
        LookFailure.UNREACHABLE: f"{where} does not answer within {way.connect_seconds:g} s, or there is no way to it",
        LookFailure.NO_PYTHON: (
            f"its {python} is {found}: 3.9 or later is needed"
            if found
            else f"it has no {python}: install Python 3.9 or later"
        ),
        LookFailure.LOST: f"{lost}: {short(said) or 'it said nothing'}",
    }
    return sentences[kind]


def short(text: str) -> str:
    """The end of what was said, in one line that no terminal obeys."""
    said = " ".join(uncoloured(text).split())
    return said if len(said) <= SAID_CHARACTERS else f"… {said[-SAID_CHARACTERS:]}"
