"""The nodes of a run as a table: who trains, who was to blame, who was taken out. Pure."""

from __future__ import annotations

from collections import Counter

from profiles.vocabulary import NodeAction
from workflows.console import Json
from workflows.records import Story


def node_rows(story: Story) -> list[Json]:
    """One row a node that any attempt had, those with trouble first, then by name."""
    held: dict[str, list[int]] = {}
    for attempt in story.attempts:
        for node in attempt.nodes:
            held.setdefault(node, []).append(attempt.number)
    blamed = Counter(node for item in story.troubles for node, _ in item.culprits if node)
    done = {(item.target, item.kind): item for item in story.actions if item.target}
    now = set(story.attempt.nodes) if story.attempt is not None and story.attempt.ended_at is None else set[str]()
    names = sorted({*held, *blamed, *(node for node, _ in done)}, key=lambda node: (-blamed[node], node))
    return [
        {
            "node": node,
            "trains now": "yes" if node in now else "no",
            "attempts": ", ".join(map(str, held.get(node, [])[-8:])),
            "blamed": blamed[node],
            "actions": "; ".join(f"{kind} {done[node, kind].state}" for kind in NodeAction if (node, kind) in done),
        }
        for node in names
    ]
