"""Warm starts beside plain ones: the same command twice, and everything that a program can see must be the same."""

from __future__ import annotations

import ctypes
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tasks.programs_archive import programs_archive
from tests.support.harness.launcher_harness import alive, until
from tests.support.harness.old_pythons import old_python
from tests.support.harness.warm_harness import Ended, Yard, end_of, kill, python
from workflows.programs.prefork import parent, process_image, protocol
from workflows.programs.prefork.parent import ForkUnavailableError
from workflows.programs.runtime import processes
from workflows.programs.stacks.python_start import stack_signal

SHOW = """
import ctypes, json, os, resource, signal, sys
def kind(fd):
    try:
        return os.readlink("/proc/self/fd/" + fd).split(":")[0]
    except OSError:
        return "the listing's own"
def lines(path, *names):
    return [line.split() for line in open(path) if line.startswith(names)]
died_with = ctypes.c_int()
ctypes.CDLL(None).prctl(2, ctypes.byref(died_with), 0, 0, 0)
mask = os.umask(0)
shown = {
    "argv": sys.argv, "orig_argv": getattr(sys, "orig_argv", 0), "path": sys.path, "flags": list(sys.flags),
    "main": {k: str(v) for k, v in globals().items() if k.startswith("__")},
    "is_main": __name__ == "__main__" and vars(sys.modules["__main__"]) is globals(),
    "executable": sys.executable, "cwd": os.getcwd(), "environment": dict(os.environ),
    "told": [open("/proc/self/" + one).read() for one in ("cmdline", "environ", "comm")],
    "c_environment": [bool(ctypes.CDLL(None).getenv(name)) for name in (b"RANK", b"HOME", b"OLD")],
    "open": {fd: kind(fd) for fd in sorted(os.listdir("/proc/self/fd"))},
    "signals": lines("/proc/self/status", "Sig", "Shd", "Threads", "NoNewPrivs"),
    "limits": [resource.getrlimit(n) for n in range(16)], "umask": mask, "nice": os.getpriority(0, 0),
    "oom": open("/proc/self/oom_score_adj").read(), "filter": open("/proc/self/coredump_filter").read(),
    "group": os.getpgrp() == os.getpid(), "session": os.getsid(0) == os.getpid(), "parent": os.getppid(),
    "died_with": died_with.value, "ours": sorted(name for name in sys.modules if name.startswith("workflows")),
    "streams": [(s.name, s.mode, s.encoding, s.errors, s.line_buffering, s.write_through, s.isatty(), s.newlines,
                 type(s.buffer).__name__) for s in (sys.stdout, sys.stderr)],
    "stdin": os.readlink("/proc/self/fd/0"),
}
print(json.dumps(shown))
"""


def shown(ended: Ended) -> dict[str, Any]:
    """What the program saw; addresses in memory differ between any two processes."""
    assert ended.status == "exit code 0", ended
    found: dict[str, Any] = json.loads(re.sub(r"0x[0-9a-f]+", "0x", ended.out))
    found["signals"] = [row for row in found["signals"] if row[0] not in ("SigQ:",)]
    return found


def without_stack_signal(seen: dict[str, Any]) -> dict[str, Any]:
    """Without what a fork has more than a plain start: it answers a signal with its stacks, in a file in memory."""
    mask = 1 << (stack_signal.SIGNAL - 1)
    (caught,) = (int(row[1], 16) for row in seen["signals"] if row[0] == "SigCgt:")
    assert caught & mask
    kinds = list(seen["open"].values())
    kinds.remove("/memfd")
    signals = [["SigCgt:", f"{caught & ~mask:016x}"] if row[0] == "SigCgt:" else row for row in seen["signals"]]
    return {**seen, "signals": signals, "open": dict(zip(seen["open"], kinds, strict=False))}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path.resolve() / "work"
    (place / "sub" / "pack").mkdir(parents=True)
    (place / "show.py").write_text(SHOW)
    (place / "sub" / "__main__.py").write_text(SHOW)
    (place / "sub" / "pack" / "__init__.py").write_text("")
    (place / "sub" / "pack" / "__main__.py").write_text(SHOW)
    (place / "link.py").symlink_to("sub/__main__.py")
    with zipfile.ZipFile(place / "show.pyz", "w") as archive:
        archive.writestr("__main__.py", SHOW)
    return place


