"""Progress that ranks report themselves (`POST /v1/progress`), and which source counts where several report it.

A step read from a rank's output counts most, since nobody elsewhere can forge it and the program need not do anything
for it; then what the rank posts; then the growth of a file.
"""

from __future__ import annotations

from typing import Any, Dict, Mapping, Set, TypeVar

from workflows.programs.coordinator import journal
from workflows.programs.coordinator.scopes import Gangs
from workflows.programs.coordinator.state import Member, RefusedError, ReportsReceived, State
from workflows.programs.progress.reader import DETAIL_CHARACTERS
from workflows.programs.runtime.flags import replace
from workflows.programs.runtime.http_server import Request
from workflows.programs.runtime.report_token import report_token, same
from workflows.wire import FILE, PhaseSeen, StepSeen, from_dict

PATH = "/v1/progress"
LONGEST_ROLE = 63
PHASES = ("init", "step", "checkpoint", "restore", "evaluation", "ended")
_KINDS: Dict[str, Any] = {"StepSeen": StepSeen, "PhaseSeen": PhaseSeen}
E = TypeVar("E")


def parse_report(request: Request, token: str, gangs: Gangs, at: float) -> ReportsReceived:
    """The report of a rank.

    The request must carry the attempt's `token`, or the one of the pod that its body names. `at` (Unix seconds) is the
    time of the report; a time in the body is ignored.

    Raises:
        RefusedError: the token (401), the body (400), the rank (403), the pod (404) or the incarnation (409) is wrong.
    """
    body = request.body
    role: Any = body.get("role")
    index: Any = body.get("pod_index")
    named = isinstance(role, str) and len(role) <= LONGEST_ROLE and type(index) is int
    own = report_token(token, role, index) if named and token else ""
    if not same(token, request.token) and not same(own, request.token):
        raise RefusedError(401, "the token is missing, wrong, or not of this role and pod_index")
    if not named:
        raise RefusedError(400, f"role: must be a text of at most {LONGEST_ROLE} characters, pod_index a whole number")
    state = gangs.of((role, index))
    member = state.members.get((role, index))
    if member is None:
        raise RefusedError(404, f"{role} {index} has not joined")
    report = _report(body, at)
    first = member.pod_index * member.processes
    if not first <= report.rank < first + member.processes:
        raise RefusedError(
            403, f"rank {report.rank} is not of {role} {index}, which has {member.processes} from {first}"
        )
    _check_incarnation(state, member, report.incarnation)
    return ReportsReceived(at=at, key=member.key, sequence=member.sequence, reports=(report,), posted=True)


def _report(body: Mapping[str, Any], at: float) -> Any:
    kind = _KINDS.get(str(body.get("report")))
    if kind is None:
        raise RefusedError(400, f"report: must be one of {', '.join(_KINDS)}, got {str(body.get('report'))[:80]!r}")
    missing = [name for name in ("rank", "incarnation") if name not in body]
    if missing:
        raise RefusedError(400, f"{', '.join(missing)}: must be given")
    data = {**body, "at": at, "source": ""}
    try:
        parsed = from_dict(kind, data)
    except (ValueError, TypeError) as error:
        raise RefusedError(400, str(error)[:300]) from error
    if isinstance(parsed, PhaseSeen) and parsed.phase not in PHASES:
        raise RefusedError(400, f"phase: must be one of {', '.join(PHASES)}, got {parsed.phase[:80]!r}")
    sane = journal.parse_reports([data])
    if not sane or (isinstance(parsed, StepSeen) and parsed.step < 1):
        raise RefusedError(400, "step, rank or incarnation: no such number can be")
    report = sane[0]
    return replace(report, detail=report.detail[:DETAIL_CHARACTERS]) if isinstance(report, PhaseSeen) else report


def _check_incarnation(state: State, member: Member, incarnation: int) -> None:
    if state.restarts_together(member.role) and incarnation != state.incarnation:
        raise RefusedError(409, f"incarnation {incarnation} is not this one, which is {state.incarnation}")


class ReportFilter:
    """Which source reports which rank of a gang's present incarnation; after a restart it learns that anew."""

    def __init__(self) -> None:
        self._incarnation = 1
        self._printed: Set[int] = set()
        self._posted: Dict[int, int] = {}
        """Highest step that each rank has posted."""

    def filter_event(self, state: State, event: E) -> E:
        """The event without reports that a better source of the same rank makes; `state` is its gang's before it."""
        if not isinstance(event, ReportsReceived) or not event.reports:
            return event
        if event.key[0] != state.deciding_role:
            return replace(event, reports=()) if event.posted else event
        if state.incarnation != self._incarnation:
            self._incarnation, self._printed, self._posted = state.incarnation, set(), {}
        kept = tuple(one for one in event.reports if self._counts(one, event.posted))
        return event if len(kept) == len(event.reports) else replace(event, reports=kept)

    def _counts(self, report: Any, posted: bool) -> bool:
        if posted:
            if report.rank in self._printed:
                return False
            if isinstance(report, StepSeen):
                self._posted[report.rank] = max(report.step, self._posted.get(report.rank, 0))
            return True
        if isinstance(report, StepSeen):
            if report.incarnation != self._incarnation:
                return True  # the reducer decides on it
            self._printed.add(report.rank)
            # A step reported twice would look as if the program had gone back.
            return not self._posted or report.step > self._posted.get(report.rank, 0)
        by_file = isinstance(report, PhaseSeen) and report.source == FILE
        return not (by_file and (self._printed or self._posted))
