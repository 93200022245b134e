"""All pre-checks of one look, and which hosts are fit to be changed. A host is, though others are not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from flows.decisions.bootstrap.prechecks.devices import devices
from flows.decisions.bootstrap.prechecks.findings import Finding, Judged, failed, gathered, unknown
from flows.decisions.bootstrap.prechecks.groups import grouped
from flows.decisions.bootstrap.prechecks.pairs import pairs
from flows.decisions.bootstrap.prechecks.single import single
from flows.decisions.bootstrap.prechecks.table import check_forced
from flows.decisions.bootstrap.prechecks.view import cluster_of
from flows.decisions.text import first_names
from profiles.cluster import ClusterProfile
from profiles.hardware import HardwareProfile
from profiles.vocabulary import VerdictWord
from workflows.model.host_sight import HostSight, HostsSight, LookFailure

SHOWN = 6
_CHECKS: Mapping[LookFailure, str] = {
    LookFailure.HOST_KEY_UNKNOWN: "host-key",
    LookFailure.HOST_KEY_CHANGED: "host-key",
    LookFailure.PERMISSION_DENIED: "login",
    LookFailure.NO_PYTHON: "python",
}
"""What a failed look is about; all else is about reaching the host."""
_UNCLEAR = (LookFailure.TIMED_OUT, LookFailure.LOST, LookFailure.UNREADABLE)
"""Of these nobody knows what is wrong."""
_NEED_ROOT = ("fsync", "ports-free", "leftovers", "foreign-cluster", "certificates")
"""What a user who is not root may not find out."""


@dataclass(frozen=True)
class Prechecks:
    """What all checks say."""

    hosts: tuple[str, ...]
    """Of the inventory, in its order."""
    findings: tuple[Finding, ...]
    """What fails first, then what nobody knows, then what passes."""

    @property
    def stopped(self) -> tuple[Finding, ...]:
        """What keeps hosts from being touched."""
        return tuple(one for one in self.findings if one.stops)

    @property
    def forced(self) -> tuple[Finding, ...]:
        """What does not hold, and somebody goes on; to be written down."""
        return tuple(one for one in self.findings if one.forced)

    @property
    def fit(self) -> tuple[str, ...]:
        """Hosts that may be touched: every check of theirs passes or is forced."""
        unfit = {host for one in self.stopped for host in one.hosts}
        return tuple(host for host in self.hosts if host not in unfit)

    def of(self, host: str) -> tuple[Finding, ...]:
        """What is not passed of one host."""
        return tuple(one for one in self.stopped if host in one.hosts)

    @property
    def why(self) -> str:
        """In one line what keeps hosts from being touched; "" where nothing does."""
        said = [f"{one.check} on {first_names(one.hosts, SHOWN)}: {one.found}" for one in self.stopped[:SHOWN]]
        more = len(self.stopped) - len(said)
        return "; ".join(said) + (f"; and {more} more" if more > 0 else "")


def prechecks(
    profile: ClusterProfile,
    hardware: Mapping[str, HardwareProfile],
    sight: HostsSight,
    *,
    forced: Mapping[str, str] | None = None,
    begun: frozenset[str] = frozenset(),
    authority_sha256: str = "",
) -> Prechecks:
    """Judge a look at the hosts of a profile with a section `bootstrap`.

    Args:
        profile: whose hosts were looked at.
        hardware: by its name, of the pools.
        sight: what was seen.
        forced: check -> why somebody goes on though it does not hold.
        begun: hosts on which the ledger knows steps of this cluster.
        authority_sha256: of the cluster's authority (DER), where it is known.

    Raises:
        ProfileError: `forced` names what nobody may force, or nobody knows.
    """
    check_forced(forced or {})
    cluster = cluster_of(profile, hardware, sight, begun, authority_sha256)
    judged: list[Judged] = [one for host in cluster.bootstrap.hosts for one in _unseen(host, sight.hosts.get(host))]
    for view in cluster.views.values():
        judged += single(cluster, view)
    judged += [*grouped(cluster), *devices(cluster)]
    # Ways of a host with a wrong address follow from it; of one that goes on all the same they are told.
    wrong = {one.host for one in judged if one.check == "address" and one.word is VerdictWord.FAIL}
    judged += pairs(cluster, () if "address" in (forced or {}) else wrong)
    order = tuple(cluster.bootstrap.hosts)
    return Prechecks(order, gathered(_by_causes(judged, forced or {}), order, forced or {}))


def _by_causes(judged: list[Judged], forced: Mapping[str, str]) -> list[Judged]:
    """Without what only follows from something else that stops the host; where that is forced, it is said."""
    stops = {(one.check, one.host) for one in judged if one.word is VerdictWord.FAIL and one.check not in forced}

    def follows(one: Judged) -> bool:
        if one.word is VerdictWord.UNKNOWN and one.check in _NEED_ROOT:
            return ("sudo", one.host) in stops
        return one.check == "certificates" and ("leftovers", one.host) in stops

    return [one for one in judged if not follows(one)]


def _unseen(host: str, sight: HostSight | None) -> Iterator[Judged]:
    """What is said of a host that told no facts: one thing, for all else follows from it."""
    if sight is None:
        yield unknown("reachable", host, "it was not looked at")
    elif sight.failure is not None:
        say = unknown if sight.failure in _UNCLEAR else failed
        yield say(_CHECKS.get(sight.failure, "reachable"), host, sight.why)
