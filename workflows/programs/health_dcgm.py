"""The diagnostic of the node daemon, levels 1 to 4: DCGM on NVIDIA, AGFHC or RVS on AMD.

Standard library only, Python 3.9. Which failures make a node unfit (EVICT) is a list of words, each whole.
"""

from __future__ import annotations

import re
import shutil
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from workflows.programs.health_gpus import NO_GPU
from workflows.programs.health_tools import SMI_SECONDS, Gpus, Tools, by_gpu, flagged, judged, tool_of
from workflows.programs.health_words import FAIL, PASS, UNKNOWN, Result
from workflows.programs.probe_call import Call
from workflows.programs.readings import Parsed, Reading

DEADLINES: Mapping[int, float] = {1: 120.0, 2: 420.0, 3: 2700.0, 4: 10800.0}
"""DCGM says: seconds, 2 min, 15 min, 1 to 2 h; half as much again and more, for many GPUs."""
FATAL: Tuple[str, ...] = ("PCIe", "NVLink", "ECC", "GPU Memory")
"""Autopilot's list: a failed test whose name holds one of them makes the node unfit."""
_JUDGED = ("dcgm_test", "agfhc_test", "agfhc_result", "gpu_memory_test", "pcie_test")
_SUBJECT = re.compile(r"(gpu|cpu) ([0-9A-Za-z]{1,12}(?:[, ]{1,2}[0-9]{1,4})*)(?: (.{1,80}))?")


def dcgm(tools: Tools, node: str, level: int, paths: Sequence[str] = ()) -> Result:
    """The diagnostic of one level.

    Args:
        tools: what runs it.
        node: for the text.
        level: 1 (seconds) to 4 (hours).
        paths: `top.category.test`; only these tests count. Empty: all.
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
        parsed = Parsed(tuple(tests), parsed.unknown if not tests else _skipped(tests))
    return judge(node, level, tests, parsed.unknown)


def judge(node: str, level: int, tests: Sequence[Reading], unknown: str) -> Result:
    """Fail where one test failed; pass only where all of them passed and nothing is missing."""
    failed = [one for one in tests if one.said == "fail"]
    if failed:
        why = "; ".join(dict.fromkeys(one.line.strip() or one.subject for one in failed))
        return _answer(node, level, FAIL, why, failing(failed))
    neither = [one for one in tests if not one.said]
    if not tests:
        return _answer(node, level, UNKNOWN, unknown or "no test was told of")
    if neither or unknown:
        said = "; ".join(one.line.strip() for one in neither[:4])
        return _answer(node, level, UNKNOWN, unknown or f"{len(neither)} of {len(tests)} tests did not pass: {said}")
    return _answer(node, level, PASS, "")


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
    """Level 1 on AMD: no memory error that nobody corrected (its own suites begin at minutes of load)."""
    tool = tool_of(gpus.vendor)
    commands = {"amd-smi": ("amd-smi", "metric", "--ecc", "--json"), "rocm-smi": ("rocm-smi", "--showrasinfo", "all")}
    if not tool:
        return _answer(node, level, UNKNOWN, "amd-smi and rocm-smi are not installed in this image")
    parsed = tools.call(Call(0, command=commands[tool], parser=tool, deadline_seconds=SMI_SECONDS))
    devices, unknown = judged(parsed, gpus, ("ecc_uncorrectable",), flagged)
    bad = [
        (gpu, readings)
        for gpu, readings in by_gpu(parsed, ("ecc_uncorrectable",)).items()
        if any(map(flagged, readings))
    ]
    if bad:
        why = "; ".join(one.line.strip() for _, readings in bad for one in readings if flagged(one))
        return _answer(node, level, FAIL, why, ("ecc." + ".".join(gpu for gpu, _ in bad),))
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
