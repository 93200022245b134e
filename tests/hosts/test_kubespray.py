"""Stories of a site's Kubespray, for which a stand-in speaks: ansible-runner and Ansible are real, hosts are files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from profiles.bootstrap.inventory import Bootstrap
from profiles.cluster import ClusterProfile
from profiles.errors import Conflict
from profiles.loading import load
from profiles.vocabulary import VerdictWord
from tasks.bootstrap.kubespray import KubesprayOutcome, KubespraySite, cancel, carry_out, in_words
from tasks.bootstrap.kubespray_events import KubesprayEvent, PlayBegan, TaskFailed
from tasks.bootstrap.kubespray_source import KubesprayCopy, take_copy
from tasks.processes import recorded
from tests.support.fakes.kubespray_copies import stand_in
from workflows.bootstrap import kubespray

pytestmark = pytest.mark.story

SECRET = "geheimes-wort"
DRIVER = """
import sys
from pathlib import Path
from profiles.cluster import ClusterProfile
from profiles.loading import load
from tasks.bootstrap.kubespray import KubespraySite, carry_out
from tasks.bootstrap.kubespray_events import TaskDone
from tasks.bootstrap.kubespray_source import KubesprayCopy
from workflows.bootstrap import kubespray
folder, copy = Path(sys.argv[1]), Path(sys.argv[2])
cluster = load.load_text(ClusterProfile, (folder / "cluster.yaml").read_text())
site = KubespraySite(cluster, KubesprayCopy(copy, Path(sys.prefix)), folder / "home")
def told(event):
    if not isinstance(event, TaskDone):
        print(event.place, flush=True)
