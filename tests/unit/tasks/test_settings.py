from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from profiles.errors import ProfileError
from tasks.settings import Settings


def settings(tmp_path: Path, **more: str) -> Settings:
    return Settings.from_environment({"PRIMUS_HOME": str(tmp_path / "home"), **more})


def test_defaults_come_from_the_users_home() -> None:
    found = Settings.from_environment({"HOME": "/home/ada", "PRIMUS_CLUSTER": "", "PRIMUS_LEDGER_URL": ""})
    assert found.home == Path("/home/ada/.primus")
    assert found.ledger_url == "sqlite:////home/ada/.primus/ledger.sqlite"
    assert (found.cluster, found.prefect_api_url) == ("local", "")
    assert found.cluster_home("local") == Path("/home/ada/.primus/clusters/local")


def test_without_any_home_the_variable_to_set_is_named() -> None:
    with pytest.raises(ProfileError, match="PRIMUS_HOME"):
        Settings.from_environment({})


def test_a_relative_home_means_the_same_folder_wherever_a_child_starts(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert Settings.from_environment({"PRIMUS_HOME": "here"}).home == tmp_path / "here"


def test_reading_the_environment_touches_no_file(tmp_path: Path) -> None:
    settings(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_token_is_made_once_for_its_owner_only(tmp_path: Path) -> None:
    found = settings(tmp_path)
    token = found.token()
    assert len(token) >= 40
    assert settings(tmp_path).token() == token
    assert stat.S_IMODE(found.token_file.stat().st_mode) == 0o600
    assert stat.S_IMODE(found.home.stat().st_mode) == 0o700
    assert [path.name for path in found.home.iterdir()] == ["token"]


def test_many_first_users_get_the_same_token(tmp_path: Path) -> None:
    with ThreadPoolExecutor(16) as pool:
        tokens = set(pool.map(lambda _: settings(tmp_path).token(), range(64)))
    assert len(tokens) == 1


def test_two_homes_have_two_of_everything(tmp_path: Path) -> None:
    one, two = settings(tmp_path / "one"), settings(tmp_path / "two")
    assert one.token() != two.token()
    assert one.ledger_url != two.ledger_url
    assert one.cluster_home("local") != two.cluster_home("local")
    assert one.prefect_home != two.prefect_home


def test_a_given_token_outranks_files_and_none_is_written(tmp_path: Path) -> None:
    assert settings(tmp_path, PRIMUS_TOKEN="abc").token() == "abc"
    assert list(tmp_path.iterdir()) == []


def test_a_named_token_file_is_read_and_never_made(tmp_path: Path) -> None:
    named = tmp_path / "mounted"
    found = settings(tmp_path, PRIMUS_TOKEN_FILE=str(named))
    with pytest.raises(ProfileError, match="PRIMUS_TOKEN_FILE"):
        found.token()
    named.write_text("from-a-secret\n")
    assert found.token() == "from-a-secret"


@pytest.mark.parametrize("bad", ["with space", "line\nbreak", "umläut"])
def test_a_token_that_cannot_travel_in_a_header_is_refused(tmp_path: Path, bad: str) -> None:
    with pytest.raises(ProfileError, match="PRIMUS_TOKEN"):
        settings(tmp_path, PRIMUS_TOKEN=bad)


def test_a_home_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")
    with pytest.raises(ProfileError, match="PRIMUS_HOME"):
        settings(tmp_path).make_home()


def test_secrets_are_not_shown(tmp_path: Path) -> None:
    shown = repr(settings(tmp_path, PRIMUS_TOKEN="hidden1", PRIMUS_LEDGER_URL="postgresql://u:hidden2@h/d"))
    assert "hidden" not in shown
