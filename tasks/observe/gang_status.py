"""A coordinator's `/status` beyond steps, read tolerantly: what is missing or unreadable is not known."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar, cast

from workflows.model.gang_status import GangNews, Hang, Jump, RestartInPlace, Slower, Straggler

Json = Mapping[str, Any]
T = TypeVar("T")
STACKS_CHARACTERS = 4000
"""Of one restart in place that are kept."""
NO_NUMBERS = ("nan", "inf", "-inf")
"""How a coordinator writes down what is none."""
_VERDICTS: dict[str, Literal["suspect", "observer", "confirmed"]] = {
    "observer": "observer",
    "confirmed": "confirmed",
}
"""Any other word is a suspicion: only what is known to be confirmed counts as hung."""


def gang_news(status: Json) -> GangNews:
    """What the status says. Never raises."""
    right: Json = _object(status.get("right"))
    stop = next((item for item in _objects(status.get("orders")) if item.get("order") == "stop"), None)
    looked = isinstance(status.get("stragglers"), list)
    return GangNews(
        restarts=_each(status.get("restarts"), _restart),
        left=_whole(right.get("left")) or 0,
        stopping=stop is not None,
        stop_why=str(stop.get("why") or "") if stop is not None else "",
        stragglers=_each(status.get("stragglers"), _straggler) if looked else None,
        slower=next(iter(_each([status.get("slower")], _slower)), None),
        hang=next(iter(_each([status.get("hang")], _hang)), None),
        jumps=_each(status.get("numeric"), _jump),
        advised_steps=_advised(_object(status.get("saves"))),
    )


def _each(told: object, read: Callable[[Json], T | None]) -> tuple[T, ...]:
    found = (read(item) for item in _objects(told))
    return tuple(item for item in found if item is not None)


def _object(told: object) -> Json:
    return cast("Json", told) if isinstance(told, dict) else {}


def _objects(told: object) -> list[Json]:
    listed = cast("list[Any]", told) if isinstance(told, list) else []
    return [cast("Json", item) for item in listed if isinstance(item, dict)]


def _restart(told: Json) -> RestartInPlace | None:
    number, at = _whole(told.get("number")), _number(told.get("at"))
    if number is None or number < 1 or at is None:
        return None
    first, first_at = _whole(told.get("first_step")), _number(told.get("first_step_at"))
    return RestartInPlace(
        number=number,
        at=at,
        incarnation=_whole(told.get("incarnation")) or number + 1,
        kind="hang" if told.get("kind") == "hang" else "rank-failed",
        why=str(told.get("why") or ""),
        rank=_whole(told.get("rank")),
        node=str(told.get("node") or ""),
        step=_whole(told.get("step")),
        resume_step=_whole(told.get("resume_step")),
        resume_from=str(told.get("resume_from") or ""),
        first_step=None if first_at is None else first,
        first_step_at=None if first is None else first_at,
        stacks=_text(told.get("stacks")),
        pods=_pods(told.get("pods")),
        share=_share(told.get("share")),
        role=str(told.get("role") or ""),
    )


def _pods(told: object) -> tuple[int, int]:
    listed = [_whole(item) for item in cast("list[Any]", told)] if isinstance(told, list) else []
    first, end = listed if len(listed) == 2 else (None, None)
    return (first, end) if first is not None and end is not None and 0 <= first < end else (0, 0)


def _share(told: object) -> float:
    share = _number(told)
    return 1.0 if share is None else min(1.0, max(0.0, share))


def _text(told: object) -> str:
    lines = map(str, cast("list[Any]", told)) if isinstance(told, list) else [told if isinstance(told, str) else ""]
    return "\n".join(lines)[:STACKS_CHARACTERS]


def _straggler(told: Json) -> Straggler | None:
    rank, ratio = _whole(told.get("rank")), _number(told.get("ratio"))
    if rank is None or ratio is None:
        return None
    cost = _number(told.get("cost_seconds")) or 0.0
    return Straggler(rank, str(told.get("node") or ""), ratio, _whole(told.get("since_step")), cost)


def _slower(told: Json) -> Slower | None:
    ratio = _number(told.get("ratio"))
    return None if ratio is None else Slower(_whole(told.get("since_step")), ratio)


def _hang(told: Json) -> Hang | None:
    waited = _number(told.get("waited_seconds"))
    if waited is None:
        return None
    return Hang(
        waited_seconds=waited,
        phase=str(told.get("phase") or ""),
        verdict=_VERDICTS.get(str(told.get("verdict")), "suspect"),
        why=str(told.get("why") or ""),
        rank=_whole(told.get("rank")),
        node=str(told.get("node") or ""),
        stacks=_text(told.get("stacks")),
    )


def _jump(told: Json) -> Jump | None:
    step, value, before = _whole(told.get("step")), told.get("value"), _number(told.get("before"))
    plain = value if value in NO_NUMBERS else _number(value)
    if step is None or plain is None or (before is None and not isinstance(plain, str)):
        return None
    return Jump(step, str(told.get("what") or "loss"), plain, before, _whole(told.get("incarnation")) or 1)


def _advised(saves: Json) -> int | None:
    advice = _object(saves.get("advice"))
    today, steps = _whole(saves.get("steps_between")), _whole(advice.get("steps"))
    if steps is None or steps < 1 or not advice.get("measured"):
        return None
    return steps if advice.get("change") is True else today


def _whole(told: object) -> int | None:
    return told if isinstance(told, int) and not isinstance(told, bool) else None


def _number(told: object) -> float | None:
    plain = isinstance(told, int | float) and not isinstance(told, bool)
    try:
        return float(told) if plain and math.isfinite(told) else None  # type: ignore[arg-type]
    except OverflowError:
        return None