FORMS = ["show.py", "./show.py", "sub/../show.py", "link.py", "sub", "show.pyz", "-m show"]
FORMS += ["-m sub.pack", "-OO -s -Wignore show.py", "-I show.py", "-E -S show.py"]


@pytest.mark.story
@pytest.mark.parametrize("form", FORMS)
def test_a_warm_start_is_as_a_plain_one(folder: Path, form: str) -> None:
    with Yard(folder, python(*form.split()), ["json"]) as yard:
        plain, warm_one = yard.both(3, "--steps=5", "é", WORLD_SIZE="4", PRIMUS_RESUME_FROM="/c/step 20")
    seen = without_stack_signal(shown(warm_one))
    assert seen == shown(plain)
    assert seen["environment"]["RANK"] == "3"
    assert (seen["ours"], seen["parent"], seen["died_with"]) == ([], os.getpid(), int(signal.SIGKILL))


@pytest.mark.story
@pytest.mark.parametrize("environment", [{"PYTHONUNBUFFERED": "1"}, {"PYTHONUNBUFFERED": ""}])
def test_a_pseudo_terminal_is_one(folder: Path, environment: Mapping[str, str]) -> None:
    with Yard(folder, python("show.py"), environment=environment, terminal=True) as yard:
        plain, warm_one = yard.both()
    seen = without_stack_signal(shown(warm_one))
    assert seen == shown(plain)
    assert seen["session"] is True
    assert seen["streams"][0][6] is True


@pytest.mark.story
@pytest.mark.parametrize("version", ["3.9", "3.10", "3.12", "3.13"])
def test_every_python_that_launchers_serve_can_be_parked(folder: Path, version: str) -> None:
    interpreter = old_python(version)
    if interpreter is None:
        pytest.skip(f"no Python {version} on this machine")
    with Yard(folder, (str(interpreter), "show.py"), ["json"]) as yard:
        plain, warm_one = yard.both(1)
    assert without_stack_signal(shown(warm_one)) == shown(plain)


ENDS = {
    "an exception": "def f():\n    raise KeyError('x')\ntry:\n    f()\n"
    "except KeyError as e:\n    raise OSError(5, 'y') from e\n",
    "a syntax error": "def f(:\n    pass\n",
    "a code": "import sys\nsys.exit(3)\n",
    "a text": "import sys\nprint('out')\nsys.exit('why')\n",
    "at once": "import os\nos._exit(7)\n",
    "an interrupt": "import atexit\natexit.register(print, 'last')\nraise KeyboardInterrupt\n",
    "a signal": "import os\nos.kill(os.getpid(), 15)\nimport time\ntime.sleep(60)\n",
    "an abort": "import os\nos.abort()\n",
    "its own hook": "import sys\nsys.excepthook = lambda *a: print('hook', a[0], a[2].tb_lineno)\n1 / 0\n",
    "a hook that exits": "import sys\nsys.excepthook = lambda *a: sys.exit(9)\n1 / 0\n",
    "a thread's work": "import threading, time\nt = threading.Thread(target=lambda: (time.sleep(.1), print('late')))\n"
    "t.start()\nraise ValueError\n",
    "last words": "import atexit, sys\natexit.register(print, 'atexit')\nsys.stdout.write('no newline')\n",
    "recursion": "def f():\n    f()\ntry:\n    f()\nexcept RecursionError as e:\n    print(e)\n",
}


@pytest.mark.story
def test_programs_end_as_they_would_alone(tmp_path: Path) -> None:
    script = tmp_path / "end.py"
    script.write_text("")
    with Yard(tmp_path, python("end.py"), environment={"PYTHONUNBUFFERED": ""}) as yard:
        for name, text in ENDS.items():
            script.write_text(text)
            plain, warm_one = yard.both()
            assert warm_one == plain, name


WORKS = """
import multiprocessing, os, subprocess, sys, threading
from concurrent.futures import ProcessPoolExecutor
def square(number):
    return number * number
def main():
    print(subprocess.run([sys.executable, "-c", "import os; print(os.environ['RANK'])"], capture_output=True).stdout)
    seen = []
    threads = [threading.Thread(target=seen.append, args=(n,)) for n in range(4)]
    [one.start() for one in threads]
    [one.join() for one in threads]
    print(sorted(seen), threading.current_thread() is threading.main_thread(), threading.active_count())
    for method in ("spawn", "fork", "forkserver"):
        context = multiprocessing.get_context(method)
        with ProcessPoolExecutor(2, mp_context=context) as pool:
            print(method, list(pool.map(square, range(5))))
        queue = context.Queue()
        child = context.Process(target=queue.put, args=("from the child",))
        child.start()
        print(queue.get(), child.join(), child.exitcode)
if __name__ == "__main__":
    main()
"""


