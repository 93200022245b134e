"""The launcher at work: events in, `lifecycle`'s decisions carried out, in one thread.

Threads of their own: files (a storage may hang) and the coordinator's connections (a name server may).

The launcher's own children beside its ranks: the prover of checkpoints, and the parked process.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from typing import Any, Callable, Dict, FrozenSet, List, Mapping, NamedTuple, Optional, Sequence, Union

from workflows.programs.launcher import lifecycle, termination
from workflows.programs.launcher.coordinator_link import CoordinatorLink
from workflows.programs.launcher.lifecycle import EndRanks
from workflows.programs.launcher.options import Options, Place, Rendezvous, make_folders
from workflows.programs.launcher.output import Stamps
from workflows.programs.launcher.poll import PacedPoll, signal_pipe
from workflows.programs.launcher.prefork import StackAnswers, WarmRanks
from workflows.programs.launcher.prover_child import ProverChild, command
from workflows.programs.launcher.rank_set import RankSet, beginning, starts
from workflows.programs.launcher.rendezvous import Heard, Lost, Met, Note, RestartOrder, Stacks, Stop
from workflows.programs.launcher.reporting import LOOK_SECONDS, Console, GrowingFile, Reporter
from workflows.programs.launcher.saves import SaveAsker, unlike_the_proof
from workflows.programs.launcher.termination import GANG_STEP_SECONDS, why_early
from workflows.programs.progress.reader import Report, framework_of
from workflows.programs.runtime import processes
from workflows.programs.runtime.files import REST_SECONDS, Appender
from workflows.wire import FILE, CheckpointSeen, PhaseSeen, RankEnd, StepSeen


class Patience(NamedTuple):
    """What a launcher whose ranks have ended still waits for, in seconds each."""

    proof_seconds: float
    """Until the newest checkpoint is proven."""
    flush_seconds: float
    """Until the coordinator has taken what is still to be told."""


def patience(reason: str, saved: bool) -> Patience:
    """How long a pod stays; where nothing was saved its record is what is waited for.

    Whoever chooses the checkpoint to go on from reads what nobody has read; a broken gang's coordinator may be gone.

    Args:
        reason: why the pod ends.
        saved: its ranks were asked to save, and ended in time.
    """
    if reason == "completed":
        return Patience(30.0, 2.0)
    return Patience(1.0, 2.0) if saved else Patience(0.0, 0.3)


class Children:
    """Started, heard, reaped and ended.

    Args:
        options: of the launcher.
        place: of the launcher.
        in_place: ranks may be started again inside the pod.
        poll: hears their descriptors.
        say: a line for people.
        tell: what the prover has found.
    """

    def __init__(
        self,
        options: Options,
        place: Place,
        in_place: bool,
        poll: PacedPoll,
        say: Callable[[str], None],
        tell: Callable[[CheckpointSeen], None],
    ) -> None:
        self._poll, self._say, self._tell = poll, say, tell
        self.prover = ProverChild(command(options, place))
        self.warm = WarmRanks(in_place and options.forkable, options.preload, say, poll.add)

    @property
    def spared(self) -> FrozenSet[int]:
        """Not ranks': whoever sweeps leaves them alone."""
        return frozenset(pid for pid in (self.prover.pid, self.warm.pid) if pid)

    @property
    def due(self) -> Optional[float]:
        """Monotonic seconds at which something is to be done here; None: never, as things are."""
        return self.warm.due

    def hear(self, fd: int) -> None:
        """A descriptor is readable: of one of them, or of neither."""
        if fd == self.prover.fd:
            self._hear_prover()
        elif fd == self.warm.fd:
            self.warm.hear()

    def started(self, example: processes.Start, now: float) -> None:
        """Ranks were started.

        Args:
            example: how one of them was.
            now: monotonic seconds.
        """
        if not self.prover.pid:
            self._start_prover()
        self.warm.started(example, now)

    def reaped(self, pid: int, status: int, needed: bool) -> bool:
        """Whether it was one of them that has ended; a prover that is still needed is started once more."""
        if pid != self.prover.pid:
            return self.warm.reaped(pid)
        self._hear_prover()
        self.prover.ended()
        if needed:
            how = processes.describe_status(status)
            self._say(f"the prover ended with {how}: checkpoints are not proven until it is back")
            self._start_prover()
        return True

    def end_prover(self, seconds: float, turn: Callable[[float], None]) -> None:
        """Let the prover look once more and end; it is waited for.

        Args:
            seconds: how long.
            turn: lets the launcher work for at most so many seconds.
        """
        deadline = time.monotonic() + seconds
        self.prover.finish()
        while self.prover.pid and time.monotonic() < deadline:
            turn(max(0.0, deadline - time.monotonic()))

    def _hear_prover(self) -> None:
        for report in self.prover.read():
            self._tell(report)

    def _start_prover(self) -> None:
        problem = self.prover.start()
        if problem:
            self._say(problem)
        elif self.prover.fd >= 0:
            self._poll.add(self.prover.fd)


