"""The coordinator of one attempt: its members, their rendezvous, progress and ends.

    python3 programs.pyz coordinate --role=trainer --pods=2 --processes-per-node=4

A thin shell around `service`: HTTP in, journal and answers out. A coordinator that is started again reads its journal;
training goes on without it.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import sys
from dataclasses import dataclass
from typing import List, Sequence, Tuple

from workflows.programs.coordinator import stragglers
from workflows.programs.coordinator.budgets import HangLimits
from workflows.programs.coordinator.scopes import RoleShape
from workflows.programs.coordinator.service import Coordinator
from workflows.programs.coordinator.state import REPLICA, ROLE, SCOPES
from workflows.programs.coordinator.store import ExpectedGang
from workflows.programs.runtime import files, flags
from workflows.programs.runtime.report_token import forget_secrets, token_from
from workflows.wire import TERMINATION_MESSAGE_BYTES


@dataclass(frozen=True)
class Options(flags.Flags):
    """Command line of the coordinator."""

    role: str = "trainer"
    """The deciding role."""
    pods: int = 1
    processes_per_node: int = 1
    steps: int = 0
    """Planned steps; 0: not known."""
    port: int = 29400
    restarts: int = 0
    """Restarts in place allowed to the attempt; 0: none, and a hang is only reported."""
    restart_window_seconds: float = 0.0
    """Time in which so many are allowed; 0: the whole attempt."""
    scope: str = ROLE
    """Which ranks restart together with a failed one: `gang`, `role` or `replica`."""
    replica_groups: int = 1
    """Equal parts of the deciding role, each with a rendezvous of its own."""
    essential: Tuple[str, ...] = ()
    """Other roles without which the attempt cannot continue, each as `role:pods:processes`."""
    hang_init_seconds: float = 0.0
    """Longest time to the first step, and from the last one to the end; 0: no limit, for programs that report none."""
    hang_silence_seconds: float = 0.0
    """Longest time without any sign of life before their rhythm is known; 0: as `hang_init_seconds`."""
    hang_step_floor_seconds: float = 60.0
    hang_step_factor: float = 5.0
    """Longest time without a step, in longest steps seen."""
    hang_checkpoint_seconds: float = 1800.0
    hang_announces: bool = False
    """The program announces each pause (save, evaluation) before it begins; else the coordinator learns that."""
    straggler_ratio: float = 1.1
    straggler_robust_z: float = 3.5
    straggler_windows: int = 4
    mttf_seconds: float = 0.0
    """Mean time to failure of the whole gang, for advice on saving; 0: not known, and there is no advice."""

    @property
    def gang(self) -> ExpectedGang:
        """Layout and limits of the attempt."""
        hang = HangLimits(
            init_seconds=self.hang_init_seconds or math.inf,
            silence_seconds=self.hang_silence_seconds,
            step_floor_seconds=self.hang_step_floor_seconds,
            step_factor=self.hang_step_factor,
            checkpoint_seconds=self.hang_checkpoint_seconds,
            announces=self.hang_announces,
        )
        slow = stragglers.StragglerLimits(self.straggler_ratio, self.straggler_robust_z, self.straggler_windows)
        return ExpectedGang(
            role=self.role,
            pods=self.pods,
            processes_per_node=self.processes_per_node,
            steps=self.steps,
            restarts=self.restarts,
            window_seconds=self.restart_window_seconds,
            scope=self.scope,
            others=tuple(RoleShape.read(one) for one in self.essential),
            replica_groups=self.replica_groups,
            mttf_seconds=self.mttf_seconds,
            hang=hang,
            straggler=slow,
        )


_ABOVE = {"hang_step_floor_seconds": 0.0, "hang_step_factor": 1.0, "hang_checkpoint_seconds": 0.0,
          "straggler_ratio": 1.0, "straggler_robust_z": 0.0, "straggler_windows": 0.0}  # fmt: skip


def parse(argv: Sequence[str]) -> Options:
    """The options in `argv`.

    Raises:
        flags.UsageError: names the flag, what is wrong and what would be right.
    """
    options = flags.from_argv(Options, argv)
    for name in ("pods", "processes_per_node"):
        if getattr(options, name) < 1:
            raise flags.UsageError(f"{flags.flag(name)}: must be at least 1, got {getattr(options, name)}")
    _check_gangs(options)
    for name in ("restarts", "restart_window_seconds", "hang_init_seconds", "hang_silence_seconds", "mttf_seconds"):
        if not getattr(options, name) >= 0:
            raise flags.UsageError(f"{flags.flag(name)}: must not be negative, got {getattr(options, name)}")
    for name, least in _ABOVE.items():
        if not getattr(options, name) > least:
            raise flags.UsageError(f"{flags.flag(name)}: must be above {least:g}, got {getattr(options, name)}")
    return options


def _check_gangs(options: Options) -> None:
    if options.scope not in SCOPES:
        raise flags.UsageError(f"--scope: must be one of {', '.join(SCOPES)}, got {options.scope!r}")
    groups = options.replica_groups
    if groups < 1 or options.pods % groups:
        raise flags.UsageError(f"--replica-groups: must divide {options.pods} pods into equal parts, got {groups}")
    if (groups > 1) != (options.scope == REPLICA):
        raise flags.UsageError(f"--scope: `{REPLICA}` goes with more than one of --replica-groups, got {groups}")
    for one in options.essential:
        try:
            RoleShape.read(one)
        except ValueError as error:
            raise flags.UsageError(f"--essential: expected role:pods:processes, got {one!r}") from error


def main(argv: List[str]) -> int:
    """Serve until SIGTERM."""
    environment = dict(os.environ)
    forget_secrets(os.environ)
    try:
        options, token = parse(argv), token_from(environment)
    except flags.UsageError as error:
        return _refuse(str(error))
    if not token:
        return _refuse("PRIMUS_TOKEN_FILE: must be set; whoever holds the token controls the gang")
    _many_descriptors()
    coordinator = Coordinator(options.gang, {**environment, "PRIMUS_TOKEN": token})
    run_dir = environment.get("PRIMUS_RUN_DIR", "")
    if run_dir:
        attempt = environment.get("PRIMUS_ATTEMPT", "") or "1"
        coordinator.open_journal(os.path.join(run_dir, f"a{attempt}", "coordinator", "journal.jsonl"))
    try:
        server = coordinator.serve(environment.get("PRIMUS_POD_IP", "") or "127.0.0.1", options.port)
    except OSError as error:
        return _refuse(f"--port: {options.port} cannot be bound: {error.strerror}")
    asked = files.signal_pipe((signal.SIGTERM, signal.SIGINT))
    server.watch(asked)
    print(f"coordinator: listening on port {server.port} for {options.pods} pods of {options.role}", flush=True)
    while asked not in server.turn(coordinator.idle_seconds):
        coordinator.tick()
    server.close()
    coordinator.close()
    return 0


def _many_descriptors() -> None:
    """As many as the system allows: every launcher keeps two connections."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard if hard != resource.RLIM_INFINITY else max(soft, 65536), hard))


def _refuse(message: str) -> int:
    text = f"coordinate: {message}"
    print(text, file=sys.stderr, flush=True)
    path = files.termination_log(os.environ)
    with contextlib.suppress(OSError):  # the message stands on standard error as well
        if path:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text[:TERMINATION_MESSAGE_BYTES])
    return 2
