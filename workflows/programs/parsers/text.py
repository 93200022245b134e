"""What all parsers of tools' output share: whole lines, strict figures, JSON documents, readings, a table of refusals.

Two rules make a truncated text harmless. A line counts only when its end was printed, so pass the text as printed, with
its last line end; and a reading depends only on lines above it, so a shorter text gives fewer readings, never other
ones. Of JSON the first document of the text is read, completely or not at all, and only real figures in it. Readings
are figures and words with their units, which nobody has judged yet.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Tuple, cast

EVIDENCE_CHARACTERS = 400
"""A longer line is cut: readings travel as an output parameter."""


@dataclass(frozen=True)
class Reading:
    """One thing that was told."""

    quantity: str
    """What it is, in the words of `profiles/suites`: `hbm_bandwidth`, `ecc_uncorrectable`, `driver_version`."""
    value: Optional[float] = None
    """The figure, in `unit`; None where a word was told, or no figure."""
    unit: str = ""
    subject: str = ""
    """Whom it is about: `gpu 3`, `gpu 0 -> gpu 1`, `mlx5_0/1`, `eth0`, `/data`; "": the node."""
    word: str = ""
    """What was told where it is no figure: a version, a state."""
    said: str = ""
    """`pass` or `fail` where the tool judged by itself; "" where it did not."""
    line: str = ""
    """The line that says so."""


@dataclass(frozen=True)
class ParsedOutput:
    """What a text told."""

    readings: Tuple[Reading, ...] = ()
    unknown: str = ""
    """Why not everything is known: nothing was printed, it broke off, it is another tool's, it says that it could not.

    Never "" where `readings` is empty. With readings beside it: these are known, others are missing.
    """
    version: str = ""
    """The tool's own version, as far as it was printed."""


LINE_CHARACTERS = 16384
"""No tool prints longer lines for people (fio's terse lines have about 1,000); longer ones are left out."""
SUBJECT_CHARACTERS = 160
"""A GPU, an action's name and a route; longer ones are cut."""
DIGITS = 18
"""More digits are a counter that says "not available" in its own way (2**63, 2**64 - 1), never a figure."""

_FIGURE = re.compile(r"[+-]?(?:[0-9]{1,18}(?:\.[0-9]{0,18})?|\.[0-9]{1,18})(?:[eE][+-]?[0-9]{1,3})?")
_MEASURE = re.compile(r"(\S{1,40}?) ?([A-Za-z%\u00b0\u00b5][A-Za-z0-9%/\u00b0.^-]{0,15})?")

NO_FIGURES = frozenset(
    (
        *("", "-", "--", "n/a", "[n/a]", "na", "nan", "-nan", "none", "null", "inf", "-inf", "unknown"),
        *("not supported", "[not supported]", "<<<not_supported>>>", "not available", "[not available]"),
        *("[insufficient permissions]", "requested functionality has been deprecated"),
        *("(pending)", "(not measured)"),
    )
)
"""What tools print where they have no figure, in lower case."""
NOT_APPLICABLE = "not applicable"
"""The word of a reading that a model of GPU cannot have (`gpu_models`): it passes."""

UNITS: Mapping[str, Tuple[str, float]] = {
    "W": ("W", 1.0),
    "mW": ("W", 1e-3),
    "C": ("degC", 1.0),
    "\u00b0C": ("degC", 1.0),
    "MHz": ("MHz", 1.0),
    "Mhz": ("MHz", 1.0),
    "GHz": ("MHz", 1e3),
    "%": ("%", 1.0),
    "GT/s": ("GT/s", 1.0),
    "B": ("GiB", 2.0**-30),
    "KiB": ("GiB", 2.0**-20),
    "MiB": ("GiB", 2.0**-10),
    "MB": ("GiB", 2.0**-10),
    "GiB": ("GiB", 1.0),
    "GB/s": ("GB/s", 1.0),
    "GBps": ("GB/s", 1.0),
    "MB/s": ("GB/s", 1e-3),
    "MiB/s": ("GB/s", 1.048576e-3),
    "Gb/s": ("Gb/s", 1.0),
    "Gbps": ("Gb/s", 1.0),
    "Mb/s": ("Gb/s", 1e-3),
    "Kbits/sec": ("Gb/s", 1e-6),
    "Mbits/sec": ("Gb/s", 1e-3),
    "Gbits/sec": ("Gb/s", 1.0),
    "Tbits/sec": ("Gb/s", 1e3),
    "bits/sec": ("Gb/s", 1e-9),
    "x": ("count", 1.0),
    "bank(s)": ("count", 1.0),
    "ns": ("us", 1e-3),
    "us": ("us", 1.0),
    "ms": ("ms", 1.0),
    "s": ("s", 1.0),
    "seconds": ("s", 1.0),
}
"""A printed unit -> (ours, factor). Sizes of memory become GiB; AMD's tools print MB where they mean MiB."""

