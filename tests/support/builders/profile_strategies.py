"""Hypothesis strategies for every profile model, made from the models' own fields."""

from __future__ import annotations

from enum import Enum
from functools import cache
from typing import Any, Literal, get_args, get_origin

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from profiles.bootstrap.engines import SAID_BY_FIELDS, Kubespray
from profiles.bootstrap.inventory import API_PORT, ApiEndpoint, Bootstrap, ClusterHost, Mirror, Networks
from profiles.cluster import ClusterProfile, Pool, Storage
from profiles.fields import is_optional
from profiles.hardware import HardwareProfile, Peak
from profiles.run import CheckpointPolicy, ProgressSource, RunProfile
from profiles.values import (
    COMMIT_PATTERN,
    CONDITION_PATTERN,
    DOMAIN_PATTERN,
    ENVIRONMENT_NAME_PATTERN,
    HOST_PATTERN,
    IMAGE_DIGEST_PATTERN,
    JUMP_PATTERN,
    KUBERNETES_PATTERN,
    LOGIN_PATTERN,
    NAME_PATTERN,
    NETWORK_PATTERN,
    OR_EMPTY,
    PROGRAM_PATTERN,
    QUANTITY_PATTERN,
    REGISTRY_PATTERN,
    SHA256_PATTERN,
    STORAGE_CLASS_PATTERN,
    SYSCTL_PATTERN,
    TAINT_PATTERN,
)
from profiles.workspace import Flavor, Quota, WorkspaceProfile

TEXT = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=12),
    st.sampled_from(
        ["yes", "1e3", "null", "~", "0x1f", "1:30", "a: b", "# c", "- d", "{steps}", "'", '"', "\n", "!t", "&a"]
    ),
)
BY_PATTERN: dict[str, SearchStrategy[str]] = {
    NAME_PATTERN: st.from_regex(r"[a-z]([-a-z0-9]{0,6}[a-z0-9])?", fullmatch=True),
    QUANTITY_PATTERN: st.from_regex(r"[1-9][0-9]{0,2}(\.[0-9])?(m|k|Mi|Gi|Ti)?", fullmatch=True),
    CONDITION_PATTERN: st.from_regex(r"[A-Z*][A-Za-z]{0,6}[a-z*]", fullmatch=True),
    STORAGE_CLASS_PATTERN: st.from_regex(r"([a-z]([a-z0-9.-]{0,6}[a-z0-9])?)?", fullmatch=True),
    TAINT_PATTERN: st.from_regex(r"[a-z./]{1,6}(=[a-z]{0,3})?:(NoSchedule|PreferNoSchedule|NoExecute)", fullmatch=True),
    HOST_PATTERN: st.from_regex(r"[a-z]([a-z0-9.:-]{0,6}[a-z0-9])?", fullmatch=True),
    ENVIRONMENT_NAME_PATTERN: st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,6}", fullmatch=True),
    NETWORK_PATTERN: st.sampled_from(["10.244.0.0/16", "10.96.0.0/16", "172.16.0.0/12"]),
    DOMAIN_PATTERN: st.from_regex(r"[a-z]{1,6}(\.[a-z]{1,6})?", fullmatch=True),
    LOGIN_PATTERN: st.from_regex(r"[a-z][a-z0-9_.-]{0,6}", fullmatch=True),
    JUMP_PATTERN: st.from_regex(r"([a-z]{1,6}@)?[a-z]{1,6}(:[1-9][0-9]{1,3})?", fullmatch=True),
    PROGRAM_PATTERN: st.from_regex(r"/?[a-z][a-z0-9._/+-]{0,6}", fullmatch=True),
    REGISTRY_PATTERN: st.from_regex(r"[a-z]{1,6}(:[1-9][0-9]{1,3})?(/[a-z]{1,6})?", fullmatch=True),
    r"^[!-~]+( [!-~]+)*$": st.from_regex(r"[0-9a-z]{1,6}", fullmatch=True),
    r"^[a-z][a-z0-9-]*$": st.from_regex(r"[a-z][a-z0-9-]{0,6}", fullmatch=True),
    r"^[!-~]*( [!-~]+)*$": st.from_regex(r"[0-9a-z]{1,6}", fullmatch=True),
    r"^[^-\s]\S*$": st.from_regex(r"[a-z:/]{1,8}", fullmatch=True),
    SYSCTL_PATTERN: st.from_regex(r"[a-z_]{1,6}\.[a-z_]{1,6}", fullmatch=True),
    KUBERNETES_PATTERN: st.from_regex(r"1\.3[0-9]\.[0-9]", fullmatch=True),
    COMMIT_PATTERN: st.from_regex(r"[0-9a-f]{40}", fullmatch=True),
    SHA256_PATTERN: st.from_regex(r"[0-9a-f]{64}", fullmatch=True),
    IMAGE_DIGEST_PATTERN: st.from_regex(r"sha256:[0-9a-f]{64}", fullmatch=True),
}


