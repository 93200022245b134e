"""File servers that stopped answering, and did not answer again."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from flows.decisions.clues import Clue
from flows.decisions.cues import Cue
from profiles.vocabulary import FaultClass
from workflows.evidence import LogLine

UNANSWERED_WEIGHT = 0.72
"""A client that still waits for its server when the log ends. Most such waits end well, but then the log says so."""

_AWAY = re.compile(
    r"nfs: server (?P<nfs>\S{1,120}) not responding, still trying|"
    r"Lustre: (?P<lustre>\S{1,120}): Connection to \S{1,120} .{0,80}was lost|"
    r"ceph: (?P<ceph>mds\d{1,4}) (?:hung|caps stale)|"
    r"CIFS: .{0,60}[Ss]erver (?P<cifs>\S{1,120}) has not responded"
)
_BACK = re.compile(
    r"nfs: server (?P<nfs>\S{1,120}) OK\b|Lustre: (?P<lustre>\S{1,120}): Connection restored|"
    r"ceph: (?P<ceph>mds\d{1,4}) (?:recovery completed|came back|caps renewed)|"
    r"CIFS: .{0,60}\b(?P<cifs>\S{1,120}) reconnected"
)
_WORDS = ("nfs: server", "lustre: ", "ceph: mds", "cifs: ")
_SAYS_SERVER = Cue(*_WORDS, of=(_AWAY, _BACK))


def unanswered(lines: Sequence[LogLine]) -> Iterator[Clue]:
    """Servers, or mounts, whose client was still waiting when the node's log ended."""
    waiting: dict[tuple[str, str, str], LogLine] = {}
    for line in _SAYS_SERVER.among(lines):
        if not any(word in line.text[:300].lower() for word in _WORDS):
            continue
        if (hit := _AWAY.search(line.text)) is not None:
            waiting.setdefault((line.node, line.file, _named(hit)), line)
        elif (hit := _BACK.search(line.text)) is not None:
            waiting.pop((line.node, line.file, _named(hit)), None)
    for line in waiting.values():
        yield Clue(
            FaultClass.STORAGE,
            UNANSWERED_WEIGHT,
            line.text[:400],
            "server-not-answering",
            node=line.node,
            at=line.at,
            file=line.file,
            line=line.line,
        )


def _named(hit: re.Match[str]) -> str:
    return next(name for name in hit.groups() if name)
