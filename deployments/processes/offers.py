"""What a flow runner serves: the deployments of `prefect.yaml`, and one for every shipped profile that fits."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml
from prefect import Flow
from prefect.utilities.callables import parameter_schema

from profiles.cluster import ClusterProfile
from profiles.errors import ProfileError
from profiles.loading.load import list_profiles, load_run, resolve
from tasks.prefect.deployments import TRAIN, Offer, Timetable

LISTED = Path(__file__).parent.with_name("prefect.yaml")
NAME = "{{ $PRIMUS_DEPLOYMENT }}"
"""What stands in the file where a deployment's name goes: that of the cluster profile."""
BUILDS = "bootstrap"
"""Tag of deployments that make and compare the cluster itself."""


def offers_of(cluster: ClusterProfile) -> tuple[Offer, ...]:
    """What a flow runner of this cluster serves; the deployment for any training run stands first.

    A cluster without hosts of its own has nothing to be built.
    """
    entries = yaml.safe_load(LISTED.read_text())["deployments"]
    fitting = [entry for entry in entries if cluster.bootstrap is not None or BUILDS not in entry["tags"]]
    listed = [_offer(entry, cluster.name) for entry in fitting]
    general = next(offer for offer in listed if offer.trains)
    return (*listed, *presets(general, cluster))


def presets(general: Offer, cluster: ClusterProfile) -> tuple[Offer, ...]:
    """A deployment for each shipped run profile that this cluster can run, with the form filled in."""
    made: list[Offer] = []
    for name in _shipped():
        try:
            run = load_run(name)
            resolve(run, cluster)
        except ProfileError:
            continue  # it wants what this cluster does not have
        says = f"Train `{name}` on {cluster.name}: {run.description}\n\n{general.description}"
        filled = {"request": {"profile": name}}
        made.append(replace(general, name=f"{cluster.name}-{name}", description=says, parameters=filled))
    return tuple(made)


def _offer(entry: Mapping[str, Any], cluster: str) -> Offer:
    flow = flow_at(entry["entrypoint"])
    schema: dict[str, Any] = parameter_schema(flow.fn).model_dump(mode="json")
    tags = tuple(tag.replace(NAME, cluster) for tag in entry["tags"])
    if TRAIN in tags:
        _name_presets(schema)
    return Offer(
        flow=flow.name,
        name=entry["name"].replace(NAME, cluster),
        schema=schema,
        entrypoint=entry["entrypoint"],
        description=flow.description or "",
        version=version("primus-flows"),
        tags=tags,
        parameters=entry["parameters"],
        timetables=tuple(Timetable(**item) for item in entry.get("schedules", ())),
        alone="concurrency_limit" in entry,
    )


def flow_at(entrypoint: str) -> Flow[..., Any]:
    """The flow at a module path."""
    module, _, name = entrypoint.rpartition(".")
    found = getattr(importlib.import_module(module), name)
    if not isinstance(found, Flow):
        raise TypeError(f"{entrypoint} is no flow")
    return found  # pyright: ignore[reportUnknownVariableType] - flows carry their own types


def _name_presets(schema: dict[str, Any]) -> None:
    """The form names the shipped profiles."""
    field = schema["definitions"]["TrainRequest"]["properties"]["profile"]
    field["examples"] = _shipped()
    field["description"] = f"{field['description']} Shipped: {', '.join(_shipped())}."


def _shipped() -> list[str]:
    return [item.name for item in list_profiles() if item.kind == "run"]
