"""The Kubernetes API from inside a pod, with the pod's own service account: a small client on the standard library.

The token is read again for every call, because the kubelet replaces it.
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
import urllib.error
import urllib.request
from typing import Any, Dict, List, Mapping, Optional, cast
from urllib.parse import urlencode

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
ANSWER_BYTES = 64 << 20
SECONDS = 5.0
PAGE = 500
MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
"""JSON is YAML, so the body stays JSON."""
MANAGER = "primus-flows"
Json = Dict[str, Any]


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
        return self._ask("PATCH", path, {"fieldManager": MANAGER}, body, MERGE)

    def create(self, path: str, body: Json) -> Json:
        """A new object."""
        return self._ask("POST", path, {"fieldManager": MANAGER}, body, "application/json")

    def apply(self, path: str, body: Json) -> Json:
        """Create the object at `path` or make it so (server-side apply); fields that others set are taken over."""
        return self._ask("PATCH", path, {"fieldManager": MANAGER, "force": "true"}, body, APPLY)

    def delete(self, path: str, grace_seconds: Optional[int] = None) -> None:
        """Remove an object and what it owns; one that is not there is no error."""
        options: Json = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        try:
            self._ask("DELETE", path, {}, options, "application/json")
        except ApiError as error:
            if error.code != 404:
                raise

    def _ask(self, method: str, path: str, query: Mapping[str, str], body: Optional[Json], kind: str) -> Json:
        answer = self._bytes(method, path, query, body, kind)
        try:
            return cast("Json", json.loads(answer or b"{}"))
        except ValueError as error:
            raise ApiError(0, f"{method} {path}: {error}") from error

    def _bytes(self, method: str, path: str, query: Mapping[str, str], body: Optional[Json], kind: str) -> bytes:
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
                return cast("bytes", answer.read(ANSWER_BYTES))
        except urllib.error.HTTPError as error:
            raise ApiError(error.code, f"{method} {path}: {error.code} {_message(_reason(error))}") from error
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise ApiError(0, f"{method} {path}: {error}") from error

    def _token(self) -> str:
        if not self._account:
            return ""
        with open(os.path.join(self._account, "token"), encoding="ascii") as file:
            return file.read().strip()


def _reason(error: urllib.error.HTTPError) -> str:
    """The body of a refusal, as far as it comes: its status counts without it."""
    with error:
        try:
            return error.read(4096).decode("utf-8", "replace")
        except (OSError, http.client.HTTPException):
            return ""


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
