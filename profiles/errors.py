"""The errors of this project, one tree.

```
PrimusError
├── Transient          try again, `retry_after_seconds` later; nothing is known to be wrong with the request
│   └── Unavailable    a neighbour (cluster, ledger, server) does not answer
└── Permanent          the same request fails again; the message says what to change
    ├── ProfileError   a profile, flag or request is wrong; carries the field's path (exit 2)
    ├── NotFound       the named object does not exist
    ├── Conflict       somebody else changed or owns the object
    │   └── Foreign    it belongs to another ledger: neither taken over nor deleted
    ├── Refused        a manifest or request is not accepted; carries the path inside the object (exit 2)
    └── Fenced         a newer driver holds the run: this one must stop at once and touch nothing
```

Every module may import this one; it imports nothing of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence


class PrimusError(Exception):
    """The root: catch it at the edge of a program to show one line instead of a stack trace."""


class Transient(PrimusError):  # noqa: N818 - the name says the retry policy
    """Worth trying again.

    Args:
        message: what, where, and what is done next.
        retry_after_seconds: how long to wait before the next try.
    """

    def __init__(self, message: str, retry_after_seconds: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class Unavailable(Transient):
    """A neighbour does not answer. Training is left alone; the caller waits and asks again."""


class Permanent(PrimusError):  # noqa: N818 - the name says the retry policy
    """The same request would fail again."""


class ProfileError(Permanent):
    """A profile, a flag or a request is wrong.

    Args:
        field: dotted path of the field, e.g. `roles[0].replicas`.
        reason: what is wrong and what to do.
        source: the file, preset or flag it came from.
    """

    def __init__(self, field: str, reason: str, source: str = "") -> None:
        super().__init__(f"{source + ': ' if source else ''}{field}: {reason}")
        self.field = field
        self.reason = reason
        self.source = source


class NotFound(Permanent):
    """The named object does not exist."""


class Conflict(Permanent):
    """The object was changed by somebody else since it was read, or exists with another owner."""


class Foreign(Conflict):
    """The object belongs to another ledger. It is neither taken over nor deleted; the message says what to do."""


class Refused(Permanent):
    """A manifest or request is not accepted.

    Args:
        path: path of the offending field inside the object, e.g. `spec.templates[0].container.lifecycle`.
        reason: what is wrong and what to do.
        problems: where several things are wrong, all of them; path and reason are then the first one's.
    """

    def __init__(self, path: str, reason: str, problems: Sequence[Refused] = ()) -> None:
        super().__init__("\n".join(str(one) for one in problems) if problems else f"{path}: {reason}")
        self.path = path
        self.reason = reason
        self.problems: tuple[Refused, ...] = tuple(problems) or (self,)


def check_all(checks: Iterable[Callable[[], object]]) -> None:
    """Make every check, whatever the others say, so that a person is told of all that is wrong at once.

    Raises:
        Refused: with the problems of all checks, each once.
    """
    found: dict[str, Refused] = {}
    for check in checks:
        try:
            check()
        except Refused as refused:
            for problem in refused.problems:
                found.setdefault(str(problem), problem)
    if found:
        first, *others = found.values()
        raise Refused(first.path, first.reason, tuple(found.values())) if others else first


class Fenced(Permanent):
    """A newer driver holds the run. Stop without touching anything."""
