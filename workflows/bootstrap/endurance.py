"""What the first components are given so that a host which loses its power costs a run seconds, not minutes. Pure.

Beside a second pod (`workflows.programs.serving.objects.standing_by`) and leaving a lost node soon (`tolerating`): a
way to the API that outlives each control plane, webhooks that fail soon, and a leader that is replaced soon. Whoever
changes what objects are given here or there raises `workflows.model.components.GIVEN`.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv4Address
from typing import Any, cast

import yaml

from profiles.bootstrap.engines import Kubeadm
from profiles.bootstrap.inventory import Bootstrap
from profiles.errors import ProfileError
from workflows.bootstrap.kubeadm_documents import server_of
from workflows.model.components import ChosenComponent
from workflows.model.manifest import items, part
from workflows.programs.serving.objects import standing_by, tolerating

HOST, PORT = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"
"""Where every client of Kubernetes looks for the API from inside a pod; kubelet sets the service's address there,
unless the container says another one."""
WEBHOOK_SECONDS = 3
"""For a webhook to answer; Kubernetes' own default is 10 (`timeoutSeconds` in the reference of
admissionregistration.k8s.io/v1). Those of JobSet and Kueue answer within milliseconds, so that one which takes longer
is dead, and the caller asks again: another pod, or the same question a moment later."""
WEBHOOKS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
CONTROLLER = "workflow-controller"
"""Of Argo Workflows: the name of its Deployment."""
CONTROLLER_SETTINGS = f"{CONTROLLER}-configmap"
EXECUTOR, WHOLE = "executor", "config"
"""Keys of its settings: what the containers beside a step's own are given, and everything as one text instead."""
LEASE: Mapping[str, str] = {
    "LEADER_ELECTION_LEASE_DURATION": "10s",
    "LEADER_ELECTION_RENEW_DEADLINE": "7s",
    "LEADER_ELECTION_RETRY_PERIOD": "2s",
}
"""Of Argo's controller (its docs/environment-variables.md; 15, 10 and 5 s by themselves): the pod that stands by looks
every 2 s and leads once the lease is 10 s old, 12 s after the leader's last word at most. JobSet and Kueue take 15 s by
themselves, and what they do not say in the environment stays theirs."""

Manifest = Mapping[str, Any]


def endpoint_for_pods(bootstrap: Bootstrap) -> str:
    """Where pods of the first components find the API, as `address:port`; "": by the service's address.

    The endpoint's address is on another control plane within seconds, or its balancer knows who is dead, while
    kube-proxy sends one of three new connections of the service's address to a dead API server for some 40 s. Only
    where kubeadm is ours: the certificates of API servers carry the address then. A name would put the cluster's DNS
    before the API, which a lost host may take with it as well.
    """
    endpoint = bootstrap.endpoint
    if endpoint is None or not isinstance(bootstrap.engine, Kubeadm):
        return ""
    try:
        IPv4Address(endpoint.address)
    except ValueError:
        return ""
    return server_of(bootstrap)


def given(one: ChosenComponent, manifest: Manifest) -> dict[str, Any]:
    """An object of a first component with everything that it is given.

    Raises:
        ProfileError: settings of Argo that cannot be read.
    """
    found = enduring(manifest, one.endpoint)
    return tolerating(standing_by(found) if one.standby else found)


def enduring(manifest: Manifest, endpoint: str) -> dict[str, Any]:
    """The object with its way to the API, where `endpoint` says one, and with what ends waiting soon.

    Raises:
        ProfileError: settings of Argo that cannot be read.
    """
    found, kind = dict(manifest), manifest.get("kind")
    name = part(manifest, "metadata").get("name")
    address, _, port = endpoint.rpartition(":")
    variables: dict[str, str] = {HOST: address, PORT: port} if endpoint else {}
    if kind in WEBHOOKS:
        return _failing_soon(found)
    if kind == "Deployment":
        return _with_variables(found, {**(LEASE if name == CONTROLLER else {}), **variables})
    if kind == "ConfigMap" and name == CONTROLLER_SETTINGS and variables:
        return _with_executor(found, variables)
    return found


def _failing_soon(found: dict[str, Any]) -> dict[str, Any]:
    def soon(hook: Manifest) -> dict[str, Any]:
        return {**hook, "timeoutSeconds": min(int(hook.get("timeoutSeconds") or WEBHOOK_SECONDS), WEBHOOK_SECONDS)}

    return {**found, "webhooks": [soon(hook) for hook in items(found, "webhooks")]}


def _with_variables(found: dict[str, Any], variables: Mapping[str, str]) -> dict[str, Any]:
    """A Deployment whose containers all have these variables in their environment."""
    if not variables:
        return found
    spec, template, pod = part(found, "spec"), part(found, "spec", "template"), part(found, "spec", "template", "spec")
    own = {
        key: [_container(one, variables) for one in items(pod, key)]
        for key in ("initContainers", "containers")
        if key in pod
    }
    return {**found, "spec": {**spec, "template": {**template, "spec": {**pod, **own}}}}


def _container(own: Manifest, variables: Mapping[str, str]) -> dict[str, Any]:
    """A container with these variables behind its own; what it says itself of one of them stays."""
    there = items(own, "env")
    said = {one.get("name") for one in there}
    added = [{"name": name, "value": value} for name, value in variables.items() if name not in said]
    return {**own, "env": [*there, *added]}


def _with_executor(found: dict[str, Any], variables: Mapping[str, str]) -> dict[str, Any]:
    """Argo's settings, by which the containers beside every step's own (`init`, `wait`) have these variables."""
    data = part(found, "data")
    if WHOLE in data:
        whole = _read(data[WHOLE])
        executor = _container(part(whole, EXECUTOR), variables)
        return {**found, "data": {**data, WHOLE: _written({**whole, EXECUTOR: executor})}}
    executor = _container(_read(data.get(EXECUTOR) or "{}"), variables)
    return {**found, "data": {**data, EXECUTOR: _written(executor)}}


def _read(text: str) -> Manifest:
    try:
        found: object = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ProfileError("components.argo-workflows.source", f"{CONTROLLER_SETTINGS} is no YAML: {error}") from error
    return cast("Manifest", found) if isinstance(found, dict) else {}


def _written(document: Manifest) -> str:
    return yaml.safe_dump(dict(document), sort_keys=False)
