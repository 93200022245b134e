"""What ranks' Pythons run at their start: stacks of a program that nobody prepared, which sees nothing of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tasks.programs_archive import programs_archive
from tests.support.harness.launcher_harness import until
from workflows.programs.launcher import rank_set
from workflows.programs.launcher.rank_set import PYTHON_START, python_path
from workflows.programs.prefork.parent import PARKED_VARIABLE
from workflows.programs.stacks import collect
from workflows.programs.stacks.python_start.stack_signal import MEMORY_FILE, SIGNAL

TELL = """
import json, os, signal, sys
status = open("/proc/self/status").read()
caught = int(status.split("SigCgt:")[1].split()[0], 16)
site = sys.modules.get("sitecustomize")
print(json.dumps({"path": sys.path, "answers": bool(caught >> (SIGNAL - 1) & 1), "found": getattr(site, "FOUND", None),
    "mine": "stack_signal" in sys.modules, "files": sum("primus-stacks" in os.readlink("/proc/self/fd/%s" % number)
    for number in os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd/" + number))}))
""".replace("SIGNAL", str(SIGNAL))


@pytest.fixture(params=["folder", "archive"])
def start_folder(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """`python_start`, as it lies in a checkout and as it lies in the archive that pods get."""
    if request.param == "folder":
        return PYTHON_START
    return f"{programs_archive(tmp_path)}/workflows/programs/stacks/python_start"


def environment(python_path: str | None, **more: str) -> dict[str, str]:
    base = {name: text for name, text in os.environ.items() if name not in ("PYTHONPATH", PARKED_VARIABLE)}
    return {**base, **({} if python_path is None else {"PYTHONPATH": python_path}), **more}


def told(python_path: str | None, *options: str, code: str = TELL, **more: str) -> dict[str, Any]:
    argv = [sys.executable, *options, "-c", code]
    done = subprocess.run(argv, env=environment(python_path, **more), capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return json.loads(done.stdout)


def test_a_program_answers_and_sees_nothing_of_it(start_folder: str) -> None:
    plain = told(None)
    assert plain["answers"] is False
    with_us = told(start_folder)
    assert (with_us["answers"], with_us["files"], with_us["mine"]) == (True, 1, False)
    assert with_us["path"] == plain["path"], "as it is without us"


def test_what_the_program_has_of_these_names_is_its_own(start_folder: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys; FOUND = [sys.path[0:1], __name__]\n")
    (tmp_path / "stack_signal.py").write_text("MINE = True\n")
    seen = told(f"{start_folder}:{tmp_path}", code="import stack_signal; assert stack_signal.MINE" + TELL)
    assert seen["answers"], "it is ours that was asked for this"
    assert seen["found"] == [[str(tmp_path)], "sitecustomize"], "theirs was run, with the path that it expects"
    assert str(tmp_path) in seen["path"]
    assert start_folder not in seen["path"]


def test_a_mistake_in_what_the_place_runs_is_told_as_without_us(start_folder: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import nowhere_to_be_found\n")

    def said(python_path: str) -> list[str]:
        argv = [sys.executable, "-c", "print('it runs')"]
        done = subprocess.run(argv, env=environment(python_path), capture_output=True, text=True, check=True)
        assert done.stdout == "it runs\n"
        return done.stderr.splitlines()

    assert said(f"{start_folder}:{tmp_path}")[-1] == said(str(tmp_path))[-1]
    assert "nowhere_to_be_found" in said(f"{start_folder}:{tmp_path}")[-1]


def test_where_it_fails_the_program_runs_without(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text((Path(PYTHON_START) / "sitecustomize.py").read_text())
    for broken in ("raise OSError", "this is no Python", "def install(): raise MemoryError"):
        (tmp_path / "stack_signal.py").write_text(broken)
        assert told(str(tmp_path))["answers"] is False


@pytest.mark.parametrize("option", ["-I", "-E", "-S"])
def test_who_wants_nothing_of_the_environment_gets_nothing(option: str) -> None:
    assert told(PYTHON_START, option)["answers"] is False


def test_the_parked_process_is_left_alone() -> None:
    assert told(PYTHON_START, **{PARKED_VARIABLE: "1"})["answers"] is False


def test_programs_that_a_program_starts_answer_too_each_with_one_file() -> None:
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {TELL!r}], check=True)"
    seen = told(PYTHON_START, code=code)
    assert (seen["answers"], seen["files"]) == (True, 1)


def test_who_asks_for_it_as_well_has_it_once() -> None:
    root = str(Path(PYTHON_START).parents[2])
    again = f"import sys; sys.path.insert(0, {root!r})\n"
    again += "from workflows.programs.stacks.python_start import stack_signal; assert stack_signal.install()\n"
    seen = told(PYTHON_START, code=again + TELL)
    assert (seen["answers"], seen["files"]) == (True, 1)


@pytest.fixture
def script(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    ready = tmp_path / "ready"
    code = f"import time\ndef stand_still():\n open({str(ready)!r}, 'w').close()\n time.sleep(600)\nstand_still()\n"
    process = subprocess.Popen([sys.executable, "-c", code], env=environment(PYTHON_START), start_new_session=True)
    until(ready.exists, "it stands still")
    yield process
    process.kill()
    process.wait()


def test_stacks_of_a_program_that_nobody_prepared(script: subprocess.Popen[bytes]) -> None:
    assert collect.has_handler(script.pid, SIGNAL)
    assert collect.descriptor(script.pid, f"/memfd:{MEMORY_FILE}")
    for _ in range(2):
        (process,) = collect.gather({0: script.pid}, "n", collect.CollectOptions(seconds=3.0)).processes
        assert process.how == "faulthandler"
        assert process.main is not None
        assert process.main.frames[0].function == "stand_still"
    assert script.poll() is None


def test_the_signal_is_the_one_that_it_is_said_to_be() -> None:
    assert signal.SIGRTMAX - 3 == SIGNAL


def test_what_a_rank_has_on_its_path_comes_after() -> None:
    assert python_path("") == PYTHON_START
    assert python_path("/a:/b") == f"{PYTHON_START}:/a:/b"


def test_a_folder_that_cannot_be_written_into_a_path_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_set, "PYTHON_START", "/a:b/python_start")
    assert python_path("/a") == "/a"
