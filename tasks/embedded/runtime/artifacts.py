"""Files that travel between the steps of a workflow: laid out before a container starts, stored when it has ended.

They are in a folder of their workflow and deleted with it. What is stored is what Argo's executor would store, a `.tgz`
unless the output says otherwise; so an input is unpacked by the same rules. A pod's annotation describes it: `{"store":
uid of the workflow, "inputs": [artifact, …], "outputs": [artifact with its key, …]}`. `Capture` keeps the standard
output of a container whose result is used.
"""

from __future__ import annotations

import json
import os

from tasks.embedded.objects import entries, section
from tasks.embedded.runtime.mounts import Mount

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from tasks.embedded.objects import Object

ARTIFACTS_ANNOTATION = "primus-flows.io/artifacts"
NOT_LOADED = "ArtifactNotLoaded"
"""Reason of a container's end that never began, because an input of it could not be laid out."""

RESULT_LIMIT_BYTES = 256 * 1024
"""Argo's own limit of `outputs.result`: of a longer one the last bytes are kept."""


class ArtifactError(Exception):
    """An input artifact cannot be laid out, and never will be: its place holds nothing, or nothing that unpacks."""


def pod_artifacts(pod: Object) -> Object:
    """The artifacts of a pod; empty where it has none."""
    text = section(pod["metadata"], "annotations").get(ARTIFACTS_ANNOTATION)
    return json.loads(text) if text else {}


def store_folder(root: str, workflow_uid: str) -> str:
    """Where the artifacts of a workflow lie; removed with everything else that its object owns."""
    return os.path.join(root, "owners", workflow_uid, ".artifacts")


def output_paths(pod: Object) -> list[str]:
    """Where a pod's output artifacts are found in its container."""
    return [item["path"] for item in entries(pod_artifacts(pod), "outputs")]


def lay_out(root: str, pod: Object, folder: str, inside: Callable[[str], str | None]) -> None:
    """Put every input artifact where its mount, or the volume of its path, shows it.

    `inside` maps a path of the main container to the host's where it is in a mounted volume, else to None.

    Raises:
        ArtifactError: an artifact is missing, or is not the archive that it should be.
        OSError: the disk is full, or the like.
    """
    files = pod_artifacts(pod)
    for item in entries(files, "inputs"):
        target = inside(item["path"]) or os.path.join(folder, item["name"])
        if not os.path.lexists(target):
            os.makedirs(os.path.dirname(target), exist_ok=True)
            _load(item, store_folder(root, files["store"]), target)


def mounts(pod: Object, folder: str, inside: Callable[[str], str | None]) -> list[Mount]:
    """What the main container sees of its input artifacts, beside its volumes."""
    found: list[Mount] = []
    for item in entries(pod_artifacts(pod), "inputs"):
        if inside(item["path"]) is None:
            source = os.path.join(folder, item["name"])
            found.append(Mount(source, item["path"], is_file=not os.path.isdir(source)))
    return found


def keep(root: str, pod: Object, locate: Callable[[str], str]) -> dict[str, str | None]:
    """Store what lies at the paths of the output artifacts; name to key, None where nothing lies there."""
    files = pod_artifacts(pod)
    found: dict[str, str | None] = {}
    for item in entries(files, "outputs"):
        source = locate(item["path"])
        found[item["name"]] = item["key"] if os.path.exists(source) else None
        if found[item["name"]] is not None:
            _save(item, source, os.path.join(store_folder(root, files["store"]), item["key"]))
    return found


def _save(item: Object, source: str, target: str) -> None:
    os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
    archive: Object = section(item, "archive")
    half = target + ".half"
    _remove(half)
    if "none" in archive:
        _copy(source, half)
    elif "zip" in archive:
        _zip(source, half)
    else:
        import tarfile  # noqa: PLC0415 - few pods have artifacts, and a supervisor stays small

        level = section(archive, "tar").get("compressionLevel")
        with tarfile.open(half, "w:gz", compresslevel=1 if level is None or not 0 <= level <= 9 else level) as packed:
            packed.add(source, os.path.basename(os.path.normpath(item["path"])))
    _remove(target)
    os.rename(half, target)


