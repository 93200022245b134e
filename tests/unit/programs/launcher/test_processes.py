"""Launchers and a coordinator as real processes on loopback: good ends, deaths, signals, what is left behind.

What a launcher waits for when its ranks have ended.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from flows.decisions.diagnosis.witnesses import EXITS
from tests.support.cases.rows import rows
from tests.support.harness.launcher_harness import GangOnLoopback, alive, terminate, until
from workflows.programs.launcher.loop import ExitWaits, exit_waits
from workflows.programs.launcher.termination import EXIT_ENDED_EARLY, EXIT_LAUNCHER_ERROR
from workflows.programs.runtime.processes import descendants, start_code
from workflows.wire import PhaseSeen, RankEnd, StepSeen


def test_a_gang_meets_trains_and_ends_well(gang: GangOnLoopback) -> None:
    coordinator = gang.coordinate(pods=2, processes=2)
    show = "import os, json; print('ENV', json.dumps(dict(os.environ)))\n"
    gang.trainer.write_text(show + gang.trainer.read_text())
    pods = [gang.launch(index, "--steps=10", pods=2, processes=2) for index in (0, 1)]
    assert [pod.end() for pod in pods] == [0, 0]
    seen = [line.partition("ENV ")[2] for pod in pods for line in pod.lines if "]: ENV {" in line]
    environments = sorted((json.loads(text) for text in seen), key=lambda one: int(one["RANK"]))
    assert [one["RANK"] for one in environments] == ["0", "1", "2", "3"]
    assert [one["LOCAL_RANK"] for one in environments] == ["0", "1", "0", "1"]
    assert {one["MASTER_ADDR"] for one in environments} == {f"{gang.net}.10"}
    assert len({one["MASTER_PORT"] for one in environments}) == 1
    assert not any("PRIMUS_TOKEN" in one for one in environments)
    assert gang.steps() == list(range(1, 11))
    assert gang.message(0).reason == "completed"
    assert [end.exit_code for end in gang.termination(1).ranks] == [0, 0]
    status = gang.ask("/status")
    assert (status["step"], status["first_step"]["step"], len(status["ended"])) == (10, 1, 4)
    assert [row[0] for row in gang.ask("/v1/steps?since=0")["steps"]] == list(range(1, 11))
    assert all(member["state"] == "ended" for member in status["members"])
    log = (gang.folder_of(0) / "rank-0.log").read_text()
    assert "Z step 10/10 | loss" in log
    terminate(coordinator)
    assert coordinator.end() == 0


def test_progress_is_said_in_the_launchers_own_output(gang: GangOnLoopback) -> None:
    pod = gang.alone("--steps=60", STEPS="60")
    assert pod.end() == 0
    reports = pod.reports()
    assert [r.phase for r in reports if isinstance(r, PhaseSeen)] == ["init", "step"]
    assert [r.step for r in reports if isinstance(r, StepSeen)][:20] == list(range(1, 21))
    assert [(r.rank, r.exit_code, r.last_step) for r in reports if isinstance(r, RankEnd)] == [(0, 0, 60)]
    assert gang.steps() == list(range(1, 61))


UNEVEN = """
import os, time
rank, mine = os.environ["RANK"], dict(pair.split(":") for pair in os.environ["STEPS"].split(","))
for step in range(1, int(mine[rank]) + 1):
    while step > 3 and not os.path.exists(os.environ["GO"]):
        time.sleep(0.005)
    print(f"step {step}/10 | loss {9 - step / 10:.4f} | tokens/s 5 | step time 0.0100 s", flush=True)
