"""Suites: what a node must show before it may train, as data. Every number carries its source.

A check is a probe of ours or a command with the parser of its output, a quantity, and limits. The flows that test nodes
read suites; `profiles/suites/` holds the shipped ones. A verdict is pass, fail or unknown: a check whose reading never
comes is unknown, and nothing here can turn that into a pass.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Annotated

from pydantic import Field, model_validator

from profiles.checks.catalogue import DEPTHS, Depth, Need
from profiles.checks.check import Check
from profiles.checks.limits import Problem, problems_on
from profiles.errors import ProfileError
from profiles.hardware import HardwareProfile
from profiles.values import ObjectName, PositiveSeconds, Value, did_you_mean, wrong

VOLUME = "volume"
"""The probe that claims a volume."""
PositiveHours = Annotated[float, Field(gt=0)]
SMOKE_SECONDS = 30.0
"""A smoke test may stand before every attempt; Primus's node smoke test takes about as long."""


class Deadlines(Value):
    """For all checks of a depth on one node, in seconds; what has not answered by then is unknown."""

    smoke: PositiveSeconds = SMOKE_SECONDS
    """No rendezvous; at most 30."""
    device: PositiveSeconds = 1800.0
    """GPUs under load; our own probes need half of it."""
    fabric: PositiveSeconds = 1800.0
    """Links and collectives between nodes."""
    storage: PositiveSeconds = 1800.0
    """What checkpoints and data lie on."""
    training: PositiveSeconds = 3600.0
    """A short training."""

    def of(self, depth: Depth) -> float:
        """Seconds of a depth."""
        seconds: float = getattr(self, depth)
        return seconds


class Lifetimes(Value):
    """How many hours a pass of a depth holds; afterwards the node is unknown at this depth.

    Our own choice: the costlier the test, the longer it holds.
    """

    smoke: PositiveHours = 24.0
    """A day: it is cheap."""
    device: PositiveHours = 168.0
    """A week, as operators test idle nodes."""
    fabric: PositiveHours = 168.0
    """A week."""
    storage: PositiveHours = 72.0
    """Three days: shared storage changes under other people's hands."""
    training: PositiveHours = 720.0
    """A month."""

    def of(self, depth: Depth) -> float:
        """Hours of a depth."""
        hours: float = getattr(self, depth)
        return hours


class SuiteProfile(Value):
    """Checks that belong together. `extends` may name several suites: later ones over earlier ones."""

    name: ObjectName
    """Name of the suite."""
    description: str = ""
    """One sentence for people."""
    checks: tuple[Check, ...] = Field(min_length=1)
    """The checks; a suite that extends others adds to theirs, and changes those of the same name."""
    deadline_seconds: Deadlines = Deadlines()
    """Time limits by depth, for one node."""
    good_for_hours: Lifetimes = Lifetimes()
    """How long a pass holds, by depth."""

    def checks_of(self, depth: Depth, hardware: HardwareProfile) -> tuple[Check, ...]:
        """The checks of a depth that nodes of that hardware are tested with, in their order."""
        return tuple(check for check in self.checks if check.depth == depth and check.applies_to(hardware))

    def fits(self, hardware: HardwareProfile) -> tuple[Problem, ...]:
        """Why this suite cannot be used on that hardware; empty: it can."""
        return tuple(
            Problem(f"checks.{check.name}.{problem.field}", problem.reason)
            for check in self.checks
            if check.applies_to(hardware)
            for problem in problems_on(check.limits, check.measure, hardware)
        )

    @model_validator(mode="after")
    def _checks_fit_each_other(self) -> SuiteProfile:
        seen: set[str] = set()
        for index, check in enumerate(self.checks):
            if check.name in seen:
                raise wrong(f"checks[{index}].name", f"{check.name} is taken by a check above; give it another name")
            seen.add(check.name)
        return self

    @model_validator(mode="after")
    def _checks_end_in_time(self) -> SuiteProfile:
        if self.deadline_seconds.smoke > SMOKE_SECONDS:
            got = f"{self.deadline_seconds.smoke:g}"
            raise wrong("deadline_seconds.smoke", f"must be at most {SMOKE_SECONDS:g}, got {got}")
        for index, check in enumerate(self.checks):
            if check.depth == "smoke" and check.spans != "node":
                raise wrong(f"checks[{index}].spans", "must be node: a smoke test meets nobody; give it another depth")
        for depth in DEPTHS:
            _check_time(self, depth)
        return self