@pytest.mark.story
@pytest.mark.parametrize("form", ["works.py", "-m works"])
def test_threads_and_processes_of_a_fork_work(tmp_path: Path, form: str) -> None:
    (tmp_path / "works.py").write_text(WORKS)
    with Yard(tmp_path, python(*form.split()), ["multiprocessing.process", "concurrent.futures"]) as yard:
        plain, warm_one = yard.both(2)
    assert warm_one == plain
    assert warm_one.out.startswith("b'2\\n'\n[0, 1, 2, 3] True 1\nspawn [0, 1, 4, 9, 16]\n")


DRAWS = """
import json, multiprocessing.process, random, secrets, tempfile, uuid
import numpy
drawn = [random.random(), random.SystemRandom().random(), secrets.token_hex(), str(uuid.uuid1()), str(uuid.uuid4())]
drawn += [next(tempfile._get_candidate_names()), float(numpy.random.rand()), float(numpy.random.default_rng().random())]
drawn += [multiprocessing.process.current_process().authkey.hex()]
numpy.random.seed(7), random.seed(7)
print(json.dumps([drawn, [float(numpy.random.rand()), random.random()]]))
"""


@pytest.mark.story
def test_no_two_ranks_or_incarnations_draw_the_same(tmp_path: Path) -> None:
    pytest.importorskip("numpy")
    (tmp_path / "draws.py").write_text(DRAWS)
    preload = ["numpy", "numpy.random", "random", "tempfile", "uuid", "multiprocessing.process"]
    with Yard(tmp_path, python("draws.py"), preload) as yard:
        yard.listen()
        starts = [yard.start_of(rank, PRIMUS_INCARNATION=number) for rank in (0, 1) for number in ("1", "2")]
        found = [json.loads(end_of(yard.forked(start)).out) for start in starts]
        plain = json.loads(end_of(processes.start(starts[0])).out)
    for column in zip(*(drawn for drawn, _ in found), strict=True):
        assert len(set(column)) == len(starts)
    assert {json.dumps(seeded) for _, seeded in found} == {json.dumps(plain[1])}


TORCH_DRAWS = """
import json, torch
first = [torch.initial_seed(), torch.rand(3).tolist()]
torch.manual_seed(7)
print(json.dumps([first, torch.rand(3).tolist(), torch.randperm(9).tolist()]))
"""


@pytest.mark.story
@pytest.mark.parametrize("seeding", ["", "import torch\ntorch.manual_seed(1234)\n"])
def test_torch_draws_in_forks_as_in_plain_starts(tmp_path: Path, seeding: str) -> None:
    pytest.importorskip("torch")
    (tmp_path / "draws.py").write_text("import preloaded\n" + TORCH_DRAWS)
    (tmp_path / "preloaded.py").write_text(seeding)
    with Yard(tmp_path, python("draws.py"), ["torch", "preloaded"]) as yard:
        yard.listen()
        plain = [json.loads(end_of(processes.start(yard.start_of(rank))).out) for rank in (0, 1)]
        forked = [json.loads(end_of(yard.forked(yard.start_of(rank))).out) for rank in (0, 1)]
    assert {json.dumps(one[1:]) for one in plain + forked} == {json.dumps(plain[0][1:])}
    seeds = [one[0] for one in (*plain, *forked)]
    if plain[0][0] == plain[1][0]:
        assert seeds == [plain[0][0]] * 4, "a constant, or what an import has set"
    else:
        assert not seeding
        assert len({json.dumps(seed) for seed in seeds}) == 4, "no two ranks draw the same"


def test_a_device_that_is_open_stands_in_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = process_image.capture_state(())
    monkeypatch.setattr(process_image, "DEVICES", (str(tmp_path / "nvidia"),))
    (tmp_path / "nvidia0").write_text("")
    (tmp_path / "other").write_text("")
    words = "a GPU context is open, which no fork can share"
    with (tmp_path / "other").open():
        assert process_image.fork_obstacle(home, ()) != words
    with (tmp_path / "nvidia0").open() as device:
        assert process_image.fork_obstacle(home, ()) == words
        assert process_image.fork_obstacle(home, (device.fileno(),)) == words, "also where the descriptor is known"
    assert process_image.fork_obstacle(home, ()) != words


