"""A small Kubernetes API server over real HTTP on loopback, which can be told to misbehave."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

Manifest = dict[str, Any]


def status(code: int, reason: str, message: str = "", **details: Any) -> bytes:
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason}
    return json.dumps(body | {"message": message, "details": details}).encode()


@dataclass
class Fault:
    """What happens to the next requests whose line contains `match`, instead of an answer."""

    match: str
    code: int = 0
    """0: the connection is dropped without a word."""
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    times: int = 1


@dataclass
class Seen:
    """A request as it arrived."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Manifest:
        return json.loads(self.body)


class FakeApiServer:
    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.objects: dict[tuple[str, str], Manifest] = {}
        self.history: list[tuple[int, str, str, Manifest]] = []
        """(version, plural, type, object)"""
        self.version = 100
        self.oldest = 100
        """Versions before it were forgotten."""
        self.faults: list[Fault] = []
        self.seen: list[Seen] = []
        self.open_watches = 0
        self.generation = 0
        """Grows when all streams are to be dropped."""
        self.closing = False
        self.token = ""
        """Bearer token that is asked for; "": none."""
        self.logs: dict[str, list[bytes]] = {}
        self.pod_app: Callable[[Seen], tuple[int, bytes]] = lambda seen: (200, b"hello")
        self.injected: list[bytes] = []
        """Raw lines that open watches send next."""
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_port}"

    @contextmanager
    def running(self) -> Iterator[FakeApiServer]:
        thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield self
        finally:
            with self.changed:
                self.closing = True
                self.changed.notify_all()
            self._http.shutdown()
            self._http.server_close()
            thread.join()

    def put(self, plural: str, manifest: Manifest) -> Manifest:
        with self.changed:
            key = (plural, manifest["metadata"]["name"])
            kind = "MODIFIED" if key in self.objects else "ADDED"
            self.version += 1
            stored = json.loads(json.dumps(manifest))
            stored["metadata"]["resourceVersion"] = str(self.version)
            self.objects[key] = stored
            self.history.append((self.version, plural, kind, stored))
            self.changed.notify_all()
            return stored

    def remove(self, plural: str, name: str) -> None:
        with self.changed:
            self.version += 1
            gone = self.objects.pop((plural, name))
            gone["metadata"]["resourceVersion"] = str(self.version)
            self.history.append((self.version, plural, "DELETED", gone))
            self.changed.notify_all()

    def forget(self) -> None:
        """What etcd's compaction does: older versions cannot be watched any more."""
        with self.changed:
            self.version += 1
            self.oldest = self.version
            self.history.clear()

    def drop_streams(self) -> None:
        with self.changed:
            self.generation += 1
            self.changed.notify_all()

    def inject(self, line: bytes) -> None:
        with self.changed:
            self.injected.append(line)
            self.changed.notify_all()

    def wait_for_watches(self, count: int = 1) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.open_watches >= count, 10), "no watch was opened"

    def fault_for(self, line: str) -> Fault | None:
        for fault in self.faults:
            if fault.match in line and fault.times > 0:
                fault.times -= 1
                return fault
        return None

    def requests(self, method: str, path: str = "") -> list[Seen]:
        return [seen for seen in self.seen if seen.method == method and path in seen.path]


def _handler(server: FakeApiServer) -> type[BaseHTTPRequestHandler]:
    class Bound(_Handler):
        api = server

    return Bound


