"""One call of a preflight: a probe of ours or a tool, in a process of its own that is ended hard where it hangs.

Standard library only, Python 3.9. Whatever becomes of the process, the answer is a `ParsedOutput`: nothing printed,
garbage, a time-out, a crash and a missing tool are unknown with their reason, never a pass.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Callable, Dict, List, Mapping, Tuple, cast

from workflows.programs.parsers.text import ParsedOutput, Reading
from workflows.programs.runtime.bounded import run_program
from workflows.programs.runtime.files import entry_path
from workflows.programs.runtime.flags import UsageError

LAST_CHARACTERS = 300
LIMIT_VARIABLE = "PRIMUS_PROBE_SECONDS"
"""Tells a probe how long it may live, so that it can say what it knows before it is killed."""

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
        found: Any = json.loads(text)
        if not isinstance(found, list):
            raise TypeError("it is something else")
        listed = [dict(one) for one in cast("List[Any]", found)]
        for one in listed:
            one.update(command=tuple(one["command"]), needs=tuple(one["needs"]))
        return tuple(Call(**one) for one in listed)
    except (ValueError, TypeError, KeyError) as error:
        raise UsageError(f"no list of calls: {error}") from error


def argv_of(call: Call, places: Mapping[str, str]) -> List[str]:
    """The command of a call, with the values of `places` for `{gpu}`, `{path}`, …."""
    if call.probe:
        arguments = {name: fill_places(text, places) for name, text in call.arguments.items()}
        own = [sys.executable, entry_path(), "probe-one"]
        return [*own, f"--name={call.probe}", f"--arguments={json.dumps(arguments, sort_keys=True)}"]
    return [fill_places(word, places) for word in call.command]


def fill_places(text: str, places: Mapping[str, str]) -> str:
    """`text` with what stands for its placeholders; an unknown one stays."""
    for name, value in places.items():
        text = text.replace("{" + name + "}", value)
    return text


def execute(call: Call, places: Mapping[str, str], seconds: float, parsers: Parsers) -> ParsedOutput:
    """Run a call once and parse its output; after `seconds` it is killed with everything it started."""
    environment = {**os.environ, LIMIT_VARIABLE: f"{seconds:.3f}"}
    ended = run_program(argv_of(call, places), seconds, name=call.title, environment=environment, apart=False)
    code, text = ended.code, ended.output
    if code is None:
        return ParsedOutput(unknown=f"{ended.problem}{_last(text)}")
    found = _read(call, text, parsers)
    if not found.readings and not found.unknown:
        return ParsedOutput(unknown=f"{call.title} gave no reading{_last(text)}")
    if code < 0:
        # Figures of a program that was killed may be those of half a measurement.
        return ParsedOutput(unknown=f"{call.title} was ended by signal {-code}{_last(text)}")
    if code and not found.readings:
        return ParsedOutput(
            unknown=f"{call.title} ended with {code}: {found.unknown}{_last(text)}", version=found.version
        )
    if code and not found.unknown:
        # It printed all that is expected and says that something went wrong: what it reported against the node counts.
        return replace(found, unknown=f"{call.title} ended with {code}{_last(text)}")
    return found


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
