"""A host's network: interfaces, addresses, routes, ports, names, and what it can fetch from a mirror."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import os
import re
import socket
import ssl
import time
import urllib.error
import urllib.request
from functools import partial
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence

from workflows.programs.hosts.items import CannotReadError, listed, read, read_or, tool
from workflows.programs.hosts.options import Options

FETCH_SECONDS = 15.0
"""Of one file as a whole; the file that is asked for has some megabytes at most."""
MOST_FETCHED = 1 << 30
SERVICE_SECONDS, SERVICE_TRIES = 2.0, 3
"""A connection may come to an instance that has just died; the next one most likely comes to another."""
NODE = "/etc/kubernetes/kubelet.conf"
"""Without it a host is no node: nothing there leads to services, and trying would only take time."""
DNS_PORT, DNS_SECONDS = 53, 3.5
_QUESTION = b"\x70\x66\x01\x00\x00\x01" + bytes(6) + b"\x09localhost\x00\x00\x01\x00\x01"
"""Of the name `localhost` for its address (RFC 1035, 4.1): every server answers it by itself, or refuses."""
_LISTENS, _UNCONNECTED = "0A", "07"
"""States of sockets in /proc/net: TCP's LISTEN, UDP's only one without a peer."""
_CALLS: Dict[str, Any] = {"tcp": _LISTENS, "tcp6": _LISTENS, "udp": _UNCONNECTED, "udp6": _UNCONNECTED}


def works(asked: Options) -> Dict[str, Callable[[], Any]]:
    """Item -> how it is read."""
    root = asked.root
    found: Dict[str, Callable[[], Any]] = {
        "interfaces": lambda: _interfaces(root),
        "addresses": _addresses,
        "routes": _routes,
        "ports": lambda: _ports(root),
        "resolver": lambda: _resolver(root),
    }
    found.update({f"name:{name}": partial(_resolved, name) for name in asked.names})
    found.update({f"service:{service}": partial(_unreached, root, service) for service in asked.services})
    for url, sha256 in asked.fetch:
        found[f"fetch:{url}"] = partial(_fetched, url, sha256, asked.authority)
    if asked.registry:
        found["registry"] = partial(_registry, asked.registry, asked.authority)
    return found


def _interfaces(root: str) -> List[Dict[str, Any]]:
    folder = "/sys/class/net"
    return [
        {
            "name": name,
            "mtu": int(read(root, f"{folder}/{name}/mtu")),
            "mac": read_or(root, f"{folder}/{name}/address"),
            "state": read_or(root, f"{folder}/{name}/operstate"),
            "physical": os.path.exists(os.path.join(root, folder.lstrip("/"), name, "device")),
        }
        for name in listed(root, folder)
        if read_or(root, f"{folder}/{name}/mtu")
    ]


def _addresses() -> List[Dict[str, Any]]:
    told = json.loads(tool(["ip", "-4", "-j", "address", "show"]) or "[]")
    return [
        {"interface": link["ifname"], "address": one["local"], "prefix": one["prefixlen"]}
        for link in told
        for one in link.get("addr_info", [])
        if one.get("family") == "inet"
    ]


def _routes() -> List[Dict[str, str]]:
    told = json.loads(tool(["ip", "-4", "-j", "route", "show"]) or "[]")
    return [
        {
            "network": _network(str(one.get("dst", ""))),
            "interface": str(one.get("dev", "")),
            "gateway": str(one.get("gateway", "")),
        }
        for one in told
    ]


def _network(text: str) -> str:
    whole = "0.0.0.0/0" if text == "default" else text
    return whole if "/" in whole else f"{whole}/32"


def _ports(root: str) -> List[Dict[str, Any]]:
    owners = _owners(root)
    rows: List[Dict[str, Any]] = []
    for protocol, state in _CALLS.items():
        for line in read_or(root, f"/proc/net/{protocol}").splitlines()[1:]:
            words = line.split()
            if len(words) > 9 and words[3] == state:
                host, port = words[1].rsplit(":", 1)
                row = {"protocol": protocol[:3], "address": _address(host), "port": int(port, 16)}
                rows.append({**row, "process": owners.get(words[9], "")})
    if not rows and not os.path.exists(os.path.join(root, "proc/net/tcp")):
        raise CannotReadError("/proc/net/tcp is not there")
    return rows


def _address(text: str) -> str:
    raw = bytes.fromhex(text)
    words = b"".join(raw[start : start + 4][::-1] for start in range(0, len(raw), 4))
    return socket.inet_ntop(socket.AF_INET if len(words) == 4 else socket.AF_INET6, words)


def _owners(root: str) -> Dict[str, str]:
    """Inode of a socket -> name of a process that has it; of others' processes only root learns that."""
    found: Dict[str, str] = {}
    for pid in listed(root, "/proc"):
        if pid.isdigit():
            for inode in _sockets(os.path.join(root, "proc", pid, "fd")):
                found[inode] = read_or(root, f"/proc/{pid}/comm")
    return found


