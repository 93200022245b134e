"""What Ansible gets for a test of nodes by SSH: hosts, how to reach them, what to run. Pure.

Everything from a profile stands there as text that is no template, and what would reach a shell on its way (the user,
the interpreter, addresses) is made of harmless characters only. There is no secret in it: keys are named by their path.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from profiles.admission import BareMetal
from profiles.bootstrap.inventory import Ssh
from profiles.cluster import ClusterProfile
from profiles.errors import ProfileError
from tasks.settings import expanded
from workflows.node_tests.preflight import PreflightPlan, probe_options
from workflows.programs.probes import over_ssh

WORD = re.compile(r"[A-Za-z0-9._/+-]+")
"""What an interpreter and a folder are made of: a login shell on the host reads the former."""
USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]*")
HOST_MARGIN_SECONDS = 10
"""Beside the suite's deadline, for Python to start and for the probe to report."""
STEP_SECONDS = 60
"""For one step that moves or removes a file, beside the time to connect: two megabytes over a slow line."""
ALIVE_SECONDS = 5
ALIVE_COUNT = 3
"""A host that answers nothing for the product of both is lost; an SSH server answers by itself, however busy it is."""
PERSIST_SECONDS = 30
"""A connection waits so long for the next step; all end with Ansible."""


class PlainText(str):
    """Text that Ansible takes as it is, braces and all."""


class _Dumper(yaml.SafeDumper):
    """Writes `PlainText` with Ansible's own mark for it."""


_Dumper.add_representer(PlainText, lambda dumper, text: dumper.represent_scalar("!unsafe", str(text), style='"'))  # pyright: ignore[reportUnknownMemberType]


@dataclass(frozen=True)
class Archive:
    """The programs as they are copied to the hosts."""

    path: Path
    sha1: str
    """The digest that Ansible's `copy` compares on the host before it puts the file in place."""


@dataclass(frozen=True)
class Aim:
    """Which nodes are reached, by the names that the inventory gives them."""

    nodes: Mapping[str, str]
    """`h0`, `h1`, … -> node: a node's own name may hold what an inventory reads as a range or a group."""
    unknown: Mapping[str, str]
    """Nodes that cannot be reached -> why."""


def aim(plan: PreflightPlan, settings: BareMetal) -> Aim:
    """The plan's nodes, apart by whether the profile says where they are."""
    known = [node for node in plan.nodes if node in settings.hosts]
    return Aim(
        {f"h{index}": node for index, node in enumerate(known)},
        {
            node: f"the cluster profile does not say where it is: add it to bare_metal.hosts as {node!r}"
            for node in plan.nodes
            if node not in settings.hosts
        },
    )


def checked(settings: BareMetal) -> None:
    """Refuse what a shell on the way could read as more than a name.

    Raises:
        ProfileError: which field, and what it may be.
    """
    if not WORD.fullmatch(settings.python) or settings.python.startswith("-"):
        raise ProfileError("bare_metal.python", f"must be a program's name or path, got {settings.python!r}")
    if not USER.fullmatch(settings.user):
        raise ProfileError("bare_metal.user", f"must be the name of a user, got {settings.user!r}")
    folder = PurePosixPath(settings.folder)
    if not WORD.fullmatch(settings.folder) or not folder.is_absolute() or ".." in folder.parts or not folder.name:
        raise ProfileError(
            "bare_metal.folder", f"must be an absolute path of letters, digits and ._/+-, got {settings.folder!r}"
        )
    for field, path in (
        ("private_key_file", settings.private_key_file),
        ("known_hosts_file", settings.known_hosts_file),
    ):
        if '"' in path or "\n" in path:
            raise ProfileError(f"bare_metal.{field}", f"must be a path without quotation marks, got {path!r}")


def ssh_arguments(settings: BareMetal | Ssh, section: str = "bare_metal") -> list[str]:
    """Options of every connection. A host's key is always compared, whatever the user's own configuration says."""
    options = {
        "StrictHostKeyChecking": "yes",
        "BatchMode": "yes",
        "ConnectTimeout": str(max(1, round(settings.connect_seconds))),
        "ServerAliveInterval": str(ALIVE_SECONDS),
        "ServerAliveCountMax": str(ALIVE_COUNT),
        "ForwardAgent": "no",
    }
    if settings.known_hosts_file:
        options["UserKnownHostsFile"] = f'"{expanded(settings.known_hosts_file, f"{section}.known_hosts_file")}"'
    if settings.private_key_file:
        options["IdentitiesOnly"] = "yes"
    return [word for name, value in options.items() for word in ("-o", f"{name}={value}")]


