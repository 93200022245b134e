"""Reads diagnostics: `dcgmi diag`, AGFHC and ROCm Validation Suite.

`dcgmi diag`: JSON of DCGM 3 (`DCGM GPU Diagnostic`) and 4 (`DCGM Diagnostic`), and the table of both. Its words are
kept: Pass and Fail are verdicts, Skip and Warn are neither.

AGFHC, AMD's field health check: each test's verdict, the summary, and the program's end. Its image is private; the
format is that of AMD's public acceptance guides (1.22 and 1.23).

RVS: only gst and iet judge figures, mem and peqt report pass or fail; pebb, pbqt and babel print figures without a
verdict. Figures of the ramp-up are left out: the line with the target is the result. Formats: RVS 0.0.x to 1.5, both
that of `[GPU:: 28851]` and the older one of bare numbers.
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from workflows.programs.parsers.text import (
    ParsedOutput,
    ToolReadings,
    amount,
    as_list,
    as_mapping,
    as_string,
    close_readings,
    document,
    looks_like_json,
    no_document,
    number,
    scale,
    whole_lines,
)

TOOL = "dcgmi diag"
ROOTS = ("DCGM Diagnostic", "DCGM GPU Diagnostic")
DCGM_RESULTS: Mapping[str, str] = {"pass": "pass", "passed": "pass", "fail": "fail", "failed": "fail"}
SETTINGS = ("environment variables", "environmental variables", "persistence mode", "graphics processes")
"""Tests of how a node is set up, by DCGM's names: what they warn of is no fault of its hardware."""
_SETTING = re.compile(r"environment variable|persistence mode|graphics process", re.IGNORECASE)
SEVERITIES: Mapping[int, str] = {1: "monitor", 2: "isolate", 3: "unknown", 4: "triage", 5: "config", 6: "reset"}
"""DCGM 4's `error_severity`: `config` is a setting of the node, not its hardware."""
_ROW = re.compile(r"\|([^|]{1,60})\|([^|]{0,200})\|")
_RULE = re.compile(r"\+-{3,80}\+-{3,120}\+")
_RESULT = re.compile(r"(Pass|Fail|Skip|Warn|Warning)\b(?: - (.{1,80}))?")
_ENTITY = re.compile(r"(GPU|CPU) ?([0-9]{1,4}): (Pass|Fail|Skip|Warn)\b.{0,40}")
FACTS: Mapping[str, str] = {"DCGM Version": "dcgm_version", "Driver Version Detected": "driver_version"}


def parse_dcgm(text: str) -> ParsedOutput:
    """Readings `dcgm_test` (a word, and what DCGM says) with the subject `<gpu …> <test>`."""
    return _parse_json(text) if looks_like_json(text) else _parse_table(text)


def _parse_json(text: str) -> ParsedOutput:
    data = as_mapping(document(text))
    root = next((as_mapping(data[name]) for name in ROOTS if name in data), None)
    if root is None:
        return no_document(TOOL, text)
    results = ToolReadings()
    metadata: Dict[str, Any] = {**root, **as_mapping(data.get("metadata"))}
    results.version = as_string(metadata.get("version"))
    results.word("driver_version", as_string(metadata.get("Driver Version Detected")), "", "Driver Version Detected")
    for category in as_list(root.get("test_categories")):
        for test in as_list(as_mapping(category).get("tests")):
            _json_test(results, as_mapping(test))
    for name in ("runtime_error", "Runtime Error"):
        if name in root:
            results.note(f"the diagnostic ended early: {str(root[name])[:120]}")
    _skipped(results)
    return results.to_parsed()


def _json_test(results: ToolReadings, test: Dict[str, Any]) -> None:
    name = as_string(test.get("name"))[:80]
    found = [as_mapping(one) for one in as_list(test.get("results"))]
    if not found and "test_summary" in test:
        found = [as_mapping(test["test_summary"])]
    for result in found:
        status = as_string(result.get("status"))[:40]
        warnings = [
            (as_string(one) or as_string(as_mapping(one).get("warning"))) for one in as_list(result.get("warnings"))
        ]
        severities = sorted({severity for one in as_list(result.get("warnings")) if (severity := _severity(one))})
        word = ", ".join([status, *severities])
        line = "; ".join([f"{name}: {status}", *warnings])
        said = DCGM_RESULTS.get(status.lower(), "") or _warned(name, status, severities, warnings)
        results.word("dcgm_test", word, f"{_who(result)} {name}".strip(), line, said)


def _warned(name: str, status: str, severities: Sequence[str], warnings: Sequence[str]) -> str:
    """`pass` where all that DCGM warns of is how the node is set up; else it neither passes nor fails."""
    if not status.startswith("Warn"):
        return ""
    if severities and severities != ["monitor"]:
        return "pass" if severities == ["config"] else ""
    about_settings = bool(warnings) and all(map(_SETTING.search, warnings))
    return "pass" if about_settings or name.lower() in SETTINGS else ""


