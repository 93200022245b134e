"""`primus bootstrap`: flags become one request, what does not fit is refused by its flag, and what is shown."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner

from deployments.cli.app import bootstrap_app
from deployments.cli.hosts.bootstrap import document_of, forced_checks, request_of, text_of, verb_of
from flows.building.work import BootstrapOutcome
from profiles.errors import ProfileError
from profiles.vocabulary import VerdictWord
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


def test_the_help_has_an_example_for_each_verb() -> None:
    from typer.main import get_group

    group: Any = get_group(bootstrap_app)
    text = CliRunner().invoke(group, ["./made.yaml", "--help"]).output
    for verb in ("--check", "--join", "--leave", "--upgrade", "--drift", "--components", "--uninstall"):
        assert f"bootstrap ./made.yaml {verb}" in text, verb
