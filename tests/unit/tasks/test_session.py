"""A process that drives a run makes one client of Prefect, not one for every task."""

from __future__ import annotations

import asyncio
from pathlib import Path

from prefect import flow
from prefect.client.orchestration import SyncPrefectClient
from prefect.context import SyncClientContext

from tasks.context import session, touch
from tasks.settings import Settings


def test_all_tasks_of_a_session_share_one_client(prefect_server: str, tmp_path: Path) -> None:
    clients: list[SyncPrefectClient] = []

    @touch("look at number {number}")
    def look(number: int) -> int:
        client = SyncClientContext.get()
        assert client is not None
        clients.append(client.client)
        return number

    @flow
    async def three() -> int:
        with session(Settings.from_environment({"PRIMUS_HOME": str(tmp_path)})):
            return sum(look(number) for number in range(3))

    assert asyncio.run(three()) == 3  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    assert len(clients) == 3
    assert all(client is clients[0] for client in clients)
