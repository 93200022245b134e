"""The token of an attempt: no rank and no coordinator starts without its Secret, and the coordinator answers to it."""

from __future__ import annotations

import secrets
from base64 import b64decode
from collections.abc import Callable

from profiles.errors import PrimusError
from tasks.cluster import Cluster, Manifest
from tasks.ownership import our_ledger
from workflows import labels
from workflows.ownership import refuse_foreign, signed
from workflows.records import AttemptRecord


def ensure_token(cluster: Cluster, attempt: AttemptRecord) -> None:
    """The Secret without which nothing of the attempt starts.

    Raises:
        Foreign: the one of that name belongs to another ledger.
        Unavailable, Refused.
    """
    name, ledger = labels.secret_name(attempt.run, attempt.number), our_ledger()
    found = cluster.get("Secret", name)
    refuse_foreign(found, ledger)
    if found is None:
        secret: Manifest = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "labels": labels.labels(attempt.run, attempt.number, "train")},
            "type": "Opaque",
            "stringData": {"token": secrets.token_urlsafe(32)},
        }
        cluster.apply(signed(secret, ledger))


def attempt_token(cluster: Cluster, attempt: AttemptRecord) -> str:
    """The coordinator's token of an attempt; "" where its Secret is not there."""
    secret = cluster.get("Secret", labels.secret_name(attempt.run, attempt.number))
    data = (secret or {}).get("data", {}).get("token", "")
    return b64decode(data).decode() if data else str((secret or {}).get("stringData", {}).get("token", ""))


class Remembered:
    """A text asked for until it is there, then remembered."""

    def __init__(self, ask: Callable[[], str]) -> None:
        self._ask, self._text = ask, ""

    def __call__(self) -> str:
        """The text, "" while nobody tells it."""
        if not self._text:
            try:
                self._text = self._ask()
            except PrimusError:
                return ""
        return self._text
