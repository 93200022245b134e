"""All calls of a preflight on one node, at the same time as far as they do not disturb each other.

It measures and does not judge: peers and the node's own past are not known here. Every call is answered, if only with
the reason why nothing is known; the program always exits with 0, within its deadline.

    python3 programs.pyz probe --calls='[{"number":0,"probe":"cpu-gemm",...}]' --out-dir=/tmp/out
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import tempfile
import threading
import time
import zlib
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Dict, List, Mapping, Sequence, Tuple, Union

from workflows.programs.parsers.text import EVIDENCE_CHARACTERS, ParsedOutput, Reading
from workflows.programs.probes.call import Call, Parsers, execute, from_json
from workflows.programs.probes.node import STORAGE_VARIABLE
from workflows.programs.runtime import flags
from workflows.programs.runtime.bounded import outcomes
from workflows.programs.runtime.files import write_outputs

WHOLE_NODE = "node"
INFINIBAND = "/sys/class/infiniband"
LEAST_SECONDS = 0.2
"""With less than that left a call is not begun."""


@dataclass(frozen=True)
class Options(flags.Flags):
    """What is measured."""

    calls: str
    """JSON of the calls."""
    gpus: int = 0
    """GPUs that the node should have: `{gpu}` counts to there, whether they are there or not."""
    path: str = ""
    """Folder on the storage that is tested; `{path}` is an empty one of our own in it."""
    peer: str = ""
    """Address of the other node of a pair."""
    deadline_seconds: float = 30.0
    """For everything."""
    out_dir: str = ""
    """Folder for the output parameter `report`; empty: standard output only."""


def parsers() -> Parsers:
    """Parsers of tools' output, by name."""
    from workflows.programs.parsers.registry import PARSERS  # only where a tool is asked

    return PARSERS


def places_of(call: Call, gpus: int, nics: Sequence[str]) -> List[Dict[str, str]]:
    """What stands for `{gpu}` and `{nic}` in each execution of one attempt."""
    words = " ".join((*call.command, *call.arguments.values()))
    if "{gpu}" in words:
        return [{"gpu": str(index)} for index in range(gpus)]
    if "{nic}" in words:
        return [{"nic": nic} for nic in nics]
    return [{}]


def with_subject(parsed: ParsedOutput, places: Mapping[str, str]) -> ParsedOutput:
    """The readings with whom they are about, where the tool itself does not say: eight GPUs must not look like one."""
    subject = f"gpu {places['gpu']}" if "gpu" in places else places.get("nic", "")
    if not subject:
        return parsed
    own = (f"{one.subject} ".startswith(f"{subject} ") for one in parsed.readings)
    readings = tuple(
        one if is_own else replace(one, subject=f"{subject} {one.subject}".rstrip())
        for one, is_own in zip(parsed.readings, own)  # noqa: B905 - 3.10
    )
    return replace(parsed, readings=readings, unknown=f"{subject}: {parsed.unknown}" if parsed.unknown else "")


def join_parsed(parts: Sequence[ParsedOutput]) -> ParsedOutput:
    """Executions of one attempt as one answer: what one of them does not know is not known."""
    readings = tuple(reading for part in parts for reading in part.readings)
    unknown = "; ".join(part.unknown for part in parts if part.unknown)
    version = next((part.version for part in parts if part.version), "")
    return ParsedOutput(readings, unknown or ("" if readings else "no reading was given"), version)


