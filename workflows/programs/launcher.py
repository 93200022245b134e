"""The launcher at work: events in, `lifecycle`'s decisions carried out, in one thread.

Threads of their own: files (a storage may hang) and the coordinator's connections (a name server may).
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

from workflows.programs import lifecycle, rank_ends, ranks, termination
from workflows.programs.appender import REST_SECONDS, Appender
from workflows.programs.gang import Gang
from workflows.programs.growing_file import LOOK_SECONDS, GrowingFile
from workflows.programs.launch_options import Options, Place, Rendezvous, make_folders
from workflows.programs.launcher_children import Children, patience
from workflows.programs.launcher_orders import Heard, Lost, Met, Note, Restart, Stacks, Stop
from workflows.programs.output import Stamps
from workflows.programs.paced_poll import PacedPoll, signal_pipe
from workflows.programs.planned_end import GANG_STEP_SECONDS, why_early
from workflows.programs.progress import Report, framework_of
from workflows.programs.rank_set import RankSet
from workflows.programs.rank_starts import beginning, starts
from workflows.programs.reporting import Console, Reporter
from workflows.programs.resume_check import unlike_the_proof
from workflows.programs.save_asker import SaveAsker
from workflows.programs.save_way import EndRanks
from workflows.programs.stack_answer import StackAnswers
from workflows.reports import FILE, CheckpointSeen, PhaseSeen, RankEnd, StepSeen

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
        self._state = lifecycle.State(options.kill_after_seconds, in_place=in_place, save_way=options.save_way)
        self._folder = place.folder(options.role)
        self._stamps = Stamps()
        self._appender = Appender(options.log_limit_bytes, rest_seconds=REST_SECONDS)
        self._console = Console(self._path("launcher.log"), self._appender, self._stamps)
        self._gang = Gang(options, place)
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
        if not ranks.become_subreaper():
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
            ranks.sweep(self._children.spared)
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
        elif isinstance(news, Restart):
            self._advance(lifecycle.Again(news.incarnation, news.resume_from, news.resume_step, news.why))
        elif isinstance(news, Stop):
            self._say(f"told to stop: {news.why}")
            self._advance(lifecycle.Told(news.why, news.save))
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
        for pid, status in ranks.reap():
            if self._children.reaped(pid, status, needed):
                continue
            reports, end = self._ranks.ended(pid, status, time.time())
            self._take(reports)
            if end is not None:
                ends.append(end)
        if ends:
            if self._state.in_place:
                self._children.prover.look()  # the newest checkpoint may not be proven yet
            self._advance(lifecycle.Ended(self._out_of_memory.marked(tuple(ends))))

    # What is decided, and done

    def _advance(self, event: lifecycle.Event) -> None:
        known = len(self._state.ends)
        stage = self._state.stage
        self._state, actions = lifecycle.advance(self._state, event, time.monotonic())
        for action in actions:
            self._act(action)
        for end in self._state.ends[known:]:
            self._say(rank_ends.describe(end) + (", as it was asked to" if end.requested else ""))
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
            ranks.kill_groups(self._ranks.pids())
            self._swept_at = time.monotonic()  # what is in no group is looked for when the ranks have had time to die
        elif isinstance(action, lifecycle.ReportStop):
            self._gang.say("leaving", action.why)
        elif isinstance(action, lifecycle.MeetAgain):
            self._meet_again(action.order)

    def _meet_again(self, order: lifecycle.Again) -> None:
        """Leave nothing of the ranks that were, then meet the others as the next incarnation."""
        if stuck := ranks.kill_everything(self._children.spared):
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
            self._advance(lifecycle.Ended(failed))
        return None

    # The end

    def _finish(self) -> int:
        self._children.warm.close()
        for pid in ranks.kill_everything(self._children.spared):
            self._say(f"process {pid} cannot be killed: it hangs in the kernel")
        self._take(self._ranks.close(time.time()))
        early = self._early() if self._state.reason == "completed" else ""
        reason, detail, code = termination.conclude(self._state, early)
        failed = reason in ("rank-failed", "launcher-error")
        self._gang.say("failed" if failed else "ended", detail or reason)
        stays = patience(reason, self._state.kill_at is not None)
        self._children.end_prover(stays.proof_seconds, self._turn)
        ranks.kill_everything(frozenset())
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
