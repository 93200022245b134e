"""What is executed on a node for the checks of a suite: checks with the same call share one execution. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from profiles.hardware import HardwareProfile
from profiles.suite import SuiteProfile
from profiles.suite_check import Check
from profiles.suite_words import Depth, Launcher
from workflows.programs.probe_call import Call

BY_API = "kubernetes-node"
IN_VOLUME_POD = "volume"
FABRIC_VARIABLES = "fabric-environment"
"""Probes of which the flow knows more than the suite."""


@dataclass(frozen=True)
class Calls:
    """The calls of some checks."""

    calls: tuple[Call, ...]
    """By number."""
    number_of: dict[str, int]
    """Name of a check -> number of the call that answers it."""

    @property
    def in_pod(self) -> tuple[Call, ...]:
        """Those that a pod answers."""
        return tuple(call for call in self.calls if call.probe not in (BY_API, IN_VOLUME_POD))

    @property
    def in_volume_pod(self) -> tuple[Call, ...]:
        """Those that a pod with a volume of its own answers: where none is bound it never starts."""
        return tuple(call for call in self.calls if call.probe == IN_VOLUME_POD)

    @property
    def by_api(self) -> tuple[int, ...]:
        """Numbers of those that the flow answers by the Node object, which no pod may read."""
        return tuple(call.number for call in self.calls if call.probe == BY_API)


def node_checks(
    suite: SuiteProfile, depth: Depth, hardware: HardwareProfile, launcher: Launcher = "kubernetes"
) -> tuple[Check, ...]:
    """Checks of single nodes that are made on this hardware, in the suite's order.

    Args:
        suite: what is looked at.
        depth: which of its depths.
        hardware: of the nodes.
        launcher: who starts the tests; checks that make no sense there are not made.
    """
    own = suite.checks_of(depth, hardware)
    return tuple(one for one in own if one.spans == "node" and (not one.launchers or launcher in one.launchers))


def left_out(suite: SuiteProfile, depth: Depth, hardware: HardwareProfile) -> dict[str, str]:
    """Checks of that depth that are not made, and why."""
    own = [one for one in suite.checks if one.depth == depth and (not one.vendors or hardware.vendor in one.vendors)]
    return {one.name: one.left_out for one in own if one.left_out}


def calls_of(checks: Sequence[Check], variables: Mapping[str, str] | None = None) -> Calls:
    """The calls that answer these checks, in the order in which they are first asked for.

    A call that several checks share is made as often, and may take as long, as the most demanding of them says.

    Args:
        checks: in the suite's order.
        variables: of the fabric, as the pool and its hardware want them in every program's environment.
    """
    found: dict[tuple[object, ...], Call] = {}
    number_of: dict[str, int] = {}
    for check in checks:
        wanted = _call(check, len(found), variables or {})
        key = (wanted.probe, tuple(sorted(wanted.arguments.items())), wanted.command, wanted.parser)
        known = found.get(key, wanted)
        found[key] = replace(
            known,
            attempts=max(known.attempts, wanted.attempts),
            deadline_seconds=max(known.deadline_seconds, wanted.deadline_seconds),
            needs=tuple(sorted({*known.needs, *wanted.needs})),
        )
        number_of[check.name] = known.number
    return Calls(tuple(found.values()), number_of)


def _call(check: Check, number: int, variables: Mapping[str, str]) -> Call:
    probe, arguments = (check.probe.name, dict(check.probe.arguments)) if check.probe else ("", {})
    if probe == FABRIC_VARIABLES:
        arguments = {"wanted": json.dumps(variables, sort_keys=True), **arguments}
    return Call(
        number=number,
        probe=probe,
        arguments=arguments,
        command=tuple(check.command),
        parser=check.parser or "",
        attempts=check.attempts.count,
        deadline_seconds=float(check.deadline_seconds),
        needs=tuple(check.needs),
    )
