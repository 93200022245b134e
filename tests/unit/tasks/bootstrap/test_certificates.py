"""A controller that fills its own Secret sees it in its volume as soon as it is filled."""

from __future__ import annotations

from typing import Any

from tasks.bootstrap.certificates import FILL_SECONDS, AwaitedCertificate, awaited_certificates, show_certificates
from tests.support.fakes.serving_stand_ins import MadeCluster
from workflows import labels
from workflows.programs.runtime.kubernetes_api import ApiError

Json = dict[str, Any]
SPACE = "/api/v1/namespaces/made"
AWAITED = AwaitedCertificate("made", "certificate", "app=made")


def secret(name: str, **fields: Any) -> Json:
    return {"kind": "Secret", "metadata": {"name": name, "namespace": "made"}, **fields}


def deployment(*secrets: str, kind: str = "Deployment") -> Json:
    volumes = [{"name": "tmp", "emptyDir": {}}, *({"name": one, "secret": {"secretName": one}} for one in secrets)]
    spec = {"selector": {"matchLabels": {"b": "2", "a": "1"}}, "template": {"spec": {"volumes": volumes}}}
    return {"kind": kind, "metadata": {"name": "made", "namespace": "made"}, "spec": spec}


def test_only_a_secret_that_comes_empty_and_is_mounted_is_awaited() -> None:
    objects = [
        secret("empty"),
        secret("full", data={"a": "Yg=="}),
        secret("written", stringData={"a": "b"}),
        secret("unmounted"),
        deployment("empty", "full", "written", "of-somebody-else"),
    ]
    assert awaited_certificates(objects) == (AwaitedCertificate("made", "empty", "a=1,b=2"),)
    assert awaited_certificates([secret("empty"), deployment("empty", kind="Job")]) == ()


class Clock:
    """Time that passes in looks; at one of them the controller fills its Secret."""

    def __init__(self, api: MadeCluster, fills_at: float | None) -> None:
        self.api, self.fills_at, self.time = api, fills_at, 0.0

    def now(self) -> float:
        return self.time

    def rest(self, seconds: float) -> None:
        self.time += seconds
        if self.fills_at is not None and self.time >= self.fills_at:
            self.api.objects[f"{SPACE}/secrets/certificate"]["data"] = {"tls.crt": "Yg=="}


def made() -> MadeCluster:
    api = MadeCluster()
    api.objects[f"{SPACE}/secrets/certificate"] = secret("certificate")
    for name in ("made-1", "made-2"):
        api.objects[f"{SPACE}/pods/{name}"] = {"metadata": {"name": name}}
    return api


def marks(api: MadeCluster) -> list[str]:
    pods = [one["metadata"] for path, one in api.objects.items() if "/pods/" in path]
    return [one.get("annotations", {}).get(labels.CERTIFICATE_SHOWN, "") for one in pods]


def test_its_pods_are_touched_once_it_is_filled_and_not_before() -> None:
    api = made()
    clock = Clock(api, fills_at=5.0)
    show_certificates(api, [AWAITED], clock.now, clock.rest)
    assert (clock.time, marks(api)) == (5.0, ["certificate", "certificate"])


def test_a_controller_that_never_begins_is_left_after_a_minute() -> None:
    api = made()
    clock = Clock(api, fills_at=None)
    show_certificates(api, [AWAITED], clock.now, clock.rest)
    assert (clock.time, marks(api)) == (FILL_SECONDS, ["", ""])


def test_an_api_that_is_away_for_a_while_is_asked_again_and_is_no_error() -> None:
    api = made()
    clock = Clock(api, fills_at=1.0)
    api.refuses = lambda path: ApiError(0, "connection refused") if clock.time < 10.0 else None
    show_certificates(api, [AWAITED], clock.now, clock.rest)
    assert (clock.time, marks(api)) == (10.0, ["certificate", "certificate"])


def test_nothing_awaited_is_nothing_asked() -> None:
    api = made()
    api.away = True
    clock = Clock(api, fills_at=None)
    show_certificates(api, [], clock.now, clock.rest)
    assert clock.time == 0.0
