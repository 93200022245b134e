"""How a command ends where its streams, its arguments or its environment are none: never with a mistake of ours."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Self, cast

import pytest
from pydantic import BaseModel

from deployments import api
from deployments.cli import train, up
from deployments.exit_codes import shown
from profiles.errors import Permanent
from profiles.request import TrainRequest
from tasks.ledger.ledger import Ledger
from tasks.runs.open import open_run, resolved_of
from tasks.settings import Settings
from tests.support.cases.rows import rows
from tests.support.harness.commands import primus_here

COMMAND = """
import sys
from deployments.exit_codes import hold_streams, out, say, shown
hold_streams()
with shown() as outcome:
    outcome.acts, outcome.code = sys.argv[1] == "acts", 0
    say("it says ✔")
    with open(sys.argv[2], "w") as ledger:
        for _ in range(2000):
            out("├─✖ caf\\u00e9 … →" * 20)  # more than a pipe holds
        ledger.write("mine")
sys.exit(outcome.code)
"""


def bare(path: Path, acts: bool, stdout: str, encoding: str) -> subprocess.CompletedProcess[str]:
    """The parts that every command stands on, in a process of their own, whose standard output is not as usual."""
    words = " ".join(("exec", '"$0"', "-c", '"$1"', "acts" if acts else "reads", '"$2"', stdout))
    return subprocess.run(
        ["sh", "-c", words, sys.executable, COMMAND, str(path)],
        env=os.environ | {"PYTHONIOENCODING": encoding},
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
        timeout=60,
    )


@rows("deployments/exit_codes")
def test_what_cannot_be_written_changes_no_end_of_what_was_done(
    tmp_path: Path, stdout: str, encoding: str, acts: bool, code: int, said: str
) -> None:
    ledger = tmp_path / "ledger"
    ended = bare(ledger, acts, stdout, encoding)
    assert (ended.returncode, "mistake" in ended.stderr) == (code, False), ended.stderr
    assert said in ended.stdout + ended.stderr
    assert ledger.read_text() in ("mine", ""), "what is printed must never stand in a file that was opened later"
    assert ledger.read_text() or not acts, "whoever acts goes on"


def test_a_reader_that_has_gone_ends_a_command_that_reads_and_none_that_acts(tmp_path: Path) -> None:
    for acts, whole in ((False, ""), (True, "mine")):
        ended = bare(tmp_path / "ledger", acts, "| head -n 1", "utf-8")
        assert ended.stderr == "it says ✔\n"
        assert (tmp_path / "ledger").read_text() == whole


@rows("deployments/exit_codes")
def test_words_that_are_no_text_are_refused(word: str, names: str) -> None:
    ended = primus_here("status", word.encode().decode("unicode_escape"))
    assert ended.returncode == 2
    assert names in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("home", [None, "~", "~nobody-of-this-name/x", "/dev/null/x", "/tmp/\udcff"])
def test_the_error_is_told_where_no_log_can_be_written(monkeypatch: pytest.MonkeyPatch, home: str | None) -> None:
    for name in ("HOME", "PRIMUS_HOME"):
        monkeypatch.delenv(name)
    monkeypatch.setattr("pwd.getpwuid", dict[int, str]().__getitem__)
    ended = primus_here("runs", environment={"PRIMUS_HOME": home} if home is not None else {})
    assert (ended.returncode, "Traceback" in ended.stderr) == (2 if home != "/dev/null/x" else 3, False), ended.stderr
    assert ended.stderr.startswith("primus: ")


def test_a_mistake_of_ours_stands_whole_on_the_screen_where_no_log_can_be_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PRIMUS_HOME", "/dev/null/x")
    with shown() as outcome:
        raise LookupError("\udcff")
    assert outcome.code == 3
    assert "raise LookupError" in capsys.readouterr().err


class Wheel(BaseModel):
    """Of a library that checks its values."""

    spokes: int


def test_an_error_of_pydantic_names_the_field_and_no_library(capsys: pytest.CaptureFixture[str]) -> None:
    with shown() as outcome:
        Wheel(spokes=cast("int", "many"))
    said = capsys.readouterr().err
    assert outcome.code == 2
    assert said.startswith("primus: Wheel: spokes: input should be a valid integer")
    assert "pydantic" not in said
    assert 'got "many"; correct it where it was given' in said


@rows("deployments/exit_codes")
def test_what_is_typed_wrong_is_named_by_its_flag(settings: Settings, words: str, says: str) -> None:
    ended = primus_here(*shlex.split(words), environment={"PRIMUS_HOME": str(settings.home)})
    assert (ended.returncode, ended.stdout) == (2, ""), ended.stderr
    assert ended.stderr.startswith("primus: ")
    assert says in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_a_profile_in_the_ledger_that_is_none_is_told_as_such(settings: Settings) -> None:
    run = open_run(TrainRequest(profile="demo", name="old"), settings, Ledger(settings.ledger_url), 1.0)
    with pytest.raises(Permanent, match=r"the profile of old in the ledger: run\.steps: .*another version wrote it"):
        resolved_of(replace(run, resolved={**run.resolved, "run": {**run.resolved["run"], "steps": "many"}}))


class Interrupted:
    """Whoever asks this for something presses Ctrl-C meanwhile."""

    def __call__(self, *_: object, **__: object) -> None:
        raise KeyboardInterrupt

    def drive(self, run: str) -> int:
        raise KeyboardInterrupt

    def dismiss(self) -> None:
        """Nothing was begun."""

    def prepared(self, *_: object) -> Self:
        return self


class Driven(Interrupted):
    """A driver that takes a run and is watched."""

    def drive(self, run: str) -> int:
        return 4711


@rows("deployments/exit_codes")
def test_whoever_interrupts_is_told_what_goes_on_and_how_to_stop_it(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, words: str, during: str, says: list[str]
) -> None:
    open_run(TrainRequest(profile="demo", name="there"), settings, Ledger(settings.ledger_url), 1.0)
    driver, starts = Driven() if during != "drive" else Interrupted(), during == "ensure_console"
    monkeypatch.setattr(api, "named_server", {settings.home: "" if starts else "http://127.0.0.1:9/api"}.get)
    monkeypatch.setattr(api, "ensure_console", lambda _: "http://127.0.0.1:9/api")  # no server is left behind
    for module in (api, train):
        monkeypatch.setattr(module, "prepare_driver", driver.prepared)
    monkeypatch.setattr(api, "warm_up", driver.prepared)
    if during != "drive":
        where = up if words == "up" else train if during in ("follow", "driver_of") else api
        monkeypatch.setattr(where, during, Interrupted())
    ended = primus_here(*shlex.split(words), environment={"PRIMUS_HOME": str(settings.home)})
    assert ended.returncode == 130, ended.stderr
    for said in says:
        assert said in ended.stderr


@pytest.mark.parametrize(
    "words", ["preflight --depth x", "preflight --launcher x", "preflight --suite x", "preflight --trial x"]
)
def test_words_are_checked_before_anything_of_weight_is_imported(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    for name in ("flows.preflight", "tasks.context"):
        monkeypatch.setitem(sys.modules, name, None)
    ended = primus_here(*words.split(), environment={"PRIMUS_HOME": str(settings.home)})
    assert ended.returncode == 2, ended.stderr
    assert "import" not in ended.stderr
