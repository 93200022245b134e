"""Components that answer and do not serve, over real HTTP on loopback, and a cluster whose pods do as they are told."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

from workflows.programs.runtime.kubernetes_api import Api, ApiError, Json
from workflows.programs.serving.ask import Seen
from workflows.programs.serving.main import Options, asked

Answer = tuple[int, dict[str, str], bytes]


@dataclass
class Asked:
    """A request as it arrived."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes


@contextmanager
def serving(answer: Callable[[Asked], Answer]) -> Generator[str]:
    """The URL of a server that answers so."""

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            url = urlsplit(self.path)
            query = {key: values[0] for key, values in parse_qs(url.query).items()}
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            code, headers, told = answer(Asked(self.command, url.path, query, dict(self.headers), body))
            self.send_response(code)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(told)))
            self.end_headers()
            self.wfile.write(told)

        do_GET = do_POST = do_PUT = _serve  # noqa: N815 - the library looks for these names

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@dataclass
class StandInRegistry:
    """Takes every push; `loses` says what does not come back: `blob`, `manifest`, `bytes` (another content)."""

    loses: str = ""
    password: str = ""
    """Basic credentials that are asked for."""
    kept: dict[str, bytes] = field(default_factory=dict[str, bytes])
    lost: int = 0
    """How often something was asked for that was thrown away."""

    def __call__(self, asked: Asked) -> Answer:
        if self.password and asked.headers.get("Authorization") != f"Basic {self.password}":
            return 401, {}, b'{"errors": [{"code": "UNAUTHORIZED"}]}'
        if asked.method == "POST":
            return 202, {"Location": f"{asked.path}made-upload?_state=x"}, b""
        if asked.method == "PUT":
            digest = asked.query.get("digest") or asked.path.rpartition("/")[2]
            assert digest == f"sha256:{hashlib.sha256(asked.body).hexdigest()}"
            self.kept[digest] = asked.body
            return 201, {}, b""
        found = self.kept.get(asked.path.rpartition("/")[2])
        what = "manifest" if "/manifests/" in asked.path else "blob"
        if found is None or self.loses == what:
            self.lost += 1
            return 404, {}, b'{"errors": [{"code": "BLOB_UNKNOWN"}]}'
        if self.loses == "bytes" and what == "blob":
            self.lost += 1
            return 200, {}, found[:-1] + b"!"
        return 200, {}, found


@dataclass
class StandInMetrics:
    """Takes every sample; `does` says what a query finds: `keeps`, `forgets`, `lies` (another value), `nonsense`."""

    does: str = "keeps"
    written: list[str] = field(default_factory=list[str])

    def __call__(self, asked: Asked) -> Answer:
        if asked.method == "POST":
            self.written += asked.body.decode().split("\n")[:-1]
            return 204, {}, b""
        if self.does == "nonsense":
            return 200, {}, b"<html>log in</html>"
        values = [line.split()[-2] for line in self.written if self.does in ("keeps", "lies")]
        results = [{"value": [0, f"{value}1" if self.does == "lies" else value]} for value in values]
        return 200, {}, json.dumps({"data": {"result": results}}).encode()


@dataclass
class StandInLogs:
    """Takes every line; `does`: `keeps`, `forgets`, or `echoes` (finds every line whatever is asked)."""

    does: str = "keeps"
    lines: list[dict[str, str]] = field(default_factory=list[dict[str, str]])

    def __call__(self, asked: Asked) -> Answer:
        if asked.path.endswith("/insert"):
            self.lines += [json.loads(line) for line in asked.body.splitlines()]
            return 200, {}, b""
        query = parse_qs(asked.body.decode())["query"][0]
        keeps = self.lines if self.does != "forgets" else []
        found = [line for line in keeps if self.does == "echoes" or _matches(line, query)]
        return 200, {}, "\n".join(json.dumps(line) for line in found).encode()


def _matches(line: Mapping[str, str], query: str) -> bool:
    for word in query.split(" AND "):
        name, colon, value = word.partition(":")
        if line.get(name) != value.strip('"') if colon else word.strip('"') not in line["_msg"]:
            return False
    return True


