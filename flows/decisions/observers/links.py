"""Links of network adapters that stay down, or that come and go. One that came up once is how machines boot."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from flows.decisions.clues import Clue
from flows.decisions.cues import Cue
from profiles.vocabulary import FaultClass
from workflows.evidence import LogLine

DOWN_WEIGHT = 0.65
"""The last word of a link is that it is down."""
FLAPS_WEIGHT = 0.5
"""It went down so often that it hurts, though it is up."""
FLAPS = 3
"""Times that a link must have gone down, until it counts although it came back."""
_DRIVER = (
    r"\b(?:mlx5_core|mlx4_core|mlx4_en|bnxt_en|ionic|ice|i40e|ixgbe|igb|irdma|ena|efa|gve|qede|hns3|cxgb4|tg3|hfi1|"
    r"mlx5_ib|infiniband|cxi_core|cxi\d{1,2}|igc|e1000e|be2net|bnx2x|enic|sfc|qedr)\b"
)
_BOND = r"bond\w{1,12}: \(?(?:slave )?(?P<slave>\S{1,24}?)\)?:? "
_LINK = re.compile(
    rf"(?:{_DRIVER} (?P<device>\S{{1,40}}):? (?:(?P<port>\S{{1,24}}?):? )?|{_BOND})"
    r".{0,40}?\b(?:(?P<down>(?i:link(?: is)? down)|Link DOWN|Lost carrier|link status definitely down|"
    r"logical state changed to PORT_DOWN)|"
    r"(?P<up>(?i:link(?: is)? up)|Link (?:ACTIVE|UP)|link status definitely up|logical state changed to PORT_ACTIVE))"
)
_SAYS_LINK = Cue("link down", "link is down", "lost carrier", "link status definitely", "port_down", "link up",
                 "link is up", "link active", "port_active", of=(_LINK,))  # fmt: skip


def down(lines: Sequence[LogLine]) -> Iterator[Clue]:
    """Links whose last word is that they are down, and links that went down again and again."""
    falls: dict[tuple[str, str, str], list[LogLine]] = {}
    up: dict[tuple[str, str, str], bool] = {}
    for line in _SAYS_LINK.among(lines):
        hit = _LINK.search(line.text[:400])
        if hit is None:
            continue
        name = hit["slave"] or f"{hit['device']} {hit['port'] or ''}"
        key = (line.file, line.node, name)
        if hit["down"]:
            falls.setdefault(key, []).append(line)
        up[key] = hit["down"] is None
    for key, fallen in falls.items():
        if up[key] and len(fallen) < FLAPS:
            continue
        last = fallen[-1]
        yield Clue(FaultClass.FABRIC, FLAPS_WEIGHT if up[key] else DOWN_WEIGHT, last.text[:400],
                   "link-flaps" if up[key] else "link-down", "node", last.node, last.rank, last.at,
                   supersedes=("collective_timeout", "nccl-unhandled"), file=last.file, line=last.line)  # fmt: skip
