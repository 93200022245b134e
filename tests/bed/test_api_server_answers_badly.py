"""The API server refuses, fails, hangs up and no longer knows us while a run trains: nothing is made of it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bed import up
from tests.bed.api import Api, RefusedError
from tests.bed.commands import until
from tests.bed.relay import Answer, Relay, kubeconfig, relay
from tests.bed.short_tokens import token
from tests.bed.tenancy import request_token
from tests.bed.untouched import BACK_S, Healthy, Runs, trained
from tests.bed.up import Bed
from workflows.platform.workspace import RUNNER

pytestmark = pytest.mark.story
HOME = "primus-flows"
"""Namespace of the runner's account."""
HALF_MINUTE_S = 30.0
CUTS = 100


@pytest.fixture(scope="module")
def before(standing: None) -> Iterator[Relay]:
    """The relay through which the flow of the run talks."""
    del standing
    with relay(the_bed().folder, the_bed().options) as made:
        yield made


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kubeconfig of the flow."""
    return tmp_path_factory.mktemp("relay") / "kubeconfig"


@pytest.fixture(scope="module")
def runs(prefect_server: str, file: Path) -> Iterator[Runs]:
    """The run that all of it happens to."""
    made = Runs(prefect_server, the_bed(), str(file))
    yield made
    made.close()


@pytest.fixture
def healthy(bed: Bed, runs: Runs, before: Relay, file: Path) -> Healthy:
    """It trains, all of the bed is well, and whatever a test before did to the relay is over."""
    before.instead = lambda method, path: None
    kubeconfig(file, bed.folder.account("runner"), before.address)
    return runs.healthy()


def the_bed() -> Bed:
    """The one that is up."""
    found = up.find()
    assert found is not None
    return found


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


@pytest.mark.parametrize("answer", [BUSY, BROKEN], ids=["429", "500"])
def test_it_answers_nothing_else_for_half_a_minute(healthy: Healthy, before: Relay, answer: Answer) -> None:
    asked = before.answered
    with healthy.through():
        before.instead = lambda method, path: answer
        time.sleep(HALF_MINUTE_S)
        before.instead = lambda method, path: None
    assert before.answered > asked, "somebody asked"


def test_watches_are_cut_a_hundred_times(healthy: Healthy, before: Relay) -> None:
    with healthy.through():
        cuts = 0
        deadline = time.monotonic() + BACK_S
        while cuts < CUTS:
            assert time.monotonic() < deadline, f"{cuts} watches were begun and cut"
            cuts += before.cut()
            time.sleep(0.05)


def test_a_token_that_expires_is_read_anew(healthy: Healthy, bed: Bed, before: Relay, file: Path) -> None:
    scene, asked = healthy.scene, before.answered
    with healthy.through():
        short = token(bed, RUNNER, HOME, seconds=8.0)
        kubeconfig(file, file, token=short)
        before.instead = lambda method, path: None if before.answered > asked else UNKNOWN  # so that it is read
        until("a token that the server refuses", lambda: not known(bed, short), BACK_S, 0.5)
        step = trained(scene)
        until("training goes on", lambda: trained(scene) > step + 100, BACK_S, 0.2)
        assert (scene.story.attempts[0].last_step or 0) < step + 100, "nobody tells the flow of it"
        kubeconfig(file, file, token=request_token(bed.api, RUNNER, HOME))
        until("the flow goes on", lambda: (scene.story.attempts[0].last_step or 0) >= step + 100, BACK_S, 0.2)


def test_the_run_ends_as_if_nothing_had_been(healthy: Healthy, runs: Runs) -> None:
    healthy.ends()
    runs.close()


def known(bed: Bed, asked: str) -> bool:
    """Whether the API server still takes a token."""
    try:
        Api(bed.folder, bed.options, asked).get("/api/v1/nodes")
    except RefusedError as refused:
        if refused.status != 401:
            raise
        return False
    return True
