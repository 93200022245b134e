"""Reads ROCm Validation Suite: what its modules report as results, with what RVS says of them where it judges.

Only gst and iet judge figures, mem and peqt tell pass or fail; pebb, pbqt and babel print figures and judge nothing.
Figures of the ramp-up are left out: the line with the target is the result. Formats: RVS 0.0.x to 1.5, both that of
`[GPU:: 28851]` and the older one of bare numbers.
"""

from __future__ import annotations

import re
from typing import Dict, List, Tuple

from workflows.programs.readings import Parsed
from workflows.programs.tool_text import Told, amount, close, scaled, whole_lines

_RESULT = re.compile(r"\[RESULT\] ?\[ {0,8}[0-9]{1,12}\.[0-9]{1,9} {0,6}\] {0,4}(.{1,1000})")
_ACTION = re.compile(r"\[([^\]]{1,120})\] {0,4}(.{0,1000})")
_GPU = re.compile(r"\[GPU:: {0,4}([0-9]{1,9})\] {0,4}(.{0,600})")
_TARGET = re.compile(r"GFLOPS {1,4}(\S{1,30}) Target GFLOPS: {0,4}(\S{1,30}) met: (TRUE|FALSE)")
_OLD_TARGET = re.compile(
    r"gst ([0-9]{1,9}) Gflops (\S{1,30}) (?:Met|Couldnt meet) target stress : (\S{1,30}) (PASS|FAIL)"
)
_POWER = re.compile(r"Power\(W\) {1,4}(\S{1,30})")
_PASS = re.compile(r"pass: (TRUE|FALSE)")
_BANDWIDTH = re.compile(
    r"(pcie|p2p)-bandwidth {0,4}\[ {0,4}[0-9]{1,6}/[0-9]{1,6}\] {0,4}(.{1,300}?) {1,4}(\S{1,30}) GBps.{0,100}"
)
_PLACE = re.compile(r"\[(CPU|GPU):: {0,4}(?:[0-9]{1,9} - )?([0-9]{1,9})[^\]]{0,60}\]")
_OLD_PLACES = re.compile(r"([0-9]{1,9}) ([0-9]{1,9}) .{0,100}")
_MEM = re.compile(r"mem Test ([0-9]{1,3}) ?: (PASS|FAIL)")
_MEM_BANDWIDTH = re.compile(r"mem Test ([0-9]{1,3}): elapsedtime = \S{1,30} bandwidth = ([0-9.]{1,30})GB/s")
_PEQT = re.compile(r"peqt (true|false)")
_GM = re.compile(r"gm ([0-9]{1,9}) (\w{2,20}) violations ([0-9]{1,18})")
_TYPES = re.compile(r"(bf16|fp16|fp8|fp32|fp64|tf32|i8|sgemm|dgemm|hgemm)")
_BABEL = re.compile(r"(Copy|Mul|Add|Triad|Dot|Read|Write)\s{1,40}([0-9.]{1,30})(?:\s{1,40}[0-9.]{1,30}){3}")
NAMES = {"sgemm": "fp32", "dgemm": "fp64", "hgemm": "fp16"}


