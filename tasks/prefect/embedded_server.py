"""The Prefect server of a home, `python -m tasks.prefect.embedded_server`: Prefect's own, whose writers queue.

Prefect begins most transactions that write as one that reads, and asks for the right to write in its middle. Where
another one has written meanwhile, SQLite refuses that at once ("database is locked", an answer 503): waiting would not
help, since what was read is old. Here each asks for that right first, one after the other in the order they came.
PostgreSQL needs none of this.

Prefect's newer pages send browsers to a third party (session replay), whatever is said of analytics. Here the pages go
out with a policy by which a browser asks this server alone.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any
from urllib.parse import urlsplit

from fastapi import FastAPI
from prefect.cli import app
from prefect.server.api import server
from prefect.server.database import dependencies
from prefect.server.database.configurations import AioSqliteConfiguration
from prefect.settings import PREFECT_API_DATABASE_CONNECTION_URL, PREFECT_UI_API_URL
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tasks.embedded.runtime.inherited import reset_inherited

TURN_SECONDS = 60.0
"""As long as Prefect lets SQLite itself wait; whoever waited so long asks SQLite without a turn."""
_WRITES: ContextVar[bool] = ContextVar("writes", default=False)
"""Whether this work is inside a transaction that has the right to write: it would wait for itself."""


class QueuedSqlite(AioSqliteConfiguration):
    """Prefect's database on SQLite with one writer at a time, who has the right to write from the beginning."""

    def __init__(self, connection_url: str) -> None:
        super().__init__(connection_url=connection_url)
        self._turn = asyncio.Lock()

    @asynccontextmanager
    async def begin_transaction(self, session: Any, with_for_update: bool = False) -> AsyncGenerator[Any]:
        """A transaction of the session; one inside another is begun as Prefect begins it."""
        if _WRITES.get():
            async with super().begin_transaction(session, with_for_update) as inner:
                yield inner
            return
        async with self._in_turn(), super().begin_transaction(session, with_for_update=True) as transaction:
            token = _WRITES.set(True)
            try:
                yield transaction
            finally:
                _WRITES.reset(token)

    @asynccontextmanager
    async def _in_turn(self) -> AsyncGenerator[None]:
        try:
            await asyncio.wait_for(self._turn.acquire(), TURN_SECONDS)
        except TimeoutError:
            yield
            return
        try:
            yield
        finally:
            self._turn.release()


def policy(api_url: str) -> str:
    """Content-Security-Policy of the pages: scripts, pictures and requests of this server only, and of its API."""
    parts = urlsplit(api_url)
    api = f" {parts.scheme}://{parts.netloc} ws://{parts.netloc} wss://{parts.netloc}" if parts.netloc else ""
    own = "'self' data: blob:"
    return (
        f"default-src {own} 'unsafe-inline' 'unsafe-eval'; img-src {own}; "
        f"connect-src {own}{api}; form-action 'self'; frame-ancestors 'self'"
    )


class OwnServerOnly:
    """ASGI: every answer of `app` carries the policy."""

    def __init__(self, app: ASGIApp, text: str) -> None:
        self._app, self._header = app, (b"content-security-policy", text.encode())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""

        async def told(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), self._header]}
            await send(message)

        await self._app(scope, receive, told if scope["type"] == "http" else send)


def guard_pages() -> None:
    """Let the server make its pages with the policy."""
    made = server.create_ui_app

    def guarded(ephemeral: bool) -> FastAPI:
        pages = made(ephemeral)
        pages.add_middleware(OwnServerOnly, text=policy(PREFECT_UI_API_URL.value() or ""))
        return pages

    server.create_ui_app = guarded


def main() -> None:
    """As `prefect server start`, which reads the rest of the words."""
    reset_inherited()
    url: str = PREFECT_API_DATABASE_CONNECTION_URL.value() or ""
    if url.startswith("sqlite"):
        dependencies.MODELS_DEPENDENCIES["database_config"] = QueuedSqlite(url)
    guard_pages()
    sys.argv[1:] = ["server", "start", *sys.argv[1:]]
    app()


if __name__ == "__main__":
    main()
