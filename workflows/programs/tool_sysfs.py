"""Reads lines `path:value`, as `grep . /sys/…` prints them: one reading a file."""

from __future__ import annotations

import re
from typing import List

from workflows.programs.readings import Parsed
from workflows.programs.tool_text import Told, close, figure, measure, whole_lines

_LINE = re.compile(r"(/(?:sys|proc|dev)/(?:[^/\s]{1,80}/){0,30}[^/:\s]{1,80}):(.{1,400})")
_ADDRESS = re.compile(r"(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]")


def parse(text: str) -> Parsed:
    """Readings named as the file (`link_downed`); the subject is the folder, or the PCI address or NIC above it."""
    lines, cut = whole_lines(text)
    told = Told()
    for line in lines:
        hit = _LINE.fullmatch(line.strip())
        if hit is None:
            continue
        folders = hit.group(1).split("/")
        name = re.sub(r"\W+", "_", folders[-1].lower()).strip("_")
        value = hit.group(2).strip()
        measured = measure(value.partition(" PCIe")[0])
        subject = _subject(folders[:-1])
        if measured is not None and figure(value.partition(" ")[0]) is not None:
            told.figure(name, measured[0], measured[1], subject, line)
        else:
            told.word(name, value, subject, line)
    return close(told, "grep over /sys", text, cut)


def _subject(folders: List[str]) -> str:
    if "ports" in folders[:-1]:
        at = folders.index("ports")
        return f"{folders[at - 1]}/{folders[at + 1]}"
    address = next((one for one in reversed(folders) if _ADDRESS.fullmatch(one)), "")
    return address or (folders[-1] if folders else "")
