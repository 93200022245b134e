"""What a launcher hears of its gang: values, and how the coordinator's orders are read. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Union, cast

from workflows.programs.launch_options import Rendezvous


@dataclass(frozen=True)
class Met:
    """The gang is complete."""

    meeting: Rendezvous


@dataclass(frozen=True)
class Stop:
    """The coordinator orders the end."""

    why: str
    save: bool


@dataclass(frozen=True)
class Restart:
    """The coordinator orders that ranks begin again inside their pods."""

    incarnation: int
    resume_from: str
    """As the trainer is told; "": from scratch."""
    resume_step: Optional[int]
    why: str


@dataclass(frozen=True)
class Stacks:
    """The coordinator wants to see where the ranks stand; they go on."""

    id: str
    why: str


@dataclass(frozen=True)
class Note:
    """Something to be said in the log; nothing follows from it."""

    text: str


@dataclass(frozen=True)
class Lost:
    """The gang cannot be joined."""

    why: str


Heard = Union[Met, Stop, Restart, Stacks, Note, Lost]


class Numbered(NamedTuple):
    """An order and its number; 0: it has none."""

    number: int
    order: Heard


def orders_of(body: Mapping[str, Any]) -> List[Numbered]:
    """The orders in an answer of `GET /v1/orders`; what is not understood is a note that says so, and never a stop."""
    said: Any = body.get("orders", [])
    if not isinstance(said, list):
        return [Numbered(0, _refused(said))]
    return [_numbered(one) for one in cast("List[Any]", said)]


def _numbered(said: Any) -> Numbered:
    if not isinstance(said, dict):
        return Numbered(0, _refused(said))
    known = cast("Dict[str, Any]", said)
    number = known.get("number")
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        return Numbered(0, _refused(known))
    try:
        return Numbered(number, _ORDERS[str(known.get("order"))](known))
    except (KeyError, ValueError, TypeError):
        return Numbered(number, _refused(known))


def _refused(said: Any) -> Note:
    return Note(f"an order of the coordinator is not understood, and nothing is done about it: {str(said)[:300]}")


def _stop(said: Mapping[str, Any]) -> Heard:
    return Stop(str(said.get("why", "")), bool(said.get("save")))


def _restart(said: Mapping[str, Any]) -> Heard:
    step = said.get("resume_step")
    resume_from = str(said.get("resume_from") or "")
    return Restart(int(said["incarnation"]), resume_from, None if step is None else int(step), str(said.get("why", "")))


def _stacks(said: Mapping[str, Any]) -> Heard:
    return Stacks(str(said["id"]), str(said.get("why", "")))


_ORDERS: Dict[str, Callable[[Mapping[str, Any]], Heard]] = {"stop": _stop, "restart": _restart, "stacks": _stacks}
