"""Every number and choice of every command is checked; the commands are walked, so that a new one cannot forget."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperGroup
from typer.main import get_group

from deployments.cli.app import app, named_tags
from deployments.cli.completion import BASH, SCRIPTS, tree
from deployments.cli.main import main, refuse_no_words
from deployments.cli.train import TrainOptions, same_again
from deployments.cli.workflow import RunOptions, run_again
from deployments.screen import candidates
from deployments.screen.candidates import TREE, names_of
from flows.decisions.explain.reasons import Hold
from flows.decisions.explain.why import explain
from profiles.errors import NotFound, ProfileError
from profiles.request import TrainRequest
from profiles.vocabulary import RunState
from tasks.ledger.ledger import Ledger
from tasks.runs.open import open_run
from tasks.settings import Settings
from tests.support.builders.why_cases import CASES
from tests.support.cases.rows import rows
from tests.support.running.waiting import patience


def walk(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command with the words that name it."""
    for name in list(group.commands):
        found = group.get_command(None, name)
        if isinstance(found, TyperGroup):
            yield from walk(found, (*path, name))
        else:
            yield (*path, name), found


COMMANDS = dict(walk(get_group(app)))
PARAMETERS = [
    (path, parameter.opts[-1], parameter)
    for path, command in COMMANDS.items()
    for parameter in command.params
    if parameter.type_descriptor.annotation is not bool
]
NUMBERS = [row for row in PARAMETERS if row[2].type_descriptor.annotation in (int, float)]
NO_NUMBERS = ("nan", "inf", "-inf", "", "typo", "1e400", "9" * 40, "٣")
CHOICES = {
    "--state", "--since", "--cluster", "--mode", "--rank", "--suite", "--depth", "--launcher", "--trial", "--nodes",
    "--only", "--by", "--class", "--run", "--fault", "--as", "--part", "--interval", "--deep-interval", "--checks",
    "--peers", "--like", "--progress", "--tag", "--role",
}  # fmt: skip
FREE = {
    "--why": "a person's words", "--set": "by the profile's fields", "--name": "by the pattern of names",
    "--html": "a file to write", "--out": "a file to write", "--values": "a file", "--parameter": "by the workflow",
    "--step": "by the workflow", "--address": "bound, or refused by the system", "--node": "a name that is given",
    "--context": "of the kubeconfig", "--namespace": "of the cluster", "--storage": "by the cluster",
    "--block": "of the server", "--checkpoints": "any path", "--resume": "by the program", "--image": "by the cluster",
    "--owner": "by the pattern of users' names",
    "--hosts": "by the inventory", "--without": "by the inventory", "--join": "by the inventory",
    "--leave": "by the inventory", "--upgrade": "by the profile's release", "--force": "by the table of pre-checks",
    "--confirmed": "compared with the cluster's name", "--fill": "a folder to fill", "--from": "a folder",
}  # fmt: skip
"""Options whose words nobody can know beforehand, and who checks them."""
NEEDED = {
    "run": ["demo-1"], "profile": ["demo"], "node": ["node-0"], "name": ["w"], "run_or_path": ["demo-1"], "words": [],
    "approval": ["a"], "command": ["true"], "files": ["f"], "logs": ["f"], "folder": [],
    "cluster": ["bootstrap-example"],
    "file": [str(Path(__file__).parents[2] / "conformance/dag-diamond.yaml")],
}  # fmt: skip


def test_there_are_numbers_to_walk() -> None:
    assert len(NUMBERS) >= 11


@pytest.mark.parametrize(("path", "option", "parameter"), NUMBERS, ids=lambda it: it if isinstance(it, str) else None)
def test_a_number_has_both_bounds_and_nothing_else_is_one(path: tuple[str, ...], option: str, parameter: Any) -> None:
    context = typer.Context(COMMANDS[path])
    assert None not in (parameter.min, parameter.max), option
    for bad in (*NO_NUMBERS, str(parameter.min - 1), str(parameter.max + 1)):
        with pytest.raises(typer.BadParameter):
            parameter.process_value(context, bad)
    assert parameter.process_value(context, str(int(parameter.min))) == parameter.min


def test_every_option_is_a_choice_or_says_who_checks_it() -> None:
    named = {option for _, option, parameter in PARAMETERS if option.startswith("-") and parameter not in NUMBERS}
    numbers = {option for _, option, _ in NUMBERS}
    assert named - numbers - CHOICES - FREE.keys() == set(), "a new option: let its words be checked, or say who does"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    settings = Settings.from_environment({"PRIMUS_HOME": str(folder)})
    ledger = Ledger(settings.ledger_url)
    open_run(TrainRequest(profile="demo", name="demo-1"), settings, ledger, 1.0)
    ledger.close()
    return folder


