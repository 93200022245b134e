"""Whether a cluster is fit for runs: `primus doctor`. Every check is pass, fail or unknown, with what to do. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from profiles.vocabulary import VerdictWord
from workflows.model.checkup import Attempted, CheckupFacts, HomeFacts, PoolFacts

PASS, FAIL, UNKNOWN = VerdictWord.PASS, VerdictWord.FAIL, VerdictWord.UNKNOWN
SKEW_SECONDS = 5.0
"""Beyond it times of the cluster and of the ledger cannot be compared; the Date header alone is a second coarse."""
TRIED_MINOR = 34
"""Oldest Kubernetes 1.x on which Argo 4.1 is tested."""
FREE_BYTES = 2 << 30
"""Checkpoints and logs of a demo run need a tenth of it."""
NOT_SERVED = "install its controller in the version that serves it (with its CRDs)"
NODES = "primus nodes says why; power-on NODE or release NODE puts it back"
LEDGER = "what the message says; a copy of the file of before the damage is the surest"
ROOM = "free some space (primus gc), or look at the owner and the mount of PRIMUS_HOME"
SERVICE = "primus up starts it; its log in PRIMUS_HOME/logs says how it ended"
_ARGO = {
    True: "",
    False: "look whether the workflow-controller runs and watches this namespace",
    None: "run any workflow once and look again",
}
_MINOR = re.compile(r"^v?1\.(\d+)")


@dataclass(frozen=True)
class Check:
    """One check."""

    check: str
    verdict: VerdictWord
    measured: str
    advice: str = ""
    """What to do; "" where it passed."""


def checkup(facts: CheckupFacts) -> tuple[Check, ...]:
    """Every check of a cluster; only the first where it does not answer."""
    answers = _tried("answers", facts.answers, "set KUBECONFIG or `context` of the cluster profile; is the server up?")
    home = _home(facts.home)
    if facts.answers.worked is not True:
        return (answers, *home)
    if facts.profile.engine == "embedded":
        nodes = _tried("nodes", facts.nodes, NODES)
        found = (answers, nodes, _namespaces(facts), _room(facts), _clock(facts))
        full = any(item.check == "disk" for item in home)  # nothing can be written: how much is free is no matter
        return (*(item for item in found if not (full and item.check == "disk")), *home)
    return (
        answers,
        *home,
        _version(facts),
        *(_tried(f"serves {name}", tried, NOT_SERVED) for name, tried in facts.served.items()),
        *_rights(facts),
        *_pools(facts),
        *(_claim(name, phase) for name, phase in facts.claims.items()),
        _clock(facts),
        _tried(
            "JobSet", facts.jobset, "look whether the controllers of JobSet (and Kueue) run: their webhooks must answer"
        ),
        _tried("Argo", facts.argo, _ARGO[facts.argo.worked]),
        *(_queue(facts) if facts.profile.queue else ()),
    )


def overall(checks: tuple[Check, ...]) -> VerdictWord:
    """Failed where one fails, else unknown where one is unknown: unknown never counts as healthy."""
    verdicts = {item.verdict for item in checks}
    return FAIL if FAIL in verdicts else UNKNOWN if UNKNOWN in verdicts else PASS


def _home(facts: HomeFacts | None) -> tuple[Check, ...]:
    """Of the home: its ledger, room where there is none, its services."""
    if facts is None:
        return ()
    full = [Check("disk", FAIL, facts.no_room, ROOM)] if facts.no_room else []
    services = (_tried(name, tried, SERVICE) for name, tried in facts.services.items())
    return (_tried("ledger", facts.ledger, LEDGER), *full, *services)


def _tried(name: str, tried: Attempted, advice: str) -> Check:
    verdict = {True: PASS, False: FAIL, None: UNKNOWN}[tried.worked]
    return Check(name, verdict, tried.said or str(verdict), "" if tried.worked else advice)


def _version(facts: CheckupFacts) -> Check:
    text = facts.versions.get("kubernetes", "")
    found = _MINOR.match(text)
    if found is None:
        return Check("version", UNKNOWN, text or "not told", "look at kubectl version")
    if int(found.group(1)) < TRIED_MINOR:
        return Check("version", UNKNOWN, text, f"Argo 4.1 is tested from 1.{TRIED_MINOR} on: update, or try it out")
    return Check("version", PASS, text)


def _rights(facts: CheckupFacts) -> list[Check]:
    """One line for all that is allowed, one for each resource of which something is not."""
    missing: dict[tuple[str, bool | None], list[str]] = {}
    for right in facts.rights:
        if right.allowed is not True:
            missing.setdefault((right.resource, right.allowed), []).append(right.verb)
    granted = sum(right.allowed is True for right in facts.rights)
    if not missing:
        measured = f"{granted} of {len(facts.rights)} rights"
        verdict = PASS if facts.rights else UNKNOWN
        return [Check("rights", verdict, measured, "" if facts.rights else "the cluster did not say what we may do")]
    where = f"in namespace {facts.profile.namespace}"
    checks: list[Check] = []
    for (resource, allowed), verbs in missing.items():
        words, verdict = ("may not", FAIL) if allowed is False else ("not known whether we may", UNKNOWN)
        advice = f"grant our account {', '.join(verbs)} on {resource} {where}: primus render workspace makes the roles"
        checks.append(Check(f"rights {resource}", verdict, f"{words} {', '.join(verbs)}", advice))
    return checks


def _pools(facts: CheckupFacts) -> list[Check]:
    if facts.pools is None:
        return [Check("nodes", UNKNOWN, "they may not be read", "grant our account get and list on nodes")]
    return [check for pool in facts.pools for check in (_nodes(pool), *_gpus(pool))]


def _nodes(pool: PoolFacts) -> Check:
    ready, note = len(pool.gpus), ""
    if pool.not_ready:
        note = f", not ready: {', '.join(pool.not_ready[:4])}"
    measured = f"{ready} ready of {pool.expected} in the profile{note}"
    if ready + len(pool.not_ready) == 0:
        return Check(
            f"nodes {pool.name}", FAIL, measured, "no node has the pool's `labels`: correct them in the profile"
        )
    if pool.not_ready or ready < pool.expected:
        return Check(f"nodes {pool.name}", FAIL, measured, "repair the nodes, or correct `nodes` of the pool")
    return Check(f"nodes {pool.name}", PASS, measured)


def _gpus(pool: PoolFacts) -> list[Check]:
    if not pool.resource or not pool.gpus:
        return []
    short = {node: count for node, count in pool.gpus.items() if count < pool.gpus_per_node}
    name = f"gpus {pool.name}"
    if not short:
        return [Check(name, PASS, f"{pool.gpus_per_node} {pool.resource} on each of {len(pool.gpus)} nodes")]
    counts = ", ".join(f"{node}: {count}" for node, count in sorted(short.items())[:6])
    advice = "look whether the device plug-in runs there and sees all GPUs; a lost GPU shows in the kernel log"
    return [
        Check(name, FAIL, f"fewer than {pool.gpus_per_node} {pool.resource} on {len(short)} nodes ({counts})", advice)
    ]


def _claim(name: str, phase: str | None) -> Check:
    if phase is None:
        return Check(f"claim {name}", UNKNOWN, "may not be read", "grant our account get on persistentvolumeclaims")
    if phase == "Bound":
        return Check(f"claim {name}", PASS, "Bound")
    state = phase or "does not exist"
    return Check(f"claim {name}", FAIL, state, "create it (ReadWriteMany), or correct `storage` of the cluster profile")


def _clock(facts: CheckupFacts) -> Check:
    skew = facts.skew_seconds
    if skew is None:
        return Check("clock", UNKNOWN, "the cluster does not tell its time", "compare the clocks by hand")
    ok = abs(skew) <= SKEW_SECONDS
    measured = f"{skew:+.1f} s against ours, at most {SKEW_SECONDS:g} s"
    return Check("clock", PASS if ok else FAIL, measured, "" if ok else "let NTP or chrony set both clocks")


def _queue(facts: CheckupFacts) -> list[Check]:
    advice = f"create LocalQueue {facts.profile.queue} or correct `queue` of the profile; look at its ClusterQueue"
    return [_tried(f"queue {facts.profile.queue}", facts.queue, advice)]


def _namespaces(facts: CheckupFacts) -> Check:
    found = facts.namespaces
    if found == "none":
        advice = "runs with mounts are refused by their path; allow user namespaces (kernel.unprivileged_userns_clone)"
        return Check("namespaces", FAIL, "this machine allows no name spaces", advice)
    return Check("namespaces", PASS if found else UNKNOWN, found or "not known", "" if found else "try again")


def _room(facts: CheckupFacts) -> Check:
    if facts.free_bytes is None:
        return Check("disk", UNKNOWN, "not known", "look at the folder PRIMUS_HOME")
    ok = facts.free_bytes >= FREE_BYTES
    measured = f"{facts.free_bytes / (1 << 30):.1f} GiB free, at least {FREE_BYTES >> 30} GiB"
    return Check("disk", PASS if ok else FAIL, measured, "" if ok else "make room, or set PRIMUS_HOME to another disk")
