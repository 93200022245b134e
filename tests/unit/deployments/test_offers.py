"""The deployments that a runner serves: what the file lists in Prefect's words, with forms that explain themselves."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from prefect.client.schemas.schedules import CronSchedule
from prefect.utilities.schema_tools.validation import validate

from deployments.processes.offers import LISTED, NAME, flow_at, offers_of
from profiles.cluster import ClusterProfile
from profiles.loading.load import load_cluster
from tasks.prefect.deployments import Offer

ENTRIES: list[dict[str, Any]] = yaml.safe_load(LISTED.read_text())["deployments"]


@pytest.fixture(scope="module")
def local() -> ClusterProfile:
    return load_cluster("local")


@pytest.fixture(scope="module")
def offered(local: ClusterProfile) -> tuple[Offer, ...]:
    return offers_of(local)


@pytest.fixture(scope="module")
def with_hosts() -> tuple[Offer, ...]:
    return offers_of(load_cluster("bootstrap-example").model_copy(update={"name": "local"}))


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: f"{entry['entrypoint']}{entry['name'].removeprefix(NAME)}")
def test_what_is_listed_is_a_flow_with_explained_parameters(
    entry: dict[str, Any], offered: tuple[Offer, ...], with_hosts: tuple[Offer, ...]
) -> None:
    assert entry["name"].startswith(NAME)
    flow, name = flow_at(entry["entrypoint"]), entry["name"].replace(NAME, "local")
    builds = "bootstrap" in entry["tags"]
    if builds:
        assert flow.name not in {one.flow for one in offered}, "this cluster has no hosts"
    [offer] = [one for one in (with_hosts if builds else offered) if (one.flow, one.name) == (flow.name, name)]
    assert offer.entrypoint == entry["entrypoint"]
    assert offer.description.split("\n")[0]
    assert "cluster:local" in offer.tags
    for name, field in offer.schema["properties"].items():
        assert field.get("description"), f"{flow.name}.{name} has no description"
    for name, definition in offer.schema.get("definitions", {}).items():
        for key, field in definition.get("properties", {}).items():
            assert field.get("description"), f"{name}.{key} has no description"
    validate(dict(offer.parameters), offer.schema, ignore_required=True, raise_on_error=True)


def test_timetables_are_ones_that_the_server_takes(offered: tuple[Offer, ...]) -> None:
    tables = {f"{offer.flow}/{item.slug}": item for offer in offered for item in offer.timetables}
    assert {
        "monitor/each-minute",
        "preflight/each-night",
        "preflight/each-ten-minutes",
        "report/each-week",
    } <= tables.keys()
    for item in tables.values():
        CronSchedule(cron=item.cron, timezone=item.timezone)
    scheduled = [offer for offer in offered if offer.timetables]
    assert all(offer.alone for offer in scheduled), "what comes by itself must not pile up"


def test_the_general_deployment_of_training_stands_first(offered: tuple[Offer, ...]) -> None:
    assert (offered[0].flow, offered[0].name, offered[0].trains) == ("train", "local", True)
    assert next(offer for offer in offered if offer.trains) is offered[0]


def test_each_shipped_profile_that_fits_is_a_preset(offered: tuple[Offer, ...]) -> None:
    presets = {offer.name: offer for offer in offered if offer.trains and offer.parameters}
    assert "local-demo" in presets
    assert presets["local-demo"].parameters == {"request": {"profile": "demo"}}
    assert "local-primus-mi300x" not in presets, "there are no such GPUs here"
    general = offered[0]
    assert all(offer.schema == general.schema and offer.tags == general.tags for offer in presets.values())


def test_the_form_names_the_shipped_profiles(offered: tuple[Offer, ...]) -> None:
    field = offered[0].schema["definitions"]["TrainRequest"]["properties"]["profile"]
    assert "demo" in field["examples"]
    assert "torchtitan-llama3-8b" in field["description"]


def test_only_flows_are_served() -> None:
    with pytest.raises(TypeError, match="is no flow"):
        flow_at("deployments.processes.offers.offers_of")
