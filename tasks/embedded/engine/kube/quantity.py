"""Kubernetes quantities as integers of thousandths."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from tasks.embedded.objects import entries, section

_FORM = re.compile(r"^([+-]?(?:\d+\.?\d*|\.\d+))(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]|[eE][+-]?\d+)?$")
_FACTORS = {
    "": Decimal(1),
    **{unit: Decimal(1024) ** power for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)},
    **{unit: Decimal(1000) ** power for power, unit in enumerate(("k", "M", "G", "T", "P", "E"), 1)},
    "m": Decimal("0.001"),
    "u": Decimal("0.000001"),
    "n": Decimal("0.000000001"),
}


def milli(text: str | float) -> int:
    """Thousandths of a quantity, rounded up: `"500m"` is 500, `"2"` is 2,000, `"1Ki"` is 1,024,000.

    Raises:
        ValueError: the text is no quantity.
    """
    found = _FORM.match(str(text).strip())
    if found is None:
        raise ValueError(f"{text!r} is no quantity (examples: 2, 500m, 16Gi)")
    number, unit = Decimal(found[1]), found[2] or ""
    factor = _FACTORS.get(unit)
    scaled = number * factor if factor is not None else number.scaleb(int(unit[1:]))
    thousandths = scaled * 1000
    whole = int(thousandths)
    return whole if whole == thousandths or thousandths < 0 else whole + 1


def requests_of(container: Mapping[str, Any]) -> dict[str, int]:
    """What one container asks for, in thousandths; a resource with a limit only asks for its limit."""
    resources = section(container, "resources")
    asked = {**section(resources, "limits"), **section(resources, "requests")}
    return {name: milli(value) for name, value in asked.items()}


def pod_requests(spec: Mapping[str, Any]) -> dict[str, int]:
    """What a pod asks for, in thousandths: the sum of its containers, or one init container if that is more."""
    total: dict[str, int] = {}
    for container in entries(spec, "containers"):
        for name, value in requests_of(container).items():
            total[name] = total.get(name, 0) + value
    for container in entries(spec, "initContainers"):
        for name, value in requests_of(container).items():
            total[name] = max(total.get(name, 0), value)
    return {**total, "pods": 1000}
