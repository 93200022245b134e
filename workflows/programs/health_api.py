"""The few calls that the node daemon makes to the Kubernetes API, with the pod's own service account.

Standard library only, Python 3.9. The token is read again for every call: the kubelet replaces it.
"""

from __future__ import annotations

import json
import os
import ssl
import urllib.error
import urllib.request
from typing import Any, Dict, List, Mapping, Optional, cast
from urllib.parse import quote, urlencode

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
ANSWER_BYTES = 64 << 20
SECONDS = 5.0
PAGE = 500
MERGE = "application/merge-patch+json"
Json = Dict[str, Any]


class ApiError(Exception):
    """The API refused or did not answer; `code` is its status, 0 where nobody answered."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Api:
    """Talks to one API server.

    Args:
        url: `https://host:port`.
        account: folder with `token` and `ca.crt`; "": neither is used.
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
                said = error.read(4096).decode("utf-8", "replace")
            raise ApiError(error.code, f"{method} {path}: {error.code} {_message(said)}") from error
        except (OSError, ValueError) as error:
            raise ApiError(0, f"{method} {path}: {error}") from error

    def _token(self) -> str:
        if not self._account:
            return ""
        with open(os.path.join(self._account, "token"), encoding="ascii") as file:
            return file.read().strip()


def _message(text: str) -> str:
    try:
        told: Any = json.loads(text)
    except ValueError:
        return text[:200]
    return str(cast("Json", told).get("message", ""))[:200] if isinstance(told, dict) else text[:200]


def api_from(environment: Mapping[str, str], url: str = "", account: str = ACCOUNT) -> Optional[Api]:
    """The API of the cluster that this pod runs in; None outside of one.

    Args:
        environment: variables that Kubernetes sets in each pod.
        url: instead of the cluster's own; `none`: no API at all.
        account: folder of the service account.
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