carry_out(site, "up", kubespray.cluster_up(), told)
"""


class StandIn:
    """A site whose hosts are files in a folder."""

    def __init__(self, folder: Path, hosts: int = 4, **variables: Any) -> None:
        self.folder, self.hosts = folder, folder / "hosts"
        self.hosts.mkdir()
        said = {
            "hosts": {
                f"n{place}": {"address": f"192.0.2.{place + 11}", "role": "both" if place < 3 else "worker"}
                for place in range(hosts)
            },
            "endpoint": {"address": "192.0.2.10"},
            "mirror": {"files_url": "http://mirror.example.org/files"},
            "engine": {
                "kind": "kubespray",
                "source": {"url": "/nowhere", "commit": "a" * 40},
                "environment": sys.prefix,
                "version": "1.36.3",
                "variables": {
                    "ansible_connection": "local",
                    "ansible_become": False,
                    "ansible_python_interpreter": sys.executable,
                    "standin_folder": str(self.hosts),
                    "registry_password": SECRET,
                    **variables,
                },
            },
        }
        made = load.load_cluster("kubernetes-example")
        pools = (made.pools[-1].model_copy(update={"nodes": hosts}),)
        changes = {"bootstrap": Bootstrap.model_validate(said), "pools": pools}
        self.cluster: ClusterProfile = made.model_copy(update=changes)
        (folder / "cluster.yaml").write_text(load.dump(self.cluster))
        copy = KubesprayCopy(stand_in(folder / "copy"), Path(sys.prefix))
        self.site = KubespraySite(self.cluster, copy, folder / "home")
        assert self.cluster.bootstrap is not None
        self.bootstrap: Bootstrap = self.cluster.bootstrap
        self.told: list[KubesprayEvent] = []

    def carry_out(self, name: str, playbooks: Any, after: str = "") -> KubesprayOutcome:
        """An operation; what it tells is added to `told`."""
        return carry_out(self.site, name, playbooks, self.told.append, after)

    def on(self, host: str) -> list[str]:
        """What was done to a host."""
        path = self.hosts / host
        return path.read_text().splitlines() if path.exists() else []

    def kept(self) -> str:
        """All that stands in files of operations but the variables themselves."""
        files = (path for path in (self.folder / "home").rglob("*") if path.is_file() and path.name != "primus.yaml")
        return "\n".join(path.read_text(errors="replace") for path in files if "job_events" not in path.parts)


def test_a_cluster_comes_up_and_every_verb_speaks_to_its_playbook(tmp_path: Path) -> None:
    made = StandIn(tmp_path)
    outcome = made.carry_out("up", kubespray.cluster_up())
    assert (outcome.word, outcome.why) == (VerdictWord.PASS, "")
    assert [event.play for event in made.told if isinstance(event, PlayBegan)] == [
        "Prepare hosts",
        "Install Kubernetes",
    ]
    assert {host: told.failed for host, told in outcome.hosts.items()} == {f"n{place}": 0 for place in range(4)}
    assert in_words(made.told[-1]) == "4 hosts, failed: none"
    for name, playbooks in {
        "in": kubespray.node_in(made.bootstrap.control_planes, ["n3"]),
        "upgrade": kubespray.upgrade("1.36.4", list(made.bootstrap.hosts), at_once=2),
        "out": kubespray.node_out(["n3"], dead=True),
    }.items():
        assert made.carry_out(name, playbooks).word is VerdictWord.PASS, name
    assert made.on("n3") == ["prepared", "installed 1.36.3", "joined 1.36.3", "upgraded 1.36.4", "left dead"]
    assert made.on("n0") == ["prepared", "installed 1.36.3", "upgraded 1.36.4"]
    assert made.carry_out("up", kubespray.cluster_up()).word is VerdictWord.PASS
    assert made.on("n0")[:2] == ["prepared", "installed 1.36.3"], "an operation that ended is not carried out again"
    with pytest.raises(Conflict, match="give this one another name"):
        made.carry_out("up", kubespray.validation())


def test_a_failed_task_is_told_with_its_host_and_no_secret(tmp_path: Path) -> None:
    made = StandIn(tmp_path, standin_fails="n2")
    outcome = made.carry_out("up", kubespray.cluster_up())
    assert outcome.word is VerdictWord.FAIL
    assert outcome.why == (
        "n2: Download what the mirror has: GET http://mirror.example.org/files/kubelet as ***: 404 Not Found"
    )
    assert [event.host for event in made.told if isinstance(event, TaskFailed)] == ["n2"]
    assert outcome.hosts["n2"].failed == 1
    assert outcome.why_of("n2") == outcome.why
    # Where one host fails, the others stop, too: they are no nodes yet, whatever they did so far.
    assert outcome.why_of("n0") == outcome.why
    assert all(SECRET not in str(event) for event in made.told)


def test_its_own_validation_is_asked_without_a_host(tmp_path: Path) -> None:
    made = StandIn(tmp_path)
    assert made.carry_out("validation", kubespray.validation()).word is VerdictWord.PASS
    other = made.cluster.model_copy(
        update={"bootstrap": made.bootstrap.model_copy(update={"networks": made.bootstrap.networks.model_copy(
            update={"services": made.bootstrap.networks.pods})})}
    )  # fmt: skip
    site = KubespraySite(other, made.site.copy, tmp_path / "other")
    outcome = carry_out(site, "validation", kubespray.validation())
    assert outcome.word is VerdictWord.FAIL
    assert "kube_pods_subnet and kube_service_addresses overlap" in outcome.why
    assert made.on("n0") == []


@pytest.mark.parametrize("written_down", [True, False], ids=["known", "not-written-down"])
def test_a_new_driver_reads_on_where_a_dead_one_was(tmp_path: Path, written_down: bool) -> None:
    made = StandIn(tmp_path, standin_holds=True)
    root = Path(__file__).parents[2]
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(tmp_path), str(made.site.copy.folder)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    assert driver.stdout is not None
    places = [driver.stdout.readline().strip() for _ in range(3)]  # prepare began and ended, install began
    os.kill(driver.pid, signal.SIGKILL)
    assert driver.wait() == -signal.SIGKILL
    driver.stdout.close()
    pid_file = tmp_path / "home" / "up" / "01" / "runner.json"
    running = recorded(pid_file)
    assert running is not None, "ansible-runner ended with its driver"
    if not written_down:  # the driver died between the start and this file
        pid_file.unlink()
    (made.hosts / "go").touch()
    outcome = made.carry_out("up", kubespray.cluster_up(), after=places[-1])
    assert outcome.word is VerdictWord.PASS
    assert json.loads(pid_file.read_text())["pid"] == running.pid, "it was started twice"
    assert [event.place for event in made.told] == sorted(event.place for event in made.told)
    assert min(event.place for event in made.told) > places[-1]
    assert not [event for event in made.told if isinstance(event, PlayBegan)], "what was told is told again"
    assert [made.on(f"n{place}") for place in range(4)] == [["prepared", "installed 1.36.3"]] * 4


def test_a_killed_ansible_runner_is_unknown_and_a_cancelled_one_ends(tmp_path: Path) -> None:
    made = StandIn(tmp_path, hosts=3, standin_holds=True)

    def kill(event: KubesprayEvent) -> None:
        if isinstance(event, PlayBegan) and event.play == "Install Kubernetes":
            running = recorded(tmp_path / "home" / "killed" / "01" / "runner.json")
            assert running is not None
            os.killpg(running.pid, signal.SIGKILL)

    outcome = carry_out(made.site, "killed", kubespray.cluster_up(), kill)
    assert outcome.word is VerdictWord.UNKNOWN
    assert outcome.why.startswith("ansible-runner left no word of how it ended")

    def end(event: KubesprayEvent) -> None:
        if isinstance(event, PlayBegan) and event.play == "Install Kubernetes":
            assert cancel(made.site, "cancelled")

    outcome = carry_out(made.site, "cancelled", kubespray.cluster_up(), end)
    assert outcome.word is not VerdictWord.PASS
    assert made.on("n0") == ["prepared", "prepared"]
    assert not cancel(made.site, "cancelled")


def test_secrets_stand_in_the_variables_alone(tmp_path: Path) -> None:
    made = StandIn(tmp_path, hosts=3)
    seen: list[str] = []

    def look(event: KubesprayEvent) -> None:
        del event
        for process in Path("/proc").iterdir():
            if process.name.isdigit():
                try:
                    words = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
                except OSError:
                    continue
                if str(tmp_path).encode() in words:
                    seen.append(words.decode(errors="replace"))

    assert carry_out(made.site, "up", kubespray.cluster_up(), look).word is VerdictWord.PASS
    assert seen, "nothing was seen of the processes"
    assert not any(SECRET in words for words in seen)
    assert SECRET not in made.kept()
    variables = tmp_path / "home" / "up" / "inventory" / "group_vars" / "all" / "primus.yaml"
    assert SECRET in variables.read_text()
    assert variables.stat().st_mode & 0o077 == 0


def test_the_sites_own_copy_accepts_our_files(tmp_path: Path) -> None:
    """`make bootstrap-kubespray`: a real copy, taken by its commit, its range compared, its own validation asked."""
    path, commit = os.environ.get("PRIMUS_KUBESPRAY", ""), os.environ.get("PRIMUS_KUBESPRAY_COMMIT", "")
    if not path or not commit:
        pytest.skip("PRIMUS_KUBESPRAY (a checkout) and PRIMUS_KUBESPRAY_COMMIT are not set")
    made = StandIn(tmp_path)
    environment = os.environ.get("PRIMUS_KUBESPRAY_ENVIRONMENT", sys.prefix)
    version = os.environ.get("PRIMUS_KUBESPRAY_VERSION", "1.36.3")
    said = {"kind": "kubespray", "source": {"url": path, "commit": commit}, "environment": environment}
    engine = Bootstrap.model_validate(made.bootstrap.model_dump() | {"engine": {**said, "version": version}}).engine
    assert engine.kind == "kubespray"
    cluster = made.cluster.model_copy(update={"bootstrap": made.bootstrap.model_copy(update={"engine": engine})})
    site = KubespraySite(cluster, take_copy(engine, tmp_path / "copies"), tmp_path / "operations")
    outcome = carry_out(site, "validation", kubespray.validation(), lambda event: print(in_words(event)))
    assert outcome.word is VerdictWord.PASS, outcome.why
