"""Compile every program of the bed from Go modules at exact versions, two families at a time.

A component that is done has a stamp; a build that was interrupted goes on with the next one. Where Go's own caches are
warm the whole takes seconds, from nothing about a quarter of an hour on two cores.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.bed import debian, prebuilt, versions
from tests.bed.layout import MODULES, Cache, stamp_name

HEARTBEAT_S = 30.0


class BuildError(Exception):
    """A component could not be built; says which, why and where its log is."""


@dataclass(frozen=True)
class Component:
    """One binary: its module folder, what is compiled there, and what is written into it."""

    name: str
    family: str
    package: str = "."
    flags: str = ""
    added: str = ""
    """Its own folder of modules, where that is none of those after which the cache is named."""

    @property
    def stamp(self) -> str:
        """The file that says that it is built."""
        return stamp_name(self.name, self.added)


def components() -> list[list[Component]]:
    """Families in the order of their cost, so that two at a time end close together."""
    kubernetes, argo = versions.version(versions.KUBERNETES), versions.version(versions.ARGO)
    major, minor, _ = kubernetes.lstrip("v").split(".")
    said = {"gitVersion": kubernetes, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    stamps = " ".join(
        f"-X {package}.{key}={value}"
        for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
        for key, value in said.items()
    )
    argo_flags = f"-X {versions.ARGO}.version={argo}"
    return [
        [Component("bed", "kubernetes", flags=stamps)],
        [
            Component(name, "argo", f"{versions.ARGO}/cmd/{name}", argo_flags)
            for name in ("workflow-controller", "argoexec")
        ]
        + [Component("validate", "argo", "../validate/main.go", added="validate")],
        [
            Component("jobset", "controllers", versions.JOBSET),
            Component("kueue", "controllers", f"{versions.KUEUE}/cmd/kueue"),
            Component("kwok", "controllers", f"{versions.KWOK}/cmd/kwok"),
        ],
        [Component("dns", "dns")],
        [Component("pause", "pause")],
    ]


def optional() -> list[Component]:
    """What is compiled only for who asks for it."""
    manager = f"{versions.TRAINER}/cmd/trainer-controller-manager"
    return [Component("trainer", "trainer", manager, added="trainer")]


class Progress:
    """Prints who began, who is done, and every half minute who is still at it."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self._open: dict[str, float] = {}
        self._lock = threading.Lock()
        self._over = threading.Event()

    def say(self, words: str) -> None:
        """One line with the seconds since the start."""
        sys.stdout.write(f"[{time.monotonic() - self.began:6.1f} s] {words}\n")  # one write: two lanes print
        sys.stdout.flush()

    def enter(self, name: str) -> None:
        """A component begins."""
        with self._lock:
            self._open[name] = time.monotonic()
        self.say(f"{name}: compiling")

    def leave(self, name: str) -> float:
        """A component ends; returns its seconds."""
        with self._lock:
            return time.monotonic() - self._open.pop(name)

    def beat(self) -> None:
        """Runs in a thread of its own until `stop`."""
        while not self._over.wait(HEARTBEAT_S):
            with self._lock:
                still = [f"{name} for {time.monotonic() - since:.0f} s" for name, since in self._open.items()]
            if still:
                self.say("still compiling: " + ", ".join(still))

    def stop(self) -> None:
        """No more lines."""
        self._over.set()


def go(where: Path, *arguments: str) -> list[str]:
    """A command line for Go in `where`: politely, other work shares the machine."""
    return ["nice", "-n", "10", "go", "-C", str(where), *arguments]