@pytest.mark.parametrize(
    ("path", "option"),
    [row[:2] for row in PARAMETERS if row[1] in CHOICES and row not in NUMBERS],
)
def test_a_word_that_is_none_of_a_choice_is_refused(
    path: tuple[str, ...], option: str, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = [one for one in COMMANDS[path].params if one.required or one.name == "command"]
    needed = [word for one in wanted for word in NEEDED.get(one.name, [])]
    told = refused([*path, option, "state=typo" if option == "--only" else "typo", *needed], home, monkeypatch, capsys)
    assert "typo" in told or option in told, told


def test_a_node_that_nobody_knows_has_no_verdict(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refused(["verdict", "TYPO"], home, monkeypatch, capsys).startswith("local knows no node TYPO: ")


def refused(words: list[str], home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """What a command says that ends as wrong usage and prints nothing on standard output."""
    monkeypatch.setenv("PRIMUS_HOME", str(home))
    monkeypatch.setenv("PRIMUS_TOKEN", "t")
    told, code = "", 0
    try:
        code = get_group(app).main(words, prog_name="primus", standalone_mode=False)
    except (ProfileError, NotFound, typer.BadParameter) as error:
        told, code = str(error), 2
    said = capsys.readouterr()
    assert (code, said.out) == (2, ""), f"{words} was accepted"
    return told + said.err


@pytest.mark.parametrize(
    ("words", "field"),
    [(["runs", "--state", ""], "--state"), (["runs", "--state="], "--state"), (["report", ""], "argument 2")],
)
def test_an_empty_word_is_refused(words: list[str], field: str) -> None:
    with pytest.raises(ProfileError, match=f"^{field}: is empty: leave it out"):
        refuse_no_words(words)
    refuse_no_words(["train", "demo", "--set", "a=", "--", ""])


@pytest.mark.parametrize(
    "odd", ["a b", "it's", 'a "b" c', "$(rm -rf x)", "a;b", "*", "a\nb", "\\", "é", "#", "~/x", "a=b c"]
)
def test_a_command_that_is_shown_can_be_pasted(odd: str) -> None:
    trained = TrainOptions(f"./{odd}.yaml", "", odd, (f"trainer.note={odd}", "steps=3"), "ask", ("a=1", "b="), odd)
    words = shlex.split(same_again(trained, "demo-1"))
    read = COMMANDS["train",].make_context("train", words[2:]).params
    assert words[:2] == ["primus", "train"]
    watched = {"name": "demo-1", "detach": False, "dry_run": False, "as_json": False}
    assert read | {"overrides": tuple(read["overrides"])} == asdict(trained) | {"tags": ["a=1", "b="]} | watched
    sent = RunOptions(f"./{odd}.yaml", odd, (f"message={odd}", "n=1"), "", False)
    words = shlex.split(run_again(sent, "w-1"))
    read = COMMANDS["workflow", "run"].make_context("run", words[3:]).params
    assert words[:3] == ["primus", "workflow", "run"]
    assert (read["file"], read["name"], read["cluster"]) == (sent.file, "w-1", odd)
    assert tuple(read["parameters"]) == sent.parameters


def test_what_lets_a_resting_run_act_needs_nothing_but_its_name() -> None:
    [resting] = [sight for hold, sight, _ in CASES if hold is Hold.OBSERVE]
    advice = explain(resting).reasons[0].advice
    words = shlex.split(advice.partition(": ")[2])
    assert words[:2] == ["primus", "resume"]
    read = COMMANDS["resume",].make_context("resume", words[2:]).params
    assert (read["run"], read["mode"]) == (resting.story.run.name, "act")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["team"], "must be written as name=value"),
        (["=x"], "'' must be at most 63 letters"),
        (["a b=x"], "'a b' must be"),
        (["team=ü"], "'ü' must be"),
        (["team=" + "x" * 64], "must be at most 63"),
        (["my/team=x"], "'my/team' must be"),
        (["team=-x"], "'-x' must be"),
        (["a=1", "a=2"], "a is given twice: 1 and 2"),
    ],
)
def test_a_tag_that_could_be_no_label_is_refused(words: list[str], said: str) -> None:
    with pytest.raises(ProfileError, match=f"^--tag: .*{said}"):
        named_tags(words)
    assert named_tags(["a=1", "b=", "a=1", "c.d_E-f=v1.2"]) == {"a": "1", "b": "", "c.d_E-f": "v1.2"}


