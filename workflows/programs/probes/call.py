"""One call of a preflight: a probe of ours or a tool, in a process of its own that is ended hard where it hangs.

Standard library only, Python 3.9. Whatever becomes of the process, the answer is a `ParsedOutput`: nothing printed,
garbage, a time-out, a crash and a missing tool are unknown with their reason, never a pass.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass, field, replace
from typing import IO, Any, Callable, Dict, List, Mapping, Tuple

from workflows.programs.parsers.text import ParsedOutput, Reading
from workflows.programs.runtime.flags import UsageError

MOST_BYTES = 4 << 20
"""More output than that no tool has reason for; the rest is not read."""
LAST_CHARACTERS = 300
LIMIT_VARIABLE = "PRIMUS_PROBE_SECONDS"
"""Tells a probe how long it may live, so that it can say what it knows before it is killed."""
GRACE_SECONDS = 2.0
"""For a killed process to be gone; one that stays is the kernel's, and is left."""

Parsers = Mapping[str, Callable[[str], ParsedOutput]]


@dataclass(frozen=True)
class Call:
    """What is executed; checks with the same call share its readings."""

    number: int
    """Place in the plan: checks name it."""
    probe: str = ""
    arguments: Dict[str, str] = field(default_factory=lambda: {})
    command: Tuple[str, ...] = ()
    parser: str = ""
    attempts: int = 1
    deadline_seconds: float = 20.0
    """For all attempts together."""
    needs: Tuple[str, ...] = ()
    """What it must have for itself meanwhile."""

    @property
    def title(self) -> str:
        """Short, for reasons."""
        return self.probe or os.path.basename(self.command[0])


def to_json(calls: Tuple[Call, ...]) -> str:
    """The calls as one argument of the program."""
    return json.dumps([asdict(call) for call in calls], separators=(",", ":"), sort_keys=True)


def from_json(text: str) -> Tuple[Call, ...]:
    """The calls in `text`.

    Raises:
        UsageError: no list of calls.
    """
    try:
        listed: List[Dict[str, Any]] = json.loads(text)
        for one in listed:
            one.update(command=tuple(one["command"]), needs=tuple(one["needs"]))
        return tuple(Call(**one) for one in listed)
    except (ValueError, TypeError, KeyError) as error:
        raise UsageError(f"no list of calls: {error}") from error


def argv_of(call: Call, places: Mapping[str, str]) -> List[str]:
    """The command of a call, with the values of `places` for `{gpu}`, `{path}`, …."""
    if call.probe:
        arguments = {name: fill_places(text, places) for name, text in call.arguments.items()}
        own = (
            [sys.executable, os.path.abspath(sys.argv[0])]
            if sys.argv[0].endswith(".pyz")
            else [sys.executable, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "main.py")]
        )
        return [*own, "probe-one", f"--name={call.probe}", f"--arguments={json.dumps(arguments, sort_keys=True)}"]
    return [fill_places(word, places) for word in call.command]


def fill_places(text: str, places: Mapping[str, str]) -> str:
    """`text` with what stands for its placeholders; an unknown one stays."""
    for name, value in places.items():
        text = text.replace("{" + name + "}", value)
    return text


def execute(call: Call, places: Mapping[str, str], seconds: float, parsers: Parsers) -> ParsedOutput:
    """Run a call once and parse its output; after `seconds` it is killed with everything it started."""
    argv = argv_of(call, places)
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, LIMIT_VARIABLE: f"{seconds:.3f}"},
        )
    except OSError as error:
        return ParsedOutput(unknown=f"{argv[0]} cannot be started: {describe_start_error(error)}")
    text, in_time = _output(process, seconds)
    if not in_time:
        return ParsedOutput(unknown=f"{call.title} did not end within {seconds:g} s{_last(text)}")
    code = process.returncode
    found = _read(call, text, parsers)
    if not found.readings and not found.unknown:
        return ParsedOutput(unknown=f"{call.title} told nothing{_last(text)}")
    if code < 0:
        # Figures of a program that was killed may be those of half a measurement.
        return ParsedOutput(unknown=f"{call.title} was ended by signal {-code}{_last(text)}")
    if code and not found.readings:
        return ParsedOutput(
            unknown=f"{call.title} ended with {code}: {found.unknown}{_last(text)}", version=found.version
        )
    if code and not found.unknown:
        # It printed all that is expected and says that something went wrong: what it told against the node counts.
        return replace(found, unknown=f"{call.title} ended with {code}{_last(text)}")
    return found


def describe_start_error(error: OSError) -> str:
    """Why a program could not be started; where its file asks for capabilities that the pod dropped, what to do."""
    why = error.strerror or str(error)
    if error.errno != errno.EPERM:
        return why
    return f"{why}: its file may carry capabilities that this pod may not have; take them off in the image (setcap -r)"


def _read(call: Call, text: str, parsers: Parsers) -> ParsedOutput:
    if call.probe:
        return load_parsed(text)
    parser = parsers.get(call.parser)
    if parser is None:
        return ParsedOutput(unknown=f"these programs know no parser {call.parser!r}: use an image of the same version")
    try:
        return parser(text)
    except Exception as error:  # a parser is total; one that is not must not pass for a pass
        return ParsedOutput(unknown=f"the parser {call.parser} crashed: {type(error).__name__}: {error}")


def _output(process: "subprocess.Popen[bytes]", seconds: float) -> Tuple[str, bool]:
    """What it printed, and whether it ended by itself in time."""
    kept = bytearray()

    def read(stream: IO[bytes]) -> None:
        with stream:
            while block := os.read(stream.fileno(), 1 << 16):
                kept.extend(block[: max(0, MOST_BYTES - len(kept))])

    reader = threading.Thread(target=read, args=(process.stdout,), daemon=True)
    reader.start()
    in_time = _ends_within(process.pid, seconds)
    # Before it is fetched: its number is nobody else's until then. What it left behind ends with it.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(GRACE_SECONDS)
    reader.join(GRACE_SECONDS)  # whoever left its session may hold the pipe open: it is not waited for
    return bytes(kept).decode("utf-8", "replace"), in_time


def _ends_within(pid: int, seconds: float) -> bool:
    """Whether the process ends by itself in that time; it is not fetched."""
    deadline, pause = time.monotonic() + seconds, 0.001
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(pause, left))
        pause = min(0.05, 2 * pause)
    return True


def _last(text: str) -> str:
    output = " ".join(text.split())
    return f"; it said: {output[-LAST_CHARACTERS:]}" if output else ""


def dump_parsed(parsed: ParsedOutput) -> str:
    """What a probe prints: one line of JSON. Figures that are none (NaN, infinite) become words."""
    return json.dumps({"primus_probe": asdict(parsed)}, separators=(",", ":"), allow_nan=True)


def load_parsed(text: str) -> ParsedOutput:
    """What a probe printed: its last line that is one."""
    for line in reversed(text.splitlines()):
        if line.startswith('{"primus_probe"'):
            try:
                data = json.loads(line)["primus_probe"]
                readings = tuple(Reading(**one) for one in data["readings"])
                return ParsedOutput(readings, str(data["unknown"]), str(data["version"]))
            except (ValueError, TypeError, KeyError):
                break
    return ParsedOutput(unknown="the probe ended without an answer")