class Node:
    """Makes the calls of one node."""

    def __init__(self, options: Options, nics: Sequence[str], tools: Parsers) -> None:
        self._options, self._nics, self._tools = options, nics, tools
        self._deadline = time.monotonic() + options.deadline_seconds
        self._free = threading.Semaphore(max(4, 2 * (os.cpu_count() or 1)))
        self._locks: Dict[str, threading.Lock] = {}
        self._answers: Dict[int, List[ParsedOutput]] = {}

    def make(self, calls: Sequence[Call]) -> Dict[int, List[ParsedOutput]]:
        """Answers of all calls, by number, an attempt each; one is always there."""
        self._locks = {need: threading.Lock() for call in calls for need in call.needs}
        beside = [call for call in calls if WHOLE_NODE not in call.needs]
        threads = [threading.Thread(target=self._beside, args=(call,), daemon=True) for call in beside]
        for call in calls:  # at first: what hangs later must not stand beside them
            if WHOLE_NODE in call.needs:
                self._attempts(call)
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, self._left()))
        late = [
            ParsedOutput(unknown=f"no answer within {self._options.deadline_seconds:g} s, the time for the whole node")
        ]
        return {call.number: list(self._answers.get(call.number, [])) or late for call in calls}

    def _left(self) -> float:
        return self._deadline - time.monotonic()

    def _beside(self, call: Call) -> None:
        held: List[threading.Lock] = []
        try:
            for need in sorted(call.needs):
                if not self._locks[need].acquire(timeout=max(0.0, self._left())):
                    return
                held.append(self._locks[need])
            if self._free.acquire(timeout=max(0.0, self._left())):
                try:
                    self._attempts(call)
                finally:
                    self._free.release()
        finally:
            for lock in held:
                lock.release()

    def _attempts(self, call: Call) -> None:
        ends = min(self._deadline, time.monotonic() + call.deadline_seconds)
        done = self._answers.setdefault(call.number, [])
        for _ in range(call.attempts):
            if ends - time.monotonic() < LEAST_SECONDS:
                done.append(ParsedOutput(unknown=f"no time was left for {call.title}"))
                return
            done.append(self._attempt(call, ends))

    def _attempt(self, call: Call, ends: float) -> ParsedOutput:
        places = places_of(call, self._options.gpus, self._nics)
        if not places:
            return ParsedOutput(unknown=f"{call.title}: there is no GPU or NIC to ask about")
        works = [partial(self._execute, call, one, ends) for one in places]
        found = outcomes(works, at_once=len(places) if "gpu" in places[0] else 1)
        return join_parsed([with_subject(one, place) for one, place in zip(map(_parsed, found), places)])  # noqa: B905 - 3.10

    def _execute(self, call: Call, places: Mapping[str, str], ends: float) -> ParsedOutput:
        with _folder(call, self._options.path) as path:
            words = {**places, "gpus": str(self._options.gpus), "path": path, "peer": self._options.peer}
            left = max(LEAST_SECONDS, ends - time.monotonic())
            return execute(call, words, left, self._tools if call.parser else {})


def _parsed(outcome: Union[ParsedOutput, Exception]) -> ParsedOutput:
    if isinstance(outcome, ParsedOutput):
        return outcome
    return ParsedOutput(unknown=f"the call was not made: {type(outcome).__name__}: {outcome}")


@contextlib.contextmanager
def _folder(call: Call, path: str):  # type: ignore[no-untyped-def]
    """An empty folder for calls that ask for one, gone afterwards."""
    if not any("{path}" in word for word in (*call.command, *call.arguments.values())):
        yield path
        return
    if path:
        os.makedirs(path, exist_ok=True)
    made = tempfile.mkdtemp(prefix=".preflight-", dir=path or None)
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def nics_of(folder: str = INFINIBAND) -> Tuple[str, ...]:
    """RDMA devices by name; none where there are none."""
    try:
        return tuple(sorted(os.listdir(folder)))
    except OSError:
        return ()


def pack_answers(answers: Mapping[int, Sequence[ParsedOutput]]) -> str:
    """The answers small enough for the status of a workflow that holds those of many nodes."""
    plain = {
        str(number): [
            {
                "r": [_short(reading) for reading in one.readings],
                "u": one.unknown[: 2 * EVIDENCE_CHARACTERS],
                "v": one.version,
            }
            for one in attempts
        ]
        for number, attempts in answers.items()
    }
    return base64.b85encode(zlib.compress(json.dumps(plain, separators=(",", ":")).encode(), 9)).decode()


def unpack_answers(text: str) -> Dict[int, List[ParsedOutput]]:
    """The answers in `text`.

    Raises:
        ValueError: it is something else, or broken.
    """
    try:
        plain = json.loads(zlib.decompress(base64.b85decode(text)))
        return {
            int(number): [
                ParsedOutput(tuple(Reading(*one) for one in item["r"]), item["u"], item["v"]) for item in attempts
            ]
            for number, attempts in plain.items()
        }
    except (zlib.error, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no answers of a preflight: {error}") from error


def _short(reading: Reading) -> List[object]:
    values = list(asdict(reading).values())
    values[-1] = reading.line[:EVIDENCE_CHARACTERS]
    while values and values[-1] == "":
        values.pop()
    return values


@flags.program("probe")
def main(argv: List[str]) -> int:
    """Measure and report."""
    options = flags.from_argv(Options, argv)
    calls = from_json(options.calls)
    node, began = os.environ.get("PRIMUS_NODE") or os.uname().nodename, time.time()
    if options.path:
        os.environ[STORAGE_VARIABLE] = options.path
    tools: Parsers = parsers() if any(call.parser for call in calls) else {}
    answers = Node(options, nics_of(), tools).make(calls)
    report = {"node": node, "at": began, "seconds": round(time.time() - began, 3), "answers": pack_answers(answers)}
    print(json.dumps(report, separators=(",", ":")), flush=True)
    return write_outputs("probe", options.out_dir, {"report": json.dumps(report)})
