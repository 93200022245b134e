"""The diagnostic of a node's GPUs, levels 1 to 4: DCGM on NVIDIA, AGFHC or RVS on AMD.

What it only warns of is told with a pass. A list of words says which of its failures make a node unfit (EVICT).
"""

from __future__ import annotations

import re
import shutil
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from workflows.programs.health.gpu_checks import (
    NO_GPU,
    SMI_SECONDS,
    Gpus,
    Tools,
    by_gpu,
    flagged,
    judge_devices,
    tool_of,
)
from workflows.programs.health.results import Result
from workflows.programs.parsers.text import ParsedOutput, Reading
from workflows.programs.probes.call import Call
from workflows.programs.probes.verdicts import FAIL, PASS, UNKNOWN

DEADLINES: Mapping[int, float] = {1: 120.0, 2: 420.0, 3: 2700.0, 4: 10800.0}
"""DCGM says: seconds, 2 min, 15 min, 1 to 2 h; half as much again and more, for many GPUs."""
FATAL: Tuple[str, ...] = ("PCIe", "NVLink", "ECC", "GPU Memory")
"""Autopilot's list: a failed test whose name holds one of them makes the node unfit."""
UNCORRECTED = ("ecc_uncorrectable", "ecc_deferred")
"""Errors of AMD's memories that nobody corrected: those that were read, and poison that nobody has read yet."""
_JUDGED = ("dcgm_test", "agfhc_test", "agfhc_result", "gpu_memory_test", "pcie_test")
_SUBJECT = re.compile(r"(gpu|cpu) ([0-9A-Za-z]{1,12}(?:[, ]{1,2}[0-9]{1,4})*)(?: (.{1,80}))?")


def dcgm(tools: Tools, node: str, level: int, paths: Sequence[str] = ()) -> Result:
    """The diagnostic of one level, from 1 (seconds) to 4 (hours).

    `paths` (`top.category.test`) limits which tests count; empty: all.
    """
    gpus = tools.gpus()
    if not gpus.vendor:
        return _answer(node, level, UNKNOWN, NO_GPU)
    call = call_of(gpus.vendor, level)
    if call is None:
        return _counters(tools, node, level, gpus)
    parsed = tools.call(call)
    wanted = {unified(one.rpartition(".")[2]) for one in paths}
    tests = [one for one in parsed.readings if one.said or one.quantity in _JUDGED]
    if wanted:
        tests = [one for one in tests if unified(tool_test_of(one)) in wanted]
        parsed = ParsedOutput(tuple(tests), parsed.unknown if not tests else _skipped(tests))
    return judge(node, level, tests, parsed.unknown)


def judge(node: str, level: int, tests: Sequence[Reading], unknown: str) -> Result:
    """Fail where one test failed; pass only where all of them passed and nothing is missing.

    What a diagnostic only warns of is told with a pass.
    """
    failed = [one for one in tests if one.said == "fail"]
    if failed:
        why = "; ".join(dict.fromkeys(_of_whom(one) for one in failed))
        return _answer(node, level, FAIL, why, failing(failed))
    neither = [one for one in tests if not one.said]
    if not tests:
        return _answer(node, level, UNKNOWN, unknown or "no test was reported")
    if neither or unknown:
        said = "; ".join(_of_whom(one) for one in neither[:4])
        return _answer(node, level, UNKNOWN, unknown or f"{len(neither)} of {len(tests)} tests did not pass: {said}")
    warned = [one for one in tests if one.word.startswith("Warn")]
    return _answer(node, level, PASS, "; ".join(dict.fromkeys(f"warning: {_of_whom(one)}" for one in warned)))


def _of_whom(one: Reading) -> str:
    """What a test said, with the GPUs that it said it of: `GPU 3: pcie: Fail`."""
    hit = _SUBJECT.fullmatch(one.subject)
    who = f"{hit.group(1).upper()} {', '.join(re.split(r'[, ]+', hit.group(2)))}: " if hit else ""
    return who + (one.line.strip() or one.subject)