@cache
def values(model: type[BaseModel]) -> SearchStrategy[Any]:
    """Values of `model` that satisfy its validators; fields are left at their defaults now and then."""
    required = {name: _field(info) for name, info in model.model_fields.items() if info.is_required()}
    optional = {name: _field(info) for name, info in model.model_fields.items() if not info.is_required()}
    data = st.fixed_dictionaries(required, optional=optional).map(_REPAIRS.get(model, _unchanged))
    return data.map(lambda item: _made(model, item)).filter(lambda value: value is not None)


def _made(model: type[BaseModel], data: dict[str, Any]) -> BaseModel | None:
    try:
        return model(**data)
    except ValidationError:
        return None


def _field(info: FieldInfo) -> SearchStrategy[Any]:
    return _strategy(info.annotation, info.metadata)


def _strategy(annotation: Any, metadata: Any = ()) -> SearchStrategy[Any]:
    if getattr(annotation, "__metadata__", None):
        return _strategy(get_args(annotation)[0], [*metadata, *_flat(annotation.__metadata__)])
    if is_optional(annotation):
        return st.none() | _strategy(next(arg for arg in get_args(annotation) if arg is not type(None)), metadata)
    if isinstance(annotation, type) and get_origin(annotation) is None:
        return _leaf(annotation, metadata)
    return _container(get_origin(annotation), get_args(annotation), metadata)


def _container(origin: Any, arguments: tuple[Any, ...], metadata: Any) -> SearchStrategy[Any]:
    least = 1 if any(getattr(item, "min_length", 0) for item in metadata) else 0
    if origin is tuple:
        return st.lists(_strategy(arguments[0]), min_size=least, max_size=3).map(tuple)
    if origin is dict:
        return st.dictionaries(_strategy(arguments[0]), _strategy(arguments[1]), min_size=least, max_size=2)
    if origin is Literal:
        return st.sampled_from(arguments)
    return st.one_of(*(_strategy(item) for item in arguments))


def _leaf(kind: type[Any], metadata: Any) -> SearchStrategy[Any]:
    if issubclass(kind, BaseModel):
        return st.deferred(lambda: values(kind))
    if issubclass(kind, Enum):
        return st.sampled_from(list(kind))
    if kind is bool:
        return st.booleans()
    if kind is int:
        least = _bound(metadata, 1, -5)
        return st.integers(least, min([40, *(item.le for item in metadata if getattr(item, "le", None) is not None)]))
    if kind is float:
        top = 1.0 if any(getattr(item, "le", None) == 1 for item in metadata) else 1e12
        return st.floats(_bound(metadata, 1e-9, 0.0), top, allow_nan=False)
    patterns = [item.pattern for item in metadata if getattr(item, "pattern", None)]
    return BY_PATTERN[patterns[0].removesuffix(OR_EMPTY)] if patterns else TEXT


def _flat(metadata: Any) -> list[Any]:
    return [part for item in metadata for part in (item.metadata if isinstance(item, FieldInfo) else [item])]


def _bound(metadata: Any, step: float, otherwise: float) -> Any:
    for item in metadata:
        if getattr(item, "ge", None) is not None:
            return item.ge
        if getattr(item, "gt", None) is not None:
            return item.gt + step
    return otherwise