"""
"""Every rank prints its own steps, as many as STEPS has for it; from the fourth on when the file GO is there."""


@pytest.mark.parametrize("early", [0, 1, 2])
def test_ranks_whose_data_end_first_leave_the_others_training(gang: GangOnLoopback, early: int) -> None:
    gang.coordinate(pods=3)
    gang.trainer.write_text(UNEVEN)
    go, steps = gang.folder / "go", ",".join(f"{rank}:{3 if rank == early else 10}" for rank in range(3))
    pods = [gang.launch(index, "--steps=10", pods=3, STEPS=steps, GO=str(go)) for index in range(3)]
    assert pods[early].end() == 0
    assert gang.message(early).reason == "completed"
    go.touch()
    assert [pod.end() for pod in pods] == [0, 0, 0]
    assert gang.ask("/status")["step"] == 10
    rows = [row[0] for row in gang.ask("/v1/steps?since=0")["steps"]]
    assert (rows[-7:], set(rows[:-7])) == ([4, 5, 6, 7, 8, 9, 10], {1, 2, 3})


def test_the_lowest_rank_of_a_pod_may_end_first(gang: GangOnLoopback) -> None:
    gang.coordinate(processes=2)
    gang.trainer.write_text(UNEVEN)
    pod = gang.launch(0, "--steps=10", processes=2, STEPS="0:3,1:10", GO=str(gang.folder / "go"))
    pod.says("rank 0 exited with 0 after step 3")
    (gang.folder / "go").touch()
    assert (pod.end(), gang.message().reason, gang.message().last_step) == (0, "completed", 10)
    # Where rank 1 is first to say something its steps count until rank 0 speaks: the first three may be told twice.
    assert sorted(set(gang.steps())) == list(range(1, 11))
    assert gang.steps()[-7:] == list(range(4, 11))


@pytest.mark.parametrize(("steps", "cause"), [("0:3,1:2", "ended-early"), ("0:0,1:0", "no-steps")])
def test_a_gang_of_which_all_ends_early_has_failed_and_its_last_pod_says_why(
    gang: GangOnLoopback, steps: str, cause: str
) -> None:
    gang.coordinate(pods=2)
    gang.trainer.write_text(UNEVEN)
    pods = [gang.launch(index, "--steps=10", pods=2, STEPS=steps, GO="") for index in (0, 1)]
    codes = [pod.end() for pod in pods]
    assert set(codes) <= {0, EXIT_ENDED_EARLY}
    assert EXIT_ENDED_EARLY in codes
    causes = {gang.message(index).cause for index, code in enumerate(codes) if code}
    assert causes == {cause}


def test_a_killed_rank_ends_the_gang_and_is_the_only_one_to_blame(gang: GangOnLoopback) -> None:
    gang.coordinate(pods=2, processes=2)
    pods = [gang.launch(index, pods=2, processes=2, HOLD="3") for index in (0, 1)]
    pods[0].says("step 3/")
    ranks = gang.ranks()
    os.kill(ranks[3], signal.SIGKILL)
    assert [pod.end() for pod in pods] == [143, 137]
    culprit, victim = gang.message(1), gang.message(0)
    assert (culprit.reason, culprit.first_failing_rank) == ("rank-failed", 3)
    assert {end.rank: (end.signal, end.requested) for end in culprit.ranks} == {2: (9, True), 3: (9, False)}
    assert (victim.reason, victim.first_failing_rank) == ("told-to-stop", None)
    assert all(end.requested for end in victim.ranks)
    assert "rank 3 of pod-1 ended with signal 9" in victim.detail
    assert not any(alive(pid) for pid in ranks.values())
    assert {end["rank"]: end["requested"] for end in gang.ask("/status")["ended"]}[3] is False


def test_an_exception_leaves_its_last_lines_and_a_fingerprint(gang: GangOnLoopback) -> None:
    gang.trainer.write_text("print('on the way')\nraise KeyError('batch 17')\n")
    assert gang.alone(command=[sys.executable, "-S", str(gang.trainer)]).end() == 1
    (end,) = gang.termination().ranks
    assert end.exit_code == 1
    assert end.last_lines[0] == "on the way"
    assert end.last_lines[-1] == "KeyError: 'batch 17'"
    assert end.fingerprint == "KeyError@train.py:<module>: 'batch #'"


def test_sigterm_lets_the_whole_gang_save(gang: GangOnLoopback) -> None:
    gang.coordinate(pods=2)
    pods = [gang.launch(index, pods=2, HOLD="3", SAVES=code) for index, code in ((0, "0"), (1, "143"))]
    pods[0].says("step 3/")
    ranks = gang.ranks()
    pods[1].says("rank 1 of 2")
    terminate(pods[1])
    assert [pod.end() for pod in pods] == [0, 143]
    assert [gang.message(index).reason for index in (0, 1)] == ["told-to-stop", "signalled"]
    assert "saved after step 3" in pods[0].text
    assert not any(alive(pid) for pid in ranks.values())


def test_a_trainer_that_dies_of_sigterm_at_once_still_ends_the_gang(gang: GangOnLoopback) -> None:
    gang.coordinate(pods=2)
    pods = [gang.launch(index, pods=2, HOLD="3") for index in (0, 1)]
    pods[0].says("step 3/")
    gang.ranks()
    terminate(pods[1])
    assert [pod.end() for pod in pods] == [143, 143]
    assert [gang.message(index).reason for index in (0, 1)] == ["told-to-stop", "signalled"]
    assert [(end.signal, end.requested) for end in gang.message(1).ranks] == [(15, True)]


@pytest.mark.parametrize("again", [False, True])
def test_a_trainer_that_ignores_sigterm_is_killed(gang: GangOnLoopback, again: bool) -> None:
    pod = gang.alone("--save-grace-seconds=60" if again else "--save-grace-seconds=0.2", HOLD="1", IGNORES="")
    pod.says("step 1/")
    terminate(pod)
    if again:
        pod.says("saving: SIGTERM reached the launcher")
        terminate(pod)
    assert pod.end() == 143
    record = gang.termination()
    assert record.reason == "signalled"
    assert [(end.signal, end.requested) for end in record.ranks] == [(9, True)]


def test_a_shell_around_the_trainer_does_not_keep_it_from_saving(gang: GangOnLoopback) -> None:
    script = f"{sys.executable} -S {gang.trainer}; echo the shell saw $?; exit 7"
    pod = gang.alone(command=["sh", "-c", script], HOLD="2", SAVES="5")
    pod.says("step 2/")
    terminate(pod)
    assert pod.end() == 143
    assert "saved after step 2" in pod.text
    assert "the shell saw 5" in pod.text


def test_a_stop_through_the_coordinator_lets_ranks_save(gang: GangOnLoopback) -> None:
    gang.coordinate()
    pod = gang.launch(HOLD="2", SAVES="0")
    pod.says("step 2/")
    assert gang.tell("/v1/stop", {"why": "a person asked"}) == 200
    assert pod.end() == 0
    assert (gang.message().reason, gang.message().detail) == ("told-to-stop", "a person asked")


def test_sigterm_before_the_gang_is_complete_ends_the_launcher(gang: GangOnLoopback) -> None:
    gang.coordinate(pods=2)
    pod = gang.launch(0, pods=2)
    until(lambda: gang.ask("/status")["members"], "the launcher has joined")
    terminate(pod)
    assert pod.end() == 143
    assert (gang.message().reason, gang.message().ranks) == ("signalled", [])


@rows("programs/launcher/processes")
def test_exit_0_before_the_planned_last_step_is_no_success(
    gang: GangOnLoopback, environment: dict[str, str], code: int, detail: str
) -> None:
    pod = gang.alone("--steps=10", **environment)  # pyright: ignore[reportArgumentType] - variables are in capitals
    assert pod.end() == code
    assert gang.message().reason == ("rank-failed" if code else "completed")
    assert gang.message().detail == detail


def test_pods_that_see_no_steps_believe_those_that_do(gang: GangOnLoopback) -> None:
    gang.coordinate(pods=2)
    gang.trainer.write_text(gang.trainer.read_text().replace("if rank == 0", "if rank == world - 1"))
    pods = [gang.launch(index, "--steps=10", pods=2) for index in (0, 1)]
    assert [pod.end() for pod in pods] == [0, 0]
    assert gang.ask("/status")["step"] == 10


DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open(os.environ["PIDFILE"], "w").write(str(os.getpid()))
        while True:
            time.sleep(60)
    os._exit(0)
while not os.path.exists(os.environ["PIDFILE"]) or not open(os.environ["PIDFILE"]).read():
    time.sleep(0.001)
sys.exit(int(os.environ["CODE"]))
"""


