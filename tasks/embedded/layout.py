"""Where the files of a pod lie, and what of them a container sees. Used by supervisors, the API and fault injection.

`remove_tree` removes folders: `shutil` is too large for a keeper that must stay small.
"""

from __future__ import annotations

import json
import os

from tasks.embedded.objects import entries, section
from tasks.embedded.runtime.environment import MissingReferenceError, content_of
from tasks.embedded.runtime.mounts import Mount
from tasks.embedded.store.store import write_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from tasks.embedded.objects import Object
    from tasks.embedded.runtime.environment import Pod


SCRIPT_PATH = "/argo/staging/script"
SCRIPT_ANNOTATION = "primus-flows.io/script-source"
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - where programs look for it
TERMINATION_PATH = "/dev/termination-log"
_IN_PODS = {"emptyDir", "secret", "configMap", "downwardAPI", "projected"}


def folder_variable(volume: str) -> str:
    """The variable that holds a volume's real folder where there are no mounts."""
    return "PRIMUS_FOLDER_" + volume.upper().replace("-", "_")


class PodFolder:
    """Paths of the files of one pod."""

    def __init__(self, root: str, uid: str) -> None:
        self.cluster = root
        self.path = os.path.join(root, "pods", uid)
        self.lock = os.path.join(self.path, "lock")
        """Held by the living supervisor."""
        self.started = os.path.join(self.path, "started")
        """Stands once a supervisor began: a pod runs once."""
        self.artifacts = os.path.join(self.path, "artifacts")
        """Holds the input artifacts that lie in no volume."""

    def log(self, container: str) -> str:
        """What the container printed (stdout and stderr)."""
        return os.path.join(self.path, f"{container}.log")

    def termination(self, container: str) -> str:
        """The real file of the container's termination message."""
        return os.path.join(self.path, f"{container}.termination")

    def life(self, container: str, restart: int) -> str:
        """The folder of one life of a container; holds its private `tmp`."""
        return os.path.join(self.path, "lives", f"{container}-{restart}")

    def volume(self, volume: Object) -> str:
        """The host's path of a volume, whether or not it exists."""
        if "hostPath" in volume:
            return volume["hostPath"]["path"]
        if "persistentVolumeClaim" in volume:
            return os.path.join(self.cluster, "volumes", volume["persistentVolumeClaim"]["claimName"])
        return os.path.join(self.path, "volumes", volume["name"])

    def prepare(self, pod: Pod) -> None:
        """Create the folders of the pod's volumes and write the content of Secrets, ConfigMaps and fields.

        Raises:
            MissingReferenceError: a Secret or ConfigMap that is not optional does not exist.
            OSError: a host path is not there.
        """
        os.makedirs(os.path.join(self.path, "lives"), mode=0o700, exist_ok=True)
        for volume in entries(pod.manifest["spec"], "volumes"):
            path = self.volume(volume)
            if "hostPath" in volume:
                _prepare_host_path(volume["hostPath"], path)
                continue
            os.makedirs(path, mode=0o755, exist_ok=True)
            if "emptyDir" not in volume and _IN_PODS & volume.keys():
                for name, content, mode in volume_files(volume, pod):
                    _write(os.path.join(path, name), content, mode)
        source = section(pod.manifest["metadata"], "annotations").get(SCRIPT_ANNOTATION)
        if source is not None:
            _write(os.path.join(self.path, "script"), source.encode(), 0o755)

    def mounts(self, container: Object, pod: Object) -> list[Mount]:
        """Everything bound into the container's file system; folders must have been prepared."""
        volumes = {volume["name"]: volume for volume in entries(pod["spec"], "volumes")}
        found: list[Mount] = []
        for mount in entries(container, "volumeMounts"):
            volume = volumes[mount["name"]]
            if mount["mountPath"].rstrip("/") == SHARED_MEMORY and "emptyDir" in volume:
                continue  # /dev/shm is the pod's own memory already
            source = self.source(volume, mount)
            read_only = bool(mount.get("readOnly"))
            found.append(
                Mount(source, mount["mountPath"], read_only=read_only, is_file=not os.path.isdir(source)),
            )
        name = container["name"]
        path = container.get("terminationMessagePath") or TERMINATION_PATH
        found.append(Mount(self.termination(name), path, is_file=True))
        if os.path.exists("/etc/hosts"):
            found.append(Mount(self.hosts(pod), "/etc/hosts", is_file=True))
        if os.path.exists(os.path.join(self.path, "script")):
            found.append(Mount(os.path.join(self.path, "script"), SCRIPT_PATH, is_file=True))
        return found

    def source(self, volume: Object, mount: Object) -> str:
        """The host's path of one mount; a `subPath` is created where it is missing."""
        source = self.volume(volume)
        if mount.get("subPath"):
            source = os.path.join(source, mount["subPath"])
            if not os.path.lexists(source):
                os.makedirs(source, exist_ok=True)
        return source

    def hosts(self, pod: Object) -> str:
        """The hosts file of the pod: its gang's, or its own."""
        gang = section(pod["metadata"], "annotations").get("primus-flows.io/hosts")
        return os.path.join(self.cluster, "hosts", gang) if gang else os.path.join(self.path, "hosts")


