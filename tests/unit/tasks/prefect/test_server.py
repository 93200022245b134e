"""The port of a home's own server: the one of before, and none that the system gives to connections."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from profiles.errors import Unavailable
from tasks.prefect import server, services
from tasks.prefect.server import PORTS


def port(home: Path) -> int:
    return server._port(home)  # pyright: ignore[reportPrivateUsage] - nothing is started here


def test_a_new_port_is_none_that_connections_get(tmp_path: Path) -> None:
    assert port(tmp_path) in PORTS
    assert PORTS.stop <= 32768, "Linux's lowest, where nobody changed it"


def test_the_port_of_before_stays_while_it_is_free(tmp_path: Path, looks: list[float]) -> None:
    before = port(tmp_path)
    (tmp_path / "server.port").write_text(str(before))
    assert port(tmp_path) == before
    assert looks == []
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", before))
        assert port(tmp_path) != before
    assert len(looks) == server.FREE_LOOKS


def test_a_server_that_is_dying_lets_its_port_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = port(tmp_path)
    (tmp_path / "server.port").write_text(str(before))
    with socket.socket() as dying:
        dying.bind(("127.0.0.1", before))
        monkeypatch.setattr(server.time, "sleep", lambda _: dying.close())
        assert port(tmp_path) == before


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long was waited for a port."""
    waited: list[float] = []
    monkeypatch.setattr(server.time, "sleep", waited.append)
    return waited


@pytest.mark.parametrize("text", ["", "no port", "99999999", "-4"])
def test_what_is_no_port_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "server.port").write_text(text)
    assert port(tmp_path) in PORTS


def test_where_all_of_them_are_taken_the_system_gives_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = taken.getsockname()[1]
        monkeypatch.setattr(server, "PORTS", range(number, number + 1))
        assert port(tmp_path) not in (0, number)


def test_what_ended_a_server_or_a_runner_is_told_with_its_log(tmp_path: Path) -> None:
    for name in ("server", "runner"):
        (tmp_path / "logs").mkdir(exist_ok=True)
        (tmp_path / "logs" / f"{name}.log").write_text(
            "Traceback (most recent call last):\n  File 1\nOSError: no room\n"
        )
    with pytest.raises(Unavailable, match=r"ended: OSError: no room; see .*server\.log"):
        server.wait_for_server("http://127.0.0.1:9/api", tmp_path)
    with pytest.raises(Unavailable, match=r"ended at once: OSError: no room; see .*runner\.log"):
        services._wait_until_serving(tmp_path)  # pyright: ignore[reportPrivateUsage] - nothing is started here
