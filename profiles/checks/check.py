"""One check of a suite: which probe or command is run, which quantity is judged, and what passes."""

from __future__ import annotations

import re

from pydantic import Field, model_validator

from profiles.checks.catalogue import (
    PLACEHOLDERS,
    PROBES,
    VENDOR_OF,
    Combination,
    Depth,
    Direction,
    GpuVendor,
    Launcher,
    Need,
    Parser,
    Severity,
    Span,
    Unit,
)
from profiles.checks.limits import Bound, Limits, Measure, bounds_on, check_words
from profiles.hardware import HardwareProfile, Vendor
from profiles.values import ObjectName, PositiveCount, PositiveSeconds, Text, Value, did_you_mean, wrong
from profiles.vocabulary import FaultClass

QUANTITY = re.compile(r"[a-z][a-z0-9_]*")
PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
PAIR_PROBE = "pair-sockets"
"""The one that two nodes make together."""


class Attempts(Value):
    """How often a check is made, and how its readings become one."""

    count: PositiveCount = 1
    """Attempts of one test."""
    combine: Combination = "median"
    """`best`, `median` or `worst` reading in the check's direction; `all`: each attempt must pass by itself."""


class ProbeCall(Value):
    """One of our own probes with its arguments."""

    name: str
    """Name of the probe."""
    arguments: dict[str, str] = {}
    """Arguments by name; an argument that is left out has the probe's own default."""

    @model_validator(mode="after")
    def _probe_is_known(self) -> ProbeCall:
        if self.name not in PROBES:
            raise wrong("name", f'no probe is called "{self.name}"' + did_you_mean(self.name, PROBES, "probes"))
        for name in self.arguments:
            known = PROBES[self.name].arguments
            if name not in known:
                reason = f"is no argument of {self.name}" + (did_you_mean(name, known) or "; it takes none")
                raise wrong(f"arguments.{name}", reason)
        return self


class Check(Value):
    """One quantity of a node, a pair or a gang, and what it must be. Checks with the same call share one execution."""

    name: ObjectName
    """Name, unique in the suite."""
    depth: Depth
    """How deep it looks."""
    probe: ProbeCall | None = None
    """Our own probe; exactly one of `probe` and `command`."""
    command: tuple[Text, ...] = ()
    """A tool's command line, never a shell's; placeholders are {gpu}, {gpus}, {nic}, {path}, {peer} and {port}."""
    parser: Parser | None = None
    """Who reads the command's output; none for a probe."""
    peer_command: tuple[Text, ...] = ()
    """Pairs only: what is started on the other node before `command`, e.g. a server; empty: nothing."""
    spans: Span = "node"
    """`node`: each node by itself. `pair`: two nodes. `gang`: all nodes of a group at once."""
    quantity: str
    """Which reading is judged, in the words of the probe or parser."""
    unit: Unit
    """Unit of reading and limits; empty for words."""
    direction: Direction
    """What is better; `equal` for figures with one right value, `text_equal` for words."""
    peak: str = ""
    """Quantity of the hardware's peak that bounds it; empty: the one of the same name, if there is one."""
    limits: Limits
    """What passes."""
    attempts: Attempts = Attempts()
    """How often, and how readings are combined."""
    deadline_seconds: PositiveSeconds
    """For all attempts together on one node; what has not answered by then is unknown."""
    needs: tuple[Need, ...] = ()
    """What it must have for itself meanwhile; `node`: nothing else may run. Empty: it runs beside others."""
    vendors: tuple[Vendor, ...] = ()
    """Vendors of nodes it is for, `none` for nodes without GPUs; empty: every node."""
    hardware: tuple[str, ...] = ()
    """Hardware profiles it is for; empty: all of its vendors."""
    least_gpus: int = Field(default=0, ge=0)
    """Nodes with fewer GPUs are not tested with it, e.g. 2 for what goes on between GPUs of a node."""
    launchers: tuple[Launcher, ...] = ()
    """Where it makes sense, e.g. what the kubelet says only on Kubernetes; empty: everywhere."""
    severity: Severity = "fatal"
    """`fatal`: a fail fails the node. `warning`: it is only told."""
    fault_class: FaultClass
    """What a node has that fails it."""
    what_to_do: Text
    """One sentence for the person who mends the node."""
    left_out: str = ""
    """Why it is not made; reported with that reason, never as passed. Empty: it is made."""

    @property
    def measure(self) -> Measure:
        """What it measures, as its limits see it."""
        return Measure(self.quantity, self.unit, self.direction, self.peak or self.quantity)

    @property
    def looks_at_nics(self) -> bool:
        """It has nothing to look at where no NIC of a fabric is; what only needs the NICs for itself may do without."""
        asked = self.probe is not None and PROBES[self.probe.name].nics
        return asked or any("{nic}" in word for word in self.command)

    def applies_to(self, hardware: HardwareProfile) -> bool:
        """Whether nodes of that hardware are tested with it."""
        named = not self.hardware or hardware.name in self.hardware
        fits = hardware.gpus_per_node >= self.least_gpus and (not self.vendors or hardware.vendor in self.vendors)
        there = hardware.nics_per_node > 0 or not self.looks_at_nics
        return named and fits and there and not self.left_out

    def bounds_on(self, hardware: HardwareProfile) -> tuple[Bound, ...]:
        """Its limits of figures and words on that hardware, in its own unit; peers and history stand in `limits`."""
        return bounds_on(self.limits, self.measure, hardware)

    @model_validator(mode="after")
    def _is_whole(self) -> Check:
        _check_call(self)
        _check_placeholders(self)
        _check_measure(self)
        _check_vendors(self)
        check_words(self.limits, self.measure)
        return self


