"""A file whose growth is the only sign of progress that a program gives."""

from __future__ import annotations

import os

LOOK_SECONDS = 1.0


class GrowingFile:
    """Looks at one file's size now and then.

    Args:
        path: of the file; "": there is none.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._size = 0
        self._looked_at = float("-inf")

    def grown(self, now: float) -> int:
        """The new size in bytes where it grew since the last look; 0 where it did not or a look is not due.

        A file that is started over shrinks first; from then on its growth counts again.

        Args:
            now: monotonic seconds.
        """
        if not self.path or now - self._looked_at < LOOK_SECONDS:
            return 0
        self._looked_at = now
        try:
            size = os.stat(self.path).st_size
        except OSError:
            return 0
        before, self._size = self._size, size
        return size if size > before else 0
