"""Values of the health service: what cannot be is refused by its field."""

from __future__ import annotations

import re

import pytest

from profiles.errors import ProfileError
from profiles.health import HealthValues
from profiles.loading.load import load_text
from workflows.programs.health.results import CHECKS


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("intervall_seconds: 60", "intervall_seconds"),
        ("interval_seconds: 30", "interval_seconds: must be at least 60, got 30"),
        ("deep_interval_seconds: 600", "deep_interval_seconds: must be 0 or at least interval_seconds"),
        ("checks: []", "checks: must name one check at least"),
        ("checks: [ping, ping]", "checks: must be named once each"),
        ("checks: [pingg]", "checks[0]"),
        ("checks: [gpumem]", "checks: must not name gpumem"),
        ("checks: [pvc]", "storage_class: must be named"),
        ("port: 8080", "port: must not be 8080 or 8081"),
        ("port: 80", "port"),
        ("tolerations: [gpu]", "tolerations[0]: must be key=value:Effect"),
        ("privileged: true", "run_as_user: must be null where privileged is true"),
        ("run_as_user: 0", "run_as_user"),
        ("namespace: GPUs", "namespace"),
        ("memory: lots", "memory"),
        ('environment: {"A B": c}', "environment"),
        ("environment: {NODE_NAME: x}", "environment.NODE_NAME: must not be set here"),
    ],
)
def test_what_cannot_be_is_refused_by_its_field(text: str, said: str) -> None:
    with pytest.raises(ProfileError, match=re.escape(said)):
        load_text(HealthValues, text)


def test_an_empty_mapping_is_the_usual_service() -> None:
    assert load_text(HealthValues, "{}") == HealthValues()


def test_the_daemon_knows_every_check_that_can_be_named() -> None:
    known = [one for one in CHECKS if one != "gpumem"]
    text = f"checks: [{', '.join(known)}]\nstorage_class: fast"
    assert set(load_text(HealthValues, text).checks) == set(known)
