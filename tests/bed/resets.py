"""Connections to the API server that break: every packet of theirs is answered with a reset for a while."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from tests.bed.commands import run
from tests.bed.options import NAMESPACE

PORT = "6443"
RULES = (("INPUT", "--dport"), ("OUTPUT", "--sport"))


@contextmanager
def resets() -> Generator[None]:
    """While it lasts nobody keeps or makes a connection to the API server, from nodes and from outside."""
    for chain, side in RULES:
        _rule("-I", chain, side)
    try:
        yield
    finally:
        for chain, side in RULES:
            _rule("-D", chain, side)


def _rule(how: str, chain: str, side: str) -> None:
    reset = ("-j", "REJECT", "--reject-with", "tcp-reset")
    enter = ("nsenter", f"--net=/run/netns/{NAMESPACE}", "--")
    run(*enter, "iptables", "-w", how, chain, "-p", "tcp", side, PORT, *reset)
