"""What a container sees: planned on a made-up host, then real under each kind of namespace, and without any."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from profiles.errors import Refused
from tasks.embedded.runtime.mounts import Host, Mount, View
from tests.support.cases.rows import rows
from tests.support.harness.embedded_stage import cluster, ended, pod, spec

ROOT = Path(__file__).parents[3]


class MadeUpHost(Host):
    """A host of which only these paths exist: a folder, a file, or a link to somewhere."""

    def __init__(self, tree: dict[str, str]) -> None:
        self.tree = {"/": "dir", **tree}

    def entries(self, path: str) -> list[str]:
        prefix = path.rstrip("/") + "/"
        inside = [one.removeprefix(prefix) for one in self.tree if one.startswith(prefix) and one != "/"]
        return sorted(name for name in inside if name and "/" not in name)

    def link(self, path: str) -> str | None:
        return self.tree.get(path, "").removeprefix("->") if self.tree.get(path, "").startswith("->") else None

    def kind(self, path: str) -> str:
        found = self.tree.get(path, "")
        return self.kind(found.removeprefix("->")) if found.startswith("->") else found


TREE = {
    "/usr": "dir", "/usr/bin": "dir", "/usr/bin/sh": "file", "/usr/share": "dir", "/bin": "->usr/bin", "/etc": "dir",
    "/etc/hosts": "file", "/tmp": "dir", "/dev": "dir", "/dev/null": "file", "/dev/tty7": "file", "/var": "dir",
    "/var/run": "->/run", "/run": "dir", "/data": "dir", "/data/set": "dir", "/data/link": "->set", "/v": "dir",
}  # fmt: skip


def view(*mounts: Mount, **tree: str) -> View:
    made = View("/life", MadeUpHost({**TREE, **tree}))
    made.add(mounts)
    return made


def at(made: View, kind: str) -> list[str]:
    return [operation[-1].removeprefix("/life/root") for operation in made.operations if operation[0] == kind]


def test_the_host_is_bound_and_its_links_are_copied() -> None:
    made = view()
    assert set(at(made, "try-bind")) == {"/usr", "/etc", "/var", "/run", "/data", "/v"}
    assert ("link", "/life/root/bin", "usr/bin") in made.operations
    assert ("link", "/life/root/dev/null", "/dev/.host/null") in made.operations
    assert not any("tty7" in str(operation) for operation in made.operations)
    assert ("bind", "/life/tmp", "/life/root/tmp") in made.operations


@rows("embedded/mounts")
def test_a_mount_point_is_made_without_touching_the_host(target: str, bound: str, replaced: list[str]) -> None:
    made = view(Mount("/source", target))
    assert ("bind", "/source", "/life/root" + bound) in made.operations
    assert [path for path in at(made, "tmpfs") if path != "/dev"] == replaced
    for operation in made.operations:
        if operation[0] in ("dir", "file"):
            assert operation[1].startswith("/life/"), operation
    assert made.locate(target + "/inside") == "/source/inside"


def test_what_a_replaced_folder_held_is_still_there() -> None:
    made = view(Mount("/source", "/data/new"))
    assert {"/data/set"} <= set(at(made, "try-bind"))
    assert ("link", "/life/root/data/link", "set") in made.operations
    assert made.locate("/data/set/x") == "/data/set/x"
    assert made.locate("/data/link/x") == "/data/set/x"


def test_mounts_nest_whatever_their_order() -> None:
    inner, outer = Mount("/inner", "/m/a/b"), Mount("/v", "/m/a", read_only=True)
    for order in ((inner, outer), (outer, inner)):
        made = view(*order, **{"/v/b": "dir"})
        binds = [operation for operation in made.operations if operation[0] in ("bind", "bind-ro")]
        assert binds[-2:] == [("bind-ro", "/v", "/life/root/m/a"), ("bind", "/inner", "/life/root/m/a/b")]
        assert made.locate("/m/a/b/c") == "/inner/c"
        assert made.locate("/m/a/c") == "/v/c"


def test_files_are_mounted_over_files() -> None:
    made = view(Mount("/hosts", "/etc/hosts", is_file=True), Mount("/term", "/dev/termination-log", is_file=True))
    assert ("bind", "/hosts", "/life/root/etc/hosts") in made.operations
    assert ("file", "/life/root/dev/termination-log") in made.operations
    assert made.locate("/dev/termination-log") == "/term"


@rows("embedded/mounts")
def test_where_a_path_lies(path: str, behind: str) -> None:
    assert view().locate(path) == behind


def test_links_that_a_program_made_are_followed_inside_and_circles_end() -> None:
    tree = {"/life/tmp/l": "->/x", "/life/root/x": "->/tmp/y", "/life/tmp/c": "->/tmp/c"}
    assert view(**tree).locate("/tmp/l") == "/life/tmp/y"
    assert view(**tree).locate("/tmp/c/z")


SCRIPT = """
set -e
echo kept > $PRIMUS_FOLDER_DATA/kept
echo $PRIMUS_FOLDER_DATA $(id -u) > $TERM_LOG
test -e /etc/hosts
grep -q $HOSTNAME $PRIMUS_HOSTS_FILE
echo private > ${TMPDIR:-/tmp}/private
"""


def probe(name: str) -> dict[str, Any]:
    env = [
        {"name": "PRIMUS_FOLDER_DATA", "value": "/not/on/host"},
        {"name": "WHERE", "value": "$(PRIMUS_FOLDER_DATA)/kept"},
        {"name": "TERM_LOG", "value": "$(PRIMUS_TERMINATION_LOG)"},
    ]
    mounts = [{"name": "data", "mountPath": "/not/on/host"}, {"name": "shm", "mountPath": "/dev/shm"}]
    volumes: list[dict[str, Any]] = [
        {"name": "data", "emptyDir": {}},
        {"name": "shm", "emptyDir": {"medium": "Memory"}},
    ]
    metadata = {"annotations": {"primus-flows.io/outputs": '{"kept": "/not/on/host/kept"}'}}
    script = f'{SCRIPT}\ntest "$0" = $PRIMUS_FOLDER_DATA/kept; test "$WHERE" = "$0"'
    container = {"env": env, "volumeMounts": mounts, "args": ["$(WHERE)"]}
    return pod(name, "sh", "-c", script, container=container, volumes=volumes, metadata=metadata)


@pytest.mark.parametrize("namespaces", ["auto", "user", "never"])
def test_our_own_programs_run_with_and_without_namespaces(tmp_path: Path, namespaces: str) -> None:
    with cluster(tmp_path / "cluster", spec(namespaces=namespaces)) as one:
        one.apply(probe("probe"))
        found = ended(one, "probe")
        assert found["status"]["phase"] == "Succeeded", (one.logs("probe"), found["status"])
        assert (one.volume_path("probe", "data") / "kept").read_text() == "kept\n"
        annotations = found["metadata"]["annotations"]
        assert annotations["primus-flows.io/output-values"] == '{"outputs": {"kept": "kept\\n"}, "result": null}'
        message = found["status"]["containerStatuses"][0]["state"]["terminated"]["message"].split()
        real = str(one.volume_path("probe", "data"))
        assert message == [real if namespaces == "never" else "/not/on/host", str(os.getuid())]


def test_a_mount_that_needs_a_namespace_is_refused_by_its_path(tmp_path: Path) -> None:
    volumes: list[dict[str, Any]] = [{"name": "my-data", "emptyDir": {}}]
    container = {"volumeMounts": [{"name": "my-data", "mountPath": "/data"}]}
    manifest = pod("p", "true", container=container, volumes=volumes)
    template: dict[str, Any] = {
        "name": "t",
        "container": {"image": "a", "command": ["true"], **container},
        "volumes": volumes,
    }
    workflow: dict[str, Any] = {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": "w"},
        "spec": {"entrypoint": "t", "templates": [template]},
    }
    with cluster(tmp_path / "cluster", spec(namespaces="never")) as one:
        with pytest.raises(Refused, match="PRIMUS_FOLDER_MY_DATA") as refused:
            one.apply(manifest)
        assert refused.value.path == "spec.containers[0].volumeMounts[0]"
        with pytest.raises(Refused) as refused:
            one.apply(workflow)
        assert refused.value.path == "spec.templates[0].container.volumeMounts[0]"
        assert one.list("Pod") == []


ORDINARY_USER = ["unshare", "--user", "--map-user=1000", "--map-group=1000"]
"""Runs a program as user 1000 without any capability, owning what the caller owns."""


def _can_be_ordinary() -> bool:
    return shutil.which("unshare") is not None and subprocess.run([*ORDINARY_USER, "true"], check=False).returncode == 0


@pytest.mark.skipif(not _can_be_ordinary(), reason="this machine allows no user namespaces")
def test_nothing_needs_root(tmp_path: Path) -> None:
    tests = [str(Path(__file__)), "-k", "own_programs and auto", f"--basetemp={tmp_path / 'inner'}"]
    argv = [*ORDINARY_USER, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
