"""`retryStrategy`: whether and when a failed attempt is followed by another."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tasks.embedded.engine.argo.names import NodeFailure, seconds_of, spoken
from tasks.embedded.engine.argo.scope import attempts_of
from tasks.embedded.engine.argo.state import DONE, FAILED, Computation
from tasks.embedded.engine.argo.substitution import Lookup, substitute_all
from tasks.embedded.engine.expr.evaluate import evaluate_condition
from tasks.embedded.engine.expr.go_values import plain
from tasks.embedded.engine.expr.tree import ExpressionError
from tasks.embedded.engine.json_values import Json, as_map, moment, stamp, text_of

POLICIES = {
    "Always": FAILED,
    "OnError": frozenset(("Error",)),
    "OnFailure": frozenset(("Failed",)),
    "OnTransientError": FAILED,
}
"""Which ends a policy retries."""
_TRANSIENT = ("timeout", "connection reset", "connection refused", "TLS handshake", "quota", "too many requests", "EOF")
"""Words in the message of an error that Argo counts as transient."""

_LONGEST_WAIT_SECONDS = 10 * 365 * 86400.0
_POWERS_OF_A_FLOAT = 32
"""A factor of up to 10^9 to this power is still a float; the wait has long reached its longest by then."""


@dataclass(frozen=True)
class RetryEnd:
    """The Retry node ends, like its last attempt or as said."""

    phase: str
    message: str | None


@dataclass(frozen=True)
class DelayedAttempt:
    """The next attempt starts later."""

    until: float
    message: str


@dataclass(frozen=True)
class ImmediateAttempt:
    """The next attempt starts now."""

    deadline: float | None
    """When all attempts together must be done (backoff's `maxDuration`)."""


def after_attempt(
    run: Computation, node: Json, strategy: Json, lookup: Lookup
) -> RetryEnd | DelayedAttempt | ImmediateAttempt:
    """What follows the last attempt of a Retry node, which is done.

    Raises:
        NodeFailure: the strategy cannot be computed.
    """
    attempts = attempts_of(run, node)
    last = attempts[-1]
    if last["phase"] not in FAILED:
        return RetryEnd("Succeeded", None)
    if run.shutdown:
        return RetryEnd(last["phase"], f"Stopped with strategy '{run.shutdown}'")
    if run.overdue and run.deadline is not None:
        return RetryEnd(last["phase"], f"retry exceeded workflow deadline {stamp(run.deadline)}")
    strategy = as_map(substitute_all(strategy, lookup))
    try:
        limit = None if strategy.get("limit") in (None, "") else int(text_of(strategy["limit"]))
        backoff = _backoff(strategy, attempts)
        refused = _is_refused(strategy, attempts, limit)
    except (ValueError, ExpressionError) as error:
        raise NodeFailure(f"retryStrategy: {error}") from error
    return _decide(run, last, backoff, refused)


@dataclass(frozen=True)
class _Backoff:
    wait_seconds: float
    deadline: float | None


def _backoff(strategy: Json, attempts: list[Json]) -> _Backoff | None:
    backoff = as_map(strategy.get("backoff"))
    if not backoff:
        return None
    wait = seconds_of(text_of(backoff.get("duration") or "0"))
    factor = int(text_of(backoff.get("factor") or 0))
    if factor > 0:
        wait = min(wait * float(factor) ** min(len(attempts) - 1, _POWERS_OF_A_FLOAT), _LONGEST_WAIT_SECONDS)
    if backoff.get("cap"):
        wait = min(wait, seconds_of(text_of(backoff["cap"])))
    deadline = None
    if backoff.get("maxDuration"):
        deadline = moment(attempts[0]["startedAt"]) + seconds_of(text_of(backoff["maxDuration"]))
    return _Backoff(wait, deadline)


def _is_refused(strategy: Json, attempts: list[Json], limit: int | None) -> RetryEnd | None:
    """Whether policy, limit or expression forbid another attempt: all three must allow it."""
    last = attempts[-1]
    expression = text_of(strategy.get("expression") or "")
    policy = text_of(strategy.get("retryPolicy") or ("Always" if expression else "OnFailure"))
    transient = policy != "OnTransientError" or any(word in last.get("message", "") for word in _TRANSIENT)
    if last["phase"] not in POLICIES[policy] or not transient:
        return RetryEnd(last["phase"], last.get("message", ""))
    if limit is not None and len(attempts) > limit:
        return RetryEnd(last["phase"], "No more retries left")
    known = {"lastRetry": last_retry(last), "retries": str(len(attempts) - 1)}
    if expression and not evaluate_condition(expression, known):
        return RetryEnd(last["phase"], "retryStrategy.expression evaluated to false")
    return None


def _decide(
    run: Computation, last: Json, backoff: _Backoff | None, refused: RetryEnd | None
) -> RetryEnd | DelayedAttempt | ImmediateAttempt:
    if backoff is not None and backoff.deadline is not None and run.now > backoff.deadline:
        return RetryEnd(last["phase"], "Max duration limit exceeded")
    if refused is not None:
        return refused
    if backoff is None:
        return ImmediateAttempt(None)
    until = moment(last["finishedAt"]) + backoff.wait_seconds
    if backoff.deadline is not None and until > backoff.deadline:
        return RetryEnd(last["phase"], "Backoff would exceed max duration limit")
    if run.now < until:
        return DelayedAttempt(until, f"Backoff for {spoken(backoff.wait_seconds)}")
    return ImmediateAttempt(backoff.deadline)


def last_retry(attempt: Json | None) -> dict[str, str]:
    """`lastRetry` of an expression: exit code, status, duration and message of an attempt, all texts.

    The duration is a whole number of seconds, from stamp to stamp as Kubernetes keeps them; 0 of what has not ended.
    """
    if attempt is None:
        return {"exitCode": "0", "status": "", "duration": "0", "message": ""}
    return {
        "exitCode": as_map(attempt.get("outputs")).get("exitCode", "-1"),
        "status": attempt["phase"],
        "duration": plain(_duration_seconds(attempt)),
        "message": attempt.get("message", ""),
    }


def _duration_seconds(attempt: Json) -> float:
    if not attempt.get("finishedAt"):
        return 0.0
    return float(math.floor(moment(attempt["finishedAt"])) - math.floor(moment(attempt["startedAt"])))


def retry_tags(run: Computation, attempts: list[Json]) -> dict[str, str]:
    """The tags of the attempt that runs now or starts next: `retries`, `lastRetry.exitCode`, …."""
    running = attempts and attempts[-1]["phase"] not in DONE
    before = attempts[:-1] if running else attempts
    last = last_retry(before[-1] if before else None)
    return {"retries": str(len(before)), **{f"lastRetry.{name}": value for name, value in last.items()}}
