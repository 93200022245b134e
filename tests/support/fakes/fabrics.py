"""A simulated fabric: nodes with rails under leaf switches, what is bad in it, what a collective over a group tells.

Every group with something bad in it is as slow as its slowest part, as a ring is. Nothing in here is known to the
product; `play` asks the product for groups until it answers, `score` holds the answer against the truth.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from random import Random

from flows.decisions.node_tests.fabric.knowledge import State
from flows.decisions.node_tests.fabric.model import Answer, Fabric, FabricFault, Floor, Group, Measurement, Node
from flows.decisions.node_tests.fabric.plan import next_round

GIGABYTES_PER_SECOND = 48.0
"""What a healthy rail of 400 Gbit/s carries."""
FLOOR = 0.85 * GIGABYTES_PER_SECOND


@dataclass(frozen=True)
class Fault:
    """Something bad: on which rails, how slow it is, how often it shows."""

    rails: tuple[int, ...]
    factor: float | None = 0.5
    """Of the full speed; None: whoever uses it hangs."""
    shows: float = 1.0
    """Share of measurements in which it is bad; below 1 it flaps."""
    one_way: bool = False
    """Of a link: two nodes alone always use both directions, a larger ring one of them, and chance decides which."""
    uplink: bool = False
    """Of a switch: only the way out of it."""


@dataclass(frozen=True)
class Noise:
    """What goes wrong in a measurement although nothing is bad."""

    spread: float = 0.0
    """Standard deviation of each rail's speed, as a share of it."""
    slow: float = 0.0
    """Share of measurements that are slow through somebody else's traffic."""
    hang: float = 0.0
    """Share that never answer."""


QUIET = Noise()
ORDINARY = Noise(spread=0.02, slow=0.01, hang=0.003)
ROUGH = Noise(spread=0.04, slow=0.05, hang=0.01)


@dataclass(frozen=True)
class World:
    """A fabric and everything that is bad in it."""

    fabric: Fabric
    nodes: dict[str, Fault]
    links: dict[tuple[str, str], Fault]
    switches: dict[str, Fault]
    everywhere: Fault | None = None
    """A bad rail, or with all rails a bad fabric."""
    noise: Noise = QUIET

    def under(self, switch: str) -> frozenset[str]:
        return frozenset(node.name for node in self.fabric.nodes if switch in node.switches)

    def faults(self, group: Group) -> Iterable[Fault]:
        """Those that this group meets."""
        members = set(group)
        yield from (fault for name, fault in self.nodes.items() if name in members)
        yield from (fault for ends, fault in self.links.items() if members.issuperset(ends))
        for switch, fault in self.switches.items():
            inside = members & self.under(switch)
            if inside and (len(inside) < len(members) or not fault.uplink):
                yield fault
        if self.everywhere is not None:
            yield self.everywhere

    def measure(self, group: Group, chance: Random) -> Measurement:
        speeds = [GIGABYTES_PER_SECOND] * self.fabric.rails
        for fault in self.faults(group):
            shows = fault.shows * (0.5 if fault.one_way and len(group) > 2 else 1.0)
            if shows < 1 and chance.random() >= shows:
                continue
            if fault.factor is None:
                return Measurement(group, None)
            for rail in fault.rails:
                speeds[rail] = min(speeds[rail], GIGABYTES_PER_SECOND * fault.factor)
        return self._disturbed(group, speeds, chance)

    def _disturbed(self, group: Group, speeds: list[float], chance: Random) -> Measurement:
        noise = self.noise
        if noise.hang and chance.random() < noise.hang:
            return Measurement(group, None)
        if noise.slow and chance.random() < noise.slow:
            slow = chance.uniform(0.3, 0.9)
            only = chance.randrange(2 * len(speeds))
            speeds = [speed * slow if only in (rail, *range(8, 16)) else speed for rail, speed in enumerate(speeds)]
        if noise.spread:
            speeds = [speed * min(1.05, chance.gauss(1.0, noise.spread)) for speed in speeds]
        return Measurement(group, tuple(speeds))


@dataclass(frozen=True)
class Played:
    """An answer and what it took."""

    answer: Answer
    state: State

    @property
    def node_rounds(self) -> int:
        return sum(len(measurement.group) for each in self.state.rounds for measurement in each)


