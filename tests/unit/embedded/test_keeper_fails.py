"""A keeper that ends at every start: whoever needs it is told, it is started more rarely, and it heals by itself.

What is asked of a keeper while it is busy is done before it sleeps.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from profiles.errors import Unavailable
from tasks.embedded.api import EmbeddedCluster
from tasks.embedded.control.keeper import Keeper
from tasks.embedded.runtime import processes
from tasks.embedded.start_keeper import (
    FEW,
    KILLS_A_FAILURE,
    LONGEST_WAIT_SECONDS,
    MEMORY_SECONDS,
    RETRY_SECONDS,
    FailureLog,
    busy_mark,
    demand_keeper,
    failures_path,
    keeper_lock,
    look_mark,
    note_start,
    read_failures,
    start_keeper,
    start_mark,
    write_failure,
)
from tasks.embedded.store import locks
from tests.support.harness.embedded_stage import DEADLINE_SECONDS, cluster, ended, phase, pod, spec

ROOT = Path(__file__).parents[3]


@pytest.fixture
def one(tmp_path: Path) -> Iterator[EmbeddedCluster]:
    with cluster(tmp_path / "cluster") as made:
        yield made


def told(one: EmbeddedCluster) -> Unavailable:
    """What whoever asks is told, as soon as it is no accident any more."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline:
        try:
            one.list("Pod")
        except Unavailable as error:
            return error
        time.sleep(0.01)
    raise AssertionError("nobody was told")


