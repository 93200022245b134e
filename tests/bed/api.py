"""Requests to the bed's API server as its administrator: the few verbs that starting a bed needs."""

from __future__ import annotations

import http.client
import json
import ssl
import urllib.parse
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.bed.commands import BedError
from tests.bed.layout import Folder
from tests.bed.options import Options
from tests.support.running.waiting import patience

Manifest = dict[str, Any]

MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
LIMIT_S = patience(20.0)


class RefusedError(BedError):
    """The server said no."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


def plural(kind: str) -> str:
    """The resource's name in URLs, by the rule that all kinds of the bed follow."""
    word = kind.lower()
    if word.endswith("y"):
        return word[:-1] + "ies"
    return word + ("es" if word.endswith("s") else "s")


def path_of(manifest: Manifest, *, name: bool = True) -> str:
    """URL of an object, or of the list it belongs to."""
    version, about = manifest["apiVersion"], manifest["metadata"]
    parts = [f"/apis/{version}" if "/" in version else f"/api/{version}"]
    if about.get("namespace"):
        parts.append(f"namespaces/{about['namespace']}")
    parts.append(plural(manifest["kind"]))
    if name:
        parts.append(urllib.parse.quote(about["name"], safe=""))
    return "/".join(parts)


class Api:
    """A client; each request has a connection of its own, so threads may share it.

    Args:
        folder: the bed's.
        options: the bed's.
        token: of a service account; "": the administrator.
    """

    def __init__(self, folder: Folder, options: Options, token: str = "") -> None:
        where = folder.certificates
        self._address = (options.plane, 6443)
        self._context = ssl.create_default_context(cafile=str(where / "ca.crt"))
        self._headers = {"Accept": "application/json"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        else:
            self._context.load_cert_chain(where / "admin.crt", where / "admin.key")

    def request(self, method: str, path: str, body: object = None, content: str = "application/json") -> Any:
        """The answer, from JSON where it is JSON.

        Raises:
            RefusedError: any status from 400 on.
            OSError: no answer.
        """
        connection = self._connection()
        try:
            text = None if body is None else json.dumps(body)
            connection.request(method, path, text, {"Content-Type": content, **self._headers})
            answer = connection.getresponse()
            words = answer.read().decode()
        except http.client.HTTPException as error:
            raise OSError(f"{method} {path}: {error!r}") from error
        finally:
            connection.close()
        if answer.status >= 400:
            raise RefusedError(answer.status, f"{method} {path}: {words[:500]}")
        return json.loads(words) if words.startswith(("{", "[")) else words

    def _connection(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(*self._address, timeout=LIMIT_S, context=self._context)

    def post_each(self, path: str, bodies: Iterable[Manifest]) -> list[Manifest]:
        """One after the other over one connection: what is asked ten thousand times takes seconds.

        Raises:
            RefusedError: any status from 400 on.
        """
        connection, answers = self._connection(), list[Manifest]()
        for body in bodies:
            connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json", **self._headers})
            answer = connection.getresponse()
            words = answer.read().decode()
            if answer.status >= 400:
                raise RefusedError(answer.status, f"POST {path}: {words[:500]}")
            answers.append(json.loads(words))
        connection.close()
        return answers

    def get(self, path: str) -> Any:
        """An object or a list."""
        return self.request("GET", path)

    def merge(self, path: str, change: Manifest) -> Any:
        """A merge patch."""
        return self.request("PATCH", path, change, MERGE)

    def delete(self, manifest: Manifest) -> None:
        """Ask for its end; nothing where it is gone."""
        try:
            self.request("DELETE", path_of(manifest), {"propagationPolicy": "Background"})
        except RefusedError as refused:
            if refused.status != 404:
                raise

    def ensure(self, manifest: Manifest) -> None:
        """Create it; where it is there, apply it."""
        try:
            self.request("POST", path_of(manifest, name=False), manifest)
        except RefusedError as refused:
            if refused.status != 409:
                raise
            self.request("PATCH", f"{path_of(manifest)}?fieldManager=bed&force=true", manifest, APPLY)

    def ensure_all(self, manifests: Iterable[Manifest], lanes: int = 8) -> None:
        """Several that do not depend on each other."""
        with ThreadPoolExecutor(max_workers=lanes) as pool:
            for _ in pool.map(self.ensure, manifests):
                pass

    def healthy(self) -> bool:
        """Whether the server says that it is ready."""
        return self.get("/readyz") == "ok"

    def nodes(self) -> list[Manifest]:
        """All Node objects."""
        return self.get("/api/v1/nodes")["items"]

    def ready_nodes(self) -> set[str]:
        """Names of the nodes that are Ready."""
        return {
            node["metadata"]["name"]
            for node in self.nodes()
            for condition in node.get("status", {}).get("conditions", [])
            if condition["type"] == "Ready" and condition["status"] == "True"
        }
