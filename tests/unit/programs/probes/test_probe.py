from __future__ import annotations

import base64
import errno
import json
import os
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.builders.damaged import damaged, reaches
from tests.support.cases.rows import rows
from workflows.programs.parsers.text import ParsedOutput, Reading
from workflows.programs.probes import run
from workflows.programs.probes.call import (
    Call,
    dump_parsed,
    execute,
    from_json,
    load_parsed,
    to_json,
)
from workflows.programs.probes.run import (
    Node,
    Options,
    join_parsed,
    pack_answers,
    places_of,
    unpack_answers,
    with_subject,
)
from workflows.programs.runtime.bounded import describe_start_error

MAIN = Path(run.__file__).parents[1] / "main.py"


def words(text: str) -> ParsedOutput:
    """A tool that prints one figure."""
    try:
        return ParsedOutput((Reading("q", float(text.split(maxsplit=1)[0]), "s"),))
    except (ValueError, IndexError):
        return ParsedOutput(unknown="no figure was printed")


PARSERS: Mapping[str, Callable[[str], ParsedOutput]] = {"words": words, "bad": lambda text: 1 / 0}  # pyright: ignore


def shell(script: str, number: int = 0, **more: object) -> Call:
    return Call(number, command=("sh", "-c", script), parser="words", **more)  # type: ignore[arg-type]


@rows("programs/probes/probe")
def test_what_tells_nothing_is_unknown_with_the_reason(call: Call, said: str) -> None:
    found = execute(call, {}, 0.3 if "sleep" in " ".join(call.command) else 20.0, PARSERS)
    assert found.readings == ()
    assert found.unknown.startswith(said)


def test_a_tool_whose_file_wants_capabilities_says_what_to_do_with_the_image() -> None:
    refused = OSError(errno.EPERM, os.strerror(errno.EPERM))
    assert describe_start_error(refused).startswith("Operation not permitted: its file may carry capabilities")
    assert describe_start_error(OSError(errno.EACCES, os.strerror(errno.EACCES))) == "Permission denied"


def test_a_tool_that_complains_and_prints_its_figures_is_read() -> None:
    assert execute(shell("echo 7; exit 1"), {}, 20.0, PARSERS).readings == (Reading("q", 7.0, "s"),)


def test_what_a_tool_started_ends_with_it(tmp_path: Path) -> None:
    began = time.monotonic()
    found = execute(shell(f"(sleep 3; touch {tmp_path}/late) & echo 7"), {}, 20.0, PARSERS)
    assert found.readings
    assert time.monotonic() - began < 3, "the pipe that it holds is not waited for"
    hangs = execute(shell(f"echo $$ > {tmp_path}/pid; sleep 60 & sleep 60"), {}, 0.5, PARSERS)
    assert hangs.unknown
    pid = (tmp_path / "pid").read_text().strip()
    limit = time.monotonic() + 10.0
    while left := of_group(pid):  # a process that was killed ends when it gets a processor
        assert time.monotonic() < limit, left


def of_group(pid: str) -> list[list[str]]:
    """Who lives in the group. The state follows the name, then parent and group; Z is dead, and waits to be fetched."""
    return [stat[:3] for stat in stats() if stat[2] == pid and stat[0] != "Z"]


def stats() -> list[list[str]]:
    """State, parent, group, … of every process."""
    found: list[list[str]] = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            found.append(path.read_text().rpartition(") ")[2].split())
    return found


def test_more_output_than_anybody_needs_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workflows.programs.runtime.bounded.MOST_BYTES", 1000)
    seen: list[int] = []

    def count(text: str) -> ParsedOutput:
        seen.append(len(text))
        return ParsedOutput(unknown="x")

    execute(shell("yes | head -c 500000"), {}, 20.0, {"words": count})
    assert seen == [1000]


def node(calls: tuple[Call, ...], nics: tuple[str, ...] = (), **options: object) -> dict[int, list[ParsedOutput]]:
    return Node(Options("[]", **options), nics, PARSERS).make(calls)  # type: ignore[arg-type]


def test_a_call_is_made_for_every_gpu_whether_it_is_there_or_not() -> None:
    script = "[ {gpu} = 1 ] && exit 9; echo 1{gpu}"
    [found] = node((shell(script),), gpus=3)[0]
    assert [(one.subject, one.value) for one in found.readings] == [("gpu 0", 10.0), ("gpu 2", 12.0)]
    assert found.unknown == "gpu 1: sh ended with 9: no figure was printed"
    [none] = node((shell(script),), gpus=0)[0]
    assert none.unknown == "sh: there is no GPU or NIC to ask about"


