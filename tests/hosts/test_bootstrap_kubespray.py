"""Stories of `primus bootstrap` with Kubespray, for which a stand-in speaks: loop, Ansible and files are real."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flows import bootstrap
from flows.building.work import BootstrapOutcome
from profiles.bootstrap.request import BootstrapRequest
from profiles.cluster import ClusterProfile
from profiles.errors import ProfileError, Refused
from profiles.loading import load
from tasks.context import World, standing_in
from tasks.ledger.ledger import Ledger
from tasks.settings import Settings
from tests.support.fakes.kubespray_copies import archive_of, repository_of
from tests.support.fakes.kubespray_hosts import SECRET, FileHosts, stand_in_profile

pytestmark = pytest.mark.story

Json = dict[str, Any]
NAMES = ("n0", "n1", "n2", "n3")
DRIVER = """
import sys
from pathlib import Path
import pytest
from flows import bootstrap
from profiles.bootstrap.request import BootstrapRequest
from profiles.cluster import ClusterProfile
from profiles.loading import load
from tasks.context import at_hand
from tasks.settings import Settings
from tests.support.fakes.kubespray_hosts import FileHosts
folder = Path(sys.argv[1])
FileHosts(folder / "hosts").put_in(pytest.MonkeyPatch().setattr)
profile = load.load_text(ClusterProfile, (folder / "made.yaml").read_text())
with at_hand(Settings.from_environment({"PRIMUS_HOME": str(folder / "home")})):
    bootstrap.carry_through(profile, BootstrapRequest(cluster="made"), lambda line: print(line, flush=True))
"""


class Site:
    """A site with four hosts and a copy of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.hosts = folder, FileHosts(folder / "hosts")
        path, commit = repository_of(folder / "copy")
        self.source: Json = {"url": str(path), "commit": commit}
        self.told: list[str] = []
        self.kubeconfig = folder / "kubeconfig"

    def profile(self, **fields: Any) -> ClusterProfile:
        """`version`, or variables of the stand-in."""
        kept = {"kubeconfig": str(self.kubeconfig)}
        made: ClusterProfile = stand_in_profile(self.hosts.folder, self.source, **kept, **fields)
        return made

    def carried(
        self, profile: ClusterProfile | None = None, hear: Callable[[str], None] | None = None, **fields: Any
    ) -> BootstrapOutcome:
        """What `primus bootstrap` comes to; what it tells is in `told`."""
        self.told = []

        def tell(line: str) -> None:
            self.told.append(line)
            if hear is not None:
                hear(line)

        return bootstrap.carry_through(profile or self.profile(), BootstrapRequest(cluster="made", **fields), tell)

    def operations(self) -> list[str]:
        """Names of all operations so far, without their fingerprints."""
        folder = self.folder / "home" / "kubespray" / "operations" / "made"
        return [path.name.rpartition("-")[0] for path in sorted(folder.iterdir())] if folder.exists() else []

    def playbooks(self) -> list[tuple[str, list[str]]]:
        """Of the newest operation, each with its limit."""
        folder = self.folder / "home" / "kubespray" / "operations" / "made"
        written = json.loads((max(folder.iterdir()) / "operation.json").read_text())
        return [(one["playbook"], one["limit"]) for one in written]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    made = Site(tmp_path)
    made.hosts.put_in(monkeypatch.setattr)
    return made


@pytest.fixture(autouse=True)
def here(tmp_path: Path) -> Iterator[World]:
    settings = Settings.from_environment({"PRIMUS_HOME": str(tmp_path / "home")})
    settings.make_home()
    ledger = Ledger(settings.ledger_url)
    with standing_in(World(settings, ledger)) as world:
        yield world
    ledger.close()


@pytest.fixture
def standing(site: Site) -> Site:
    """A cluster that Kubespray made before: this ledger knows nothing of it."""
    for name in NAMES:
        (site.hosts.folder / name).write_text("prepared\ninstalled 1.36.3\n")
    return site


