"""Reads `dcgmi diag`: JSON of DCGM 3 (`DCGM GPU Diagnostic`) and 4 (`DCGM Diagnostic`), and the table of both.

What DCGM says of a test is kept as it says it: Pass and Fail are its judgement, Skip and Warn are neither.
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, Mapping

from workflows.programs.readings import Parsed
from workflows.programs.tool_json import document, listing, looks_like_json, mapping, no_document, number, string
from workflows.programs.tool_text import Told, close, whole_lines

TOOL = "dcgmi diag"
ROOTS = ("DCGM Diagnostic", "DCGM GPU Diagnostic")
SAID: Mapping[str, str] = {"pass": "pass", "passed": "pass", "fail": "fail", "failed": "fail"}
SEVERITIES: Mapping[int, str] = {1: "monitor", 2: "isolate", 3: "unknown", 4: "triage", 5: "config", 6: "reset"}
"""DCGM 4's `error_severity`: `config` is a setting of the node, not its hardware."""
_ROW = re.compile(r"\|([^|]{1,60})\|([^|]{0,200})\|")
_RULE = re.compile(r"\+-{3,80}\+-{3,120}\+")
_RESULT = re.compile(r"(Pass|Fail|Skip|Warn|Warning)\b(?: - (.{1,80}))?")
_ENTITY = re.compile(r"(GPU|CPU) ?([0-9]{1,4}): (Pass|Fail|Skip|Warn)\b.{0,40}")
FACTS: Mapping[str, str] = {"DCGM Version": "dcgm_version", "Driver Version Detected": "driver_version"}


def parse(text: str) -> Parsed:
    """Readings `dcgm_test` (a word, and what DCGM says) with the subject `<gpu …> <test>`."""
    return _parse_json(text) if looks_like_json(text) else _parse_table(text)


def _parse_json(text: str) -> Parsed:
    data = mapping(document(text))
    root = next((mapping(data[name]) for name in ROOTS if name in data), None)
    if root is None:
        return no_document(TOOL, text)
    told = Told()
    metadata: Dict[str, Any] = {**root, **mapping(data.get("metadata"))}
    told.version = string(metadata.get("version"))
    told.word("driver_version", string(metadata.get("Driver Version Detected")), "", "Driver Version Detected")
    for category in listing(root.get("test_categories")):
        for test in listing(mapping(category).get("tests")):
            _json_test(told, mapping(test))
    for name in ("runtime_error", "Runtime Error"):
        if name in root:
            told.note(f"the diagnostic ended early: {str(root[name])[:120]}")
    _skipped(told)
    return told.parsed()


def _json_test(told: Told, test: Dict[str, Any]) -> None:
    name = string(test.get("name"))[:80]
    results = [mapping(one) for one in listing(test.get("results"))]
    if not results and "test_summary" in test:
        results = [mapping(test["test_summary"])]
    for result in results:
        status = string(result.get("status"))[:40]
        warnings = [_warning(one) for one in listing(result.get("warnings"))]
        severities = sorted({severity for one in listing(result.get("warnings")) if (severity := _severity(one))})
        word = ", ".join([status, *severities])
        line = "; ".join([f"{name}: {status}", *warnings])
        told.word("dcgm_test", word, f"{_who(result)} {name}".strip(), line, SAID.get(status.lower(), ""))


def _who(result: Dict[str, Any]) -> str:
    if "entity_id" in result:
        group = string(result.get("entity_group")).lower() or "gpu"
        identity = number(result["entity_id"])
        return f"{group} {int(identity)}" if identity is not None else group
    gpus = result.get("gpu_id", result.get("gpu_ids", ""))
    return f"gpu {str(gpus)[:60]}" if str(gpus) else ""


def _warning(one: Any) -> str:
    return string(one) or string(mapping(one).get("warning"))


def _severity(one: Any) -> str:
    severity = number(mapping(one).get("error_severity"))
    return SEVERITIES.get(int(severity), "") if severity is not None else ""


def _skipped(told: Told) -> None:
    skipped = sum(1 for one in told.readings if one.word.startswith("Skip"))
    if skipped:
        told.note(f"{skipped} of {len(told.readings)} results are of tests that were skipped")
    warned = next((one for one in told.readings if one.quantity == "dcgm_test" and one.word.startswith("Warn")), None)
    if warned is not None:
        told.note(f"DCGM neither passes nor fails {warned.subject}: {warned.line}"[:200])


def _parse_table(text: str) -> Parsed:
    lines, cut = whole_lines(text)
    told = Told()
    test = ""
    ended = False
    for line in lines:
        stripped = line.strip()
        row = _ROW.fullmatch(stripped)
        if stripped:
            ended = _RULE.fullmatch(stripped) is not None and bool(told.readings)
        if row is None:
            continue
        name, result = row.group(1).strip(), row.group(2).strip()
        kind, _, whom = name.partition(": ")
        if kind in ("Error", "Warning"):
            told.word(f"dcgm_{kind.lower()}", result, f"{whom.lower()} {test}".strip(), line)
        elif name in FACTS:
            told.version = result if name == "DCGM Version" else told.version
            told.word(FACTS[name], result, "", line)
        else:
            test = _table_test(told, name, result, test, line)
    _skipped(told)
    return close(told, TOOL, text, cut, "" if ended else "the last line of its table is missing")


def _table_test(told: Told, name: str, result: str, test: str, line: str) -> str:
    hit = _RESULT.match(result)
    entity = _ENTITY.fullmatch(result)
    if name and hit:
        whom = _whom(hit.group(2) or "")
        told.word("dcgm_test", hit.group(1), f"{whom} {name}".strip(), line, SAID.get(hit.group(1).lower(), ""))
        return name
    if not name and entity and test:
        subject = f"{entity.group(1).lower()} {int(entity.group(2))} {test}"
        told.word("dcgm_test", entity.group(3), subject, line, SAID.get(entity.group(3).lower(), ""))
    return test


def _whom(text: str) -> str:
    """`GPUs: 0, 1` or `All` as a subject."""
    _, colon, gpus = text.partition(":")
    words: List[str] = gpus.split() if colon else []
    return f"gpu {' '.join(words)}" if words else ""
