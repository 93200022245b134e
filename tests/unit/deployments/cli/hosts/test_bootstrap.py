"""`primus bootstrap`: flags become one request, what does not fit is refused by its flag, and what is shown."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from typer.main import get_group

from deployments.cli.app import BOOTSTRAP_EXAMPLES, bootstrap_app
from deployments.cli.hosts import bootstrap as command
from deployments.cli.hosts.bootstrap import document_of, forced_checks, hosts_of, request_of, text_of, verb_of
from flows.building.work import BootstrapOutcome
from profiles.bootstrap.request import BootstrapRequest
from profiles.cluster import ClusterProfile
from profiles.errors import ProfileError
from profiles.vocabulary import VerdictWord
from tasks.bootstrap.site import Tell
from tasks.settings import Settings
from tests.support.cases.rows import rows
from workflows.model.bootstrap import StepOutcome

OUTCOME = BootstrapOutcome(
    "made",
    "build",
    "failed",
    "failed: hosts/w1 (containerd does not answer)",
    {f"n{index}": {"prechecks": "pass", "hosts": "pass"} for index in range(12)}
    | {"w1": {"prechecks": "pass", "hosts": "fail"}},
    (StepOutcome("hosts/w1", "programs on w1", VerdictWord.FAIL, "containerd does not answer", 4.0),),
    1000.0,
)


@rows("deployments/bootstrap_requests")
def test_what_does_not_fit_together_is_refused_by_its_flag(fields: dict[str, Any], refused: str) -> None:
    if not refused:
        request_of(fields)
        return
    with pytest.raises(ProfileError) as caught:
        request_of(fields)
    assert str(caught.value).startswith(refused)


@pytest.mark.parametrize(("words", "verb"), [({}, "build"), ({"check": True}, "check"), ({"join": "n4"}, "join")])
def test_one_verb_at_a_time(words: dict[str, object], verb: str) -> None:
    assert verb_of(words) == verb


def test_two_verbs_are_refused() -> None:
    with pytest.raises(ProfileError, match="--drift: cannot be said together with --join"):
        verb_of({"join": "n4", "drift": True})


def test_a_check_is_passed_over_only_with_a_reason() -> None:
    assert forced_checks(["swap=the site needs it", "ports = a=b "]) == {"swap": "the site needs it", "ports ": "a=b"}
    for word in ("swap", "swap=", "swap= "):
        with pytest.raises(ProfileError, match="say why"):
            forced_checks([word])


def test_good_hosts_are_counted_and_bad_ones_shown() -> None:
    text = text_of(OUTCOME, 0, every=False)
    assert "w1" in text
    assert "n7" not in text
    assert "12 more hold" in text
    assert text.splitlines()[-2:] == ["hosts/w1: fail: containerd does not answer", OUTCOME.why]
    assert "n7" in text_of(OUTCOME, 0, every=True)
    assert document_of(OUTCOME)["steps"][0] == {
        "id": "hosts/w1",
        "summary": "programs on w1",
        "word": "fail",
        "why": "containerd does not answer",
        "seconds": 4.0,
    }


FLAGS = (
    *("--check", "--join", "--leave", "--upgrade", "--drift", "--components", "--uninstall"),
    *("--leave n4 --dead", "--uninstall --with-data --confirmed"),
)
OTHERS = ("import hosts.ini", "mirror ./made.yaml --list", "mirror ./made.yaml --fill", "mirror ./made.yaml --check")


@pytest.mark.parametrize("words", [["--help"], ["./made.yaml", "--help"]])
def test_the_help_has_an_example_for_each_verb(words: list[str]) -> None:
    group: Any = get_group(bootstrap_app)
    text = CliRunner().invoke(group, words).output
    for verb in FLAGS:
        assert f"primus bootstrap ./made.yaml {verb}" in text, verb
    for verb in OTHERS:
        assert f"primus bootstrap {verb}" in text, verb
    assert "primus render bootstrap ./made.yaml" in text
    assert max(map(len, text.splitlines())) <= 80


def examples() -> list[list[str]]:
    """The words of each example that is a request."""
    lines = [line.strip() for line in BOOTSTRAP_EXAMPLES.splitlines()]
    return [shlex.split(line, comments=True)[2:] for line in lines if line.startswith("primus bootstrap ./made.yaml")]


def requested(monkeypatch: pytest.MonkeyPatch, words: list[str]) -> BootstrapRequest:
    """What is asked for by these words behind `primus bootstrap`."""
    asked: list[BootstrapRequest] = []

    def run(request: BootstrapRequest, **shown: bool) -> int:
        asked.append(request)
        return 0

    monkeypatch.setattr(command, "run_request", run)
    group: Any = get_group(bootstrap_app)
    group.main(args=words, standalone_mode=False)
    [request] = asked
    return request


@pytest.mark.parametrize("words", examples(), ids=" ".join)
def test_every_example_can_be_typed(monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    request = requested(monkeypatch, words)
    flags = [word.removeprefix("--") for word in words if word.startswith("--")]
    assert request.verb == (flags[0] if flags else "build")
    assert request.dead == ("dead" in flags)
    assert request.confirmed == ("made" if "with-data" in flags else "")


@pytest.mark.parametrize(
    ("words", "hosts"),
    [(["--join", "n4,n5"], ("n4", "n5")), (["--join", "n5,n4", "--join", "n6", "--join", "n4"], ("n5", "n4", "n6"))],
)
def test_hosts_are_named_with_commas_or_one_by_one(
    monkeypatch: pytest.MonkeyPatch, words: list[str], hosts: tuple[str, ...]
) -> None:
    assert requested(monkeypatch, ["./made.yaml", *words]).hosts == hosts


def test_hosts_are_named_by_one_flag_and_refused_by_it() -> None:
    with pytest.raises(ProfileError, match="--hosts: cannot be said together with --join"):
        hosts_of({"--join": ["n4"], "--hosts": ["n5"]})
    with pytest.raises(ProfileError, match="--leave: must be names"):
        hosts_of({"--leave": ["n4,"]})
    with pytest.raises(ProfileError, match="--join: '!' must be"):
        hosts_of({"--join": ["n4", "!"]})


LONG = "error: " + "x" * 500 + " the end"


def test_on_a_terminal_a_reason_is_short_and_the_whole_of_it_is_named(tmp_path: Path) -> None:
    steps = tuple(StepOutcome(f"hosts/w{index}", "does", VerdictWord.FAIL, LONG, 4.0) for index in range(1, 31))
    table = {f"w{index}": {"hosts": "fail"} for index in range(1, 31)} | {"jobset": {"components": "not yet"}}
    outcome = replace(OUTCOME, steps=steps, table=table, why="failed: w1, w2 and 28 more")
    logs = [tmp_path / f"w{index}.log" for index in range(1, 31)]
    lines = text_of(outcome, 80, every=False, logs=logs).splitlines()
    assert [line.split() for line in lines[:4]] == [
        ["host", "number", "hosts"],
        ["w[1-30]", "30", "fail"],
        ["component", "components"],
        ["jobset", "not", "yet"],
    ]
    assert lines[4].startswith("hosts/w[1-30]: fail: error: xxx")
    assert len(lines[4]) == 160
    first = ", ".join(f"w{index}.log" for index in range(1, 7))
    assert lines[5:] == [f"the whole of it: {tmp_path}/ ({first} and 24 more)", "failed: w1, w2 and 28 more"]
    piped = text_of(outcome, 0, every=True, logs=logs[:1])
    assert LONG in piped, "a file has room"
    assert f"the whole of it: {tmp_path}/w1.log" in piped
    assert "w30   fail" in piped, "--all shows each"


def test_the_command_tells_lines_names_the_log_and_keeps_a_page(
    say: Callable[..., tuple[int, str, str]], settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = settings.home / "logs" / "bootstrap" / "bootstrap-example"
    heard: list[object] = []

    def carry_through(profile: ClusterProfile, request: BootstrapRequest, tell: Tell, **more: Any) -> BootstrapOutcome:
        tell("looking at 13 hosts")
        heard.append(more["hear"])
        folder.mkdir(parents=True)
        (folder / "w1.log").write_text("the whole of it")
        return OUTCOME

    monkeypatch.setattr("flows.bootstrap.carry_through", carry_through)
    code, printed, told = say("bootstrap", "bootstrap-example")
    assert (code, heard) == (1, [None])
    assert told.splitlines()[0] == "looking at 13 hosts"
    assert told.splitlines()[1] == f"a page with the time line: {settings.home}/reports/bootstrap-made.html"
    assert printed.splitlines()[-3:] == [
        "hosts/w1: fail: containerd does not answer",
        f"the whole of it: {folder}/w1.log",
        OUTCOME.why,
    ]
    shutil.rmtree(folder)
    _, printed, _ = say("bootstrap", "bootstrap-example", "--json")
    assert json.loads(printed) == json.loads(json.dumps(document_of(OUTCOME)))