def volume_files(volume: Object, pod: Pod) -> list[tuple[str, bytes, int]]:
    """Name, content and mode of the files of a Secret, ConfigMap, downward API or projected volume."""
    if "projected" in volume:
        sources = entries(volume["projected"], "sources")
        return [entry for source in sources for entry in volume_files(source, pod)]
    if "downwardAPI" in volume:
        items = entries(volume["downwardAPI"], "items")
        return [(item["path"], pod.field(item["fieldRef"]["fieldPath"]).encode(), 0o644) for item in items]
    kind, group = ("Secret", "secret") if "secret" in volume else ("ConfigMap", "configMap")
    source = volume[group]
    name = source.get("secretName") or source.get("name")
    found = pod.read(kind, name)
    if found is None:
        if source.get("optional"):
            return []
        raise MissingReferenceError(f'{kind.lower()} "{name}" not found')
    # Values of a Secret are never readable by others, whatever mode is asked for.
    mode = 0o600 if kind == "Secret" else source.get("defaultMode", 0o644)
    content = content_of(found)
    paths = {item["key"]: item["path"] for item in entries(source, "items")} or {key: key for key in content}
    missing = [key for key in paths if key not in content]
    if missing and not source.get("optional"):
        raise MissingReferenceError(f'references non-existent {kind.lower()} key: "{missing[0]}"')
    return [(path, content[key], mode) for key, path in paths.items() if key in content]


def termination_message(folder: PodFolder, container: Object, *, failed: bool) -> str:
    """What the container left as its termination message, or the end of its log where it asked for that."""
    text = _tail(folder.termination(container["name"]), 4096, from_start=True)
    if not text and failed and container.get("terminationMessagePolicy") == "FallbackToLogsOnError":
        lines = _tail(folder.log(container["name"]), 2048, from_start=False).splitlines(keepends=True)
        text = "".join(lines[-80:])
    return text


def output_values(
    paths: str, locate: Callable[[str], str], result: str | None, artifacts: dict[str, str | None] | None = None
) -> str:
    """The JSON of the annotation with output values; a file that is not there is null."""
    values: dict[str, str | None] = {}
    too_large: dict[str, int] = {}
    for name, path in json.loads(paths or "{}").items():
        found = locate(path)
        size = os.path.getsize(found) if os.path.isfile(found) else -1
        if size > PARAMETER_LIMIT_BYTES:
            too_large[name] = size
        values[name] = read_text(found) if 0 <= size <= PARAMETER_LIMIT_BYTES else None
    left: dict[str, object] = {"outputs": values, "result": result}
    if artifacts:
        left["artifacts"] = artifacts
    if too_large:
        left["too_large"] = too_large
    return json.dumps(left)


PARAMETER_LIMIT_BYTES = 1 << 20
"""What an output parameter may hold: an object of Kubernetes has room for little more."""


def read_text(path: str) -> str | None:
    """Text of a file, None where it cannot be read; bytes that are no UTF-8 are replaced."""
    try:
        with open(path, "rb") as file:
            return file.read().decode(errors="replace")
    except OSError:
        return None


def _tail(path: str, limit_bytes: int, *, from_start: bool) -> str:
    try:
        with open(path, "rb") as file:
            if not from_start:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - limit_bytes))
            return file.read(limit_bytes).decode(errors="replace")
    except OSError:
        return ""


def _prepare_host_path(source: Object, path: str) -> None:
    kind = source.get("type") or ""
    if kind == "DirectoryOrCreate":
        os.makedirs(path, exist_ok=True)
    elif kind == "FileOrCreate" and not os.path.exists(path):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o644))
    if not os.path.exists(path):
        raise FileNotFoundError(f"hostPath {path} does not exist")


def _write(path: str, content: bytes, mode: int) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    write_file(path, content)
    os.chmod(path, mode)


def remove_tree(path: str) -> None:
    """Remove a folder and everything in it; links are removed, never followed. What cannot be removed stays."""
    try:
        entries = list(os.scandir(path))
    except FileNotFoundError:
        return
    except OSError:
        _quietly(os.unlink, path)
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            remove_tree(entry.path)
        else:
            _quietly(os.unlink, entry.path)
    _quietly(os.rmdir, path)


def _quietly(action: object, path: str) -> None:
    if callable(action):
        try:
            action(path)
        except OSError:
            return
