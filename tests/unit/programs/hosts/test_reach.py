"""Ports and packets between hosts, on addresses of this machine."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from workflows.programs.hosts import reach as subject
from workflows.programs.hosts.reach import Listener, listen, reach

NONCE = "0123456789abcdef"
PORT = 17431


def asked(*peers: dict[str, Any], mtu: int = 1500) -> dict[str, Any]:
    return {"address": "127.9.9.9", "nonce": NONCE, "mtu": mtu, "seconds": 1.0, "peers": list(peers)}


def peer(made: Listener, address: str, **more: Any) -> dict[str, Any]:
    return {"name": "n1", "address": address, "ports": [PORT], "ours": made.listening, "udp": made.udp, **more}


def test_ports_say_how_they_are() -> None:
    made, told = listen({"name": "n1", "address": "127.9.0.1", "ports": [PORT, PORT + 1], "nonce": NONCE})
    assert (told["listening"], told["taken"], told["why"]) == ([PORT, PORT + 1], {}, "")
    again = Listener("n1", "127.9.0.1", (PORT,), NONCE)
    assert again.taken == {PORT: "Address already in use"}
    found = reach(
        asked(
            peer(made, "127.9.0.1"),
            peer(made, "127.9.0.1", name="n2", udp=0),
            peer(made, "127.9.0.2", name="n3"),
            peer(made, "240.0.0.1", name="n4", udp=0),
        )
    )["peers"]
    assert found["n1"] == {"ports": {str(PORT): "open"}, "mtu": 1500, "wanted_mtu": 1500}
    assert found["n2"]["ports"] == {str(PORT): "answered by n1"}, "another host has its address"
    assert found["n3"]["ports"] == {str(PORT): "refused"}
    assert found["n4"]["ports"][str(PORT)] != "open"
    assert (found["n4"]["mtu"], found["n4"]["wanted_mtu"]) == (0, 0)


def test_what_listens_and_says_nothing_is_silent_where_we_should_answer() -> None:
    with socket.create_server(("127.9.0.3", PORT)):
        mute: dict[str, Any] = {"name": "n1", "address": "127.9.0.3", "ports": [PORT], "udp": 0}
        assert reach(asked({**mute, "ours": [PORT]}))["peers"]["n1"]["ports"] == {str(PORT): "silent"}
        assert reach(asked({**mute, "ours": []}))["peers"]["n1"]["ports"] == {str(PORT): "open"}


def test_packets_that_nobody_answers_do_not_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "ROUND_SECONDS", 0.05)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as deaf:
        deaf.bind(("127.9.0.4", 0))
        row: dict[str, Any] = {
            "name": "n1",
            "address": "127.9.0.4",
            "ports": [],
            "ours": [],
            "udp": deaf.getsockname()[1],
        }
        assert reach(asked(row))["peers"]["n1"] == {"ports": {}, "mtu": 0, "wanted_mtu": 1500}
        sizes = {len(deaf.recv(1 << 16)) for _ in range(3)}
    assert max(sizes) == 1500 - subject.HEADERS


def test_strangers_get_no_answer_and_a_wrong_address_is_told() -> None:
    made = Listener("n1", "127.9.0.5", (), NONCE)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.settimeout(0.2)
        asking.sendto(b"who are you?", ("127.9.0.5", made.udp))
        with pytest.raises(TimeoutError):
            asking.recv(100)
    assert "192.0.2.77" in listen({"name": "n1", "address": "192.0.2.77", "ports": [PORT], "nonce": NONCE})[1]["why"]
    assert "no packets can be sent from 192.0.2.77" in reach({**asked(), "address": "192.0.2.77"})["why"]