@pytest.mark.parametrize("code", ["0", "3"])
def test_what_forks_itself_away_does_not_survive_its_pod(gang: GangOnLoopback, code: str) -> None:
    gang.trainer.write_text(DAEMON)
    pidfile = gang.folder / "pid"
    assert gang.alone(PIDFILE=str(pidfile), CODE=code).end() == int(code)
    assert not alive(int(pidfile.read_text()))


def test_ranks_die_with_their_launcher(gang: GangOnLoopback) -> None:
    gang.coordinate(processes=2)
    pod = gang.launch(processes=2, HOLD="1")
    ranks = gang.ranks()
    pod.process.kill()
    assert pod.end() == -9
    until(lambda: not any(alive(pid) for pid in ranks.values()), "the ranks' end")


ESCAPES = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        with open(os.environ["PIDFILE"] + ".new", "w") as file:
            file.write(str(os.getpid()))
        os.rename(os.environ["PIDFILE"] + ".new", os.environ["PIDFILE"])
        time.sleep(600)
    os._exit(0)
os.wait()
time.sleep(600)
"""
"""A grandchild in a session of its own, whose parent is gone."""


def test_of_a_killed_launcher_only_what_forked_itself_away_twice_stays(gang: GangOnLoopback) -> None:
    gang.trainer.write_text(ESCAPES)
    pidfile = gang.folder / "pid"
    gang.coordinate()
    pod = gang.launch(PIDFILE=str(pidfile))
    (rank,) = gang.ranks().values()
    until(pidfile.exists, "the grandchild")
    escaped = int(pidfile.read_text())
    try:
        pod.process.kill()
        until(lambda: not alive(rank), "the rank's end")
        assert alive(escaped), "nobody is left who knows of it: the pod's own processes end with its namespace"
    finally:
        os.kill(escaped, signal.SIGKILL)
    assert pod.end() == -9


def namespaces_here() -> bool:
    """Whether this user may make a namespace of processes, as every container has one."""
    try:
        words = ["unshare", "--pid", "--fork", "--mount-proc", "true"]
        return subprocess.run(words, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


@pytest.mark.skipif(not namespaces_here(), reason="no right to make a namespace")
def test_in_a_namespace_of_its_own_nothing_survives_a_killed_launcher(gang: GangOnLoopback) -> None:
    wrapper = gang.folder / "python"
    wrapper.write_text(f'#!/bin/sh\nexec unshare --pid --fork --mount-proc -- {sys.executable} "$@"\n')
    wrapper.chmod(0o755)
    gang.trainer.write_text(ESCAPES)
    pidfile = gang.folder / "pid"
    gang.coordinate()
    gang.python = str(wrapper)
    pod = gang.launch(PIDFILE=str(pidfile))
    until(pidfile.exists, "the grandchild, by its number inside")
    (launcher,) = below(pod.process.pid)
    family = until(lambda: len(all_below := descendants(launcher)) >= 2 and all_below, "rank and grandchild")
    os.kill(launcher, signal.SIGKILL)
    pod.end()
    until(lambda: not any(map(alive, family)), "the end of all")


def below(pid: int) -> list[int]:
    """Children of a process."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_flood_binary_and_endless_lines_cost_little_memory(gang: GangOnLoopback) -> None:
    gang.trainer.write_text(
        "import os\n"
        "os.write(1, os.urandom(1_000_000))\n"
        "for _ in range(10): os.write(2, b'y' * 1_000_000)\n"
        "for n in range(150): os.write(1, (b'noise' * 20 + b'\\n') * 500)\n"
        "print('step 1/1 | loss 1.0 | tokens/s 5 | step time 0.01 s')\n"
        "open(os.environ['MEMORY'], 'w').write(open(f'/proc/{os.getppid()}/status').read())\n"
    )
    memory = gang.folder / "memory"
    pod = gang.alone("--steps=1", "--log-limit-bytes=1000000", MEMORY=str(memory))
    assert pod.end() == 0
    peak = next(int(line.split()[1]) for line in memory.read_text().splitlines() if line.startswith("VmHWM"))
    assert peak < 80_000
    sizes = [path.stat().st_size for path in gang.folder_of(0).glob("rank-0.log*")]
    assert len(sizes) == 3
    assert all(size <= 1_000_000 for size in sizes)
    assert "lines are not shown here, they are in rank-0.log" in pod.text


