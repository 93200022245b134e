"""Plans kept between calls: reading a manifest of a thousand items anew for each event would be most of the work."""

from __future__ import annotations

import copy
from collections import OrderedDict

from tasks.embedded.engine.json_values import Json, as_map, without_nulls
from tasks.embedded.engine.plan import Plan, read_plan

_KEPT = 32
_METADATA = ("name", "namespace", "uid", "labels", "annotations", "creationTimestamp")
"""The metadata that tags may name; the rest (resource version, generation) changes with every write."""
_known: OrderedDict[str, tuple[Json, Json, Plan]] = OrderedDict()


def plan_of(workflow: Json) -> Plan:
    """The plan of a workflow: kept from an earlier call where manifest and metadata are equal, else read.

    Equality is compared, never identity, so that a caller who changes its own copy gets the right answer.
    """
    metadata = as_map(workflow.get("metadata"))
    used = {key: metadata.get(key) for key in _METADATA}
    spec = as_map(workflow.get("spec"))
    name = str(used["name"])
    found = _known.get(name)
    if found is not None and found[0] == spec and found[1] == used:
        _known.move_to_end(name)
        return found[2]
    copied = copy.deepcopy({"metadata": used, "spec": spec})
    plan = read_plan(without_nulls(copied))
    _known[name] = (copied["spec"], copied["metadata"], plan)
    while len(_known) > _KEPT:
        _known.popitem(last=False)
    return plan
