from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from profiles.cluster import ClusterProfile
from profiles.errors import ProfileError
from profiles.hardware import HardwareProfile
from profiles.loading import document, load
from profiles.loading.validation import checked
from profiles.recovery import RecoveryProfile
from profiles.resolve import Resolved, differences, digest, resolved_on
from profiles.run import RunProfile
from profiles.workspace import WorkspaceProfile
from tests.support.builders.profile_strategies import TEXT, values

MODELS = (RunProfile, ClusterProfile, HardwareProfile, RecoveryProfile, WorkspaceProfile)
CALM = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
PLAIN = st.recursive(
    TEXT
    | st.none()
    | st.booleans()
    | st.integers(-(10**17), 10**17)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=10,
)


@pytest.mark.parametrize("model", MODELS)
def test_a_profile_written_as_yaml_reads_back_as_itself(model: type[Any]) -> None:
    @CALM
    @given(values(model))
    def check(value: Any) -> None:
        assert load.load_text(model, load.dump(value)) == value

    check()


@pytest.mark.parametrize("model", MODELS)
def test_a_profile_stored_as_json_reads_back_as_itself(model: type[Any]) -> None:
    @settings(CALM, max_examples=15)
    @given(values(model))
    def check(value: Any) -> None:
        stored = json.loads(json.dumps(value.model_dump(mode="json")))
        assert model.model_validate(stored) == value
        assert checked(model, stored, "test") == value

    check()


@settings(CALM, max_examples=200)
@given(PLAIN)
def test_any_plain_value_written_reads_back_as_itself(value: Any) -> None:
    assert document.read(document.write(value), "test").data == value


@settings(CALM, max_examples=200)
@given(st.text(max_size=60) | st.binary(max_size=60).map(lambda raw: raw.decode("utf-8", "replace")))
def test_any_text_is_read_or_refused_with_a_place(text: str) -> None:
    refusal = _refusal(text)
    assert refusal is None or (refusal.field and refusal.reason)


def _refusal(text: str) -> ProfileError | None:
    try:
        document.read(text, "test")
    except ProfileError as error:
        return error
    return None


@pytest.fixture(scope="module")
def demo() -> Resolved:
    return load.resolve(load.load_run("demo"), load.load_cluster("local"))


def test_a_resolved_profile_round_trips_and_keeps_its_digest(demo: Resolved) -> None:
    for again in (load.load_text(Resolved, load.dump(demo)), Resolved.model_validate(demo.model_dump(mode="json"))):
        assert again == demo
        assert digest(again) == digest(demo)
        assert differences(demo, again) == []


def test_the_dump_of_a_run_resolves_to_the_same(demo: Resolved) -> None:
    run = load.load_run("primus-mi300x")
    cluster = load.load_cluster("kubernetes-example")
    again = load.load_text(RunProfile, load.dump(run))
    assert load.resolve(again, cluster) == load.resolve(run, cluster)


def test_digest_and_differences_agree(demo: Resolved) -> None:
    hardware = {demo.hardware.name: demo.hardware}

    @settings(CALM, max_examples=25)
    @given(values(RunProfile), st.booleans())
    def check(run: RunProfile, same: bool) -> None:
        fitting = run.model_copy(update={"roles": demo.run.roles, "hardware": ("cpu",), "by_hardware": {}})
        changes = {"pool": "", "priority": "", "topology": demo.run.topology, "checkpoint": demo.run.checkpoint}
        other = demo if same else resolved_on(fitting.model_copy(update=changes), demo.cluster, hardware)
        assert (digest(other) == digest(demo)) == (differences(demo, other) == [])

    check()