class _Run:
    """What is known while the lines go by."""

    def __init__(self) -> None:
        self.told = Told()
        self.open: Dict[str, None] = {}
        self.power: Dict[str, Tuple[float, str]] = {}
        self.babel = 0

    def action(self, action: str, rest: str, line: str) -> None:
        """A result of an action."""
        gpu = _GPU.fullmatch(rest)
        if gpu:
            self._of_gpu(action, f"gpu {gpu.group(1)} {action}", gpu.group(2), line)
            return
        old = _OLD_TARGET.fullmatch(rest)
        bandwidth = _BANDWIDTH.fullmatch(rest)
        if old:
            self._gemm(
                action, f"gpu {old.group(1)} {action}", old.group(2), "pass" if old.group(4) == "PASS" else "fail", line
            )
        elif bandwidth:
            self._bandwidth(action, bandwidth.group(2), bandwidth.group(3), line)
        else:
            self._other(action, rest, line)

    def _of_gpu(self, action: str, subject: str, rest: str, line: str) -> None:
        target = _TARGET.fullmatch(rest)
        power = _POWER.fullmatch(rest)
        done = _PASS.fullmatch(rest)
        if target:
            self.open.pop(subject, None)
            self._gemm(action, subject, target.group(1), "pass" if target.group(3) == "TRUE" else "fail", line)
        elif power:
            self.open[subject] = None
            value = amount(power.group(1))
            if value is not None and value >= self.power.get(subject, (0.0, ""))[0]:
                self.power[subject] = (value, line)
        elif done:
            self.open.pop(subject, None)
            said = "pass" if done.group(1) == "TRUE" else "fail"
            self.told.word("rvs_power_test", done.group(1), subject, line, said)
            if subject in self.power:
                self.told.figure("power_peak", self.power[subject][0], "W", subject, self.power[subject][1])
        elif rest.startswith(("Start of", "GFLOPS", "End of")):
            self.open[subject] = None

    def _gemm(self, action: str, subject: str, gigaflops: str, said: str, line: str) -> None:
        kind = _TYPES.search(action.lower())
        name = f"{NAMES.get(kind.group(1), kind.group(1))}_gemm" if kind else "gemm"
        value = amount(gigaflops)
        self.told.figure(name, None if value is None else scaled(value, 1e-3), "TFLOP/s", subject, line, said)

    def _bandwidth(self, action: str, where: str, value: str, line: str) -> None:
        places = [(kind.lower(), number) for kind, number in _PLACE.findall(where)]
        old = _OLD_PLACES.fullmatch(where)
        if len(places) < 2 and old:
            places = [("gpu" if "bidirectional" in where else "cpu", old.group(1)), ("gpu", old.group(2))]
        if len(places) < 2:
            return
        flat = where.replace("::", ":").replace(": ", ":")
        down, up = "d2h:true" in flat, "h2d:true" in flat
        both = (down and up) or "bidirectional:true" in flat
        first, second = (f"{kind} {number}" for kind, number in places[:2])
        name = "gpu_to_gpu" if places[0][0] == "gpu" else "gpu_to_host" if down and not up else "host_to_gpu"
        pair = f"{second} -> {first}" if name == "gpu_to_host" else f"{first} {'<->' if both else '->'} {second}"
        quantity = f"{name}_bandwidth" + ("_bidirectional" if both else "")
        self.told.figure(quantity, amount(value), "GB/s", f"{pair} {action}", line)

    def _other(self, action: str, rest: str, line: str) -> None:
        memory, speed, peqt, monitor = (one.fullmatch(rest) for one in (_MEM, _MEM_BANDWIDTH, _PEQT, _GM))
        if memory:
            self.told.word(
                "rvs_memory_test", memory.group(2), f"{action} test {memory.group(1)}", line, memory.group(2).lower()
            )
        elif speed:
            self.told.figure("hbm_bandwidth", amount(speed.group(2)), "GB/s", f"{action} test {speed.group(1)}", line)
        elif peqt:
            said = "pass" if peqt.group(1) == "true" else "fail"
            self.told.word("rvs_pcie_test", peqt.group(1), action, line, said)
        elif monitor:
            subject = f"gpu {monitor.group(1)} {monitor.group(2)}"
            self.told.figure("rvs_violations", amount(monitor.group(3)), "count", subject, line)

    def missing(self) -> str:
        """Which results should be there."""
        if not self.open:
            return ""
        first: List[str] = list(self.open)[:1]
        return f"{len(self.open)} tests have no result, the first of them {first[0]}"


def parse(text: str) -> Parsed:
    """Readings by `gpu <id> <action>`: `fp8_gemm` … (TFLOP/s), `power_peak` (W), bandwidths (GB/s), tests as words.

    The ids are the driver's, not indices. RVS prints no end: an action that was not begun is not missed.
    """
    lines, cut = whole_lines(text)
    run = _Run()
    for line in lines:
        stripped = line.strip()
        result = _RESULT.fullmatch(stripped)
        action = _ACTION.fullmatch(result.group(1)) if result else None
        babel = _BABEL.fullmatch(stripped) if result is None else None
        if action:
            run.action(action.group(1), action.group(2).strip(), line)
        elif babel:
            value = amount(babel.group(2))
            speed = None if value is None else scaled(value, 1e-3)
            run.told.figure("hbm_bandwidth", speed, "GB/s", babel.group(1).lower(), line)
        elif "(version " in stripped[:60] and "ROCm Validation Suite" in stripped[:60]:
            run.told.version = stripped.partition("(version ")[2].partition(")")[0][:40]
    missing = run.missing()
    if missing and not run.told.readings:
        run.told.note(missing)
    return close(run.told, "rvs", text, cut, missing)