def healed(one: EmbeddedCluster, name: str) -> None:
    """The pod runs to its end once the keeper works, and nothing of the failures is left."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    state = ""
    while state != "Succeeded":
        assert time.monotonic() < deadline, state
        with suppress(Unavailable):
            state = ended(one, name)["status"]["phase"]
        time.sleep(0.02)
    while os.path.exists(failures_path(str(one.root))):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def fails(one: EmbeddedCluster) -> int:
    found = read_failures(str(one.root))
    return 0 if found is None else len(found.ends)


def pods_is_a_file(root: Path) -> Callable[[], None]:
    (root / "pods").rmdir()
    (root / "pods").touch()

    def repair() -> None:
        (root / "pods").unlink()
        (root / "pods").mkdir()

    return repair


def log_is_a_folder(root: Path) -> Callable[[], None]:
    (root / "keeper.log").mkdir()
    return (root / "keeper.log").rmdir


def settings_are_cut_off(root: Path) -> Callable[[], None]:
    (root / "cluster.json").write_text('{"name": "te')
    return lambda: EmbeddedCluster(root, spec()) and None  # whoever opens the cluster next writes it anew


BREAKAGES: dict[str, tuple[Callable[[Path], Callable[[], None]], str]] = {
    "a file where it needs a folder": (pods_is_a_file, "NotADirectoryError"),
    "a folder where it needs a file": (log_is_a_folder, "Is a directory"),
    "settings that were cut off": (settings_are_cut_off, "cluster.json: Unterminated string"),
}


@pytest.mark.parametrize("what", BREAKAGES)
def test_whoever_needs_it_is_told_why_and_where_and_it_heals(one: EmbeddedCluster, what: str) -> None:
    break_it, said = BREAKAGES[what]
    repair = break_it(one.root)
    one.apply(pod("waits", "true"))
    error = told(one)
    assert "its keeper ends at every start, exit" in str(error)
    assert said in str(error)
    assert str(one.root / "keeper.log") in str(error)
    assert 0.0 < error.retry_after_seconds <= RETRY_SECONDS
    for call in (
        lambda: one.get("Pod", "waits"),
        lambda: one.apply(pod("refused", "true")),
        lambda: list(one.watch("Pod", timeout_seconds=5.0)),
    ):
        with pytest.raises(Unavailable, match=r"keeper\.log"):
            call()
    repair()
    healed(one, "waits")
    assert one.get("Pod", "refused") is None, "what was refused was not written"


def test_whoever_only_watches_starts_it_again(one: EmbeddedCluster) -> None:
    repair = pods_is_a_file(one.root)
    one.apply(pod("waits", "true"))
    deadline, heard = time.monotonic() + DEADLINE_SECONDS, ""
    while "ends at every start" not in heard:
        assert time.monotonic() < deadline
        try:
            list(one.watch("Pod", timeout_seconds=1.0))
        except Unavailable as error:
            heard = str(error)
    repair()
    phases: list[str] = []
    while "Succeeded" not in phases:
        assert time.monotonic() < deadline, phases
        with suppress(Unavailable):
            phases += [event.object["status"]["phase"] for event in one.watch("Pod", timeout_seconds=0.5)]


def test_what_is_there_can_still_be_read_and_a_wish_is_kept(one: EmbeddedCluster) -> None:
    one.apply(pod("runs", "sh", "-c", "echo up; sleep 1000"))
    assert next(one.follow("runs", timeout_seconds=DEADLINE_SECONDS)) == "up"
    running = one.pod_processes("runs")
    (one.root / "keeper.log").rename(one.root / "kept.log")
    repair = log_is_a_folder(one.root)
    end_keeper(one)
    told(one)
    assert one.logs("runs") == "up\n"
    assert next(one.follow("runs", timeout_seconds=1.0)) == "up"
    assert one.pod_processes("runs") == running, "training is left alone"
    with pytest.raises(Unavailable, match="ends at every start"):
        one.delete("Pod", "runs", grace_seconds=0)
    repair()
    deadline = time.monotonic() + DEADLINE_SECONDS
    found: dict[str, Any] | None = {}
    while found is not None:
        assert time.monotonic() < deadline
        with suppress(Unavailable):
            found = one.get("Pod", "runs")
        time.sleep(0.02)


def end_keeper(one: EmbeddedCluster) -> None:
    pid = locks.holder(keeper_lock(str(one.root)))
    assert pid is not None
    for process in [*processes.children(pid), pid]:
        os.kill(process, signal.SIGKILL)


def test_the_harder_it_fails_the_more_rarely_it_is_started(one: EmbeddedCluster) -> None:
    repair = pods_is_a_file(one.root)
    one.apply(pod("waits", "true"))
    begin = time.monotonic()
    while fails(one) < 6:  # however often somebody asks
        assert time.monotonic() < begin + DEADLINE_SECONDS
        with suppress(Unavailable):
            one.list("Pod")
    assert time.monotonic() - begin > 3.0, "0.1 + 0.2 + 0.4 + 0.8 + 1.6 s"
    repair()
    healed(one, "waits")


def test_on_a_full_disk_none_is_started_and_it_is_called_so(
    one: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_descriptor: int, _offset: int, _size: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    root = str(one.root)
    monkeypatch.setattr(os, "posix_fallocate", refuse)
    for _ in range(2):
        with pytest.raises(Unavailable, match="disk full: free some space"):
            start_keeper(root)
    assert not os.path.exists(start_mark(root)), "whoever makes room waits for nothing"
    assert not os.path.exists(busy_mark(root))
    monkeypatch.undo()
    one.apply(pod("runs", "true"))
    healed(one, "runs")


def test_a_zygote_goes_on_trying_where_nobody_asks(one: EmbeddedCluster) -> None:
    one.apply(pod("runs", "sleep", "1000"))
    phase(one, "runs", "Running")
    before = locks.holder(keeper_lock(str(one.root)))
    assert before is not None
    (one.root / "pods").rename(one.root / "moved")
    (one.root / "pods").touch()
    os.kill(before, signal.SIGKILL)
    deadline = time.monotonic() + DEADLINE_SECONDS
    while fails(one) < 4:  # the kill and three starts
        assert time.monotonic() < deadline
        time.sleep(0.01)
    (one.root / "pods").unlink()
    (one.root / "moved").rename(one.root / "pods")
    while locks.holder(keeper_lock(str(one.root))) is None or fails(one):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_zygote_that_ends_at_once_again_and_again_is_a_failure_too(one: EmbeddedCluster) -> None:
    one.apply(pod("runs", "sleep", "1000"))
    phase(one, "runs", "Running")
    deadline, said = time.monotonic() + DEADLINE_SECONDS, ""
    while "zygote ended" not in said:
        assert time.monotonic() < deadline, fails(one)
        keeper = locks.holder(keeper_lock(str(one.root)))
        for zygote in [] if keeper is None else processes.children(keeper):
            with suppress(ProcessLookupError):
                os.kill(zygote, signal.SIGKILL)
        try:
            one.list("Pod")
        except Unavailable as error:
            said = str(error)
        time.sleep(0.01)
    one_more = pod("later", "true")
    state = ""
    while state != "Succeeded":
        assert time.monotonic() < deadline, state
        with suppress(Unavailable):
            one.apply(one_more)
            state = ended(one, "later")["status"]["phase"]
        time.sleep(0.02)
    assert one.pod_processes("runs"), "training is left alone"


PROGRAM = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from profiles.errors import Unavailable
from tasks.embedded.api import EmbeddedCluster
from tasks.embedded.spec import ImageSpec, Spec

here, root = Path(sys.argv[1]), Path(sys.argv[2])
one = EmbeddedCluster(root, Spec("test", images=(ImageSpec("*", host_path=True),), keeper_linger_seconds=0.2))
keeper, away = here / "tasks/embedded/control/keeper.py", here / "away.py"
keeper.rename(away)
container = {"name": "main", "image": "any", "command": ["true"]}
spec = {"restartPolicy": "Never", "containers": [container]}
one.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec})
deadline = time.monotonic() + 60.0
while time.monotonic() < deadline:
    try:
        if one.get("Pod", "p")["status"]["phase"] == "Succeeded":
            print("succeeded")
            break
    except Unavailable as error:
        if away.exists():
            print(error)
            away.rename(keeper)
    time.sleep(0.02)
one.stop()
"""


