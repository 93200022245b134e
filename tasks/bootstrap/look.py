"""One look at the hosts of a cluster profile: facts of all side by side, then who reaches whom."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from functools import partial
from ipaddress import ip_address
from urllib.parse import urlsplit

from profiles.bootstrap.engines import Kubeadm
from profiles.bootstrap.inventory import Bootstrap
from profiles.bootstrap.release import ReleaseProfile
from profiles.cluster import ClusterProfile
from profiles.errors import ProfileError
from profiles.loading.load import load_release
from tasks.settings import expanded
from tasks.ssh.connections import target
from tasks.ssh.looking import Pairing, Question, Tell, look_at
from workflows.bootstrap.ports import ports_between, ports_reached
from workflows.model.host_facts import Unread
from workflows.model.host_sight import HostsSight
from workflows.programs.hosts.options import Options

ETCD_FOLDER = "/var/lib/etcd"
SMALL_FIRST = ("crictl", "runc", "kubectl", "kubelet", "kubeadm")
"""Files of a release of which one is fetched by every host: the smallest of those that there are."""
MOST_PAIRED = 1000
"""Hosts that stay connected at the same time: each is a process here."""


def look_at_hosts(
    profile: ClusterProfile,
    hosts: Collection[str] | None = None,
    *,
    deep: bool = True,
    more: Options | None = None,
    tell: Tell | None = None,
) -> HostsSight:
    """Look at hosts of the section `bootstrap` of a profile; one that does not answer is part of what was seen.

    Args:
        profile: whose hosts.
        hosts: their names; None: all.
        deep: also who reaches whom, how fast disks are, and whether the mirror gives a file.
        more: what is asked of every host beside: names, files, sysctls, units, images, folders, running.
        tell: gets a host and what it does now.

    Raises:
        ProfileError: a field cannot be used; nobody was asked.
    """
    bootstrap = _section(profile)
    chosen = [name for name in bootstrap.hosts if hosts is None or name in hosts]
    fetch, authority = _mirror_file(bootstrap) if deep else (), _authority(bootstrap)
    questions = [
        Question(
            target(name, bootstrap.hosts[name], bootstrap.ssh),
            _options(bootstrap, name, more or Options(), fetch, authority, deep),
            bootstrap.hosts[name].ip,
            ports_reached(bootstrap, name),
        )
        for name in chosen
    ]
    pairs = _pairs(bootstrap, len(chosen)) if deep else False
    pairing = Pairing(partial(ports_between, bootstrap), bootstrap.networks.mtu) if pairs is True else None
    at = time.time()
    seen = asyncio.run(look_at(questions, bootstrap.ssh.at_once, pairing, tell or _nobody_hears))
    return HostsSight(at, seen, pairs)


def _pairs(bootstrap: Bootstrap, chosen: int) -> bool | Unread:
    """Whether it is tried who reaches whom; why not, where an inventory has ways that nobody will have tried."""
    if len(bootstrap.hosts) < 2:
        return False
    if chosen < 2:
        return Unread("nobody tried: no other host was looked at")
    if chosen > MOST_PAIRED:
        return Unread(f"nobody tried: {chosen} hosts were looked at, and no more than {MOST_PAIRED} stay connected")
    return True


def _nobody_hears(host: str, what: str) -> None:
    del host, what


def _section(profile: ClusterProfile) -> Bootstrap:
    if profile.bootstrap is None:
        raise ProfileError("bootstrap", f"cluster {profile.name} has no such section: say there which hosts it has")
    return profile.bootstrap


def _options(
    bootstrap: Bootstrap, name: str, more: Options, fetch: tuple[tuple[str, str], ...], authority: str, deep: bool
) -> Options:
    mirror = bootstrap.mirror
    scheme = "http" if mirror.registry_insecure else "https"
    registry = f"{scheme}://{mirror.registry.partition('/')[0]}" if mirror.registry else ""
    return Options(
        names=tuple(dict.fromkeys((*_names(bootstrap), *more.names))),
        files=more.files,
        sysctls=tuple(dict.fromkeys((*bootstrap.tuning.sysctls, *more.sysctls))),
        units=more.units,
        folders=more.folders,
        fsync=ETCD_FOLDER if deep and bootstrap.hosts[name].controls else "",
        fetch=(*fetch, *more.fetch),
        registry=registry,
        authority=authority,
        images=more.images,
        running=more.running,
        services=more.services,
        variables=more.variables,
    )


def _names(bootstrap: Bootstrap) -> list[str]:
    """Names that every host must resolve: endpoint, mirror, registry, where they are no addresses."""
    mirror, endpoint = bootstrap.mirror, bootstrap.endpoint
    registry = mirror.registry.partition("/")[0].partition(":")[0]
    found = [endpoint.address if endpoint else "", urlsplit(mirror.files_url).hostname or "", registry]
    return [name for name in found if name and not _is_address(name)]


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _mirror_file(bootstrap: Bootstrap) -> tuple[tuple[str, str], ...]:
    """URL and digest of the file that every host fetches; none where there is no mirror of files."""
    url, engine = bootstrap.mirror.files_url.rstrip("/"), bootstrap.engine
    if not url or not isinstance(engine, Kubeadm):
        return ()
    release: ReleaseProfile = load_release(engine.release)
    name = next(name for name in (*SMALL_FIRST, *release.files) if name in release.files)
    file = release.files[name]
    return ((f"{url}/{file.path}", file.sha256 or ""),)


def _authority(bootstrap: Bootstrap) -> str:
    path = bootstrap.mirror.ca_file
    if not path:
        return ""
    try:
        return expanded(path, "bootstrap.mirror.ca_file").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ProfileError("bootstrap.mirror.ca_file", f"{path} cannot be read: {error}") from error