def test_nics_are_asked_one_after_the_other() -> None:
    assert places_of(shell("{nic}"), 2, ("mlx5_0", "mlx5_1")) == [{"nic": "mlx5_0"}, {"nic": "mlx5_1"}]
    script = "mkdir {path}/../one && echo 1 && rmdir {path}/../one"
    [found] = node((shell(script + " # {nic}"),), ("a", "b"))[0]
    assert [one.subject for one in found.readings] == ["a", "b"]


def test_what_must_be_alone_is_alone(tmp_path: Path) -> None:
    lock = f"mkdir {tmp_path}/busy || exit 9; sleep 0.1; rmdir {tmp_path}/busy; echo 1"
    calls = tuple(shell(lock, number, needs=("disk",)) for number in range(4))
    found = node((*calls, shell(lock, 4, needs=("node",))))
    assert [len(found[number][0].readings) for number in range(5)] == [1] * 5


def test_every_call_is_answered_when_the_time_is_up() -> None:
    began = time.monotonic()
    calls = (
        shell("sleep 60", 0),
        shell("echo 1", 1),
        shell("sleep 60", 2, needs=("disk",)),
        shell("echo 1", 3, needs=("disk",)),
    )
    found = node(calls, deadline_seconds=0.7)
    assert time.monotonic() - began < 5
    assert [bool(found[number][0].readings) for number in range(4)] == [False, True, False, False]
    assert all(found[number][0].unknown for number in (0, 2, 3))


def test_attempts_are_told_one_by_one_and_end_with_their_time(tmp_path: Path) -> None:
    counts = f"echo x >> {tmp_path}/n; wc -l < {tmp_path}/n"
    assert [one.readings[0].value for one in node((shell(counts, attempts=3),))[0]] == [1.0, 2.0, 3.0]
    slow = node((shell("sleep 0.4; echo 1", attempts=5, deadline_seconds=0.9),))[0]
    assert len(slow[0].readings) == 1
    assert slow[-1].unknown


def test_a_folder_of_its_own_is_given_and_taken_away(tmp_path: Path) -> None:
    [found] = node((shell("ls {path} | wc -l; touch {path}/left"),), path=str(tmp_path / "storage"))[0]
    assert found.readings[0].value == 0.0
    assert list((tmp_path / "storage").iterdir()) == []


READINGS = st.builds(
    Reading,
    quantity=st.sampled_from(["a", "b"]),
    value=st.none() | st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**9), 10**9),
    unit=st.sampled_from(["", "GB/s"]),
    subject=st.text(max_size=5),
    word=st.text(max_size=5),
    said=st.sampled_from(["", "pass", "fail"]),
    line=st.text(max_size=20),
)
ANSWERS = st.builds(ParsedOutput, readings=st.lists(READINGS, max_size=4).map(tuple), unknown=st.text(max_size=9))


@given(st.dictionaries(st.integers(0, 99), st.lists(ANSWERS, min_size=1, max_size=3), max_size=5))
def test_answers_come_back_as_they_were(answers: dict[int, list[ParsedOutput]]) -> None:
    assert unpack_answers(pack_answers(answers)) == answers


@given(ANSWERS)
def test_what_a_probe_prints_is_read_among_other_lines(parsed: ParsedOutput) -> None:
    assert load_parsed(f"warning: x\n{dump_parsed(parsed)}\ntrailing\n") == parsed


TOLD = ParsedOutput((Reading("hbm", 4200.5, "GB/s", "gpu 3", line="x"), Reading("ecc", word="on")), version="2")
PRINTED = damaged(
    [f"warning: x\n{dump_parsed(TOLD)}\n", dump_parsed(ParsedOutput(unknown="no"))], ["null", "[]", "{}", '"', "\n"]
)
PACKED = damaged(
    [zlib.decompress(base64.b85decode(pack_answers({0: [TOLD], 7: [ParsedOutput(unknown="it hung")]}))).decode()],
    ["null", "[]", "{}", '"', ",", '"r":', "NaN", "1e999"],
).map(lambda text: base64.b85encode(zlib.compress(text.encode("utf-8", "replace"))).decode())
CALLS = damaged(
    [to_json((Call(0, probe="loopback", arguments={"bytes": "9"}), shell("echo", 1, needs=("gpus",))))],
    ["null", "[]", "{}", '"', ",", '"command":', '"needs":'],
)


