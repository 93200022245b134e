"""Somebody who asks the API at its address all the while, and how much else the machine does."""

from __future__ import annotations

import os
import ssl
import threading
import time
import urllib.request
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.lab.hosts import Host
from tests.lab.layout import VIRTUAL

ASK_S = 0.1
"""Between two questions to the API."""


@dataclass
class Asked:
    """What somebody saw who asked the API at its address all the while."""

    times: int = 0
    longest_s: float = 0.0
    """Between two good answers."""
    silences: list[str] = field(default_factory=list[str])
    """Of more than a second, and when they ended."""


@contextmanager
def asking() -> Generator[Asked]:
    """Ask the API at its address for as long as this lasts."""
    found, over = Asked(), threading.Event()
    thread = threading.Thread(target=_ask, args=(found, over), daemon=True)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()
        print(f"the API was asked {found.times} times, away for {found.longest_s:.1f} s at most: {found.silences}")


def _ask(found: Asked, over: threading.Event) -> None:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    last = time.monotonic()
    while not over.wait(ASK_S):
        try:
            with urllib.request.urlopen(f"https://{VIRTUAL}:6443/readyz", timeout=1.0, context=context) as answer:
                good = answer.status == 200
        except OSError:
            good = False
        found.times += 1
        now = time.monotonic()
        if good:
            if now - last > 1.0:
                found.silences.append(f"{now - last:.1f} s until {time.strftime('%H:%M:%S')}")
            found.longest_s, last = max(found.longest_s, now - last), now
    found.longest_s = max(found.longest_s, time.monotonic() - last)


def load() -> str:
    """How much else this machine does: what measured seconds stand beside."""
    return f"load {', '.join(f'{one:.1f}' for one in os.getloadavg())}"


def services(hosts: Sequence[Host]) -> dict[str, str]:
    """What the API answers each host at its service's address, which every kube-proxy must know."""
    kubectl = "kubectl --kubeconfig /etc/kubernetes/admin.conf"
    address = hosts[0].run(f"{kubectl} get service kubernetes -o jsonpath='{{.spec.clusterIP}}'").strip()
    curl = f"curl -sk --max-time 5 -o /dev/null -w '%{{http_code}}' https://{address}:443/readyz"
    return {host.name: host.run(curl, check=False).strip() for host in hosts}
