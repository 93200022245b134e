"""Which process is which: a pid alone may belong to another process a moment later. No Prefect here."""

from __future__ import annotations

from pathlib import Path


def process_start(pid: int) -> float | None:
    """Start time of a process in clock ticks since boot, None where it is gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in ("Z", "X") else float(fields[19])
