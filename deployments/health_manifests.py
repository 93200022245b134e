"""`primus render health`: everything that the health service needs in a cluster, and how to take it away again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from deployments.edge import GOOD, out, out_json
from profiles.document import MAX_BYTES
from profiles.errors import ProfileError
from profiles.health import HealthValues
from profiles.load import load_text
from workflows.health import CHECK, check_pod, health
from workflows.health_alerts import rules, scrape_config
from workflows.health_rights import SERVICE
from workflows.installation_pods import NAME

WIDTH = 120
SELECTOR = f"{NAME}={SERVICE}"
KINDS = (
    "daemonsets",
    "services",
    "networkpolicies",
    "rolebindings",
    "roles",
    "serviceaccounts",
    "persistentvolumeclaims",
)
"""What there is of it in its namespace."""
OPERATOR_KINDS = ("servicemonitors", "prometheusrules")
NODE_LABELS = ("gpuhealth", "dcgm.level.1", "dcgm.level.2", "dcgm.level.3", "dcgm.level.4")
"""What the daemon may have written on nodes, behind `autopilot.ibm.com/`."""


def render_health(values: str, *, part: str = "all", as_json: bool) -> int:
    """Print the objects; touches nothing.

    Args:
        values: path of a file of `HealthValues`; "": all as it is by itself.
        part: `all`; `check`: the pod that asks all nodes once; `rules` and `scrape`: for a Prometheus that reads files.
        as_json: a list instead of YAML documents.

    Raises:
        ProfileError: the file cannot be read, or a value in it is wrong; names the field.
    """
    wanted = values_from(values)
    documents = documents_of(wanted, part)
    if as_json:
        out_json(documents)
        return GOOD
    import yaml

    head = told(wanted) if part == "all" else ""
    out(head + yaml.safe_dump_all(documents, sort_keys=False, width=WIDTH).rstrip("\n"))
    return GOOD


def documents_of(values: HealthValues, part: str) -> list[dict[str, Any]]:
    """The documents of a part.

    Raises:
        ProfileError: no such part.
    """
    match part:
        case "all":
            return health(values)
        case "check":
            return [check_pod(values)]
        case "rules":
            return [rules(values)]
        case "scrape":
            return [{"scrape_configs": [scrape_config(values)]}]
        case other:
            raise ProfileError("part", f"must be all, check, rules or scrape, got {other!r}")


def values_from(path: str) -> HealthValues:
    """The values in a file.

    Raises:
        ProfileError: it cannot be read, or a value in it is wrong; names the field.
    """
    if not path:
        return HealthValues()
    try:
        with Path(path).open("rb") as file:
            text = file.read(MAX_BYTES + 1).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ProfileError("values", f"cannot read {path}: {error}") from error
    return load_text(HealthValues, text, path) if text.strip() else HealthValues()


def told(values: HealthValues) -> str:
    """How it is set up and taken away, as comments above the documents."""
    lines = [f"The health service. Everything in it has the label {SELECTOR}."]
    if not values.compatible:
        make = f"kubectl create secret generic {values.token_secret} --namespace {values.namespace}"
        lines += [
            f"Before:    the Secret {values.token_secret} with a long random `token`, without which no daemon starts:",
            f"           kubectl create namespace {values.namespace}",
            f"           head -c 32 /dev/urandom | base64 | tr -d '\\n' | {make} --from-file=token=/dev/stdin",
        ]
    lines += [
        "Set up:    primus render health [--values FILE] | kubectl apply --server-side -f -",
        f"Look:      kubectl rollout status daemonset/{SERVICE} --namespace {values.namespace}",
        "Take away: " + "\n           ".join(take_away(values)),
        "           (each may be left out; the last one also takes the token, and whatever others have there)",
    ]
    return "".join(f"# {line}\n" for text in lines for line in text.split("\n")) + "---\n"


def take_away(values: HealthValues) -> list[str]:
    """Commands that remove everything the service and its daemons made, in order."""
    kinds = [*KINDS, *(OPERATOR_KINDS if values.service_monitor else ())]
    keys = " ".join(f"autopilot.ibm.com/{name}-" for name in NODE_LABELS)
    notes = " ".join(f"autopilot.ibm.com/{name}.output-" for name in NODE_LABELS if "." in name)
    named = f"{SERVICE}-{values.namespace}"
    marks = [
        f"kubectl label nodes --all {keys}",
        f"kubectl annotate nodes --all {notes}",
    ]
    return [
        f"kubectl delete {','.join(kinds)} --namespace {values.namespace} --selector {SELECTOR}",
        f"kubectl delete pod {CHECK} --namespace {values.namespace} --ignore-not-found",
        f"kubectl delete clusterrole,clusterrolebinding {named}",
        *(marks if values.write_labels else []),
        f"kubectl delete namespace {values.namespace}",
    ]
