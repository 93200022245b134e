"""The workflow that takes components away: objects of their kinds, themselves, their definitions, their namespaces.

One after the other, each before all that it needs; the first one that stays ends it, so that nothing is left without
whoever could let go of it. What Argo itself stands on is taken away by the flow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hera.workflows import Step, Steps, Workflow

from profiles.bootstrap.components import ChartSource, ComponentProfile
from profiles.cluster import ClusterProfile
from workflows import labels
from workflows.attempt.templates import DEADLINE_MARGIN_SECONDS, MAIN
from workflows.bootstrap.components import (
    HELM_STEP_SECONDS,
    INSTALL_SECONDS,
    OBJECTS,
    START_SECONDS,
    frame,
    helm_step,
    install_step,
    source_url,
)
from workflows.model.components import NAMESPACE, ChosenComponent, objects_of
from workflows.programs.serving import install

REMOVE, CLEAR = "rid-", "end-"
"""Beginning of the templates' names; the place follows."""
Manifest = dict[str, Any]


@dataclass(frozen=True)
class Leaving:
    """One component that goes."""

    component: ChosenComponent
    namespace: str
    """That goes with it; "": none."""
    data: bool = False
    """What holds data goes as well; else its volumes and their claims stay."""

    @property
    def profile(self) -> ComponentProfile:
        """Of the component."""
        return self.component.profile


@dataclass(frozen=True)
class RemovalPlan:
    """One removal, decided."""

    cluster: ClusterProfile
    leaving: tuple[Leaving, ...]
    """In the order in which they go."""
    number: int
    """Of the round: a counter of the ledger."""
    built_in: Mapping[str, Sequence[Manifest]] = field(default_factory=dict[str, Sequence[Manifest]], hash=False)
    """Objects of our own components, by name."""
    authority: str = ""
    """Certificate authority of the mirror (PEM)."""
    ledger: str = ""
    """Identity of the one that asks."""

    @property
    def name(self) -> str:
        """Of the workflow."""
        return labels.components_name(self.cluster.name, self.number, self.ledger)


def removal_workflow(plan: RemovalPlan) -> Manifest:
    """The workflow's manifest.

    Raises:
        ValueError: nothing to do.
    """
    if not plan.leaving:
        raise ValueError("leaving: must hold at least one component")
    each = HELM_STEP_SECONDS + INSTALL_SECONDS + START_SECONDS
    deadline = len(plan.leaving) * each + DEADLINE_MARGIN_SECONDS
    with Workflow(name=plan.name, **frame(plan.cluster, plan.ledger, deadline)) as workflow:
        for number, one in enumerate(plan.leaving):
            if isinstance(one.profile.source, ChartSource):
                _release(plan, one, one.profile.source, f"{REMOVE}{number}")
            else:
                _own(plan, one, f"{REMOVE}{number}")
            _clear(plan, one, f"{CLEAR}{number}")
        with Steps(name=MAIN):
            for number, one in enumerate(plan.leaving):
                Step(name=f"remove-{one.component.name}", template=f"{REMOVE}{number}")
                Step(name=f"clear-{one.component.name}", template=f"{CLEAR}{number}")
    manifest: Manifest = workflow.to_dict()
    return manifest


def _own(plan: RemovalPlan, one: Leaving, template: str) -> None:
    mirror = plan.cluster.bootstrap.mirror if plan.cluster.bootstrap else None
    own = objects_of(one.component, plan.built_in, mirror.registry if mirror else "")
    fetched = own is None and mirror is not None
    options = install.Options(
        component=one.component.name,
        do="remove",
        namespace=one.profile.namespace,
        objects=OBJECTS if own is not None else "",
        url=source_url(mirror, one.component) if fetched and mirror else "",
        sha256=one.component.sha256 if fetched else "",
        resource=one.profile.removal.resources,
        data=one.data,
        deadline_seconds=float(INSTALL_SECONDS),
    )
    install_step(plan.cluster, template, options, own, plan.authority)


def _release(plan: RemovalPlan, one: Leaving, source: ChartSource, template: str) -> None:
    """Objects of its kinds go while its controller lives; then helm takes the release away."""
    options = install.Options(
        component=one.component.name,
        do="remove",
        resource=one.profile.removal.resources,
        deadline_seconds=float(INSTALL_SECONDS),
    )
    words = [
        *("uninstall", one.component.name, "--namespace", one.profile.namespace, "--ignore-not-found"),
        *("--wait", "--timeout", f"{INSTALL_SECONDS}s"),
    ]
    helm_step(plan.cluster, template, source.helm_image, words, options)


def _clear(plan: RemovalPlan, one: Leaving, template: str) -> None:
    options = install.Options(
        component=one.component.name,
        do="remove",
        notes_in=NAMESPACE,
        crd=one.profile.crds,
        remove_namespace=one.namespace,
        forget=True,
        deadline_seconds=float(INSTALL_SECONDS),
    )
    install_step(plan.cluster, template, options)