def _unique(items: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple({item.name: item for item in items}.values())


def _pool(data: dict[str, Any]) -> dict[str, Any]:
    return data | {
        "spares": min(data.get("spares", 0), data["nodes"] - 1),
        "taints": ("a/b=c:NoSchedule", "d:NoExecute"),
    }


def _storage(data: dict[str, Any]) -> dict[str, Any]:
    return data | {"mount_path": "/" + data["mount_path"].strip("/") + "m", "source": "/" + data["source"]}


def _cluster(data: dict[str, Any]) -> dict[str, Any]:
    shared = data.get("storage") or (Storage(kind="claim", source="shared", mount_path="/mnt"),)
    return _hosts_in_pools(
        data
        | {
            "pools": _unique(data["pools"]),
            "storage": tuple({item.mount_path: item for item in shared}.values()),
        }
    )


def _hosts_in_pools(data: dict[str, Any]) -> dict[str, Any]:
    """Pools with as many nodes as hosts work there; where there are hosts, it is a cluster of Kubernetes."""
    bootstrap: Bootstrap | None = data.get("bootstrap")
    if bootstrap is None:
        return data
    first, *others = data["pools"]
    working = sum(host.works for host in bootstrap.hosts.values())
    nodes = max(working, first.spares + 1)
    hosts = {name: host.model_copy(update={"pool": first.name}) for name, host in bootstrap.hosts.items()}
    fitting = first.model_copy(update={"nodes": nodes, "spares": min(first.spares, max(working - 1, 0))})
    return data | {
        "engine": "kubernetes",
        "bootstrap": bootstrap.model_copy(update={"hosts": hosts}),
        "pools": (fitting.model_copy(update={"nodes": working}) if working else first, *others),
    }


def _host(data: dict[str, Any]) -> dict[str, Any]:
    return data | {"labels": {"a.org/b": "c"}, "taints": ("a/b=c:NoSchedule",), "rack": "", "block": ""}


def _bootstrap(data: dict[str, Any]) -> dict[str, Any]:
    """Hosts with addresses of their own and an odd number of control planes, which an endpoint outlives."""
    hosts: dict[str, ClusterHost] = data.get("hosts") or {"n": ClusterHost(address="n")}
    placed = {
        name: host.model_copy(
            update={"address": f"n{place}", "node_ip": f"192.0.2.{place + 11}", "role": host.role if place else "both"}
        )
        for place, (name, host) in enumerate(hosts.items())
    }
    planes = [name for name, host in placed.items() if host.controls]
    if len(planes) % 2 == 0:
        placed[planes[-1]] = placed[planes[-1]].model_copy(update={"role": "worker"})
    endpoint = data.get("endpoint") or ApiEndpoint(address="192.0.2.10")
    return data | {"hosts": placed, "endpoint": endpoint}


def _endpoint(data: dict[str, Any]) -> dict[str, Any]:
    virtual = {"address": "192.0.2.10", "port": API_PORT}
    return data | (virtual if data.get("kind", "virtual") == "virtual" else {"address": "balancer"})


def _networks(data: dict[str, Any]) -> dict[str, Any]:
    """Two networks that do not meet."""
    return data | {
        "pods": "10.244.0.0/16",
        "services": data.get("services", "10.96.0.0/16").replace("10.244.", "10.245."),
    }


def _mirror(data: dict[str, Any]) -> dict[str, Any]:
    url = f"https://mirror.example.org/{data.get('files_url', '')}"
    files = {"files_url": url, "files_folder": ""} if data.get("files_url") else {"ca_file": ""}
    return data | files | {"registry_insecure": bool(data.get("registry"))}


def _kubespray(data: dict[str, Any]) -> dict[str, Any]:
    variables = {name: value for name, value in data.get("variables", {}).items() if name not in SAID_BY_FIELDS}
    return data | {"environment": f"/opt/{data.get('environment', '')}", "variables": variables}


def _hardware(data: dict[str, Any]) -> dict[str, Any]:
    resource = {"amd": "amd.com/gpu", "nvidia": "nvidia.com/gpu", "none": ""}[data["vendor"]]
    peaks: tuple[Peak, ...] = data.get("peaks", ())
    gpus = 0 if data["vendor"] == "none" else data["gpus_per_node"] + 1
    unique = tuple({peak.quantity: peak for peak in peaks}.values())
    return data | {"resource_name": resource, "gpus_per_node": gpus, "peaks": unique}


def _checkpoint(data: dict[str, Any]) -> dict[str, Any]:
    return data | {"pattern": r"model-(?P<step>\d+)\.pt" if data.get("format") == "pattern" else ""}


def _progress(data: dict[str, Any]) -> dict[str, Any]:
    framework = data.get("framework")
    pattern = r"step (?P<step>\d+): 'x' \| \"y\"" if framework == "regex" else ""
    return data | {"pattern": pattern, "file": data.get("file", "") or "out" if framework == "file" else ""}


def _run(data: dict[str, Any]) -> dict[str, Any]:
    roles = [role for role in _unique(data["roles"]) if role.name != "coordinator"]
    return data | {"roles": tuple(role.model_copy(update={"decides": place == 0}) for place, role in enumerate(roles))}


def _unchanged(data: dict[str, Any]) -> dict[str, Any]:
    return data


def _flavor(data: dict[str, Any]) -> dict[str, Any]:
    return data | {
        "taints": ("a.org/b=c:NoSchedule",) if data.get("taints") else (),
        "quotas": {"cpu": Quota(nominal="8")},
    }


def _workspace(data: dict[str, Any]) -> dict[str, Any]:
    return data | {"flavors": tuple({item.name: item for item in data["flavors"]}.values())}


_REPAIRS: dict[type[BaseModel], Any] = {
    Pool: _pool,
    Storage: _storage,
    ClusterProfile: _cluster,
    Bootstrap: _bootstrap,
    ClusterHost: _host,
    ApiEndpoint: _endpoint,
    Networks: _networks,
    Mirror: _mirror,
    Kubespray: _kubespray,
    HardwareProfile: _hardware,
    CheckpointPolicy: _checkpoint,
    ProgressSource: _progress,
    RunProfile: _run,
    Flavor: _flavor,
    WorkspaceProfile: _workspace,
}
"""What turns random fields into ones that agree with each other."""
