"""The site's own copy of Kubespray: taken by what pins it, compared, and held against the Ansible that is to run it.

Nothing of it comes with the product. What is pinned cannot change under one's hands: a commit is compared after it was
fetched, an archive before it is unpacked, an image is named by its digest.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
import urllib.request
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import yaml
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from profiles.bootstrap.engines import ArchiveSource, GitSource, ImageSource, Kubespray
from profiles.errors import Refused, Unavailable

RUNTIMES = ("podman", "docker")
IN_THE_IMAGE = Path("/kubespray")
"""Where Kubespray's own image has it."""
GIT_SECONDS, ARCHIVE_SECONDS, ANSIBLE_SECONDS = 900.0, 900.0, 60.0
GIT_ENVIRONMENT = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ALLOW_PROTOCOL": "file:https:http:ssh:git",
    "LC_ALL": "C.UTF-8",
}
"""Nothing of a person's configuration: no hooks, no other URLs, no question that nobody sees."""
VALIDATION = "roles/validate_inventory/tasks/main.yml"
CHECKSUMS = (
    "roles/kubespray_defaults/vars/main/checksums.yml",
    "roles/kubespray-defaults/defaults/main/checksums.yml",
)
_CORE = re.compile(r"ansible \[core ([^\]]+)\]")
_WHICH = "bootstrap.engine.source"


@dataclass(frozen=True)
class KubesprayCopy:
    """A copy, and what runs it."""

    folder: Path
    """Where it lies; in an image: there."""
    environment: Path | None
    """Of the Ansible that runs it; None: the image has its own."""
    image: str = ""
    """With its digest."""
    runtime: str = ""
    """Program that runs the image."""

    @property
    def removed(self) -> frozenset[str]:
        """Variables that it refuses because they are gone; of an image that is known only to itself."""
        return frozenset() if self.image else removed_variables(self.folder)


def take_copy(engine: Kubespray, home: Path) -> KubesprayCopy:
    """The copy that the profile pins, below `home`, taken where it is not there yet; its Ansible is compared.

    Raises:
        Refused: it is not what the profile says, there is no runtime for an image, its Ansible lies outside of what it
            accepts, or it does not know the version of Kubernetes.
        Unavailable: it cannot be fetched.
    """
    match engine.source:
        case ImageSource(image=image, digest=digest):
            runtime = next((name for name in RUNTIMES if shutil.which(name)), "")
            if not runtime:
                need = (
                    f"an image needs {' or '.join(RUNTIMES)} here, and neither is: install one, or name git or archive"
                )
                raise Refused(f"{_WHICH}.image", need)
            return KubesprayCopy(IN_THE_IMAGE, None, f"{image}@{digest}", runtime)
        case GitSource() as git:
            folder = _from_git(git, home / git.commit)
        case ArchiveSource() as archive:
            folder = _from_archive(archive, home / archive.sha256)
    environment = Path(engine.environment)
    refuse_misfits(folder, environment, engine.version)
    return KubesprayCopy(folder, environment)


def refuse_misfits(folder: Path, environment: Path, version: str) -> None:
    """Compare what the copy accepts with what is there, before anything runs.

    Raises:
        Refused: Ansible is missing or outside its range, or the version of Kubernetes is unknown to it.
    """
    found, accepted = ansible_version(environment), accepted_ansible(folder)
    if found not in accepted:
        need = f"has ansible-core {found}, and this copy of Kubespray accepts {accepted}: make an environment with that"
        raise Refused("bootstrap.engine.environment", f"{environment} {need}")
    known = known_versions(folder)
    if known and version not in known:
        newest = ", ".join(sorted(known, key=Version)[-6:])
        raise Refused("bootstrap.engine.version", f"{version} is not known to this copy; the newest it knows: {newest}")


def accepted_ansible(folder: Path) -> SpecifierSet:
    """Which versions of ansible-core a copy says it runs on, in both places where it does.

    Raises:
        Refused: it says none: this is no copy of Kubespray.
    """
    said = [str(_read(folder / "meta" / "runtime.yml").get("requires_ansible") or "")]
    for play in _plays(folder / "playbooks" / "ansible_version.yml"):
        told = play.get("vars")
        limits: Mapping[str, object] = cast("dict[str, object]", told) if isinstance(told, dict) else {}
        least, most = limits.get("minimal_ansible_version"), limits.get("maximal_ansible_version")
        said += [f">={least}"] if least else []
        said += [f"<{most}"] if most else []  # as the copy itself compares it
    try:
        accepted = SpecifierSet(",".join(part for part in said if part))
    except InvalidSpecifier as error:
        raise Refused(_WHICH, f"says which Ansible it accepts in words that mean nothing: {error}") from error
    if not str(accepted):
        missing = "neither meta/runtime.yml nor playbooks/ansible_version.yml says which Ansible it accepts"
        raise Refused(_WHICH, f"{missing}: is this Kubespray?")
    return accepted


