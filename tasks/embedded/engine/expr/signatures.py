"""What the functions of expressions take: Go calls a function only with values of the types that it names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tasks.embedded.engine.expr.go_values import truncated
from tasks.embedded.engine.expr.operators import is_number
from tasks.embedded.engine.json_values import is_list, is_map

MANY = 99
_ZERO: dict[str, Any] = {"text": "", "whole": 0, "truth": False, "list": []}
_FITS: dict[str, Callable[[Any], bool]] = {
    "any": lambda value: True,
    "text": lambda value: isinstance(value, str),
    "whole": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "count": lambda value: is_number(value) and value == int(value),
    "number": is_number,
    "float": lambda value: isinstance(value, float),
    "truth": lambda value: isinstance(value, bool),
    "list": is_list,
    "map": is_map,
    "numbers": lambda value: is_number(value) or is_list(value),
    "sized": lambda value: isinstance(value, str) or is_list(value) or is_map(value),
    "parsed": lambda value: isinstance(value, str) or is_number(value),
}
"""`count` is a whole number, also one that JSON gave as a float; `numbers` are numbers and lists of them."""


@dataclass(frozen=True)
class Function:
    """A function and the types of its arguments: `text whole?` for one that may be left out, `any*` for any number."""

    action: Callable[..., Any]
    signature: str = "any"
    nil_is_zero: bool = False
    """Whether nil stands for the type's zero value, as where Go calls by reflection."""

    @cached_property
    def least(self) -> int:
        """How many arguments it needs."""
        return sum(1 for kind in self.signature.split() if kind[-1] not in "?*")

    @cached_property
    def most(self) -> int:
        """How many arguments it takes."""
        return MANY if self.signature.endswith("*") else len(self.signature.split())

    @property
    def arity(self) -> str:
        """In words."""
        if self.least == self.most:
            return "one argument" if self.least == 1 else f"{self.least} arguments"
        return f"at least {self.least}" if self.most == MANY else f"{self.least} to {self.most} arguments"

    def call(self, given: list[Any]) -> Any:
        """Its value.

        Raises:
            TypeError: an argument is of another type, or there are too many or too few; and what the function raises.
        """
        if not self.least <= len(given) <= self.most:
            raise TypeError(f"takes {self.arity}, not {len(given)}")
        kinds = [kind.rstrip("?*") for kind in self.signature.split()]
        return self.action(*(self._fitting(kinds[min(place, len(kinds) - 1)], one) for place, one in enumerate(given)))

    def _fitting(self, kind: str, value: Any) -> Any:
        if value is None and self.nil_is_zero:
            return _ZERO.get(kind)
        if not _FITS[kind](value):
            raise TypeError(f"{value!r} is no {kind}")
        return truncated(value) if kind == "count" and isinstance(value, float) else value
