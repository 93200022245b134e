"""Label selectors, node selector terms and tolerations, as the scheduler reads them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tasks.embedded.objects import entries, section


def expression_holds(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """One entry of `matchExpressions`; an unknown operator never holds."""
    key, values = expression["key"], [str(value) for value in entries(expression, "values")]
    value = labels.get(key)
    match expression["operator"]:
        case "In":
            return value is not None and value in values
        case "NotIn":
            return value is None or value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt":
            return _integer(value) is not None and int(value or 0) > int(values[0])
        case "Lt":
            return _integer(value) is not None and int(value or 0) < int(values[0])
        case _:
            return False


def selector_holds(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """A label selector; none selects nothing, an empty one everything."""
    if selector is None:
        return False
    plain = all(labels.get(key) == value for key, value in section(selector, "matchLabels").items())
    return plain and all(expression_holds(entry, labels) for entry in entries(selector, "matchExpressions"))


def node_term_holds(term: Mapping[str, Any], name: str, labels: Mapping[str, str]) -> bool:
    """One node selector term; an empty one matches no node, as Kubernetes says."""
    expressions, fields = entries(term, "matchExpressions"), entries(term, "matchFields")
    if not expressions and not fields:
        return False
    return all(expression_holds(entry, labels) for entry in expressions) and all(
        expression_holds(entry, {"metadata.name": name}) for entry in fields
    )


def tolerated(taint: Mapping[str, Any], tolerations: Sequence[Mapping[str, Any]]) -> bool:
    """Whether one of the tolerations matches the taint."""
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    exists = toleration.get("operator") == "Exists"
    if not toleration.get("key"):
        return exists
    return exists or (toleration.get("value") or "") == (taint.get("value") or "")


def _integer(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None
