"""An API server that has just started says no to everything: that is waited out; a right that we lack is told."""

from __future__ import annotations

import pytest
from kubernetes.client.configuration import Configuration

from profiles.errors import Refused, Unavailable
from tasks.kubernetes.api_server import FORGET_SECONDS, SETTLE_SECONDS, ApiServer, Request, Starting, refuses_rights
from tests.support.fakes.fake_api_server import FakeApiServer, Fault, status

NO = status(403, "Forbidden", 'secrets "a" is forbidden: User "ada" cannot get resource "secrets" in API group ""')
ASKED = Request("GET", "/api/v1/namespaces/train/pods/demo", "get Pod demo")


def server_of(api: FakeApiServer) -> ApiServer:
    configuration = Configuration()
    configuration.host = api.url
    return ApiServer(lambda: configuration, sleep=lambda _: None)


def ready(api: FakeApiServer, code: int, times: int = 99) -> None:
    api.faults.append(Fault("GET /readyz", code, b"said", times=times))


def refuse(api: FakeApiServer, times: int) -> None:
    api.faults.append(Fault("GET /api/v1", 403, NO, times=times))


@pytest.mark.parametrize("code", [403, 500])
def test_a_no_of_a_server_that_starts_is_asked_again(api: FakeApiServer, code: int) -> None:
    api.put("pods", {"kind": "Pod", "metadata": {"name": "demo", "namespace": "train"}})
    ready(api, code)
    refuse(api, 3)
    assert server_of(api).json(ASKED)["metadata"]["name"] == "demo"


def test_its_rules_may_be_there_the_moment_after(api: FakeApiServer) -> None:
    api.put("pods", {"kind": "Pod", "metadata": {"name": "demo", "namespace": "train"}})
    ready(api, 200)
    refuse(api, 1)
    assert server_of(api).json(ASKED)["metadata"]["name"] == "demo"


def test_a_no_of_a_server_that_is_ready_stands(api: FakeApiServer) -> None:
    ready(api, 200)
    refuse(api, 99)
    with pytest.raises(Refused, match="grant our account"):
        server_of(api).json(ASKED)


def test_a_watch_is_told_to_come_again(api: FakeApiServer) -> None:
    ready(api, 500)
    refuse(api, 99)
    with pytest.raises(Unavailable, match="just started"), server_of(api).lines(ASKED, 1.0):
        raise AssertionError("unreachable")


def test_where_readiness_may_not_be_asked_about_a_no_is_believed_after_a_while() -> None:
    now = 0.0
    starting = Starting(lambda: 403, lambda: now)

    def excused(at: float) -> bool:
        nonlocal now
        now = at
        return starting.excuse(403, NO, "get Secret a") is not None

    assert excused(100.0)
    assert excused(100.0 + SETTLE_SECONDS - 1)
    assert not excused(100.0 + SETTLE_SECONDS)
    assert not excused(100.0 + FORGET_SECONDS)
    assert excused(100.0 + FORGET_SECONDS + 1), "another start"


@pytest.mark.parametrize(
    ("code", "body"),
    [
        (403, status(403, "Forbidden", "exceeded quota: gpus")),
        (403, b'User "ada" cannot read this page'),
        (404, NO),
    ],
)
def test_other_refusals_are_no_matter_of_rights(code: int, body: bytes) -> None:
    assert not refuses_rights(code, body)
    assert refuses_rights(403, NO)