@pytest.mark.story
def test_a_library_gets_its_threads_back(tmp_path: Path) -> None:
    pytest.importorskip("numpy")
    count = "print(len(os.listdir('/proc/self/task')))\n"
    (tmp_path / "blas.py").write_text(f"import os, numpy\na = numpy.ones((999, 999))\nprint((a @ a)[0, 0])\n{count}")
    with Yard(tmp_path, python("blas.py"), ["numpy"]) as yard:
        plain, warm_one = yard.both()
        assert yard.said == []
    assert warm_one == plain


@pytest.mark.story
def test_what_an_import_sets_is_set_in_its_forks(tmp_path: Path) -> None:
    (tmp_path / "sets.py").write_text(
        "import os\nos.environ['SET'] = 'yes'\nos.environ.pop('GONE', None)\nos.umask(7)\n"
    )
    (tmp_path / "t.py").write_text("import sets, os\nprint(os.environ['SET'], os.environ.get('GONE'))\n")
    with Yard(tmp_path, python("t.py"), ["sets"], {"GONE": "1"}) as yard:
        plain, warm_one = yard.both()
    assert warm_one == plain == Ended("yes None\n", "", "exit code 0")


@pytest.mark.story
@pytest.mark.parametrize("fault", ["raise ValueError('no driver')", "import sys; sys.exit(4)", "import nowhere"])
def test_a_module_that_cannot_be_imported_is_no_fault_of_the_run(tmp_path: Path, fault: str) -> None:
    (tmp_path / "half.py").write_text("import inner\nprint('x' * 999999)\n" + fault)
    (tmp_path / "inner.py").write_text("import os\nos.environ['LEFT'] = 'behind'\n")
    (tmp_path / "good.py").write_text("")
    (tmp_path / "t.py").write_text("import os, sys\nprint([m in sys.modules for m in ('half', 'inner', 'good')])\n")
    with Yard(tmp_path, python("t.py"), ["good", "half", "json"]) as yard:
        (said,) = yard.listen()
        assert "the parked process goes on without half: " in said
        assert yard.parked.ready
        assert end_of(yard.forked(yard.start_of())).out == "[False, False, True]\n"


