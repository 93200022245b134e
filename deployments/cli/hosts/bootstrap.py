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

from deployments.cli.app import (
    BOOTSTRAP_EXAMPLES,
    All,
    AsJson,
    bootstrap_app,
    named_mode,
    named_nodes,
    render_app,
)
from deployments.cli.approvals import who
from deployments.cli.clusters import MARK, write_new
from deployments.exit_codes import FAILED, GOOD, UNKNOWN, goes_on, out, out_json, say
from deployments.screen.tables import cut, fitted, folded, terminal_columns
from flows.decisions.bootstrap.summary import Table, alike, open_steps, parts_of, stages_of
from flows.decisions.text import first_names
from profiles.bootstrap.request import BootstrapRequest
from profiles.errors import ProfileError
from profiles.loading.load import load_cluster
from tasks.settings import Settings, localised
from workflows.model.bootstrap import CLUSTER, Stage, StepOutcome

if TYPE_CHECKING:
    from flows.building.work import BootstrapOutcome

Json = dict[str, Any]
CODES = {"done": GOOD, "failed": FAILED, "unknown": UNKNOWN}
"""How a bootstrap ended -> exit code."""
FLAGS = {"version": "--upgrade", "forced": "--force"}
"""Field of a request -> its flag, where that has another name."""
OPEN_STEPS = 12
"""So many steps that do not hold are told with their reason; --json has all."""
ONE_BY_ONE = 24
"""Up to so many hosts that do not hold have a line of their own."""
NOTES = 60
"""So many lines of what was found are shown on a terminal; elsewhere, and with --all, each."""
LOGS = 6
"""So many logs are named."""

Cluster = Annotated[
    str, typer.Argument(metavar="CLUSTER", help="Cluster profile with a section `bootstrap`, by name or path.")
]
Hosts = Annotated[list[str] | None, typer.Option("--hosts", metavar="A,B", help="Only these hosts; repeatable.")]
Without = Annotated[
    list[str] | None, typer.Option("--without", metavar="A,B", help="Leave these hosts out this time; repeatable.")
]
Join = Annotated[list[str] | None, typer.Option("--join", metavar="A,B", help="Make these hosts nodes; repeatable.")]
Leave = Annotated[
    list[str] | None, typer.Option("--leave", metavar="A,B", help="Take these hosts out of the cluster; repeatable.")
]
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


@bootstrap_app.command("CLUSTER", epilog=BOOTSTRAP_EXAMPLES)
def bootstrap_cluster(  # noqa: PLR0913, PLR0917 - each is a flag that was promised
    cluster: Cluster,
    hosts: Hosts = None,
    without: Without = None,
    join: Join = None,
    leave: Leave = None,
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
    words = {"--join": join, "--leave": leave, "--hosts": hosts, "--without": without}
    verbs = {"check": check, "join": join is not None, "leave": leave is not None, "upgrade": upgrade}
    verbs |= {"components": components, "drift": drift, "uninstall": uninstall}
    fields: Json = {
        "cluster": cluster,
        "verb": verb_of(verbs),
        "hosts": hosts_of({flag: said for flag, said in words.items() if flag != "--without"}),
        "without": hosts_of({"--without": without}),
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


def hosts_of(words_by_flag: Mapping[str, Sequence[str] | None]) -> tuple[str, ...]:
    """The hosts of `--join A,B --join C`; each once, in their order.

    Raises:
        ProfileError: hosts are named by two of these flags, or one cannot be the name of a host.
    """
    said = {flag: words for flag, words in words_by_flag.items() if words is not None}
    if len(said) > 1:
        first, second = list(said)[:2]
        raise ProfileError(second, f"cannot be said together with {first}: it names the hosts already")
    names = (name for flag, words in said.items() for word in words for name in named_nodes(word, flag))
    return tuple(dict.fromkeys(names))


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
    from deployments.screen.hosts import watched
    from flows.bootstrap import carry_through, keep_page  # Prefect, which takes seconds
    from tasks.bootstrap.host_logs import kept_logs, log_folder
    from tasks.context import at_hand

    goes_on("stopped; what was begun on hosts ends by itself; the same command goes on where it was")
    title, folder = f"{profile.name}: {request.verb}", log_folder(settings, profile.name)
    with at_hand(settings):
        with watched(title, folder, plainly=as_json) as (tell, hear):
            outcome = carry_through(profile, request, tell, by=who(), hear=hear)
        if outcome.steps:
            say(f"a page with the time line: {keep_page(outcome)}")
        logs = kept_logs(profile.name, open_subjects(outcome))
    out_json(document_of(outcome)) if as_json else out(text_of(outcome, terminal_columns(), every=every, logs=logs))
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


def text_of(outcome: BootstrapOutcome, columns: int, *, every: bool, logs: Sequence[Path] = ()) -> str:
    """Hosts by stages, components, what does not hold, where the whole of it stands, and the last word.

    On a terminal (`columns` wide; 0: none) a reason takes two lines at most.
    """
    lines: list[str] = []
    for title, part in zip(("host", "component"), parts_of(outcome.table), strict=True):
        lines += _table_lines(title, part, columns, every=every)
    steps = open_steps_of(outcome)
    told = [f"{one.id}: {one.word}: {one.why}" for one in open_steps(steps, OPEN_STEPS)]
    shown = _first_lines(outcome.said, NOTES if columns and not every else len(outcome.said))
    shown = [*shown, *_first_lines(told, OPEN_STEPS)]
    short = [cut(text, 2 * columns) if columns else text for text in (*shown, outcome.why)]
    return "\n".join([*lines, *short[:-1], *_log_lines(logs), short[-1]])


def _first_lines(lines: Sequence[str], most: int) -> list[str]:
    more = [f"{len(lines) - most} more: --json has them all"] if len(lines) > most else []
    return [*lines[:most], *more]


def _table_lines(title: str, part: Table, columns: int, *, every: bool) -> list[str]:
    """The table of hosts, or of components; where very many do not hold, those that are alike as one."""
    stages = stages_of(part)
    rows: list[Json] = [{title: subject, **row} for subject, row in part.items()]
    shown, more = folded(rows, lambda row: {word for key, word in row.items() if key != title} <= {"pass"}, every=every)
    if len(shown) > ONE_BY_ONE and not every:
        groups = alike({row[title]: part[row[title]] for row in shown})
        shown = [{title: group.names, "number": len(group.subjects), **group.words} for group in groups]
        stages = ["number", *stages]
    lines = [fitted(shown, [title, *stages], columns, giving=title, dropped=stages)] if shown else []
    return [*lines, *([f"{more} more hold: --all shows them"] if more else [])]


def open_steps_of(outcome: BootstrapOutcome) -> list[StepOutcome]:
    """Steps that do not hold; what pre-checks found of hosts stands in the notes."""
    of_hosts = {f"{Stage.PRECHECKS}/{subject}" for subject in outcome.table if subject != CLUSTER}
    return [step for step in outcome.steps if step.word != "pass" and step.id not in of_hosts]


def open_subjects(outcome: BootstrapOutcome) -> list[str]:
    """Hosts and components with a step that does not hold."""
    return list(dict.fromkeys(step.id.partition("/")[2] for step in open_steps_of(outcome)))


def _log_lines(logs: Sequence[Path]) -> list[str]:
    """Where the whole of what was said stands."""
    if not logs:
        return []
    names = first_names([path.name for path in logs], LOGS)
    return [f"the whole of it: {logs[0]}" if len(logs) == 1 else f"the whole of it: {logs[0].parent}/ ({names})"]
