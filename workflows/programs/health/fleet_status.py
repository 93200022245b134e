"""`/status` of many nodes: each is asked for itself, side by side, and whoever does not answer is named.

Standard library only, Python 3.9. A node that is dead, unknown or silent costs its own line and a short time, never the
others' answers. Nodes still running Autopilot's own daemon are understood by their text.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, cast

from workflows.programs.health.diagnostic import DEADLINES
from workflows.programs.health.peers import LookupFailedError, Nodes, Peer, PeerResponse, by_node, fetch
from workflows.programs.health.query import NONE, Status, remote_query
from workflows.programs.health.results import (
    NodeAnswer,
    Report,
    away,
    node_block,
    report_to_json,
    statuses_in,
    summary,
)
from workflows.programs.probes.verdicts import UNKNOWN, worst
from workflows.programs.runtime.bounded import side_by_side

MOST_AT_ONCE = 128
"""Connections of one question at the same time, whatever `batch` says."""
ALIVE_SECONDS = 2.0
"""Within that a living daemon says that it lives; only then the question, which may take minutes, is put."""
USUAL_SECONDS = 240.0
"""For the periodic set: the tools' own deadlines one after the other."""

Fetch = Callable[[Peer, str, float, Mapping[str, str]], PeerResponse]


@dataclass(frozen=True)
class StatusQuery:
    """Whom a question means, and what was found out about that."""

    peers: Tuple[Peer, ...]
    """In the order of the answer; without an address where no daemon is known."""
    lines: Tuple[str, ...] = ()
    """Told at the beginning."""
    problems: Tuple[str, ...] = ()
    """Why perhaps not everybody was found."""


class Fleet:
    """Collects the status of several nodes; the own node answers through `local` instead of the network."""

    def __init__(
        self, own: str, nodes: Nodes, local: Callable[[Status], Report], token: str = "", ask: Fetch = fetch
    ) -> None:
        self._own, self._nodes, self._local = own, nodes, local
        self._token, self._ask = token, ask

    def select_peers(self, status: Status) -> StatusQuery:
        """Who is meant: names, the job's nodes and the label's nodes together."""
        lines: List[str] = []
        problems: List[str] = []
        wanted: Dict[str, None] = dict.fromkeys(status.named)
        try:
            known = by_node(self._nodes.peers())
        except LookupFailedError as error:
            known = {}
            problems.append(f"Nodes could not be listed: {error} - ABORT.")
        if status.job != NONE:
            namespace, _, selector = status.job.partition(":")
            lines.append(f"Workload: {namespace}: {selector}")
            found = _asked_for(lambda: self._nodes.of_job(status.job), problems)
            if found == ():
                problems.append(f"No workload labeled with {selector} - ABORT.")
            wanted.update(dict.fromkeys(found or ()))
        if status.nodelabel != NONE:
            found = _asked_for(lambda: self._nodes.labelled(status.nodelabel), problems)
            if found == ():
                problems.append(f"No node is labeled with {status.nodelabel} - ABORT.")
            wanted.update(dict.fromkeys(found or ()))
        names = list(known) if status.everywhere else list(wanted)
        return StatusQuery(
            tuple(known.get(name) or Peer(name, "") for name in names), (*lines, *problems), tuple(problems)
        )

    def ask_all(self, status: Status, peers: Sequence[Peer]) -> List[NodeAnswer]:
        """Everybody's answer, in their order."""
        at_once = min(status.batch or len(peers), MOST_AT_ONCE)
        return side_by_side([partial(self._one, status, peer) for peer in peers], at_once)

    def _one(self, status: Status, peer: Peer) -> NodeAnswer:
        path = remote_query(status, peer.node)
        if peer.node == self._own:
            report = self._local(status)
            return _typed(peer, path, report_to_json(report))
        if not peer.host:
            return away(peer.node, "unknown", path, f"no running daemon of node {peer.node} is known")
        headers = {"Accept": "application/json"}
        if self._token and status.works():
            headers["Authorization"] = f"Bearer {self._token}"
        try:
            self._ask(peer, "/healthz", ALIVE_SECONDS, {})  # whatever it says: it lives
            return _answer(peer, path, self._ask(peer, path, seconds_for(status), headers))
        except OSError as error:
            return away(peer.node, peer.host, peer.url + path, f"{peer.host}:{peer.port}: {error}")


def seconds_for(status: Status) -> float:
    """How long one node may need for its answer."""
    return USUAL_SECONDS + (DEADLINES[status.level] if "dcgm" in status.checks and status.level > 1 else 0.0)


def _asked_for(look: Callable[[], Tuple[str, ...]], problems: List[str]) -> Optional[Tuple[str, ...]]:
    """Names, or None where nobody could tell."""
    try:
        return look()
    except LookupFailedError as error:
        problems.append(f"{error} - ABORT.")
        return None


def _answer(peer: Peer, path: str, fetched: PeerResponse) -> NodeAnswer:
    url = peer.url + path
    if fetched.status != 200:
        return away(peer.node, peer.host, url, f"it refused with {fetched.status}: {fetched.text[:200]}")
    if not fetched.kind.startswith("application/json"):
        return NodeAnswer(peer.node, peer.host, url, fetched.text, tuple(statuses_in(fetched.text)))
    try:
        response: Any = json.loads(fetched.text)
    except ValueError:
        response = None
    if not isinstance(response, dict) or "text" not in response:
        return away(peer.node, peer.host, url, "its answer cannot be read")
    report = cast("Dict[str, Any]", response)
    if report.get("node") != peer.node:
        return away(peer.node, peer.host, url, f"{str(report.get('node'))[:80]} answers there")
    return _typed(peer, path, report)


def _typed(peer: Peer, path: str, report: Mapping[str, Any]) -> NodeAnswer:
    text = str(report["text"])
    return NodeAnswer(peer.node, peer.host, peer.url + path, text, tuple(statuses_in(text)), "", report)


def text_of_all(status: Status, request: StatusQuery, answers: Sequence[NodeAnswer], seconds: float) -> str:
    """The answer in Autopilot's words."""
    hosts = ",".join(status.hosts)
    lines = [f"Asking to run on remote node(s) {hosts} or with node label {status.nodelabel}", "", *request.lines]
    lines += [f"Initiated connection to ['{one.url}']." for one in answers]
    return "\n".join(lines) + "\n" + "".join(node_block(one) for one in answers) + summary(answers, seconds)


def json_of_all(request: StatusQuery, answers: Sequence[NodeAnswer], seconds: float) -> Dict[str, Any]:
    """The typed answer."""
    verdicts = [*(one.verdict for one in answers), *([UNKNOWN] if request.problems else [])]
    return {
        "verdict": worst(verdicts),
        "seconds": round(seconds, 3),
        "problems": list(request.problems),
        "nodes": [
            {
                "node": one.node,
                "host": one.host,
                "url": one.url,
                "verdict": one.verdict,
                "statuses": list(one.statuses),
                "why": one.why,
                "report": one.report,
            }
            for one in answers
        ],
    }
