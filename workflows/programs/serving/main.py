"""Asks one component whether it serves, until it does or its time is up, and leaves a note of what was seen.

    primus-programs prove-serving --component=registry --proof=registry --parameters='{"url": "http://…"}'

The report goes to `<out_dir>/report` and into the component's note. It ends with 0 where the component serves, else
with 1: what stands behind it in a workflow is not begun.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
import time
from dataclasses import dataclass
from typing import Callable, Dict, List, Mapping

from workflows.programs.runtime import flags
from workflows.programs.runtime.kubernetes_api import Api, ApiError, api_from
from workflows.programs.serving import images, kinds, places, stores
from workflows.programs.serving.ask import FAIL, PASS, UNKNOWN, NoAnswerError, NotServedError, Seen
from workflows.programs.serving.note import write_note
from workflows.programs.serving.world import World
from workflows.wire import ServingReport, to_json

Proof = Callable[[World, Mapping[str, str]], Seen]
PROOFS: Dict[str, Proof] = {
    "api-service": kinds.api_service,
    "certificates": kinds.certificates,
    "crd": kinds.custom_resource,
    "dns": places.dns,
    "gang": kinds.gang,
    "gateway": places.gateway,
    "gpu": places.gpu,
    "http": stores.http,
    "logs": stores.logs,
    "metrics": stores.metrics,
    "registry": images.registry,
    "storage": places.storage,
    "workflow": kinds.workflow,
}
TRY_SECONDS = 90.0
"""One try; then everything that it made goes, and the next one begins with a fresh mark."""
ONE_TRY = ("gpu",)
"""Proofs whose one try lasts as long as there is time: an image of many gigabytes would never come in less."""
PAUSE_SECONDS = 2.0
MARK_BYTES = 8


@dataclass(frozen=True)
class Options(flags.Flags):
    """What is asked, and where the answer goes."""

    component: str
    """Its name."""
    proof: str
    """Which proof; one of `PROOFS`."""
    parameters: str = "{}"
    """JSON: what the proof is told."""
    version: str = ""
    """Of the component, for its note."""
    wanted: str = ""
    """Fingerprint of what was installed, for its note."""
    deadline_seconds: float = 300.0
    """So long it may take until it serves."""
    namespace: str = "primus-bootstrap"
    """Of the note and of what proofs make."""
    image: str = ""
    """Of our programs, for pods that proofs make."""
    api: str = ""
    """URL of the API server; empty: the cluster in which this pod runs."""
    out_dir: str = ""
    """Folder of the report; empty: none."""


@flags.program("prove-serving")
def main(argv: List[str]) -> int:
    """Ask, report, note; 0 where it serves."""
    options = flags.from_argv(Options, argv)
    if options.proof not in PROOFS:
        raise flags.UsageError(f"--proof: {options.proof!r} is none of {', '.join(sorted(PROOFS))}")
    api = api_from(os.environ, options.api)
    if api is None:
        raise flags.UsageError("--api: this is no pod of a cluster; name the URL of its API server")
    report = proven(options, api)
    text = to_json(report)
    if options.out_dir:
        with open(os.path.join(options.out_dir, "report"), "w", encoding="utf-8") as file:
            file.write(text)
    try:
        data = {"version": options.version, "wanted": options.wanted, "report": text}
        write_note(api, options.namespace, options.component, data)
    except ApiError as error:
        print(f"prove-serving: its note could not be written: {error}", file=sys.stderr, flush=True)
    print(text, flush=True)
    return 0 if report.word == PASS else 1


def proven(
    options: Options,
    api: Api,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> ServingReport:
    """What was seen last: the first pass, or what stood when the time was up."""
    parameters: Dict[str, str] = json.loads(options.parameters)
    began, tries = clock(), 0
    end = began + options.deadline_seconds
    while True:
        tries += 1
        until = end if options.proof in ONE_TRY else min(end, clock() + TRY_SECONDS)
        seen = asked(options, api, parameters, until, clock, sleep)
        if seen.word == PASS or clock() + PAUSE_SECONDS >= end:
            break
        sleep(PAUSE_SECONDS)
    took = round(clock() - began, 1)
    return ServingReport(options.component, seen.word, seen.why, time.time(), options.wanted, took, tries)


def asked(
    options: Options,
    api: Api,
    parameters: Mapping[str, str],
    deadline: float,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> Seen:
    """One try. Whoever does not answer does not serve; an API that does not answer leaves it unknown."""
    mark = secrets.token_hex(MARK_BYTES)
    world = World(
        api, mark=mark, namespace=options.namespace, image=options.image, deadline=deadline, clock=clock, sleep=sleep
    )
    try:
        return PROOFS[options.proof](world, parameters)
    except (NoAnswerError, NotServedError) as error:
        return Seen(FAIL, str(error))
    except ApiError as error:
        return Seen(UNKNOWN if error.code in (0, 401, 403, 429, 500, 502, 503, 504) else FAIL, str(error))
    except (OSError, ValueError, KeyError, TypeError) as error:
        return Seen(UNKNOWN, f"the proof itself failed: {type(error).__name__}: {error}")
    finally:
        world.clear()
