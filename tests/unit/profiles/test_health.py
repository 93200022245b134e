"""Values of the health service: what cannot be is refused by its field."""

from __future__ import annotations

import re

import pytest

from profiles.errors import ProfileError
from profiles.health import HealthValues
from profiles.loading.load import load_text
from tests.support.cases.rows import rows
from workflows.programs.health.results import CHECKS


@rows("profiles/health")
def test_what_cannot_be_is_refused_by_its_field(text: str, said: str) -> None:
    with pytest.raises(ProfileError, match=re.escape(said)):
        load_text(HealthValues, text)


def test_an_empty_mapping_is_the_usual_service() -> None:
    assert load_text(HealthValues, "{}") == HealthValues()


def test_the_daemon_knows_every_check_that_can_be_named() -> None:
    known = [one for one in CHECKS if one != "gpumem"]
    text = f"checks: [{', '.join(known)}]\nstorage_class: fast"
    assert set(load_text(HealthValues, text).checks) == set(known)
