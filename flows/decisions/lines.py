"""Lines as programs print them, made comparable: colours, progress bars, launchers' prefixes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from workflows.evidence import NEVER_STARTED, Evidence, LogLine, PodFacts

_COLOUR = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_CTIME = r"(?:[A-Z][a-z]{2} ){2}[ \d]\d \d\d:\d\d:\d\d \d{4}"
_SERVICE = r"(?:worker|master|trainer|node|head|launcher)"
_PREFIXES = (
    re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:?\d\d):? (?:std(?:out|err) [FP] )?"),
    re.compile(r"^\[?(?:default|trainer|worker)[ _-]?(?P<rank>\d{1,7})(?:\|\d{1,4})?\]?: ?", re.IGNORECASE),
    re.compile(r"^\[?rank[ _-]?(?P<global>\d{1,7})\]?: ?", re.IGNORECASE),
    re.compile(
        r"^\[?rank[ _-]?(?P<global>\d{1,7}),? ?(?:on |@ ?|\()(?:the )?(?:host(?:name)?[ =:]{1,2}|node[ =:]{1,2})?"
        r"(?P<node>[A-Za-z][\w.-]{0,80}?)\)?\]?: ",
        re.IGNORECASE,
    ),
    re.compile(r"^\[(?P<node>[a-z][\w.-]{0,60}?\d[\w.-]{0,30}):(?P<rank>\d)\]:? "),
    re.compile(r"^\[rank: (?P<global>\d{1,7})\] "),
    re.compile(rf"^(?:{_CTIME})?\[\d{{1,4}},(?P<global>\d{{1,7}})\]<std(?:out|err)>: ?"),
    re.compile(r"^\[\d{1,4},mpirank:(?P<global>\d{1,7}),(?P<node>[\w.-]{1,80})\]<std(?:out|err)>: ?"),
    re.compile(r"^\((?:[\w.:<>()\- ]{1,80} )?pid=\d{1,9}(?:, ip=\[?(?P<node>[\w.:]{3,64}?)\]?)?\) ?"),
    re.compile(r"^\((?:raylet|gcs_server|autoscaler)(?:, ip=\[?(?P<node>[\w.:]{3,64}?)\]?)?\) "),
    re.compile(r"^\((?:head|worker\d{1,4}), rank=\d{1,5}, pid=\d{1,9}(?:, ip=(?P<node>[\w.:]{3,64}))?\) "),
    re.compile(r"^[A-Za-z][\w.-]{0,60}/\d{1,4} (?=\[(?:default|rank|trainer|worker))"),
    re.compile(r"^ {0,16}(?:\* \d{1,6} x|\|) (?=\[?rank)"),
    re.compile(r"^\[pod/[\w.-]{1,120}/[\w.-]{1,80}\] "),
    re.compile(rf"^(?P<node>[\w.-]{{0,60}}{_SERVICE}[\w.-]{{0,20}}[-._]\d{{1,4}}) {{1,30}}\| (?=\S)"),
)
"""Kubernetes, torchrun's `--tee`, PyTorch and our own launcher, Lightning, mpirun, SageMaker, Ray, SkyPilot, kubectl's
`--prefix`, docker compose, TorchX, programs that name host and rank; applied in turn, each at most twice. A `global`
rank is right whatever a file is named."""
_ANY_PREFIX = re.compile(
    rf"\d{{4}}-\d\d-\d\dT|(?i:\[?(?:default|trainer|worker|rank)[ _-]?\d{{1,7}}(?:\|\d{{1,4}})?\]?:)|"
    rf"(?i:\[?rank[ _-]?\d{{1,7}},? ?(?:on |@|\())|\[[a-z][\w.-]{{0,92}}:\d\]|[A-Za-z][\w.-]{{0,60}}/\d{{1,4}} \[|"
    rf"{_CTIME}\[\d| {{0,16}}(?:\* \d{{1,6}} x|\|) \[?rank|\[(?:rank:|\d{{1,4}},|pod/)|\(|"
    rf"[\w.-]{{0,60}}{_SERVICE}[\w.-]{{0,40}} {{1,30}}\|"
)
"""How each of them begins: most lines have none."""
_LABEL = re.compile(r"^ {0,6}(?P<rank>\d{1,6}): ")
"""srun's `--label`. A line whose rank is known already may begin with a number for other reasons."""
_DOCKER = '{"log":"'