class MadeCluster(Api):
    """The API of a cluster without a cluster: objects by path, and what becomes of those that are applied."""

    def __init__(self, *nodes: str) -> None:
        super().__init__("http://127.0.0.1:9")
        self.objects: dict[str, Json] = {}
        self.becomes: list[Callable[[str, Json], None]] = []
        """Called with path and object whenever one is read."""
        self.lists: dict[str, list[Json]] = {}
        """Lists that somebody else answers, by path."""
        self.applied: list[str] = []
        self.deleted: list[str] = []
        self.away = False
        self.keeps = False
        """Something holds what is deleted."""
        self.refuses: Callable[[str], ApiError | None] = lambda _: None
        self.took: Callable[[str, Json], None] = lambda path, stored: None
        """Called with path and object whenever one was applied."""
        for number, name in enumerate(nodes):
            address = {"type": "InternalIP", "address": f"192.0.2.{number + 1}"}
            status = {"conditions": [{"type": "Ready", "status": "True"}], "addresses": [address]}
            self.objects[f"/api/v1/nodes/{name}"] = {"kind": "Node", "metadata": {"name": name}, "status": status}

    def serve(self, kinds: Mapping[str, Sequence[tuple[str, str, bool]]]) -> None:
        """Let the API serve these: plural, kind, and whether it is in a namespace, by path of group and version."""
        for path, served in kinds.items():
            resources = [{"name": name, "kind": kind, "namespaced": inside} for name, kind, inside in served]
            self.objects[path] = {"metadata": {"name": path}, "resources": resources}

    def _check(self, path: str) -> None:
        if self.away:
            raise ApiError(0, f"{path}: connection refused")
        refused = self.refuses(path)
        if refused is not None:
            raise refused

    def get(self, path: str, query: Mapping[str, str] | None = None) -> Json:
        self._check(path)
        if path not in self.objects:
            raise ApiError(404, f"GET {path}: 404 not found")
        found = self.objects[path]
        for change in self.becomes:
            change(path, found)
        return found

    def items(self, path: str, query: Mapping[str, str] | None = None) -> list[Json]:
        self._check(path)
        if path in self.lists:
            return self.lists[path]
        plural = path.rpartition("/")[2]
        kind = [one for place, one in self.objects.items() if place.split("/")[-2] == plural]
        return [self.get(place) for place, one in list(self.objects.items()) if one in kind]

    def apply(self, path: str, body: Json) -> Json:
        self._check(path)
        self.applied.append(path)
        kept = {key: value for key, value in self.objects.get(path, {}).items() if key == "status"}
        metadata = {"uid": path, **body["metadata"]}
        self.objects[path] = {**kept, **json.loads(json.dumps({**body, "metadata": metadata}))}
        self.took(path, self.objects[path])
        return self.objects[path]

    def patch(self, path: str, body: Json) -> Json:
        self._check(path)
        self.objects[path] = _merged(self.objects[path], body)
        return self.objects[path]

    def delete(self, path: str, grace_seconds: int | None = None) -> None:
        self._check(path)
        self.deleted.append(path)
        if not self.keeps:
            self.objects.pop(path, None)

    def pods(self, does: Callable[[Json], Json]) -> None:
        """The status of every pod is what `does` makes of it."""

        def change(path: str, found: Json) -> None:
            if "/pods/" in path:
                found["status"] = does(found)

        self.becomes.append(change)


def _merged(found: Json, change: Json) -> Json:
    """As a merge patch has it: what is null goes."""
    merged = {key: value for key, value in found.items() if key not in change}
    for key, value in change.items():
        if isinstance(value, dict):
            merged[key] = _merged(found.get(key) or {}, cast("Json", value))
        elif value is not None:
            merged[key] = value
    return merged


class Clock:
    """Time that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def prove(kind: str, cluster: MadeCluster, **parameters: str) -> Seen:
    """What one try of the proof sees there; it leaves nothing behind."""
    clock = Clock()
    seen = asked(Options("made", kind, image="programs:1"), cluster, parameters, 20.0, clock, clock.sleep)
    left = [path for path in cluster.applied if path not in cluster.deleted]
    assert left == [], "a proof leaves nothing behind"
    return seen


def succeeded(pod: Json) -> Json:
    """It ran and ended well."""
    return {"phase": "Succeeded"}


def running(pod: Json) -> Json:
    """It runs, and that is all."""
    return {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


def failed(message: str) -> Callable[[Json], Json]:
    """It ended with an error."""
    ended = {"terminated": {"exitCode": 1, "message": message}}
    return lambda pod: {"phase": "Failed", "containerStatuses": [{"state": ended}]}
