"""`primus up` and `primus down`: server, flow runner and monitor of this home, in the background. `primus config`."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from deployments.cli.app import AsJson, ClusterName, app
from deployments.cli.approvals import note_act
from deployments.exit_codes import GOOD, goes_on, out, out_json, say
from deployments.processes.console import stop_console
from deployments.processes.prefork import stop_nursery
from deployments.screen.tables import table
from profiles.loading.load import load_cluster
from tasks.config_file import KEYS, Key, config_file, origin
from tasks.prefect.server import make_password, own_url, password_of, stop_server
from tasks.prefect.services import Service, alive
from tasks.prefect.services import up as services_up
from tasks.processes import own_user
from tasks.runs.open import owner_of
from tasks.settings import Settings


@app.command("up")
def start(
    cluster: ClusterName = "",
    *,
    password: Annotated[bool, typer.Option("--password", help="Ask for one, also on this machine.")] = False,
    as_json: AsJson = False,
) -> int:
    """Start server, flow runner and monitor in the background and say where the pages are. Safe to repeat.

    Whatever of it dies is started again until `primus down`. On a machine that others use too, say --password.

    Example: primus up
    """
    settings = Settings.from_environment(os.environ)
    chosen = cluster or settings.cluster
    name = load_cluster(chosen).name
    settings.make_home()
    if password and not password_of(settings.home):
        make_password(settings.home)
        if own_url(settings.home):
            stop_server(settings.home)  # it asks for none; the next one does
    goes_on("stopped waiting; what was begun goes on. Stop it: primus down")
    url = services_up(settings.home, chosen, say)
    stop_nursery(settings.home)  # the runner forks drivers now
    note_act("", "up", f"serves and watches {name}")
    page = url.removesuffix("/api")
    living = {str(service): found.pid for service in Service if (found := alive(settings.home, service))}
    if as_json:
        out_json({"ui": page, "api": url, "cluster": name, "processes": living})
        return GOOD
    out(f"Prefect: {page}")
    if password_of(settings.home):
        out(f"sign in with the line in {settings.home / 'prefect-auth'}")
    say(f"serves and watches {name}; logs in {settings.home / 'logs'}; `primus down` ends it, not the training")
    return GOOD


@app.command("down")
def halt(*, as_json: AsJson = False) -> int:
    """Stop what `primus up` started. Training goes on. Safe to repeat.

    Example: primus down
    """
    home = Settings.from_environment(os.environ).home
    stopped = stop_console(home)
    if stopped:
        note_act("", "down", f"stopped: {', '.join(stopped)}")
    if as_json:
        out_json({"stopped": stopped})
    else:
        say(f"stopped: {', '.join(stopped)}" if stopped else "nothing of this home was running")
    return GOOD


@app.command("config")
def show_config(*, as_json: AsJson = False) -> int:
    """What holds where a command says nothing else, and who says so: the environment, the file, or nobody.

    Example: primus config
    """
    settings = Settings.from_environment(os.environ)
    built_in = {
        "home": str(settings.home),
        "cluster": settings.cluster,
        "ledger_url": "a file of the home",
        "token_file": str(settings.token_file),
        "prefect_api_url": "the home's own server",
        "kubeconfig": "~/.kube/config, or the pod's account",
        "mode": "as the recovery profile says",
        "owner": owner_of(own_user()),
    }
    rows = [
        {
            "key": name,
            "value": _told(key, os.environ.get(key.variable, "")) or built_in[name],
            "from": origin(key.variable, os.environ),
            "variable": key.variable,
            "meaning": key.meaning,
        }
        for name, key in KEYS.items()
    ]
    file = config_file(os.environ)
    if as_json:
        out_json({"file": file, "there": os.path.exists(file), "keys": rows})
    else:
        out(table(rows, ("key", "value", "from", "variable")))
        out(f"\nfile: {file}{'' if os.path.exists(file) else ' (not there)'}")
    return GOOD


def _told(key: Key, value: str) -> str:
    return "set, and not shown" if key.secret and value else value
