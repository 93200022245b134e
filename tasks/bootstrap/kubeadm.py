"""The engine `kubeadm`: steps carried out on hosts by our own plays, and what its control planes see.

It changes hosts and believes nothing: whether a step holds is judged from what is seen afterwards. A play that was cut
off (we were killed, a host lost its power) is taken up by running it again.
"""

from __future__ import annotations

import secrets
import string
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from profiles.bootstrap.release import ReleaseProfile
from profiles.cluster import ClusterProfile
from profiles.errors import ProfileError
from profiles.vocabulary import VerdictWord
from tasks.bootstrap.kubeadm_variables import change_variables, common_variables, host_variables
from tasks.bootstrap.planes import anchor_of, begins, look_at_planes
from tasks.ssh.plays import HostEnd, Play, PlayEvent, PlayHost, run_play
from workflows.bootstrap import fallback
from workflows.bootstrap.control_sight import ControlSight
from workflows.bootstrap.host_state import sections
from workflows.model.bootstrap import Stage, Step

PLAYS = Path(__file__).with_name("plays")
HOSTS_SECONDS = 3600.0
"""For the programs and images of a large cluster through one mirror."""
PLANE_SECONDS = 900.0
"""Of one control plane; kubeadm itself gives up after four minutes of each wait."""
_TOKEN_ID = string.ascii_lowercase + string.digits


def _nobody(event: PlayEvent) -> None:
    del event


@dataclass(frozen=True)
class KubeadmSite:
    """Whose hosts, to which release, and who is told."""

    cluster: ClusterProfile
    release: ReleaseProfile
    logs: Path | None = None
    """Folder in which each host's log grows; None: none."""
    tell: Callable[[PlayEvent], None] = _nobody
    check: bool = False
    """Say what would be done, and write nothing."""


def look(site: KubeadmSite, planes: Iterable[str] | None = None) -> ControlSight:
    """Ask control planes (all that the inventory names, or these) what they see. Nothing is changed."""
    return look_at_planes(site.cluster, planes)


def apply(site: KubeadmSite, steps: Sequence[Step], sight: ControlSight | None = None) -> dict[str, HostEnd]:
    """Carry out steps of one stage (`hosts`, `control-plane`, `workers` or `network`); how each subject's play ended.

    Control planes are made one after the other. `sight`: what was seen just now; None: it is looked for.

    Raises:
        Refused: there may be a cluster already that cannot be asked, or none that could be joined.
        ProfileError: the profile or the release lacks something; no host was touched.
    """
    stage = steps[0].stage
    names = [step.subject for step in steps]
    if any(step.stage is not stage for step in steps):
        raise ProfileError("steps", "must be of one stage")
    if stage is Stage.HOSTS:
        return _run(site, "hosts", {"targets": names}, HOSTS_SECONDS)
    seen = look(site) if sight is None else sight
    match stage:
        case Stage.CONTROL_PLANE:
            ends: dict[str, HostEnd] = {}
            for name in names:
                ends.update(_control_plane(site, name, seen))
                if ends[name].word is not VerdictWord.PASS:
                    break
                seen = seen if site.check or name == names[-1] else look(site)
            return ends
        case Stage.WORKERS:
            groups = {"targets": names, "anchor": [anchor_of(seen, names)]}
            return _only(names, _run(site, "join", groups, HOSTS_SECONDS))
        case Stage.NETWORK:
            groups = {"targets": names, "anchor": [anchor_of(seen, ())]}
            return _only(names, _run(site, "network", groups, PLANE_SECONDS))
        case _:
            raise ProfileError("steps", f"no step of the stage {stage} is this engine's")


def node_out(site: KubeadmSite, names: Sequence[str], dead: Sequence[str], sight: ControlSight) -> dict[str, HostEnd]:
    """Take nodes out: off their hosts unless these are `dead`, and out of etcd and the cluster.

    Their pods are gone already (`cordon` and `drain` are the caller's). etcd refuses what would cost its majority.

    Raises:
        Refused: no control plane that stays can be asked.
    """
    bootstrap, _ = sections(site.cluster)
    anchor = anchor_of(sight, names)
    members = [name for name in names if name in bootstrap.hosts and bootstrap.hosts[name].controls]
    more = {"primus_leaving": list(names), "primus_leaving_members": members}
    groups = {"targets": [name for name in names if name not in dead], "anchor": [anchor]}
    ends = _run(site, "leave", groups, PLANE_SECONDS, more)
    whole = ends[anchor]
    return {
        name: replace(whole, host=name) if name in dead or whole.word is not VerdictWord.PASS else ends[name]
        for name in names
    }