def environment() -> dict[str, str]:
    """No C, no other toolchain than the one installed; proxies stay as the machine has them."""
    return {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local"}


def built(cache: Cache, component: Component) -> bool:
    """Has its stamp, and its file is still there."""
    return (cache.stamps / component.stamp).exists() and (cache.binaries / component.name).exists()


def argo_source(cache: Cache) -> None:
    """Argo's module as a folder of its own, one symbolic link restored.

    In its repository `signal_linux.go` links to `signal_darwin.go`; module archives carry no links, so argoexec does
    not compile from the module. Go refuses overlays over its module cache, hence the copy.
    """
    target = cache.sources / "argo-workflows"
    if target.exists():
        return
    # Asked outside of the module folder: inside, its replace line leads to the copy that is not there yet.
    wanted = f"{versions.ARGO}@{versions.version(versions.ARGO)}"
    asked = subprocess.run(
        go(cache.sources, "mod", "download", "-json", wanted),
        env={**environment(), "GOWORK": "off"},
        capture_output=True,
        text=True,
        check=False,
    )
    if asked.returncode != 0:
        raise BuildError(f"argo: cannot download {wanted}: {asked.stdout}{asked.stderr}")
    half = cache.sources / "argo-workflows.half"
    shutil.rmtree(half, ignore_errors=True)
    shutil.copytree(json.loads(asked.stdout)["Dir"], half)
    for path in [half, *half.rglob("*")]:
        path.chmod(path.stat().st_mode | 0o200)
    (half / "workflow/executor/osspecific/signal_linux.go").symlink_to("signal_darwin.go")
    half.rename(target)


def compile_one(cache: Cache, component: Component, progress: Progress) -> None:
    """Compile and stamp one; BuildError with the end of the compiler's words."""
    progress.enter(component.name)
    log = cache.logs / f"{component.name}.log"
    half = cache.binaries / f".{component.name}.half"
    # The linker leaves debugging out (-w); a compiler that does not make it either took an eighth less of a processor
    # for CoreDNS.
    lean = ("-trimpath", "-buildvcs=false", "-gcflags=all=-dwarf=false")
    arguments = ("build", *lean, "-o", str(half), "-ldflags", f"-s -w {component.flags}")
    with log.open("wb") as words:
        done = subprocess.run(
            go(cache.sources / component.family, *arguments, component.package),
            env=environment(),
            stdout=words,
            stderr=words,
            check=False,
        )
    took_s = progress.leave(component.name)
    if done.returncode != 0:
        tail = log.read_text(errors="replace")[-2000:]
        raise BuildError(f"{component.name} did not compile (exit {done.returncode}); all of it: {log}\n{tail}")
    half.rename(cache.binaries / component.name)
    if component.name == "bed":
        cache.link_components()
    cache.stamp(component.stamp, component.added, took_s)
    progress.say(f"{component.name}: built in {took_s:.0f} s")


def missing(cache: Cache, everything: bool = False) -> list[list[Component]]:
    """What has no stamp yet, by family; `everything`: also what only single tests ask for."""
    families = [*components(), optional()] if everything else components()
    left = ([one for one in family if not built(cache, one)] for family in families)
    return [family for family in left if family]


def have(cache: Cache, name: str) -> Path:
    """One program; where it is not there it is taken from its archive, or compiled."""
    every = [*(component for family in components() for component in family), *optional()]
    [wanted] = [component for component in every if component.name == name]
    progress = Progress()
    if not built(cache, wanted):
        prebuilt.take(cache, [prebuilt.holding(name)], progress.say)
    if not built(cache, wanted):
        debian.need_go()
        build(cache, [[wanted]], progress)
    return cache.binaries / name


def copy_sources(cache: Cache) -> None:
    """The module folders, where Go may write into them."""
    shutil.copytree(MODULES, cache.sources, dirs_exist_ok=True)


def build(cache: Cache, families: list[list[Component]], progress: Progress) -> None:
    """Compile what is missing; one family after the other in each of two lanes, the first failure is raised."""
    copy_sources(cache)
    if any(family[0].family == "argo" for family in families):
        argo_source(cache)
    beat = threading.Thread(target=progress.beat, daemon=True)
    beat.start()
    try:
        with ThreadPoolExecutor(max_workers=2) as lanes:
            jobs = [lanes.submit(build_family, cache, family, progress) for family in families]
        for job in jobs:
            job.result()
    finally:
        progress.stop()


def build_family(cache: Cache, family: list[Component], progress: Progress) -> None:
    """One lane's work, one component after the other: they share what is compiled."""
    for component in family:
        compile_one(cache, component, progress)


def times(cache: Cache) -> Iterator[tuple[str, float]]:
    """(component, seconds of its last compile) for what is stamped."""
    for family in components():
        for component in family:
            stamp = cache.stamps / component.stamp
            if stamp.exists():
                yield component.name, float(stamp.read_text())


def module_folder(cache: Cache, module: str) -> Path:
    """Where Go keeps a module's files; it is downloaded where nothing was compiled from it here."""
    if module == versions.ARGO:
        argo_source(cache)
        return cache.sources / "argo-workflows"
    return module_files(cache.sources / versions.FOLDERS[module], module)


def module_files(where: Path, module: str) -> Path:
    """Where Go keeps the files of a module that the `go.mod` in `where` requires; it is downloaded where it must be."""
    asked = subprocess.run(
        go(where, "mod", "download", "-json", module), env=environment(), capture_output=True, text=True, check=False
    )
    if asked.returncode != 0:
        raise BuildError(f"cannot download {module}: {asked.stdout}{asked.stderr}")
    return Path(json.loads(asked.stdout)["Dir"])
