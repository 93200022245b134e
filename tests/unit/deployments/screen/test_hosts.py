"""The screen of hosts that become a cluster: what stands on it, that it fits, and who gets lines instead."""

from __future__ import annotations

import io
import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from deployments.screen.hosts import HostScreen, screen, watched
from flows.decisions.bootstrap.progress import progress_after
from tests.support.running.waiting import patience
from workflows.model.bootstrap import LOOK, HostNews, NewsWord

NOW = 1_000_000.0
SIZES = ((80, 24), (200, 50))


def drawn(news: list[HostNews], width: int, height: int, now: float = NOW + 60.0) -> list[str]:
    progress = progress_after({}, [(NOW, one) for one in news])
    console = Console(record=True, width=width, file=io.StringIO(), force_terminal=True)
    console.print(screen("made: build, 60 s", "logs of hosts: /home/x/logs", progress, now, (width, height)))
    return console.export_text().splitlines()


def step(host: str, word: NewsWord, said: str, stage: str = "control-plane") -> HostNews:
    return HostNews(host, stage, word, said)


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_each_host_has_a_line_with_stage_word_seconds_and_last_words(width: int, height: int) -> None:
    news = [
        step("n1", "pass", "its API answers"),
        step("n2", "at work", "kubeadm join"),
        step("n3", "not yet", "waits"),
    ]
    lines = drawn(news, width, height)
    assert lines[0] == "made: build, 60 s  1 at work, 1 not yet, 1 pass"
    assert lines[1].split() == ["n1", "control-plane", "pass", "0", "s", "its", "API", "answers"]
    assert lines[2].split() == ["n2", "control-plane", "at", "work", "60", "s", "kubeadm", "join"]
    assert lines[3].split() == ["n3", "control-plane", "not", "yet", "waits"]
    assert lines[4:] == ["logs of hosts: /home/x/logs"]


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_of_ten_thousand_hosts_those_that_want_eyes_are_shown_and_the_rest_counted(width: int, height: int) -> None:
    news = [step(f"w{index:05}", "pass", "it is Ready") for index in range(9_940)]
    news += [step(f"x{index}", "not yet", "waits for its turn") for index in range(10)]
    news += [step(f"y{index}", "at work", "join") for index in range(height - 10)]
    news += [step("z1", "fail", "no route to host"), step("z2", "unknown", "it does not answer")]
    lines = drawn(news, width, height)
    assert len(lines) == height
    assert lines[1].startswith("z1 ")
    assert lines[2].startswith("z2 ")
    assert sum(line.startswith("y") for line in lines) == height - 10
    assert lines[-2] == "… and 9,945 further: 5 not yet, 9,940 pass"


def test_both_ends_of_a_long_name_are_seen_and_a_narrow_terminal_leaves_the_stage_out() -> None:
    name = "training-cluster-of-the-north-hall-rack-17-node-0042"
    [_, line, _] = drawn([step(name, "at work", "images: changed")], 80, 24)
    assert "0042  control-plane  at work" in line
    assert line.startswith("trainin…17-node-0042 ")
    [_, line, _] = drawn([step("n1", "at work", "images: changed")], 56, 24)
    assert line.split() == ["n1", "at", "work", "60", "s", "images:", "changed"]


ODD = st.text(
    st.one_of(
        st.sampled_from("\x1b\x00\r\n\t\u202e\u200d\ufe0f\u0301漢字한글🧑‍🚀🇩🇪é\x9b[2J"), st.characters(codec="utf-8")
    ),
    max_size=300,
)


@given(ODD, st.sampled_from([30, 56, 80, 200]), st.sampled_from(["pass", "fail", "unknown", "at work", "not yet"]))
def test_nothing_that_a_host_says_breaks_the_table(said: str, width: int, word: NewsWord) -> None:
    lines = drawn([step("n1", word, said), step("n2", "pass", "漢" * 200)], width, 24)
    assert len(lines) == 4, "each host stays in its line"
    assert all(cell_len(line) <= width for line in lines)
    assert all(mark not in "".join(lines) for mark in "\x1b\x00\r\t\u202e\u200d\ufe0f\x9b")


def test_what_is_heard_between_two_drawings_is_seen_at_the_next() -> None:
    now = [NOW]
    shown = HostScreen("made: build", "logs", clock=lambda: now[0])
    console = Console(record=True, width=80, file=io.StringIO())
    console.print(shown.draw((80, 24)), end="")
    assert console.export_text(clear=False) == "", "what is wrong with a profile is found before any host is asked"
    shown.hear(HostNews("n1", LOOK, "at work", "is asked"))
    now[0] += 4
    console.print(shown.draw((80, 24)))
    shown.hear(HostNews("n1", "prechecks", "fail", "no sudo"))
    console.print(shown.draw((80, 24)))
    text = console.export_text()
    assert "made: build, 4 s  1 at work" in text
    assert text.index("is asked") < text.index("no sudo")


def test_a_pipe_gets_lines(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with watched("made: build", tmp_path, plainly=False) as (tell, hear):
        tell("looking at 3 hosts")
    assert hear is None
    assert capsys.readouterr().err == "looking at 3 hosts\n"


WATCHES = """
import sys, time
from pathlib import Path
from deployments.screen.hosts import watched
from workflows.model.bootstrap import HostNews
with watched("made: build", Path("/logs"), plainly=sys.argv[1] == "plainly") as (tell, hear):
    if hear is None:
        sys.exit("lines")
    hear(HostNews("n1", "hosts", "at work", "images"))
    tell("waiting for a person: primus approve")
    time.sleep(1.2)
    if sys.argv[1] == "fails":
        raise KeyboardInterrupt
print("the last word")
"""
DEADLINE_SECONDS = patience(60.0)


def seen_by(how: str, *, term: str = "xterm-256color", piped: bool = False) -> str:
    """What a terminal of 80 by 24 gets."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": term, "COLUMNS": "80", "LINES": "24"}
    out = subprocess.PIPE if piped else theirs
    command = [sys.executable, "-c", WATCHES, how]
    child = subprocess.Popen(command, stdin=theirs, stdout=out, stderr=theirs, env=environment)
    os.close(theirs)
    seen, deadline = b"", time.monotonic() + DEADLINE_SECONDS
    try:
        while time.monotonic() < deadline:
            ready, _, _ = select.select([ours], [], [], 0.1)
            try:
                part = os.read(ours, 65536) if ready else b""
            except OSError:  # the other end is closed
                break
            seen += part
            if not part and child.poll() is not None:
                break
    finally:
        child.kill()
        child.communicate()
        os.close(ours)
    return seen.decode()


def test_a_terminal_gets_a_table_that_goes_at_the_end_and_lines_above_it() -> None:
    seen = seen_by("well")
    assert re.search(r"made: build, \d s  \S*1 at work", seen)
    assert seen.index("waiting for a person: primus approve") < seen.rindex("made: build")
    assert "\x1b[2K" in seen[seen.rindex("images") :], "the table is wiped"
    assert seen.rstrip().endswith("the last word")


def test_the_table_stays_where_an_error_ends_it() -> None:
    seen = seen_by("fails")
    assert "\x1b[2K" not in seen[seen.rindex("images") :]


@pytest.mark.parametrize(("how", "more"), [("plainly", {}), ("well", {"term": "dumb"}), ("well", {"piped": True})])
def test_lines_where_json_is_asked_for_and_where_no_terminal_reads(how: str, more: dict[str, bool]) -> None:
    assert "lines" in seen_by(how, **more)  # pyright: ignore[reportArgumentType]
