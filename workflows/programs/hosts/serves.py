"""Waits until a URL of this host answers 200 and programs run with what is wanted; says why they do not.

    python3 -I -c "$(cat serves.py)" SECONDS URL < {PROGRAM: {"arguments": {NAME: VALUE}, "variables": {NAME: VALUE}}}

It stands on the standard library alone and is sent as it is. A program counts once a single process of it has run for
some seconds: one that refuses its arguments ends at once and is begun again and again.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import ssl
import sys
import time
import urllib.request
from typing import Any, Dict, List

AUTHORITY = "/etc/kubernetes/pki/ca.crt"
ANSWER_SECONDS = 3.0
LOOK_SECONDS = 0.5
SETTLED_SECONDS = 5.0


def why_not(url: str, wanted: Dict[str, Dict[str, Dict[str, str]]]) -> str:
    """Why it does not serve now; "" where it does."""
    for program, own in wanted.items():
        ages: List[float] = []
        for process in _processes(program):
            words = [*_read(process, "cmdline").split("\0"), *_read(process, "environ").split("\0")]
            lacking = [word for word in _words(own) if word not in words]
            if lacking:
                return f"{program} runs without {lacking[0]}"
            ages.append(_age_seconds(process))
        if len(ages) != 1 or ages[0] < SETTLED_SECONDS:
            return f"{program} does not keep running" if ages else f"{program} does not run"
    return _silent(url)


def _words(own: Dict[str, Dict[str, str]]) -> List[str]:
    """As they stand in its command line and environment."""
    arguments = [f"--{name}={value}" for name, value in own.get("arguments", {}).items()]
    return [*arguments, *(f"{name}={value}" for name, value in own.get("variables", {}).items())]


def _silent(url: str) -> str:
    context = ssl.create_default_context(cafile=AUTHORITY) if url.startswith("https:") else None
    handlers: List[Any] = [urllib.request.ProxyHandler({})]
    if context is not None:
        handlers.append(urllib.request.HTTPSHandler(context=context))
    try:
        with urllib.request.build_opener(*handlers).open(url, timeout=ANSWER_SECONDS):
            return ""
    except (OSError, ValueError, http.client.HTTPException) as error:
        return f"{url}: {error}"


def _processes(program: str) -> List[str]:
    """Ids of processes of this name in the host's own network."""
    own = _network("1")
    named = [one for one in os.listdir("/proc") if one.isdigit() and _read(one, "comm").strip() == program[:15]]
    begun = [one for one in named if os.path.basename(_read(one, "cmdline").partition("\0")[0]) == program]
    return [one for one in begun if _network(one) == own]


def _network(process: str) -> str:
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/{process}/ns/net")
    return ""


def _read(process: str, name: str) -> str:
    with contextlib.suppress(OSError), open(f"/proc/{process}/{name}", encoding="utf-8", errors="replace") as file:
        return file.read()
    return ""


def _age_seconds(process: str) -> float:
    words = _read(process, "stat").rpartition(")")[2].split()
    if len(words) < 20:
        return 0.0
    with open("/proc/uptime", encoding="utf-8") as file:
        up = float(file.read().split()[0])
    return up - int(words[19]) / os.sysconf("SC_CLK_TCK")


def main(argv: List[str]) -> int:
    """Exit code 1: not in time; the last line of standard error says why."""
    until, wanted = time.monotonic() + float(argv[0]), json.loads(sys.stdin.read() or "{}")
    while True:
        why = why_not(argv[1], wanted)
        if not why:
            return 0
        if time.monotonic() > until:
            print(f"not within {argv[0]} s: {why}", file=sys.stderr)
            return 1
        time.sleep(LOOK_SECONDS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
