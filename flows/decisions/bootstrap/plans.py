"""The plan of a request: which steps, of which hosts, in which order; from inventory, components and ledger alone."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import assert_never

from flows.decisions.bootstrap.admission import admission_steps, adopted_admission, can_be_tested
from flows.decisions.bootstrap.adopted import adopted_steps, refuse_node_verbs
from flows.decisions.bootstrap.changes import leave_steps, upgrade_steps
from flows.decisions.bootstrap.components import before_admission, component_steps
from flows.decisions.bootstrap.judge import Wanted
from flows.decisions.bootstrap.kubespray import behind_validation, kubespray_steps
from flows.decisions.bootstrap.plan import network_steps, steps_of
from flows.decisions.text import first_names
from profiles.bootstrap.engines import Adopt, Kubeadm, Kubespray
from profiles.bootstrap.inventory import Bootstrap
from profiles.bootstrap.release import ReleaseProfile
from profiles.bootstrap.request import BootstrapRequest
from profiles.cluster import ClusterProfile
from profiles.errors import ProfileError
from profiles.run import RunProfile
from workflows.bootstrap.host_state import fingerprint
from workflows.model.bootstrap import CLUSTER, Stage, Step, StepRecord
from workflows.model.components import InstalledComponent

SHOWN = 6
UNTOLD = {"bootstrap", "description", "context", "kubeconfig"}
"""Of a cluster profile: what no run trains by. All else is part of the proof: with another one it is another proof."""


def plan_of(wanted: Wanted, request: BootstrapRequest, records: Mapping[str, StepRecord]) -> tuple[Step, ...]:
    """Every step of the request, each behind those that it comes after.

    Args:
        wanted: what the cluster is to be.
        request: what is asked for.
        records: what the ledger remembers, by id.

    Raises:
        ProfileError: the request names hosts that the inventory does not, or the release lacks a digest.
        Refused: the engine does no such thing.
    """
    bootstrap = section(wanted)
    if isinstance(bootstrap.engine, Adopt):
        refuse_node_verbs(request)
    refuse_unknown(bootstrap, (*request.hosts, *request.without))
    match request.verb:
        case "build" | "check" | "join":
            return _checked_as(wanted, trimmed(_building(wanted, request, records)))
        case "leave":
            return _leaving(wanted, request, records)
        case "upgrade":
            concerned = set(subjects_of(wanted, request, records))
            steps = [step for step in upgrade_steps(bootstrap, request.version) if step.subject in concerned]
            return _changing(bootstrap, trimmed(steps))
        case "components":
            return trimmed((*component_steps(wanted.chosen),))
        case "drift" | "uninstall":
            return ()
        case _:
            assert_never(request.verb)


def removal_steps(installed: Mapping[str, InstalledComponent]) -> tuple[Step, ...]:
    """One step a component that is there: all go together, in the order that the site knows."""
    return tuple(
        Step(Stage.REMOVAL, name, "gone", f"{name} {one.version} goes") for name, one in sorted(installed.items())
    )


def section(wanted: Wanted) -> Bootstrap:
    """The section `bootstrap` of the profile.

    Raises:
        ProfileError: there is none.
    """
    if wanted.cluster.bootstrap is None:
        raise ProfileError("bootstrap", "the cluster profile has no such section: docs/bootstrap.md shows one")
    return wanted.cluster.bootstrap


def release_of(wanted: Wanted) -> ReleaseProfile:
    """The release that hosts get.

    Raises:
        ProfileError: the engine gives them none.
    """
    if wanted.release is None:
        raise ProfileError("bootstrap.engine", "must be kubeadm here: no other engine has a release")
    return wanted.release


def refuse_unknown(bootstrap: Bootstrap, names: Sequence[str]) -> None:
    """Nothing where the inventory names all of these.

    Raises:
        ProfileError: it does not.
    """
    unknown = [name for name in names if name not in bootstrap.hosts]
    if unknown:
        known = first_names(list(bootstrap.hosts), SHOWN)
        raise ProfileError("hosts", f"{first_names(unknown, SHOWN)}: no such host in the inventory ({known})")


def subjects_of(wanted: Wanted, request: BootstrapRequest, records: Mapping[str, StepRecord]) -> tuple[str, ...]:
    """Hosts that the request concerns, in the order of the inventory.

    A host that left stays out until it is asked to join. Who joins concerns itself and those that were begun before;
    who leaves, all that stay.
    """
    hosts = section(wanted).hosts
    gone = {record.subject for record in records.values() if has_left(record, records)}
    begun = {record.subject for record in records.values() if record.stage in BEGINS}
    match request.verb:
        case "join":
            chosen = [name for name in hosts if name in request.hosts or (name in begun and name not in gone)]
        case "leave":  # those who stay have routes to who leaves
            chosen = [name for name in hosts if name not in gone or name in request.hosts]
        case _:
            chosen = [name for name in hosts if name not in gone and (not request.hosts or name in request.hosts)]
    return tuple(name for name in chosen if name not in request.without)


def has_left(record: StepRecord, records: Mapping[str, StepRecord]) -> bool:
    """Whether this is the step by which a host left, and nothing has made it a node since."""
    if (record.stage, record.state) != (Stage.LEAVE, "proven"):
        return False
    made = [records.get(f"{stage}/{record.subject}") for stage in BEGINS]
    return not any(one is not None and one.tries > 0 and one.began_at > record.began_at for one in made)


BEGINS = (Stage.CONTROL_PLANE, Stage.WORKERS)
"""Stages that make a host a node."""


def _leaving(wanted: Wanted, request: BootstrapRequest, records: Mapping[str, StepRecord]) -> tuple[Step, ...]:
    """Hosts leave, and those that stay forget their routes to them."""
    bootstrap = section(wanted)
    steps = leave_steps(bootstrap, request.hosts, request.dead)
    if not isinstance(bootstrap.engine, Kubeadm):
        return _changing(bootstrap, steps)
    after = tuple(step.id for step in steps)
    staying = set(subjects_of(wanted, request, records)) - set(request.hosts)
    network = [replace(step, after=after) for step in network_steps(wanted.cluster) if step.subject in staying]
    return (*steps, *network)


def _changing(bootstrap: Bootstrap, steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Steps that change nodes, behind what the engine itself says first."""
    return behind_validation(steps) if isinstance(bootstrap.engine, Kubespray) else steps


