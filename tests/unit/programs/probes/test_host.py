"""The edge around a probe on a host: where it looks, what ends with it, what it finds left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.running.waiting import patience
from workflows.programs.probes.call import Call, to_json
from workflows.programs.probes.over_ssh import MARK, OLD_SECONDS, Options, main, remove_left, storage_folder
from workflows.programs.probes.run import unpack_answers
from workflows.programs.runtime import flags

PROGRAMS = Path(__file__).parents[4] / "workflows" / "programs" / "main.py"
LIMIT_SECONDS = patience(60.0)


def wait(reached: Callable[[], object]) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def alive(pid: int) -> bool:
    """Whether it runs; a dead one that nobody fetched does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def left(folder: Path, name: str, age_seconds: float = 0.0, test: str = "") -> Path:
    """A folder that somebody left."""
    made = folder / name
    made.mkdir()
    if test:
        (made / MARK).write_text(test)
    then = time.time() - age_seconds
    os.utime(made, (then, then))
    return made


def own(folder: Path) -> Path:
    made = folder / "flows-own"
    made.mkdir()
    return made


def started(folder: Path, script: str, *words: str) -> subprocess.Popen[str]:
    """The program with one call, a shell script."""
    tool = folder.parent / "tool"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    calls = to_json((Call(0, command=(str(tool),), parser="iperf3", deadline_seconds=60.0),))
    command = [sys.executable, str(PROGRAMS), "probe-host", f"--folder={folder}", *words, "--", f"--calls={calls}"]
    return subprocess.Popen(
        [*command, "--deadline-seconds=60"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@given(st.lists(st.text(), max_size=3), st.text(), st.text())
def test_what_is_written_is_read(storage: list[str], prefix: str, test: str) -> None:
    options = Options("/a", tuple(storage), prefix, test, 5.0, ("--calls=[]",))
    assert flags.from_argv(Options, flags.to_argv(options)) == options


def test_path_is_on_the_first_storage_that_this_host_has(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    there = tmp_path / "there"
    there.mkdir()
    places = (str(tmp_path / "missing"), str(tmp_path / "file"), str(there), str(tmp_path))
    assert storage_folder(Options("/own", places)) == f"{there}/preflight"
    assert storage_folder(Options("/own", places[:2])) == "/own"
    assert storage_folder(Options("/own")) == "/own"


def test_what_killed_tests_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    folder, outside = own(tmp_path), left(tmp_path, "outside", OLD_SECONDS * 2)
    left(tmp_path, "flows-old", OLD_SECONDS + 60)
    left(tmp_path, "flows-same", test="t-1/node-0")
    left(tmp_path, "flows-other", test="t-1/node-1")
    left(tmp_path, "flows-young", OLD_SECONDS - 600)
    (tmp_path / "flows-link").symlink_to(outside)
    options = Options(str(folder), prefix="flows-", test="t-1/node-0")
    assert sorted(remove_left(options, time.time())) == [str(tmp_path / name) for name in ("flows-old", "flows-same")]
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [
        "flows-link",
        "flows-other",
        "flows-own",
        "flows-young",
        "outside",
    ]
    assert remove_left(Options(str(folder), prefix="flows-"), time.time()) == [], "no test is not the same test"
    assert remove_left(Options(str(folder)), time.time() + 10 * OLD_SECONDS) == []
    assert remove_left(Options(str(tmp_path / "no" / "such"), prefix="flows-"), time.time()) == []


def test_it_reports_as_a_pod_does(tmp_path: Path) -> None:
    folder = own(tmp_path)
    process = started(folder, "echo hello")
    _, error = process.communicate(timeout=LIMIT_SECONDS)
    assert (process.returncode, error) == (0, "")
    report = json.loads((folder / "out" / "report").read_text())
    [told] = unpack_answers(report["answers"])[0]
    assert (told.readings, bool(told.unknown)) == ((), True)
    assert report["at"] > 0


def test_what_left_its_session_ends_with_the_probe(tmp_path: Path) -> None:
    folder, pids = own(tmp_path), tmp_path / "pids"
    process = started(folder, f"setsid sh -c 'echo $$ > {pids}; exec sleep 600' & while [ ! -s {pids} ]; do :; done")
    process.communicate(timeout=LIMIT_SECONDS)
    assert process.returncode == 0
    assert not alive(int(pids.read_text()))


@pytest.mark.parametrize(
    ("how", "code", "said"),
    [
        ("late", 124, "probe-host: the probe did not end within 2 s"),
        ("probe killed", 137, "probe-host: the probe was ended by signal 9"),
        ("told to end", 143, ""),
    ],
)
def test_however_it_ends_nothing_goes_on(tmp_path: Path, how: str, code: int, said: str) -> None:
    folder, pids = own(tmp_path), tmp_path / "pids"
    script = f"echo $PPID $$ > {pids}.new; mv {pids}.new {pids}; exec sleep 600"
    process = started(folder, script, *(["--deadline-seconds=2"] if how == "late" else []))
    wait(pids.exists)
    probe, tool = (int(word) for word in pids.read_text().split())
    if how == "probe killed":
        os.kill(probe, signal.SIGKILL)
    if how == "told to end":
        process.terminate()
    _, error = process.communicate(timeout=LIMIT_SECONDS)
    assert (process.returncode, error.strip()) == (code, said)
    assert not alive(probe)
    assert not alive(tool)


def test_the_same_test_begun_again_ends_the_first_and_no_other(tmp_path: Path) -> None:
    folders, processes = {}, {}
    for name, test in (("first", "t-1/node-0"), ("other", "t-1/node-1")):
        (tmp_path / name).mkdir()
        folders[name] = own(tmp_path / name)
        mark = tmp_path / f"{name}-runs"
        processes[name] = started(folders[name], f": > {mark}; exec sleep 600", "--prefix=flows-", f"--test={test}")
        wait(mark.exists)
    again = tmp_path / "first" / "flows-again"
    again.mkdir()
    second = started(again, "echo hello", "--prefix=flows-", "--test=t-1/node-0")
    second.communicate(timeout=LIMIT_SECONDS)
    processes["first"].communicate(timeout=LIMIT_SECONDS)
    assert (second.returncode, processes["first"].returncode, processes["other"].poll()) == (0, 143, None)
    assert (folders["first"].exists(), again.exists(), folders["other"].exists()) == (False, True, True)
    processes["other"].terminate()
    processes["other"].communicate(timeout=LIMIT_SECONDS)


def test_wrong_use_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--folder=/x", "--nosuch=1"]) == 2
    assert "--nosuch" in capsys.readouterr().err
    assert main([]) == 2
    assert "--folder: must be given" in capsys.readouterr().err
