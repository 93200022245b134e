"""`primus bootstrap`: from hosts with nothing but sshd to a cluster that has proven that it trains, and its upkeep."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml
from pydantic import ValidationError

from deployments.cli.app import All, AsJson, bootstrap_app, named, named_mode, named_nodes, render_app
from deployments.cli.approvals import who
from deployments.cli.clusters import MARK, write_new
from deployments.exit_codes import FAILED, GOOD, UNKNOWN, goes_on, out, out_json, say
from deployments.screen.tables import fitted, folded, terminal_columns
from profiles.bootstrap.request import BootstrapRequest
from profiles.errors import ProfileError
from profiles.loading.load import load_cluster
from tasks.settings import Settings, localised
from workflows.model.bootstrap import CLUSTER, Stage

if TYPE_CHECKING:
    from flows.building.work import BootstrapOutcome

Json = dict[str, Any]
CODES = {"done": GOOD, "failed": FAILED, "unknown": UNKNOWN}
"""How a bootstrap ended -> exit code."""
FLAGS = {"version": "--upgrade", "forced": "--force"}
"""Field of a request -> its flag, where that has another name."""
OPEN_STEPS = 12
"""So many steps that do not hold are told with their reason; --json has all."""


Cluster = Annotated[
    str, typer.Argument(metavar="CLUSTER", help="Cluster profile with a section `bootstrap`, by name or path.")
]
Hosts = Annotated[str, typer.Option("--hosts", metavar="A,B", help="Only these hosts.")]
Without = Annotated[str, typer.Option("--without", metavar="A,B", help="Leave these hosts out this time.")]
Join = Annotated[str, typer.Option("--join", metavar="A,B", help="Make these hosts nodes.")]
Leave = Annotated[str, typer.Option("--leave", metavar="A,B", help="Take these hosts out of the cluster.")]
Upgrade = Annotated[str, typer.Option("--upgrade", metavar="VERSION", help="Bring Kubernetes there.")]
Force = Annotated[
    list[str] | None,
    typer.Option("--force", metavar="CHECK=WHY", help="A pre-check that may fail, and why; may be repeated."),
]
Confirmed = Annotated[str, typer.Option("--confirmed", help="The cluster's name, where data is to go.")]
HowFar = Annotated[str, typer.Option("--mode", help="observe: only the plan; ask: a person approves it; act.")]
Check = Annotated[bool, typer.Option("--check", help="Say what would be done; write nothing.")]
Components = Annotated[bool, typer.Option("--components", help="Only what runs on the cluster.")]
Drift = Annotated[bool, typer.Option("--drift", help="In what hosts and cluster differ; read only.")]
Uninstall = Annotated[bool, typer.Option("--uninstall", help="Remove what was put on the cluster.")]
Dead = Annotated[bool, typer.Option("--dead", help="With --leave: the hosts do not answer.")]
WithData = Annotated[bool, typer.Option("--with-data", help="With --uninstall: volumes go too.")]
EXAMPLES = """Example: primus bootstrap ./made.yaml --check

Example: primus bootstrap ./made.yaml --join n4,n5

Example: primus bootstrap ./made.yaml --leave n2 --dead

Example: primus bootstrap ./made.yaml --upgrade 1.36.4

Example: primus bootstrap ./made.yaml --drift

Example: primus bootstrap ./made.yaml --components

