"""Which GPU is which: by place on the bus, not by its rank in a list that may have lost some of them.

A tool that lists seven of eight GPUs numbers them 0 to 6, whichever fell out. Here each GPU has the number of its place
among all places that the node ever showed: on its bus, to the driver, to a tool. Places that a whole list leaves out
are lost GPUs, and a lost GPU is a failure; where only the number of GPUs is known, one that is lost has no number.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import AbstractSet, Dict, List, Mapping, Sequence, Tuple

from workflows.programs.parsers.text import ParsedOutput
from workflows.programs.probes.gpu_count import address

LOST = "gpu_lost"
"""Quantity of a reading that names a GPU that the driver no longer reaches."""
UNPLACED = "lost"
"""Name of a lost GPU of which nobody knows which one it was."""
_GPU = re.compile(r"gpu ([0-9A-Za-z:.]{1,40})")


@dataclass(frozen=True)
class GpuList:
    """GPUs as one tool lists them."""

    keys: Tuple[str, ...]
    """What the tool calls each, in its order: an address or an index."""
    places: Mapping[str, str] = field(default_factory=lambda: {})
    """Key -> address, as far as the tool tells."""
    minors: Mapping[str, int] = field(default_factory=lambda: {})
    """Key -> number of its device file, which a GPU keeps while others are lost."""
    lost: Tuple[str, ...] = ()
    """Addresses of GPUs that the tool calls lost."""
    broken_off: str = ""
    """Why the list may have no end; "": it is whole."""


@dataclass(frozen=True)
class Places:
    """Names of GPUs."""

    names: Mapping[str, str]
    """Key of a listed GPU -> its number."""
    lost: Tuple[str, ...] = ()
    """Names of GPUs that are gone."""
    untold: Tuple[str, ...] = ()
    """Names of GPUs that a list that broke off may still have held."""


def listing_of(parsed: ParsedOutput) -> GpuList:
    """The GPUs that a tool's readings are about."""
    keys: Dict[str, None] = {}
    minors: Dict[str, int] = {}
    lost: Dict[str, None] = {}
    for one in parsed.readings:
        hit = _GPU.match(one.subject)
        if hit is None:
            continue
        if one.quantity == LOST:
            lost[address(hit.group(1)) or hit.group(1)] = None
            continue
        keys[hit.group(1)] = None
        if one.quantity == "minor_number" and one.word.isdigit():
            minors[hit.group(1)] = int(one.word)
    places = {key: address(key) for key in keys if address(key)}
    there = tuple(key for key in keys if places.get(key, key) not in lost)
    return GpuList(there, places, minors, tuple(lost), parsed.unknown)


def placed(listing: GpuList, known: Sequence[str], expected: int) -> Places:
    """The number of each listed GPU, and which are gone.

    `known` are all addresses that the node ever showed; `expected` GPUs it should have.
    """
    if all(listing.places.get(key) for key in listing.keys) and (listing.keys or listing.lost):
        return _by_address(listing, known, expected)
    if all(key.isdigit() for key in listing.keys):
        return _by_number({key: int(key) for key in listing.keys}, listing, max(expected, len(known)))
    return _by_number({key: at for at, key in enumerate(listing.keys)}, listing, max(expected, len(known)))


def _by_address(listing: GpuList, known: Sequence[str], expected: int) -> Places:
    every = sorted({*known, *listing.places.values(), *listing.lost})
    if len(every) < expected:
        if len(listing.minors) == len(listing.keys) and not listing.lost:
            return _by_number(listing.minors, listing, expected)
        numbers = {key: at for at, key in enumerate(listing.keys)}
        return _by_number(numbers, listing, expected)
    number = {place: at for at, place in enumerate(every)}
    names = {key: str(number[listing.places[key]]) for key in listing.keys}
    told = [number[listing.places[key]] for key in listing.keys]
    gone = [number[place] for place in every if number[place] not in told]
    named = {number[place] for place in listing.lost}
    return _split(names, gone, named, max(told, default=-1), listing)


def _by_number(numbers: Mapping[str, int], listing: GpuList, expected: int) -> Places:
    told = set(numbers.values())
    last = max(told, default=-1)
    gone = [at for at in range(last) if at not in told]
    names = {key: str(at) for key, at in numbers.items()}
    places = _split(names, gone, set(gone), last, listing)
    missing = max(0, expected - len(names) - len(gone))
    if listing.broken_off and not listing.lost:
        more = tuple(str(last + 1 + at) for at in range(missing))
        return Places(names, places.lost, (*places.untold, *more))
    unplaced = tuple(UNPLACED if not at else f"{UNPLACED} {at + 1}" for at in range(missing))
    return Places(names, (*places.lost, *unplaced), places.untold)


def _split(
    names: Mapping[str, str], gone: Sequence[int], named: AbstractSet[int], last: int, listing: GpuList
) -> Places:
    """Of a list that broke off only what stands before its end, or is called lost, is known to be gone."""
    lost: List[str] = []
    untold: List[str] = []
    for at in gone:
        sure = at in named or at < last or not listing.broken_off or bool(listing.lost)
        (lost if sure else untold).append(str(at))
    return Places(names, tuple(lost), tuple(untold))