def test_a_keeper_whose_program_cannot_be_read(tmp_path: Path) -> None:
    """On a copy of the program, from which a part is taken away while the cluster is in use."""
    copied = tmp_path / "copy"
    for folder in ("tasks/embedded", "profiles"):
        shutil.copytree(ROOT / folder, copied / folder, ignore=shutil.ignore_patterns("__pycache__"))
    (copied / "tasks" / "__init__.py").touch()
    argv = [sys.executable, "-B", "-c", PROGRAM, str(copied), str(tmp_path / "cluster")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120.0, check=True, cwd=tmp_path)
    first, second = done.stdout.splitlines()
    assert "exit 1 (ModuleNotFoundError: No module named 'tasks.embedded.control.keeper')" in first
    assert str(tmp_path / "cluster" / "keeper.log") in first
    assert second == "succeeded"


# The rules, without processes.


def test_waits_double_up_to_their_limit_and_kills_count_for_little() -> None:
    waits = [FailureLog(["exit 1"] * count, "", 100.0).wait_seconds(100.0) for count in range(1, 13)]
    assert waits[:5] == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6])
    assert waits[-1] == LONGEST_WAIT_SECONDS
    assert FailureLog(["exit 1"] * 3, "", 100.0).wait_seconds(100.3) == pytest.approx(0.1)
    assert FailureLog(["exit 1"] * 30, "", 100.0).wait_seconds(50.0) == 0.0, "the clock was set back"
    killed = ["exit 137"] * (KILLS_A_FAILURE - 1)
    assert FailureLog(killed, "", 100.0).wait_seconds(100.0) == 0.0
    assert not FailureLog(killed, "", 100.0).hopeless
    assert FailureLog(["exit 137"] * KILLS_A_FAILURE * FEW, "", 100.0).hopeless
    assert FailureLog(["exit 1"] * FEW, "", 100.0).hopeless
    assert not FailureLog(["exit 1"] * (FEW - 1), "", 100.0).hopeless