def play(world: World, seed: int, look: Callable[[tuple[Group, ...]], None] = lambda _: None) -> Played:
    """Measure what the product asks for until it answers."""
    chance, state = Random(seed), State(world.fabric)
    while not isinstance(asked := next_round(state), Answer):
        look(asked)
        state = state.after(tuple(world.measure(group, chance) for group in asked))
    return Played(asked, state)


def leaf_spine(nodes: int, under: int, rails: int = 8) -> tuple[Node, ...]:
    """All cards of a node at one leaf switch, so many nodes at each."""
    return tuple(Node(f"n{number}", (f"leaf{number // under}",) * rails) for number in range(nodes))


def rail_optimised(nodes: int, under: int, rails: int = 8) -> tuple[Node, ...]:
    """Each card at a switch of its own rail, so many nodes at each."""
    return tuple(
        Node(f"n{number}", tuple(f"unit{number // under}-rail{rail}" for rail in range(rails)))
        for number in range(nodes)
    )


def untold(nodes: int) -> tuple[Node, ...]:
    """Nobody says which switch they hang at."""
    return tuple(Node(f"n{number}") for number in range(nodes))


def world_of(nodes: tuple[Node, ...], *, rails: int = 8, seed: int = 0, noise: Noise = QUIET) -> World:
    """A fabric in which nothing is bad."""
    fabric = Fabric(nodes, (Floor(2, FLOOR),), rails, seed)
    return World(fabric, {}, {}, {}, None, noise)


def drawn_rails(chance: Random, rails: int = 8) -> tuple[int, ...]:
    """All, or one of them."""
    return tuple(range(rails)) if chance.random() < 0.5 else (chance.randrange(rails),)


def drawn_fault(chance: Random, flaps: bool = False, share: float | None = None) -> Fault:
    """A slow or a silent one; one that flaps is bad in this share of the looks, or in one by chance."""
    factor = None if chance.random() < 0.3 else chance.uniform(0.1, 0.7)
    shows = chance.uniform(0.3, 0.9) if flaps else 1.0
    return Fault(drawn_rails(chance), factor, share if flaps and share is not None else shows)


def drawn_nodes(chance: Random, largest: int) -> tuple[Node, ...]:
    """A fabric of any kind and size."""
    count = chance.randint(4, largest)
    under = chance.choice((2, 4, 8, 16))
    return chance.choice(
        (lambda: leaf_spine(count, under), lambda: rail_optimised(count, under), lambda: untold(count))
    )()


