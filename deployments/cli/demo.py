"""`primus demo`: a training run on this machine that loses a node, and the proof that nothing was lost by it."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from deployments.cli.app import AsJson, app
from deployments.cli.report import report_document, report_text
from deployments.cli.train import stop_run
from deployments.exit_codes import FAILED, GOOD, goes_on, out, out_json, say
from deployments.processes.console import ensure_console, stop_console
from deployments.processes.driver import driver_pid, prepare_driver
from deployments.screen.live import follow
from deployments.screen.views import status_document
from profiles.drill import FaultSpec
from profiles.errors import Unavailable
from profiles.request import TrainRequest
from profiles.vocabulary import Mode, RunState
from tasks.context import at_hand
from tasks.ledger.ledger import Ledger
from tasks.prefect.server import server_url
from tasks.prefect.services import wish_of
from tasks.processes import own_user
from tasks.runs.faults import break_at, wait_for
from tasks.runs.open import open_run, resolved_of, run_folder
from tasks.runs.put_back import power_on
from tasks.settings import Settings

Json = dict[str, Any]

LOSE_AT_STEP = 90
"""Between two checkpoints (every 20 steps), so that a few steps must be done twice."""
PROOF_SECONDS = 60.0

_WEIGHTS = re.compile(r"weights sha256 ([0-9a-f]{64})")
_UNIGRAM = re.compile(r"unigram entropy ([0-9.]+)")
_FINAL = re.compile(r"held-out loss ([0-9.]+)")


@app.command("demo")
def run_demo(
    *,
    as_json: AsJson = False,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the server running for a look at its pages.")] = False,
) -> int:
    """Train, lose a node, resume from the proven checkpoint, compare with an unfailed run.

    Example: primus demo
    """
    settings = Settings.from_environment(os.environ)
    had_server = server_url(settings.home) is not None or wish_of(settings.home) is not None
    began = time.monotonic()
    if not had_server:
        say("starting the Prefect server (about ten seconds the first time)")
    goes_on("ended; nothing of the demo goes on")
    try:
        api_url = ensure_console(settings.home)
        ready = time.monotonic()
        say(f"ready after {ready - began:.1f} s; pages at {api_url.removesuffix('/api')}")
        ledger = Ledger(settings.ledger_url)
        failing = _train(settings, ledger, api_url, lose_node=True)
        say("\nthe same run without a fault, for comparison")
        unfailed = _train(settings, ledger, api_url, lose_node=False)
        document = _document(failing, unfailed, settings, ledger)
        document["seconds_after_setup"] = round(time.monotonic() - ready, 1)
    finally:
        if not (had_server or keep):
            with _told("the server of the demo goes on. Stop it: primus down"):
                stop_console(settings.home)
    if as_json:
        out_json(document)
    else:
        out(_text(document))
    return GOOD if document["equal"] and document["learned"] and document["resume_proven"] else FAILED


def _train(settings: Settings, ledger: Ledger, api_url: str, *, lose_node: bool) -> str:
    driver = prepare_driver(settings.home, api_url)
    try:
        run = open_run(
            TrainRequest(profile="demo", cluster="local", mode=Mode.ACT), settings, ledger, time.time(), own_user()
        ).name
    except BaseException:
        driver.dismiss()
        raise
    broken = ""
    try:
        driver.drive(run)
        if lose_node:
            broken = _victim(run, ledger)
            _lose(run, broken, settings, ledger)
        state = follow(run, settings, ledger)
    except KeyboardInterrupt:
        say(f"\n{run} is stopped; Ctrl-C once more leaves it")
        with _told(f"{run} goes on. Stop it: primus stop {run}, and the server: primus down"):
            stop_run(run, "its demo was interrupted")
        raise
    finally:
        _wait_for_end(run, settings)  # a driver whose server is stopped under it would wait for one
        if broken:
            _give_back(run, broken, settings, ledger)
    if state is not RunState.SUCCEEDED:
        log = settings.home / "runs" / run / "driver.log"
        raise Unavailable(f"{run} ended as {state}; see `primus status {run}` and {log}")
    return run


@contextmanager
def _told(left: str) -> Generator[None]:
    """Whoever interrupts what is inside is told what is left."""
    before = goes_on(left)
    yield
    goes_on(before)


def _wait_for_end(run: str, settings: Settings) -> None:
    deadline = time.monotonic() + 10.0
    while driver_pid(settings.home, run) is not None and time.monotonic() < deadline:
        time.sleep(0.02)


def _give_back(run: str, node: str, settings: Settings, ledger: Ledger) -> None:
    """Power the node on and release it, so that the next demo finds the cluster, and its brake, as before."""
    profile = resolved_of(ledger.story(run).run).cluster
    with at_hand(settings):
        power_on(profile, node, f"{run} had cut its power for show", own_user())


def _victim(run: str, ledger: Ledger) -> str:
    story = wait_for(ledger, run, lambda story: bool(story.attempts and story.attempts[0].nodes), PROOF_SECONDS)
    return story.attempts[0].nodes[-1]


def _lose(run: str, node: str, settings: Settings, ledger: Ledger) -> None:
    break_at(run, FaultSpec("lose-node", node=node, step=LOSE_AT_STEP), settings, ledger, own_user())
    say(f"--- the power of {node} is cut at step {LOSE_AT_STEP} ---")


def _last_words(run: str, settings: Settings, ledger: Ledger) -> str:
    """What rank 0 of the last attempt printed."""
    story = ledger.story(run)
    folder = run_folder(resolved_of(story.run), run)
    number = story.attempts[-1].number
    return "\n".join(path.read_text(errors="replace") for path in sorted(folder.glob(f"a{number}/*/rank-0.log")))


def _find(pattern: re.Pattern[str], text: str, what: str) -> str:
    found = pattern.findall(text)
    if not found:
        raise Unavailable(f"the trainer did not print its {what}")
    return found[-1]


def _document(failing: str, unfailed: str, settings: Settings, ledger: Ledger) -> Json:
    said, reference = _last_words(failing, settings, ledger), _last_words(unfailed, settings, ledger)
    weights, expected = _find(_WEIGHTS, said, "weights"), _find(_WEIGHTS, reference, "weights")
    loss, entropy = float(_find(_FINAL, said, "loss at the end")), float(_find(_UNIGRAM, said, "unigram entropy"))
    status = status_document(failing, settings, ledger)
    return {
        "run": failing,
        "unfailed_run": unfailed,
        "weights_sha256": weights,
        "unfailed_weights_sha256": expected,
        "equal": weights == expected,
        "held_out_loss": loss,
        "unigram_entropy": entropy,
        "learned": loss < entropy,
        "resume_proven": status["attempts"][-1]["resume_proof"] == "pass",
        "checkpoint": ledger.story(failing).attempts[-1].resume_path,
        "status": status,
        "report": report_document(failing, ledger),
    }


def _text(document: Json) -> str:
    last = document["status"]["attempts"][-1]
    proof = "proven" if document["resume_proven"] else "NOT PROVEN"
    lines = [
        "",
        report_text(document["report"]),
        "",
        f"checkpoint taken   {document['checkpoint']} (verified inside the cluster before the restart)",
        f"resume             step {last['resumed_from_step']} -> first step {last['first_step']}: {proof}",
        f"weights            {document['weights_sha256'][:16]}… with a lost node",
        f"                   {document['unfailed_weights_sha256'][:16]}… without: "
        + ("equal, bit for bit" if document["equal"] else "DIFFERENT"),
        f"held-out loss      {document['held_out_loss']:.4f}; unigram entropy of the text "
        f"{document['unigram_entropy']:.4f}: {'it learned' if document['learned'] else 'it did NOT learn'}",
        f"time after set-up  {document['seconds_after_setup']} s",
        f"more               primus report {document['run']} --html report.html",
    ]
    return "\n".join(lines)