def test_bare_hosts_become_a_cluster_and_one_more_joins(site: Site) -> None:
    checked = site.carried(verb="check")
    assert (checked.word, [site.hosts.on(name) for name in NAMES]) == ("done", [[]] * 4)
    assert checked.table["n3"] == {"prechecks": "pass", "workers": "not yet"}
    assert checked.table["cluster"] == {"prechecks": "pass"}
    made = site.carried(without=("n3",))
    assert (made.word, made.why) == ("done", "all 7 steps hold")
    assert site.playbooks() == [("cluster.yml", [])]
    assert [site.hosts.on(name) for name in NAMES] == [["prepared", "installed 1.36.3"]] * 3 + [[]]
    assert site.kubeconfig.read_text() == "clusters:\n- cluster:\n    server: https://192.0.2.10:6443\n"
    assert site.kubeconfig.stat().st_mode & 0o777 == 0o600
    assert "n1: Write down that the host was made a node: changed" in site.told
    log = (site.folder / "home" / "logs" / "bootstrap" / "made" / "n1.log").read_text()
    assert [line.split()[1] for line in log.splitlines()] == ["began", "changed", "changed", "pass"]
    before = site.operations()
    assert site.carried(without=("n3",)).word == "done"
    assert site.operations() == before, "a proven cluster is only looked at"
    outcome = site.carried(verb="join", hosts=("n3",))
    assert outcome.word == "done", outcome.why
    assert site.playbooks() == [("playbooks/facts.yml", []), ("scale.yml", ["n3"])]
    assert site.hosts.on("n3") == ["joined 1.36.3"]
    assert site.hosts.on("n0") == ["prepared", "installed 1.36.3"]
    assert site.hosts.acts == [], "a worker that joins changes no member of etcd"


def test_a_cluster_is_upgraded_only_where_that_is_asked_for(standing: Site) -> None:
    site, new = standing, standing.profile(version="1.36.4")
    outcome = site.carried(new)
    assert (outcome.word, site.hosts.version_of("n0")) == ("failed", "1.36.3")
    assert "the cluster runs 1.36.3" in outcome.why
    assert "--upgrade 1.36.4" in outcome.why
    with pytest.raises(ProfileError, match=r"engine\.version: is 1\.36\.3: name 1\.36\.4 there"):
        site.carried(verb="upgrade", version="1.36.4")
    outcome = site.carried(new, verb="upgrade", version="1.36.4")
    assert outcome.word == "done", outcome.why
    assert [site.hosts.on(name)[-1] for name in NAMES] == ["upgraded 1.36.4"] * 4
    assert site.hosts.acts == ["snapshot on n0", "cordon n3", "drain n3", "open n3"]
    assert site.playbooks() == [("playbooks/facts.yml", []), ("upgrade-cluster.yml", ["n3"])]
    back = next(place for place, line in enumerate(site.told) if "does not go back" in line)
    assert back < next(place for place, line in enumerate(site.told) if "goes to 1.36.4" in line)


def test_a_worker_that_was_upgraded_and_not_opened_again_is_only_opened(standing: Site) -> None:
    """The command was killed between the two."""
    for name in NAMES:
        (standing.hosts.folder / name).write_text("installed 1.36.4\n")
    standing.hosts.cordoned.add("n3")
    outcome = standing.carried(standing.profile(version="1.36.4"), verb="upgrade", version="1.36.4")
    assert (outcome.word, standing.hosts.acts) == ("done", ["open n3"])
    assert standing.operations() == ["0001-validation"]
    kept = standing.folder / "home" / "kubespray" / "operations" / "made"
    assert kept.stat().st_mode & 0o777 == 0o700, "what Ansible tells of tasks may hold secrets"


def test_hosts_leave_alive_or_dead_and_stay_out(standing: Site) -> None:
    site = standing
    with pytest.raises(Refused, match="n0 is the first control plane"):
        site.carried(verb="leave", hosts=("n0",))
    assert site.carried(verb="leave", hosts=("n3",)).word == "done"
    assert site.hosts.on("n3")[-1] == "left alive"
    assert site.hosts.acts == ["cordon n3", "drain n3"]
    assert site.carried().word == "done"
    assert site.hosts.on("n3")[-1] == "left alive", "who left stays out"
    site.hosts.dead.add("n2")
    assert site.carried(verb="leave", hosts=("n2",), dead=True).word == "done"
    assert site.hosts.on("n2")[-1] == "left dead"
    assert site.hosts.acts[2:] == ["snapshot on n0"]
    drift = site.carried(verb="drift")
    assert drift.why.startswith("0 differences"), drift.notes
    assert drift.notes[-1].startswith("engine kubespray: files, units, images and settings")