def test_a_program_that_holds_its_lines_back_speaks_on_a_pseudo_terminal(gang: GangOnLoopback) -> None:
    gang.trainer.write_text("import sys, time\nprint('terminal', sys.stdout.isatty())\ntime.sleep(60)\n")
    # -E makes the interpreter deaf to PYTHONUNBUFFERED, so it buffers blocks as a C++ program does.
    pod = gang.alone("--pseudo-terminal=true", command=[sys.executable, "-E", "-S", str(gang.trainer)])
    pod.says("terminal True")
    terminate(pod)
    assert pod.end() == 143


def test_a_python_program_needs_no_variable_of_its_own_to_be_heard(gang: GangOnLoopback) -> None:
    assert "PYTHONUNBUFFERED" not in gang.environment
    pod = gang.alone(HOLD="1")
    assert "tokens/s 5" in pod.says("step 1/10")
    terminate(pod)
    pod.end()


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOENT, 127),
        (errno.EACCES, 126),
        (errno.ENOEXEC, 126),
        (errno.ENOTDIR, 126),
        (errno.EAGAIN, 71),
        (errno.ENOMEM, 71),
        (errno.EMFILE, 71),
        (errno.ESTALE, 71),
        (errno.EIO, 71),
        (errno.ETXTBSY, 71),
    ],
)
def test_what_the_system_refuses_for_now_is_no_wrong_command(number: int, code: int) -> None:
    assert start_code(OSError(number, os.strerror(number))) == code
    assert (code in EXITS) == (code > 100), "the others end a run at once"


