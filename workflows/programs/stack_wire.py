"""Stacks on their way from a launcher to the coordinator: the body of `POST /v1/stacks`.

`{"pod", "node", "id", "at", "seconds", "left_out", "stacks": [{"rank", "processes": [...]}]}`, where processes are
those of `stack_values.Process` without their rank.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, cast

from workflows import reports
from workflows.programs.stack_values import Dump, Process, fitted

LIMIT_BYTES = 1024 * 1024
"""Of a body."""
DUMP_BYTES = 256 * 1024
"""Of the dump in it, in UTF-8: escaped for JSON it may become three times as long."""
NAME_BYTES = 4096
"""Of the pod, the node and the id together."""
MOST = 1e15
"""No count of processes and no time in seconds is larger."""


@dataclass(frozen=True)
class Answer:
    """What one launcher answers to an order `stacks`; the dump names its node."""

    pod: str
    id: str
    """Of the order."""
    dump: Dump


def to_json(answer: Answer) -> Dict[str, Any]:
    """The object that travels; of a dump that is too long as much as fits.

    Raises:
        ValueError: the names are too long.
    """
    dump = fitted(answer.dump, DUMP_BYTES)
    names = {"pod": answer.pod, "node": dump.node, "id": answer.id}
    if len("".join(names.values()).encode("utf-8", "replace")) > NAME_BYTES:
        raise ValueError(f"pod, node, id: longer than {NAME_BYTES} bytes together")
    stacks: Dict[int, List[Dict[str, Any]]] = {}
    for process in dump.processes:
        told = dataclasses.asdict(process)
        stacks.setdefault(told.pop("rank"), []).append(told)
    ranks = [{"rank": rank, "processes": processes} for rank, processes in stacks.items()]
    return {**names, "at": dump.at, "seconds": dump.seconds, "left_out": dump.left_out, "stacks": ranks}


def from_json(body: Mapping[str, Any]) -> Answer:
    """The answer in a parsed body; `to_json` makes the same body of it again.

    Raises:
        ValueError: names the key that is missing or wrong, and what is wrong with it.
    """
    _bounded(body)
    pod, node, order = (str(_typed(body, key, str)) for key in ("pod", "node", "id"))
    if len((pod + node + order).encode()) > NAME_BYTES:
        raise ValueError(f"pod, node, id: longer than {NAME_BYTES} bytes together")
    at, seconds = (float(_typed(body, key, (float, int))) for key in ("at", "seconds"))
    found: Dict[int, List[Process]] = {}
    for index, one in enumerate(_objects(body, "stacks")):
        where = f"stacks[{index}]."
        rank = int(_typed(one, "rank", int, where))
        if rank in found:
            raise ValueError(f"{where}rank: {rank} stands there twice")
        found[rank] = [_process(item, rank, where) for item in _objects(one, "processes", where)]
    processes = [process for one in found.values() for process in one]
    return Answer(pod, order, Dump(node, at, seconds, processes, int(_typed(body, "left_out", int))))


def _bounded(body: Mapping[str, Any]) -> None:
    """It is small enough, and no text in it holds what UTF-8 cannot say: reports and logs take it as it is."""
    try:
        size = len(json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode())
    except UnicodeEncodeError as error:
        raise ValueError(f"a text in it is not Unicode: {error.reason}") from error
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if size > LIMIT_BYTES:
        raise ValueError(f"it has {size} bytes, more than {LIMIT_BYTES}")


def _typed(body: Mapping[str, Any], key: str, kind: Any, where: str = "") -> Any:
    """A text, or a number that is neither negative nor infinite."""
    value = body.get(key)
    if not isinstance(value, kind) or isinstance(value, bool):
        wanted = "a text" if kind is str else "a number"
        raise ValueError(f"{where}{key}: expected {wanted}, got {type(value).__name__ if key in body else 'nothing'}")
    if isinstance(value, (int, float)) and not 0 <= value < MOST:
        raise ValueError(f"{where}{key}: expected a number from 0 to {MOST:g}, got {value}")
    return value


def _objects(body: Mapping[str, Any], key: str, where: str = "") -> List[Dict[str, Any]]:
    value: Any = body.get(key)
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in cast("List[Any]", value)):
        raise ValueError(f"{where}{key}: expected a list of objects")
    return cast("List[Dict[str, Any]]", value)


def _process(item: Dict[str, Any], rank: int, where: str) -> Process:
    try:
        return reports.from_dict(Process, {**item, "rank": rank})
    except ValueError as error:
        raise ValueError(f"{where}processes: {error}") from error
