"""Nothing that somebody else wrote steers the terminal or the page on which it is shown; colours stay colours."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from rich.console import Console

from deployments.cli.logs import Log
from deployments.cli.workflow import tree_lines
from deployments.exit_codes import out, say
from deployments.screen.live import Trend, screen
from flows.decisions.text import markdown_text
from flows.decisions.views.approvals import approval_sheet
from flows.decisions.views.run_page import table
from flows.decisions.views.status import Surroundings, status_of
from flows.pages.frame import _environment  # pyright: ignore[reportPrivateUsage] - where every page is made
from profiles.request import TrainRequest
from profiles.vocabulary import RunState
from tasks.ledger.ledger import Ledger
from tasks.prefect.events import _data, body_of  # pyright: ignore[reportPrivateUsage] - where every sheet is written
from tasks.runs.open import open_run, resolved_of
from tasks.settings import Settings
from tests.support.cases.rows import rows
from workflows.model.events import ConsoleEvent, Place, Sheet
from workflows.model.records import ApprovalRecord
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


def test_events_tell_it_without_what_steers() -> None:
    payload = {"message": HOSTILE, "evidence": [HOSTILE], "culprits": [{"node": HOSTILE, "rank": 1}], "class": None}
    told = body_of(ConsoleEvent("primus.x", 1.0, Place("run", "c"), payload), "ledger", 1, "")["payload"]
    assert not STEERS.search(json.dumps(told, ensure_ascii=False))
    assert told == {
        "message": uncoloured(HOSTILE),
        "evidence": [uncoloured(HOSTILE)],
        "culprits": [{"node": uncoloured(HOSTILE), "rank": 1}],
        "class": None,
    }


FORGED = (
    "[pay](javascript:alert(1))", "![x](https://evil.example/pixel.png)", "<script>alert(1)</script>", "a | b",
    "# Fine", "`rm -rf /`", "**all is well**", "~~not~~", "1. first", "12) twelfth", "- item", "> said", "+ plus",
    "[a]: javascript:x", "&lt;b&gt; &amp;", "\\",
    "___", "_a_ __b__", "one\n\n# two", "\\[x](javascript:y)", "===", "---",
    "<https://evil.example>", "\x1b[2Jgone", "node_lost in a_b_c", "[x]\n\n[x]: javascript:y",
)  # fmt: skip


@pytest.mark.parametrize("text", FORGED)
def test_markdown_shows_the_words_and_makes_nothing_of_them(text: str) -> None:
    render = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    shown = " ".join(uncoloured(text).replace("`", "'").split())
    [opened, inline, closed] = render.parse(markdown_text(text))
    assert (opened.type, closed.type) == ("paragraph_open", "paragraph_close")
    assert {child.type for child in inline.children or ()} <= {"text", "text_special"}, "no link, no picture, no tag"
    assert "".join(child.content for child in inline.children or ()) == shown
    cells = [token for token in render.parse(table([{"a": text, "b": "end"}])) if token.type == "td_open"]
    assert len(cells) == 2, "no column of its own"


def test_a_question_s_page_is_made_of_our_marks_alone() -> None:
    words = " ".join(FORGED)
    asked = ApprovalRecord(
        "a-1", words, "i", f"{words}? {words}", "approved", 1.0, 2.0, answered_at=1.5, answered_by=words, why=words
    )
    sheet = approval_sheet(asked)
    kinds = {
        child.type
        for token in MarkdownIt().parse(f"{sheet.description}\n\n{sheet.data}")
        for child in token.children or ()
    }
    assert kinds <= {"text", "text_special", "strong_open", "strong_close", "softbreak"}


def test_a_long_question_is_told_to_its_end() -> None:
    words = f"{'why ' * 200}and that is all"
    asked = ApprovalRecord("a-1", "r", "i", f"give up? {words}", "denied", 1.0, 2.0, answered_at=1.5, why=words)
    assert str(approval_sheet(asked).data).count("and that is all") == 2, "the question and the answer's reason"


def test_a_tree_of_steps_keeps_each_in_its_line() -> None:
    assert len(tree_lines({"phase": "Failed", "message": HOSTILE}, "w", 1.0)) == 1