def on_storage_class(suite: SuiteProfile, storage_class: str) -> SuiteProfile:
    """The suite as it is made where volumes of that class can be claimed; "": checks of volumes are left out."""
    if storage_class:
        return suite
    why = {"left_out": "The cluster profile names no storage class (admission.storage_class)."}
    checks = (
        check.model_copy(update=why) if check.probe and check.probe.name == VOLUME and not check.left_out else check
        for check in suite.checks
    )
    return suite.model_copy(update={"checks": tuple(checks)})


def refuse_misfits(suite: SuiteProfile, kinds: Iterable[HardwareProfile], known: Collection[str], source: str) -> None:
    """Whether the suite names hardware that exists, and can be used on all of `kinds`.

    `kinds`: hardware it is used with; `known`: names of all hardware profiles; `source`: for the message.

    Raises:
        ProfileError: names the first field that is wrong, and how many others there are.
    """
    problems = [*_misspelt(suite, known), *(problem for hardware in kinds for problem in suite.fits(hardware))]
    if problems:
        more = f" ({len(problems) - 1} more such problems)" if len(problems) > 1 else ""
        raise ProfileError(problems[0].field, problems[0].reason + more, source)


def needed_seconds(checks: Sequence[Check]) -> float:
    """The longest time the checks may take on one node where each starts as soon as what it needs is free.

    Checks that share a call count once; they start in the order given, those without needs at once, those that need
    the whole node before all others.
    """
    calls: dict[object, tuple[float, frozenset[Need]]] = {}
    for check in checks:
        probe = (check.probe.name, *sorted(check.probe.arguments.items())) if check.probe else ()
        call = (probe, check.command, check.peer_command, check.parser)
        seconds, needs = calls.get(call, (0.0, frozenset[Need]()))
        calls[call] = (max(seconds, check.deadline_seconds), needs | frozenset(check.needs))
    alone = sum(seconds for seconds, needs in calls.values() if "node" in needs)
    free: dict[Need, float] = dict.fromkeys(("gpus", "nics", "disk"), alone)
    end = alone
    for seconds, needs in calls.values():
        if "node" not in needs:
            finished = max((free[need] for need in needs), default=alone) + seconds
            free |= dict.fromkeys(needs, finished)
            end = max(end, finished)
    return end


def _misspelt(suite: SuiteProfile, known: Collection[str]) -> list[Problem]:
    """A name that no hardware has would leave its check or limit out without a word."""
    named = [
        (f"checks.{check.name}.{field}", name)
        for check in suite.checks
        for field, names in (
            ("hardware", check.hardware),
            *((f"limits.absolute[{i}].hardware", entry.hardware) for i, entry in enumerate(check.limits.absolute)),
            *(
                (f"limits.percent_of_peak[{i}].hardware", entry.hardware)
                for i, entry in enumerate(check.limits.percent_of_peak)
            ),
        )
        for name in names
    ]
    return [
        Problem(field, f'no hardware profile is called "{name}"' + did_you_mean(name, known, "shipped"))
        for field, name in named
        if name not in known
    ]


def _check_time(suite: SuiteProfile, depth: Depth) -> None:
    allowed = suite.deadline_seconds.of(depth)
    own = [(index, check) for index, check in enumerate(suite.checks) if check.depth == depth and not check.left_out]
    for index, check in own:
        if check.deadline_seconds > allowed:
            reason = f"{check.deadline_seconds:g} is more than the {allowed:g} of depth {depth}; shorten it or raise"
            raise wrong(f"checks[{index}].deadline_seconds", f"{reason} deadline_seconds.{depth}")
    for vendor in ("amd", "nvidia", "none"):
        needed = needed_seconds([check for _, check in own if not check.vendors or vendor in check.vendors])
        if needed > allowed:
            reason = f"{allowed:g} is too short: checks that cannot run side by side may take {needed:g}"
            raise wrong(f"deadline_seconds.{depth}", f"{reason} (vendor {vendor}); raise it or shorten them")
