"""`primus clusters`: the cluster profiles there are, and a new one made from a living cluster, with comments."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import Annotated, Any, cast

import typer

from deployments.cli.app import AsJson, clusters_app
from deployments.exit_codes import FAILED, GOOD, UNKNOWN, out, out_json, say
from deployments.screen.tables import table
from flows.decisions.cluster_import.profile import NOT_SAID, ClusterImport, imported
from profiles.cluster import ClusterProfile, Pool
from profiles.errors import ProfileError
from profiles.hardware import HardwareProfile
from profiles.loading import load
from profiles.loading.document import MAX_BYTES, read_mapping, write

Json = dict[str, Any]

WIDTH = 118
MARK = "!"
"""Stands before what a person should look at."""


@clusters_app.command("list")
def list_clusters(
    folder: Annotated[str, typer.Argument(help="Folder with profiles of your own.")] = ".",
    *,
    as_json: AsJson = False,
) -> int:
    """The shipped cluster profiles and those of a folder: engine, pools, nodes, GPUs.

    Example: primus clusters list
    """
    shipped = [item for item in load.list_profiles() if item.kind == "cluster"]
    rows = [_row(item.name, "shipped", load.load_cluster(item.name)) for item in shipped]
    if not Path(folder).is_dir():
        raise ProfileError("FOLDER", f"{folder} is no folder: name one with profiles of yours, or none")
    rows += [_own_row(path) for path in _own(Path(folder))]
    if as_json:
        out_json(rows)
    else:
        out(table(rows, ("name", "engine", "pools", "nodes", "gpus", "where", "description")))
    return GOOD


@clusters_app.command("show")
def show_cluster(
    name: Annotated[str, typer.Argument(help="Shipped cluster profile by name, or a path.")],
    *,
    as_json: AsJson = False,
) -> int:
    """The whole value of a cluster profile, its pools in a table before it.

    Example: primus clusters show kubernetes-example
    """
    profile = load.load_cluster(name)
    if as_json:
        out_json(profile.model_dump(mode="json"))
        return GOOD
    rows = [
        {
            "pool": pool.name,
            "hardware": pool.hardware,
            "nodes": pool.nodes,
            "spares": pool.spares,
            "gpus": _gpus(pool),
            "cpus": pool.cpus_per_node or _hardware(pool).cpus_per_node,
            "memory": pool.memory_per_node or _hardware(pool).memory_per_node,
            "flavor": pool.queue_flavor or None,
            "labels": ", ".join(f"{key}={value}" for key, value in pool.labels.items()),
        }
        for pool in profile.pools
    ]
    columns = ("pool", "hardware", "nodes", "spares", "gpus", "cpus", "memory", "flavor", "labels")
    out("\n".join([*(f"# {line}" for line in table(rows, columns).splitlines()), load.dump(profile)]))
    return GOOD


@clusters_app.command("import")
def clusters_import(
    context: Annotated[str, typer.Option("--context", help="Context of the kubeconfig; empty: the current one.")] = "",
    namespace: Annotated[
        str, typer.Option("--namespace", help="Where runs are to live; empty: the context's namespace.")
    ] = "",
    name: Annotated[str, typer.Option("--name", help="Name of the profile; empty: the context's.")] = "",
    storage: Annotated[
        list[str] | None,
        typer.Option("--storage", help="A shared folder: CLAIM or /PATH, with or without :MOUNT; may be repeated."),
    ] = None,
    out: Annotated[str, typer.Option("--out", help="Write the profile to this new file.")] = "",
    as_json: AsJson = False,
) -> int:
    """Make a cluster profile from a living cluster; nothing is written to the cluster.

    Comments say where each value came from; what is not known, or should be looked at, is marked with `!`.
    Exit code 0: the profile is whole; 1: something it needs is missing, and the rest is printed; 3: it could not be
    found out.

    Example: primus clusters import --context my-cluster --namespace training --out my-cluster.yaml
    """
    return import_cluster(ImportOptions(context, namespace, name, tuple(storage or ()), out), as_json=as_json)


@dataclass(frozen=True)
class ImportOptions:
    """What was asked for."""

    context: str
    """Of the kubeconfig; "" for the current one."""
    namespace: str
    """"" for the context's."""
    name: str
    """Of the profile; "" for the context's."""
    storage: tuple[str, ...]
    """Shared folders that a person named."""
    out: str
    """File to write; "": standard output."""


def _own(folder: Path) -> list[Path]:
    """Files that say `engine` or `pools`: only cluster profiles do."""
    return [path for path in sorted((*folder.glob("*.yaml"), *folder.glob("*.yml"))) if _is_cluster(path)]


def _is_cluster(path: Path) -> bool:
    try:
        if not path.is_file() or path.stat().st_size > MAX_BYTES:
            return False
        return not {"engine", "pools"}.isdisjoint(read_mapping(path.read_bytes(), str(path)).data)
    except (OSError, ProfileError):
        return False


def _own_row(path: Path) -> Json:
    where = str(path) if path.is_absolute() else f"./{path}"
    try:
        return _row(path.stem, where, load.load_cluster(where))
    except ProfileError as error:
        nothing = dict.fromkeys(("engine", "pools", "nodes", "gpus"))
        return {"name": path.stem, **nothing, "where": where, "description": f"wrong: {error.field}: {error.reason}"}