REFUSALS: Tuple[Tuple[str, str], ...] = (
    ("driver/library version mismatch", "the driver and its library are of different versions"),
    ("couldn't communicate with the nvidia driver", "the tool could not reach the driver"),
    ("failed to initialize nvml", "the driver's library did not start"),
    ("driver not initialized", "the driver is not loaded"),
    ("amdgpu not found in modules", "the driver is not loaded"),
    ("no devices were found", "the tool says that it found no devices"),
    ("no devices found", "the tool says that it found no devices"),
    ("no platform support for the detected gpu", "the tool says that it does not support this GPU, or found none"),
    ("no amd gpus specified", "the tool says that it found no devices"),
    ("no gpu detected", "the tool says that it found no devices"),
    ("no ib devices found", "the tool says that it found no devices"),
    ("gpu is lost", "a GPU no longer answers"),
    ("unable to determine the device handle", "a GPU no longer answers"),
    ("gpu requires reset", "a GPU waits for a reset"),
    ("insufficient permissions", "permission was denied"),
    ("permission denied", "permission was denied"),
    ("operation not permitted", "permission was denied"),
    ("access denied", "permission was denied"),
    ("command not found", "the tool is not installed"),
    ("no such file or directory", "the tool, or a file that it needs, is not there"),
    ("unable to establish a connection to the specified host", "the host engine does not answer"),
    ("cannot talk to daemon", "the time service does not answer"),
    ("failed to connect to bus", "the system's service manager does not answer"),
    ("system has not been booted with systemd", "the system's service manager does not answer"),
    ("unable to connect to server", "the other side does not answer"),
    ("couldn't connect to", "the other side does not answer"),
    ("unable to init the socket connection", "the other side does not answer"),
    ("the server is busy running a test", "the other side is busy"),
    ("completion with error", "the transfer ended in an error"),
    ("failed to modify qp", "the queue pair could not be set up"),
    ("name or service not known", "the name was not resolved"),
    ("temporary failure in name resolution", "the name was not resolved"),
    ("network is unreachable", "the network is unreachable"),
    ("failed to open netlink", "the kernel's interface to these devices does not answer"),
    ("test nccl failure", "the test ended in an error of the library"),
    ("test cuda failure", "the test ended in an error of the runtime"),
    ("test hip failure", "the test ended in an error of the runtime"),
    ("hip error", "the test ended in an error of the runtime"),
    ("cuda_error", "the test ended in an error of the runtime"),
    ("no json data to report", "the tool had nothing to report"),
    ("out of memory", "the tool ran out of memory"),
    ("segmentation fault", "the tool crashed"),
    ("core dumped", "the tool crashed"),
)
"""What a tool prints (in lower case) where it could not do its work -> why not everything is known."""


def whole_lines(text: str) -> Tuple[List[str], bool]:
    """(lines whose end was printed, whether a last one without its end was left out).

    Of a line that was drawn over by carriage returns only what stood there last counts.
    """
    lines = text.split("\n")
    rest = lines.pop()
    return [_shown(line) for line in lines if len(line) <= LINE_CHARACTERS], rest.strip() != ""


def _shown(line: str) -> str:
    line = line[:-1] if line.endswith("\r") else line
    return line.rpartition("\r")[2] if "\r" in line else line


def figure(text: str) -> Optional[float]:
    """The finite number that the whole text is; None: it is none, or has more digits than any figure."""
    stripped = text.strip()
    if _FIGURE.fullmatch(stripped) is None:
        return None
    value = float(stripped)
    return value if math.isfinite(value) else None


def amount(text: str) -> Optional[float]:
    """A figure that cannot be below zero."""
    value = figure(text)
    return value if value is not None and value >= 0 else None


def measure(text: str, unit: str = "") -> Optional[Tuple[float, str]]:
    """(value, our unit) of `67.03 W`, `16x`, `31 %`, `0`; None: no figure, or an unknown unit.

    `unit` is the one printed elsewhere, for texts without one; "" means a count.
    """
    hit = _MEASURE.fullmatch(text.strip()) if len(text) < 80 else None
    value = figure(hit.group(1)) if hit else None
    if hit is None or value is None:
        return None
    printed = hit.group(2) or unit
    if not printed:
        return value, "count"
    known = UNITS.get(printed)
    return (scale(value, known[1]), known[0]) if known else None


def scale(value: float, factor: float) -> float:
    """The product, without the dust that binary fractions leave behind the twelfth digit."""
    return float(f"{value * factor:.12g}")


def is_no_figure(text: str) -> bool:
    """Whether the tool says that it has no figure here."""
    return text.strip().lower() in NO_FIGURES


def is_absent(reading: Reading) -> bool:
    """Whether the reading says that the model has no such thing."""
    return reading.said == "pass" and reading.word == NOT_APPLICABLE


def evidence(line: str) -> str:
    """The line as a reading keeps it."""
    return line.strip()[:EVIDENCE_CHARACTERS]


