"""Kubernetes quantities as numbers."""

from __future__ import annotations

from decimal import Decimal

_UNITS = {
    "": Decimal(1),
    "m": Decimal("0.001"),
    **{letter: Decimal(1000) ** power for power, letter in enumerate("kMGTP", start=1)},
    **{f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTP", start=1)},
}


def amount(quantity: str) -> Decimal:
    """A quantity such as `500m` or `16Gi` in its base unit (CPUs, bytes). Exact.

    Args:
        quantity: already checked against the pattern of `profiles.values.Quantity`.
    """
    number = quantity.rstrip("mkKMGTPi")
    return Decimal(number) * _UNITS[quantity[len(number) :]]
