"""Commands on a control plane as its administrator, and the kubeconfig that is kept here from it."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

import yaml

from profiles.cluster import ClusterProfile
from profiles.errors import ProfileError, Unavailable
from tasks.ssh.connections import environment, target
from workflows.bootstrap.host_state import inventory_of
from workflows.bootstrap.kubeadm_documents import server_of

ADMIN = "/etc/kubernetes/admin.conf"
KUBECTL = ("kubectl", "--kubeconfig", ADMIN)
SECONDS = 60.0
SAID_CHARACTERS = 300
_SERVER = re.compile(r"^(\s*server: )\S+$", re.MULTILINE)


def run_on(profile: ClusterProfile, host: str, words: Sequence[str], seconds: float = SECONDS) -> str:
    """What a command prints on a host, run as root there.

    Raises:
        Unavailable: the host does not answer, the command failed, or it did not end in time; with its last words.
        ProfileError: how the host is reached cannot be used.
    """
    if profile.bootstrap is None:
        raise ProfileError("bootstrap", f"cluster {profile.name} has no such section")
    entry = profile.bootstrap.hosts[host]
    to = target(host, entry, profile.bootstrap.ssh)
    plain = (entry.user or profile.bootstrap.ssh.user) == "root"
    command = [*to.command[:-1], shlex.join(words if plain else ["sudo", "-n", "--", *words])]
    try:
        done = subprocess.run(
            command,
            env=environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"{host}: {words[0]} did not end within {seconds:g} s") from error
    if done.returncode != 0:
        said = " ".join(done.stderr.split())[-SAID_CHARACTERS:]
        raise Unavailable(f"{host}: {words[0]} ended with {done.returncode}: {said}")
    return done.stdout


def keep_kubeconfig(profile: ClusterProfile, host: str) -> bool:
    """Keep the administrator's kubeconfig of a control plane where the profile names it; whether it was new.

    It is readable by its owner alone, and names the API as the profile does: on a control plane that Kubespray made it
    names that host itself, or a name that only its hosts know. A profile that names none keeps none. A host that is
    silent just now tells it at the next look.

    Raises:
        Unavailable: what the host tells is no kubeconfig, or it cannot be written here.
    """
    if not profile.kubeconfig:
        return False
    try:
        text, path = run_on(profile, host, ("cat", ADMIN)), Path(profile.kubeconfig)
    except Unavailable:
        return False
    if not _is_kubeconfig(text):
        raise Unavailable(f"{host}: {ADMIN} is no kubeconfig")
    text = _SERVER.sub(rf"\g<1>https://{server_of(inventory_of(profile))}", text)
    try:
        if path.exists() and path.read_text(encoding="utf-8") == text:
            return False
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = path.with_name(f".{path.name}.new")
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
        fresh.replace(path)
    except OSError as error:
        raise Unavailable(f"{path} cannot be written: {error.strerror}") from error
    return True


def _is_kubeconfig(text: str) -> bool:
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError:
        return False
    return isinstance(found, dict) and "clusters" in found