Example: primus bootstrap ./made.yaml --uninstall"""


@bootstrap_app.command("CLUSTER", epilog=EXAMPLES)
def bootstrap_cluster(  # noqa: PLR0913, PLR0917 - each is a flag that was promised
    cluster: Cluster,
    hosts: Hosts = "",
    without: Without = "",
    join: Join = "",
    leave: Leave = "",
    upgrade: Upgrade = "",
    force: Force = None,
    confirmed: Confirmed = "",
    mode: HowFar = "",
    *,
    check: Check = False,
    components: Components = False,
    drift: Drift = False,
    uninstall: Uninstall = False,
    dead: Dead = False,
    with_data: WithData = False,
    every: All = False,
    as_json: AsJson = False,
) -> int:
    """Make a cluster of the profile's hosts, step by step, each proven; the same command again goes on where it was.

    Pre-checks come before the first change. A step whose proof holds is not done again. Exit code 0: all is proven;
    1: something failed; 3: of something nobody can tell, e.g. since a host does not answer.

    Example: primus bootstrap ./made.yaml
    """
    verbs = {"check": check, "join": join, "leave": leave, "upgrade": upgrade, "components": components}
    fields: Json = {
        "cluster": cluster,
        "verb": verb_of(verbs | {"drift": drift, "uninstall": uninstall}),
        "hosts": named_nodes(join or leave or hosts),
        "without": named(without, "--without"),
        "version": upgrade.removeprefix("v"),
        **{"dead": dead, "with_data": with_data, "confirmed": confirmed, "mode": named_mode(mode)},
        "forced": forced_checks(force or ()),
    }
    return run_request(request_of(fields), every=every, as_json=as_json)


@bootstrap_app.command("import")
def import_hosts(
    file: Annotated[str, typer.Argument(metavar="FILE", help="hosts.ini or hosts.yaml of Kubespray or Ansible.")],
    name: Annotated[str, typer.Option("--name", help="Name of the cluster; else that of the file's folder.")] = "",
    out_file: Annotated[str, typer.Option("--out", help="Write the profile to this new file.")] = "",
    *,
    as_json: AsJson = False,
) -> int:
    """Make a cluster profile of an inventory of Kubespray or Ansible; or name all that is wrong with it at once.

    Host and group variables beside the file are read as Ansible reads them. Exit code 0: the profile is whole; 1:
    something in the inventory is wrong.

    Example: primus bootstrap import inventory/mycluster/hosts.ini --out mycluster.yaml
    """
    from flows.import_inventory import import_inventory

    found = import_inventory(Path(file).expanduser(), name)
    lines = [f"{MARK if one.wrong else 'look at'} {one.where}: {one.what}" for one in found.findings]
    if found.profile_text and out_file:
        write_new(Path(out_file), found.profile_text)
    if as_json:
        out_json({"profile": found.profile_text or None, "findings": [asdict(one) for one in found.findings]})
        return GOOD if found.profile_text else FAILED
    for line in lines:
        say(line)
    if found.profile_text and out_file:
        named_file = shlex.quote(out_file if "/" in out_file else f"./{out_file}")
        say(f"written: {out_file}; look it over, then: primus bootstrap {named_file} --check")
    elif found.profile_text:
        out(found.profile_text)
    return GOOD if found.profile_text else FAILED


@bootstrap_app.command("mirror")
def bootstrap_mirror(
    cluster: Cluster,
    fill: Annotated[str, typer.Option("--fill", metavar="DIR", help="Put all files there.")] = "",
    at_hand: Annotated[
        list[str] | None, typer.Option("--from", metavar="DIR", help="With --fill: a folder at hand; may be repeated.")
    ] = None,
    *,
    list_all: Annotated[bool, typer.Option("--list", help="What must be there, with digests.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Ask the mirror for everything, by digest.")] = False,
    as_json: AsJson = False,
) -> int:
    """What the mirror of a site without a way out must have: listed, filled from what is at hand, and asked for.

    Exit code 0: all is there; 1: something is missing or another one; 3: of something nobody can tell.

    Example: primus bootstrap mirror ./made.yaml --list

    Example: primus bootstrap mirror ./made.yaml --fill ./mirror --from ./downloads

    Example: primus bootstrap mirror ./made.yaml --check
    """
    from deployments.screen import mirror

    if [bool(fill), list_all, check].count(True) != 1:
        raise ProfileError("--list", "say one of --list, --fill DIR and --check")
    settings = Settings.from_environment(os.environ)
    profile = localised(load_cluster(cluster), settings.home)
    if fill:
        return mirror.fill(profile, fill, at_hand or (), as_json=as_json)
    return mirror.check(profile, as_json=as_json) if check else mirror.list_mirror(profile, as_json=as_json)


@render_app.command("bootstrap")
def print_bootstrap(
    cluster: Cluster,
    *,
    as_json: AsJson = False,
) -> int:
    """The plan of a bootstrap and the workflow of its components; touches nothing and asks nobody.

    Example: primus render bootstrap ./made.yaml
    """
    from flows.building.rendered import rendered_bootstrap

    settings = Settings.from_environment(os.environ)
    documents = rendered_bootstrap(localised(load_cluster(cluster), settings.home))
    out_json(documents) if as_json else out(yaml.safe_dump_all(documents, sort_keys=False, width=120))
    return GOOD


def verb_of(asked: Mapping[str, object]) -> str:
    """The one verb that was asked for; `build` where none was.

    Raises:
        ProfileError: several at once.
    """
    words = [name for name, value in asked.items() if value]
    if len(words) > 1:
        raise ProfileError(f"--{words[1]}", f"cannot be said together with --{words[0]}: one thing at a time")
    return words[0] if words else "build"


def forced_checks(words: Sequence[str]) -> dict[str, str]:
    """The pre-checks of `--force CHECK=WHY`.

    Raises:
        ProfileError: no reason is given.
    """
    found: dict[str, str] = {}
    for word in words:
        check, equals, why = word.partition("=")
        if not equals or not why.strip():
            raise ProfileError("--force", f"say why, e.g. --force {check or 'swap'}='the site needs it'")
        found[check] = why.strip()
    return found


def request_of(fields: Json) -> BootstrapRequest:
    """The request.

    Raises:
        ProfileError: what does not fit together, by its flag.
    """
    try:
        return BootstrapRequest(**fields)
    except ValidationError as error:
        first = error.errors()[0]
        place = str(first.get("ctx", {}).get("field") or first["loc"][0])
        said = str(first["msg"])
        if place == "version" and first["type"] == "string_pattern_mismatch":
            said = f"{fields['version']} is no version of Kubernetes: write it as 1.36.4"
        raise ProfileError(FLAGS.get(place, f"--{place.replace('_', '-')}"), said) from error


def run_request(request: BootstrapRequest, *, every: bool, as_json: bool) -> int:
    """Carry the request through in this process, and show how it ended.

    Raises:
        ProfileError: the profile is wrong, or has no hosts.
        Conflict: another process builds this cluster.
    """
    settings = Settings.from_environment(os.environ)
    profile = localised(load_cluster(request.cluster or settings.cluster), settings.home)
    if profile.bootstrap is None:
        raise ProfileError("bootstrap", "the cluster profile has no such section: docs/bootstrap.md shows one")
    settings.make_home()
    os.environ.setdefault("DO_NOT_TRACK", "1")  # read when Prefect is imported, which otherwise talks of itself
    from flows.bootstrap import carry_through, keep_page  # Prefect, which takes seconds
    from tasks.context import at_hand

    goes_on("stopped; what was begun on hosts ends by itself; the same command goes on where it was")
    with at_hand(settings):
        outcome = carry_through(profile, request, say, by=who())
        if outcome.steps:
            say(f"a page with the time line: {keep_page(outcome)}")
    out_json(document_of(outcome)) if as_json else out(text_of(outcome, terminal_columns(), every=every))
    return CODES[outcome.word]


def document_of(outcome: BootstrapOutcome) -> Json:
    """What `--json` prints."""
    return {
        "cluster": outcome.cluster,
        "verb": outcome.verb,
        "word": outcome.word,
        "why": outcome.why,
        "notes": outcome.notes,
        "table": outcome.table,
        "steps": [
            {"id": item.id, "summary": item.summary, "word": item.word, "why": item.why, "seconds": item.seconds}
            for item in outcome.steps
        ],
    }


def text_of(outcome: BootstrapOutcome, columns: int, *, every: bool) -> str:
    """Hosts by stages, what does not hold, and the last word."""
    stages = list(dict.fromkeys(stage for row in outcome.table.values() for stage in row))
    rows: list[Json] = [{"host": subject, **row} for subject, row in outcome.table.items()]
    shown, more = folded(rows, lambda row: set(row.values()) <= {row["host"], "pass"}, every=every)
    lines = [fitted(shown, ["host", *stages], columns, giving="host", dropped=stages)] if shown else []
    lines += [f"{more} more hold: --all shows them"] if more else []
    of_hosts = tuple(f"{Stage.PRECHECKS}/{subject}" for subject in outcome.table if subject != CLUSTER)
    told = [step for step in outcome.steps if step.word != "pass" and step.id not in of_hosts]
    open_steps = [f"{step.id}: {step.word}: {step.why}" for step in told]
    return "\n".join([*lines, *outcome.notes, *open_steps[:OPEN_STEPS], outcome.why])
