"""The launcher's loop: one thread collects events, asks `lifecycle` for decisions and carries them out.

Files and connections to the coordinator have threads of their own, since a storage or a name server may hang. Beside
its ranks the launcher has two children: the prover of checkpoints and the parked process.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from typing import Any, Callable, Dict, FrozenSet, List, Mapping, NamedTuple, Optional, Sequence, Union

from workflows.programs.launcher import lifecycle, termination
from workflows.programs.launcher.coordinator_link import CoordinatorLink
from workflows.programs.launcher.lifecycle import EndRanks, refusal_cause
from workflows.programs.launcher.options import Options, Place, Rendezvous, make_folders
from workflows.programs.launcher.output import TimestampFormatter, hidden_words
from workflows.programs.launcher.poll import PacedPoll
from workflows.programs.launcher.prefork import RankStarter, StackCollector
from workflows.programs.launcher.prover_child import ProverChild, command
from workflows.programs.launcher.rank_set import RankSet, describe_restart, rank_starts
from workflows.programs.launcher.rendezvous import (
    GangComplete,
    GangLost,
    LinkEvent,
    LogNote,
    RestartOrder,
    StacksOrder,
    StopOrder,
    SurplusReleased,
)
from workflows.programs.launcher.reporting import LOOK_SECONDS, Console, GrowingFile, Reporter
from workflows.programs.launcher.saves import SaveRequester, why_not_resumable
from workflows.programs.launcher.termination import GANG_STEP_SECONDS, EarlyEnd, why_early
from workflows.programs.progress.reader import Report, framework_of
from workflows.programs.runtime import processes
from workflows.programs.runtime.files import REST_SECONDS, Appender, signal_pipe
from workflows.wire import FILE, CheckpointSeen, PhaseSeen, RankEnd, StepSeen


class ExitWaits(NamedTuple):
    """Longest waits of a launcher whose ranks have ended."""

    proof_seconds: float
    """For the proof of the newest checkpoint."""
    flush_seconds: float
    """For the coordinator to take the last reports."""


def exit_waits(reason: str, saved: bool) -> ExitWaits:
    """How long a pod stays after its ranks.

    The waits are short where nothing was `saved` on request: the next attempt reads unproven checkpoints itself, and
    the coordinator of a broken gang may be gone.
    """
    if reason == "completed":
        return ExitWaits(30.0, 2.0)
    return ExitWaits(1.0, 2.0) if saved else ExitWaits(0.0, 0.3)


class Children:
    """The prover and the parked process: starts, reads, reaps and ends them.

    `in_place`: ranks may restart inside the pod; `tell` gets each finding of the prover.
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
        self.warm = RankStarter(in_place and options.forkable, options.preload, say, poll.add)

    @property
    def pids(self) -> FrozenSet[int]:
        """Their process ids, which a sweep over leftovers of ranks must spare."""
        return frozenset(pid for pid in (self.prover.pid, self.warm.pid) if pid)

    @property
    def due(self) -> Optional[float]:
        """Monotonic seconds of the next thing to do; None: nothing is due."""
        return self.warm.due

    def read(self, fd: int) -> None:
        """Read from a readable descriptor, if it is theirs."""
        if fd == self.prover.fd:
            self._read_prover()
        elif fd == self.warm.fd:
            self.warm.read()

    def after_start(self, example: processes.Start, now: float) -> None:
        """Ranks were started, one of them by `example`; `now` is in monotonic seconds."""
        if not self.prover.pid:
            self._start_prover()
        self.warm.after_start(example, now)

    def reap(self, pid: int, status: int, needed: bool) -> bool:
        """Whether the ended process was theirs; a prover that is still needed is started once more."""
        if pid != self.prover.pid:
            return self.warm.reap(pid)
        self._read_prover()
        self.prover.mark_ended()
        if needed:
            how = processes.describe_status(status)
            self._say(f"the prover ended with {how}: checkpoints are not proven until it is back")
            self._start_prover()
        return True

    def end_prover(self, seconds: float, turn: Callable[[float], None]) -> None:
        """Let the prover look a last time and end, and wait for it at most `seconds`.

        `turn` runs the launcher's loop for at most so many seconds.
        """
        deadline = time.monotonic() + seconds
        self.prover.finish()
        while self.prover.pid and time.monotonic() < deadline:
            turn(max(0.0, deadline - time.monotonic()))

    def _read_prover(self) -> None:
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
    """Runs one pod's ranks from start to end; ranks get `environment` and torchrun's names."""

    def __init__(self, options: Options, place: Place, environment: Mapping[str, str]) -> None:
        self._options = options
        self._place = place
        self._environment = environment
        in_place = options.in_place and bool(place.coordinator_url)  # without a coordinator nobody orders a restart
        self._state = lifecycle.PodState(options.kill_after_seconds, in_place=in_place, save_way=options.save_way)
        self._folder = place.folder(options.role)
        self._stamps = TimestampFormatter()
        self._appender = Appender(options.log_limit_bytes, rest_seconds=REST_SECONDS)
        self._console = Console(self._path("launcher.log"), self._appender, self._stamps)
        self._gang = CoordinatorLink(options, place)
        self._reporter = Reporter(self._console, self._gang, self._appender, self._path("steps.jsonl"), self._on_nan)
        self._meeting: Optional[Rendezvous] = None
        self._out_of_memory = termination.OutOfMemoryCounter()
        self._framework = framework_of(options.framework, options.pattern)
        hidden = hidden_words(environment.get(name, "") for name in options.secret_environment.split(","))
        self._ranks = RankSet(self._appender, self._stamps, self._folder, hidden)
        # The end of children, and requests to end.
        self._signals = signal_pipe((signal.SIGTERM, signal.SIGINT, signal.SIGCHLD))
        self._poll = PacedPoll(self._ranks.fileno(), (self._signals, self._gang.fd))
        self._children = Children(options, place, in_place, self._poll, self._say, self._take_proof)
        self._saves = SaveRequester(options.save_way, self._ranks.pids, self._advance, self._gang.add_event)
        self._stacks = StackCollector(self._gang, place.pod, place.node)
        self._swept_at = 0.0
        self._file = GrowingFile(options.progress_file)

    def run(self) -> int:
        """Run until the ranks have ended and everything is reported; the exit code."""
        if not processes.become_subreaper():
            self._say("this kernel lets orphans escape: processes that ranks leave behind may stay")
        self._gang.start()
        while self._state.stage != "done":
            try:
                self._turn(self._timeout_seconds())
            except OSError as error:
                # The system refuses the launcher itself something (descriptors, memory): no rank is to blame.
                self._advance(lifecycle.LauncherFailed(f"the system refused: {error}", refusal_cause(error)))
        return self._finish()

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, name) if self._folder else ""

    def _say(self, text: str) -> None:
        self._console.say(text, time.time())

    # One turn of the loop

    def _timeout_seconds(self) -> float:
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
            self._gang.note_output()
            self._take(self._ranks.read(time.time()))
            self._poll.pace(self._ranks.flooded)
        self._control_events(others)
        self._clock()

    def _control_events(self, readable: Sequence[int]) -> None:
        for fd in readable:
            if fd == self._signals:
                self._take_signals(os.read(self._signals, 4096))
            elif fd == self._gang.fd:
                self._reap()  # who has ended by now was not told to
                for news in self._gang.take_events():
                    self._take_link_event(news)
            else:
                self._children.read(fd)

    def _clock(self) -> None:
        now = time.monotonic()
        self._take(self._ranks.read_idle_bars(time.time()))
        if self._state.stage in lifecycle.KILLING and now - self._swept_at > SWEEP_SECONDS:
            self._swept_at = now
            processes.sweep(self._children.pids)
        size = self._file.grown(now)
        if size and self._meeting is not None and self._reporter.steps.last_step is None:
            where, meeting = f"{self._file.path} has {size} bytes", self._meeting
            self._reporter.report(PhaseSeen("step", time.time(), meeting.first_rank, where, meeting.incarnation, FILE))
        self._children.warm.tick(now)
        self._advance(lifecycle.Tick())

    def _take_signals(self, numbers: bytes) -> None:
        if signal.SIGCHLD in numbers:
            self._reap()
        for number in numbers:
            if number in (signal.SIGTERM, signal.SIGINT):
                self._advance(lifecycle.SignalReceived(signal.Signals(number).name))

    def _take_link_event(self, news: LinkEvent) -> None:
        if isinstance(news, GangComplete):
            self._meeting = news.meeting
            first = news.meeting.first_rank
            numbers = frozenset(range(first, first + self._options.processes_per_node))
            self._advance(lifecycle.GangReady(numbers, news.meeting.incarnation))
        elif isinstance(news, RestartOrder):
            self._advance(lifecycle.RestartOrdered(news.incarnation, news.resume_from, news.resume_step, news.why))
        elif isinstance(news, StopOrder):
            self._say(f"told to stop: {news.why}")
            self._advance(lifecycle.StopOrdered(news.why, news.save))
        else:
            self._take_other_event(news)

    def _take_other_event(self, news: Union[StacksOrder, SurplusReleased, LogNote, GangLost]) -> None:
        if isinstance(news, StacksOrder):
            self._say(f"told to say where the ranks stand: {news.why}")
            self._stacks.answer(news, self._ranks.pids_by_rank())
        elif isinstance(news, SurplusReleased):
            if self._state.stage == "running":  # ranks that begin again may be reading any of them
                self._children.prover.let_go(news.ledger, self._place.resume_from)
        elif isinstance(news, LogNote):
            self._say(news.text)
        else:
            self._advance(lifecycle.LauncherFailed(news.why, news.cause))

    def _on_nan(self, step: int) -> None:
        self._say(f"the loss of step {step} is not a number: checkpoints from here on are not good")
        self._children.prover.report_nan(step)

    def _take_proof(self, report: CheckpointSeen) -> None:
        self._reporter.report(report)
        self._saves.update((report,))

    def _take(self, reports: Sequence[Report]) -> None:
        self._console.relay(self._ranks.take_relayed())
        self._reporter.take(reports)
        self._saves.update(reports)
        if any(isinstance(one, StepSeen) for one in reports):
            self._children.warm.note_step(time.monotonic())
        if self._state.in_place and any(isinstance(one, PhaseSeen) and one.detail for one in reports):
            self._children.prover.request_look()  # the line may have told of a save

    def _reap(self) -> None:
        ends: List[RankEnd] = []
        needed = self._state.stage in ("joining", "running", "holding", "restarting")
        for pid, status in processes.reap():
            if self._children.reap(pid, status, needed):
                continue
            reports, end = self._ranks.reap(pid, status, time.time())
            self._take(reports)
            if end is not None:
                ends.append(end)
        if ends:
            if self._state.in_place:
                self._children.prover.request_look()  # the newest checkpoint may not be proven yet
            self._advance(lifecycle.RanksEnded(self._out_of_memory.mark(tuple(ends))))

    # What is decided, and done

    def _advance(self, event: lifecycle.Event) -> None:
        known = len(self._state.ends)
        stage = self._state.stage
        self._state, actions = lifecycle.advance(self._state, event, time.monotonic())
        for action in actions:
            self._act(action)
        for end in self._state.ends[known:]:
            self._say(lifecycle.describe(end) + (", as it was asked to" if end.requested else ""))
            self._reporter.report(end, urgent=True)
        if self._state.stage != stage and self._state.detail:
            self._say(f"{self._state.stage}: {self._state.detail}")

    def _act(self, action: lifecycle.Action) -> None:
        if isinstance(action, lifecycle.StartRanks) and self._meeting is not None:
            self._start_ranks(self._meeting)
        elif isinstance(action, lifecycle.RequestSave):
            self._saves.request(self._reporter.steps.last_step, self._state.detail)
        elif isinstance(action, EndRanks):
            self._saves.end(action.why)
        elif isinstance(action, lifecycle.KillRanks):
            processes.kill_groups(self._ranks.pids())
            self._swept_at = time.monotonic()  # what is in no group is looked for when the ranks have had time to die
        elif isinstance(action, lifecycle.ReportStop):
            self._gang.report_state("leaving", action.why)
        elif isinstance(action, lifecycle.RejoinGang):
            self._rejoin_gang(action.order)

    def _rejoin_gang(self, order: lifecycle.RestartOrdered) -> None:
        """Kill every leftover of the old ranks, then join the next incarnation."""
        if stuck := processes.kill_everything(self._children.pids):
            return self._advance(
                lifecycle.LauncherFailed(
                    f"process {stuck[0]} cannot be killed: it hangs in the kernel", "process-stuck"
                )
            )
        self._take(self._ranks.close(time.time()))
        self._reporter.steps.reset()
        self._place = replace(self._place, resume_from=order.resume_from, resume_step=order.resume_step)
        self._meeting = None
        self._gang.join_incarnation(order.incarnation)
        return None

    def _start_ranks(self, meeting: Rendezvous) -> None:
        problem = make_folders(self._options, self._place, meeting.incarnation) or why_not_resumable(
            self._options, self._place, meeting
        )
        if problem:
            return self._advance(problem)
        self._saves.begin()
        now = time.time()
        plans = rank_starts(self._options, self._place, self._environment, meeting, self._framework, now)
        self._children.warm.begin()
        ends = [self._ranks.start(plan.start, plan.reader, now, self._children.warm.start) for plan in plans]
        failed = tuple(end for end in ends if end is not None)
        first = plans[0].start
        if meeting.incarnation > 1:
            self._ranks.note(describe_restart(self._place, meeting), now)
            self._say(describe_restart(self._place, meeting))
        self._say(f"started ranks from {first.rank} in {first.working_directory}: {' '.join(first.argv)[:500]}")
        self._reporter.report(PhaseSeen("init", now, first.rank, "ranks started", meeting.incarnation), urgent=True)
        self._gang.report_state("running", "", self._ranks.pids_by_rank())
        self._children.after_start(first, time.monotonic())
        if failed:
            self._advance(lifecycle.RanksEnded(failed))
        return None

    # The end

    def _finish(self) -> int:
        self._children.warm.close()
        for pid in processes.kill_everything(self._children.pids):
            self._say(f"process {pid} cannot be killed: it hangs in the kernel")
        self._take(self._ranks.close(time.time()))
        early = EarlyEnd()
        if completed := self._state.reason == "completed":
            # Of pods that end together each tells its end before it asks for those of others: one of them knows all.
            self._gang.report_state("ended", "completed")
            early = self._why_early()
        reason, detail, code = termination.conclude(self._state, early.why)
        failed = reason in ("rank-failed", "launcher-error")
        if failed or not completed:
            self._gang.report_state("failed" if failed else "ended", detail or reason)
        stays = exit_waits(reason, self._state.kill_at is not None)
        self._children.end_prover(stays.proof_seconds, self._turn)
        processes.kill_everything(frozenset())
        self._reap()
        self._gang.flush(stays.flush_seconds)
        self._control_events((self._gang.fd,))
        self._say(f"{reason}{': ' + detail if detail else ''}; exit code {code}")
        record = self._place.record(self._options.role, reason, detail)
        record = replace(record, cause=(early.cause if early.why else "") or self._state.cause)
        record = termination.with_rank_ends(record, self._state, self._reporter.steps.last_step)
        for problem in termination.write(record, self._place.termination_log, self._path(termination.RECORD)):
            self._say(f"not written: {problem}")
        self._gang.close()
        self._console.close(FLUSH_SECONDS)
        return code

    def _why_early(self) -> EarlyEnd:
        """Whether the end with exit code 0 came too early."""

        def ask() -> Optional[Dict[str, Any]]:
            self._gang.flush(GANG_STEP_SECONDS)
            return self._gang.get("/status", GANG_STEP_SECONDS)

        return why_early(self._options, self._place, self._reporter.steps, ask, self._last_recorded_step, self._turn)

    def _last_recorded_step(self) -> Optional[int]:
        self._appender.flush(FLUSH_SECONDS)
        return termination.last_recorded_step(os.path.dirname(self._folder), self._options.role)
