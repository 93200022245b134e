"""A private Prometheus and Alertmanager for tests, on loopback, with folders of their own, and who is told by them."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import yaml

from tests.support.running.waiting import patience

LIMIT_SECONDS = patience(60.0)
Json = dict[str, Any]


def missing_program() -> str:
    """Why there can be no Prometheus here; "" where there can."""
    missing = [name for name in ("prometheus", "prometheus-alertmanager") if shutil.which(name) is None]
    return f"{' and '.join(missing)} not on PATH (Debian's packages): alerts were NOT delivered" if missing else ""


def eventually(what: str, look: Callable[[], Any], limit_seconds: float = LIMIT_SECONDS) -> Any:
    """The first answer that is not empty."""
    ends = time.monotonic() + limit_seconds
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > ends:
            raise AssertionError(f"not within {limit_seconds:g} s: {what}")
        time.sleep(0.1)


class Listener:
    """An HTTP server on loopback: pages that are asked for, and what is posted."""

    def __init__(self, page: Callable[[], str] = str) -> None:
        self.posted: list[Json] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(page().encode())

            def do_POST(self) -> None:
                outer.posted.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self._answer(b"")

            def _answer(self, body: bytes) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    @property
    def place(self) -> str:
        return f"127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Prometheus:
    def __init__(self, place: str) -> None:
        self.place = place

    def query(self, expression: str) -> list[Json]:
        """Samples of an instant query; none where it does not answer yet.

        Raises:
            AssertionError: Prometheus does not understand it.
        """
        return self._get("query", {"query": expression}).get("result", [])

    def values(self, label: str, match: str) -> list[str]:
        return self._get(f"label/{label}/values", {"match[]": match}) or []

    def rules(self) -> list[Json]:
        """All rules with what became of their last evaluation."""
        return [rule for group in self._get("rules", {}).get("groups", []) for rule in group["rules"]]

    def _get(self, path: str, parameters: Mapping[str, str]) -> Any:
        try:
            with urllib.request.urlopen(
                f"http://{self.place}/api/v1/{path}?{urlencode(parameters)}", timeout=10
            ) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 503:
                    return {}
                raise AssertionError(f"{parameters}: {error.read().decode()}") from error
        except OSError:
            return {}


@contextmanager
def prometheus_and_alertmanager(
    folder: Path, rules: Json, scraped: Sequence[Json], receiver: str
) -> Iterator[Prometheus]:
    """Both, until the context ends.

    Args:
        folder: an empty one.
        rules: content of the rules file.
        scraped: `scrape_configs`.
        receiver: URL to which Alertmanager posts.
    """
    own, other = _free_place(), _free_place()
    (folder / "rules.yaml").write_text(yaml.safe_dump(rules))
    alertmanager = {
        "route": {"receiver": "told", "group_by": ["..."], "group_wait": "0s", "group_interval": "1s"},
        "receivers": [{"name": "told", "webhook_configs": [{"url": receiver, "send_resolved": True}]}],
    }
    prometheus = {
        "global": {"scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "500ms"},
        "rule_files": [str(folder / "rules.yaml")],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [other]}]}]},
        "scrape_configs": list(scraped),
    }
    (folder / "alertmanager.yml").write_text(yaml.safe_dump(alertmanager))
    (folder / "prometheus.yml").write_text(yaml.safe_dump(prometheus))
    commands = [
        ["prometheus-alertmanager", f"--config.file={folder}/alertmanager.yml", f"--storage.path={folder}/told",
         f"--web.listen-address={other}", "--cluster.listen-address="],
        ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
         f"--web.listen-address={own}"],
    ]  # fmt: skip
    started: list[subprocess.Popen[bytes]] = []
    with (folder / "log").open("ab") as log:
        try:
            started += [subprocess.Popen(one, stdout=log, stderr=log, cwd=folder) for one in commands]
            eventually("ready", lambda: all(_ready(place) for place in (own, other)))
            yield Prometheus(own)
        finally:
            for process in started:
                process.terminate()
            for process in started:
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def _free_place() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


def _ready(place: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{place}/-/ready", timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False
