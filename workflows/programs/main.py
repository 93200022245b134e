"""The one entry of all programs inside pods: `python3 programs.pyz <program> <flags>`."""

from __future__ import annotations

import os
import sys
from typing import Dict, List

PROGRAMS: Dict[str, str] = {
    "collect": "collect",
    "coordinate": "coordinator.main",
    "copy": "runtime.copy",
    "demo-train": "demo.train",
    "gang-gpu": "fabric.torch_group",
    "gate": "probes.gate",
    "health": "health.main",
    "health-ask": "health.client",
    "install-component": "serving.install",
    "launch": "launcher.main",
    "park": "prefork.child",
    "probe": "probes.run",
    "probe-gang": "fabric.group_member",
    "probe-host": "probes.over_ssh",
    "probe-one": "probes.one",
    "probe-pair": "fabric.pair_member",
    "prove": "checkpoints.prover",
    "prove-serving": "serving.main",
    "serving-helper": "serving.helper",
    "sweep": "probes.sweep",
    "verify": "checkpoints.choose",
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
    # Started by its path: the folder of `workflows` must be on the path, and this one must not, or a module of ours
    # could stand in for one of the standard library.
    _here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [os.path.dirname(os.path.dirname(_here)), *(one for one in sys.path if os.path.abspath(one) != _here)]
    sys.exit(main(sys.argv[1:]))
