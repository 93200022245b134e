"""The file system that a container sees, as a list of operations. Pure: the host is asked through `Host`.

Every container has a root directory of its own in memory, in which the host's top-level folders are bound; `/tmp` (a
folder on disk), `/dev/shm` and the root itself are private and writable. A mount point that the host lacks is made
without touching the host: the deepest folder that exists is replaced by a private one into which the host's entries
are bound.
"""

from __future__ import annotations

import os
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


TMP = "/tmp"  # noqa: S108 - private to every container, or the host's where one is shown
LIFE = "/.life"
"""Where a container sees the folder of its own life."""
_CONSOLES = re.compile(r"(tty|ttyS|vcs|vcsa|vcsu|loop|ram)\d+$")
"""Devices that come by the hundred and that no program of a pod looks for."""
MAX_LINKS = 40


class Mount:
    """A file or folder of the host (`source`) that the container shall see at `target`."""

    __slots__ = ("is_file", "read_only", "source", "target")

    def __init__(self, source: str, target: str, *, read_only: bool = False, is_file: bool = False) -> None:
        self.source = source
        self.target = os.path.normpath(target)
        self.read_only = read_only
        self.is_file = is_file


class Host:
    """The file system as it is now."""

    def entries(self, path: str) -> list[str]:
        """Names in a folder, sorted; none where it cannot be read."""
        try:
            return sorted(os.listdir(path))
        except OSError:
            return []

    def link(self, path: str) -> str | None:
        """Target of a symbolic link, None for anything else."""
        try:
            return os.readlink(path)
        except OSError:
            return None

    def kind(self, path: str) -> str:
        """`dir`, `file` (anything else that exists) or "" for nothing."""
        return "dir" if os.path.isdir(path) else "file" if os.path.lexists(path) else ""


