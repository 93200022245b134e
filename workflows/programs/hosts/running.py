"""What the programs of Kubernetes run with: configuration as they read it, the control plane's arguments and variables.

Only processes in the host's own network count: an etcd of somebody's pod is none of the cluster's. Both of a process
are what it was begun with, whatever its manifest says by now; a configuration is in force where the process is younger
than the file.
"""

from __future__ import annotations

import base64
import os
import re
import time
from functools import partial
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from workflows.programs.hosts.items import CannotReadError, containerd, listed, read, read_or
from workflows.programs.hosts.options import Options

CONTROL_PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd")
KUBELET_CONFIGURATION = "/var/lib/kubelet/config.yaml"
CHUNK_BYTES = 3000
"""Of a configuration in one text: an answer's texts have an end."""
MOST_BYTES = 256 << 10


def works(asked: Options) -> Dict[str, Callable[[], Any]]:
    """Item -> how it is read; nothing where it is not asked for."""
    if not asked.running:
        return {}
    root = asked.root
    found: Dict[str, Callable[[], Any]] = {
        "configuration:kubelet": lambda: _kubelet(root),
        "configuration:kube-proxy": lambda: _kube_proxy(root),
        "container_runtime": _container_runtime,
    }
    found.update({f"processes:{name}": partial(_arguments, root, name) for name in CONTROL_PROGRAMS})
    found.update({f"variables:{name}": partial(_variables, root, name, asked.variables) for name in CONTROL_PROGRAMS})
    return found


def _kubelet(root: str) -> Dict[str, Any]:
    """Of the file, whether a kubelet runs or not."""
    own = next(_processes(root, "kubelet"), None)
    path = os.path.join(root, KUBELET_CONFIGURATION.lstrip("/"))
    return _configuration(path, None if own is None else _age_seconds(root, own[0]))


def _kube_proxy(root: str) -> Dict[str, Any]:
    """Of the file as its process sees it; where none runs there is none."""
    own = next(_processes(root, "kube-proxy"), None)
    if own is None:
        return {"text": [], "file_age_seconds": 0.0, "process_age_seconds": None}
    process, words = own
    path = next((word.partition("=")[2] for word in words if word.startswith("--config=")), "")
    if not path:
        raise CannotReadError("kube-proxy runs without --config")
    return _configuration(f"{root.rstrip('/')}/proc/{process}/root{path}", _age_seconds(root, process))


def _configuration(path: str, process_age: Optional[float]) -> Dict[str, Any]:
    try:
        with open(path, "rb") as file:
            content, age = file.read(MOST_BYTES), time.time() - os.fstat(file.fileno()).st_mtime
    except FileNotFoundError:
        content, age = b"", 0.0
    except OSError as error:
        raise CannotReadError(f"{path}: {error.strerror or error}") from error
    text = base64.b64encode(content).decode()
    chunks = [text[start : start + CHUNK_BYTES] for start in range(0, len(text), CHUNK_BYTES)]
    return {"text": chunks, "file_age_seconds": age, "process_age_seconds": process_age}


def _arguments(root: str, name: str) -> List[List[str]]:
    """Of each process of this name."""
    return [words for _, words in _processes(root, name)]


def _variables(root: str, name: str, asked: Sequence[str]) -> Dict[str, str]:
    """Of these variables those that a process of this name has, with their values; none where none runs."""
    own = next(_processes(root, name), None)
    words = read(root, f"/proc/{own[0]}/environ").split("\0") if own is not None else []
    pairs = dict(word.split("=", 1) for word in words if "=" in word)
    return {variable: pairs[variable] for variable in asked if variable in pairs}


def _processes(root: str, name: str) -> Iterator[Tuple[str, List[str]]]:
    """Id and arguments of each process of this name in the host's own network."""
    own = _network(root, "1")
    for process in listed(root, "/proc"):
        if not process.isdigit() or read_or(root, f"/proc/{process}/comm") != name[:15]:
            continue
        words = read_or(root, f"/proc/{process}/cmdline").split("\0")
        if os.path.basename(words[0]) == name and _network(root, process) == own:
            yield process, [word for word in words[1:] if word]


def _network(root: str, process: str) -> str:
    try:
        return os.readlink(os.path.join(root, f"proc/{process}/ns/net"))
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise CannotReadError(f"/proc/{process}/ns/net: {error.strerror or error}") from error


def _age_seconds(root: str, process: str) -> Optional[float]:
    """How long it runs; None: it is gone."""
    after_name = read_or(root, f"/proc/{process}/stat").rpartition(")")[2].split()
    up = read_or(root, "/proc/uptime").split()
    if len(after_name) < 20 or not up:
        return None
    return float(up[0]) - int(after_name[19]) / os.sysconf("SC_CLK_TCK")


def _container_runtime() -> str:
    """`ok`, or why containerd does not serve kubelet: a plug-in that failed leaves the program itself running."""
    told = containerd("plugins", "ls")
    rows = (line.split() for line in told.splitlines()[1:])
    broken = [words[1] for words in rows if len(words) > 3 and words[-1] == "error" and re.search("cri", words[1])]
    return f"its plug-in {broken[0]} has failed: journalctl -u containerd" if broken else "ok"