def test_it_says_its_version(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["primus", "--version"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert (ended.value.code, capsys.readouterr().out) == (0, f"primus {version('primus-flows')}\n")


# What a shell completes.

ROOT = Path(__file__).parents[3]
UNKNOWN_BEFOREHAND = {"--role", "--tag", "--owner", "--since", "--interval", "--deep-interval", "--checks", "--peers"}
NUMBERS_OF = [parameter for *_, parameter in NUMBERS]
KNOWN = {"runs": ["demo-2", "demo-1"], "nodes": ["node-0", "node-1"], "approvals": ["demo-1-a1-i1-approval"]}


def test_the_tree_of_words_is_the_parsers() -> None:
    text = json.dumps(tree(), indent=1) + "\n"
    if os.environ.get("PRIMUS_GOLDEN") == "1":
        TREE.write_text(text)
    assert TREE.read_text() == text, "a command changed: make golden"


def test_every_choice_has_words_to_choose_from() -> None:
    found, named = tree(), set[str]()
    for path, option, parameter in PARAMETERS:
        node = found
        for word in path:
            node = node["commands"][word]
        named |= {*node["arguments"], *(one.get("kind", "") for one in node["options"].values())}
        if option in CHOICES - UNKNOWN_BEFOREHAND and parameter not in NUMBERS_OF:
            assert node["options"][option]["kind"], (path, option)
    assert named - {""} == found["kinds"].keys()


@rows("deployments/completion")
def test_what_may_stand_at_the_cursor(words: str, found: str, but: str = "", files: bool = False) -> None:
    *before, current = words.split(" ")
    seen = candidates.candidates(before, current, json.loads(TREE.read_text()), lambda what: KNOWN[what])
    assert set(found.split()) <= seen.words.keys(), seen
    assert not set(but.split()) & seen.words.keys(), seen
    assert seen.files == files
    assert found or not seen.words, seen


@pytest.fixture
def two_runs(tmp_path: Path) -> Path:
    settings = Settings.from_environment({"PRIMUS_HOME": str(tmp_path / "home")})
    ledger = Ledger(settings.ledger_url)
    for number, name in enumerate(("demo-1", "demo-2")):
        open_run(TrainRequest(profile="demo", name=name), settings, ledger, float(number))
    ledger.close()
    return settings.home


def test_names_come_from_the_ledger_and_none_where_it_does_not_answer(
    two_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRIMUS_HOME", str(two_runs))
    assert names_of("runs") == ["demo-2", "demo-1"]
    assert (names_of("nodes"), names_of("approvals")) == ([], [])
    for broken in (f"sqlite:///{two_runs}/none", f"sqlite:///{two_runs}", "postgresql://nobody@127.0.0.1:9/l", "typo"):
        monkeypatch.setenv("PRIMUS_LEDGER_URL", broken)
        assert names_of("runs") == []


def completed(shell: str, script: str, two_runs: Path) -> list[str]:
    (two_runs / "primus").write_text(f'#!/bin/sh\nexec {sys.executable} -m deployments.cli.main "$@"\n')
    (two_runs / "primus").chmod(0o755)
    known = {
        "PATH": f"{two_runs}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "PRIMUS_HOME": str(two_runs),
        "HOME": str(two_runs),
    }
    done = subprocess.run([shell, "-c", script], env=known, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("primus sta", ["status"]),
        ("primus status ", ["demo-2", "demo-1"]),
        ("primus status demo-2 --js", ["--json"]),
        ("primus train de", ["demo", "demo-gpus"]),
        ("primus runs --state=stop", [RunState.STOPPED]),
        ("primus fleet --only 'state=s", ["schedulable"]),
        ("primus drill demo-1 --fault lose-n", ["lose-node:"]),
        ("primus stat 'us", []),
    ],
)
def test_bash_completes(line: str, found: list[str], two_runs: Path) -> None:
    asks = f"""{BASH}\nCOMP_LINE="$LINE" COMP_POINT=${{#LINE}}; _primus primus; printf '%s\\n' "${{COMPREPLY[@]}}\""""
    began = time.monotonic()
    assert completed("bash", f"LINE={json.dumps(line)}\n{asks}", two_runs) == found
    assert time.monotonic() - began < patience(2.0)


def test_each_shell_that_is_here_reads_its_script(two_runs: Path) -> None:
    checked = [shell for shell in SCRIPTS if shutil.which(shell)]
    assert "bash" in checked
    for shell in checked:
        (two_runs / "script").write_text(SCRIPTS[shell])
        subprocess.run([shell, "-n", str(two_runs / "script")], check=True)
    if "fish" in checked:
        asks = f"source {two_runs}/script; complete -C 'primus status demo-'"
        assert sorted(completed("fish", asks, two_runs)) == ["demo-1", "demo-2"]


def test_nothing_of_weight_is_imported_for_a_key() -> None:
    heavy = "print(*{'typer', 'pydantic', 'sqlalchemy'} & sys.modules.keys())"
    command = [sys.executable, "-c", f"import sys; import deployments.screen.candidates; {heavy}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.split() == []
