"""What observers ask of streams: how far each was outlived by its own training."""

from __future__ import annotations

from collections.abc import Sequence

from flows.decisions.lines import by_stream
from flows.decisions.steps import lived_until
from workflows.evidence import LogLine


class Lived:
    """Up to which line each file's own words prove that training went on."""

    def __init__(self, lines: Sequence[LogLine]) -> None:
        self._until: dict[str, int] = {}
        for stream in by_stream(lines):
            file = stream[0].file
            self._until[file] = max(self._until.get(file, 0), lived_until(stream))

    def outlived(self, line: LogLine) -> bool:
        """True where training went on after this line, in the same file."""
        return bool(line.file) and line.line < self._until.get(line.file, 0)