def _merge(target: Manifest, patch: Manifest) -> Manifest:
    merged = dict(target)
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict):
            merged[key] = _merge(merged.get(key) or {}, value)
        else:
            merged[key] = value
    return merged


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    api: FakeApiServer

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except (ConnectionError, ValueError):
            self.close_connection = True

    def _serve(self) -> None:
        url = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        length = int(self.headers.get("Content-Length") or 0)
        seen = Seen(self.command, url.path, query, dict(self.headers), self.rfile.read(length))
        self.api.seen.append(seen)
        fault = self.api.fault_for(f"{self.command} {self.path}")
        if fault is not None and not fault.code:
            self.close_connection = True
            self.connection.close()
        elif fault is not None:
            self._answer(fault.code, fault.body, fault.headers)
        elif self.api.token and seen.headers.get("Authorization") != f"Bearer {self.api.token}":
            self._answer(401, status(401, "Unauthorized", "Unauthorized"))
        else:
            self._route(seen)

    do_GET = do_POST = do_PATCH = do_DELETE = _serve  # noqa: N815 - the library looks for these names

    def _route(self, seen: Seen) -> None:
        parts = seen.path.strip("/").split("/")
        inside = parts[parts.index("namespaces") + 2 :] if "namespaces" in parts else []
        parts = inside or (parts[2:] if parts[0] == "api" else parts[3:])
        plural, name, rest = parts[0] if parts else "", parts[1] if len(parts) > 1 else "", parts[2:]
        if rest[:1] == ["proxy"]:
            self._answer(*self.api.pod_app(seen))
        elif rest == ["log"]:
            self._log(seen, name)
        elif plural == "ghosts":
            self._answer(404, b"404 page not found\n")
        elif seen.method == "GET" and not name:
            self._watch(seen, plural) if seen.query.get("watch") else self._list(seen, plural)
        else:
            self._object(seen, plural, name)

    def _object(self, seen: Seen, plural: str, name: str) -> None:
        found = self.api.objects.get((plural, name))
        if seen.method == "DELETE":
            if found is not None:
                self.api.remove(plural, name)
            return self._answer(200 if found or not name else 404, found or status(404, "NotFound", "gone", name=name))
        if seen.method == "PATCH":
            apply = "apply-patch" in seen.headers["Content-Type"]
            if found is None and not apply:
                return self._answer(404, status(404, "NotFound", f'"{name}" not found', name=name))
            merged = _merge(found or {}, seen.json)
            merged["metadata"]["managedFields"] = [{"manager": seen.query["fieldManager"]}]
            return self._answer(200, merged if seen.query.get("dryRun") else self.api.put(plural, merged))
        if seen.method == "POST":
            made = seen.json
            made["metadata"]["name"] = made["metadata"]["generateName"] + "x7k2p"
            return self._answer(201, self.api.put(plural, made))
        return self._answer(200, found) if found else self._answer(404, status(404, "NotFound", name, name=name))

    def _selected(self, seen: Seen, manifest: Manifest) -> bool:
        wanted = [pair.split("=") for pair in seen.query.get("labelSelector", "").split(",") if pair]
        return all(manifest["metadata"].get("labels", {}).get(key) == value for key, value in wanted)

    def _list(self, seen: Seen, plural: str) -> None:
        with self.api.changed:
            names = sorted(name for found, name in self.api.objects if found == plural)
            items = [self.api.objects[plural, name] for name in names]
            begin, limit = int(seen.query.get("continue", 0)), int(seen.query.get("limit", 10**6))
            chosen = [item for item in items if self._selected(seen, item)]
            version = str(self.api.version)
        page = [
            {key: item[key] for key in item if key not in ("kind", "apiVersion")} for item in chosen[begin:][:limit]
        ]
        metadata = {"resourceVersion": version}
        if begin + limit < len(chosen):
            metadata["continue"] = str(begin + limit)
        self._answer(200, {"kind": "List", "metadata": metadata, "items": page})

    def _watch(self, seen: Seen, plural: str) -> None:
        api, version = self.api, int(seen.query["resourceVersion"])
        self._begin_stream()
        with api.changed:
            generation, injected = api.generation, len(api.injected)
            if version < api.oldest:
                gone = json.loads(status(410, "Expired", "too old resource version"))
                self._chunk(json.dumps({"type": "ERROR", "object": gone}).encode() + b"\n")
                return self._end_stream()
            api.open_watches += 1
            api.changed.notify_all()
            try:
                self._stream(seen, plural, version, generation, injected)
            finally:
                api.open_watches -= 1
        return None

    def _stream(self, seen: Seen, plural: str, version: int, generation: int, injected: int) -> None:
        api = self.api
        while True:
            if api.generation != generation:
                self.close_connection = True
                return self.connection.close()
            for at, found, kind, item in [*api.history]:
                if at > version and found == plural and self._selected(seen, item):
                    self._chunk(json.dumps({"type": kind, "object": item}).encode() + b"\n")
                version = max(version, at)
            for line in api.injected[injected:]:
                self._chunk(line)
            injected = len(api.injected)
            if not api.changed.wait(float(seen.query.get("timeoutSeconds", 60))) or api.closing:
                return self._end_stream()

    def _log(self, seen: Seen, pod: str) -> None:
        if pod not in self.api.logs:
            return self._answer(404, status(404, "NotFound", f'pods "{pod}" not found', name=pod))
        lines = [line for line in self.api.logs[pod] if line[:20] >= seen.query.get("sinceTime", "").encode()[:19]]
        if not seen.query.get("timestamps"):
            lines = [line.partition(b" ")[2] for line in lines]
        if "tailLines" in seen.query:
            lines = lines[-int(seen.query["tailLines"]) :]
        return self._answer(200, b"".join(lines))

    def _answer(self, code: int, body: Manifest | bytes, headers: dict[str, str] | None = None) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(code)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _begin_stream(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def _end_stream(self) -> None:
        self.wfile.write(b"0\r\n\r\n")