def _sockets(folder: str) -> Iterator[str]:
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            with contextlib.suppress(OSError):
                target = os.readlink(os.path.join(folder, name))
                if target.startswith("socket:["):
                    yield target[8:-1]


def _resolver(root: str) -> Dict[str, List[str]]:
    own = read(root, "/etc/resolv.conf")
    behind = read_or(root, "/run/systemd/resolve/resolv.conf")  # what kubeadm takes where systemd-resolved runs
    servers, known = _servers(own), _servers(behind)
    outside = [one for one in known or servers if not one.startswith("127.") and ":" not in one]
    heard = answering(outside)
    silent = [one for place, one in enumerate(outside) if not heard[place]]
    return {"servers": servers, "behind": known, "search": _words(own, "search"), "silent": silent}


def answering(servers: Sequence[str]) -> List[bool]:
    """Whether each of them answers a question, whatever it says."""
    with contextlib.ExitStack() as kept:
        asked: List[Optional[socket.socket]] = []
        for server in servers:
            found = kept.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            try:
                found.connect((server, DNS_PORT))
                found.send(_QUESTION)
                asked.append(found)
            except OSError:
                asked.append(None)
        deadline = time.monotonic() + DNS_SECONDS
        return [one is not None and _hears(one, deadline) for one in asked]


def _hears(asked: socket.socket, deadline: float) -> bool:
    """Ask again each second: a datagram may get lost."""
    while (left := deadline - time.monotonic()) > 0:
        asked.settimeout(min(1.0, left))
        try:
            if asked.recv(1 << 16)[:2] == _QUESTION[:2]:
                return True
        except socket.timeout:
            with contextlib.suppress(OSError):
                asked.send(_QUESTION)
        except OSError:
            return False
    return False


def _servers(text: str) -> List[str]:
    return _words(text, "nameserver")


def _words(text: str, key: str) -> List[str]:
    return [word for found in re.finditer(rf"^{key}[ \t]+(.+)$", text, re.MULTILINE) for word in found.group(1).split()]


def _resolved(name: str) -> List[str]:
    try:
        found = socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM)
    except socket.gaierror:
        return []
    return sorted({str(one[4][0]) for one in found})


def _unreached(root: str, service: str) -> str:
    """Why nobody answers TLS at this `address:port`; "" where somebody does.

    Who it is is not asked, and nothing is said to them: it is the way there that is tried.
    """
    if not os.path.exists(os.path.join(root, NODE.lstrip("/"))):
        return "the host is no node yet"
    address, _, port = service.rpartition(":")
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    why = ""
    for _ in range(SERVICE_TRIES):
        try:
            with socket.create_connection((address, int(port)), SERVICE_SECONDS) as plain:
                context.wrap_socket(plain).close()
            return ""
        except OSError as error:
            why = _why(error)
    return why


def _open(url: str, authority: str, seconds: float) -> Any:
    """The answer; no proxy stands between: a mirror is a site's own."""
    context = ssl.create_default_context()
    if authority:
        context.load_verify_locations(cadata=authority)
    handlers = (urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    return urllib.request.build_opener(*handlers).open(url, timeout=seconds)


def _fetched(url: str, sha256: str, authority: str) -> Dict[str, Any]:
    digest, size, began, why = hashlib.sha256(), 0, time.monotonic(), ""
    try:
        with _open(url, authority, FETCH_SECONDS) as answer:
            while block := answer.read(1 << 16):
                digest.update(block)
                size += len(block)
                if time.monotonic() - began > FETCH_SECONDS or size > MOST_FETCHED:
                    why = f"{size} bytes came within {FETCH_SECONDS:g} s, and not the end"
                    break
    except (OSError, http.client.HTTPException) as error:
        why = _why(error)
    took = time.monotonic() - began
    return {"sha256": digest.hexdigest(), "expected": sha256, "size": size, "seconds": took, "why": why}


def _registry(url: str, authority: str) -> str:
    """`ok`, that it wants to know who asks, or why it is no registry."""
    try:
        with _open(url.rstrip("/") + "/v2/", authority, FETCH_SECONDS) as answer:
            answer.read(1 << 16)
            return "ok"
    except urllib.error.HTTPError as error:
        if error.code == 401:
            return "asks for credentials"
        return f"it answers with {error.code}, which no registry does"
    except (OSError, http.client.HTTPException) as error:
        return _why(error)


def _why(error: Exception) -> str:
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None)
    return str(reason or error) or type(error).__name__