SWEEP_SECONDS = 0.1
FLUSH_SECONDS = 2.0


class Launcher:
    """One pod's ranks from start to end.

    Args:
        options: from the builder.
        place: from the pod's environment.
        environment: what ranks get beside torchrun's names.
    """

    def __init__(self, options: Options, place: Place, environment: Mapping[str, str]) -> None:
        self._options = options
        self._place = place
        self._environment = environment
        in_place = options.in_place and bool(place.coordinator_url)  # else nobody orders it
        self._state = lifecycle.PodState(options.kill_after_seconds, in_place=in_place, save_way=options.save_way)
        self._folder = place.folder(options.role)
        self._stamps = Stamps()
        self._appender = Appender(options.log_limit_bytes, rest_seconds=REST_SECONDS)
        self._console = Console(self._path("launcher.log"), self._appender, self._stamps)
        self._gang = CoordinatorLink(options, place)
        self._reporter = Reporter(self._console, self._gang, self._appender, self._path("steps.jsonl"), self._on_nan)
        self._meeting: Optional[Rendezvous] = None
        self._out_of_memory = termination.OutOfMemory()
        self._framework = framework_of(options.framework, options.pattern)
        self._ranks = RankSet(self._appender, self._stamps, self._folder)
        self._signals = signal_pipe()
        self._poll = PacedPoll(self._ranks.fileno(), (self._signals, self._gang.fd))
        self._children = Children(options, place, in_place, self._poll, self._say, self._proven)
        self._saves = SaveAsker(options.save_way, self._ranks.pids, self._advance, self._gang.hear)
        self._stacks = StackAnswers(self._gang, place.pod, place.node)
        self._swept_at = 0.0
        self._file = GrowingFile(options.progress_file)

    def run(self) -> int:
        """Until the ranks have ended and everything is said; the exit code."""
        if not processes.become_subreaper():
            self._say("this kernel lets orphans escape: processes that ranks leave behind may stay")
        self._gang.start()
        while self._state.stage != "done":
            try:
                self._turn(self._patience())
            except OSError as error:
                # The system refuses the launcher itself something (descriptors, memory): no rank is to blame.
                self._advance(lifecycle.Broken(f"the system refused: {error}"))
        return self._finish()

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, name) if self._folder else ""

    def _say(self, text: str) -> None:
        self._console.say(text, time.time())

    # One turn of the loop

    def _patience(self) -> float:
        if self._state.stage in lifecycle.KILLING:
            return SWEEP_SECONDS
        now = time.monotonic()
        waits = [3600.0]
        for deadline in (self._state.end_at, self._state.kill_at, self._state.hold_until, self._children.due):
            if deadline is not None:
                waits.append(max(0.0, deadline - now))
        if self._ranks.waits_for_bar:
            waits.append(0.1)
        if self._file.path and self._state.stage == "running":
            waits.append(LOOK_SECONDS)
        return min(waits)

    def _turn(self, timeout_seconds: float) -> None:
        output, others = self._poll.wait(timeout_seconds)
        if output:
            self._take(self._ranks.read(time.time()))
            self._poll.worked(self._ranks.flooded)
        self._control_events(others)
        self._clock()

    def _control_events(self, readable: Sequence[int]) -> None:
        for fd in readable:
            if fd == self._signals:
                self._hear_signals(os.read(self._signals, 4096))
            elif fd == self._gang.fd:
                self._reap()  # who has ended by now was not told to
                for news in self._gang.heard():
                    self._hear_gang(news)
            else:
                self._children.hear(fd)

    def _clock(self) -> None:
        now = time.monotonic()
        self._take(self._ranks.idle(time.time()))
        if self._state.stage in lifecycle.KILLING and now - self._swept_at > SWEEP_SECONDS:
            self._swept_at = now
            processes.sweep(self._children.spared)
        size = self._file.grown(now)
        if size and self._meeting is not None and self._reporter.steps.last_step is None:
            where, meeting = f"{self._file.path} has {size} bytes", self._meeting
            self._reporter.tell(PhaseSeen("step", time.time(), meeting.first_rank, where, meeting.incarnation, FILE))
        self._children.warm.tick(now)
        self._advance(lifecycle.Tick())

    def _hear_signals(self, numbers: bytes) -> None:
        if signal.SIGCHLD in numbers:
            self._reap()
        for number in numbers:
            if number in (signal.SIGTERM, signal.SIGINT):
                self._advance(lifecycle.Signalled(signal.Signals(number).name))

    def _hear_gang(self, news: Heard) -> None:
        if isinstance(news, Met):
            self._meeting = news.meeting
            first = news.meeting.first_rank
            numbers = frozenset(range(first, first + self._options.processes_per_node))
            self._advance(lifecycle.Ready(numbers, news.meeting.incarnation))
        elif isinstance(news, RestartOrder):
            self._advance(lifecycle.Again(news.incarnation, news.resume_from, news.resume_step, news.why))
        elif isinstance(news, Stop):
            self._say(f"told to stop: {news.why}")
            self._advance(lifecycle.StopOrdered(news.why, news.save))
        else:
            self._hear_other(news)

    def _hear_other(self, news: Union[Stacks, Note, Lost]) -> None:
        if isinstance(news, Stacks):
            self._say(f"told to say where the ranks stand: {news.why}")
            self._stacks.answer(news, self._ranks.pids_by_rank())
        elif isinstance(news, Note):
            self._say(news.text)
        else:
            self._advance(lifecycle.Broken(news.why))

    def _on_nan(self, step: int) -> None:
        self._say(f"the loss of step {step} is not a number: checkpoints from here on are not good")
        self._children.prover.nan(step)

    def _proven(self, report: CheckpointSeen) -> None:
        self._reporter.tell(report)
        self._saves.hear((report,))

    def _take(self, reports: Sequence[Report]) -> None:
        self._console.relay(self._ranks.relayed())
        self._reporter.take(reports)
        self._saves.hear(reports)
        if any(isinstance(one, StepSeen) for one in reports):
            self._children.warm.trains(time.monotonic())
        if self._state.in_place and any(isinstance(one, PhaseSeen) and one.detail for one in reports):
            self._children.prover.look()  # the line may have told of a save

    def _reap(self) -> None:
        ends: List[RankEnd] = []
        needed = self._state.stage in ("joining", "running", "holding", "restarting")
        for pid, status in processes.reap():
            if self._children.reaped(pid, status, needed):
                continue
            reports, end = self._ranks.ended(pid, status, time.time())
            self._take(reports)
            if end is not None:
                ends.append(end)
        if ends:
            if self._state.in_place:
                self._children.prover.look()  # the newest checkpoint may not be proven yet
            self._advance(lifecycle.RanksEnded(self._out_of_memory.marked(tuple(ends))))

    # What is decided, and done

    def _advance(self, event: lifecycle.Event) -> None:
        known = len(self._state.ends)
        stage = self._state.stage
        self._state, actions = lifecycle.advance(self._state, event, time.monotonic())
        for action in actions:
            self._act(action)
        for end in self._state.ends[known:]:
            self._say(lifecycle.describe(end) + (", as it was asked to" if end.requested else ""))
            self._reporter.tell(end, urgent=True)
        if self._state.stage != stage and self._state.detail:
            self._say(f"{self._state.stage}: {self._state.detail}")

    def _act(self, action: lifecycle.Action) -> None:
        if isinstance(action, lifecycle.StartRanks) and self._meeting is not None:
            self._start_ranks(self._meeting)
        elif isinstance(action, lifecycle.AskToSave):
            self._saves.ask(self._reporter.steps.last_step, self._state.detail)
        elif isinstance(action, EndRanks):
            self._saves.end(action.why)
        elif isinstance(action, lifecycle.KillRanks):
            processes.kill_groups(self._ranks.pids())
            self._swept_at = time.monotonic()  # what is in no group is looked for when the ranks have had time to die
        elif isinstance(action, lifecycle.ReportStop):
            self._gang.say("leaving", action.why)
        elif isinstance(action, lifecycle.MeetAgain):
            self._meet_again(action.order)

    def _meet_again(self, order: lifecycle.Again) -> None:
        """Leave nothing of the ranks that were, then meet the others as the next incarnation."""
        if stuck := processes.kill_everything(self._children.spared):
            return self._advance(lifecycle.Broken(f"process {stuck[0]} cannot be killed: it hangs in the kernel"))
        self._take(self._ranks.close(time.time()))
        self._reporter.steps.begin_again()
        self._place = replace(self._place, resume_from=order.resume_from, resume_step=order.resume_step)
        self._meeting = None
        self._gang.meet_again(order.incarnation)
        return None

    def _start_ranks(self, meeting: Rendezvous) -> None:
        problem = make_folders(self._options, self._place) or unlike_the_proof(self._options, self._place, meeting)
        if problem:
            return self._advance(lifecycle.Broken(problem, unstarted=True))
        self._saves.begin()
        now = time.time()
        plans = starts(self._options, self._place, self._environment, meeting, self._framework, now)
        self._children.warm.begin()
        ends = [self._ranks.start(plan.start, plan.reader, now, self._children.warm.start) for plan in plans]
        failed = tuple(end for end in ends if end is not None)
        first = plans[0].start
        if meeting.incarnation > 1:
            self._ranks.note(beginning(self._place, meeting), now)
            self._say(beginning(self._place, meeting))
        self._say(f"started ranks from {first.rank} in {first.working_directory}: {' '.join(first.argv)[:500]}")
        self._reporter.tell(PhaseSeen("init", now, first.rank, "ranks started", meeting.incarnation), urgent=True)
        self._gang.say("running", "", self._ranks.pids_by_rank())
        self._children.started(first, time.monotonic())
        if failed:
            self._advance(lifecycle.RanksEnded(failed))
        return None

    # The end

    def _finish(self) -> int:
        self._children.warm.close()
        for pid in processes.kill_everything(self._children.spared):
            self._say(f"process {pid} cannot be killed: it hangs in the kernel")
        self._take(self._ranks.close(time.time()))
        early = self._early() if self._state.reason == "completed" else ""
        reason, detail, code = termination.conclude(self._state, early)
        failed = reason in ("rank-failed", "launcher-error")
        self._gang.say("failed" if failed else "ended", detail or reason)
        stays = patience(reason, self._state.kill_at is not None)
        self._children.end_prover(stays.proof_seconds, self._turn)
        processes.kill_everything(frozenset())
        self._reap()
        self._gang.flush(stays.flush_seconds)
        self._control_events((self._gang.fd,))
        self._say(f"{reason}{': ' + detail if detail else ''}; exit code {code}")
        record = self._place.record(self._options.role, reason, detail)
        record = termination.of_ranks(record, self._state, self._reporter.steps.last_step)
        for problem in termination.write(record, self._place.termination_log, self._path("termination.json")):
            self._say(f"not written: {problem}")
        self._gang.close()
        self._console.close(FLUSH_SECONDS)
        return code

    def _early(self) -> str:
        """Why the end with 0 came too early; "" where it did not."""

        def ask() -> Optional[Dict[str, Any]]:
            return self._gang.ask("/status", GANG_STEP_SECONDS)

        return why_early(self._options, self._place, self._reporter.steps, ask, self._recorded, self._turn)

    def _recorded(self) -> Optional[int]:
        self._appender.flush(FLUSH_SECONDS)
        return termination.last_recorded_step(os.path.dirname(self._folder), self._options.role)
