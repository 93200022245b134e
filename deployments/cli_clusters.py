"""`primus clusters …`; imported by `deployments.cli` for its registration."""

from __future__ import annotations

from typing import Annotated

import typer

from deployments.cli_options import Json, clusters_app


@clusters_app.command("list")
def clusters_list(
    folder: Annotated[str, typer.Argument(help="Folder with profiles of your own.")] = ".",
    as_json: Json = False,
) -> int:
    """The shipped cluster profiles and those of a folder: engine, pools, nodes, GPUs.

    Example: primus clusters list
    """
    from deployments.clusters_view import list_clusters

    return list_clusters(folder, as_json=as_json)


@clusters_app.command("show")
def clusters_show(
    name: Annotated[str, typer.Argument(help="Shipped cluster profile by name, or a path.")],
    as_json: Json = False,
) -> int:
    """The whole value of a cluster profile, its pools in a table before it.

    Example: primus clusters show kubernetes-example
    """
    from deployments.clusters_view import show_cluster

    return show_cluster(name, as_json=as_json)


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
    as_json: Json = False,
) -> int:
    """Make a cluster profile from a living cluster; nothing is written to the cluster.

    Comments say where each value came from; what is not known, or should be looked at, is marked with `!`.
    Exit code 0: the profile is whole; 1: something it needs is missing, and the rest is printed; 3: it could not be
    found out.

    Example: primus clusters import --context my-cluster --namespace training --out my-cluster.yaml
    """
    from deployments.clusters_view import ImportOptions, import_cluster

    return import_cluster(ImportOptions(context, namespace, name, tuple(storage or ()), out), as_json=as_json)
