from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

import pytest

from flows.decisions.bootstrap.components import removal_order
from tasks.embedded.engine.argo.validate import validate_workflow
from tests.support.builders.components import BUILT_IN, FILES, REGISTRY, plan_of, shelf, whole_plan
from workflows import labels
from workflows.bootstrap.components import (
    INSTALL_SECONDS,
    ComponentsPlan,
    components_workflow,
    deadline_seconds,
    installer,
)
from workflows.bootstrap.removal import Leaving, RemovalPlan, removal_workflow
from workflows.lint.lint import lint
from workflows.model.components import NAMESPACE
from workflows.programs.main import PROGRAMS
from workflows.programs.runtime import flags
from workflows.programs.serving import install, main

WHOLE = components_workflow(whole_plan())


def tasks(manifest: dict[str, Any]) -> dict[str, str]:
    """Every step with what it waits for."""
    [dag] = [template["dag"] for template in manifest["spec"]["templates"] if "dag" in template]
    assert dag["failFast"] is False, "what is independent goes on beside a failure"
    return {task["name"]: task.get("depends", "") for task in dag["tasks"]}


def template_of(manifest: dict[str, Any], step: str) -> dict[str, Any]:
    templates = {template["name"]: template for template in manifest["spec"]["templates"]}
    [dag] = [template["dag"] for template in manifest["spec"]["templates"] if "dag" in template]
    [name] = [task["template"] for task in dag["tasks"] if task["name"] == step]
    return templates[name]


def removal(*names: str, with_data: bool = True) -> RemovalPlan:
    plan = plan_of(*names)
    chosen = {one.name: one for one in plan.chosen}
    order = removal_order(list(names), shelf(), with_data=with_data)
    leaving = tuple(Leaving(chosen[one.profile.name], one.namespace, not one.keeps) for one in order)
    return RemovalPlan(plan.cluster, leaving, 1, BUILT_IN)


def test_it_passes_every_rule_and_the_engine_s_own_validation() -> None:
    for manifest in (WHOLE, removal_workflow(removal("registry", "cert-manager", "primus-health"))):
        assert lint(manifest) == []
        validate_workflow(copy.deepcopy(manifest))


def test_each_is_proven_behind_its_install_and_begun_behind_the_proofs_of_what_it_needs() -> None:
    waits = tasks(WHOLE)
    for one in whole_plan().chosen:
        before = [f"prove-{name}.Succeeded" for name in (*one.profile.needs, *one.profile.after)]
        begin = f"prove-{one.name}" if one.profile.first else f"install-{one.name}"
        assert waits[begin] == " && ".join(before)
        if not one.profile.first:
            assert waits[f"prove-{one.name}"] == f"install-{one.name}.Succeeded"
    assert {name for name in waits if name.startswith("install-")} == {
        f"install-{one.name}" for one in whole_plan().chosen if not one.profile.first
    }, "Argo, JobSet and Kueue are applied by the flow"


def test_what_only_has_to_be_asked_again_is_not_installed() -> None:
    plan = replace(plan_of("registry", "victoria-metrics"), install=frozenset({"registry"}))
    waits = tasks(components_workflow(plan))
    assert [name for name in waits if name.startswith("install-")] == ["install-registry"]
    assert waits["prove-victoria-metrics"] == ""


def test_programs_get_flags_that_they_read_back() -> None:
    for template in WHOLE["spec"]["templates"]:
        containers = [template.get("container"), *template.get("initContainers", [])]
        for command in (one["command"] for one in containers if one and one["command"][0] == "primus-programs"):
            assert command[1] in PROGRAMS
            kind = {"prove-serving": main.Options, "install-component": install.Options}[command[1]]
            assert flags.to_argv(flags.from_argv(kind, command[2:])) == command[2:]


def test_a_chart_is_fetched_by_digest_and_taken_back_where_it_does_not_come_up() -> None:
    template = template_of(WHOLE, "install-cert-manager")
    fetch = flags.from_argv(install.Options, template["initContainers"][0]["command"][2:])
    assert fetch.url == f"{FILES}/charts/cert-manager-v1.21.2.tgz"
    assert len(fetch.sha256) == 64
    assert {"upgrade", "--install", "--atomic", "--create-namespace"} <= set(template["container"]["command"])
    values = json.loads(template["inputs"]["artifacts"][0]["raw"]["data"])
    tolerated = {"tolerations": values["tolerations"]}
    assert [one["key"] for one in values["tolerations"]] == [labels.STARTUP_TAINT]
    assert values == {
        **dict.fromkeys(("cainjector", "startupapicheck", "webhook"), tolerated),
        **tolerated,
        "crds": {"enabled": True, "keep": False},
        "replicaCount": 1,
        "imageRegistry": REGISTRY,
    }
    juicefs = json.loads(template_of(WHOLE, "install-juicefs-csi")["inputs"]["artifacts"][0]["raw"]["data"])
    assert "storage_class" not in juicefs, "what is for the proof is no value of the chart"


def test_objects_carry_images_as_nodes_pull_them() -> None:
    for registry, image in ((REGISTRY, f"{REGISTRY}/library/registry:3.1.2"), ("", "docker.io/library/registry:3.1.2")):
        template = template_of(components_workflow(plan_of("registry", registry=registry)), "install-registry")
        [objects] = template["inputs"]["artifacts"]
        assert f'"image": "{image}"' in objects["raw"]["data"]


