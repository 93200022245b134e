"""Manifests with one field changed."""

from __future__ import annotations

import copy
import re
from typing import Any, cast


def with_field(manifest: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy with another value at a path like `spec.containers[0].env`, made where it is not; `...` takes it away."""
    made = copy.deepcopy(manifest)
    target = cast(Any, made)
    *parents, last = [int(key) if key.isdigit() else key for key in re.findall(r"[^.\[\]]+", path)]
    for key in parents:
        target = target[key] if isinstance(key, int) else target.setdefault(key, {})
    if value is ...:
        del target[last]
    else:
        target[last] = value
    return made
