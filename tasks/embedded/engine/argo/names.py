"""Names as Argo makes them (node ids, pod names, attempts, exit hooks), its durations, and the failure of a node.

Argo's scheme is part of what users see (`status.nodes`, pod names in logs), so it is kept exactly: the id of a node is
the workflow's name and the 32-bit FNV-1a hash of the node's full name; pods are named after Argo's second scheme.
Durations are read and written as Argo does: `90`, `"90"`, `1h30m`, `250ms`. `NodeFailure` is the one exception that the
walk of the tree turns into a phase.
"""

from __future__ import annotations

import re
from functools import lru_cache

POD_NAME_LIMIT = 63
"""A pod's name is also the value of a label and a host name here, so it keeps to 63 characters (Argo itself: 253)."""

_FNV_OFFSET = 0x811C9DC5
_FNV_PRIME = 0x01000193
_HASH_ROOM = 11  # a dash and ten digits
_DISPLAY = re.compile(r"^(\[\d+\])?\.")

_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


@lru_cache(maxsize=65536)
def fnv32a(text: str) -> int:
    """The 32-bit FNV-1a hash of the text's UTF-8 bytes, as Go's `hash/fnv` computes it."""
    value = _FNV_OFFSET
    for byte in text.encode():
        value = ((value ^ byte) * _FNV_PRIME) & 0xFFFFFFFF
    return value


def node_id(workflow: str, node_name: str) -> str:
    """The key of a node in `status.nodes`: the root is the workflow's own name."""
    return workflow if workflow == node_name else f"{workflow}-{fnv32a(node_name)}"


@lru_cache(maxsize=65536)
def pod_name(workflow: str, node_name: str, template: str) -> str:
    """The name of a node's pod: `<workflow>-<template>-<hash>`, at most 63 characters; the root's is the workflow's."""
    if workflow == node_name:
        return workflow[:POD_NAME_LIMIT].rstrip("-.")
    prefix = f"{workflow}-{template}".lower()[: POD_NAME_LIMIT - _HASH_ROOM].rstrip("-.")
    return f"{prefix}-{fnv32a(node_name)}"


def exit_node_name(parent_name: str) -> str:
    """The name of the exit hook's node of a workflow, step or task."""
    return f"{parent_name}.onExit"


def display_name(node_name: str, boundary_name: str) -> str:
    """What a tree shows: the name without the part that the surrounding template's node already says."""
    if not boundary_name or not node_name.startswith(boundary_name):
        return node_name
    return _DISPLAY.sub("", node_name[len(boundary_name) :], count=1)


class NodeFailure(Exception):  # noqa: N818 # an outcome of a node, not a fault of ours
    """A node cannot run; the text becomes its message, its phase Error."""


def seconds_of(text: str) -> float:
    """The seconds of a duration; a bare number counts seconds.

    Raises:
        ValueError: it is no duration.
    """
    text = text.strip()
    if re.fullmatch(r"\d+", text):
        return float(text)
    if not text or not re.fullmatch(f"(?:{_PART.pattern})+", text):
        raise ValueError(f"unable to parse '{text}' as a duration; write seconds, or like 1h30m, 45s, 250ms")
    return sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(text))


def spoken(seconds: float) -> str:
    """A duration in words, its two largest units: `1 minute 30 seconds`."""
    if seconds < 1:
        return f"{round(seconds * 1000)} milliseconds"
    parts: list[str] = []
    rest = round(seconds)
    for name, size in (("day", 86400), ("hour", 3600), ("minute", 60), ("second", 1)):
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count} {name}{'s' if count > 1 else ''}")
    return " ".join(parts[:2])
