"""One probe in a process of its own: `programs.pyz probe-one --name=cpu-gemm --arguments='{"size":"1024"}'`.

It prints one line with its readings and ends with 0, also where it could find nothing out: then the line says why. The
probe that started it reads that line and kills it where it hangs.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import Callable, Dict, List, Mapping

from workflows.programs import flags, probe_gpus, probe_links, probe_node, probe_reach
from workflows.programs.measure import MEASUREMENTS
from workflows.programs.measure_collective import process_all_reduce
from workflows.programs.probe_call import parsed_to
from workflows.programs.readings import Parsed

Probe = Callable[[Mapping[str, str]], Parsed]
OPENING_GPUS = ("gpu-smoke", "gpu-gemm", "gpu-memory", "gpu-copy", "gpu-load", "collective", "train-step")
QUEUEING = ("gpu-launch", "gpu-overlap")
LATE: Dict[str, str] = {
    **dict.fromkeys(OPENING_GPUS, "probe_devices"),
    **dict.fromkeys(QUEUEING, "probe_queues"),
    "kernel-log": "probe_kernel",
    "services": "probe_services",
    "volume": "probe_volume",
    "fabric-environment": "probe_services",
}
"""Probes whose modules are imported when they are asked for: every other one would wait for them."""


def _late(name: str) -> Probe:
    def probe(arguments: Mapping[str, str]) -> Parsed:
        full_name = f"workflows.programs.{LATE[name]}"
        __import__(full_name)
        found: Dict[str, Probe] = sys.modules[full_name].PROBES
        return found[name](arguments)

    return probe


PROBES: Dict[str, Probe] = {
    **MEASUREMENTS,
    **probe_node.PROBES,
    **probe_reach.PROBES,
    **probe_links.PROBES,
    **probe_gpus.PROBES,
    **{name: _late(name) for name in LATE},
    "process-all-reduce": process_all_reduce,
}
"""Functions by the names of `profiles/suite_words.py`."""


@dataclass(frozen=True)
class Options:
    """What is asked for."""

    name: str
    arguments: str = "{}"
    """JSON object of words."""


def answer(name: str, arguments: Mapping[str, str]) -> Parsed:
    """What the probe finds out; whatever goes wrong is the reason why nothing is known."""
    probe = PROBES.get(name)
    if probe is None:
        return Parsed(unknown=f"these programs have no probe {name!r}: use an image of the same version")
    try:
        return probe(arguments)
    except OSError as error:
        return Parsed(unknown=f"{error.strerror or error} ({error.filename or name})")
    except Exception as error:
        return Parsed(unknown=f"the probe crashed: {type(error).__name__}: {error}")


def main(argv: List[str]) -> int:
    """Probe and print."""
    try:
        options = flags.from_argv(Options, argv)
        arguments: Mapping[str, str] = json.loads(options.arguments)
    except ValueError as error:
        print(f"probe-one: {error}", file=sys.stderr)
        return 2
    print(parsed_to(answer(options.name, arguments)), flush=True)
    return 0