def settle_cluster(site: KubeadmSite, sight: ControlSight, *, proxies: bool) -> HostEnd:
    """Let the cluster keep the settings that are wanted; how the play ended on the control plane that was asked.

    Args:
        site: whose cluster.
        sight: what control planes see.
        proxies: whether nodes run kube-proxy.

    Raises:
        Refused: no control plane can be asked.
    """
    anchor = anchor_of(sight, ())
    own = {anchor: change_variables(site.cluster, _version(site, sight), anchor, ())}
    groups = {"anchor": [anchor]}
    return _run(site, "settings", groups, PLANE_SECONDS, {"primus_proxies": proxies}, own)[anchor]


def configure(site: KubeadmSite, parts: Mapping[str, Collection[str]], sight: ControlSight) -> dict[str, HostEnd]:
    """Give nodes the settings that the cluster keeps, one after the other until one fails; how it ended on each.

    What does not come up is put back on its node. etcd is kept before anything of a control plane changes.

    Args:
        site: whose hosts.
        parts: node -> what is to be changed there.
        sight: what control planes see.

    Raises:
        Refused: no control plane can be asked, but for one that is to be changed itself.
    """
    names, bootstrap = list(parts), sections(site.cluster)[0]
    alone = len(names) == 1 and bootstrap.hosts[names[0]].controls and not sight.serving
    anchor = names[0] if alone else anchor_of(sight, ())
    version = _version(site, sight)
    own = {name: change_variables(site.cluster, version, name, changed) for name, changed in parts.items()}
    keeps = any(set(changed) & set(fallback.PHASES) for changed in parts.values())
    groups = {"targets": names, "anchor": [anchor]}
    return _only(names, _run(site, "configure", groups, HOSTS_SECONDS, {"primus_keeps_etcd": keeps}, own))


def _version(site: KubeadmSite, sight: ControlSight) -> str:
    """That the cluster is meant to have now: only an upgrade brings it to the release's."""
    best = sight.best
    return (best.version.lstrip("v") if best is not None else "") or site.release.version


def upgrade(site: KubeadmSite, names: Sequence[str], sight: ControlSight) -> dict[str, HostEnd]:
    """Bring nodes (control planes, or workers) to the release's version: control planes one by one, workers at once.

    It ends at the first control plane that did not come through; those behind it are not in the answer.
    A snapshot of etcd is kept before control planes change. What was done before is not done again.

    Raises:
        Refused: no control plane can be asked.
        ProfileError: control planes and workers are mixed.
    """
    bootstrap, _ = sections(site.cluster)
    kinds = {bootstrap.hosts[name].controls for name in names}
    if len(kinds) != 1:
        raise ProfileError("hosts", "control planes and workers are upgraded apart: control planes first")
    anchor, ends = anchor_of(sight, ()), dict[str, HostEnd]()
    for batch in [[name] for name in names] if True in kinds else [list(names)]:
        groups = {"targets": batch, "anchor": [anchor]}
        ends.update(_only(batch, _run(site, "upgrade", groups, HOSTS_SECONDS, {"primus_joins_control": True in kinds})))
        if any(ends[name].word is not VerdictWord.PASS for name in batch):
            break
    return ends


def _control_plane(site: KubeadmSite, name: str, sight: ControlSight) -> dict[str, HostEnd]:
    if begins(sight, name):
        return _only([name], _run(site, "control-plane", {"targets": [name], "anchor": [name]}, PLANE_SECONDS))
    groups = {"targets": [name], "anchor": [anchor_of(sight, [name])]}
    return _only([name], _run(site, "join", groups, PLANE_SECONDS, {"primus_joins_control": True}))


def _only(names: Sequence[str], ends: Mapping[str, HostEnd]) -> dict[str, HostEnd]:
    """Of these hosts; where the play ended at another one, that one's reason is theirs."""
    broken = next((end for name, end in ends.items() if name not in names and end.why), None)
    return {
        name: replace(ends[name], why=f"{broken.host}: {broken.why}")
        if broken and ends[name].word is VerdictWord.UNKNOWN
        else ends[name]
        for name in names
    }


def _run(
    site: KubeadmSite,
    play: str,
    groups: Mapping[str, Sequence[str]],
    limit_seconds: float,
    more: Mapping[str, object] | None = None,
    own: Mapping[str, Mapping[str, object]] | None = None,
) -> dict[str, HostEnd]:
    """`more`: variables of all hosts; `own`: of single ones."""
    bootstrap, _ = sections(site.cluster)
    token = "".join(secrets.choice(_TOKEN_ID) for _ in range(6))
    common = {**common_variables(site.cluster, site.release, site.check), "primus_token_id": token, **(more or {})}
    known = {
        name: PlayHost(
            name,
            bootstrap.hosts[name],
            {**host_variables(site.cluster, site.release, name), **(own or {}).get(name, {})},
        )
        for name in dict.fromkeys(name for names in groups.values() for name in names)
    }
    made = {group: tuple(known[name] for name in names) for group, names in groups.items()}
    whole = Play(PLAYS / f"{play}.yaml", made, bootstrap.ssh, common, site.check, limit_seconds)
    return run_play(whole, site.tell, site.logs)
