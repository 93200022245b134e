"""What a parked process is asked to become, and whether it may: pure, over what both of them know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Tuple

from workflows.programs.warm_frames import FrameError

OF_A_RANK = ("RANK", "LOCAL_", "WORLD_SIZE", "GROUP_", "ROLE_", "MASTER_", "TORCHELASTIC_", "PRIMUS_")
"""Beginnings of variables that differ between ranks and incarnations. All others are the same for each start of a rank,
or a library that was loaded with another value (how many threads, which locale) would keep it."""
GO = b"go"
"""From the launcher to a fork, once it knows it."""
DESCRIPTORS = 3
"""With each order: the channel to its asker, standard output, standard error."""


@dataclass(frozen=True)
class Target:
    """Which program a process was parked for."""

    name: str
    """Script as it was named, or module."""
    module: bool
    working_directory: str


@dataclass(frozen=True)
class Order:
    """One program to become."""

    target: Target
    argv: Tuple[str, ...]
    """The whole command, as a plain start would have it."""
    arguments: Tuple[str, ...]
    """Of the program."""
    environment: Mapping[str, str]
    terminal: bool
    """Standard output is a pseudo terminal: the program leads a session."""

    def message(self) -> Dict[str, Any]:
        """As it travels."""
        return {
            "name": self.target.name,
            "module": self.target.module,
            "working_directory": self.target.working_directory,
            "argv": list(self.argv),
            "arguments": list(self.arguments),
            "environment": dict(self.environment),
            "terminal": self.terminal,
        }


def order_of(message: Mapping[str, Any]) -> Order:
    """The order that a message holds.

    Raises:
        FrameError: it holds something else.
    """
    return Order(
        target=Target(_text(message, "name"), _truth(message, "module"), _text(message, "working_directory")),
        argv=_texts(message, "argv"),
        arguments=_texts(message, "arguments"),
        environment=_environment(message),
        terminal=_truth(message, "terminal"),
    )


def mismatch(target: Target, environment: Mapping[str, str], order: Order) -> str:
    """Why an order does not fit a process that was parked for `target` with `environment`; "": it does."""
    if order.target != target:
        return f"it was parked for {target.name} in {target.working_directory}, not for {order.target.name}"
    differing = [
        name
        for name in sorted({*environment, *order.environment})
        if not name.startswith(OF_A_RANK) and environment.get(name) != order.environment.get(name)
    ]
    if differing:
        return f"it was parked with another {', '.join(differing[:5])}, which a library may have read meanwhile"
    return ""


def _text(message: Mapping[str, Any], field: str) -> str:
    value = message.get(field)
    if not isinstance(value, str) or "\0" in value:
        raise FrameError(f"{field}: not a text")
    return value


def _truth(message: Mapping[str, Any], field: str) -> bool:
    value = message.get(field)
    if not isinstance(value, bool):
        raise FrameError(f"{field}: neither true nor false")
    return value


def _texts(message: Mapping[str, Any], field: str) -> Tuple[str, ...]:
    value: Any = message.get(field)
    if not isinstance(value, list):
        raise FrameError(f"{field}: not a list")
    items: List[Any] = list(value)  # type: ignore[arg-type]
    return tuple(_text({field: item}, field) for item in items)


def _environment(message: Mapping[str, Any]) -> Dict[str, str]:
    value: Any = message.get("environment")
    if not isinstance(value, dict):
        raise FrameError("environment: not an object")
    found: Dict[str, str] = {}
    for name, text in value.items():  # type: ignore[union-attr]
        if not name or "=" in name or "\0" in name:
            raise FrameError("environment: not a name")
        found[name] = _text({"environment": text}, "environment")
    return found
