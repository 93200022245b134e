"""The second path to a gang's progress, for when its coordinator is not heard: what launchers' own logs say. Pure.

A launcher also writes what it reads of its ranks into its own output, as structured lines (`wire.LINE_PREFIX`). Two
looks at the newest of them show whether training goes on, so no node's clock is compared with ours.
`stranded_coordinator` finds a coordinator that was lost with a node on which no rank ran.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from workflows.labels import COORDINATOR_ROLE
from workflows.model.attempt import AttemptView, CoordinatorFacts, LogSign, SecondSight
from workflows.model.cluster import Pod
from workflows.wire import LINE_PREFIX, PhaseSeen, StepSeen, from_line

LEAST_SILENCE_SECONDS = 1.0
"""The coordinator is asked five times a second; one late answer is no silence."""
LOOK_SECONDS = 10.0
"""Between two looks at the logs; where the profile calls a shorter silence one, a third of that."""
LEAST_LOOK_SECONDS = 1.0
CALM = 3
"""Times rarer while training goes on."""
LOG_LINES = 1000
"""The newest ones of a log. A launcher tells each rank's steps once a second, between the lines that it relays."""
MOST_PODS = 3
"""Logs that are read in one look."""


@dataclass(frozen=True)
class Look:
    """What one look found."""

    signs: Mapping[str, LogSign] = field(default_factory=dict[str, LogSign])
    """By pod."""
    mute: tuple[str, ...] = ()
    """Pods whose logs were read and tell of nothing."""
    unread: Mapping[str, str] = field(default_factory=dict[str, str])
    """Pods whose logs could not be read, and why."""
    unreached: tuple[str, ...] = ()
    """Nodes whose kubelets the cluster does not reach."""


def runs(view: AttemptView) -> bool:
    """Whether every pod of the gang is said to run, or to have ended well before others, by a cluster that answers."""
    gang = [pod for pod in view.pods if pod.ranks]
    answers = view.jobset == "Running" and not view.away and not view.partial
    phases = {pod.phase for pod in gang}
    return answers and "Running" in phases <= {"Running", "Succeeded"}


def unheard_since(view: AttemptView, began: float, silence_seconds: float) -> float | None:
    """Since when the coordinator gives no news; None: it answers, and hears its launchers.

    `began`: since when we see the gang run without a break, Unix seconds. `silence_seconds`: so long counts as silence.
    """
    limit, facts = max(LEAST_SILENCE_SECONDS, silence_seconds), view.coordinator
    newest = began if facts is None else max(began, facts.at)
    if view.now - newest >= limit:
        return newest
    return None if facts is None else deaf_since(facts, limit)


def deaf_since(facts: CoordinatorFacts, limit_seconds: float) -> float | None:
    """Since when a coordinator that answers does not hear its launchers, by our clock; None: it does, or not known.

    It says so itself of a gang that stands still (verdict `observer`); heartbeats say it earlier.
    """
    hang = facts.news.hang
    if hang is not None and hang.verdict == "observer":
        return facts.at - hang.waited_seconds
    if facts.told_at is None or not facts.heard:
        return None
    ages = sorted(facts.told_at - at for _, _, at in facts.heard)
    half = ages[(len(ages) - 1) // 2]  # more than half are at least so old
    return facts.at - half if half >= limit_seconds else None


def sample(pods: Sequence[Pod], second: SecondSight) -> tuple[Pod, ...]:
    """The pods whose logs are read next, by their ranks.

    First those of the lowest rank, of the highest (some trainers print there), and one between. Where none of them
    tells of steps, the whole gang in turns, until one does.
    """
    ranked = [pod for pod in pods if pod.ranks]
    # One whose ranks have ended prints nothing more; where all have, the last lines of any tell how far they came.
    living = [pod for pod in ranked if pod.phase != "Succeeded"] or ranked
    gang = sorted(living, key=lambda pod: pod.index)
    telling = [pod for pod in gang if any(name == pod.name and sign.step is not None for name, sign in second.signs)]
    count = len(gang)
    turn = 0 if telling else second.looks * MOST_PODS
    places = (0, count - 1, count // 2) if turn == 0 else range(turn, turn + MOST_PODS)
    chosen = dict.fromkeys([*telling[:1], *(gang[place % count] for place in places)]) if gang else {}
    return tuple(sorted(list(chosen)[:MOST_PODS], key=lambda pod: pod.index))


def sign_of(log: str) -> LogSign | None:
    """The newest sign of progress in the newest lines of a launcher's log; None: there is none in them."""
    lines = [line for line in log.splitlines() if line.startswith(LINE_PREFIX)]
    signs = [one for one in map(from_line, lines) if isinstance(one, StepSeen | PhaseSeen) and math.isfinite(one.at)]
    if not signs:
        return None
    newest = max(one.incarnation for one in signs)
    mine = [one for one in signs if one.incarnation == newest]
    last = max(mine, key=lambda one: one.at)
    steps = [one for one in mine if isinstance(one, StepSeen)]
    furthest = max(steps, key=lambda one: one.step, default=None)
    return LogSign(
        rank=last.rank if furthest is None else furthest.rank,
        step=None if furthest is None else furthest.step,
        at=last.at,
        incarnation=newest,
        phase=last.phase if isinstance(last, PhaseSeen) else "step",
    )


def after(second: SecondSight, at: float, look: Look) -> SecondSight:
    """What is known after one look more.

    `at`: when its answer was there, Unix seconds by our clock.
    """
    known = dict(second.signs)
    newer = {
        pod: sign.joined(known.get(pod, sign))
        for pod, sign in look.signs.items()
        if pod not in known or sign.newer_than(known[pod])
    }
    moved, still = any(pod in known for pod in newer), second.still_since
    paused = at - still if moved and still is not None else 0.0
    fell_silent = {pod: f"its newest {LOG_LINES} lines tell of no step any more" for pod in look.mute if pod in known}
    return replace(
        second,
        looks=second.looks + 1,
        signs=tuple(sorted({**known, **newer}.items())),
        still_since=at if moved or (still is None and newer) else still,
        moved=moved,
        ever_moved=second.ever_moved or moved,
        longest_seconds=max(second.longest_seconds, paused),
        unread=tuple(sorted({**fell_silent, **look.unread}.items())),
        unreached=look.unreached,
    )


def pace_seconds(second: SecondSight, silence_seconds: float) -> float:
    """How long until the next look."""
    pace = min(LOOK_SECONDS, max(LEAST_LOOK_SECONDS, silence_seconds / 3))
    return pace * CALM if second.moved else pace


def stranded_coordinator(view: AttemptView) -> str:
    """Name of the coordinator's pod where its node is proven dead and no rank went with it; "": there is none.

    Three ways must be closed: the node's condition, its kubelet, and the pod itself, while the cluster answers. A Job
    makes the pod anew only when it is gone, and nobody on a dead node confirms its end.
    """
    if view.unheard_since is None:
        return ""
    lost = {node.name for node in view.nodes if node.ready is False} & set(view.unreached)
    lost -= {pod.node for pod in view.pods if pod.role != COORDINATOR_ROLE}
    living = [pod for pod in view.pods if pod.role == COORDINATOR_ROLE and pod.phase in ("Running", "Pending")]
    return next((pod.name for pod in living if pod.node in lost), "")