def test_a_failed_task_stops_with_its_host_and_no_secret_and_the_same_command_goes_on(site: Site) -> None:
    outcome = site.carried(site.profile(standin_fails="n2"))
    said = "GET http://mirror.example.org/files/kubelet as ***: 404 Not Found"
    assert outcome.word == "failed"
    assert f"n2: Download what the mirror has: failed: {said}" in site.told
    assert f"control-plane/n0 failed: n2: Download what the mirror has: {said}" in site.told, "all were stopped by one"
    assert site.operations().count(site.operations()[-1]) == 1
    assert len(site.operations()) == 3, "validation, then what fails twice wants a person"
    logs = site.folder / "home" / "logs" / "bootstrap" / "made"
    assert said in (logs / "n2.log").read_text()
    kept = [path.read_text() for path in logs.iterdir()] + site.told + [step.why for step in outcome.steps]
    assert not any(SECRET in text for text in kept)
    assert site.carried().word == "done"


def test_a_killed_command_is_read_on_and_its_playbook_is_not_started_twice(site: Site) -> None:
    profile = site.profile(standin_holds=True)
    (site.folder / "made.yaml").write_text(load.dump(profile))
    root = Path(__file__).parents[2]
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(site.folder)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    assert driver.stdout is not None
    heard: list[str] = []
    while not heard or "Install Kubernetes" not in heard[-1]:
        line = driver.stdout.readline()
        assert line, f"it ended before it could be killed: {heard}"
        heard.append(line.strip())
    os.kill(driver.pid, signal.SIGKILL)
    assert driver.wait() == -signal.SIGKILL
    driver.stdout.close()
    checked = site.carried(profile, verb="check")
    assert any("still runs: what is seen now is not its end" in line for line in site.told)
    assert checked.word == "done"
    assert site.hosts.deep.pop() is True, "a check always measures"

    def release(line: str) -> None:
        if "following it" in line:
            threading.Timer(1.0, (site.hosts.folder / "go").touch).start()

    outcome = site.carried(profile, release)
    assert outcome.word == "done", outcome.why
    assert not any(site.hosts.deep), "what the dead command had found fit a moment before is not measured again"
    assert [site.hosts.on(name) for name in NAMES] == [["prepared", "installed 1.36.3"]] * 4
    assert len(site.operations()) == 2, "validation, and the one that the dead command began"
    assert not [line for line in site.told if line.startswith("Prepare hosts")], "what was told is told again"
    assert any(line.startswith("Install Kubernetes: ") for line in site.told)


def test_a_copy_that_is_not_the_pinned_one_or_not_for_this_ansible_is_refused_before_a_host_is_asked(
    site: Site, tmp_path: Path
) -> None:
    site.source = {**site.source, "commit": "0" * 40}
    with pytest.raises(Refused, match=r"source\.commit: 0{40} is no commit"):
        site.carried()
    archive, _ = archive_of(tmp_path)
    site.source = {"archive": str(archive), "sha256": "0" * 64}
    with pytest.raises(Refused, match=r"source\.sha256: .* another archive than the profile's"):
        site.carried()
    path = tmp_path / "newer"
    path.mkdir()
    repository_of(path)
    (path / "meta" / "runtime.yml").write_text('requires_ansible: ">=9.0.0"\n')
    for words in (["add", "."], ["-c", "user.name=n", "-c", "user.email=n@example.org", "commit", "-qm", "newer"]):
        subprocess.run(["git", *words], cwd=path, check=True)
    told = subprocess.run(["git", "rev-parse", "HEAD"], cwd=path, check=True, capture_output=True, text=True)
    site.source = {"url": str(path), "commit": told.stdout.strip()}
    with pytest.raises(Refused, match=r"engine\.environment: .* this copy of Kubespray accepts"):
        site.carried()
    site.source = {"url": str(site.folder / "copy"), "commit": repository_head(site.folder / "copy")}
    with pytest.raises(Refused, match=r"engine\.version: 1\.36\.9 is not known to this copy"):
        site.carried(site.profile(version="1.36.9"))
    assert site.hosts.looks == []


def repository_head(folder: Path) -> str:
    told = subprocess.run(["git", "rev-parse", "HEAD"], cwd=folder, check=True, capture_output=True, text=True)
    return told.stdout.strip()


def test_an_inventory_that_kubespray_does_not_take_changes_nothing(site: Site) -> None:
    outcome = site.carried(without=("n2",))
    assert (outcome.word, site.hosts.on("n0")) == ("failed", [])
    assert "etcd must have an odd number of members" in outcome.why
    assert site.operations() == ["0001-validation"]