def _skipped(tests: Sequence[Reading]) -> str:
    skipped = sum(one.word.startswith("Skip") for one in tests)
    return f"{skipped} of {len(tests)} results are of tests that were skipped" if skipped else ""


def call_of(vendor: str, level: int) -> Optional[Call]:
    """What runs this level; None where the vendor's counters stand for it."""
    seconds = DEADLINES[level]
    if vendor == "nvidia":
        command = ("dcgmi", "diag", "-j", "-r", str(level))
        return Call(0, command=command, parser="dcgm-diag", deadline_seconds=seconds)
    if level == 1:
        return None
    if shutil.which("agfhc"):
        return Call(0, command=("agfhc", "-r", f"all_lvl{level}"), parser="agfhc", deadline_seconds=seconds)
    return Call(0, command=("rvs", "-r", str(level)), parser="rvs", deadline_seconds=seconds)


def _counters(tools: Tools, node: str, level: int, gpus: Gpus) -> Result:
    """Level 1 on AMD: no memory error that nobody corrected or has read yet (its own suites take minutes of load)."""
    tool = tool_of(gpus.vendor)
    commands = {"amd-smi": ("amd-smi", "metric", "--ecc", "--json"), "rocm-smi": ("rocm-smi", "--showrasinfo", "all")}
    if not tool:
        return _answer(node, level, UNKNOWN, "amd-smi and rocm-smi are not installed in this image")
    parsed = tools.call(Call(0, command=commands[tool], parser=tool, deadline_seconds=SMI_SECONDS))
    devices, unknown = judge_devices(tools, parsed, gpus, UNCORRECTED, flagged)
    names = tools.places(parsed, gpus).names
    bad = {
        names.get(gpu, gpu): [one for one in readings if flagged(one)]
        for gpu, readings in by_gpu(parsed, UNCORRECTED).items()
        if any(map(flagged, readings))
    }
    lost = [one.identity for one in devices if one.lost]
    if bad or lost:
        why = [f"GPU {name}: {one.line.strip()}" for name, readings in bad.items() for one in readings]
        failed = [".".join(["ecc", *bad])] if bad else []
        failed += [".".join(["gpu_lost", *lost])] if lost else []
        return _answer(node, level, FAIL, "; ".join([*why, *([unknown] if lost else [])]), tuple(failed))
    return _answer(node, level, UNKNOWN if unknown or not devices else PASS, unknown)


def _answer(node: str, level: int, verdict: str, why: str, failed: Tuple[str, ...] = ()) -> Result:
    host = (f"Host {node}",) if verdict == FAIL else ()
    return Result("dcgm", verdict, why, (), host, "", level, failed)


def tool_test_of(one: Reading) -> str:
    """Name of the test that a reading is about."""
    hit = _SUBJECT.fullmatch(one.subject)
    return (hit.group(3) or one.quantity) if hit else one.subject or one.quantity


def failing(failed: Sequence[Reading]) -> Tuple[str, ...]:
    """Failed tests with their GPUs: `pcie.3`, `gpu_memory.0.5`."""
    found: Dict[str, List[str]] = {}
    for one in failed:
        hit = _SUBJECT.fullmatch(one.subject)
        gpus = re.split(r"[, ]+", hit.group(2)) if hit else []
        found.setdefault(unified(tool_test_of(one)), []).extend(gpus)
    return tuple(".".join([name, *dict.fromkeys(gpus)]) for name, gpus in found.items())


def unified(text: str) -> str:
    """Names as labels and lists write them: lower case, underscores."""
    return re.sub(r"[/|\s]+", "_", text.strip().lower())


def fatal_words(text: str) -> Tuple[str, ...]:
    """The words of `DCGM_FATAL_ERRORS`, with commas between them; empty: the usual list."""
    words = tuple(one.strip() for one in text.split(",") if one.strip())
    return words or FATAL


def is_fatal(failed: Sequence[str], words: Sequence[str]) -> bool:
    """Whether one of the failed tests makes the node unfit."""
    names = [one.partition(".")[0] for one in failed]
    return any(unified(word) in name for word in words for name in names)
