"""One probe in a process of its own: `programs.pyz probe-one --name=cpu-gemm --arguments='{"size":"1024"}'`.

It prints one line with its readings and ends with 0, also where it could find nothing out: then the line says why. The
probe that started it reads that line and kills it where it hangs.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import Callable, Dict, List, Mapping

from workflows.programs.parsers.text import ParsedOutput
from workflows.programs.probes import gpu_count, links, measure, node
from workflows.programs.probes.call import dump_parsed
from workflows.programs.runtime import flags

Probe = Callable[[Mapping[str, str]], ParsedOutput]
GPU_PROBES = (
    "gpu-smoke",
    "gpu-gemm",
    "gpu-memory",
    "gpu-copy",
    "gpu-load",
    "gpu-launch",
    "gpu-overlap",
    "collective",
    "train-step",
)
LATE: Dict[str, str] = {
    **dict.fromkeys(GPU_PROBES, "gpus"),
    "kernel-log": "kernel_log",
    **dict.fromkeys(("services", "fabric-environment", "clock", "names", "ssh", "tool-time"), "services"),
}
"""Probes whose modules are imported when they are asked for: every other one would wait for them."""


def _late(name: str) -> Probe:
    def probe(arguments: Mapping[str, str]) -> ParsedOutput:
        full_name = f"workflows.programs.probes.{LATE[name]}"
        __import__(full_name)
        found: Dict[str, Probe] = sys.modules[full_name].PROBES
        return found[name](arguments)

    return probe


PROBES: Dict[str, Probe] = {
    **measure.PROBES,
    **node.PROBES,
    **links.PROBES,
    **gpu_count.PROBES,
    **{name: _late(name) for name in LATE},
}
"""Functions by the names of `profiles/checks/catalogue.py`."""


@dataclass(frozen=True)
class Options:
    """What is asked for."""

    name: str
    arguments: str = "{}"
    """JSON object of words."""


def answer(name: str, arguments: Mapping[str, str]) -> ParsedOutput:
    """What the probe finds out; whatever goes wrong is the reason why nothing is known."""
    probe = PROBES.get(name)
    if probe is None:
        return ParsedOutput(unknown=f"these programs have no probe {name!r}: use an image of the same version")
    try:
        return probe(arguments)
    except OSError as error:
        return ParsedOutput(unknown=f"{error.strerror or error} ({error.filename or name})")
    except Exception as error:
        return ParsedOutput(unknown=f"the probe crashed: {type(error).__name__}: {error}")


@flags.program("probe-one")
def main(argv: List[str]) -> int:
    """Probe and print."""
    options = flags.from_argv(Options, argv)
    try:
        arguments: Mapping[str, str] = json.loads(options.arguments)
    except ValueError as error:
        raise flags.UsageError(f"--arguments: {error}") from error
    print(dump_parsed(answer(options.name, arguments)), flush=True)
    return 0