def uncoloured(text: str) -> str:
    """The text without the codes that colour it on terminals."""
    return _COLOUR.sub("", text) if "\x1b" in text else text


def clean(line: LogLine) -> LogLine:
    """The line without colours, overwritten progress bars and launchers' prefixes; a rank named there is taken over."""
    text = uncoloured(_unwrapped(line.text[:8000])).rstrip("\r\n")
    if "\r" in text:
        text = text.rsplit("\r", 1)[-1]
    rank, node, text, named = _taken_off(line.rank, line.node, text)
    label = None if named or not text[:7].lstrip(" ")[:1].isdigit() else _LABEL.match(text)
    if label is not None and rank in (None, int(label["rank"])):
        rank, node, text, _ = _taken_off(int(label["rank"]), node, text[label.end() :])
    if len(text) == len(line.text) and rank == line.rank and node == line.node:
        return line  # making another one takes longer than all that was read
    return LogLine(text, line.source, rank, node, line.at, line.file, line.line)


def _taken_off(rank: int | None, node: str, text: str) -> tuple[int | None, str, str, bool]:
    """Rank and node as the prefixes of a text tell them, the text without them, and whether one named a rank."""
    named = False
    for prefix in _PREFIXES * 2 if _ANY_PREFIX.match(text) else ():
        hit = prefix.match(text)
        if hit is None:
            continue
        text, said = text[hit.end() :], hit.groupdict()
        node = node or said.get("node") or ""
        if said.get("global"):
            rank, named = int(said["global"]), True
        elif said.get("rank"):
            rank, named = (int(said["rank"]) if rank is None else rank), True
        if _ANY_PREFIX.match(text) is None:
            break
    return rank, node, text, named


def _unwrapped(text: str) -> str:
    """What a program printed, of a line of Docker's JSON files."""
    if not text.startswith(_DOCKER):
        return text
    try:
        log = json.loads(text).get("log")
    except ValueError:
        return text
    return log if isinstance(log, str) else text


TOLD_BY_RANKS = frozenset({"completed", "rank-failed", "told-to-stop"})
"""Ends of launchers whose detail says no more than the ends of the ranks."""


def gather(evidence: Evidence) -> tuple[LogLine, ...]:
    """Every line of the evidence, cleaned: those given, the ranks' last ones, and the workflow's message; no copies."""
    lines = list(evidence.lines)
    for termination in evidence.terminations:
        for end in termination.ranks:
            lines += (LogLine(x, "rank", end.rank, termination.node, None) for x in end.last_lines)
        if termination.detail and termination.reason not in TOLD_BY_RANKS:
            lines.append(LogLine(termination.detail, "launcher", None, termination.node, None))
    lines += (LogLine(pod.message, "event", None, pod.node) for pod in evidence.pods if _never_started(pod))
    if evidence.workflow_message:
        lines.append(LogLine(evidence.workflow_message, "event"))
    if evidence.detail:
        lines.append(LogLine(evidence.detail, "event"))
    return _without_copies(clean(line) for line in lines)


def _never_started(pod: PodFacts) -> bool:
    return pod.reason in NEVER_STARTED and bool(pod.message)


def by_stream(lines: Iterable[LogLine]) -> tuple[tuple[LogLine, ...], ...]:
    """Lines grouped by where they came from, the order within each kept."""
    streams: dict[tuple[str, str, int | None, str], list[LogLine]] = {}
    for line in lines:
        streams.setdefault((line.source, line.node, line.rank, line.file), []).append(line)
    return tuple(tuple(stream) for stream in streams.values())


def _without_copies(lines: Iterable[LogLine]) -> tuple[LogLine, ...]:
    """A rank's last lines usually stand in its log too: a copy without a time gives way to the one that has it."""
    lines = tuple(lines)
    timed = {(line.text, line.rank) for line in lines if line.at is not None or line.file}
    return tuple(x for x in lines if x.at is not None or x.file or (x.text, x.rank) not in timed)
