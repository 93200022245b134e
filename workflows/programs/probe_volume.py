"""Probe of a volume that was made for the test: it must take what is written and give it back.

Standard library only, Python 3.9. Who claimed the volume, and whether it goes again, is seen from outside.
"""

from __future__ import annotations

import errno
import os
from typing import Mapping

from workflows.programs.measure import storage
from workflows.programs.probe_node import STORAGE_VARIABLE
from workflows.programs.readings import Parsed, Reading

FAULTS: Mapping[int, str] = {
    errno.EROFS: "it is mounted read-only",
    errno.ENOSPC: "it is full",
    errno.EDQUOT: "its quota is used up",
    errno.EIO: "its device fails",
    errno.ESTALE: "its mount is stale",
}
"""What a new volume must not answer; anything else leaves the check unknown."""


def volume(arguments: Mapping[str, str]) -> Parsed:
    """What is wrong with the volume, as a count of faults: 0 or 1.

    Raises:
        OSError: it could not be tried, and that is no fault of the volume.
        ArgumentError: `bytes` is no size.
    """
    folder = os.environ.get(STORAGE_VARIABLE, "")
    if not folder:
        return Parsed(unknown="nobody said where the volume is")
    try:
        told = storage({**arguments, "path": folder})
    except OSError as error:
        what = FAULTS.get(error.errno or 0)
        if what is None:
            raise
        return _fault(f"{what}: {error.strerror}")
    figures = {one.quantity: one.value or 0.0 for one in told.readings}
    if figures["storage_wrong_bytes"]:
        return _fault(f"{figures['storage_wrong_bytes']:g} bytes came back wrong")
    rates = f"{figures['storage_write_bandwidth']:.2g} GB/s, read at {figures['storage_read_bandwidth']:.2g} GB/s"
    line = f"{told.readings[0].line.partition(' in ')[0]} written at {rates}, all as written"
    return Parsed((Reading("volume_faults", 0.0, "count", line=line),))


def _fault(line: str) -> Parsed:
    return Parsed((Reading("volume_faults", 1.0, "count", line=line),))


PROBES = {"volume": volume}
