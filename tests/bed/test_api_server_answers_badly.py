"""The API server refuses, fails, hangs up and no longer knows us while a run trains: nothing is made of it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bed.api import Api, RefusedError
from tests.bed.commands import until
from tests.bed.ground import BedGround
from tests.bed.relay import Answer, Relay, kubeconfig, relay
from tests.bed.short_tokens import token
from tests.bed.tenancy import request_token
from tests.bed.untouched import BACK_S, trained, untouched
from tests.bed.up import Bed
from tests.stages import Stage, stage
from workflows.workspace import RUNNER

pytestmark = pytest.mark.story
HOME = "primus-flows"
"""Namespace of the runner's account."""
HALF_MINUTE_S = 30.0
CUTS = 100


@pytest.fixture
def before(bed: Bed) -> Iterator[Relay]:
    """The relay through which the flow of the story talks."""
    with relay(bed.folder, bed.options) as made:
        yield made


@pytest.fixture
def scene(prefect_server: str, bed: Bed, before: Relay, tmp_path: Path) -> Iterator[Stage]:
    with stage(prefect_server, BedGround()) as made:
        through = kubeconfig(tmp_path / "kubeconfig", bed.folder.account("runner"), before.address)
        os.environ["KUBECONFIG"] = str(through)
        yield made
    bed.settle()


def status(code: int, reason: str, message: str) -> bytes:
    """The API server's own way to say no."""
    said = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason}
    return json.dumps({**said, "message": message}).encode()


BUSY = Answer(
    429,
    {"Content-Type": "application/json", "Retry-After": "1"},
    status(429, "TooManyRequests", "too many requests, please try again later"),
)
BROKEN = Answer(500, {"Content-Type": "application/json"}, status(500, "InternalError", "etcdserver: no leader"))

UNKNOWN = Answer(401, {"Content-Type": "application/json"}, status(401, "Unauthorized", "Unauthorized"))


def test_it_answers_429_and_500_for_a_minute(scene: Stage, bed: Bed, before: Relay) -> None:
    def during() -> None:
        for answer in (BUSY, BROKEN):
            before.instead = lambda method, path, answer=answer: answer
            asked = before.answered
            time.sleep(HALF_MINUTE_S)
            assert before.answered > asked, "somebody asked"
        before.instead = lambda method, path: None

    untouched(scene, bed, during, steps=1300)


def test_watches_are_cut_a_hundred_times(scene: Stage, bed: Bed, before: Relay) -> None:
    def during() -> None:
        cuts = 0
        deadline = time.monotonic() + BACK_S
        while cuts < CUTS:
            assert time.monotonic() < deadline, f"{cuts} watches were begun and cut"
            cuts += before.cut()
            time.sleep(0.05)

    untouched(scene, bed, during, steps=1000)


def test_a_token_that_expires_is_read_anew(scene: Stage, bed: Bed, before: Relay) -> None:
    file = Path(os.environ["KUBECONFIG"])

    def during() -> None:
        short = token(bed, RUNNER, HOME, seconds=8.0)
        kubeconfig(file, file, token=short)
        before.instead = lambda method, path: None if before.answered else UNKNOWN  # so that it is read
        until("a token that the server refuses", lambda: not known(bed, short), BACK_S, 0.5)
        step = trained(scene)
        until("training goes on", lambda: trained(scene) > step + 100, BACK_S, 0.2)
        assert (scene.story.attempts[0].last_step or 0) < step + 100, "nobody tells the flow of it"
        kubeconfig(file, file, token=request_token(bed.api, RUNNER, HOME))
        until("the flow goes on", lambda: (scene.story.attempts[0].last_step or 0) >= step + 100, BACK_S, 0.2)

    untouched(scene, bed, during, steps=1000)


def known(bed: Bed, asked: str) -> bool:
    """Whether the API server still takes a token."""
    try:
        Api(bed.folder, bed.options, asked).get("/api/v1/nodes")
    except RefusedError as refused:
        if refused.status != 401:
            raise
        return False
    return True
