"""The fields of an event's payload, and how states and moments are called in its name. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workflows.console import SCHEMA_VERSION

FIELDS: Mapping[str, Any] = {
    "schema_version": SCHEMA_VERSION,
    "ledger": "",
    "seq": 0,
    "at": "",
    "cluster": "",
    "run": "",
    "attempt": None,
    "node": "",
    "nodes": [],
    "id": "",
    "incident": "",
    "signal": "",
    "class": None,
    "confidence": None,
    "culprits": [],
    "action": None,
    "subject": "",
    "state": "",
    "outcome": None,
    "step": None,
    "ratio": None,
    "why": "",
    "evidence": [],
    "would_change": "",
    "question": "",
    "expires_at": None,
    "by": "",
    "link": "",
    "command": "",
    "message": "",
}
"""Every field of every payload, with what stands there where an event has nothing to say."""
NODE_EVENTS = {"quarantined": "quarantined", "schedulable": "released", "testing": "testing", "unknown": "unknown"}
MOST_NODES = 50
"""That an event is related to: the server takes 100 related resources."""
ATTEMPT_MOMENTS = (
    ("ended_at", "ended"),
    ("first_step", "training"),
    ("running_at", "running"),
    ("applied_at", "applied"),
    ("submitted_at", "submitted"),
)
"""Field that a change sets -> event; one change may set several, the last moment counts."""