def ansible_version(environment: Path) -> Version:
    """Of the ansible-core in an environment.

    Raises:
        Refused: there is none that answers.
    """
    program = environment / "bin" / "ansible"
    try:
        ended = subprocess.run(
            [str(program), "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env={"PATH": f"{program.parent}{os.pathsep}{os.defpath}", "HOME": str(environment), "LC_ALL": "C.UTF-8"},
            cwd="/",
            timeout=ANSIBLE_SECONDS,
            check=False,
        )
        return Version(_CORE.findall(ended.stdout.decode("utf-8", "replace"))[0])
    except (OSError, subprocess.TimeoutExpired, IndexError, InvalidVersion) as error:
        need = f"{program} --version says no version of ansible-core ({type(error).__name__}): install it there"
        raise Refused("bootstrap.engine.environment", need) from error


def known_versions(folder: Path) -> frozenset[str]:
    """Versions of Kubernetes whose checksums a copy has; empty: it keeps them elsewhere."""
    for place in CHECKSUMS:
        by_machine = _read(folder / place).get("kubelet_checksums")
        if isinstance(by_machine, dict):
            tables = cast("dict[str, object]", by_machine).values()
            names = {str(name) for table in tables if isinstance(table, dict) for name in cast("dict[Any, Any]", table)}
            return frozenset(name.removeprefix("v") for name in names)
    return frozenset()


def removed_variables(folder: Path) -> frozenset[str]:
    """Variables that a copy's validation refuses because they are gone."""
    told = (play.get("vars") for play in _plays(folder / VALIDATION))
    lists = (cast("dict[str, object]", one).get("removed_vars") for one in told if isinstance(one, dict))
    return frozenset(str(name) for names in lists if isinstance(names, list) for name in cast("list[object]", names))


def _read(path: Path) -> Mapping[str, Any]:
    data = _yaml(path)
    return cast("dict[str, Any]", data) if isinstance(data, dict) else {}


def _plays(path: Path) -> list[Mapping[str, Any]]:
    data = _yaml(path)
    plays = cast("list[object]", data) if isinstance(data, list) else []
    return [cast("dict[str, Any]", play) for play in plays if isinstance(play, dict)]


def _yaml(path: Path) -> object:
    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - both are safe
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return None


# Taking it.


def _from_git(source: GitSource, folder: Path) -> Path:
    """The commit, checked out and untouched."""
    if _is_untouched(folder, source.commit):
        return folder
    with _draft(folder) as draft:
        _git(draft, "init", "--quiet", ".")
        # A server may hand out single commits or not: then all that it has.
        if _git(draft, "fetch", "--quiet", "--depth=1", "--", source.url, source.commit, may_fail=True):
            everything = ("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
            if why := _git(draft, "fetch", "--quiet", "--update-head-ok", "--", source.url, *everything, may_fail=True):
                raise Unavailable(f"{source.url} cannot be fetched: {why}", 30.0)
        if _git(draft, "checkout", "--quiet", "--detach", source.commit, may_fail=True):
            raise Refused(f"{_WHICH}.commit", f"{source.commit} is no commit of {source.url}: name one that it has")
        if not _is_untouched(draft, source.commit):
            raise Refused(f"{_WHICH}.commit", f"what {source.url} sent is not {source.commit}")
    return folder


def _is_untouched(folder: Path, commit: str) -> bool:
    """Whether the folder holds this commit, all of it and nothing else."""
    if not (folder / ".git").is_dir():
        return False
    head = _output(folder, "rev-parse", "--verify", "HEAD^{commit}")
    return head == commit and _output(folder, "status", "--porcelain") == ""


def _from_archive(source: ArchiveSource, folder: Path) -> Path:
    """The archive, compared before it is unpacked."""
    if folder.is_dir():
        return _root_of(folder)
    with _draft(folder) as draft:
        path = draft.parent / f"{draft.name}.tar"
        try:
            _fetch(source.archive, path)
            found = _sha256(path)
            if found != source.sha256:
                raise Refused(f"{_WHICH}.sha256", f"{source.archive} has {found}: another archive than the profile's")
            with tarfile.open(path) as archive:
                archive.extractall(draft, filter="data")
        except (OSError, tarfile.TarError) as error:
            raise Unavailable(f"{source.archive} cannot be unpacked: {error}", 30.0) from error
        finally:
            path.unlink(missing_ok=True)
    return _root_of(folder)


def _root_of(folder: Path) -> Path:
    """Archives of releases have one folder in which everything lies."""
    inside = list(folder.iterdir())
    return inside[0] if len(inside) == 1 and inside[0].is_dir() else folder


def _fetch(where: str, path: Path) -> None:
    if where.startswith(("http://", "https://")):
        with urllib.request.urlopen(where, timeout=ARCHIVE_SECONDS) as answer, path.open("wb") as file:  # noqa: S310
            shutil.copyfileobj(answer, file)
    else:
        shutil.copyfile(Path(where).expanduser(), path)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _draft(folder: Path) -> Generator[Path]:
    """A folder beside it that takes its place at the end; nobody ever sees half of a copy."""
    try:
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{folder.name[:12]}-", dir=folder.parent))
    except OSError as error:
        raise Unavailable(f"{folder.parent} cannot be written: {error.strerror}", 30.0) from error
    try:
        yield draft
        old = draft.with_suffix(".old")
        if folder.exists():
            folder.rename(old)
        draft.rename(folder)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _git(folder: Path, *words: str, may_fail: bool = False) -> str:
    """Why git failed; "" where it did not."""
    try:
        ended = _ended(folder, words)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"git cannot be run: {error}", 30.0) from error
    why = "" if ended.returncode == 0 else " ".join(ended.stderr.decode("utf-8", "replace").split()) or "it failed"
    if why and not may_fail:
        raise Unavailable(f"git {words[0]} failed: {why}", 30.0)
    return why


def _output(folder: Path, *words: str) -> str | None:
    try:
        ended = _ended(folder, words)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return ended.stdout.decode("utf-8", "replace").strip() if ended.returncode == 0 else None


def _ended(folder: Path, words: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "SSH_AUTH_SOCK") if name in os.environ}
    safe = ["-c", "safe.directory=*", "-c", "core.hooksPath=/dev/null", "-c", "advice.detachedHead=false"]
    return subprocess.run(
        ["git", *safe, *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env={**kept, **GIT_ENVIRONMENT},
        cwd=folder,
        timeout=GIT_SECONDS,
        check=False,
    )
