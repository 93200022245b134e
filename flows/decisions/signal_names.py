"""Numbers of signals by the names that launchers print."""

from __future__ import annotations

NUMBERS = {
    "SIGHUP": 1, "SIGINT": 2, "SIGILL": 4, "SIGABRT": 6, "SIGBUS": 7, "SIGFPE": 8, "SIGKILL": 9, "SIGSEGV": 11,
    "SIGPIPE": 13, "SIGTERM": 15,
}  # fmt: skip
SRUN = {
    "Killed": 9, "Terminated": 15, "Segmentation fault": 11, "Bus error": 7, "Aborted": 6, "Illegal instruction": 4,
    "Out Of Memory": 9,
}  # fmt: skip
"""What srun prints of a task, and the signal that it means."""