def _zip(source: str, target: str) -> None:
    import zipfile  # noqa: PLC0415 - as above

    base = os.path.dirname(os.path.normpath(source))
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.write(source, os.path.relpath(source, base))
        for folder, folders, names in os.walk(source):
            for name in [*folders, *names]:
                path = os.path.join(folder, name)
                packed.write(path, os.path.relpath(path, base))


def _copy(source: str, target: str) -> None:
    import shutil  # noqa: PLC0415 - as above

    if os.path.isdir(source):
        shutil.copytree(source, target, symlinks=True)
    else:
        shutil.copy2(source, target)


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        import shutil  # noqa: PLC0415 - as above

        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)


def _load(item: Object, store: str, target: str) -> None:
    half = target + ".half"
    _remove(half)
    if "raw" in item:
        with open(half, "w", encoding="utf-8") as file:
            file.write(item["raw"]["data"])
    else:
        source = os.path.normpath(os.path.join(store, item["plugin"]["key"]))
        if not source.startswith(store + "/") or not os.path.exists(source):
            raise ArtifactError(f"artifact {item['name']} failed to load: there is no {item['plugin']['key']}")
        _copy(source, half)
    unpacked = _content_path(item, half)
    if item.get("mode") is not None:
        _set_mode(unpacked, item["mode"], recurse=bool(item.get("recurseMode")))
    os.rename(unpacked, target)
    _remove(half)
    _remove(half + ".folder")


def _content_path(item: Object, half: str) -> str:
    """Where the content lies once it is unpacked: a single file or folder of an archive stands for the whole."""
    archive = section(item, "archive")
    if "none" in archive or os.path.isdir(half) or not ("zip" in archive or "tar" in archive or _is_packed(half)):
        return half
    folder = half + ".folder"
    _remove(folder)
    os.makedirs(folder)
    import tarfile  # noqa: PLC0415 - as above
    import zipfile  # noqa: PLC0415 - as above

    try:
        if "zip" in archive:
            with zipfile.ZipFile(half) as packed:
                packed.extractall(folder)  # noqa: S202 - it takes .. and / out of names
        else:
            safe = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
            with tarfile.open(half, "r:gz") as packed:
                packed.extractall(folder, **safe)  # noqa: S202 # pyright: ignore[reportArgumentType] - the filter above
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, ValueError) as error:
        raise ArtifactError(f"artifact {item['name']} failed to load: {error}") from error
    names = os.listdir(folder)
    return os.path.join(folder, names[0]) if len(names) == 1 else folder


def _is_packed(path: str) -> bool:
    """Whether it is a tar archive inside gzip, whatever its name."""
    with open(path, "rb") as file:
        if file.read(2) != b"\x1f\x8b":
            return False
    import tarfile  # noqa: PLC0415 - as above

    try:
        with tarfile.open(path, "r:gz") as packed:
            return packed.next() is not None
    except (tarfile.TarError, OSError, EOFError):
        return False


def _set_mode(path: str, mode: int, *, recurse: bool) -> None:
    os.chmod(path, mode)
    if recurse:
        for folder, folders, names in os.walk(path):
            for name in [*folders, *names]:
                os.chmod(os.path.join(folder, name), mode)


class Capture:
    """Standard output of a container whose result is wanted: copied to the log and kept."""

    def __init__(self, log: int) -> None:
        self.descriptor, self.writing = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.descriptor, False)
        self._log = log
        self._kept = bytearray()
        self.closed = False
        self._finished = False

    def pump(self) -> None:
        """Copy what is there now."""
        while not self.closed:
            try:
                piece = os.read(self.descriptor, 65536)
            except BlockingIOError:
                return
            if not piece:
                self.closed = True
            else:
                os.write(self._log, piece)
                self._kept += piece
                del self._kept[: -RESULT_LIMIT_BYTES - 1]  # and the newline that may come last

    def finish(self) -> None:
        """Take what is left in the pipe and close it."""
        if not self._finished:
            self.pump()
            self._finished = self.closed = True
            os.close(self.descriptor)
            os.close(self._log)

    def text(self) -> str:
        """The result: the end of standard output without its last newline."""
        return self._kept.removesuffix(b"\n")[-RESULT_LIMIT_BYTES:].decode(errors="replace")
