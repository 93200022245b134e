"""The process that runs one pod: it starts its containers, reaps, records, keeps the pod's deadline, nothing else.

It is forked by the zygote, holds the lock of its pod as long as it lives, and adopts every orphan of its containers. It
writes the pod's status only while the pod is still its own.

The zygote is a small process that the keeper forks at its start and that forks every supervisor. It stays small, so a
supervisor costs one cheap fork however much memory the keeper holds. When the keeper dies with work pending, the zygote
starts the next one.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import time

from profiles.errors import Unavailable
from tasks.embedded import linux
from tasks.embedded.engine.kube import pods
from tasks.embedded.layout import PodFolder, termination_message
from tasks.embedded.objects import END_ANNOTATION, OUTPUT_VALUES_ANNOTATION, entries, is_finished, section, timestamp
from tasks.embedded.runtime import processes
from tasks.embedded.runtime.artifacts import NOT_LOADED, ArtifactError
from tasks.embedded.runtime.container import detect_namespaces
from tasks.embedded.runtime.processes import ZYGOTE, start_time
from tasks.embedded.runtime.start import ContainerLife, NotYetError, Starter, oom_kills
from tasks.embedded.spec import find_image
from tasks.embedded.start_keeper import ask_to_look, insist_on_keeper, revive_keeper
from tasks.embedded.store import locks
from tasks.embedded.store.store import Store, read_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from tasks.embedded.objects import Object


RETRY_SECONDS = 1.0


class SupersededError(Exception):
    """Another process ended this pod, or it is gone: its supervisor must write nothing more."""


def publish(
    store: Store, name: str, uid: str, output_values: str | None, status_after: Callable[[Object], Object], lock: int
) -> None:
    """Replace the pod's status by what `status_after` makes of the stored one.

    A store that cannot be written (a full disk) is tried again for as long as it takes: the pod is left alone.
    `lock`: descriptor of the pod's lock; a file that was removed tells a removed cluster from one that is away.

    Raises:
        SupersededError: the pod is gone with its cluster or alone, another, or declared finished by somebody else.
    """
    while True:
        try:
            _publish_once(store, name, uid, output_values, status_after)
            return
        except Unavailable:
            if os.fstat(lock).st_nlink == 0:
                raise SupersededError from None
            time.sleep(RETRY_SECONDS)


def _publish_once(
    store: Store, name: str, uid: str, output_values: str | None, status_after: Callable[[Object], Object]
) -> None:
    with store.transaction() as change:
        stored = change.get("Pod", name)
        if stored is None or stored["metadata"]["uid"] != uid or is_finished(stored):
            raise SupersededError
        if output_values is not None:
            stored["metadata"].setdefault("annotations", {})[OUTPUT_VALUES_ANNOTATION] = output_values
        stored["status"] = status_after(stored["status"])
        change.put(stored)


DEFAULT_GRACE_SECONDS = 30
LAST_WAIT_SECONDS = 1.0
"""How long a supervisor that is done waits for a keeper that may be started; its pod's lock is held meanwhile."""
RESULT_ANNOTATION = "primus-flows.io/result"


