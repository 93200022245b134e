"""Names of everything we create in a cluster: deterministic, so that it can be found again after any crash."""

from __future__ import annotations

import re
from collections.abc import Mapping

from profiles.values import LABEL_CHARACTERS, LABEL_PATTERN

PREFIX = "primus-flows.io"
RUN = f"{PREFIX}/run"
ATTEMPT = f"{PREFIX}/attempt"
ROLE = f"{PREFIX}/role"
PIPELINE = f"{PREFIX}/pipeline"
SUITE = f"{PREFIX}/suite"
TEST = f"{PREFIX}/test"
"""Name of the workflow for which a volume is claimed."""
NODE = f"{PREFIX}/node"
"""Annotation: the node that is tested with it."""
POOL = f"{PREFIX}/pool"
RACK = f"{PREFIX}/rack"
BLOCK = f"{PREFIX}/block"
SPARE = f"{PREFIX}/spare"
COMPONENT = f"{PREFIX}/component"
"""Name of the component of a bootstrap that an object belongs to."""
BOOTSTRAP_CORDON = f"{PREFIX}/bootstrap-cordon"
"""Label of a node that was cordoned to be upgraded or to leave: it alone is opened again afterwards."""
CERTIFICATE_SHOWN = f"{PREFIX}/certificate-shown"
"""Annotation of a controller's pod: its kubelet has been made to look at the volume of this Secret again."""
WANTED = f"{PREFIX}/wanted"
"""Annotation: fingerprint of what the component was installed as."""
VERDICT = f"{PREFIX}/verdict"
VERDICT_EVIDENCE = f"{PREFIX}/verdict-evidence"
VERDICT_AT = f"{PREFIX}/verdict-at"
QUARANTINE_TAINT = f"{PREFIX}/quarantine"
HOLD_TAINT = f"{PREFIX}/hold"
STARTUP_TAINT = f"{PREFIX}/startup"
"""With it a node joins; a preflight that passes takes it away."""
HOLD_UNTIL = f"{PREFIX}/hold-until"
"""Annotation: when a hold ends by itself, RFC 3339."""
VERDICT_CONDITION = "PrimusVerdict"
"""Type of the node condition that tells our verdict: True pass, False fail, Unknown."""
FENCING = f"{PREFIX}/fencing"
"""Annotation: fencing number of the driver that applied the object."""
LEDGER = f"{PREFIX}/ledger"
"""Annotation: identity of the ledger that owns the object; see `workflows.model.ownership`."""
OWNER = f"{PREFIX}/owner"
TAGS = f"tags.{PREFIX}"
"""Prefix of the labels that people's own tags become."""
FIELD_MANAGER = "primus-flows"
HOSTNAME = "kubernetes.io/hostname"

RETURNING = "returning"
"""Priority of attempts that answer a failure: of runs that name none, and what is added to the others' names."""
TRIAL = "trial"
TRIAL_KEY_CHARACTERS = 8
COORDINATOR_ROLE = "coordinator"
COORDINATOR_PORT = 29400
"""Port of the coordinator in its own pod network (embedded: on the pod's own loopback address)."""


def attempt_name(run: str, attempt: int) -> str:
    """Name of an attempt's JobSet and Workflow, e.g. `demo-1-a2`."""
    return f"{run}-a{attempt}"


def examination_name(run: str, attempt: int, number: int) -> str:
    """Name of the Workflow that examines the nodes of an attempt, e.g. `demo-1-a2-x1`."""
    return f"{attempt_name(run, attempt)}-x{number}"


def post_flight_name(run: str, attempt: int) -> str:
    """Name of the Workflow that collects what an attempt left, e.g. `demo-1-a2-post`."""
    return f"{attempt_name(run, attempt)}-post"


def numbered_name(kind: str, cluster: str, number: int, ledger: str = "") -> str:
    """Name of what a ledger does about a cluster's nodes, e.g. `primus-preflight-local-1f0c2a-7`.

    Each ledger counts by itself: without its identity two of them would take each other's for their own, also where no
    object can say whose it is (jobs of Slurm, folders). "" leaves it out: what `render` shows is nobody's.
    """
    return "-".join((kind, cluster[:16].rstrip("-"), *([ledger[:6]] if ledger else []), str(number)))


def sweep_name(cluster: str, number: int, ledger: str = "") -> str:
    """Name of the Workflow of a cluster's sweep; see `numbered_name`."""
    return numbered_name("primus-sweep", cluster, number, ledger)


def preflight_name(cluster: str, number: int, ledger: str = "") -> str:
    """Name of the Workflow of a cluster's test of nodes; see `numbered_name`."""
    return numbered_name("primus-preflight", cluster, number, ledger)


def components_name(cluster: str, number: int, ledger: str = "") -> str:
    """Name of the Workflow that installs and proves a cluster's components; see `numbered_name`."""
    return numbered_name("primus-components", cluster, number, ledger)


def trial_name(key: str, number: int) -> str:
    """Name of the run that a trial of a run is, e.g. `trial-1f0c2a9e-7`."""
    return f"{TRIAL}-{key}-{number}"


def is_trial(run: str) -> bool:
    """Whether a run of this name is a trial: no ledger knows it, and it ends by itself."""
    kind, _, rest = run.partition("-")
    key, _, number = rest.partition("-")
    return kind == TRIAL and len(key) == TRIAL_KEY_CHARACTERS and number.isdigit()


def hold_owner(run: str) -> str:
    """Owner of the holds on nodes that are tested for a run: the run's next driver knows them as its own."""
    return f"for-{run}"


def secret_name(run: str, attempt: int) -> str:
    """Name of the Secret with an attempt's token (key `token`)."""
    return f"{attempt_name(run, attempt)}-token"


def labels(run: str, attempt: int, pipeline: str, role: str = "") -> dict[str, str]:
    """Labels of an object of ours."""
    ours = {RUN: run, ATTEMPT: str(attempt), PIPELINE: pipeline}
    if role:
        ours[ROLE] = role
    return ours


def of_people(owner: str, tags: Mapping[str, str]) -> dict[str, str]:
    """Labels by which people find what they asked for; an owner whose name can be no label has none."""
    plain = len(owner) <= LABEL_CHARACTERS and re.fullmatch(LABEL_PATTERN, owner)
    return ({OWNER: owner} if plain else {}) | {f"{TAGS}/{name}": value for name, value in tags.items()}


def run_directory(mount_path: str, run: str) -> str:
    """A run's folder on shared storage, as pods see it."""
    return f"{mount_path.rstrip('/')}/runs/{run}"
