"""What was asked of the API server and by whom, as its audit log tells."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tests.bed.api import Manifest
from tests.bed.up import Bed

READS = frozenset({"get", "list", "watch"})
CREATED = 201


@dataclass(frozen=True)
class Write:
    """One request that was to change something, whatever was answered."""

    user: str
    verb: str
    resource: str
    namespace: str
    """"": it is in none."""
    name: str
    code: int


class Writes:
    """Writes of some accounts since this was made."""

    def __init__(self, bed: Bed, namespaces: tuple[str, ...]) -> None:
        """Of every service account of these namespaces."""
        self._path = bed.folder.audit
        self._users = tuple(f"system:serviceaccount:{name}:" for name in namespaces)
        self._begin = self._path.stat().st_size

    def seen(self) -> list[Write]:
        """All of them, the oldest first."""
        with self._path.open("rb") as file:
            file.seek(self._begin)
            lines = [line for line in file if line.endswith(b"\n")]
        found = [self._write(json.loads(line)) for line in lines]
        return [write for write in found if write is not None]

    def _write(self, event: Manifest) -> Write | None:
        user, verb = event["user"]["username"], event["verb"]
        if event["stage"] != "ResponseComplete" or verb in READS or not user.startswith(self._users):
            return None
        about: Manifest = event.get("objectRef") or {}
        where, name = about.get("namespace", ""), about.get("name", "")
        return Write(user, verb, about.get("resource", ""), where, name, event["responseStatus"]["code"])


PRODUCT = ("primus-flows", "argoexec/", "kubectl/")
"""How our programs, Argo's in our pods, and people call themselves. What tests ask by hand says no name."""


@dataclass(frozen=True)
class Use:
    """A right that a request needed and had."""

    account: str
    group: str
    """"" for the core group."""
    resource: str
    """With its subresource."""
    verb: str


def used(bed: Bed, accounts: Mapping[str, str]) -> set[Use]:
    """Rights that accounts used since the bed is up; logs that were put away are read too.

    Args:
        bed: the bed.
        accounts: by name of the account: its namespace; "" for any.
    """
    names = [f":{name}" for name in accounts]
    found: set[Use] = set()
    for path in sorted(bed.folder.logs.glob("audit*.log")):
        with path.open(encoding="utf-8", errors="replace") as lines:
            # Every other line is some controller's: parsing them all takes minutes.
            ours = (line for line in lines if line.endswith("\n") and any(name in line for name in names))
            for line in ours:
                found |= _uses(json.loads(line), accounts)
    return found


def _uses(event: Manifest, accounts: Mapping[str, str]) -> set[Use]:
    about: Manifest = event.get("objectRef") or {}
    told: Manifest = event.get("annotations") or {}
    answered: Manifest = event.get("responseStatus") or {}
    _, _, who = event["user"].get("username", "").partition("system:serviceaccount:")
    space, _, account = who.partition(":")
    known = account in accounts and accounts[account] in ("", space)
    allowed = told.get("authorization.k8s.io/decision") == "allow"
    if not known or not allowed or not about or not event.get("userAgent", "").startswith(PRODUCT):
        return set()
    resource = "/".join(about[key] for key in ("resource", "subresource") if about.get(key))
    one = Use(account, about.get("apiGroup", ""), resource, event["verb"])
    # A server-side apply of what is not there yet is called a patch, and asked for `create` as well.
    made = event["verb"] == "patch" and answered.get("code") == CREATED
    return {one, replace(one, verb="create")} if made else {one}
