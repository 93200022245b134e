"""Asking the health service once: what is printed, and how it ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from workflows.programs.health.client import main, read


class Service:
    """A health service that answers what it is told to."""

    def __init__(self) -> None:
        self.code, self.body, self.asked = 200, "", list[tuple[str, str]]()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append((self.path, self.headers.get("Accept", "")))
                self.send_response(outer.code)
                self.end_headers()
                self.wfile.write(outer.body.encode())

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02})
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}/status?host=all"


@pytest.fixture
def service() -> Iterator[Service]:
    made = Service()
    yield made
    made.server.shutdown()
    made.server.server_close()
    made.thread.join()


@pytest.mark.parametrize(("verdict", "code"), [("pass", 0), ("fail", 1), ("unknown", 3), ("PASS", 3), ("", 3)])
def test_it_ends_like_the_verdict(
    service: Service, capsys: pytest.CaptureFixture[str], verdict: str, code: int
) -> None:
    service.body = f'{{"verdict": "{verdict}", "text": "Node Summary:\\n"}}'
    assert main([f"--url={service.url}"]) == code
    assert capsys.readouterr().out == f"Node Summary:\nverdict: {verdict}\n"
    assert service.asked == [("/status?host=all", "application/json")]


@pytest.mark.parametrize("text", ["", "Node Summary: OK", "[]", "null", "7", '{"nodes": []}', '"pass"'])
def test_an_answer_without_a_verdict_is_not_known(text: str) -> None:
    shown, code = read(text)
    assert code == 3
    assert "the answer holds no verdict" in shown


def test_a_refusal_is_not_known_and_shown(service: Service, capsys: pytest.CaptureFixture[str]) -> None:
    service.code, service.body = 429, "too many requests"
    assert main([f"--url={service.url}"]) == 3
    assert "answers 429: too many requests" in capsys.readouterr().out


def test_silence_is_not_known(service: Service, capsys: pytest.CaptureFixture[str]) -> None:
    url = service.url
    service.server.socket.close()
    assert main([f"--url={url}", "--deadline-seconds=5"]) == 3
    assert "does not answer" in capsys.readouterr().out


@pytest.mark.parametrize("argv", [[], ["--url=file:///etc/passwd"], ["--url=x", "--nothing=1"]])
def test_wrong_use_is_told(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 2
    told = capsys.readouterr()
    assert "health-ask: --" in told.out + told.err
