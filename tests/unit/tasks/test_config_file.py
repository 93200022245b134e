"""The file of defaults: what it may say, what outranks it, and what is wrong with it."""

from __future__ import annotations

import json
import re
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from profiles.errors import ProfileError
from profiles.request import TrainRequest
from tasks.addresses import prepare
from tasks.config_file import CONFIG, KEYS, config_file, origin, read_config
from tasks.ledger.ledger import Ledger
from tasks.runs.open import open_run
from tasks.settings import Settings
from tests.support.builders.ledgers import a_person
from tests.support.harness.commands import primus_here
from workflows.model.records import RunRecord

PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"


def home(tmp_path: Path, text: str) -> dict[str, str]:
    """The environment of a home whose file says this."""
    (tmp_path / "config.toml").write_text(text)
    return {"PRIMUS_HOME": str(tmp_path)}


def test_the_file_says_what_the_environment_leaves_open(tmp_path: Path) -> None:
    environ = home(
        tmp_path, 'cluster = "local-gpus"\nmode = "ask"\nowner = "ada"\nprefect_api_url = "http://p:1/api"\n'
    )
    environ["PRIMUS_MODE"] = "observe"
    environ["PRIMUS_OWNER"] = ""
    prepare(environ)
    found = Settings.from_environment(environ)
    assert (found.cluster, found.mode, found.owner) == ("local-gpus", "observe", "ada")
    assert found.prefect_api_url == "http://p:1/api"
    told = {variable: origin(variable, environ) for variable in ("PRIMUS_CLUSTER", "PRIMUS_MODE", "PRIMUS_LEDGER_URL")}
    assert told == {"PRIMUS_CLUSTER": "file", "PRIMUS_MODE": "environment", "PRIMUS_LEDGER_URL": "built-in"}
    before = dict(environ)
    prepare(environ)
    assert environ == before


def test_without_a_file_nothing_is_set(tmp_path: Path) -> None:
    for environ in ({"PRIMUS_HOME": str(tmp_path)}, {"HOME": str(tmp_path)}, {}):
        before = dict(environ)
        read_config(environ)
        assert environ == before
    assert config_file({"HOME": "/home/ada"}) == "/home/ada/.primus/config.toml"
    assert config_file({}) == ""


def test_paths_are_seen_from_the_file_and_names_stay_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    file = tmp_path / "other.toml"
    file.write_text('home = "state"\ncluster = "./mine.yaml"\ntoken_file = "~/token"\nkubeconfig = "/etc/kube"\n')
    environ = {CONFIG: str(file)}
    read_config(environ)
    assert environ["PRIMUS_HOME"] == str(tmp_path / "state")
    assert environ["PRIMUS_CLUSTER"] == str(tmp_path / "mine.yaml")
    assert (environ["PRIMUS_TOKEN_FILE"], environ["KUBECONFIG"]) == ("/home/ada/token", "/etc/kube")
    file.write_text('cluster = "mine.yaml"\n')
    assert config_file({CONFIG: str(file), "PRIMUS_HOME": "/elsewhere"}) == str(file)


@pytest.mark.parametrize(
    ("text", "field", "said"),
    [
        ('clustre = "x"', "clustre", 'no such key; did you mean "cluster"'),
        ('[train]\nmode = "ask"', "train", "no such key"),
        ("mode = 3", "mode", "must be text in quotes, not empty; got 3"),
        ('cluster = ""', "cluster", "must be text in quotes, not empty"),
        ('mode = "typo"', "mode", "'typo' is unknown (words: act, ask, observe)"),
        ('home = "/x"', "home", "cannot be said in a home's own file: say it in one that PRIMUS_CONFIG names"),
        ("cluster", "config.toml", "is no TOML"),
        ('a = "1"\na = "2"', "config.toml", "is no TOML"),
    ],
)
def test_what_is_wrong_is_named_with_its_file(text: str, field: str, said: str, tmp_path: Path) -> None:
    environ = home(tmp_path, text)
    with pytest.raises(ProfileError, match=re.escape(said)) as error:
        read_config(environ)
    assert (error.value.field, error.value.source) == (field, str(tmp_path / "config.toml"))
    assert environ == {"PRIMUS_HOME": str(tmp_path)}


def test_a_file_that_is_named_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=f"{CONFIG}: cannot read {tmp_path}/none: No such file"):
        read_config({CONFIG: f"{tmp_path}/none"})


@pytest.mark.parametrize(("variable", "value"), [("PRIMUS_MODE", "typo"), ("PRIMUS_OWNER", "a b")])
def test_a_variable_that_cannot_be_used_is_named(variable: str, value: str, tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=f"^{variable}: "):
        Settings.from_environment({"PRIMUS_HOME": str(tmp_path), variable: value})


def test_new_runs_have_the_mode_and_the_owner_of_the_file_and_others_keep_their_own(tmp_path: Path) -> None:
    def run(text: str, **asked: Any) -> RunRecord:
        environ = home(tmp_path, text)
        prepare(environ)
        settings = Settings.from_environment(environ)
        with closing(Ledger(settings.ledger_url)) as ledger:
            return open_run(TrainRequest(**asked), settings, ledger, 1.0, a_person())

    first = run('mode = "ask"\nowner = "team"', name="first")
    assert (first.mode, first.owner) == ("ask", "team")
    asked = run('mode = "ask"\nowner = "team"', name="asked", mode="observe", owner="bob")
    assert (asked.mode, asked.owner) == ("observe", "bob")
    again = run('mode = "observe"\nowner = "others"', name="first")
    assert (again.mode, again.owner) == ("ask", "team")
    assert run("", name="plain").mode == "act"


def test_the_command_says_each_value_and_where_it_comes_from(tmp_path: Path) -> None:
    environ = home(tmp_path, 'cluster = "local-gpus"\nledger_url = "postgresql://ada:secret@host/db"\n')
    told = primus_here("config", "--json", environment=environ)
    assert told.returncode == 0, told.stderr
    document = json.loads(told.stdout)
    assert (document["file"], document["there"]) == (str(tmp_path / "config.toml"), True)
    rows = {row["key"]: (row["value"], row["from"]) for row in document["keys"]}
    assert rows.keys() == KEYS.keys()
    assert rows["home"] == (str(tmp_path), "environment")
    assert rows["cluster"] == ("local-gpus", "file")
    assert rows["token_file"] == (str(tmp_path / "token"), "built-in")
    assert rows["ledger_url"] == ("set, and not shown", "file")
    assert "secret" not in told.stdout + primus_here("config", environment=environ).stdout
    environ = home(tmp_path, 'clustre = "x"')
    told = primus_here("runs", environment=environ)
    assert (told.returncode, told.stdout) == (2, "")
    assert told.stderr.startswith(f'primus: {tmp_path}/config.toml: clustre: no such key; did you mean "cluster"?')


def test_the_page_has_every_key() -> None:
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \| ([^|]*) \|", PAGE.read_text(), re.MULTILINE)
    assert rows == [(name, key.variable, key.meaning) for name, key in KEYS.items()]
