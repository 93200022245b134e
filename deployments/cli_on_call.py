"""What a person on call types; imported by `deployments.cli` for its registration."""

from __future__ import annotations

from typing import Annotated

import typer

from deployments.cli_options import Cluster, Json, Run, Since, Why, app

Limit = Annotated[int, typer.Option("--limit", help="At most so many, the newest; 0: all.")]


@app.command()
def incidents(
    run: Annotated[str, typer.Option("--run", help="Only this run, with everything that is known.")] = "",
    since: Since = "",
    fault_class: Annotated[str, typer.Option("--class", help="Only this class, e.g. node_lost.")] = "",
    open_only: Annotated[bool, typer.Option("--open", help="Only what is not over yet.")] = False,
    limit: Limit = 50,
    as_json: Json = False,
) -> int:
    """What happened over all runs, the newest last: class, who is to blame, what we did, why, how long it took.

    Example: primus incidents --since 12h --open
    """
    from deployments.incidents import list_incidents
    from workflows.overview import IncidentQuery

    query = IncidentQuery(run=run, fault_class=fault_class, open_only=open_only, limit=limit)
    return list_incidents(query, since, as_json=as_json)


Only = Annotated[
    list[str] | None,
    typer.Option("--only", help="state=, verdict=, pool=, rack= or node=VALUE[,VALUE], * for any text; repeatable."),
]


@app.command()
def fleet(
    by: Annotated[str, typer.Option("--by", metavar="rack|pool|verdict|state", help="What stands together.")] = "rack",
    only: Only = None,
    cluster: Cluster = "",
    as_json: Json = False,
) -> int:
    """Every node on one screen: a cell a node, how many are in service, and why the others are not.

    Exit code 3: the cluster does not answer, and what is shown is what the ledger knows.

    Example: primus fleet --only state=quarantined,cordoned
    """
    from deployments.fleet import show_fleet

    return show_fleet(cluster, by, tuple(only or ()), as_json=as_json)


Drift = Annotated[bool, typer.Option("--drift", help="In what nodes of a pool differ from most others.")]


@app.command()
def nodes(
    words: Annotated[list[str] | None, typer.Argument(metavar="[NODE | cordon NODE | release NODE]")] = None,
    why: Why = "",
    only: Only = None,
    drift: Drift = False,
    cluster: Cluster = "",
    as_json: Json = False,
) -> int:
    """Each node with its verdict, or everything about one; take one out of service, or give it back.

    `cordon` keeps new pods away, what runs there goes on; `release` takes back what we set, nothing else. Both want
    --why. --drift tells in what nodes of a pool differ: kernel, driver, firmware, libraries, clocks. Exit code 3: the
    cluster does not answer, and what is shown is what the ledger knows.

    Example: primus nodes cordon node-3 --why "fan is loud"
    """
    if drift:
        from deployments.drift import show_drift

        return show_drift(cluster, as_json=as_json)
    from deployments.nodes import show_nodes

    return show_nodes(tuple(words or ()), why, cluster, tuple(only or ()), as_json=as_json)


@app.command()
def verdict(
    node: Annotated[str, typer.Argument(help="Name of the node.")], cluster: Cluster = "", as_json: Json = False
) -> int:
    """What is to be believed of a node now, by which test, with its evidence.

    Exit code 0: it is proven; 1: a failure stands; 3: nobody knows.

    Example: primus verdict node-3
    """
    from deployments.verdicts import show_verdict

    return show_verdict(node, cluster, as_json=as_json)


@app.command()
def failover(run: Run) -> int:
    """Diagnose and decide the open incident of a run that nobody drives; a driver that lives does that by itself.

    Exit code 0: it was decided, or there is nothing to decide; 2: a driver lives.

    Example: primus failover demo-1
    """
    from deployments.failover import recover_by_hand

    return recover_by_hand(run)