def proxy_command(jump: str, user: str, options: Sequence[str]) -> str:
    """The command that reaches a host through another one, whose key is compared as every host's.

    Args:
        jump: the other one, as `user@host:port`, of which user and port may be left out.
        user: who logs in there where `jump` does not say.
        options: of the client.
    """
    login, _, place = jump.rpartition("@")
    address, _, port = place.partition(":")
    words = ["ssh", *options, "-p", port or "22", "-l", login or user, "-W", "[%h]:%p", "--", address]
    # ssh itself reads %-words of this command: those of paths are doubled.
    return " ".join(word if word == "[%h]:%p" else shlex.quote(word).replace("%", "%%") for word in words)


def storage_folders(cluster: ClusterProfile) -> tuple[str, ...]:
    """Where a host may have the storage that is tested, the likeliest first."""
    if not cluster.storage:
        return ()
    first = cluster.storage[0]
    own = [first.source] if first.kind == "host_path" else []
    return tuple(dict.fromkeys([*own, first.mount_path]))


def host_seconds(plan: PreflightPlan) -> float:
    """After so long a host kills what it runs of ours."""
    return float(plan.suite.deadline_seconds.of(plan.depth)) + HOST_MARGIN_SECONDS


def whole_seconds(plan: PreflightPlan, settings: BareMetal, hosts: int) -> int:
    """The caller waits no longer than this, whatever Ansible does."""
    rounds = -(-hosts // settings.at_once)
    own = host_seconds(plan) + 4 * (STEP_SECONDS + settings.connect_seconds)
    return round(rounds * own + STEP_SECONDS)


def inventory(plan: PreflightPlan, settings: BareMetal, nodes: Mapping[str, str], archive: Archive) -> str:
    """The inventory as YAML, a group a pool.

    `nodes` maps names in the inventory to nodes, each of which has a host in `settings`.

    Raises:
        ProfileError: `checked`.
    """
    checked(settings)
    pool_of = {node: rack.pool for rack in plan.racks for node in rack.nodes}
    groups = {
        f"pool_{index}": {
            "vars": {"primus_probe_flags": _texts(probe_options(plan, pool, path="", out_dir="").argv())},
            "hosts": {name: _host(settings, node) for name, node in nodes.items() if pool_of[node] == pool},
        }
        for index, pool in enumerate(plan.pools)
    }
    told: dict[str, Any] = {"all": {"vars": _common(plan, settings, archive), "children": groups}}
    return written(told)


def written(told: Mapping[str, Any]) -> str:
    """An inventory as YAML; in it `PlainText` is text that is no template."""
    return yaml.dump(told, Dumper=_Dumper, sort_keys=False, width=1000)


def plain(value: Any) -> Any:
    """Plain data in which no text is a template, and digits in quotes stay text (which Ansible's mark undoes)."""
    if isinstance(value, str):
        return PlainText(value) if "{" in value else value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType,reportUnknownArgumentType]
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    return value


def _host(settings: BareMetal, node: str) -> dict[str, Any]:
    host = settings.hosts[node]
    return {"ansible_host": PlainText(host.address), "ansible_port": host.port, "primus_node": PlainText(node)}


def _common(plan: PreflightPlan, settings: BareMetal, archive: Archive) -> dict[str, Any]:
    folder = PurePosixPath(settings.folder)
    prefix = f"{folder.name}-"
    flags = over_ssh.Options(
        folder="",
        storage=storage_folders(plan.cluster),
        prefix=prefix,
        deadline_seconds=host_seconds(plan),
    )
    own = [word for word in over_ssh.flags.to_argv(flags) if not word.startswith("--folder=")]
    path = settings.private_key_file
    key = (
        {"ansible_ssh_private_key_file": PlainText(str(expanded(path, "bare_metal.private_key_file")))} if path else {}
    )
    step = round(STEP_SECONDS + settings.connect_seconds)
    return {
        "ansible_connection": "ssh",
        "ansible_user": PlainText(settings.user),
        "ansible_ssh_common_args": PlainText(shlex.join(ssh_arguments(settings))),
        "ansible_python_interpreter": PlainText(settings.python),
        **key,
        "primus_python": PlainText(settings.python),
        "primus_parent": PlainText(str(folder.parent)),
        "primus_prefix": PlainText(prefix),
        "primus_archive": PlainText(str(archive.path)),
        "primus_archive_sha1": archive.sha1,
        "primus_test": PlainText(plan.name),
        "primus_host_flags": _texts(own),
        "primus_step_seconds": step,
        "primus_probe_seconds": round(host_seconds(plan) + HOST_MARGIN_SECONDS + settings.connect_seconds),
    }


def _texts(words: Sequence[str]) -> list[PlainText]:
    return [PlainText(word) for word in words]
