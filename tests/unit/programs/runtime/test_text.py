"""Nothing that somebody else wrote steers the terminal or the page on which it is shown; colours stay colours."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from deployments.cli.logs import Log
from deployments.cli.workflow import tree_lines
from deployments.exit_codes import out, say
from deployments.screen.live import Trend, screen
from flows.decisions.views.status import Surroundings, status_of
from flows.pages.frame import _environment  # pyright: ignore[reportPrivateUsage] - where every page is made
from profiles.request import TrainRequest
from profiles.vocabulary import RunState
from tasks.ledger.ledger import Ledger
from tasks.prefect.events import _data  # pyright: ignore[reportPrivateUsage] - where every sheet is written
from tasks.runs.open import open_run, resolved_of
from tasks.settings import Settings
from tests.support.cases.rows import rows
from workflows.model.events import Sheet
from workflows.programs.launcher.output import printable_text
from workflows.programs.runtime.text import is_visible, uncoloured, visible

HOSTILE = "a\x1b[2Jb\x1b]52;c;ZWNobw==\x07c\x9b31md\x1bPe\x1b\\f\x1b[1;1Hg\x1bch\u202ei\x90j\rk\x08l\x1b[31mred\x1b[0m"
STEERS = re.compile("[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]|\x1b(?!\\[[0-9;:]*m)")


@rows("programs/runtime/text")
def test_only_text_and_colours_stay(text: str, shown: str, plain: str) -> None:
    assert visible(text) == shown
    assert uncoloured(text) == plain
    assert printable_text(text.encode()) == shown
    assert is_visible(text.encode()) == (shown == text and text.isascii())


@given(st.text(st.sampled_from("a\x1b[;:31mJ\x9b]\x07\r\n\t\u202eé\x00\x7f\x85")))
def test_whatever_is_written_nothing_steers_and_lines_stay_lines(text: str) -> None:
    assert not STEERS.search(visible(text))
    assert "\x1b" not in uncoloured(text)
    assert visible(visible(text)) == visible(text)
    assert visible(text).count("\n") == text.count("\n")


def test_what_a_command_says_is_all_shown_so(capsys: pytest.CaptureFixture[str]) -> None:
    out(HOSTILE)
    say(f"{HOSTILE}\n\x1b[8mhidden\nplain")
    printed = capsys.readouterr()
    assert not STEERS.search(printed.out + printed.err)
    assert printed.out.endswith("\x1b[31mred\x1b[0m\n")
    assert printed.err.endswith("\x1b[8mhidden\x1b[0m\nplain\n"), "a colour ends with its line"


def test_a_rank_s_log_a_step_s_message_and_a_run_s_reason_are_shown_so(tmp_path: Path, settings: Settings) -> None:
    (tmp_path / "rank-0.log").write_bytes(HOSTILE.encode() + b"\n")
    assert not STEERS.search("".join(Log(tmp_path / "rank-0.log").lines()))

    ledger = Ledger(settings.ledger_url)
    run = open_run(TrainRequest(profile="demo", name=f"a-{RunState.PENDING}"), settings, ledger, 1.0)
    story = ledger.story(run.name)
    document = status_of(story, resolved_of(run), Surroundings(now=2.0)) | {"why": HOSTILE, "paused_why": HOSTILE}
    console = Console(file=io.StringIO(), force_terminal=True, width=200)
    console.print(screen(document, Trend(), 2.0, 200))
    ledger.close()
    drawn = console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]
    assert not STEERS.search(str(drawn))  # pyright: ignore[reportUnknownArgumentType]
    assert "b" in drawn


def test_pages_show_it_without_colours() -> None:
    made = _environment().from_string("{{ words }}").render(words=HOSTILE + "<b>")
    assert made == uncoloured(HOSTILE).replace("<", "&lt;").replace(">", "&gt;") + "&lt;b&gt;"
    assert "\x1b" not in made
    assert "\x1b" not in _data(Sheet("k", "markdown", HOSTILE))
    assert "u001b" not in _data(Sheet("k", "table", [{"why": HOSTILE, "n": 1}]))


def test_a_tree_of_steps_keeps_each_in_its_line() -> None:
    assert len(tree_lines({"phase": "Failed", "message": HOSTILE}, "w", 1.0)) == 1
