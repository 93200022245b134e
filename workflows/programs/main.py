"""The one entry of all programs inside pods: `python3 programs.pyz <program> <flags>`."""

from __future__ import annotations

import os
import sys
from typing import Dict, List

PROGRAMS: Dict[str, str] = {
    "collect": "collect",
    "coordinate": "coordinate",
    "copy": "copy",
    "demo-train": "demo_train",
    "gang-gpu": "gang_torch",
    "gate": "gate",
    "health": "health",
    "health-ask": "health_ask",
    "launch": "launch",
    "park": "warm_park",
    "probe": "probe",
    "probe-gang": "gang_probe",
    "probe-host": "probe_host",
    "probe-one": "probe_one",
    "probe-pair": "gang_pair",
    "prove": "prove",
    "sweep": "sweep",
    "verify": "verify",
}
"""Module of each program; only the chosen one is imported."""


def main(argv: List[str]) -> int:
    """Run the program that `argv` names; its exit code, or 2 where there is no such program."""
    name = argv[0] if argv else ""
    module = PROGRAMS.get(name)
    if module is None:
        asked = f"{name}: no such program; " if name else ""
        print(f"programs: {asked}choose one of {', '.join(sorted(PROGRAMS))}", file=sys.stderr, flush=True)
        return 2
    full_name = f"workflows.programs.{module}"
    __import__(full_name)
    return int(sys.modules[full_name].main(argv[1:]))


if __name__ == "__main__":
    # Started by its path: the folder of `workflows` must be on the path, and this one must not, or our `copy` would
    # stand in for the standard library's.
    _here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [os.path.dirname(os.path.dirname(_here)), *(one for one in sys.path if os.path.abspath(one) != _here)]
    sys.exit(main(sys.argv[1:]))
