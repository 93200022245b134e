"""Wall time as bars: the whole run, and each node of it, in the look of what it was doing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

from flows.pages.colours import fill_of, swatch
from flows.pages.frame import PLOT_WIDTH, at, duration, moment, sentence

Json = dict[str, Any]
CELLS = 400
"""A bar is so many cells; each shows what took most of it."""
MOST_ROWS = 24
"""Nodes with a bar of their own; of larger gangs the attempts are shown."""


SEEN = 1e-5
"""Smaller shares of all time are rounding, and not shown."""


class Block(NamedTuple):
    """Neighbouring cells of one attempt in one state."""

    first: int
    last: int
    attempt: int
    state: str


def timeline(document: Json) -> str:
    """The bars of a run, its nodes below it, and the legend."""
    tiles: list[Json] = document["tiles"]
    if not tiles:
        return sentence("Nothing has happened yet.")
    begin, end = at(tiles[0]["from"]), at(tiles[-1]["to"])
    blocks = blocks_of(tiles, begin, end)
    rows = [_row("run", blocks, _said(tiles))]
    if incidents := document["incidents"]:
        rows.append(_incident_row(incidents, begin, end))
    rows += [
        _row(name, [block for block in blocks if block.attempt in attempts], f"{name}: in {_numbers(attempts)}")
        for name, attempts in _lanes(document["attempts"]).items()
    ]
    below = f"<div class=below><span>{moment(tiles[0]['from'])}</span><span>{moment(tiles[-1]['to'])}</span></div>"
    return f"<div class=rows>{''.join(rows)}{below}</div>{legend(tiles)}"


def blocks_of(tiles: Sequence[Mapping[str, Any]], begin: float, end: float) -> list[Block]:
    """What took most of each cell; time of no tile shows nothing."""
    width = max(end - begin, 1e-9) / CELLS
    cells: list[dict[tuple[int, str], float]] = [{} for _ in range(CELLS)]
    for item in tiles:
        low, high = (at(item["from"]) - begin) / width, (at(item["to"]) - begin) / width
        for cell in range(max(0, int(low)), min(CELLS, int(high) + 1)):
            part = min(high, cell + 1) - max(low, cell)
            if part > 0:
                key = (item["attempt"], item["state"])
                cells[cell][key] = cells[cell].get(key, 0.0) + part
    blocks: list[Block] = []
    for index, cell in enumerate(cells):
        if not cell:
            continue
        attempt, state = max(cell, key=cell.__getitem__)
        if blocks and blocks[-1][1:] == (index - 1, attempt, state):
            blocks[-1] = blocks[-1]._replace(last=index)
        else:
            blocks.append(Block(index, index, attempt, state))
    return blocks


def legend(tiles: Sequence[Mapping[str, Any]]) -> str:
    """The states that occur, in the order of their share, each with it."""
    sums: dict[str, float] = {}
    for item in tiles:
        sums[item["state"]] = sums.get(item["state"], 0.0) + at(item["to"]) - at(item["from"])
    whole = sum(sums.values())
    ordered = sorted(((state, took) for state, took in sums.items() if took > whole * SEEN), key=lambda pair: -pair[1])
    items = "".join(f"<li>{swatch(state)}{escape(words(state))} {duration(took)}</li>" for state, took in ordered)
    return f"<ul class=legend>{items}</ul>"


def words(state: str) -> str:
    """A state as it is written for people."""
    return state.replace("_", " ")


def _row(name: str, blocks: Sequence[Block], label: str) -> str:
    unit = PLOT_WIDTH / CELLS
    rects = "".join(
        f'<rect x="{b.first * unit:g}" y="0" width="{(b.last - b.first + 1) * unit:g}" height="20" '
        f'fill="{fill_of(b.state)}"><title>attempt {b.attempt}: {escape(words(b.state))}</title></rect>'
        for b in blocks
    )
    return _bar(name, rects, label)


def _bar(name: str, shapes: str, label: str) -> str:
    return (
        f'<span class=name>{escape(name)}</span><svg role=img aria-label="{escape(label)}" '
        f'viewBox="0 0 {PLOT_WIDTH:g} 20" preserveAspectRatio=none>{shapes}</svg>'
    )


def _incident_row(incidents: Sequence[Json], begin: float, end: float) -> str:
    scale = PLOT_WIDTH / max(end - begin, 1e-9)
    places = [min(PLOT_WIDTH, max(0.0, (at(item["at"]) - begin) * scale)) for item in incidents]
    path = "".join(f"M{x:.1f} 0V20" for x in places)
    label = f"{len(incidents)} incidents, at {', '.join(moment(item['at']) for item in incidents[:10])}"
    return _bar("incidents", f'<path class=mark d="{path}" vector-effect=non-scaling-stroke />', label)


def _lanes(attempts: Sequence[Json]) -> dict[str, list[int]]:
    """By name of the lane, the attempts that it shows: nodes where there are few, else attempts."""
    nodes: dict[str, list[int]] = {}
    for attempt in attempts:
        for node in attempt["nodes"] or [f"attempt {attempt['number']}"]:
            nodes.setdefault(node, []).append(attempt["number"])
    if len(nodes) <= MOST_ROWS:
        return nodes
    shown = {f"attempt {item['number']}": [item["number"]] for item in attempts}
    return dict(list(shown.items())[-MOST_ROWS:])


def _numbers(attempts: Sequence[int]) -> str:
    return f"attempt{'s' if len(attempts) > 1 else ''} {', '.join(map(str, attempts))}"


def _said(tiles: Sequence[Json]) -> str:
    states = list(dict.fromkeys(words(item["state"]) for item in tiles))
    return f"The run from {moment(tiles[0]['from'])} to {moment(tiles[-1]['to'])}: {', '.join(states)}"
