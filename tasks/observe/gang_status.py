"""What a coordinator's `/status` says beyond steps; what is missing or makes no sense is not known."""

from __future__ import annotations

from dataclasses import replace

from workflows.model.gang_status import GangNews
from workflows.status import CoordinatorStatus, Jump, RestartInPlace, SavesStatus


def gang_news(status: CoordinatorStatus) -> GangNews:
    """What the status says. Never raises."""
    stop = next((item for item in status.orders if item.get("order") == "stop"), None)
    return GangNews(
        restarts=tuple(_sound(item) for item in status.restarts if item.number >= 1),
        left=status.right.left,
        stopping=stop is not None,
        stop_why=str(stop.get("why") or "") if stop is not None else "",
        stragglers=None if status.stragglers is None else tuple(status.stragglers),
        slower=status.slower,
        hang=status.hang,
        jumps=tuple(item for item in status.numeric if _is_jump(item)),
        advised_steps=_advised(status.saves),
    )


def _sound(restart: RestartInPlace) -> RestartInPlace:
    """Without what contradicts itself."""
    begun = restart.first_step is not None and restart.first_step_at is not None
    return replace(
        restart,
        first_step=restart.first_step if begun else None,
        first_step_at=restart.first_step_at if begun else None,
        pods=restart.pods if 0 <= restart.pods[0] < restart.pods[1] else (0, 0),
        share=min(1.0, max(0.0, restart.share)),
    )


def _is_jump(jump: Jump) -> bool:
    """A number that jumped did so from another one."""
    return jump.before is not None or isinstance(jump.value, str)


def _advised(saves: SavesStatus | None) -> int | None:
    advice = None if saves is None else saves.advice
    if saves is None or advice is None or advice.steps < 1 or not advice.measured:
        return None
    return advice.steps if advice.change else saves.steps_between