@pytest.mark.parametrize(("program", "code"), [("no-such-program", 127), ("/etc/passwd", 126)])
def test_a_program_that_cannot_be_started_is_named(gang: GangOnLoopback, program: str, code: int) -> None:
    assert gang.alone(command=[program]).end() == code
    (end,) = gang.termination().ranks
    assert end.exit_code == code
    assert end.last_lines[0].startswith(f"{program}: ")


def test_a_script_without_its_interpreter_is_named(gang: GangOnLoopback) -> None:
    script = gang.folder / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    assert gang.alone(command=[str(script)]).end() == 127
    assert "cannot be started: No such file" in gang.termination().ranks[0].last_lines[0]


def test_ranks_start_in_their_working_directory_which_is_made(gang: GangOnLoopback) -> None:
    folder = gang.folder / "made" / "here"
    (gang.folder / "tool").write_text("#!/bin/sh\npwd > where\n")
    (gang.folder / "tool").chmod(0o755)
    path = f"{gang.folder}:{os.environ['PATH']}"
    assert gang.alone(f"--working-directory={folder}", command=["tool"], PATH=path).end() == 0
    assert (folder / "where").read_text().strip() == str(folder)


def test_ranks_whose_working_directory_cannot_be_made_end_their_launcher(gang: GangOnLoopback) -> None:
    (gang.folder / "file").touch()
    assert gang.alone(f"--working-directory={gang.folder / 'file' / 'x'}").end() == EXIT_LAUNCHER_ERROR
    record = gang.termination()
    assert (record.reason, record.cause, record.ranks) == ("launcher-error", "folder", [])
    assert "cannot be made: Not a directory" in record.detail


def test_wrong_flags_are_told_where_everybody_looks(gang: GangOnLoopback) -> None:
    assert gang.alone("--framework=regex", "--pattern=(").end() == 2
    assert (gang.message().reason, gang.message().cause) == ("launcher-error", "arguments")
    assert "progress.pattern: not a regular expression" in gang.message().detail


def test_a_gang_without_a_coordinator_says_what_is_missing(gang: GangOnLoopback) -> None:
    assert gang.launch(pods=2, PRIMUS_COORDINATOR_URL="").end() == EXIT_LAUNCHER_ERROR
    assert gang.message().detail.startswith("PRIMUS_COORDINATOR_URL: must be set")


@rows("programs/launcher/processes")
def test_a_pod_stays_only_where_there_may_be_a_save(reason: str, saved: bool, expected: ExitWaits) -> None:
    assert exit_waits(reason, saved) == expected
