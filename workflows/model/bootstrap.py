"""Bootstrap in values: the steps of a plan, the proof that each one holds, and what the ledger keeps of it.

A step is one stage at one host (or at the whole cluster). It is done because its proof holds now, never because a
command ended well: `StepProof` is asked anew each time, `StepRecord` only tells what was begun, when, and how it ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

from profiles.vocabulary import VerdictWord

CLUSTER = "cluster"
"""Subject of a step that concerns no single host; no host may be called so."""


class Stage(StrEnum):
    """Stages in their order."""

    PRECHECKS = "prechecks"
    """No broken host reaches the first change."""
    HOSTS = "hosts"
    """Programs, units and tuning are on the host."""
    CONTROL_PLANE = "control-plane"
    """An API server and a member of etcd live there, behind the endpoint."""
    WORKERS = "workers"
    """It is a Ready node of the right version."""
    CONFIGURATION = "configuration"
    """What stands runs with the settings that are wanted: kubelet, kube-proxy, control plane, certificates."""
    NETWORK = "network"
    """Pods of the node reach those of all others."""
    COMPONENTS = "components"
    """A component serves."""
    ADMISSION = "admission"
    """A preflight has passed the node: it takes work."""
    PROOF = "proof"
    """A training run succeeded."""
    UPGRADE = "upgrade"
    """It runs the version that was asked for."""
    LEAVE = "leave"
    """The cluster knows it no more, and nothing of the cluster is left on it."""
    REMOVAL = "removal"
    """A component is gone."""


@dataclass(frozen=True)
class Step:
    """One stage at one subject, as the plan wants it."""

    stage: Stage
    subject: str
    """A host, a component, or `CLUSTER`."""
    wanted: str
    """Fingerprint of what it makes: another one is another step."""
    summary: str
    """What it does, in one line for people."""
    after: tuple[str, ...] = ()
    """Ids of steps that must hold before it is begun."""
    alone: bool = False
    """No other step is carried out beside it."""
    turn: int = 0
    """Steps of one stage with a later turn wait until all of an earlier one hold. 0: it has none and waits for none."""
    group: str = ""
    """Steps of one group are carried out by one act, whatever their stages are; "": each stage by an act of its own."""

    @property
    def id(self) -> str:
        """`stage/subject`."""
        return f"{self.stage}/{self.subject}"


@dataclass(frozen=True)
class StepProof:
    """Whether a step holds now."""

    word: VerdictWord
    """`unknown`: nobody could look (the host does not answer, the answer cannot be read). It never counts as held."""
    why: str
    """What was seen, in one line."""


StepProofs = Mapping[str, StepProof]
"""By id of the step."""
StepState = Literal["began", "proven", "failed"]


@dataclass(frozen=True)
class StepRecord:
    """What the ledger keeps of a step: written before it is carried out, and after its proof."""

    cluster: str
    """Name of the cluster profile."""
    stage: Stage
    subject: str
    wanted: str
    state: StepState
    """`began`: it was, or is being, carried out; `proven`: its proof held afterwards; `failed`: it did not."""
    tries: int
    """How often the command that began it last has carried it out; 0: nobody of us did, its proof held already."""
    began_at: float
    """Unix seconds of the newest try."""
    ended_at: float | None
    """Unix seconds at which the proof was asked; None: it was not asked yet."""
    why: str
    """What was seen last, or how carrying it out failed."""

    @property
    def id(self) -> str:
        """`stage/subject`."""
        return f"{self.stage}/{self.subject}"


@dataclass(frozen=True)
class StepOutcome:
    """A step at the end of a command."""

    id: str
    summary: str
    word: VerdictWord
    why: str
    """What its proof saw."""
    seconds: float | None
    """From its newest try until its proof was asked; None: this command did not carry it out."""


LOOK = "look"
"""In place of a stage where a host is only looked at."""
NewsWord = Literal["not yet", "at work", "pass", "fail", "unknown"]


@dataclass(frozen=True)
class HostNews:
    """What happens now at one subject of a bootstrap, for people who watch."""

    subject: str
    """A host, a component, or `CLUSTER`."""
    stage: str
    """Word of its stage, or `LOOK`; "": the one that it is at, and it says nothing of who is not at work."""
    word: NewsWord
    """`not yet`: its turn is to come."""
    said: str
    """What it does, or what its proof saw."""
    line: str = ""
    """The same where people read lines; "": it is not worth one."""


def builder_of(cluster: str) -> str:
    """Name under which a cluster's bootstrap holds its lease and writes; the slash keeps it apart from runs."""
    return f"bootstrap/{cluster}"


@dataclass(frozen=True)
class InventoryText:
    """An inventory as it stands there, and as Ansible reads it."""

    text: str
    is_yaml: bool
    listing: Mapping[str, Any]
    """What `ansible-inventory --list` says; empty: it could not read it."""
    complaint: str = ""
    """Why it could not, in its own words."""