class Supervisor:
    """Runs one pod; a pod of the same name with another `uid` is not ours. `namespaces`: `mount`, `user` or `none`."""

    def __init__(self, root: str, name: str, uid: str, namespaces: str, lock: int) -> None:
        self.root = root
        self.lock = lock
        self.store = Store(root, on_broken=lambda: ask_to_look(root))
        self.name = name
        self.uid = uid
        self.folder = PodFolder(root, uid)
        self.namespaces = namespaces
        self.settings: Object = read_json(os.path.join(root, "cluster.json")) or {}
        self.deadline: float | None = None
        self.kill_at: float | None = None
        self.ending: Object | None = None
        self.asked = False
        self.output_values: str | None = None
        self._wakeup = self._listen()

    def _listen(self) -> int:
        reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _wake_only)
        signal.signal(signal.SIGTERM, self._on_term)
        return reading

    def _on_term(self, *_: object) -> None:
        self.asked = True

    def run(self) -> None:
        """Run the pod to its end; returns when nothing of it lives."""
        if not self._claim():
            return
        try:
            self._run_containers()
        except SupersededError:
            self._kill_everything()
        if os.path.isdir(self.root) and locks.holder(os.path.join(self.root, "keeper.lock")) is None:
            insist_on_keeper(self.root, LAST_WAIT_SECONDS)

    def _claim(self) -> bool:
        """Make sure that this pod is ours to run, and was not run before."""
        with self.store.transaction() as change:
            pod = change.get("Pod", self.name)
            if pod is None or pod["metadata"]["uid"] != self.uid or is_finished(pod):
                return False
            if os.path.exists(os.path.join(self.root, "nodes", pod["spec"]["nodeName"] + ".off")):
                return False
            try:
                os.close(os.open(self.folder.started, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            except FileExistsError:
                return False
        self.pod = pod
        # Never back to False: the signal may have come since the object was read, and it comes only once.
        if pod["metadata"].get("deletionTimestamp") or END_ANNOTATION in self._annotations():
            self.asked = True
        spec = pod["spec"]
        self.initials = [ContainerLife(item, initial=True) for item in entries(spec, "initContainers")]
        self.mains = [ContainerLife(item, initial=False) for item in spec["containers"]]
        self.policy: str = spec.get("restartPolicy", "Always")
        if spec.get("activeDeadlineSeconds") is not None:
            self.deadline = time.monotonic() + spec["activeDeadlineSeconds"]
        self.starter = Starter(self.folder, pod, self.store, self.settings, self.namespaces)
        return True

    def _annotations(self) -> Object:
        return section(self.pod["metadata"], "annotations")

    def _run_containers(self) -> None:
        complete = all(self._drive([run]) for run in self.initials)
        if complete:
            self._drive(self.mains)
        self._kill_everything()
        if self.ending is not None and self.ending.get("fails"):
            phase = "Failed"
        else:
            phase = pods.final_phase([run.status for run in self.mains])
        self._publish(phase)

    def _drive(self, group: list[ContainerLife]) -> bool:
        """Run these containers until none will run again; whether all succeeded."""
        while True:
            if self.asked:
                self._obey()
            self._enforce_times()
            if self.ending is None:
                self._start_due(group)
            if all(run.start_due is None and not run.status.running for run in group):
                return all(run.status.succeeded for run in group)
            if self.ending is not None and not any(run.status.running for run in group):
                return False
            self._wait(group)

    def _start_due(self, group: list[ContainerLife]) -> None:
        now = time.monotonic()
        due = [run for run in group if run.start_due is not None and run.start_due <= now]
        for run in due:
            self._start(run)
        # An init container's running state is not worth a write of its own unless it lasts.
        if due:
            self._publish("Running" if not group[0].initial and any(run.status.running for run in group) else "Pending")

    def _start(self, run: ContainerLife) -> None:
        run.start_due = None
        restarted = bool(run.status.last_state)
        try:
            wants_result = not run.initial and RESULT_ANNOTATION in self._annotations()
            count = run.status.restart_count + restarted
            pid, error, run.capture = self.starter.start(run.spec, count, capture=wants_result)
        except NotYetError as wait:
            run.failures_to_prepare += 1
            run.status.state = pods.waiting(wait.reason_at(run.failures_to_prepare), str(wait))
            run.start_due = time.monotonic() + wait.retry_after(run.failures_to_prepare)
            return
        except ArtifactError as error:
            self._after_end(run, pods.is_not_started(NOT_LOADED, str(error), timestamp()))
            return
        run.failures_to_prepare = 0
        run.status.restart_count += restarted
        run.oom_kills = oom_kills()
        run.started_at = timestamp()
        if error:
            if pid:
                os.waitpid(pid, 0)
            self._after_end(run, pods.is_not_started("StartError", error, run.started_at))
        else:
            run.pid = pid
            run.status.state = {"running": {"startedAt": run.started_at}}

    def _wait(self, group: list[ContainerLife]) -> None:
        poller = select.poll()
        poller.register(self._wakeup, select.POLLIN)
        captures = {run.capture.descriptor: run.capture for run in group if run.capture is not None}
        for descriptor in captures:
            poller.register(descriptor, select.POLLIN)
        times = [run.start_due for run in group if run.start_due is not None and self.ending is None]
        times += [moment for moment in (self.kill_at, self.deadline) if moment is not None]
        timeout = max(0.0, min(times) - time.monotonic()) * 1000 + 1 if times else None
        for descriptor, _ in poller.poll(timeout):
            if descriptor in captures:
                captures[descriptor].pump()
        for run in group:
            if run.capture is not None and run.capture.closed:
                run.capture.finish()
        linux.drain(self._wakeup)
        self._reap()

    def _reap(self) -> None:
        running = {run.pid: run for run in [*self.initials, *self.mains] if run.status.running}
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in running:
                self._after_exit(running.pop(pid), status)

    def _after_exit(self, run: ContainerLife, status: int) -> None:
        finished_at = timestamp()
        self._kill_leftovers(run)
        failed = status != 0
        message = termination_message(self.folder, run.spec, failed=failed)
        killed = status & 0x7F == signal.SIGKILL and self.ending is None
        state = pods.has_ended(
            status, run.started_at, finished_at, message, out_of_memory=killed and oom_kills() > run.oom_kills
        )
        self._after_end(run, state)

    def _after_end(self, run: ContainerLife, state: Object) -> None:
        run.status.state = state
        if run.capture is not None:
            run.capture.finish()
        if not run.initial and run is self.mains[0]:
            self.output_values = self.starter.outputs_of(run)
        if self.ending is not None or not pods.restarts(self.policy, run.status, initial=run.initial):
            return
        delay = pods.restart_delay(
            run.status.restart_count,
            self.settings["crash_loop_initial_seconds"],
            self.settings["crash_loop_max_seconds"],
        )
        run.status.last_state = state
        run.start_due = time.monotonic() + delay
        if delay:
            text = f"back-off {delay:g}s restarting failed container={run.spec['name']} pod={self.name}"
            run.status.state = pods.waiting("CrashLoopBackOff", text)
            self._publish("Pending" if run.initial else "Running")

    # How a pod is ended.

    def _obey(self) -> None:
        """Carry out a requested end: the object says why and how long the containers may take."""
        self.asked = False
        stored = self.store.get("Pod", self.name)
        if stored is None or stored["metadata"]["uid"] != self.uid or is_finished(stored):
            raise SupersededError
        metadata = stored["metadata"]
        self.pod["metadata"] = metadata
        wish: Object = json.loads(section(metadata, "annotations").get(END_ANNOTATION, "{}"))
        grace = metadata.get("deletionGracePeriodSeconds", wish.get("grace_seconds"))
        self._end(wish, self._grace() if grace is None else grace)

    def _grace(self) -> float:
        return self.pod["spec"].get("terminationGracePeriodSeconds", DEFAULT_GRACE_SECONDS)

    def _end(self, why: Object, grace_seconds: float) -> None:
        first = self.ending is None
        self.ending = self.ending or why
        kill_at = time.monotonic() + grace_seconds
        self.kill_at = kill_at if self.kill_at is None else min(self.kill_at, kill_at)
        self.deadline = None
        if first and grace_seconds > 0:
            for run in [*self.initials, *self.mains]:
                if run.status.running:
                    os.kill(run.pid, signal.SIGTERM)

    def _enforce_times(self) -> None:
        now = time.monotonic()
        if self.deadline is not None and now >= self.deadline:
            text = "Pod was active on the node longer than the specified deadline"
            self._end({"reason": "DeadlineExceeded", "message": text, "fails": True}, self._grace())
        if self.kill_at is not None and now >= self.kill_at:
            self.kill_at = None
            self._kill_everything()

    def _kill_everything(self) -> None:
        processes.kill_children(lambda _: False)

    def _kill_leftovers(self, ended: ContainerLife) -> None:
        """What a container's first process left behind ends with it, as it does in a container."""
        others = {run.spec["name"] for run in [*self.initials, *self.mains] if run.status.running and run is not ended}
        processes.kill_children(lambda pid: processes.has_variable(pid, processes.CONTAINER_VARIABLE, others))

    def _publish(self, phase: str) -> None:
        """Write the pod's status; raises SupersededError where it is not ours any more."""
        publish(
            self.store, self.name, self.uid, self.output_values, lambda before: self._status(before, phase), self.lock
        )

    def _status(self, before: Object, phase: str) -> Object:
        initials, mains = [run.status for run in self.initials], [run.status for run in self.mains]
        status = pods.pod_status(before, phase, initials, mains, timestamp())
        if phase == "Failed" and self.ending is not None:
            status |= {key: self.ending[key] for key in ("reason", "message") if self.ending.get(key)}
        return status


def _wake_only(number: int, frame: object) -> None:
    del number, frame  # the wake-up descriptor has said it


def main(root: str, name: str, uid: str, namespaces: str) -> None:
    """Run the pod `name` with `uid`, unless another supervisor does."""
    folder = PodFolder(root, uid)
    os.makedirs(folder.path, mode=0o700, exist_ok=True)
    lock = locks.take(folder.lock)
    if lock is None:
        return
    linux.become_subreaper()
    linux.set_process_name("primus-pod")
    Supervisor(root, name, uid, namespaces, lock).run()


class Zygote:
    """The keeper's connection to the process that forks supervisors; `namespaces` is `auto`, `user` or `never`."""

    def __init__(self, root: str, namespaces: str) -> None:
        ask_reading, self._ask = os.pipe2(os.O_CLOEXEC)
        self.answers, answer_writing = os.pipe2(os.O_CLOEXEC)
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._ask)
            os.close(self.answers)
            _serve(root, namespaces, ask_reading, answer_writing)
        os.close(ask_reading)
        os.close(answer_writing)
        os.set_blocking(self.answers, False)
        self._rest = b""

    def start(self, name: str, uid: str) -> None:
        """Ask for a supervisor of this pod."""
        os.write(self._ask, f"{name} {uid}\n".encode())

    def started(self) -> list[tuple[str, int, int]] | None:
        """Uid of the pod, pid and start time of supervisors that were forked; None when the zygote is gone."""
        alive = True
        try:
            while piece := os.read(self.answers, 65536):
                self._rest += piece
            alive = False
        except BlockingIOError:
            pass
        lines = self._rest.split(b"\n")
        self._rest = lines.pop()
        found = [(uid.decode(), int(pid), int(start)) for uid, pid, start in (line.split() for line in lines)]
        return found if alive or found else None


def _serve(root: str, setting: str, asked: int, answers: int) -> NoReturn:
    linux.set_process_name(ZYGOTE)
    # Orphans of a supervisor that was killed come here, where they are found whatever they did to their environment.
    linux.become_subreaper()
    # The keeper alone is signalled; a supervisor that ended is reaped by the kernel.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    namespaces = detect_namespaces(setting)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    # Compiled patterns are remembered: done once here, not again in every supervisor.
    find_image((read_json(os.path.join(root, "cluster.json")) or {}).get("images", []), "")
    gc.collect()
    gc.freeze()
    rest = b""
    while piece := os.read(asked, 65536):
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            name, uid = line.decode().split()
            pid = os.fork()
            if pid == 0:
                os.close(asked)
                os.close(answers)
                _supervise(root, name, uid, namespaces)
            os.write(answers, f"{uid} {pid} {start_time(pid) or 0}\n".encode())
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    while wait := _seconds_to_wait(root):
        time.sleep(wait)
    os._exit(0)


def _seconds_to_wait(root: str) -> float:
    """Start a keeper where one was killed with something pending; seconds until the next try, 0 where none is due."""
    try:
        return revive_keeper(root)
    except Unavailable as error:  # a full disk, no more processes: that passes, and nobody else may come to look
        return error.retry_after_seconds


def _supervise(root: str, name: str, uid: str, namespaces: str) -> NoReturn:
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        main(root, name, uid, namespaces)
    except BaseException:
        import traceback  # noqa: PLC0415 - large, and never needed

        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(0)