def test_the_same_cause_is_told_in_the_same_words(tmp_path: Path) -> None:
    root = str(tmp_path)
    said: set[str] = set()
    for _ in range(5):
        with open(failures_path(root), "a") as file:
            file.write("2026-01-01T00:00:00Z exit 1\n  \n  Traceback:\n  ValueError: no\n\n")
        try:
            demand_keeper(root)
        except Unavailable as error:
            said.add(str(error))
    assert said == {
        f"the embedded cluster stands still: its keeper ends at every start, exit 1 (ValueError: no); "
        f"see {root}/keeper.log"
    }


def test_what_is_still_being_written_does_not_count(tmp_path: Path) -> None:
    root = str(tmp_path)
    whole = "2026-01-01T00:00:00Z exit 1\n  first\n\n2026-01-01T00:00:01Z exit 2\n  second\n\n"
    seen: list[tuple[list[str], str]] = []
    for size in range(len(whole) + 1):
        Path(failures_path(root)).write_text(whole[:size])
        found = read_failures(root)
        if found is not None and (found.ends, found.last_line) not in seen:
            seen.append((found.ends, found.last_line))
    assert seen == [(["exit 1"], "first"), (["exit 1", "exit 2"], "second")]


def test_failures_that_are_long_past_are_forgotten(tmp_path: Path) -> None:
    root = str(tmp_path)
    assert read_failures(root) is None
    for _ in range(FEW):
        write_failure(root, "exit 1")
    found = read_failures(root)
    assert found is not None
    assert found.hopeless
    long_ago = time.time() - MEMORY_SECONDS - 1.0
    os.utime(failures_path(root), (long_ago, long_ago))
    assert read_failures(root) is None
    demand_keeper(root)
    note_start(root)
    assert not os.path.exists(failures_path(root))


def test_a_start_counts_as_the_moment_to_wait_from(tmp_path: Path) -> None:
    root = str(tmp_path)
    write_failure(root, "exit 1")
    a_while_ago = time.time() - 10.0
    os.utime(failures_path(root), (a_while_ago, a_while_ago))
    found = read_failures(root)
    assert found is not None
    assert found.wait_seconds(time.time()) == 0.0
    note_start(root)
    found = read_failures(root)
    assert found is not None
    assert found.at > a_while_ago + 5.0


@dataclass
class Ready:
    """A descriptor that a sleeper wakes from at once."""

    reader: int
    writer: int

    @property
    def answers(self) -> int:
        return self.reader


@dataclass
class Lives:
    """No process to watch; an answer of the zygote says that it is gone, which ends the keeper."""

    descriptors: tuple[int, ...] = ()

    def answers(self) -> bool:
        return False


@dataclass
class Rounds:
    """A reconciler whose first round is disturbed: somebody asks while it has taken up all changes already."""

    root: Path
    silent: int
    looks: list[int] = field(default_factory=list[int])
    number: int = 0
    lives: Lives = field(default_factory=Lives)

    @property
    def cache(self) -> Rounds:
        return self

    @property
    def reader(self) -> Rounds:
        return self

    @property
    def notifier(self) -> int:
        """Nothing is heard of the wish: its event was read with the others of this round."""
        return self.silent

    def look_again(self) -> None:
        self.looks.append(self.number)

    def run(self) -> None:
        self.number += 1
        if self.number == 1:
            Path(look_mark(str(self.root))).touch()

    def pending(self) -> bool:
        return True

    def wake_at(self) -> float | None:
        return None


@pytest.fixture
def ready() -> Iterator[Ready]:
    reader, writer = os.pipe()
    os.write(writer, b"x")
    yield Ready(reader, writer)
    os.close(reader)
    os.close(writer)


@pytest.fixture
def silent() -> Iterator[int]:
    reader, writer = os.pipe()
    yield reader
    os.close(reader)
    os.close(writer)


def test_a_wish_of_a_busy_moment_is_not_slept_over(tmp_path: Path, ready: Ready, silent: int) -> None:
    (tmp_path / "changes").mkdir()
    rounds = Rounds(tmp_path, silent)
    before = signal.getsignal(signal.SIGTERM)
    try:
        Keeper(str(tmp_path), cast(Any, ready), cast(Any, rounds), 60.0).run(-1)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert rounds.looks == [1]
    assert rounds.number == 2
