"""Objects on disk: one JSON file each, one counter of versions, one log of changes.

Many processes write at once, each under the store's lock, and any of them may be killed between two system calls. So
the order of a change is: note it in the header, write the object by rename, append a line to the log; whoever takes the
lock next finishes a change that the header names and the log lacks. Readers take no lock. Nothing is synced to the
medium: what a power failure of the whole machine loses, it also stops.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from contextlib import contextmanager

from profiles.errors import Refused, Unavailable
from tasks.embedded.objects import parse_object
from tasks.embedded.store.changes import Change, last_version, parse_change, whole_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from tasks.embedded.objects import Object


HEADER_BYTES = 512
ROTATE_BYTES = 8 << 20
"""A log larger than this is started anew; watchers that were further behind list again."""


def read_json(path: str) -> Object | None:
    """The object in a file, None where there is no file.

    Raises:
        Unavailable: the file cannot be read or holds no JSON.
    """
    try:
        with open(path, "rb") as file:
            return json.loads(file.read())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise Unavailable(f"{path}: {error}; remove the file if the machine lost power while it was written") from error


def write_file(path: str, content: bytes) -> None:
    """Replace a file by a rename, readable by its owner only. Two writers of one path need a lock of their own."""
    temporary = os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(descriptor, view) :]
    finally:
        os.close(descriptor)
    os.rename(temporary, path)


class BrokenObjectError(Unavailable):
    """The file of one object is broken: the keeper puts it aside, and everything else goes on."""

    def __init__(self, kind: str, name: str, path: str, problem: str) -> None:
        text = f"{kind} {name} is broken ({problem}); the keeper puts it aside, or remove the file {path}"
        super().__init__(text, retry_after_seconds=0.5)
        self.kind = kind
        self.name = name
        self.problem = problem


class Store:
    """The objects under `root`. Cheap to make; holds no descriptor between calls.

    Args:
        root: of the cluster.
        lock_timeout_seconds: how long a writer waits for another one; None: for ever.
        on_broken: called with each broken object before it is raised; must not write objects.
    """

    def __init__(
        self, root: str, lock_timeout_seconds: float | None = None, on_broken: Callable[[], None] | None = None
    ) -> None:
        self.root = root
        self.on_broken = on_broken
        self._lock_timeout_seconds = lock_timeout_seconds
        self.log_path = os.path.join(root, "changes", "log")
        self.lock_path = os.path.join(root, "lock")

    def prepare(self) -> None:
        """Create the folders (mode 0700)."""
        for name in ("changes", "objects", "pods", "hosts", "volumes", "claims", "nodes", "images"):
            os.makedirs(os.path.join(self.root, name), mode=0o700, exist_ok=True)

    def path(self, kind: str, name: str) -> str:
        """The file of an object.

        Raises:
            Refused: the name cannot be a file's name.
        """
        if not _is_name(name):
            raise Refused("metadata.name", f"{name!r} is no name of an object; use lower-case letters, digits, - and .")
        return os.path.join(self.root, "objects", kind, name)

    def get(self, kind: str, name: str) -> Object | None:
        """The object as last written, None where there is none.

        Raises:
            BrokenObjectError: its file holds no such object.
            Unavailable: the file cannot be read.
        """
        path = self.path(kind, name)
        try:
            with open(path, "rb") as file:
                return parse_object(file.read(), kind, name)
        except FileNotFoundError:
            return None
        except IsADirectoryError:
            problem = "a folder stands in its place"
        except (ValueError, RecursionError) as error:
            problem = str(error)
        except OSError as error:
            raise Unavailable(f"{path}: {error.strerror}") from error
        if self.on_broken is not None:
            self.on_broken()
        raise BrokenObjectError(kind, name, path, problem)

    def names(self, kind: str) -> list[str]:
        """Names of all objects of a kind, sorted."""
        return sorted(name for name in _listed(os.path.join(self.root, "objects", kind)) if _is_name(name))

    def kinds(self) -> list[str]:
        """Kinds of which there ever was an object, sorted."""
        return sorted(_listed(os.path.join(self.root, "objects")))

    def list(self, kind: str) -> list[Object]:
        """All objects of a kind, ordered by name."""
        found = (self.get(kind, name) for name in self.names(kind))
        return [item for item in found if item is not None]

    def _lock(self, descriptor: int) -> None:
        if self._lock_timeout_seconds is None:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            return
        deadline = time.monotonic() + self._lock_timeout_seconds
        pause = 0.0002
        # A lock cannot be waited for with a time limit; a writer holds it for a millisecond.
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise Unavailable(f"{self.lock_path} is held by another process that does not go on") from None
            time.sleep(pause)
            pause = min(0.01, pause * 1.5)

    @contextmanager
    def transaction(self) -> Generator[Transaction]:
        """Hold the store's lock: nobody else writes meanwhile. Each change is visible at once, not at the end.

        Raises:
            Unavailable: the lock cannot be had in time, or the folder cannot be written.
        """
        try:
            descriptor = os.open(self.lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise Unavailable(f"{self.lock_path}: {error.strerror}") from error
        try:
            self._lock(descriptor)
            change = Transaction(self, descriptor)
            try:
                yield change
            except OSError as error:
                raise Unavailable(f"{error.filename or self.root}: {error.strerror}") from error
            finally:
                change.close()
        finally:
            os.close(descriptor)


class Transaction:
    """What may be done under the lock; made by `Store.transaction`."""

    def __init__(self, store: Store, lock: int) -> None:
        self.store = store
        self._lock = lock
        self._log = os.open(store.log_path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            self.version = self._recover()
        except Unavailable:
            self.close()
            raise

    def close(self) -> None:
        """Give back the log's descriptor."""
        os.close(self._log)

    def get(self, kind: str, name: str) -> Object | None:
        """The object as it is now; nobody can change it before the transaction ends."""
        return self.store.get(kind, name)

    def put(self, manifest: Object) -> Object:
        """Write the object under a new version; returns it with that version."""
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        path = self.store.path(kind, name)
        self.version += 1
        manifest["metadata"]["resourceVersion"] = str(self.version)
        change = Change(self.version, "MODIFIED" if os.path.exists(path) else "ADDED", kind, name)
        content = json.dumps(manifest, separators=(",", ":")).encode()
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        self._announce(change)
        write_file(path, content)
        os.write(self._log, change.line())
        return manifest

    def remove(self, kind: str, name: str) -> None:
        """Delete the object; absent is fine."""
        path = self.store.path(kind, name)
        if not os.path.exists(path):
            return
        self.version += 1
        change = Change(self.version, "DELETED", kind, name)
        self._announce(change)
        os.rename(path, _tombstone(path))
        self._bury(change, path)

    def _bury(self, change: Change, path: str) -> None:
        with open(_tombstone(path), "rb") as file:
            change.payload = file.read().decode()
        os.write(self._log, change.line())
        os.unlink(_tombstone(path))

    def _announce(self, change: Change) -> None:
        os.pwrite(self._lock, change.line().ljust(HEADER_BYTES), 0)

    def _recover(self) -> int:
        """Finish the change that a killed writer left half done; returns the newest version."""
        header = os.pread(self._lock, HEADER_BYTES, 0).rstrip(b" ")
        if not header:
            return 0
        try:
            change = parse_change(header)
        except ValueError as error:
            raise Unavailable(f"{self.store.lock_path} holds no change: {error}") from error
        size = self._whole_lines()
        logged = last_version(self._log, size)
        path = self.store.path(change.kind, change.name)
        if logged < change.version:
            self._finish(change, path)
        elif size > ROTATE_BYTES:
            self._rotate(change)
        return change.version

    def _whole_lines(self) -> int:
        # A killed writer may leave part of a long line; it is written again with the same bytes.
        size = whole_size(self._log)
        if size < os.fstat(self._log).st_size:
            os.ftruncate(self._log, size)
        return size

    def _finish(self, change: Change, path: str) -> None:
        if change.type == "DELETED":
            if os.path.exists(path):
                os.rename(path, _tombstone(path))
            if os.path.exists(_tombstone(path)):
                self._bury(change, path)
                return
        os.write(self._log, change.line())

    def _rotate(self, last: Change) -> None:
        # The new log begins with the newest line, so that its last version is never behind the header.
        write_file(self.store.log_path, Change(last.version, "MODIFIED", last.kind, last.name).line())
        os.close(self._log)
        self._log = os.open(self.store.log_path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)


def _is_name(name: str) -> bool:
    return 0 < len(name) <= 240 and name[0] != "." and name.isascii() and name.isprintable() and "/" not in name


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise Unavailable(f"{folder}: {error.strerror}") from error


def _tombstone(path: str) -> str:
    return os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.deleted")
