"""Nodes as tests want them."""

from __future__ import annotations

from typing import Any

from workflows.model.manifest import Condition
from workflows.model.nodes import Node

STATES = {True: "True", False: "False", None: "Unknown"}


def a_node(name: str, ready: bool | None = True, reason: str = "", **more: Any) -> Node:
    """A node whose condition Ready says so."""
    return Node(name, conditions=(Condition("Ready", STATES[ready], reason),), **more)