def _checked_as(wanted: Wanted, steps: Sequence[Step]) -> tuple[Step, ...]:
    """Hosts are fit for one profile, with what somebody passes over: for another one they are checked anew.

    Only here: what a run proves (`fingerprint_of`) is the same whatever else the profile says.
    """
    by = fingerprint([wanted.cluster.model_dump_json(), sorted(wanted.forced)])
    checks = {step.id for step in steps if step.stage is Stage.PRECHECKS and step.subject != CLUSTER}
    return tuple(replace(step, wanted=by) if step.id in checks else step for step in steps)


def _building(wanted: Wanted, request: BootstrapRequest, records: Mapping[str, StepRecord]) -> list[Step]:
    concerned = subjects_of(wanted, request, records)
    subjects = {*concerned, CLUSTER}
    adopted = isinstance(section(wanted).engine, Adopt)
    if adopted:
        steps = list(adopted_steps(concerned))
    elif isinstance(wanted.engine, Kubespray):
        every = kubespray_steps(wanted.cluster, wanted.kubernetes)
        steps = [step for step in every if step.subject in subjects]
    else:
        every = steps_of(wanted.cluster, release_of(wanted), wanted.authority)
        steps = [step for step in every if step.subject in subjects]
    if request.verb == "join" or request.hosts or not wanted.chosen:
        gated = () if adopted or not can_be_tested(records) else request.hosts
        return [*steps, *(gate for name in gated for gate in _gate_of(wanted, steps, name))]
    made = tuple(step.id for step in steps if adopted or step.stage is not Stage.PRECHECKS)
    early = before_admission(wanted.chosen)
    first = component_steps(wanted.chosen, made, early)
    gates = _admission(wanted, concerned, [step.id for step in first])
    others = component_steps(
        wanted.chosen, [gate.id for gate in gates] or made, {one.name for one in wanted.chosen} - early
    )
    parts = (*first, *gates, *others)
    whole = [*steps, *parts]
    if wanted.run is None:
        return whole
    trains = f"run {wanted.run.name} trains to its end"
    behind = tuple(step.id for step in (*parts, *steps))
    return [*whole, Step(Stage.PROOF, CLUSTER, fingerprint_of(whole, wanted.run, wanted.cluster), trains, behind)]


def _gate_of(wanted: Wanted, steps: Sequence[Step], host: str) -> tuple[Step, ...]:
    """The join gate of one host, behind what makes it a node."""
    own = [step.id for step in steps if step.subject == host and step.stage is not Stage.PRECHECKS]
    return admission_steps(wanted.cluster, [host] if own else [], own)


def _admission(wanted: Wanted, hosts: Sequence[str], after: Sequence[str]) -> tuple[Step, ...]:
    """The join gate, where there is one."""
    if isinstance(section(wanted).engine, Adopt):
        return adopted_admission(after)
    return admission_steps(wanted.cluster, hosts, after)


def fingerprint_of(steps: Collection[Step], run: RunProfile, cluster: ClusterProfile) -> str:
    """Of everything that a proof proves: steps in any order, the run that trains, and what a cluster tells runs."""
    told = cluster.model_dump_json(exclude=UNTOLD)
    text = "\n".join([run.model_dump_json(), told, *sorted(f"{step.id} {step.wanted}" for step in steps)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def trimmed(steps: Sequence[Step]) -> tuple[Step, ...]:
    """The steps without those before them that are no part of the plan."""
    ids = {step.id for step in steps}
    return tuple(replace(step, after=tuple(name for name in step.after if name in ids)) for step in steps)