def drawn(
    chance: Random, *, noise: Noise = QUIET, largest: int = 48, flapping: bool = False, share: float | None = None
) -> World:
    """Any mixture that leaves something to compare with: at least half of the nodes are good.

    Where everything flaps it is bad in 30 to 90 % of the looks, or in this share of them.
    Up to two bad links, which share no node with each other, and a bad switch only where others stand beside it.
    """
    world = world_of(drawn_nodes(chance, largest), seed=chance.randrange(1 << 32), noise=noise)
    names = [node.name for node in world.fabric.nodes]
    chance.shuffle(names)
    bad = min(chance.choice((0, 0, 1, 1, 1, 2, 3, len(names) // 4)), len(names) - 3, (len(names) - 1) // 2)
    nodes = {name: drawn_fault(chance, flapping, share) for name in names[:bad]}
    rest = names[bad:]
    links: dict[tuple[str, str], Fault] = {}
    for _ in range(chance.choice((0, 0, 0, 1, 2))):
        if len(rest) > 5:
            one_way = flapping and chance.random() < 0.3
            links[(rest.pop(), rest.pop())] = replace(
                drawn_fault(chance, flapping and not one_way, share), one_way=one_way
            )
    world = replace(world, nodes=nodes, links=links)
    if chance.random() < 0.15:
        world = replace(world, switches=_drawn_switch(chance, world))
    if chance.random() < 0.08:
        rails = tuple(range(8)) if chance.random() < 0.3 else (chance.randrange(8),)
        world = replace(world, everywhere=Fault(rails, chance.uniform(0.1, 0.7)))
    return world


def _drawn_switch(chance: Random, world: World) -> dict[str, Fault]:
    """One of at least three with two good nodes each: with two, nobody could say which is cut off from the other."""
    places: dict[tuple[str, ...], list[str]] = {}
    for node in world.fabric.nodes:
        if node.switches and node.name not in world.nodes:
            places.setdefault(node.switches, []).append(node.name)
    fitting = sorted(place for place, members in places.items() if len(members) > 1)
    if len(fitting) < 3:
        return {}
    place = chance.choice(fitting)
    rail = chance.randrange(len(place))
    rails = (rail,) if len(set(place)) > 1 else tuple(range(len(place)))
    return {place[rail]: Fault(rails, chance.uniform(0.1, 0.7), uplink=chance.random() < 0.5)}


def score(world: World, answer: Answer) -> Counter[str]:
    """How often what was right and wrong.

    `bad` causes of which something could be known: `found`, `missed` (all its nodes are called proven, or the wrong
    thing is named for them) or `open` (left unknown). `findings` of which `accused` name something good. `good` nodes,
    of which `unknown`.
    """
    told = Counter[str]()
    proven, unknown = set(answer.proven), {one.node for one in answer.unknown}
    named = {(finding.kind, finding.switch or finding.members) for finding in answer.findings}
    for key, members in _causes(world):
        told["bad"] += 1
        covered = any(kind is FabricFault.SWITCH and members <= world.under(str(name)) for kind, name in named)
        if key in named or (key[0] in (FabricFault.NODE, FabricFault.LINK) and covered):
            told["found"] += 1
        elif members & unknown:
            told["open"] += 1
        else:
            told["missed"] += 1
            told[f"missed {key[0]}"] += 1
    for finding in answer.findings:
        told["findings"] += 1
        if not _right(world, finding.kind, finding.switch, finding.members):
            told["accused"] += 1
            told[f"accused {finding.kind}"] += 1
    behind = set[str]().union(*(world.under(switch) for switch in world.switches))
    if world.everywhere is not None and len(world.everywhere.rails) == world.fabric.rails:
        behind = {node.name for node in world.fabric.nodes}  # nobody can be proven
    good = {node.name for node in world.fabric.nodes} - set(world.nodes) - behind
    told["good"] += len(good)
    told["unknown"] += len(good & unknown)
    told["proven bad"] += len(proven & set(world.nodes) - _masked(world))
    return told


def _masked(world: World) -> set[str]:
    """Bad nodes of which nothing can be known: whole rails are bad, and they are bad on no other."""
    rails = set(world.everywhere.rails) if world.everywhere else set[int]()
    return {name for name, fault in world.nodes.items() if rails.issuperset(fault.rails) and fault.factor is not None}


def _causes(world: World) -> Iterable[tuple[tuple[FabricFault, str | tuple[str, ...]], frozenset[str]]]:
    off = set(world.everywhere.rails) if world.everywhere else set[int]()
    names = tuple(node.name for node in world.fabric.nodes)
    order = {name: number for number, name in enumerate(names)}
    if world.everywhere is not None:
        kind = FabricFault.FABRIC if len(off) == world.fabric.rails else FabricFault.RAIL
        yield (kind, names), frozenset(names)
    if len(off) == world.fabric.rails:
        return
    for name in set(world.nodes) - _masked(world):
        yield (FabricFault.NODE, (name,)), frozenset((name,))
    for ends, fault in world.links.items():
        hidden = any(world.under(switch).intersection(ends) for switch in world.switches)
        if not hidden and (fault.factor is None or not off.issuperset(fault.rails)):
            yield (FabricFault.LINK, tuple(sorted(ends, key=order.__getitem__))), frozenset(ends)
    for switch, fault in world.switches.items():
        if not off.issuperset(fault.rails):
            yield (FabricFault.SWITCH, switch), world.under(switch)


def _right(world: World, kind: FabricFault, switch: str, members: tuple[str, ...]) -> bool:
    match kind:
        case FabricFault.NODE:
            return members[0] in world.nodes
        case FabricFault.LINK:
            return members in world.links or members[::-1] in world.links
        case FabricFault.SWITCH:
            return switch in world.switches or set(members) <= set(world.nodes)
        case FabricFault.RAIL | FabricFault.FABRIC:
            return world.everywhere is not None
