"""How a node fails to run: the one exception that the walk of the tree turns into a phase."""

from __future__ import annotations


class NodeFailure(Exception):  # noqa: N818 # an outcome of a node, not a fault of ours
    """A node cannot run; the text becomes its message, its phase Error."""