def _who(result: Dict[str, Any]) -> str:
    if "entity_id" in result:
        group = as_string(result.get("entity_group")).lower() or "gpu"
        identity = number(result["entity_id"])
        return f"{group} {int(identity)}" if identity is not None else group
    gpus = result.get("gpu_id", result.get("gpu_ids", ""))
    return f"gpu {str(gpus)[:60]}" if str(gpus) else ""


def _severity(one: Any) -> str:
    severity = number(as_mapping(one).get("error_severity"))
    return SEVERITIES.get(int(severity), "") if severity is not None else ""


def _skipped(results: ToolReadings) -> None:
    skipped = sum(1 for one in results.readings if one.word.startswith("Skip"))
    if skipped:
        results.note(f"{skipped} of {len(results.readings)} results are of tests that were skipped")
    tests = (one for one in results.readings if one.quantity == "dcgm_test")
    warned = next((one for one in tests if one.word.startswith("Warn") and not one.said), None)
    if warned is not None:
        results.note(f"DCGM neither passes nor fails {warned.subject}: {warned.line}"[:200])


def _parse_table(text: str) -> ParsedOutput:
    lines, cut = whole_lines(text)
    results = ToolReadings()
    test = ""
    ended = False
    for line in lines:
        stripped = line.strip()
        row = _ROW.fullmatch(stripped)
        if stripped:
            ended = _RULE.fullmatch(stripped) is not None and bool(results.readings)
        if row is None:
            continue
        name, result = row.group(1).strip(), row.group(2).strip()
        kind, _, whom = name.partition(": ")
        if kind in ("Error", "Warning"):
            results.word(f"dcgm_{kind.lower()}", result, f"{whom.lower()} {test}".strip(), line)
        elif name in FACTS:
            results.version = result if name == "DCGM Version" else results.version
            results.word(FACTS[name], result, "", line)
        else:
            test = _table_test(results, name, result, test, line)
    _skipped(results)
    return close_readings(results, TOOL, text, cut, "" if ended else "the last line of its table is missing")


def _table_test(results: ToolReadings, name: str, result: str, test: str, line: str) -> str:
    hit = _RESULT.match(result)
    entity = _ENTITY.fullmatch(result)
    if name and hit:
        whom = _whom(hit.group(2) or "")
        verdict = DCGM_RESULTS.get(hit.group(1).lower(), "") or _warned(name, hit.group(1), (), ())
        results.word("dcgm_test", hit.group(1), f"{whom} {name}".strip(), line, verdict)
        return name
    if not name and entity and test:
        subject = f"{entity.group(1).lower()} {int(entity.group(2))} {test}"
        verdict = DCGM_RESULTS.get(entity.group(3).lower(), "") or _warned(test, entity.group(3), (), ())
        results.word("dcgm_test", entity.group(3), subject, line, verdict)
    return test


def _whom(text: str) -> str:
    """`GPUs: 0, 1` or `All` as a subject."""
    _, colon, gpus = text.partition(":")
    words: List[str] = gpus.split() if colon else []
    return f"gpu {' '.join(words)}" if words else ""


_TEST = re.compile(r"(PASS|FAIL|ERROR|ABORT|SKIP): {1,4}([\w.-]{1,80})(?:\s.{0,300})?")
_COUNTS = re.compile(r"Tests: {1,4}([0-9]{1,9}) Total, ([0-9]{1,9}) Executed, ([0-9]{1,9}) Skipped.{0,200}")
_END = re.compile(r"Program exiting with return code (AGFHC_\w{1,60}) \[(-?[0-9]{1,9})\]")
_MODE = re.compile(r"Product: (.{1,60}?) \| GPUs: ([0-9]{1,4}) \| Mode: \w{1,10} ([A-Z]{3}) (NPS[0-9])\b.{0,100}")
AGFHC_RESULTS = {"PASS": "pass", "FAIL": "fail"}
"""A test that ended in an error or was aborted says nothing of the hardware."""


