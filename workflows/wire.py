"""What programs inside pods report to the outside: shapes shared by programs, tasks and flows.

Standard library only, Python 3.9: it travels inside the program archive. Frozen dataclasses go to JSON and back
(`to_json`, `from_json`). Unknown keys are ignored; a missing or mistyped one raises ValueError naming the key. NaN and
infinities become the strings "nan", "inf" and "-inf".

Files of a run's folder (`run_dir`, on shared storage):

```
ledger                             identity of the ledger that the run stands in; without it, of any ledger
checkpoints/                       the trainer's (unless the profile says otherwise)
proofs/step-<n>.json               Proof: what was proven about a checkpoint when it was written
kept/step-<n>/                     our own links or copies of files that a trainer overwrites in place
a<attempt>/<role>-<index>/
    launcher.log                   what the launcher said (structured lines, see LINE_PREFIX)
    rank-<rank>.log                the rank's own output, each line with its time (rotated: .1, .2)
    termination.json               Termination: the whole record of how this pod's ranks ended
    steps.jsonl                    StepSeen lines of the rank that reports progress
a<attempt>/coordinator/journal.jsonl   every report that the coordinator got, in order (its memory across restarts)
work/                              working folder of the ranks
```
"""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import (
    Any,
    Callable,
    Dict,
    List,
    Literal,
    Optional,
    Tuple,
    Type,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

NOT_FINITE = ("nan", "inf", "-inf")
"""How JSON says what is no number."""
Reader = Callable[[Any, str], Any]
"""A value of JSON and where it stands, to the value of a field."""

LINE_PREFIX = "@primus "
"""A line of a launcher's log that starts so carries one JSON object `{"report": <class name>, ...}`."""
TERMINATION_MESSAGE_BYTES = 3072
"""Kubernetes cuts a termination message at 4,096 bytes; ours stays below 3 KiB."""
FILE = "file"
"""Of `PhaseSeen`: the least trusted source of progress."""
T = TypeVar("T")


@dataclass(frozen=True)
class ServingReport:
    """What a component was seen to do when it was asked to serve."""

    component: str
    word: str
    """`pass`, `fail` or `unknown`: nobody could ask, or the answer cannot be read. It never counts as serving."""
    why: str
    """What was asked and what came, in one line."""
    at: float
    """Unix seconds at which it was seen."""
    wanted: str = ""
    """Fingerprint of what was installed then."""
    seconds: float = 0.0
    """How long it took until it served."""
    tries: int = 0
    """How often it was asked."""


@dataclass(frozen=True)
class StepSeen:
    """A training step was completed."""

    step: int
    """Position over all attempts (offset and counter already added)."""
    at: float
    """Unix time in seconds when its line was read."""
    rank: int = 0
    loss: Optional[float] = None
    """None: not reported. NaN and infinities are kept as the strings "nan", "inf", "-inf" in JSON."""
    seconds: Optional[float] = None
    """Step time that the program itself reported."""
    tokens_per_second: Optional[float] = None
    total_steps: Optional[int] = None
    incarnation: int = 1
    """Of the ranks inside the attempt: 1 until they are restarted in place."""
    compute_seconds: Optional[float] = None
    """The rank's own work before it waits for others: after a barrier all are equally slow."""
    gradient_norm: Optional[float] = None


@dataclass(frozen=True)
class PhaseSeen:
    """A rank entered a phase."""

    phase: str
    """`init`, `step`, `checkpoint`, `restore`, `evaluation`, `ended`."""
    at: float
    rank: int = 0
    detail: str = ""
    incarnation: int = 1
    source: str = ""
    """`FILE`: only a file grew; "": the program's own words."""


UNRECOGNISED = "unrecognised"
"""Format of a `CheckpointSeen` on a folder in which no checkpoint is found, or none that is whole."""
REMOVED = "removed"
"""Format of a `CheckpointSeen` on one that nobody needs any more and that was deleted; its verdict is `unknown`."""


@dataclass(frozen=True)
class CheckpointSeen:
    """A checkpoint was found whole (`unknown`), then proven or not (`pass`, `fail`) by reading it once.

    Only one that passed may be gone on from.
    """

    step: int
    path: str
    at: float
    verdict: str = "unknown"
    why: str = ""
    bytes: int = 0
    format: str = ""
    resume_from: str = ""
    """What ranks restarted in place are told; "": only a new attempt, which looks at the storage, may go on from it."""
    written_at: Optional[float] = None
    """Unix time of its newest file, by the clock of the storage; None: not known."""


@dataclass(frozen=True)
class RankEnd:
    """How one rank ended."""

    rank: int
    local_rank: int
    at: float
    exit_code: Optional[int] = None
    """None when it ended by a signal."""
    signal: Optional[int] = None
    requested: bool = False
    """True where the launcher had asked it to end (it is a victim, not a cause)."""
    last_step: Optional[int] = None
    last_lines: List[str] = field(default_factory=lambda: [])
    """At most 100 lines, each cut at 2,000 characters, of both its streams in order."""
    fingerprint: str = ""
    """Stable across attempts: exception type, innermost user frame and message without numbers and addresses."""
    oom_killed: bool = False
    """True where the kernel or the container runtime says memory was the reason."""
    incarnation: int = 1


LauncherCause = Literal[
    "",
    "arguments",  # its own flags or variables cannot be read
    "address",  # the coordinator's address or its own is none
    "coordinator-away",  # the coordinator did not answer in time
    "coordinator-refused",
    "gang-incomplete",  # not all pods met in time, or in another incarnation
    "folder",  # a folder of the ranks cannot be made, and never will
    "storage",  # a storage that has no room or does not work refuses a file or folder
    "checkpoint-changed",  # it is not what was proven
    "no-steps",  # exit 0 without any of the planned steps
    "ended-early",  # exit 0 before the planned last step
    "process-stuck",  # SIGKILL does not end a process
    "memory",  # the system has none left for the launcher
    "system-refused",  # the system refuses the launcher something else
]
"""What a launcher knows of why its pod ended wrongly, where no rank's end says it; "": nothing.

`flows.decisions.diagnosis.witnesses.LAUNCHER_CAUSES` has the class of each.
"""


@dataclass(frozen=True)
class Termination:
    """How the ranks of one pod ended; the whole goes to the run's folder, `summary` to the termination message."""

    run: str
    attempt: int
    role: str
    node: str
    pod: str
    reason: str
    """`completed`, `rank-failed`, `told-to-stop`, `signalled`, `coordinator-lost`, `launcher-error`."""
    ranks: List[RankEnd]
    first_failing_rank: Optional[int] = None
    """The first rank of this pod that ended wrongly without having been asked to end."""
    last_step: Optional[int] = None
    at: float = 0.0
    detail: str = ""
    cause: str = ""
    """One of `LauncherCause`."""

    def summary(self) -> str:
        """JSON of at most `TERMINATION_MESSAGE_BYTES` bytes: last lines go first, then ranks that ended well."""
        for keep_lines in (20, 5, 1, 0):
            ranks = [dataclasses.replace(end, last_lines=[x[:200] for x in end.last_lines[-keep_lines:] if keep_lines])
                     for end in self.ranks]  # fmt: skip
            text = to_json(dataclasses.replace(self, ranks=ranks))
            if len(text.encode()) <= TERMINATION_MESSAGE_BYTES:
                return text
        culprits = [end for end in self.ranks if end.rank == self.first_failing_rank]
        slim = [dataclasses.replace(end, last_lines=[], fingerprint=end.fingerprint[:200]) for end in culprits]
        return to_json(dataclasses.replace(self, ranks=slim, detail=self.detail[:200]))


@dataclass(frozen=True)
class GateReport:
    """What the short gate found on one node (output parameter `report` of the gate's pod)."""

    node: str
    verdict: str
    checks: List[Dict[str, Any]]
    """`{"check", "verdict", "measured", "limit", "unit", "evidence"}` each."""
    at: float = 0.0


@dataclass(frozen=True)
class FileRecord:
    """One file of a proven checkpoint: enough to see at restart that nothing moved."""

    path: str
    """Relative to the checkpoint's own folder (or the file's name)."""
    bytes: int
    mtime_ns: int
    inode: int
    sha256: str
    """Digest read at proof time; "" where only headers were read."""


@dataclass(frozen=True)
class Proof:
    """What was proven about a checkpoint at `at`."""

    step: int
    path: str
    format: str
    verdict: str
    why: str
    files: List[FileRecord]
    at: float
    kept_path: str = ""
    """Where our own link or copy lies; "" while the original is untouched."""
    first_nan_step: Optional[int] = None
    """A checkpoint at or after the first NaN is not good, however complete."""


@dataclass(frozen=True)
class CheckpointState:
    """One checkpoint as a look at the storage found it."""

    step: int
    path: str
    tier: str
    format: str
    bytes: int
    complete: bool
    digest: str
    """`ok`, `bad`, `absent`."""
    usable: bool
    why: str
    would_resume: bool = False


@dataclass(frozen=True)
class ResumeChoice:
    """Outcome of the step that proves the checkpoint inside the cluster (its output parameters carry this)."""

    resume_from: str
    """Path as the trainer is told; "" when there is nothing to resume."""
    resume_step: Optional[int]
    """None when there is nothing to resume."""
    looked_at: List[CheckpointState]
    """Newest first, with the reason for each that was passed over."""
    verdict: str
    """`pass`: proven, or certainly nothing to resume; `fail`: checkpoints exist and none is usable, or the folder is
    of the ledger `owner`, and nothing in it was looked at; `unknown`: the storage could not be read."""
    why: str
    seconds: float = 0.0
    bytes_read: int = 0
    owner: str = ""
    put_aside: List[str] = field(default_factory=lambda: [])
    """Checkpoints that a program must not open which looks for its newest one by itself: a sentence about each."""


def line(report: Any) -> str:
    """The structured log line of a report."""
    data = {"report": type(report).__name__, **plain(dataclasses.asdict(report))}
    return LINE_PREFIX + json.dumps(data, separators=(",", ":"), ensure_ascii=False)


def from_line(text: str) -> Optional[Any]:
    """The report in a structured log line, or None where the line is something else or broken."""
    if not text.startswith(LINE_PREFIX):
        return None
    try:
        data = json.loads(text[len(LINE_PREFIX) :])
        return from_dict(REPORTS[data.pop("report")], data)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def from_json(kind: Type[T], text: Union[str, bytes]) -> T:
    """The report of class `kind` in `text`.

    Raises:
        ValueError: not JSON, not an object, or a key is missing or has the wrong type (the key is named).
    """
    data = json.loads(text)
    if not isinstance(data, dict):
        raise ValueError(f"{kind.__name__}: expected an object, got {type(data).__name__}")
    return from_dict(kind, cast("Dict[str, Any]", data))


def to_json(report: Any) -> str:
    """One line of JSON; NaN and infinities become strings."""
    return json.dumps(plain(dataclasses.asdict(report)), separators=(",", ":"), ensure_ascii=False)


def from_dict(kind: Type[T], data: Dict[str, Any]) -> T:
    """The value of class `kind` in a parsed object.

    Raises:
        ValueError: a key is missing or has the wrong type (the key is named).
    """
    values: Dict[str, Any] = {}
    for name, read, required, where in _fields(kind):
        if name in data:
            values[name] = read(data[name], where)
        elif required:
            raise ValueError(f"{kind.__name__}: {name} is missing")
    return kind(**values)


@lru_cache(maxsize=None)
def _fields(kind: Any) -> Tuple[Tuple[str, Reader, bool, str], ...]:
    """Name, reader, whether it must be there, and its name in errors; made once, as steps come by the thousand."""
    hints = get_type_hints(kind)
    return tuple(
        (item.name, _reader(hints[item.name]), item.default is item.default_factory, f"{kind.__name__}.{item.name}")
        for item in dataclasses.fields(kind)
    )


def _reader(hint: Any) -> Reader:
    """What makes a field of that type from JSON."""
    origin = get_origin(hint)
    if origin is Union:  # Optional[X]
        inner = _reader(next(arg for arg in get_args(hint) if arg is not type(None)))
        return lambda value, where: None if value is None else inner(value, where)
    if origin is list:
        return _list_reader(_reader(get_args(hint)[0]))
    if dataclasses.is_dataclass(hint):
        return lambda value, where: _object(hint, value, where)
    return lambda value, where: value if type(value) is hint else _scalar(hint, value, where)


def _list_reader(read: Reader) -> Reader:
    def items(value: Any, where: str) -> List[Any]:
        if not isinstance(value, list):
            raise ValueError(f"{where}: expected a list")
        return [read(item, f"{where}[{index}]") for index, item in enumerate(cast("List[Any]", value))]

    return items


def _object(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise ValueError(f"{where}: expected an object")
    return from_dict(kind, cast("Dict[str, Any]", value))


def _scalar(hint: Any, value: Any, where: str) -> Any:
    if hint is Any or get_origin(hint) is dict:
        return value
    if hint is float and not isinstance(value, bool) and (isinstance(value, (int, float)) or value in NOT_FINITE):
        try:
            return float(value)
        except OverflowError as error:
            raise ValueError(f"{where}: the number is too large") from error
    if isinstance(value, hint) and (hint is bool or not isinstance(value, bool)):
        return value
    raise ValueError(f"{where}: expected {getattr(hint, '__name__', hint)}, got {type(value).__name__}")


def plain(value: Any) -> Any:
    """A value as JSON can say it."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: plain(item) for key, item in cast("Dict[str, Any]", value).items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in cast("List[Any]", value)]
    return value


_KINDS = (StepSeen, PhaseSeen, CheckpointSeen, RankEnd, Termination, GateReport, Proof, CheckpointState, ResumeChoice)
REPORTS: Dict[str, Any] = {kind.__name__: kind for kind in _KINDS}