class ToolReadings:
    """Readings of one text, in the order in which they were printed."""

    def __init__(self) -> None:
        self.readings: List[Reading] = []
        self.notes: List[str] = []
        self.version = ""

    def figure(self, quantity: str, value: Optional[float], unit: str, subject: str, line: str, said: str = "") -> bool:
        """Keep a figure; False, and nothing kept, where there is none."""
        if value is None:
            return False
        self.readings.append(Reading(quantity, value, unit, subject[:SUBJECT_CHARACTERS], "", said, evidence(line)))
        return True

    def word(self, quantity: str, word: str, subject: str, line: str, said: str = "") -> None:
        """Keep a word; an empty one says nothing."""
        if word.strip() and not is_no_figure(word):
            whom, what = subject[:SUBJECT_CHARACTERS], word.strip()[:EVIDENCE_CHARACTERS]
            self.readings.append(Reading(quantity, None, "", whom, what, said, evidence(line)))

    def flag(self, quantity: str, on: bool, word: str, subject: str, line: str) -> None:
        """Keep a state as 1 or 0, beside the tool's own word for it."""
        whom, what = subject[:SUBJECT_CHARACTERS], word.strip()[:EVIDENCE_CHARACTERS]
        self.readings.append(Reading(quantity, 1.0 if on else 0.0, "count", whom, what, "", evidence(line)))

    def absent(self, quantity: str, subject: str, line: str) -> None:
        """The tool has no figure here, because this model has no such thing: nothing is wrong, nothing is missing."""
        whom = subject[:SUBJECT_CHARACTERS]
        if not any((one.quantity, one.subject) == (quantity, whom) for one in self.readings):
            self.readings.append(Reading(quantity, None, "", whom, NOT_APPLICABLE, "pass", evidence(line)))

    def note(self, why: str) -> None:
        """Something is not known; each reason is told once."""
        if why not in self.notes:
            self.notes.append(why)

    def to_parsed(self) -> ParsedOutput:
        """What was told, with every reason why something is not known."""
        why = "; ".join(self.notes[:5])
        if not self.readings and not why:
            why = "no figure was printed"
        return ParsedOutput(tuple(self.readings), why, self.version)


def close_readings(results: ToolReadings, tool: str, text: str, cut: bool, missing_end: str = "") -> ParsedOutput:
    """The result of a parser of text, with the reasons why something is not known.

    `tool` names it where this is another tool's output; `text` is searched for refusals; `cut` says that the last line
    has no end, `missing_end` which part is missing at the end ("": none).
    """
    if not text.strip():
        results.note("nothing was printed")
        return results.to_parsed()
    refused = refusal(text)
    if refused:
        results.note(refused)
    if cut:
        results.note("the last line has no end: the text broke off")
    if results.readings and missing_end:
        results.note(f"{missing_end}: the text broke off")
    if not results.readings and not results.notes:
        results.note(f"this is not the output of {tool}")
    return results.to_parsed()


def refusal(text: str) -> str:
    """Why the tool could not do its work, by its own words; "": it does not say so."""
    lowered = text.lower()
    for printed, why in REFUSALS:
        if printed in lowered:
            return why
    return ""


_JSON_START = re.compile(r"^[ \t]*([\[{])[ \t]*(?:[\"\[{\]}]|\r?$)", re.MULTILINE)
FRACTION_CHARACTERS = 64
"""Longer than any double that a tool prints."""


def _integer(text: str) -> Optional[int]:
    return int(text) if len(text) <= DIGITS else None


def _fraction(text: str) -> Optional[float]:
    value = float(text) if len(text) <= FRACTION_CHARACTERS else math.inf
    return value if math.isfinite(value) else None


def _constant(_text: str) -> None:
    """NaN and Infinity are no figures."""


_DECODER = json.JSONDecoder(parse_int=_integer, parse_float=_fraction, parse_constant=_constant)


def looks_like_json(text: str) -> bool:
    """Whether a JSON document begins somewhere, perhaps below lines of warnings."""
    return _JSON_START.search(text) is not None


def document(text: str) -> Any:
    """The JSON document that the text holds, perhaps below lines of warnings; None: there is none, or it broke off.

    Only the first beginning counts: an object inside a broken-off document must not pass for the document.
    """
    start = _JSON_START.search(text)
    if start is None:
        return None
    try:
        return _DECODER.raw_decode(text, start.start(1))[0]
    except (ValueError, RecursionError):
        return None


def no_document(tool: str, text: str) -> ParsedOutput:
    """The answer where JSON was expected and none could be read."""
    results = ToolReadings()
    if looks_like_json(text):
        results.note("the JSON is broken off or damaged")
    return close_readings(results, tool, text, cut=False)


def as_mapping(value: Any) -> Dict[str, Any]:
    """The JSON object, or an empty one."""
    return cast("Dict[str, Any]", value) if isinstance(value, dict) else {}


def as_list(value: Any) -> List[Any]:
    """The JSON array, or an empty one."""
    return cast("List[Any]", value) if isinstance(value, list) else []


def number(value: Any) -> Optional[float]:
    """The figure that a JSON value is, also one in quotes."""
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return float(value) if math.isfinite(value) else None
    return figure(value) if isinstance(value, str) else None


def as_string(value: Any) -> str:
    """The JSON string, or an empty one."""
    return value if isinstance(value, str) else ""