@pytest.mark.story
def test_a_module_that_kills_its_process_leaves_plain_starts(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("import os\nos.kill(os.getpid(), 11)\n")
    with Yard(tmp_path, python("t.py"), ["bad"]) as yard:
        assert yard.listen() == ["ranks are started plainly: the parked process has ended"]
        with pytest.raises(ForkUnavailableError, match="has ended"):
            yard.forked(yard.start_of())


OBSTACLES = {
    "threads run in it": "import threading, time\n"
    "threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n",
    "left open: /proc/version": "kept = open('/proc/version')\n",
    "left open: socket": "import socket\nkept = socket.socket()\n",
    "started another process": "import subprocess\nkept = subprocess.Popen(['true'])\n",
    "GPU context": "import sys, types\ntorch = sys.modules['torch'] = types.ModuleType('torch')\n"
    "torch.cuda = types.SimpleNamespace(is_initialized=lambda: True)\n",
}


@pytest.mark.story
@pytest.mark.parametrize("why", OBSTACLES)
def test_what_a_fork_would_share_wrongly_keeps_it_from_being_made(tmp_path: Path, why: str) -> None:
    (tmp_path / "odd.py").write_text(OBSTACLES[why])
    (tmp_path / "t.py").write_text("print('ran')\n")
    with Yard(tmp_path, python("t.py"), ["odd"]) as yard:
        (said,) = yard.listen()
        assert said.startswith("ranks are started plainly: ")
        assert why in said
        with pytest.raises(ForkUnavailableError, match=re.escape(why)):
            yard.forked(yard.start_of())


@pytest.mark.story
def test_orders_that_do_not_fit_are_refused_and_the_next_one_is_served(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text("print('ran')\n")
    with Yard(tmp_path, python("t.py")) as yard:
        with pytest.raises(ForkUnavailableError, match="it still imports"):
            yard.forked(yard.start_of())
        yard.listen()
        fits = yard.start_of()

        def refused(why: str, **changed: Any) -> None:
            values = {**fits.__dict__, **changed}
            with pytest.raises(ForkUnavailableError, match=why):
                yard.forked(processes.Start(**values))

        refused("another OMP_NUM_THREADS", environment={**fits.environment, "OMP_NUM_THREADS": "3"})
        refused("not for u.py", argv=python("u.py"))
        refused("other options", argv=python("-O", "t.py"))
        refused("not a Python program", argv=("sh", "-c", "exit"))
        refused("parked for", working_directory="/")
        (tmp_path / "t.py").rename(tmp_path / "away.py")
        refused(r"t\.py: cannot be read")
        (tmp_path / "away.py").rename(tmp_path / "t.py")
        assert end_of(yard.forked(fits)) == Ended("ran\n", "", "exit code 0")


@pytest.mark.story
def test_a_late_answer_starts_nothing(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    (tmp_path / "t.py").write_text(f"import sys\nopen({str(marks)!r}, 'a').write(sys.argv[1])\n")
    with Yard(tmp_path, python("t.py")) as yard:
        yard.listen()
        os.kill(yard.parked.pid, signal.SIGSTOP)
        began = time.monotonic()
        with pytest.raises(ForkUnavailableError, match="in time"):
            yard.parked.fork(yard.start_of(0, "late"))
        assert time.monotonic() - began >= parent.ANSWER_SECONDS
        os.kill(yard.parked.pid, signal.SIGCONT)
        end_of(yard.forked(yard.start_of(0, "next")))
    assert marks.read_text() == "next"


@pytest.fixture
def others() -> frozenset[int]:
    """Processes that tests before this one began here, and that may still live: a server, say."""
    return frozenset(processes.descendants(os.getpid()))


@pytest.mark.story
@pytest.mark.parametrize("garbage", [b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\2{}", b"\0\0\0\3[1]", b"\0\0\0\x09{", b"\0"])
def test_garbage_ends_the_park_and_forks_nothing(tmp_path: Path, others: frozenset[int], garbage: bytes) -> None:
    marks = tmp_path / "marks"
    (tmp_path / "t.py").write_text(f"open({str(marks)!r}, 'a').write('ran')\n")
    with Yard(tmp_path, python("t.py")) as yard:
        yard.listen()
        connection = yard.parked._connection
        assert connection is not None
        connection.sendall(garbage)
        connection.shutdown(socket.SHUT_WR)
        assert yard.next_words() == ["ranks are started plainly: the parked process has ended"]
        assert os.waitpid(yard.parked.pid, 0)[1] == 0
        yard.parked.mark_ended()
        assert processes.descendants(os.getpid(), others) == []
        with pytest.raises(ForkUnavailableError, match="has ended"):
            yard.forked(yard.start_of())
    assert not marks.exists()


@pytest.mark.story
def test_an_order_without_its_descriptors_ends_the_park(tmp_path: Path, others: frozenset[int]) -> None:
    with Yard(tmp_path, python("t.py")) as yard:
        yard.listen()
        connection = yard.parked._connection
        assert connection is not None
        protocol.send(connection, yard.parked._order(yard.start_of()).message(), (0, 0))
        assert yard.next_words() == ["ranks are started plainly: the parked process has ended"]
        assert processes.descendants(os.getpid(), others | {yard.parked.pid}) == []


@pytest.mark.story
def test_a_killed_park_leaves_plain_starts(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text("print('ran')\n")
    with Yard(tmp_path, python("t.py")) as yard:
        yard.listen()
        before = os.listdir("/proc/self/fd")
        os.kill(yard.parked.pid, signal.SIGKILL)
        os.waitid(os.P_PID, yard.parked.pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(ForkUnavailableError, match=r"it takes no orders|died over it"):
            yard.forked(yard.start_of())
        assert len(os.listdir("/proc/self/fd")) <= len(before)
        assert end_of(processes.start(yard.start_of())).out == "ran\n"


@pytest.mark.story
def test_imports_give_way_to_ranks_and_forks_do_not(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("import os\nwhile_importing = os.getpriority(os.PRIO_PROCESS, 0)\n")
    show = "import os, slow\nprint(slow.while_importing, os.getpriority(os.PRIO_PROCESS, 0))\n"
    (tmp_path / "t.py").write_text(show)
    with Yard(tmp_path, python("t.py"), ["slow"]) as yard:
        plain, warm_one = yard.both()
    now = os.getpriority(os.PRIO_PROCESS, 0)
    lowered = min(19, now + process_image.NICE) if process_image.can_be_raised() else now
    assert (plain.out, warm_one.out) == (f"{now} {now}\n", f"{lowered} {now}\n")


@pytest.mark.story
def test_the_demo_trains_as_it_does_alone(tmp_path: Path) -> None:
    pytest.importorskip("numpy")
    words = ["demo-train", "--steps=3", "--corpus-bytes=65536"]
    command = python(str(programs_archive(tmp_path)), *words)
    preload = ["numpy", "workflows.programs.demo.train"]
    with Yard(tmp_path, command, preload, {"OPENBLAS_NUM_THREADS": "1"}) as yard:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = str(free.getsockname()[1])
        plain, warm_one = yard.both(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, WORLD_SIZE="1")
        assert yard.said == []
    assert warm_one.status == plain.status == "exit code 0", (plain, warm_one)
    assert "weights sha256" in plain.out
    assert warm_one.out.splitlines()[-1] == plain.out.splitlines()[-1]


@pytest.mark.story
def test_two_hundred_forks_leave_nothing_behind(tmp_path: Path, others: frozenset[int]) -> None:
    (tmp_path / "t.py").write_text("")
    with Yard(tmp_path, python("t.py")) as yard:
        yard.listen()
        end_of(yard.forked(yard.start_of()))
        folders = ["/proc/self/fd", f"/proc/{yard.parked.pid}/fd"]
        before = [len(os.listdir(folder)) for folder in folders]
        for number in range(200):
            assert end_of(yard.forked(yard.start_of(number))).status == "exit code 0"
        assert [len(os.listdir(folder)) for folder in folders] == before
        children = Path(f"/proc/{yard.parked.pid}/task/{yard.parked.pid}/children")
        assert children.read_text() == ""
        assert processes.descendants(os.getpid(), others | {yard.parked.pid}) == []


@pytest.mark.story
def test_sweeps_spare_the_parked_process_and_find_its_forks(tmp_path: Path, others: frozenset[int]) -> None:
    (tmp_path / "t.py").write_text("import time\nprint('up')\ntime.sleep(600)\n")
    with Yard(tmp_path, python("t.py")) as yard:
        yard.listen()
        assert b"\0RANK=" not in Path(f"/proc/{yard.parked.pid}/environ").read_bytes()
        process = yard.forked(yard.start_of())
        assert processes.descendants(os.getpid(), others | {yard.parked.pid}) == [process.pid]
        kill(process)
        assert alive(yard.parked.pid)


@pytest.mark.story
def test_an_orphan_that_falls_to_another_is_no_rank(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    (tmp_path / "t.py").write_text(f"open({str(marks)!r}, 'a').write('ran')\n")
    with Yard(tmp_path, python("t.py")) as yard:
        yard.listen()
        ctypes.CDLL(None).prctl(processes.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
        with pytest.raises(ForkUnavailableError, match="its parent would be process"):
            yard.forked(yard.start_of())
        assert not marks.exists()
        assert processes.become_subreaper()
        assert end_of(yard.forked(yard.start_of())).status == "exit code 0"
    assert marks.read_text() == "ran"


LAUNCHER = """
import os, select, sys
sys.path.insert(0, {root!r})
from workflows.programs.runtime import processes as ranks
from workflows.programs.prefork import parent as warm
from workflows.programs.prefork import protocol as warm_program
ranks.become_subreaper()
command = (sys.executable, "t.py")
parked = warm.ParkedProcess(warm_program.parse_command(command), [], dict(os.environ), {folder!r})
parked.start()
while not parked.ready:
    select.select([parked], [], [])
    parked.read()
process = parked.fork(ranks.Start(0, 0, command, dict(os.environ), {folder!r}), 60.0)
print(parked.pid, process.pid, flush=True)
select.select([], [], [])
"""


@pytest.mark.story
def test_nobody_outlives_the_launcher(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text("import time\ntime.sleep(600)\n")
    text = LAUNCHER.format(root=str(Path(__file__).parents[3]), folder=str(tmp_path))
    launcher = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True)
    assert launcher.stdout is not None
    pids = [int(word) for word in launcher.stdout.readline().split()]
    assert len(pids) == 2
    assert all(map(alive, pids))
    launcher.kill()
    launcher.wait()
    until(lambda: not any(map(alive, pids)), "both have died with it")
    launcher.stdout.close()
