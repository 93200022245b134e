from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiles.errors import ProfileError
from tasks.ledger.database import parse_url
from tasks.ledger.errors import explain, place_of
from tests.support.cases.columns import AnError
from tests.support.cases.rows import rows

SQLITE = parse_url("sqlite:////var/lib/primus/ledger.sqlite")
POSTGRES = parse_url("postgresql://ada:hidden@db.example:5432/ledger?sslpassword=alsohidden")


@rows("tasks/ledger/errors")
def test_what_a_database_says_becomes_advice(message: str, kind: AnError, advice: str) -> None:
    error = explain(message, POSTGRES)
    assert type(error) is kind
    assert advice in str(error)
    assert "ledger" in str(error)


@given(st.text(), st.sampled_from(["hidden", "alsohidden"]))
def test_no_message_repeats_a_password(text: str, password: str) -> None:
    assert "hidden" not in str(explain(f"{text}{password}{text}", POSTGRES)).replace(text, "")


def test_a_ledger_is_called_by_its_file_or_its_address() -> None:
    assert place_of(SQLITE) == "ledger /var/lib/primus/ledger.sqlite"
    assert place_of(POSTGRES) == "ledger postgresql+psycopg://ada:***@db.example:5432/ledger"


@pytest.mark.parametrize("bad", ["", "nonsense", "mysql://u:hidden@h/d", "sqlite://", "sqlite:///:memory:", "a b://c"])
def test_a_url_that_is_no_ledger_is_refused_by_the_variables_name_without_repeating_it(bad: str) -> None:
    with pytest.raises(ProfileError, match="PRIMUS_LEDGER_URL") as refused:
        parse_url(bad)
    assert "hidden" not in str(refused.value)
