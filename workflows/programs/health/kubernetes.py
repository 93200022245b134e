"""Holds of nodes by the node daemon, through the Kubernetes API.

Before a deep test a node is checked, held, and checked again: without the hold the scheduler might bind a pod between
the check and the test, and the second check finds a pod that was bound before the hold. Only an idle node is held, and
each hold has an end.
"""

from __future__ import annotations

import re
import time
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import Callable, Generator, List, Optional, Protocol, cast
from urllib.parse import quote

from workflows.programs.runtime.kubernetes_api import Api, ApiError, Json

TAINT = "primus-flows.io/hold"
UNTIL = "primus-flows.io/hold-until"
TRIES = 5
"""Others patch nodes, too: the kubelet and the autoscaler every few seconds."""


def node_path(node: str) -> str:
    """Path of a node's object."""
    return f"/api/v1/nodes/{quote(node, safe='')}"


class Hold(Protocol):
    """Keeps new pods away from a node."""

    def take(self, node: str, owner: str, seconds: float) -> str:
        """Hold a node; the same owner's hold is made longer, one that has run out is taken over.

        Returns:
            "" with the hold, else why not.
        """
        ...

    def release(self, node: str, owner: str) -> str:
        """Give it back; another's is left alone. Returns "" or why it is left over."""
        ...


class NoHold:
    """Where nobody schedules: a node by itself."""

    def take(self, node: str, owner: str, seconds: float) -> str:
        """Always had."""
        return ""

    def release(self, node: str, owner: str) -> str:
        """Nothing to give back."""
        return ""


class TaintHold:
    """A hold by a taint on the node's object, with its owner, and an annotation with its end."""

    def __init__(self, api: Api, now: Callable[[], float] = time.time) -> None:
        self._api, self._now = api, now

    def take(self, node: str, owner: str, seconds: float) -> str:
        """See `Hold`."""

        def change(found: Json) -> "Json | str":
            taints = taints_of(found)
            held = next((one for one in taints if one.get("key") == TAINT), None)
            if held is not None and held.get("value") != owner and not self._over(found):
                return f"{node} is held by {held.get('value')}"
            others = [one for one in taints if one.get("key") != TAINT]
            mine = {"key": TAINT, "value": owner, "effect": "NoSchedule"}
            return _patch([*others, mine], iso(self._now() + seconds))

        return self._changed(node, change)

    def release(self, node: str, owner: str) -> str:
        """See `Hold`."""

        def change(found: Json) -> "Json | str":
            taints = taints_of(found)
            others = [one for one in taints if one.get("key") != TAINT or one.get("value") != owner]
            return "" if len(others) == len(taints) else _patch(others, None)

        return self._changed(node, change)

    def _over(self, found: Json) -> bool:
        annotations = cast("Json", cast("Json", found.get("metadata") or {}).get("annotations") or {})
        until = seconds_of(str(annotations.get(UNTIL) or ""))
        return until is not None and until < self._now()

    def _changed(self, node: str, change: "Callable[[Json], Json | str]") -> str:
        """Read, change, write where nobody wrote in between; "" or why not."""
        why = ""
        for _ in range(TRIES):
            try:
                found = self._api.get(node_path(node))
                patch = change(found)
                if isinstance(patch, str):
                    return patch
                version = cast("Json", found.get("metadata") or {}).get("resourceVersion")
                patch["metadata"]["resourceVersion"] = version
                self._api.patch(node_path(node), patch)
                return ""
            except ApiError as error:
                why = str(error)
                if error.code != 409:
                    return why
        return why


def _patch(taints: List[Json], until: Optional[str]) -> Json:
    return {"metadata": {"annotations": {UNTIL: until}}, "spec": {"taints": taints}}


def taints_of(found: Json) -> List[Json]:
    """Taints of a node's object."""
    return list(cast("List[Json]", cast("Json", found.get("spec") or {}).get("taints") or []))


def owner_of(node: str) -> str:
    """Who this daemon is, as the value of a taint."""
    return f"health-{re.sub(r'[^A-Za-z0-9_.-]', '-', node)[-56:]}".rstrip("-._")


def iso(seconds: float) -> str:
    """`2026-01-31T12:00:00Z`."""
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds_of(text: str) -> Optional[float]:
    """Seconds since 1970 of such a time; None where it is none."""
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc).timestamp()
    except ValueError:
        return None


@contextmanager
def node_hold(
    hold: Hold, node: str, seconds: float, busy: Callable[[], str], say: Callable[[str], None]
) -> Generator[str, None, None]:
    """Check that the node is idle, hold it, check again; release it at the end.

    After `seconds` the hold counts as left over; `busy` says why the node's GPUs are, or may be, in use ("": they are
    idle); `say` gets a line where a hold is left over.

    Yields:
        "" where the node is held and idle, else why it is not.
    """
    why = busy()
    if why:
        yield why
        return
    owner = owner_of(node)
    why = hold.take(node, owner, seconds)
    if why:
        yield why
        return
    try:
        yield busy()
    finally:
        left = hold.release(node, owner)
        if left:
            say(f"the hold of {node} is left over: {left}")
