"""What clients ask of the node daemon: every path's parameters read strictly, with Autopilot's names and defaults.

Pure; standard library only, Python 3.9. What is not known is ignored, as Autopilot does (older clients send
`serverspernode`, `clientsperiface`, `plane`, `source`); what is known and makes no sense is refused by its name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Dict, List, Mapping, Sequence, Tuple
from urllib.parse import parse_qsl, quote

from workflows.programs.health.peers import is_node_name
from workflows.programs.health.results import CHECKS, IPERF

QUERY_CHARACTERS = 65536
"""Names of a few thousand nodes."""
MOST_NODES = 5000
LEVELS = (1, 2, 3, 4)
"""Of the diagnostics: from seconds to hours."""
ALL, NONE = "all", "None"
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_KEY = r"([A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_SELECTOR = re.compile(_KEY + r"=([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")
WORK: Tuple[str, ...] = ("gpumem", "pvc", IPERF)
"""Checks that load the node, the network or the storage: who asks for them needs the token."""


class QueryError(ValueError):
    """A parameter that makes no sense; the message names it and says what would be right."""


@dataclass(frozen=True)
class Status:
    """What `/status` is asked for, and `/ping`."""

    hosts: Tuple[str, ...] = (ALL,)
    checks: Tuple[str, ...] = (ALL,)
    """As asked for, also names that nobody knows; `iperf` among them is taken out and stands in `iperf`."""
    iperf: bool = False
    batch: int = 0
    """Nodes asked at once; 0: as many as there are."""
    job: str = NONE
    nodelabel: str = NONE
    level: int = 1
    pingnodes: Tuple[str, ...] = (ALL,)

    @property
    def everywhere(self) -> bool:
        """Whether all nodes are meant: with a job or a label, `all` is no longer everything."""
        return ALL in self.hosts and self.job == NONE and self.nodelabel == NONE

    @property
    def named(self) -> Tuple[str, ...]:
        """Nodes asked for by name."""
        return tuple(one for one in self.hosts if one != ALL)

    def works(self) -> bool:
        """Whether answering it loads something: a token is needed."""
        return self.iperf or any(one in WORK for one in self.checks) or ("dcgm" in self.checks and self.level > 1)


def read_query(text: str) -> Dict[str, str]:
    """Parameters of a query string; the first value of each counts.

    Raises:
        QueryError: too long, or a control character in it.
    """
    if len(text) > QUERY_CHARACTERS:
        raise QueryError(f"the query has {len(text)} characters: at most {QUERY_CHARACTERS}")
    try:
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=64)
    except ValueError as error:
        raise QueryError("the query has more than 64 parameters") from error
    found: Dict[str, str] = {}
    for name, value in pairs:
        if any(ord(letter) < 32 or ord(letter) == 127 for letter in name + value):
            raise QueryError(f"{name[:40]!r}: holds a control character")
        found.setdefault(name, value.strip())
    return found


def status_from(query: Mapping[str, str]) -> Status:
    """What `/status` is asked for.

    Raises:
        QueryError: host, check, batch, job, nodelabel, r or pingnodes cannot be read.
    """
    checks = _words(query, "check", ALL)
    wrong = [one for one in checks if not re.fullmatch(r"[A-Za-z0-9_-]{1,40}", one)]
    if wrong:
        raise QueryError(f"check: {wrong[0][:40]!r} is no name of a check; known are {', '.join((*CHECKS, IPERF))}")
    iperf = IPERF in checks
    return Status(
        hosts=_nodes(query, "host"),
        checks=tuple(one for one in checks if one != IPERF),
        iperf=iperf,
        batch=whole(query, "batch", 0, 0, MOST_NODES),
        job=job_from(query),
        nodelabel=label_from(query),
        level=level_from(query),
        pingnodes=_nodes(query, "pingnodes"),
    )


def level_from(query: Mapping[str, str]) -> int:
    """`r`, level of the diagnostic."""
    return whole(query, "r", 1, LEVELS[0], LEVELS[-1])


def whole(query: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    """A whole number; the default where it is absent or empty.

    Raises:
        QueryError: something else, or out of its bounds.
    """
    text = query.get(name, "")
    if not text:
        return default
    if not re.fullmatch(r"[0-9]{1,9}", text) or not least <= int(text) <= most:
        raise QueryError(f"{name}: must be a whole number from {least} to {most}, got {text[:40]!r}")
    return int(text)


def job_from(query: Mapping[str, str]) -> str:
    """`job` as `namespace:key=value`; `None` where none is asked for."""
    text = query.get("job", "") or NONE
    namespace, colon, selector = text.partition(":")
    if text == NONE or (colon and _NAMESPACE.fullmatch(namespace) and _SELECTOR.fullmatch(selector)):
        return text
    raise QueryError(f"job: must be namespace:key=value, got {text[:80]!r}")


def label_from(query: Mapping[str, str]) -> str:
    """`nodelabel` as `key=value`; `None` where none is asked for."""
    text = query.get("nodelabel", "") or NONE
    if text == NONE or _SELECTOR.fullmatch(text):
        return text
    raise QueryError(f"nodelabel: must be key=value, got {text[:80]!r}")


def _words(query: Mapping[str, str], name: str, default: str) -> Tuple[str, ...]:
    words = [one.strip() for one in query.get(name, "").split(",") if one.strip()]
    return tuple(dict.fromkeys(words)) or (default,)


def _nodes(query: Mapping[str, str], name: str) -> Tuple[str, ...]:
    words = _words(query, name, ALL)
    wrong = [one for one in words if not is_node_name(one)]
    if wrong:
        raise QueryError(f"{name}: {wrong[0][:80]!r} is no name of a node; write names with commas between them")
    if len(words) > MOST_NODES:
        raise QueryError(f"{name}: names {len(words)} nodes; at most {MOST_NODES}")
    return words


def asked_checks(checks: Sequence[str], periodic: Sequence[str]) -> List[str]:
    """The checks to run, `all` replaced by the periodic set, each once."""
    listed: List[str] = []
    for one in checks:
        listed += list(periodic) if one == ALL else [one]
    return list(dict.fromkeys(listed))


def remote_query(status: Status, node: str) -> str:
    """Path and query that ask one node about itself."""
    text = f"/status?host={node}"
    if status.checks == (ALL,):
        return text
    text += "&check=" + ",".join(status.checks)
    if "ping" in status.checks:
        text += f"&job={quote(status.job, safe=':=/')}" if status.job != NONE else ""
        text += f"&nodelabel={quote(status.nodelabel, safe='=/')}" if status.nodelabel != NONE else ""
        # Always told: it says to the other daemon that the question is for it alone, whatever the job.
        text += f"&pingnodes={','.join(status.hosts)}"
    if "dcgm" in status.checks:
        text += f"&r={status.level}"
    return text


def duration_seconds(name: str, text: str) -> float:
    """Seconds of `90s`, `30m`, `1h`, `1d` or a bare number of seconds; 0 switches something off.

    Raises:
        QueryError: something else.
    """
    hit = re.fullmatch(r"([0-9]{1,7}(?:\.[0-9]{1,3})?)(s|m|h|d|)", text.strip())
    if hit is None:
        raise QueryError(f"{name}: write 90s, 30m, 1h or 1d, got {text[:40]!r}")
    return float(hit.group(1)) * {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}[hit.group(2)]