def _check_call(check: Check) -> None:
    if (check.probe is None) != bool(check.command):
        raise wrong("command", "give exactly one of probe and command")
    if bool(check.command) != (check.parser is not None):
        raise wrong("parser", "must say who reads the output of `command`, and must be left out for a probe")
    if check.limits.tool_judges is not None and not check.command:
        raise wrong("limits.tool_judges", "is for commands: a probe of ours measures and does not judge")
    if check.probe is not None and (check.probe.name == PAIR_PROBE) != (check.spans == "pair"):
        raise wrong("spans", f"must be pair for the probe {PAIR_PROBE}, and for no other probe of ours")
    if check.peer_command and (check.spans != "pair" or not check.command):
        raise wrong("peer_command", "is for commands of a pair; set spans: pair, or take it out")


def _check_placeholders(check: Check) -> None:
    arguments = check.probe.arguments if check.probe else {}
    places = [(f"command[{index}]", text) for index, text in enumerate(check.command)]
    places += [(f"peer_command[{index}]", text) for index, text in enumerate(check.peer_command)]
    places += [(f"probe.arguments.{name}", text) for name, text in arguments.items()]
    for field, text in places:
        for word in PLACEHOLDER.findall(text):
            if word not in PLACEHOLDERS:
                raise wrong(field, f"{{{word}}} is no placeholder" + did_you_mean(word, PLACEHOLDERS))
            if word in ("peer", "port") and check.spans != "pair":
                raise wrong(field, f"{{{word}}} is there in checks of a pair only; set spans: pair")
        if "{{" in text or "}}" in text:
            raise wrong(field, "must not hold {{ or }}: the workflow engine would take it for its own")


def _check_measure(check: Check) -> None:
    if not QUANTITY.fullmatch(check.quantity):
        raise wrong("quantity", f"must be lower-case letters, digits and `_`, got {check.quantity!r}")
    ordered = check.direction in ("higher_is_better", "lower_is_better")
    if not ordered and check.attempts.count > 1 and check.attempts.combine != "all":
        raise wrong(
            "attempts.combine", f"must be all: with direction {check.direction} no attempt is better than another"
        )
    if (check.direction == "text_equal") != (check.unit == ""):
        raise wrong("unit", "must be empty exactly where direction is text_equal")
    if check.probe is not None:
        known = PROBES[check.probe.name].quantities
        if check.quantity not in known:
            suggestion = did_you_mean(check.quantity, known, "it tells")
            raise wrong("quantity", f"{check.probe.name} does not tell {check.quantity}" + suggestion)
        if known[check.quantity] != check.unit:
            raise wrong(
                "unit", f"must be {known[check.quantity]!r}, in which {check.probe.name} tells {check.quantity}"
            )


def _check_vendors(check: Check) -> None:
    spoken: set[GpuVendor] = {VENDOR_OF[word] for word in _words(check) if word in VENDOR_OF}
    if spoken and set(check.vendors) != spoken:
        raise wrong("vendors", f"must be [{', '.join(sorted(spoken))}]: no other vendor's nodes have that tool")
    looks = check.probe is not None and PROBES[check.probe.name].gpus
    looks = looks or "gpus" in check.needs or any("{gpu" in word for word in check.command)
    if looks and (not check.vendors or "none" in check.vendors):
        raise wrong("vendors", "must name amd, nvidia or both: it looks at GPUs, which nodes of vendor none lack")


def _words(check: Check) -> tuple[str, ...]:
    """Words that may belong to one vendor: the parser, and the program without its folder."""
    programs = [command[0].rsplit("/", 1)[-1] for command in (check.command, check.peer_command) if command]
    return (check.parser or "", *programs)
