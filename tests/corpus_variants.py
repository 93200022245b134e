"""The same logs told differently: order of files, noise, colours, prefixes of launchers, stamps, one file for all."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from flows.decisions.diagnosis.files import place_of
from flows.decisions.diagnosis.matching import RULES
from flows.decisions.diagnosis.retractions import standing
from flows.decisions.diagnosis.steps import done, step_of
from profiles.vocabulary import FaultClass
from tests.corpus_cases import CorpusCase
from workflows.model.attempt import LogLine

Texts = tuple[str, ...]
Files = tuple[tuple[str, Texts], ...]
_ISO = re.compile(
    r"(?P<date>\d{4}-\d\d-\d\d)(?P<gap>[T _])(?P<clock>\d\d:\d\d:\d\d)(?P<fraction>[.,]\d{1,9})?"
    r"(?P<zone>Z|[+-]\d\d:?\d\d)?"
)
PREFIX_CHARACTERS = 40
"""A stamp further to the right belongs to a message with a notation of its own."""
SHARE = 0.2
"""Of the places between lines get noise."""
_INSIDE = re.compile(r'^\s|Traceback|During handling|The above exception|^frame #|File "')
"""Near these lines whatever follows would belong to a traceback or a list."""
_ANOTHER_ATTEMPT = re.compile(r"(?i)restart|requeue|resum|from scratch|from random")
PREFIXES: dict[str, Callable[[int], str]] = {
    "pytorch": lambda rank: f"[rank{rank}]: ",
    "torchrun": lambda rank: f"[default{rank}]:",
    "srun": lambda rank: f"{rank}: ",
    "mpirun": lambda rank: f"[1,{rank}]<stderr>: ",
    "ours": lambda rank: f"2025-03-01T10:00:00.123Z [rank{rank}]: ",
    "kubernetes": lambda rank: f"2025-03-01T10:00:00.123456789Z stderr F [rank{rank}]: ",
}


NOISY_LINES = tuple(
    text
    for text in (Path(__file__).parent / "noisy_lines.txt").read_text(encoding="utf-8").splitlines()
    if text and not text.startswith("## ")
)
"""What healthy programs, kernels and clusters print."""


def _noise() -> Texts:
    """Healthy lines that are neither steps nor ends, and take nothing back."""
    known = [rule.example for rule in RULES if rule.fault_class is FaultClass.NONE and not rule.origins]
    lines = [LogLine(text, "", None, "", None, "x", 1) for text in (*known, *NOISY_LINES)]
    quiet = [x for x in lines if step_of(x) is None and not done(x) and standing([x]) == standing(())]
    return tuple(x.text for x in quiet if x.text[:1] not in " [|" and not _ANOTHER_ATTEMPT.search(x.text))


NOISE = _noise()
KERNEL_NOISE = tuple(text.split("] ", 1)[1] for text in NOISY_LINES if re.match(r"\[ +\d+\.\d+\] (?!Lustre|nfs)", text))


def shuffled(case: CorpusCase, seed: int) -> CorpusCase:
    """The files in another order."""
    files = list(case.files)
    random.Random(seed).shuffle(files)
    return replace(case, files=tuple(files))


def noisy(case: CorpusCase, seed: int) -> CorpusCase:
    """Harmless lines before, after and between the lines of each file, not inside of tracebacks and lists."""
    source = random.Random(f"{case.name}{seed}")
    return replace(
        case,
        files=tuple(
            (name, tuple(_mixed(texts, source, place_of(name).source == "kernel"))) for name, texts in case.files
        ),
    )


def _mixed(texts: Texts, source: random.Random, kernel: bool) -> Iterator[str]:
    noise = KERNEL_NOISE if kernel else NOISE
    if not kernel:  # what stands before the first line of a boot makes it a reboot
        yield source.choice(noise)
    for number, text in enumerate(texts):
        yield text
        near = texts[max(0, number - 2) : number + 2]
        if not any(_INSIDE.match(other) for other in near) and source.random() < SHARE:
            yield source.choice(noise)
    if not any(_INSIDE.match(other) for other in texts[-3:]):
        yield source.choice(noise)


def coloured(case: CorpusCase) -> CorpusCase:
    """Every line in colour, as loggers on terminals print them."""
    colours = ("\x1b[31m", "\x1b[1;33m", "\x1b[0;36m", "\x1b[38;5;208m")
    return replace(
        case,
        files=tuple(
            (name, tuple(f"{colours[number % 4]}{text}\x1b[0m" if text else text for number, text in enumerate(texts)))
            for name, texts in case.files
        ),
    )


def ranks_of(case: CorpusCase) -> dict[int, str]:
    """Rank and name of the files that belong to one rank each; empty where two files are of one rank."""
    found = [(place_of(name).rank, name) for name, _ in case.files]
    named = {rank: name for rank, name in found if rank is not None}
    return named if len(named) == sum(rank is not None for rank, _ in found) else {}


def prefixed(case: CorpusCase, style: str) -> CorpusCase:
    """The rank in each line instead of in the file's name."""
    told = {name: rank for rank, name in ranks_of(case).items()}
    files = (
        (f"part-{chr(97 + number)}.log", tuple(_with_prefix(text, told[name], style) for text in texts))
        if name in told
        else (name, texts)
        for number, (name, texts) in enumerate(case.files)
    )
    return replace(case, files=tuple(files))