def test_a_proof_is_told_what_it_needs_and_its_report_comes_back() -> None:
    template = template_of(WHOLE, "prove-kueue")
    options = flags.from_argv(main.Options, template["container"]["command"][2:])
    assert (options.proof, json.loads(options.parameters), options.namespace) == ("gang", {"queue": "made"}, NAMESPACE)
    [one] = [one for one in whole_plan().chosen if one.name == "kueue"]
    assert options.wanted == one.wanted
    [output] = template["outputs"]["parameters"]
    assert output["name"] == "report"
    assert template["retryStrategy"] == {"limit": 2, "retryPolicy": "OnError"}, "a proof that failed is not asked anew"
    gpu = whole_plan()
    told = gpu.cluster.model_copy(
        update={"admission": gpu.cluster.admission.model_copy(update={"gpu_image": "registry.example.org/tests:1"})}
    )
    proof = template_of(components_workflow(replace(gpu, cluster=told)), "prove-amd-gpu-operator")
    parameters = json.loads(flags.from_argv(main.Options, proof["container"]["command"][2:]).parameters)
    assert parameters == {"resource": "amd.com/gpu", "image": "registry.example.org/tests:1"}


def test_the_authority_of_the_mirror_reaches_whoever_fetches() -> None:
    text = json.dumps(components_workflow(replace(plan_of("metrics-server"), authority="-----BEGIN CERTIFICATE-----")))
    assert text.count(install.AUTHORITY) == 1
    assert install.AUTHORITY not in json.dumps(components_workflow(plan_of("metrics-server")))


def test_its_name_is_the_number_s_and_the_ledger_s() -> None:
    one = replace(plan_of("registry"), number=7, ledger="abcdef0123")
    assert components_workflow(one)["metadata"]["name"] == "primus-components-kubernetes-examp-abcdef-7"
    assert components_workflow(one) == components_workflow(one)


def test_it_may_take_as_long_as_its_longest_chain() -> None:
    short, long = deadline_seconds(plan_of("metrics-server")), deadline_seconds(plan_of("vmalert"))
    assert long > short > 600
    with pytest.raises(ValueError, match="at least one component"):
        components_workflow(ComponentsPlan(plan_of().cluster, (), frozenset(), 1))


def test_the_installer_has_a_place_an_account_and_the_right() -> None:
    kinds = [one["kind"] for one in installer()]
    assert kinds == ["Namespace", "ServiceAccount", "ClusterRoleBinding"]
    assert WHOLE["spec"]["serviceAccountName"] == installer()[1]["metadata"]["name"]


@pytest.mark.parametrize("with_data", [False, True])
def test_what_holds_data_goes_only_where_that_is_asked_for(with_data: bool) -> None:
    manifest = removal_workflow(removal("registry", "local-folder", "metrics-server", with_data=with_data))
    by_name = {template["name"]: template for template in manifest["spec"]["templates"]}
    [steps] = [template["steps"] for template in manifest["spec"]["templates"] if "steps" in template]
    for name in ("registry", "local-folder"):
        [template] = [step["template"] for [step] in steps if step["name"] == f"remove-{name}"]
        told = flags.from_argv(install.Options, by_name[template]["container"]["command"][2:])
        assert told.data is with_data


def test_whatever_makes_a_volume_says_that_it_holds_data() -> None:
    for one in shelf().values():
        text = json.dumps(one.source.model_dump(mode="json"))
        if '"PersistentVolume' in text or "volumeClaimTemplates" in text:
            assert one.removal.data, one.name


def test_helm_may_end_what_it_began() -> None:
    removing = removal_workflow(removal("cert-manager"))
    helms = [one for one in WHOLE["spec"]["templates"] + removing["spec"]["templates"] if "initContainers" in one]
    assert len(helms) > 5
    for template in helms:
        assert template["activeDeadlineSeconds"] > 2 * INSTALL_SECONDS, "a release is taken back in as long again"
        assert template["retryStrategy"] == {"limit": 2, "retryPolicy": "OnError"}
    for manifest in (WHOLE, removing):
        steps = [one["activeDeadlineSeconds"] for one in manifest["spec"]["templates"] if "container" in one]
        assert manifest["spec"]["activeDeadlineSeconds"] >= max(steps)
    fetch = template_of(WHOLE, "install-cert-manager")["initContainers"][0]["command"][2:]
    assert flags.from_argv(install.Options, fetch).namespace == "cert-manager", "where helm keeps the release"
    one, two = plan_of("cert-manager"), plan_of("registry")
    assert deadline_seconds(one) - deadline_seconds(two) >= INSTALL_SECONDS, "the whole has time for that too"


def test_components_go_before_what_they_need_each_whole() -> None:
    manifest = removal_workflow(removal("victoria-metrics", "alertmanager", "vmalert", "cert-manager"))
    [steps] = [template["steps"] for template in manifest["spec"]["templates"] if "steps" in template]
    order = [step["name"] for [step] in steps]
    assert order[0:2] == ["remove-vmalert", "clear-vmalert"]
    by_name = {template["name"]: template for template in manifest["spec"]["templates"]}
    place = order.index("remove-cert-manager") // 2
    release, end = by_name[f"rid-{place}"], by_name[f"end-{place}"]
    before = flags.from_argv(install.Options, release["initContainers"][0]["command"][2:])
    assert "certificates.cert-manager.io" in before.resource
    assert release["container"]["command"][:2] == ["helm", "uninstall"]
    after = flags.from_argv(install.Options, end["container"]["command"][2:])
    assert after.notes_in == NAMESPACE
    assert (after.remove_namespace, after.forget) == ("cert-manager", True)
    assert "certificates.cert-manager.io" in after.crd
    with pytest.raises(ValueError, match="at least one component"):
        removal_workflow(replace(removal("vmalert"), leaving=()))
