"""Asks the health service once, prints what it says, and ends like the verdict: for a pod, a cron job, a person.

Standard library only, Python 3.9.

    python3 programs.pyz health-ask --url='http://primus-health.primus-health.svc:3333/status?host=all'
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any, Dict, List, Tuple, cast

from workflows.programs.runtime import flags

PASSED, FAILED, WRONG_USE, NOT_KNOWN = 0, 1, 2, 3
ANSWER_BYTES = 64 << 20
CODES = {"pass": PASSED, "fail": FAILED}
"""Exit code by verdict; everything else is not known."""


@dataclass(frozen=True)
class Options(flags.Flags):
    """What is asked."""

    url: str
    """Address of `/status` with its query."""
    deadline_seconds: float = 540.0
    """For the whole answer."""


def fetch(url: str, seconds: float) -> Tuple[str, int]:
    """What is printed, and the exit code. Silence and what cannot be read are not known."""
    if not url.startswith(("http://", "https://")):
        return f"health-ask: --url: must begin with http:// or https://, got {url[:80]!r}", WRONG_USE
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(url, headers={"Accept": "application/json"})  # noqa: S310 - looked at above
    try:
        with opener.open(request, timeout=seconds) as answer:
            text = answer.read(ANSWER_BYTES).decode("utf-8", "replace")
    except urllib.error.HTTPError as error:
        with error:
            reason = error.read(2000).decode("utf-8", "replace").strip()
        return f"health-ask: {url} answers {error.code}: {reason}", NOT_KNOWN
    except (OSError, ValueError) as error:
        return f"health-ask: {url} does not answer: {error}", NOT_KNOWN
    return read(text)


def read(text: str) -> Tuple[str, int]:
    """The typed answer as it is shown, and the exit code."""
    try:
        answer: Any = json.loads(text)
        verdict = cast("Dict[str, Any]", answer)["verdict"]
    except (ValueError, KeyError, TypeError):
        return f"{text.rstrip()}\nhealth-ask: the answer holds no verdict", NOT_KNOWN
    shown_text = cast("Dict[str, Any]", answer).get("text")
    body = shown_text if isinstance(shown_text, str) else json.dumps(answer, indent=2)
    return f"{body.rstrip()}\nverdict: {verdict}", CODES.get(str(verdict), NOT_KNOWN)


@flags.program("health-ask")
def main(argv: List[str]) -> int:
    """Ask and print."""
    options = flags.from_argv(Options, argv)
    text, code = fetch(options.url, options.deadline_seconds)
    print(text, flush=True)
    return code
