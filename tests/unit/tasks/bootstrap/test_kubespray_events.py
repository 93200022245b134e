from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tasks.bootstrap.kubespray_events import (
    HostRecap,
    KubesprayEvents,
    PlayBegan,
    PlayEnded,
    Recap,
    TaskDone,
    TaskFailed,
    place_of,
    said_of,
    secrets_in,
)
from tasks.ssh.masking import masked


def _event(number: int, kind: str, **data: Any) -> dict[str, Any]:
    return {"counter": number, "event": kind, "event_data": data}


def _read(*raw: dict[str, Any], secrets: frozenset[str] = frozenset()) -> list[Any]:
    reader = KubesprayEvents(1, secrets)
    return [event for one in raw for event in reader.take(one)]


def test_plays_failures_and_the_recap_are_told() -> None:
    told = _read(
        _event(1, "playbook_on_start"),
        _event(2, "playbook_on_play_start", play="Prepare"),
        _event(3, "runner_on_ok", host="a", task="Write", res={"changed": True}),
        _event(4, "runner_on_ok", host="b", task="Write", res={"changed": False}),
        _event(5, "runner_on_skipped", host="b"),
        _event(6, "playbook_on_play_start", play="Install"),
        _event(7, "runner_on_failed", host="a", task="Allowed", res={"msg": "no"}, ignore_errors=True),
        _event(8, "runner_on_failed", host="a", task="Get", res={"msg": "404"}),
        _event(9, "runner_on_unreachable", host="b", task="Get", res={"msg": "no way"}),
        _event(10, "playbook_on_stats", ok={"a": 2, "b": 1}, failures={"a": 1}, dark={"b": 1}, changed={"a": 1}),
    )
    assert told == [
        PlayBegan("01/00000002", "Prepare"),
        TaskDone("01/00000003", "Write", "a", changed=True),
        TaskDone("01/00000004", "Write", "b", changed=False),
        PlayEnded("01/00000006", "Prepare", ok=2, changed=1, failed=0, unreachable=0, skipped=1),
        PlayBegan("01/00000006", "Install"),
        TaskFailed("01/00000008", "Install", "Get", "a", "404", unreachable=False),
        TaskFailed("01/00000009", "Install", "Get", "b", "no way", unreachable=True),
        PlayEnded("01/00000010", "Install", ok=0, changed=0, failed=1, unreachable=1, skipped=0),
        Recap("01/00000010", {"a": HostRecap(2, 1, 1, 0), "b": HostRecap(1, 0, 0, 1)}),
    ]


def test_the_innermost_words_come_last_and_each_once() -> None:
    said = said_of(
        {"msg": "one or more items failed", "results": [{"msg": "ok"}, {"failed": True, "stderr": "disk full"}]}
    )
    assert said == "disk full"
    assert said_of({"msg": "non-zero return code", "stdout": "x", "stderr": "why"}) == "non-zero return code\nx\nwhy"


def test_secrets_are_masked_by_value_wherever_they_stand() -> None:
    variables = {
        "registry_password": "geheim",
        "users": [{"token": "t0psecret"}],
        "api_key": "k" * 9,
        "kube_pods": "10",
    }
    secrets = secrets_in(variables)
    assert secrets == {"geheim", "t0psecret", "k" * 9}
    (failed,) = _read(
        _event(1, "runner_on_failed", host="a", task="Log in with geheim", res={"stderr": "bad t0psecret"}),
        secrets=secrets,
    )
    assert (failed.task, failed.message) == ("Log in with ***", "bad ***")


def test_a_secret_of_several_lines_is_masked_however_they_are_broken() -> None:
    secret = "-----BEGIN KEY-----\nabc+d\nefg\n-----END KEY-----\n"
    for said in (secret, " ".join(secret.split()), secret.replace("\n", "\\n"), secret.replace("\n", "\r\n")):
        assert masked(f"it is {said}", (secret,)).startswith("it is ***")
        assert "efg" not in masked(f"it is {said}", (secret,))
    assert masked("unharmed", ("", " ")) == "unharmed"


def test_what_kubeadm_hands_out_is_masked() -> None:
    printed = f"kubeadm join x --token abcdef.0123456789abcdef --certificate-key {'a1' * 32}"
    assert masked(printed, ()) == "kubeadm join x --token *** --certificate-key ***"


def test_switches_and_short_words_are_no_secrets() -> None:
    assert secrets_in({"use_token": True, "pass": "ab", "private_key_file": "~/.ssh/key"}) == frozenset()


@given(
    st.lists(
        st.dictionaries(st.sampled_from(["event", "counter", "event_data"]), st.none() | st.text() | st.integers())
    )
)
def test_any_event_is_taken(raw: list[dict[str, Any]]) -> None:
    assert isinstance(_read(*raw), list)


@given(st.lists(st.tuples(st.integers(1, 99), st.integers(0, 10**8 - 1))))
def test_places_sort_as_they_came(places: list[tuple[int, int]]) -> None:
    assert sorted(place_of(*one) for one in places) == [place_of(*one) for one in sorted(places)]
