"""The few calls of the node daemon to the Kubernetes API, with the pod's own service account, and holds of nodes.

The token is read again for every call, because the kubelet replaces it.

Before a deep test a node is checked, held, and checked again: without the hold the scheduler might bind a pod between
the check and the test, and the second check finds a pod that was bound before the hold. Only an idle node is held, and
each hold has an end.
"""

from __future__ import annotations

import json
import os
import re
import ssl
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import Any, Callable, Dict, Generator, List, Mapping, Optional, Protocol, cast
from urllib.parse import quote, urlencode

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
ANSWER_BYTES = 64 << 20
SECONDS = 5.0
PAGE = 500
MERGE = "application/merge-patch+json"
Json = Dict[str, Any]

TAINT = "primus-flows.io/hold"
UNTIL = "primus-flows.io/hold-until"
TRIES = 5
"""Others patch nodes, too: the kubelet and the autoscaler every few seconds."""


class ApiError(Exception):
    """The API refused or did not answer; `code` is its status, 0 where nobody answered."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Api:
    """Client of one API server.

    `account` is the folder with `token` and `ca.crt`; "": neither is used.
    """

    def __init__(self, url: str, account: str = "") -> None:
        self._url, self._account = url.rstrip("/"), account
        handlers: List[Any] = [urllib.request.ProxyHandler({})]  # a proxy of the environment is for other places
        authority = os.path.join(account, "ca.crt") if account else ""
        if url.startswith("https:"):
            context = ssl.create_default_context(cafile=authority or None)
            handlers.append(urllib.request.HTTPSHandler(context=context))
        self._opener = urllib.request.build_opener(*handlers)

    def get(self, path: str, query: Optional[Mapping[str, str]] = None) -> Json:
        """One object.

        Raises:
            ApiError: refused, or no answer.
        """
        return self._ask("GET", path, query or {}, None, "")

    def items(self, path: str, query: Optional[Mapping[str, str]] = None) -> List[Json]:
        """All objects of a list, page by page.

        Raises:
            ApiError: refused, or no answer.
        """
        found: List[Json] = []
        following = ""
        while True:
            more = {"continue": following} if following else {}
            answer = self._ask("GET", path, {"limit": str(PAGE), **(query or {}), **more}, None, "")
            found += cast("List[Json]", answer.get("items") or [])
            following = str(cast("Json", answer.get("metadata") or {}).get("continue") or "")
            if not following:
                return found

    def patch(self, path: str, body: Json) -> Json:
        """Merge into an object; with `metadata.resourceVersion` in it only where nobody changed it meanwhile (409)."""
        return self._ask("PATCH", path, {"fieldManager": "primus-flows"}, body, MERGE)

    def create(self, path: str, body: Json) -> Json:
        """A new object."""
        return self._ask("POST", path, {"fieldManager": "primus-flows"}, body, "application/json")

    def delete(self, path: str) -> None:
        """Remove an object; one that is not there is no error."""
        try:
            self._ask("DELETE", path, {}, None, "")
        except ApiError as error:
            if error.code != 404:
                raise

    def _ask(self, method: str, path: str, query: Mapping[str, str], body: Optional[Json], kind: str) -> Json:
        url = f"{self._url}{path}" + (f"?{urlencode(query)}" if query else "")
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data, {"Accept": "application/json"}, method=method)  # noqa: S310
        if kind:
            request.add_header("Content-Type", kind)
        try:
            token = self._token()
            if token:
                request.add_header("Authorization", f"Bearer {token}")
            with self._opener.open(request, timeout=SECONDS) as answer:
                return cast("Json", json.loads(answer.read(ANSWER_BYTES) or b"{}"))
        except urllib.error.HTTPError as error:
            with error:
                reason = error.read(4096).decode("utf-8", "replace")
            raise ApiError(error.code, f"{method} {path}: {error.code} {_message(reason)}") from error
        except (OSError, ValueError) as error:
            raise ApiError(0, f"{method} {path}: {error}") from error

    def _token(self) -> str:
        if not self._account:
            return ""
        with open(os.path.join(self._account, "token"), encoding="ascii") as file:
            return file.read().strip()


def _message(text: str) -> str:
    try:
        status: Any = json.loads(text)
    except ValueError:
        return text[:200]
    return str(cast("Json", status).get("message", ""))[:200] if isinstance(status, dict) else text[:200]


def api_from(environment: Mapping[str, str], url: str = "", account: str = ACCOUNT) -> Optional[Api]:
    """The API of the cluster in which this pod runs; None outside of one.

    `url` replaces the cluster's own address; `none`: no API at all. `account` is the folder of the service account.
    """
    if url == "none":
        return None
    folder = account if os.path.isfile(os.path.join(account, "token")) else ""
    host, port = environment.get("KUBERNETES_SERVICE_HOST", ""), environment.get("KUBERNETES_SERVICE_PORT", "443")
    if url:
        # A token of the cluster goes to the cluster's own address only, or over TLS to the one that was named.
        return Api(url, folder if url.startswith("https:") else "")
    if not host or not folder:
        return None
    return Api(f"https://{f'[{host}]' if ':' in host else host}:{port}", folder)


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
