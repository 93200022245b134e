"""One look at many hosts: facts and clocks of all, then who reaches whom, over the same connections."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from pydantic import TypeAdapter, ValidationError

from tasks.embedded.engine.json_values import Json, as_list, as_map
from tasks.ssh.connections import Conversation, LookError, Target
from tasks.ssh.failures import short
from workflows.model.host_facts import Unread, parse_facts
from workflows.model.host_sight import HostSight, LookFailure, PeerReach
from workflows.programs.hosts.options import Options

MARGIN_SECONDS = 10.0
"""Beside what a host itself takes at most, for its answer."""
LISTEN_SECONDS = 15.0
REACH_SECONDS, REACH_SECONDS_OF_PEER = 30.0, 0.1
"""For a host to try all its peers: some rounds, and what each peer adds."""
MANY_DESCRIPTORS = 65536
"""Where the system sets no limit of its own: three for each of some thousand hosts, and as many again in reserve."""
ASKED, TOLD, TRIED = "is asked", "has told its facts", "has tried its peers"
GOES_WELL = (ASKED, TOLD, TRIED)
"""What is told of a host that answers."""
Tell = Callable[[str, str], None]
"""Host, and what it does now; or why nobody knows anything of it."""


@dataclass(frozen=True)
class Question:
    """What one host is asked."""

    target: Target
    options: Options
    address: str
    """Its own inside the cluster."""
    ports: tuple[int, ...]
    """At which it listens while others try to reach it."""


@dataclass(frozen=True)
class Pairing:
    """Who must reach whom."""

    ports: Callable[[str, str], tuple[int, ...]]
    """Source and target -> ports of the target."""
    mtu: int = 0
    """Bytes that every path must carry; 0: what each host's own interface does."""


@dataclass
class _Open:
    """A host that is connected."""

    question: Question
    talk: Conversation
    sight: HostSight
    ready: Json | None = None

    @property
    def name(self) -> str:
        return self.question.target.name


async def look_at(
    questions: Sequence[Question], at_once: int, pairing: Pairing | None, tell: Tell = lambda host, what: None
) -> dict[str, HostSight]:
    """Look at all hosts; every one of them has a sight afterwards, whatever it did.

    `at_once` hosts are connected and tell their facts at the same time. With `pairing` connections stay open until all
    pairs were tried: each takes three file descriptors, of which as many are taken as the system allows.
    """
    _many_descriptors()
    gate = asyncio.Semaphore(at_once)
    opened = [_Open(one, Conversation(one.target), HostSight(one.target.name)) for one in questions]
    try:
        await asyncio.gather(*(_look(one, gate, pairing is not None, tell) for one in opened))
        if pairing is not None:
            await _pairs([one for one in opened if one.sight.failure is None], pairing, tell)
    finally:
        await asyncio.gather(*(one.talk.close() for one in opened))
    return {one.name: one.sight for one in opened}


def _many_descriptors() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = hard if hard != resource.RLIM_INFINITY else max(soft, MANY_DESCRIPTORS)
    with contextlib.suppress(OSError, ValueError):  # else the few that there are must do
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


async def _look(one: _Open, gate: asyncio.Semaphore, stays: bool, tell: Tell) -> None:
    async with gate:
        tell(one.name, ASKED)
        try:
            await one.talk.open()
            clock = await one.talk.clock()
            options = one.question.options
            limit = 2 * options.seconds + MARGIN_SECONDS
            facts = parse_facts(await one.talk.facts(options.to_json(), limit))
        except LookError as error:
            await _failed(one, error, tell)
            return
        if isinstance(facts, Unread):
            await _failed(one, LookError(LookFailure.UNREADABLE, facts.why), tell)
            return
        one.sight = replace(one.sight, clock=clock, facts=facts)
        tell(one.name, TOLD)
        if not stays:
            await one.talk.close()


async def _failed(one: _Open, error: LookError, tell: Tell) -> None:
    one.sight = replace(one.sight, failure=error.kind, why=error.why)
    tell(one.name, error.why)
    await one.talk.close()


async def _pairs(hosts: list[_Open], pairing: Pairing, tell: Tell) -> None:
    """Let all listen, then all try each other."""
    nonce = secrets.token_hex(8)

    async def listen(one: _Open) -> None:
        try:
            asked = {"name": one.name, "address": one.question.address, "ports": one.question.ports, "nonce": nonce}
            one.ready = await one.talk.listen(asked, LISTEN_SECONDS)
            if "why" in one.ready and not one.ready.get("udp"):
                one.sight = replace(one.sight, reach=Unread(short(str(one.ready["why"]))))
        except LookError as error:
            one.sight = replace(one.sight, reach=Unread(error.why))

    await asyncio.gather(*map(listen, hosts))
    limit = REACH_SECONDS + REACH_SECONDS_OF_PEER * len(hosts)

    async def go(place: int, one: _Open) -> None:
        others = [*hosts[place + 1 :], *hosts[:place]]  # whoever comes after it first: nobody is asked by all at once
        peers = [_peer(peer, pairing.ports(one.name, peer.name)) for peer in others]
        asked = {"address": one.question.address, "nonce": nonce, "mtu": pairing.mtu, "peers": peers}
        try:
            reach = reach_from(await one.talk.go(asked, limit))
            one.sight = replace(one.sight, reach=reach)
            tell(one.name, TRIED)
        except LookError as error:
            one.sight = replace(one.sight, reach=Unread(error.why))

    able = [(place, one) for place, one in enumerate(hosts) if one.ready and one.ready.get("udp")]
    await asyncio.gather(*(go(place, one) for place, one in able))


def _peer(one: _Open, ports: tuple[int, ...]) -> Json:
    ready = one.ready or {}
    listening = [port for port in as_list(ready.get("listening")) if isinstance(port, int)]
    udp = ready.get("udp")
    return {
        "name": one.name,
        "address": one.question.address,
        "ports": ports,
        "ours": [port for port in ports if port in listening],
        "udp": udp if isinstance(udp, int) and 0 < udp < 65536 else 0,
    }


_PEERS: TypeAdapter[Mapping[str, PeerReach]] = TypeAdapter(dict[str, PeerReach])


def reach_from(told: Json) -> Mapping[str, PeerReach] | Unread:
    """What a host says of its peers."""
    if told.get("why"):
        return Unread(short(str(told["why"])))
    try:
        found = _PEERS.validate_python(as_map(told.get("peers")))
    except ValidationError as error:
        return Unread(f"its answer cannot be read: {short(str(error.errors()[0]['msg']))}")
    return {
        peer: replace(way, ports={port: short(word) for port, word in way.ports.items()}) for peer, way in found.items()
    }