def _refused(read: Callable[[str], object], text: str) -> bool:
    try:
        read(text)
    except ValueError:
        return True
    return False


@given(PRINTED)
def test_a_damaged_answer_of_a_probe_is_read_or_is_unknown(text: str) -> None:
    found = load_parsed(text)
    assert isinstance(found, ParsedOutput)
    assert all(isinstance(one, Reading) for one in found.readings)


@given(PACKED)
def test_damaged_answers_of_a_node_are_answers_or_refused(text: str) -> None:
    if not _refused(unpack_answers, text):
        assert all(isinstance(one, ParsedOutput) for answers in unpack_answers(text).values() for one in answers)


@given(CALLS)
def test_damaged_calls_are_calls_or_refused(text: str) -> None:
    if not _refused(from_json, text):
        assert all(isinstance(one, Call) for one in from_json(text))


def test_such_texts_are_read_and_refused() -> None:
    assert reaches(PRINTED, lambda text: load_parsed(text).readings not in ((), TOLD.readings))
    assert reaches(PRINTED, lambda text: '{"primus_probe"' in text and not load_parsed(text).readings)
    for texts, read in ((PACKED, unpack_answers), (CALLS, from_json)):
        assert reaches(texts, lambda text, read=read: not _refused(read, text))
        assert reaches(texts, lambda text, read=read: _refused(read, text))


@given(st.text())
def test_no_text_is_taken_for_answers(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        unpack_answers(text)
    assert load_parsed(text).readings == ()
    with pytest.raises(ValueError):  # noqa: PT011
        from_json(text if text != "[]" else "{}x")


def test_parts_of_which_one_is_unknown_are_not_wholly_known() -> None:
    known = ParsedOutput((Reading("q", 1.0),), version="2")
    assert join_parsed([known, ParsedOutput(unknown="no")]) == ParsedOutput((Reading("q", 1.0),), "no", "2")
    assert join_parsed([]).unknown == "no reading was given"


def test_calls_travel_as_an_argument() -> None:
    calls = (Call(0, probe="loopback", arguments={"bytes": "9"}), shell("echo '{gpu}'", 1, needs=("gpus",), attempts=2))
    assert from_json(to_json(calls)) == calls


def test_the_program_measures_reports_and_ends_well(tmp_path: Path) -> None:
    calls = (Call(0, probe="loopback", arguments={"bytes": "1048576"}), Call(1, probe="nosuch"))
    argv = [sys.executable, str(MAIN), "probe", f"--calls={to_json(calls)}", f"--out-dir={tmp_path}"]
    done = subprocess.run(
        argv, capture_output=True, text=True, check=False, env={"PRIMUS_NODE": "node-7", "PATH": "/bin"}
    )
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads((tmp_path / "report").read_text())
    assert report == json.loads(done.stdout)
    answers = unpack_answers(report["answers"])
    assert report["node"] == "node-7"
    assert [one.quantity for one in answers[0][0].readings] == ["loopback_bandwidth", "loopback_latency"]
    assert "no probe" in answers[1][0].unknown


def test_calls_that_are_none_are_a_wrong_usage() -> None:
    done = subprocess.run(
        [sys.executable, str(MAIN), "probe", "--calls=[{}]"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr.startswith("probe: no list of calls")) == (2, True)


@rows("programs/probes/probe")
def test_a_reading_says_of_which_gpu_or_nic_it_is(told: str, places: dict[str, str], subject: str) -> None:
    found = with_subject(ParsedOutput((Reading("speed", 1.0, "GB/s", told),)), places)
    assert found.readings[0].subject == subject


def test_figures_of_a_program_that_ended_with_an_error_are_not_all_that_there_is_to_know() -> None:
    call = Call(0, command=("sh", "-c", "echo told; exit 14"), parser="told")
    whole = ParsedOutput((Reading("speed", 1.0, "GB/s"),))
    found = execute(call, {}, 5.0, {"told": lambda _: whole})
    assert (found.readings, found.unknown) == (whole.readings, "sh ended with 14; it said: told")
