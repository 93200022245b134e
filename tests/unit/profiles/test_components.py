from __future__ import annotations

import json
from typing import Any

import pytest

from profiles.bootstrap.components import (
    ChartSource,
    ComponentProfile,
    InlineSource,
    ManifestsSource,
    checked_values,
    filled,
    nested,
)
from profiles.errors import ProfileError
from profiles.loading.load import list_profiles, load_component, load_text
from tests.support.cases.rows import rows
from workflows.lint.pods import SECRET_NAME, SECRET_VALUE

SHIPPED = {one.name: load_component(one.name) for one in list_profiles() if one.kind == "component"}
WANTED = {
    *("argo-workflows", "jobset", "kueue", "metrics-server", "cert-manager", "registry", "harbor", "juicefs-csi"),
    *("local-folder", "higress", "victoria-metrics", "vmagent", "vmalert", "alertmanager", "victoria-logs"),
    *("fluent-bit", "node-exporter", "amd-gpu-operator", "nvidia-gpu-operator", "amd-device-metrics-exporter"),
    *("dcgm-exporter", "primus-runner", "primus-monitor", "primus-health"),
}
MADE = """
name: made
description: For tests.
category: figures
version: "1"
source: {kind: chart, path: charts/made.tgz}
namespace: made
values:
  retention: {type: text, default: 30d, pattern: "[0-9]+d", description: How long.}
  image.tag: {type: text, description: Tag.}
  replicas: {type: integer, default: 2, minimum: 1, maximum: 9, description: How many.}
  mode: {type: text, choices: [alpha, beta], description: Which.}
  url: {type: text, required: true, description: Where people reach it.}
proof: {kind: http, parameters: {url: "${url}"}}
tried: true
"""


def made(**changes: Any) -> ComponentProfile:
    return load_text(ComponentProfile, MADE).model_copy(update=changes)


def test_the_shelf_has_what_a_cluster_of_ours_needs() -> None:
    assert SHIPPED.keys() >= WANTED
    assert {name for name, one in SHIPPED.items() if one.first} == {"argo-workflows", "jobset", "kueue"}
    assert {one.vendor for one in SHIPPED.values()} == {"", "amd", "nvidia"}
    for one in SHIPPED.values():
        assert {*one.needs, *one.after} <= SHIPPED.keys()


@pytest.mark.parametrize("name", sorted(SHIPPED))
def test_a_shipped_component_can_be_rendered_and_holds_no_secret(name: str) -> None:
    one = SHIPPED[name]
    required = {key: "https://made.example.org" for key, field in one.values.items() if field.required}
    values = checked_values(one, required, "here") | {"namespace": one.namespace}
    if isinstance(one.source, InlineSource):
        objects: list[dict[str, Any]] = filled(list(one.source.objects), values)
        text = json.dumps(objects)
        assert "${" not in text
        assert not SECRET_VALUE.search(text)
        assert all(item["apiVersion"] and item["kind"] and item["metadata"]["name"] for item in objects)
        images = {image.name for image in one.images}
        used = {container["image"] for item in objects for container in _containers(item)}
        assert used == images, "every image that it runs is listed, and no other one"
        for item in objects:
            for variable in (env for container in _containers(item) for env in container.get("env", [])):
                assert not SECRET_NAME.search(variable["name"].upper())
    elif isinstance(one.source, ChartSource | ManifestsSource):
        assert not one.source.path.startswith(("/", "http"))


def _containers(item: dict[str, Any]) -> list[dict[str, Any]]:
    return item.get("spec", {}).get("template", {}).get("spec", {}).get("containers", []) if "spec" in item else []


def test_values_are_nested_or_dotted() -> None:
    known = {"retention": "30d", "replicas": 2, "url": "u"}
    assert checked_values(made(), {"url": "u"}, "here") == known
    dotted = checked_values(made(), {"url": "u", "image.tag": "v2"}, "here")
    assert dotted == checked_values(made(), {"url": "u", "image": {"tag": "v2"}}, "here") == known | {"image.tag": "v2"}
    assert nested(dotted) == {"retention": "30d", "replicas": 2, "url": "u", "image": {"tag": "v2"}}


@rows("bootstrap/component_values")
def test_a_wrong_value_is_refused_by_its_field(given: dict[str, Any], field: str, says: str) -> None:
    with pytest.raises(ProfileError) as refused:
        checked_values(made(), {"url": "u"} | given, "bootstrap.components[0]")
    assert refused.value.field == f"bootstrap.components[0].values.{field}"
    assert says in refused.value.reason


def test_a_value_that_nobody_says_is_asked_for_with_what_it_is() -> None:
    with pytest.raises(ProfileError, match="Where people reach it") as refused:
        checked_values(made(), {}, "here")
    assert refused.value.field == "here.values.url"


@rows("bootstrap/component_values")
def test_a_placeholder_is_replaced(found: Any, becomes: Any) -> None:
    assert filled(found, {"replicas": 2, "retention": "30d", "secure": True}) == becomes


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("tried: true", "tried: false", "must say what was not tried"),
        ("tried: true", "tried: true\nnot_tried: Nothing.", "must say what was not tried"),
        ('url: "${url}"', 'url: "${ulr}"', "is used and no value is called so"),
        ('url: "${url}"', 'ulr: "${url}"', 'knows no "ulr"'),
        ('{url: "${url}"}', "{path: /x}", "needs url"),
        ("default: 2, minimum", "default: 0, minimum", "must be at least 1"),
        ("namespace: made", "namespace: made\nneeds: [made]", "must not name the component itself"),
    ],
)
def test_a_component_that_cannot_be_is_refused(old: str, new: str, says: str) -> None:
    assert old in MADE
    with pytest.raises(ProfileError, match=says.replace("$", r"\$")):
        load_text(ComponentProfile, MADE.replace(old, new))
