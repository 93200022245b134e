"""Objects of any kind on a real cluster: what brings components there and takes them away asks the server directly.

The seam of `tasks.cluster` knows the kinds of runs and nodes, and nothing else; components bring kinds of their own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from profiles.errors import PrimusError
from tasks.kubernetes.api_server import ApiServer, Request
from tasks.kubernetes.errors import parse_status
from tasks.kubernetes.resources import JSON
from workflows.programs.runtime.kubernetes_api import Api, ApiError, Json


class AnyObject(Api):
    """The API of a cluster as programs in pods see it, by the connection of the official client's configuration."""

    def __init__(self, server: ApiServer) -> None:
        super().__init__("")
        self._server = server

    def _bytes(self, method: str, path: str, query: Mapping[str, str], body: Json | None, kind: str) -> bytes:
        data = b"" if body is None else json.dumps(body).encode()
        try:
            reply = self._server.ask(Request(method, path, f"{method} {path}", query, data, kind or JSON))
        except PrimusError as error:
            raise ApiError(0, str(error)) from error
        if reply.status >= 400:
            told = parse_status(reply.body).get("message") or reply.body[:200].decode("utf-8", "replace")
            raise ApiError(reply.status, f"{method} {path}: {reply.status} {told}")
        return reply.body