class _AgfhcRun:
    """What is known while the lines go by."""

    def __init__(self) -> None:
        self.results = ToolReadings()
        self.executed = 0.0
        self.ended = False

    def line(self, stripped: str, line: str) -> None:
        """One line."""
        test, counts, end = _TEST.fullmatch(stripped), _COUNTS.fullmatch(stripped), _END.fullmatch(stripped)
        mode = _MODE.fullmatch(stripped)
        if test:
            self.results.word("agfhc_test", test.group(1), test.group(2), line, AGFHC_RESULTS.get(test.group(1), ""))
            if test.group(1) not in AGFHC_RESULTS:
                self.results.note(f"{test.group(2)} gave no verdict: {test.group(1)}")
        elif counts:
            self.executed = amount(counts.group(2)) or 0.0
            self.results.figure("agfhc_tests_executed", self.executed, "count", "", line)
            self.results.figure("agfhc_tests_skipped", amount(counts.group(3)), "count", "", line)
            if (amount(counts.group(3)) or 0.0) > 0:
                self.results.note(f"{counts.group(3)} tests were skipped")
        elif end:
            self._end(end.group(1), line)
        elif mode:
            self.results.word("product_name", mode.group(1), "", line)
            self.results.figure("gpu_count", amount(mode.group(2)), "count", "", line)
            self.results.word("compute_partition", mode.group(3), "", line)
            self.results.word("memory_partition", mode.group(4), "", line)
        elif "agfhc version:" in stripped[:40].lower():
            self.results.version = stripped.partition(":")[2].strip()[:40]

    def _end(self, code: str, line: str) -> None:
        self.ended = True
        success = code == "AGFHC_SUCCESS"
        self.results.word("agfhc_result", code, "", line, "pass" if success and self.executed else "")
        if not success:
            self.results.note(f"the program ended with {code}")
        elif not self.executed:
            self.results.note("no test was executed")


def parse_agfhc(text: str) -> ParsedOutput:
    """Readings `agfhc_test` by the test's name, counts, and `agfhc_result`: pass only where tests were executed."""
    lines, cut = whole_lines(text)
    run = _AgfhcRun()
    for line in lines:
        run.line(line.strip(), line)
    missing = "" if run.ended else "the line with the return code is missing"
    return close_readings(run.results, "AGFHC", text, cut, missing)


_RVS_RESULT = re.compile(r"\[RESULT\] ?\[ {0,8}[0-9]{1,12}\.[0-9]{1,9} {0,6}\] {0,4}(.{1,1000})")
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


class _RvsRun:
    """What is known while the lines go by."""

    def __init__(self) -> None:
        self.results = ToolReadings()
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
            self.results.word("rvs_power_test", done.group(1), subject, line, said)
            if subject in self.power:
                self.results.figure("power_peak", self.power[subject][0], "W", subject, self.power[subject][1])
        elif rest.startswith(("Start of", "GFLOPS", "End of")):
            self.open[subject] = None

    def _gemm(self, action: str, subject: str, gigaflops: str, said: str, line: str) -> None:
        kind = _TYPES.search(action.lower())
        name = f"{NAMES.get(kind.group(1), kind.group(1))}_gemm" if kind else "gemm"
        value = amount(gigaflops)
        self.results.figure(name, None if value is None else scale(value, 1e-3), "TFLOP/s", subject, line, said)

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
        self.results.figure(quantity, amount(value), "GB/s", f"{pair} {action}", line)

    def _other(self, action: str, rest: str, line: str) -> None:
        memory, speed, peqt, monitor = (one.fullmatch(rest) for one in (_MEM, _MEM_BANDWIDTH, _PEQT, _GM))
        if memory:
            self.results.word(
                "rvs_memory_test", memory.group(2), f"{action} test {memory.group(1)}", line, memory.group(2).lower()
            )
        elif speed:
            subject = f"{action} test {speed.group(1)}"
            self.results.figure("hbm_bandwidth", amount(speed.group(2)), "GB/s", subject, line)
        elif peqt:
            said = "pass" if peqt.group(1) == "true" else "fail"
            self.results.word("rvs_pcie_test", peqt.group(1), action, line, said)
        elif monitor:
            subject = f"gpu {monitor.group(1)} {monitor.group(2)}"
            self.results.figure("rvs_violations", amount(monitor.group(3)), "count", subject, line)

    def missing(self) -> str:
        """Which results should be there."""
        if not self.open:
            return ""
        first: List[str] = list(self.open)[:1]
        return f"{len(self.open)} tests have no result, the first of them {first[0]}"


def parse_rvs(text: str) -> ParsedOutput:
    """Readings by `gpu <id> <action>`: `fp8_gemm` … (TFLOP/s), `power_peak` (W), bandwidths (GB/s), tests as words.

    The ids are the driver's, not indices. RVS prints no end: an action that was not begun is not missed.
    """
    lines, cut = whole_lines(text)
    run = _RvsRun()
    for line in lines:
        stripped = line.strip()
        result = _RVS_RESULT.fullmatch(stripped)
        action = _ACTION.fullmatch(result.group(1)) if result else None
        babel = _BABEL.fullmatch(stripped) if result is None else None
        if action:
            run.action(action.group(1), action.group(2).strip(), line)
        elif babel:
            value = amount(babel.group(2))
            speed = None if value is None else scale(value, 1e-3)
            run.results.figure("hbm_bandwidth", speed, "GB/s", babel.group(1).lower(), line)
        elif "(version " in stripped[:60] and "ROCm Validation Suite" in stripped[:60]:
            run.results.version = stripped.partition("(version ")[2].partition(")")[0][:40]
    missing = run.missing()
    if missing and not run.results.readings:
        run.results.note(missing)
    return close_readings(run.results, "rvs", text, cut, missing)
