"""An HTTP proxy that notes what it is asked for, and answers in place of every server behind it."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Answers = dict[str, tuple[int, str]]
"""Status and body by the end of what is asked for; the first that fits counts, else it is 404."""


class Proxy(ThreadingHTTPServer):
    """Use `proxy()`; asked for a path alone it is an ordinary server."""

    daemon_threads = True

    def __init__(self, answers: Answers) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers = answers
        self.asked: list[str] = []
        """Method and address of each request."""
        self.heads: list[dict[str, str]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Proxy

    def _answer(self) -> None:
        self.server.asked.append(f"{self.command} {self.path}")
        self.server.heads.append(dict(self.headers))
        found = (answer for end, answer in self.server.answers.items() if self.path.endswith(end))
        status, text = next(found, (404, "<html>not here</html>"))
        self.send_response(status)
        if 300 <= status < 400:
            self.send_header("Location", text)
            text = ""
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    do_GET = do_POST = do_CONNECT = _answer  # noqa: N815 - the library wants these names

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@contextmanager
def proxy(answers: Answers | None = None) -> Generator[Proxy]:
    made = Proxy(answers or {})
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        made.shutdown()
        made.server_close()
        thread.join()