class View:
    """Builds the operations; afterwards `locate` says where on the host a path of the container lies.

    Args:
        life: the folder of this life of the container.
        host: the host's file system.
        root_on_disk: whether files that the container leaves in its root directory must outlive it.

    Operations, in order: `("dir", path)`, `("file", path)`, `("link", path, target)`, `("tmpfs", path)`,
    `("bind", source, path)`, `("bind-ro", source, path)`, `("try-bind", source, path)` (a host folder that cannot be
    bound stays empty). All paths are of the host, before the root is changed.
    """

    def __init__(self, life: str, host: Host, *, root_on_disk: bool = False) -> None:
        self.life = life
        self.root = os.path.join(life, "root")
        self.root_on_disk = root_on_disk
        self.operations: list[tuple[str, ...]] = []
        self._host = host
        self._bound: dict[str, tuple[str, bool]] = {"/": (self.root, True)}
        self._made: dict[str, str] = {}
        self._links: dict[str, str] = {}
        self._base()

    def add(self, mounts: Iterable[Mount]) -> None:
        """Bind these, outer targets before inner ones."""
        for mount in sorted(mounts, key=lambda item: item.target.count("/") if item.target != "/" else 0):
            target = self._mount_point(mount.target, "file" if mount.is_file else "dir")
            self.operations.append(("bind-ro" if mount.read_only else "bind", mount.source, self.root + target))
            self._bound[target] = (mount.source, not mount.read_only)

    def locate(self, path: str) -> str:
        """The host's path behind a path of the container, links followed as the container would."""
        current, rest = "/", _parts(path)
        for _ in range(MAX_LINKS * 8):
            if not rest:
                break
            step = os.path.normpath(os.path.join(current, rest.pop(0)))
            target = self._link(self._behind(step)[0])
            if target is None:
                current = step
            else:
                current = "/" if target.startswith("/") else current
                rest = _parts(target) + rest
        return self._behind(current)[0]

    def _base(self) -> None:
        for name in self._host.entries("/"):
            path = "/" + name
            link = self._host.link(path)
            if path in (TMP, "/dev"):
                continue
            if link is not None:
                self._symlink(self.root + path, link)
            elif self._host.kind(path) == "dir":
                self._bind_entry(path, path, self.root + path)
        tmp = os.path.join(self.life, "tmp")
        self._mkdir(tmp)
        # By this folder a process of the container is known whatever it does to its environment.
        for source, target in ((tmp, TMP), (self.life, LIFE)):
            self._mkdir(self.root + target)
            self.operations.append(("bind", source, self.root + target))
        self._bound[TMP] = (tmp, True)
        self._bound[LIFE] = (self.life, False)
        self._devices()

    def _devices(self) -> None:
        """A private /dev whose entries lead to the host's, so that files and /dev/shm can be added."""
        dev = self.root + "/dev"
        self._mkdir(dev)
        self.operations.append(("tmpfs", dev))
        self._mkdir(dev + "/.host")
        self.operations.append(("bind", "/dev", dev + "/.host"))
        self._mkdir(dev + "/shm")
        for name in self._host.entries("/dev"):
            if name != "shm" and not _CONSOLES.match(name):
                link = self._host.link("/dev/" + name)
                self._symlink(f"{dev}/{name}", link if link and link.startswith("/proc") else "/dev/.host/" + name)
        self._bound["/dev/.host"] = ("/dev", False)

    def _mount_point(self, target: str, kind: str) -> str:
        """Make sure that the target exists; the target with links followed."""
        current, rest, links = "/", _parts(target), 0
        while rest:
            step = os.path.normpath(os.path.join(current, rest[0]))
            behind, _ = self._behind(step)
            link = self._link(behind)
            if link is not None and links < MAX_LINKS:
                links += 1
                current = "/" if link.startswith("/") else current
                rest = _parts(link) + rest[1:]
                continue
            if not self._kind(behind):
                self._create(current, rest[0], kind if len(rest) == 1 else "dir")
            current = step
            rest.pop(0)
        return current

    def _create(self, folder: str, name: str, kind: str) -> None:
        behind, private = self._behind(folder)
        if not private:
            behind = self._replace(folder, behind)
        path = f"{behind}/{name}"
        self._made[path] = kind
        self.operations.append((kind, path))

    def _replace(self, folder: str, behind: str) -> str:
        """Lay a private folder over one of the host's and bind the host's entries into it."""
        layer = self.root + folder
        self.operations.append(("tmpfs", layer))
        self._bound[folder] = (layer, True)
        for name in self._host.entries(behind):
            source, link = f"{behind}/{name}", self._host.link(f"{behind}/{name}")
            if link is not None:
                self._symlink(f"{layer}/{name}", link)
            elif self._host.kind(source) == "dir":
                self._bind_entry(source, os.path.join(folder, name), f"{layer}/{name}")
            else:
                self._made[f"{layer}/{name}"] = "file"
                self.operations += [("file", f"{layer}/{name}"), ("try-bind", source, f"{layer}/{name}")]
        return layer

    def _bind_entry(self, source: str, target: str, made: str) -> None:
        self._mkdir(made)
        self.operations.append(("try-bind", source, self.root + target))
        self._bound[target] = (source, False)

    def _mkdir(self, path: str) -> None:
        self._made[path] = "dir"
        self.operations.append(("dir", path))

    def _symlink(self, path: str, target: str) -> None:
        self._links[path] = target
        self.operations.append(("link", path, target))

    def _behind(self, path: str) -> tuple[str, bool]:
        """Host path behind a link-free path, and whether entries may be created there."""
        prefix, rest = path, ""
        while prefix not in self._bound:
            prefix, _, last = prefix.rpartition("/")
            rest = f"/{last}{rest}"
            prefix = prefix or "/"
        source, private = self._bound[prefix]
        return (source.rstrip("/") + rest) or "/", private

    def _link(self, behind: str) -> str | None:
        return self._links.get(behind) or (None if behind in self._made else self._host.link(behind))

    def _kind(self, behind: str) -> str:
        return self._made.get(behind) or ("link" if behind in self._links else self._host.kind(behind))


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part and part != "."]
