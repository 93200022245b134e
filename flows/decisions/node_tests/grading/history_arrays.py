"""Looks at many nodes laid out by check, day and turn: a month of a fleet, as arrays. Pure.

Looks of the same checks become one table first, so that a fleet's month is a handful of long columns, however many
tests it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from workflows.model.verdict_history import Check, Looks

DAY_SECONDS = 86400.0
Floats = NDArray[np.float64]
Codes = NDArray[np.int8]
Places = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Bounds:
    """What is looked at."""

    after: Floats
    """[nodes] Unix seconds; what was seen then or before is left out."""
    until: float
    """Unix seconds; what was seen later is left out."""


@dataclass(frozen=True, eq=False)
class Table:
    """Looks of the same checks."""

    rows: tuple[int, ...]
    """[columns] the number of the check."""
    unit_matches: tuple[bool, ...]
    """[columns] whether figures are in the check's unit."""
    place: Places
    """[looks] the number of the node."""
    age_days: Places
    """[looks] full days before now."""
    turn: Places
    """[looks] how many of all looks at the node came later, in all tables."""
    layer: Places
    """[looks] how many of the looks at the node on the same day came earlier, in all tables."""
    figures: Floats
    """[columns, looks]"""
    ends: Codes
    """[columns, looks]"""


def tables_of(
    looks: Sequence[Looks], units: Mapping[str, str], places: Mapping[str, int], bounds: Bounds
) -> list[Table]:
    """Looks within the bounds.

    Of two looks at one time the earlier comes first; checks and nodes without a number are left out.
    """
    alike: dict[tuple[Check, ...], list[int]] = {}
    for number, one in enumerate(looks):
        alike.setdefault(one.checks, []).append(number)
    checks = {name: index for index, name in enumerate(units)}
    found: list[tuple[Table, Floats, Places]] = []
    for names, numbers in alike.items():
        columns = [index for index, (name, _) in enumerate(names) if name in checks]
        if columns:
            some = [looks[number] for number in numbers]
            table, at, kept = _joined(some, columns, places, bounds)
            rows = tuple(checks[names[index][0]] for index in columns)
            unit_matches = tuple(units[names[index][0]] == names[index][1] for index in columns)
            blocks = np.repeat(np.array(numbers, dtype=np.int64), [len(one.nodes) for one in some])[kept]
            found.append((replace(table, rows=rows, unit_matches=unit_matches), at, blocks))
    return _ordered(found, bounds)


def lay_figures(tables: Sequence[Table], values: Floats) -> None:
    """Write the last good figure of each day into `values` [checks, days, nodes], the oldest day first."""
    _, days, nodes = values.shape
    for layer in range(max((int(table.layer.max(initial=-1)) for table in tables), default=-1) + 1):
        for table in tables:
            chosen = np.flatnonzero(table.layer == layer)
            # What is a hair younger than all days may be rounded to the day before them.
            age = np.minimum(table.age_days[chosen], days - 1)
            spots = (days - 1 - age) * nodes + table.place[chosen]
            for column, (row, unit_matches) in enumerate(zip(table.rows, table.unit_matches, strict=True)):
                if unit_matches:
                    figures = table.figures[column][chosen]
                    good = np.isfinite(figures)
                    whole = bool(good.all())
                    values[row].reshape(-1)[spots if whole else spots[good]] = figures if whole else figures[good]


def ends_of(tables: Sequence[Table], shape: tuple[int, int, int]) -> Codes:
    """How the last tests of each check ended that has it, the oldest first; 0 where there were fewer."""
    count, outcomes = shape[1], np.zeros(shape, dtype=np.int8)
    turns = max((int(table.turn.max(initial=-1)) for table in tables), default=-1) + 1
    for begin in range(0, turns, count):
        window = np.zeros_like(outcomes)
        for table in tables:
            chosen = np.flatnonzero((table.turn >= begin) & (table.turn < begin + count))
            spots = (count - 1 - (table.turn[chosen] - begin)) * shape[2] + table.place[chosen]
            for column, row in enumerate(table.rows):
                window[row].reshape(-1)[spots] += table.ends[column][chosen]
        outcomes = _before(outcomes, window) if begin else _before(window, np.zeros_like(window))
        if outcomes[:, 0].all():
            break
    return outcomes


def _before(later: Codes, earlier: Codes) -> Codes:
    """The last known ends of both, [checks, looks, nodes] each; those that are known move to the end."""
    lacking = np.nonzero((later == 0).any(axis=1))
    if len(lacking[0]):
        both = np.concatenate((earlier[lacking[0], :, lacking[1]], later[lacking[0], :, lacking[1]]), axis=1)
        order = np.argsort(both != 0, axis=1, kind="stable")[:, -later.shape[1] :]
        later[lacking[0], :, lacking[1]] = np.take_along_axis(both, order, axis=1)
    return later


def _joined(
    looks: Sequence[Looks], columns: Sequence[int], places: Mapping[str, int], bounds: Bounds
) -> tuple[Table, Floats, NDArray[np.bool_]]:
    """Looks of the same checks one behind the other, their times, and which of them are within the bounds."""
    # Night after night the nodes are the same, so each list of them is looked up once.
    lists = {one.nodes for one in looks}
    numbers = {nodes: np.array([places.get(node, -1) for node in nodes], dtype=np.int64) for nodes in lists}
    place = np.concatenate([numbers[one.nodes] for one in looks])
    at = np.concatenate([np.frombuffer(one.at, dtype="<f8") for one in looks])
    kept = place >= 0
    kept[kept] = (at[kept] > bounds.after[place[kept]]) & (at[kept] <= bounds.until)
    width = len(looks[0].checks)
    some = slice(None) if len(columns) == width else list(columns)
    figures = [np.frombuffer(one.figures, dtype="<f8").reshape(width, -1)[some] for one in looks]
    ends = [np.frombuffer(one.ends, dtype=np.int8).reshape(width, -1)[some] for one in looks]
    figures_by_turn, ended = np.concatenate(figures, axis=1), np.concatenate(ends, axis=1)
    if not kept.all():
        place, at, figures_by_turn, ended = place[kept], at[kept], figures_by_turn[:, kept], ended[:, kept]
    none = np.zeros(len(place), dtype=np.int64)
    return Table((), (), place, none, none, none, figures_by_turn, ended), at, kept


def _ordered(found: Sequence[tuple[Table, Floats, Places]], bounds: Bounds) -> list[Table]:
    """The tables with the turns and layers of their looks, which depend on those of all tables."""
    if not found:
        return []
    place = np.concatenate([table.place for table, _, _ in found])
    at, blocks = np.concatenate([one for _, one, _ in found]), np.concatenate([one for _, _, one in found])
    age = ((bounds.until - at) // DAY_SECONDS).astype(np.int64)
    order = np.lexsort((blocks, at, place))
    here, number = place[order], np.arange(len(place))
    turn, layer = np.empty_like(place), np.empty_like(place)
    turn[order] = np.searchsorted(here, here, side="right") - 1 - number
    day = here * (int(age.max(initial=0)) + 1) - age[order]
    layer[order] = number - np.searchsorted(day, day, side="left")
    tables: list[Table] = []
    begin = 0
    for table, _, _ in found:
        own = slice(begin, begin := begin + len(table.place))
        tables.append(replace(table, age_days=age[own], turn=turn[own], layer=layer[own]))
    return tables
