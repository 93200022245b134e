"""What one request stands on: the profile's release, hardware and components, the ledger's memory, and the site."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import assert_never

from flows.building.adopted import AdoptedCluster
from flows.building.components import wanted_components
from flows.building.kubespray import KubesprayHosts
from flows.building.site import KubeadmHosts
from flows.decisions.bootstrap.admission import refuse_untellable
from flows.decisions.bootstrap.components import refuse_unknown_digests
from flows.decisions.bootstrap.fitness import lately_fit
from flows.decisions.bootstrap.judge import Wanted
from flows.decisions.bootstrap.kubespray import ACCEPTED
from flows.decisions.bootstrap.mirror import release_with_digests
from flows.decisions.bootstrap.plans import plan_of, section, subjects_of
from flows.testing.proofs import suite_of
from profiles.bootstrap.engines import Adopt, Engine, Kubeadm, Kubespray
from profiles.bootstrap.inventory import Bootstrap
from profiles.bootstrap.release import ReleaseProfile
from profiles.bootstrap.request import BootstrapRequest
from profiles.cluster import ClusterProfile
from profiles.errors import ProfileError
from profiles.loading.load import load_hardware, load_release, load_run, load_shelf, resolve
from profiles.run import RunProfile
from profiles.vocabulary import Mode
from tasks.bootstrap.host_logs import log_folder
from tasks.bootstrap.kubeadm_variables import authority_of
from tasks.bootstrap.mirror import said_digests
from tasks.bootstrap.site import Hear, unheard
from tasks.context import world
from workflows.model.bootstrap import CLUSTER, Stage, Step
from workflows.model.components import ChosenComponent

CONCERNS = ("build", "check", "components", "drift", "uninstall")
"""Verbs that look at components."""
TOUCHES = (Stage.HOSTS, Stage.CONTROL_PLANE, Stage.WORKERS, Stage.NETWORK)
"""Stages after which what lies on a host is ours."""


@dataclass(frozen=True)
class Ground:
    """Everything that a request needs, read and refused before a host is asked."""

    request: BootstrapRequest
    wanted: Wanted
    plan: tuple[Step, ...]
    hosts: tuple[str, ...]
    """Hosts that it concerns."""
    site: AdoptedCluster | KubeadmHosts | KubesprayHosts


def ground_of(profile: ClusterProfile, request: BootstrapRequest, hear: Hear = unheard) -> Ground:
    """The ground of a request; `hear` shows what hosts do.

    Raises:
        ProfileError: profile, release or request are wrong; nothing was touched.
        Refused: the engine does no such thing.
        Unavailable: ledger or mirror do not answer.
    """
    if profile.bootstrap is None:
        raise ProfileError("bootstrap", "the cluster profile has no such section: docs/bootstrap.md shows one")
    here = world()
    records = here.ledger.bootstrap_steps(profile.name)
    release = release_of_engine(profile.bootstrap.engine)
    said = said_digests(profile.bootstrap.mirror) if asks_mirror(profile.bootstrap, release, request) else {}
    chosen = chosen_of(profile, request, said)
    wanted = Wanted(
        profile,
        release_with_digests(release, said) if release is not None else None,
        {pool.hardware: load_hardware(pool.hardware) for pool in profile.pools},
        chosen,
        since=here.now(),
        forced=request.forced,
        begun=frozenset(record.subject for record in records.values() if record.stage in TOUCHES),
        authority=authority_of(profile.bootstrap.mirror),
        version=request.version,
        dead=request.dead,
        with_data=request.with_data,
        run=run_of(profile),
        verb=request.verb,
    )
    refuse_other_version(wanted, request)
    plan = plan_of(wanted, request, records)
    if acts(request) and not request.forced:
        wanted = replace(wanted, fit=lately_fit(plan, records, here.now()))
    if any(step.stage is Stage.ADMISSION and step.subject != CLUSTER for step in plan):
        refuse_untellable(profile, suite_of(profile), wanted.hardware.values())
    hosts, logs = subjects_of(wanted, request, records), log_folder(here.settings, profile.name)
    return Ground(request, wanted, plan, hosts, site_of(wanted, request, plan, hosts, logs, hear))


def acts(request: BootstrapRequest) -> bool:
    """Whether anything is to be changed."""
    return request.verb != "check" and request.mode is not Mode.OBSERVE


def site_of(
    wanted: Wanted,
    request: BootstrapRequest,
    plan: Sequence[Step],
    hosts: tuple[str, ...],
    logs: Path,
    hear: Hear,
) -> AdoptedCluster | KubeadmHosts | KubesprayHosts:
    """Who carries the request out. `hosts`: that it concerns; `logs`: folder of their logs."""
    proof = next((step.wanted for step in plan if step.stage is Stage.PROOF), "")
    common = (wanted, logs, proof, request.cluster or world().settings.cluster, load_shelf(), hear)
    engine = section(wanted).engine
    match engine:
        case Adopt():
            return AdoptedCluster(*common)
        case Kubeadm():
            return KubeadmHosts(*common)
        case Kubespray():
            validates = wanted.verb != "drift" and any(step.id == ACCEPTED.id for step in plan)
            return KubesprayHosts(*common, concerned=hosts, left_out=request.without, validates=validates)
        case _:
            assert_never(engine)


def run_of(profile: ClusterProfile) -> RunProfile | None:
    """The run that proves the cluster; None: none is asked for.

    Raises:
        ProfileError: there is no such profile, or it does not fit the cluster: told before a host is touched.
    """
    section = profile.bootstrap
    name = profile.proof_run
    if section is None or not section.install_components or not name:
        return None
    try:
        found = load_run(name)
        resolve(found, profile)
    except ProfileError as error:
        raise ProfileError("bootstrap.proof_run", f"run {name} cannot prove the cluster: {error}") from error
    return found


def asks_mirror(bootstrap: Bootstrap, release: ReleaseProfile | None, request: BootstrapRequest) -> bool:
    """Whether digests that only the mirror says are needed; a mirror that is away stops nothing else."""
    files = (*release.files.values(), *release.image_archives) if release is not None else ()
    brings = bootstrap.install_components and request.verb in CONCERNS
    return brings or any(file.sha256 is None for file in files)


def release_of_engine(engine: Engine) -> ReleaseProfile | None:
    """What hosts get of ours; None: the engine brings nothing of ours on hosts.

    Raises:
        ProfileError: there is no such release.
    """
    return load_release(engine.release) if isinstance(engine, Kubeadm) else None


def chosen_of(
    profile: ClusterProfile, request: BootstrapRequest, said: Mapping[str, str]
) -> tuple[ChosenComponent, ...]:
    """Components that the request concerns, each with its digest.

    Raises:
        ProfileError: a choice is wrong, or nobody says the digest of what is to be installed.
    """
    if profile.bootstrap is None or not profile.bootstrap.install_components or request.verb not in CONCERNS:
        return ()
    chosen = wanted_components(profile, said)
    if request.verb in ("build", "components"):
        refuse_unknown_digests(chosen)
    return chosen


def refuse_other_version(wanted: Wanted, request: BootstrapRequest) -> None:
    """Nothing where an upgrade goes to the version that the profile names.

    Raises:
        ProfileError: it does not.
    """
    release = wanted.release
    if request.version and isinstance(wanted.engine, Kubespray) and request.version != wanted.kubernetes:
        reason = f"is {wanted.kubernetes}: name {request.version} there, with a copy in engine.source that knows it"
        raise ProfileError("bootstrap.engine.version", reason)
    if request.version and release is not None and request.version != release.version:
        reason = f"the profile's release {release.name} is {release.version}: name one of {request.version}"
        raise ProfileError("bootstrap.engine.release", reason)
