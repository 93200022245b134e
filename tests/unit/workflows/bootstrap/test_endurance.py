"""What the first components are given so that a host which dies beneath them costs seconds."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest
import yaml

from profiles.bootstrap.inventory import ApiEndpoint, Bootstrap
from profiles.errors import ProfileError
from tests.support.builders.components import chosen_of, cluster_with
from tests.support.builders.kubeadm_cluster import kubeadm_cluster
from workflows.bootstrap.endurance import endpoint_for_pods, enduring, given
from workflows.model import components
from workflows.model.components import ChosenComponent

Json = dict[str, Any]
ENDPOINT = "192.0.2.10:6443"
WAY = [
    {"name": "KUBERNETES_SERVICE_HOST", "value": "192.0.2.10"},
    {"name": "KUBERNETES_SERVICE_PORT", "value": "6443"},
]
LEASE = [
    {"name": "LEADER_ELECTION_LEASE_DURATION", "value": "10s"},
    {"name": "LEADER_ELECTION_RENEW_DEADLINE", "value": "7s"},
    {"name": "LEADER_ELECTION_RETRY_PERIOD", "value": "2s"},
]
DIGESTS = {2: "074f1ddfafd608ed"}
"""`workflows.model.components.GIVEN` -> digest of what samples become by it."""


def deployment(name: str = "made", **pod: Any) -> Json:
    selector = {"matchLabels": {"app": name}}
    spec = {"replicas": 1, "selector": selector, "template": {"spec": {"containers": [{"name": "main"}], **pod}}}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def webhooks(kind: str, *seconds: int | None) -> Json:
    hooks = [
        {"name": f"h{number}.made.io", **({} if one is None else {"timeoutSeconds": one})}
        for number, one in enumerate(seconds)
    ]
    return {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "m"}, "webhooks": hooks}


def settings(data: Json | None = None, name: str = "workflow-controller-configmap") -> Json:
    made: Json = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "argo"}}
    return made if data is None else {**made, "data": data}


def pod_of(found: Json) -> Json:
    return found["spec"]["template"]["spec"]


def first() -> ChosenComponent:
    return next(one for one in chosen_of(cluster_with([])) if one.profile.first)


def test_all_containers_of_a_deployment_find_the_api_at_the_endpoint_and_keep_what_they_say_themselves() -> None:
    own = {"name": "A", "value": "b"}
    said = {"name": "KUBERNETES_SERVICE_HOST", "value": "api.example.org"}
    made = deployment(
        containers=[{"name": "main", "env": [own]}, {"name": "other", "env": [said]}], initContainers=[{"name": "i"}]
    )
    pod = pod_of(enduring(made, ENDPOINT))
    assert [one["env"] for one in pod["containers"]] == [[own, *WAY], [said, WAY[1]]]
    assert pod["initContainers"] == [{"name": "i", "env": WAY}]
    assert enduring(enduring(made, ENDPOINT), ENDPOINT) == enduring(made, ENDPOINT)
    assert enduring(made, "") == made


@pytest.mark.parametrize("kind", ["DaemonSet", "Job", "Service"])
def test_no_other_kind_is_told_of_the_endpoint(kind: str) -> None:
    made = {**deployment(), "kind": kind}
    assert enduring(made, ENDPOINT) == made


def test_argo_s_controller_alone_hands_over_its_lease_soon() -> None:
    found = pod_of(enduring(deployment("workflow-controller"), ""))
    assert found["containers"][0]["env"] == LEASE
    assert pod_of(enduring(deployment("workflow-controller"), ENDPOINT))["containers"][0]["env"] == [*LEASE, *WAY]
    assert enduring(deployment("argo-server"), "") == deployment("argo-server")


@pytest.mark.parametrize("kind", ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"])
def test_webhooks_fail_soon_and_none_is_given_more_time_than_it_asks_for(kind: str) -> None:
    found = enduring(webhooks(kind, None, 10, 3, 1), "")
    assert [hook["timeoutSeconds"] for hook in found["webhooks"]] == [3, 3, 3, 1]
    assert [hook["name"] for hook in found["webhooks"]] == [f"h{number}.made.io" for number in range(4)]


@pytest.mark.parametrize("data", [None, {}, {"parallelism": "5"}])
def test_containers_beside_a_step_find_the_api_at_the_endpoint(data: Json | None) -> None:
    found = enduring(settings(data), ENDPOINT)["data"]
    assert yaml.safe_load(found.pop("executor")) == {"env": WAY}
    assert found == (data or {})
    assert enduring(settings(data), "") == settings(data)


def test_an_executor_that_is_said_already_keeps_what_it_has() -> None:
    own = {"resources": {"limits": {"cpu": "1"}}, "env": [{"name": "A", "value": "b"}]}
    wanted = {**own, "env": [*own["env"], *WAY]}
    assert yaml.safe_load(enduring(settings({"executor": yaml.safe_dump(own)}), ENDPOINT)["data"]["executor"]) == wanted
    whole = {"parallelism": 5, "executor": own}
    found = enduring(settings({"config": yaml.safe_dump(whole)}), ENDPOINT)["data"]
    assert found.keys() == {"config"}, "Argo takes no other key beside it"
    assert yaml.safe_load(found["config"]) == {"parallelism": 5, "executor": wanted}


def test_no_other_settings_are_touched_and_those_that_are_no_yaml_are_refused() -> None:
    assert enduring(settings({}, "other"), ENDPOINT) == settings({}, "other")
    with pytest.raises(ProfileError, match="is no YAML"):
        enduring(settings({"executor": "{"}), ENDPOINT)


def inventory(**section: object) -> Bootstrap:
    found = kubeadm_cluster(**section).bootstrap
    assert found is not None
    return found


def test_only_a_cluster_of_ours_whose_endpoint_is_an_address_has_one_for_pods() -> None:
    assert endpoint_for_pods(inventory()) == ENDPOINT
    balancer = inventory(endpoint={"address": "192.0.2.99", "kind": "external", "port": 8443})
    assert endpoint_for_pods(balancer) == "192.0.2.99:8443"
    named = balancer.model_copy(update={"endpoint": ApiEndpoint(address="api.example.org", kind="external")})
    assert endpoint_for_pods(named) == "", "a name would have to be resolved first"
    assert endpoint_for_pods(balancer.model_copy(update={"endpoint": None})) == ""
    adopted = cluster_with([]).bootstrap
    assert adopted is not None
    assert endpoint_for_pods(adopted.model_copy(update={"endpoint": balancer.endpoint})) == ""


def test_what_a_component_is_given_is_part_of_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = first(), next(one for one in chosen_of(cluster_with(["registry"])) if not one.profile.first)
    before = {found.name: found.wanted for found in (one, other)}
    assert replace(one, endpoint=ENDPOINT).wanted != one.wanted
    monkeypatch.setattr(components, "GIVEN", components.GIVEN + 1)
    assert one.wanted != before[one.name]
    assert other.wanted == before[other.name], "what comes by a workflow is given nothing of it"


def test_whoever_changes_what_objects_are_given_raises_the_number_of_it() -> None:
    one = replace(first(), standby=True, endpoint=ENDPOINT)
    samples = (
        deployment("workflow-controller"),
        deployment("made", tolerations=[{"key": "team"}]),
        webhooks("MutatingWebhookConfiguration", None, 10, 1),
        webhooks("ValidatingWebhookConfiguration", None, 10, 1),
        settings({"parallelism": "5"}),
    )
    text = json.dumps([given(one, sample) for sample in samples], sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    why = (
        "objects of the first components are given something else: raise workflows.model.components.GIVEN, so that "
        f"clusters that stand get it too, and write {digest} beside the new number in DIGESTS"
    )
    assert DIGESTS.get(components.GIVEN) == digest, why