def _row(name: str, where: str, profile: ClusterProfile) -> Json:
    return {
        "name": name,
        "engine": profile.engine,
        "pools": ", ".join(f"{pool.name} ({pool.hardware} x {pool.nodes})" for pool in profile.pools),
        "nodes": sum(pool.nodes for pool in profile.pools),
        "gpus": sum(_gpus(pool) for pool in profile.pools),
        "where": where,
        "description": profile.description,
    }


def _gpus(pool: Pool) -> int:
    return pool.nodes * _hardware(pool).gpus_per_node


def _hardware(pool: Pool) -> HardwareProfile:
    try:
        return load.load_hardware(pool.hardware)
    except ProfileError as error:
        raise ProfileError(f"pools.{pool.name}.hardware", error.reason) from error


def import_cluster(options: ImportOptions, *, as_json: bool) -> int:
    """Look at a living cluster and print a profile of it; nothing is written to the cluster.

    Returns:
        0: the profile is whole; 1: something is missing, which is said; 3: the cluster would not tell it.

    Raises:
        ProfileError: no such context, a file that exists, or a storage that means nothing.
        Unavailable: the cluster does not answer.
    """
    from tasks.kubernetes.configuration import context_of
    from tasks.observe.inventory import open_living_cluster, take_inventory

    if options.out and Path(options.out).exists():
        raise ProfileError("--out", f"{options.out} exists and may hold changes of yours; name another file")
    context, namespace = context_of(options.context)
    namespace = options.namespace or namespace
    found = imported(
        take_inventory(open_living_cluster(context, namespace), context, namespace),
        options.name,
        {item.name: load.load_hardware(item.name) for item in load.list_profiles() if item.kind == "hardware"},
        options.storage,
    )
    if options.out:
        write_new(Path(options.out), text(found))
    if as_json:
        out_json(document(found))
    elif not options.out:
        out(text(found))
    _tell(found, options.out)
    if found.profile is not None:
        return GOOD
    return UNKNOWN if found.unknown else FAILED


def write_new(path: Path, content: str) -> None:
    """Write a profile to a file that is not there yet.

    Raises:
        ProfileError: it is there, or cannot be written.
    """
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(content)
    except OSError as error:
        raise ProfileError("--out", f"cannot write {path}: {error.strerror}") from error


def _tell(found: ClusterImport, path: str) -> None:
    """Print on standard error what a person should know about the imported profile."""
    if path:
        for field, remark in found.remarks:
            say(f"look at {field}: {remark}")
        named = shlex.quote(path if "/" in path else f"./{path}")
        say(f"written: {path}; try it with primus train PROFILE --cluster {named} --dry-run")
    elif found.remarks:
        say(f"to look at: {len(found.remarks)}, marked with {MARK} in the comments")
    if found.problem:
        say(f"primus: this is no whole profile yet: {found.problem}")


def document(found: ClusterImport) -> Json:
    """The document of `primus clusters import --json`."""
    return {
        "profile": found.fields,
        "whole": found.profile is not None,
        "why": found.problem,
        "sources": dict(found.sources),
        "remarks": [{"field": field, "text": remark} for field, remark in found.remarks],
        "left_out": [{"node": node, "why": why} for node, why in found.left_out],
    }


def text(found: ClusterImport) -> str:
    """The profile as YAML, with where each value came from and what to look at before each field."""
    lines = [*_comment("Made from a living cluster by `primus clusters import`. Look it over before you use it.")]
    if found.problem:
        lines += _comment(f"{MARK} This is no whole profile yet; what is missing stands where it belongs.")
    fields = {*found.fields, *(field for field, _ in found.remarks)}
    for field in (field for field in ClusterProfile.model_fields if field in fields):
        lines += _comments(found, field, "")
        value = found.fields.get(field)
        if field in ("pools", "storage") and value:
            lines.append(f"{field}:")
            for index, item in enumerate(cast("Sequence[Json]", value)):
                lines += _item(found, f"{field}[{index}]", item)
        elif field in found.fields:
            lines += write({field: value}).splitlines()
    lines += _comment(f"No object of a cluster says these, so they keep their defaults: {', '.join(NOT_SAID)}.")
    return "\n".join(lines) + "\n"


def _item(found: ClusterImport, at: str, item: Json) -> Iterator[str]:
    """One pool or folder: its own comments, then each field behind the comments of the field."""
    yield from _comments(found, at, "  ")
    first = True
    fields = {field.removeprefix(f"{at}.") for field, _ in found.remarks if field.startswith(f"{at}.")}
    for field in dict.fromkeys((*item, *sorted(fields))):
        comments = _comments(found, f"{at}.{field}", "    ")
        yield from comments
        if field not in item:
            continue
        for line in write({field: item[field]}).splitlines():
            yield f"{'  - ' if first else '    '}{line}"
            first = False


def _comments(found: ClusterImport, at: str, indent: str) -> list[str]:
    source = _comment(found.sources[at], indent) if at in found.sources else []
    remarks = [_comment(f"{MARK} {at}: {remark}", indent) for field, remark in found.remarks if field == at]
    return [*source, *(line for part in remarks for line in part)]


def _comment(words: str, indent: str = "") -> list[str]:
    """Comment lines; whatever the words hold, they stay a comment."""
    lead = f"{indent}# "
    return [
        f"{lead}{line}"
        for line in wrap(" ".join(words.split()), WIDTH - len(lead), break_on_hyphens=False, break_long_words=False)
    ]