def interleaved(case: CorpusCase, style: str, seed: int) -> CorpusCase:
    """All ranks' lines in one file, each with its rank before it; the order within a rank stays."""
    told = ranks_of(case)
    texts = dict(case.files)
    waiting = {rank: [_with_prefix(text, rank, style) for text in texts[name]] for rank, name in sorted(told.items())}
    source = random.Random(f"{case.name}{seed}")
    mixed: list[str] = []
    while any(waiting.values()):
        rank = source.choice([rank for rank, rest in waiting.items() if rest])
        mixed += waiting[rank][:3]
        del waiting[rank][:3]
    others = tuple(item for item in case.files if item[0] not in told.values())
    return replace(case, files=(("train.log", tuple(mixed)), *others))


def _with_prefix(text: str, rank: int, style: str) -> str:
    bare = re.sub(rf"^\[rank{rank}\]: ?", "", text)
    return PREFIXES[style](rank) + bare if bare else bare


def moved(case: CorpusCase, hours: int) -> CorpusCase:
    """All stamps as clocks of another time zone show them, with the zone beside them where they named none."""
    shift = timedelta(hours=hours)

    def other(hit: re.Match[str]) -> str:
        at = datetime.fromisoformat(f"{hit['date']} {hit['clock']}") + shift
        date, clock = at.strftime("%Y-%m-%d %H:%M:%S").split()
        zone = "" if hit["zone"] is None else f"{'+' if hours >= 0 else '-'}{abs(hours):02}:00"
        return f"{date}{hit['gap']}{clock}{hit['fraction'] or ''}{zone}"

    return _restamped(case, other)


def restyled(case: CorpusCase, style: str) -> CorpusCase:
    """All ISO stamps in another notation."""

    def other(hit: re.Match[str]) -> str:
        if hit.start() > PREFIX_CHARACTERS:
            return hit[0]
        at = datetime.fromisoformat(f"{hit['date']} {hit['clock']}")
        fraction = (hit["fraction"] or "")[1:]
        if style == "american":
            return at.strftime("%m/%d/%Y %H:%M:%S")
        if style == "slashes":
            return at.strftime("%Y/%m/%d %H:%M:%S") + (f".{fraction}" if fraction else "")
        return at.strftime("%Y-%m-%dT%H:%M:%S") + (f".{fraction}" if fraction else "") + (hit["zone"] or "")

    return _restamped(case, other)


def _restamped(case: CorpusCase, other: Callable[[re.Match[str]], str]) -> CorpusCase:
    return replace(
        case, files=tuple((name, tuple(_ISO.sub(other, text) for text in texts)) for name, texts in case.files)
    )


def without(case: CorpusCase, dropped: frozenset[tuple[str, int]]) -> CorpusCase:
    """The files without those lines (name and number, from 1)."""
    return replace(
        case,
        files=tuple(
            (name, tuple(text for number, text in enumerate(texts, 1) if (name, number) not in dropped))
            for name, texts in case.files
        ),
    )
