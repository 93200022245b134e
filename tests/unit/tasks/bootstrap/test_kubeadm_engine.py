"""When a cluster is begun or joined, which control plane is asked, and that plays write nothing in check mode."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from profiles.errors import ProfileError, Refused
from profiles.vocabulary import VerdictWord
from tasks.bootstrap import kubeadm
from tasks.bootstrap.kubeadm import KubeadmSite, anchor_of, apply, begins, node_out, upgrade
from tasks.bootstrap.kubeadm_variables import common_variables, host_variables
from tasks.ssh.plays import HostEnd, Play
from tests.support.builders.kubeadm_cluster import kubeadm_cluster, release, sight_of
from workflows.bootstrap.control_sight import ControlSight, PlaneSight
from workflows.model.bootstrap import Stage, Step

CLUSTER, RELEASE = kubeadm_cluster(), release()
WHOLE = sight_of(CLUSTER, RELEASE)
EMPTY = ControlSight({name: PlaneSight(name) for name in ("c1", "c2", "c3")})
READS = (
    "ls -d ",
    "kubelet --version",
    "sha256sum",
    "'get'",
    "cat ",
    "'knows'",
    "'nodes'",
    "'look'",
    "'--check'",
    "grep -sqx kubeadm",
)


def without(sight: ControlSight, *names: str, why: str = "") -> ControlSight:
    planes = {name: plane for name, plane in sight.planes.items() if name not in names}
    return ControlSight(planes, {name: why for name in names} if why else {})


def test_a_cluster_is_begun_only_where_there_is_surely_none() -> None:
    assert begins(EMPTY, "c1")
    assert not begins(WHOLE, "c1"), "the others live: it joins them"
    with pytest.raises(Refused, match="a second cluster might be begun"):
        begins(without(EMPTY, "c2", why="no route"), "c1")
    dead = replace(WHOLE.planes["c2"], own="connection refused")
    with pytest.raises(Refused, match="c2 holds a cluster whose API does not serve"):
        begins(ControlSight({**EMPTY.planes, "c2": dead}), "c1")
    half = ControlSight({**EMPTY.planes, "c1": replace(dead, host="c1")})
    assert begins(half, "c1"), "what it began itself is taken up"


def test_a_control_plane_is_asked_that_serves_and_stays() -> None:
    assert anchor_of(WHOLE, ["c1"]) == "c2"
    blind = replace(WHOLE.planes["c1"], members=None)
    assert anchor_of(replace(WHOLE, planes={**WHOLE.planes, "c1": blind}), ()) == "c2"
    with pytest.raises(Refused, match="c1 was not reached: no route"):
        anchor_of(without(EMPTY, "c1", why="no route"), ())


class Plays:
    """Stands in for plays: which ran, on whom; hosts in `fail` fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fail: tuple[str, ...] = ()) -> None:
        self.ran: list[tuple[str, dict[str, list[str]]]] = []
        self.whole: list[Play] = []
        self.fail = fail
        monkeypatch.setattr(kubeadm, "run_play", self)
        monkeypatch.setattr(kubeadm, "look", self.look)

    def look(self, site: KubeadmSite) -> ControlSight:
        """Everything holds."""
        return WHOLE

    def __call__(self, play: Play, tell: object, logs: object) -> dict[str, HostEnd]:
        groups = {name: [host.name for host in hosts] for name, hosts in play.groups.items()}
        self.ran.append((play.file.stem, groups))
        self.whole.append(play)
        names = [name for names in groups.values() for name in names]
        return {
            name: HostEnd(
                name, VerdictWord.FAIL if name in self.fail else VerdictWord.PASS, "broken" * (name in self.fail)
            )
            for name in names
        }


def steps(stage: Stage, *names: str) -> list[Step]:
    return [Step(stage, name, "", "") for name in names]


def test_control_planes_are_made_one_by_one_until_one_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    plays = Plays(monkeypatch, fail=("c2",))
    ends = apply(KubeadmSite(CLUSTER, RELEASE), steps(Stage.CONTROL_PLANE, "c1", "c2", "c3"), EMPTY)
    assert plays.ran == [
        ("control-plane", {"targets": ["c1"], "anchor": ["c1"]}),
        ("join", {"targets": ["c2"], "anchor": ["c1"]}),
    ]
    assert (list(ends), ends["c2"].why) == (["c1", "c2"], "broken")


def test_workers_join_at_once_and_a_broken_anchor_is_their_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    plays = Plays(monkeypatch)
    apply(KubeadmSite(CLUSTER, RELEASE), steps(Stage.WORKERS, "w1", "w2"), WHOLE)
    assert plays.ran == [("join", {"targets": ["w1", "w2"], "anchor": ["c1"]})]
    with pytest.raises(Refused, match="no control plane serves"):
        apply(KubeadmSite(CLUSTER, RELEASE), steps(Stage.WORKERS, "w1"), EMPTY)
    with pytest.raises(ProfileError, match="one stage"):
        apply(KubeadmSite(CLUSTER, RELEASE), [*steps(Stage.WORKERS, "w1"), *steps(Stage.HOSTS, "w1")], WHOLE)


def test_a_dead_host_is_not_gone_to(monkeypatch: pytest.MonkeyPatch) -> None:
    plays = Plays(monkeypatch)
    ends = node_out(KubeadmSite(CLUSTER, RELEASE), ["c1", "w1"], ["c1"], WHOLE)
    assert plays.ran == [("leave", {"targets": ["w1"], "anchor": ["c2"]})]
    assert (ends["c1"].host, ends["c1"].word, ends["w1"].host) == ("c1", VerdictWord.PASS, "w1")
    failing = Plays(monkeypatch, fail=("c2",))
    ends = node_out(KubeadmSite(CLUSTER, RELEASE), ["c1", "w1"], ["c1"], WHOLE)
    assert {end.word for end in ends.values()} == {VerdictWord.FAIL}, "out of the host and in the cluster is not out"
    assert failing.ran


def test_control_planes_are_upgraded_one_by_one_and_apart_from_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    plays = Plays(monkeypatch, fail=("c2",))
    upgrade(KubeadmSite(CLUSTER, release("1.36.4")), ["c1", "c2", "c3"], WHOLE)
    assert [groups["targets"] for _, groups in plays.ran] == [["c1"], ["c2"]]
    with pytest.raises(ProfileError, match="upgraded apart"):
        upgrade(KubeadmSite(CLUSTER, RELEASE), ["c1", "w1"], WHOLE)


def test_nodes_get_their_settings_one_after_the_other_and_etcd_is_kept_before_a_control_plane_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plays = Plays(monkeypatch)
    site = KubeadmSite(CLUSTER, RELEASE)
    assert kubeadm.settle_cluster(site, WHOLE, proxies=True).word is VerdictWord.PASS
    kubeadm.configure(site, {"w1": ["kubelet-config"], "w2": ["kube-proxy"]}, WHOLE)
    kubeadm.configure(site, {"c2": ["etcd", "certificate"]}, WHOLE)
    assert [(name, groups) for name, groups in plays.ran] == [
        ("settings", {"anchor": ["c1"]}),
        ("configure", {"targets": ["w1", "w2"], "anchor": ["c1"]}),
        ("configure", {"targets": ["c2"], "anchor": ["c1"]}),
    ]
    assert [play.variables.get("primus_keeps_etcd") for play in plays.whole] == [None, False, True]
    [own] = plays.whole[2].groups["targets"]
    assert own.variables["primus_phases"] == [["certs", "apiserver"], ["etcd", "local"]]
    assert own.variables["primus_running"] == {
        "etcd": {"arguments": {"quota-backend-bytes": str(8 << 30)}, "variables": {}}
    }
    play: Any = yaml.safe_load((kubeadm.PLAYS / "configure.yaml").read_text())[1]
    assert (play["serial"], play["any_errors_fatal"]) == (1, True), "behind one that fails nobody is touched"


def test_a_control_plane_that_is_the_only_one_is_mended_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    plays = Plays(monkeypatch)
    dead = ControlSight({"c1": replace(WHOLE.planes["c1"], own="connection refused")})
    kubeadm.configure(KubeadmSite(CLUSTER, RELEASE), {"c1": ["kube-apiserver"]}, dead)
    assert plays.ran == [("configure", {"targets": ["c1"], "anchor": ["c1"]})]
    with pytest.raises(Refused, match="no control plane serves"):
        kubeadm.configure(KubeadmSite(CLUSTER, RELEASE), {"w1": ["kubelet"]}, dead)


def test_a_cluster_that_is_not_upgraded_yet_keeps_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    plays = Plays(monkeypatch)
    kubeadm.settle_cluster(KubeadmSite(CLUSTER, release("1.36.4")), WHOLE, proxies=False)
    [anchor] = plays.whole[0].groups["anchor"]
    assert "kubernetesVersion: v1.36.3" in str(anchor.variables["primus_configuration"])
    assert plays.whole[0].variables["primus_proxies"] is False


@pytest.mark.parametrize(
    ("proxy", "asked"),
    [
        ({}, "127.0.0.1:10256"),
        ({"healthzBindAddress": "0.0.0.0:99"}, "127.0.0.1:99"),
        ({"healthzBindAddress": "10.0.0.1:99"}, "10.0.0.1:99"),
    ],
)
def test_kube_proxy_is_asked_how_it_is_where_it_listens(proxy: dict[str, str], asked: str) -> None:
    cluster = kubeadm_cluster(engine={"kind": "kubeadm", "kube_proxy": proxy})
    told = common_variables(cluster, RELEASE, check=False)
    assert told["primus_proxy_health"] == f"http://{asked}/healthz"
    assert told["primus_kubelet_health"] == "http://127.0.0.1:10248/healthz"


def test_what_does_not_come_up_is_put_back_before_anything_else_is_done() -> None:
    whole: Any = yaml.safe_load((kubeadm.PLAYS / "configure.yaml").read_text())[1]
    [block] = [task for task in whole["tasks"] if "rescue" in task]
    names = {part: [task["name"] for task in block[part]] for part in ("block", "rescue", "always")}
    assert names["block"][0] == "what there is, kept"
    assert names["rescue"][0] == "what there was, put back"
    assert names["rescue"][-1] == "put back"
    assert "configuration, gone" in names["always"]


def test_programs_come_from_the_mirror_or_from_here_and_must_be_there(tmp_path: Path) -> None:
    told: Any = host_variables(CLUSTER, RELEASE, "w1")
    assert told["primus_programs"]["downloads"][0]["url"] == "http://192.0.2.5:8080/v1.36.3/kubeadm"
    assert common_variables(CLUSTER, RELEASE, check=False)["primus_sources"] == {}
    here = kubeadm_cluster(mirror={"files_folder": str(tmp_path)})
    with pytest.raises(ProfileError, match=r"files_folder: .* has no v1\.36\.3/kubeadm"):
        common_variables(here, RELEASE, check=False)
    with pytest.raises(ProfileError, match="neither files_url nor files_folder"):
        common_variables(kubeadm_cluster(mirror={}), RELEASE, check=False)


def test_only_what_is_containerd_s_begins_it_anew() -> None:
    files: Any = {name: {"path": name, "sha256": "a" * 64} for name in ("kubeadm", "kubelet", "kubectl", "runc")}
    files |= {name: {"path": name, "sha256": "b" * 64, "unpack": True} for name in ("containerd", "cni-plugins")}
    told: Any = host_variables(CLUSTER, release(files=files), "c1")
    causes = {unit["name"]: unit["of"] for unit in told["primus_units"]}
    assert sorted(causes["containerd.service"]) == [
        "/etc/containerd/config.toml",
        "/etc/systemd/system/containerd.service",
        "/etc/systemd/system/containerd.service.d/50-primus-flows.conf",
        "/usr/local (containerd)",
    ]


def test_what_has_changed_is_kept_until_units_were_begun_anew() -> None:
    told: Any = host_variables(CLUSTER, RELEASE, "c1")
    common = common_variables(CLUSTER, RELEASE, check=False)
    assert {told["primus_settings"]["pending"], told["primus_programs"]["pending"]} == {common["primus_pending"]}
    for file in ("hosts.yaml", "upgrade.yaml"):
        names = [task["name"] for name, task in tasks() if name == file]
        forgotten = names.index("changes that nothing waits for any more")
        assert names[forgotten - 2 : forgotten] == ["units", "kubelet"], file
        assert max(names.index("settings"), names.index("programs")) < names.index("what has changed") < forgotten


def test_a_leave_that_was_killed_after_its_files_were_gone_comes_to_its_end() -> None:
    told: Any = host_variables(CLUSTER, RELEASE, "w1")
    [reset] = [task["ansible.builtin.command"] for _, task in tasks() if task["name"] == "kubeadm reset"]
    assert reset["removes"] in told["primus_own"]


def test_dns_is_told_of_unproven_nodes_by_each_play_that_brings_some() -> None:
    """A play that was killed before is made good by the next one, and DNS that cannot be told fails it."""
    assert "dns.yaml" in {task.get("ansible.builtin.include_tasks") for file, task in tasks() if file == "network.yaml"}
    for play in ("control-plane.yaml", "join.yaml"):
        last = yaml.safe_load((kubeadm.PLAYS / play).read_text())[-1]
        assert last["ansible.builtin.import_playbook"] == "network.yaml"
    failing = [task["failed_when"] for file, task in tasks() if file == "dns.yaml" and "failed_when" in task]
    assert failing == ["dns.rc != 0 and not primus_check"]


def test_certificates_are_taken_back_though_there_never_was_a_token() -> None:
    [task] = [task for _, task in tasks() if task["name"] == "certificates, taken back"]
    assert (task["when"], "check_mode" in task) == ("primus_controls", False)


def test_a_member_that_never_began_is_named_by_its_host_s_address() -> None:
    assert common_variables(CLUSTER, RELEASE, check=False)["primus_peers"] == {
        "c1": "192.0.2.11",
        "c2": "192.0.2.12",
        "c3": "192.0.2.13",
    }
    removing = [task["ansible.builtin.command"]["argv"] for _, task in tasks() if "member of etcd" in task["name"]]
    assert len(removing) == 2
    assert all("primus_peers[" in argv for argv in removing)


def tasks() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every task of every play, with the file that it stands in."""

    def inside(found: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        for task in found:
            for part in ("block", "rescue", "always", "tasks"):
                yield from inside(task.get(part, []))
            if not any(part in task for part in ("block", "tasks", "hosts")):
                yield task

    for path in sorted(kubeadm.PLAYS.glob("*.yaml")):
        for task in inside(yaml.safe_load(path.read_text())):
            yield path.name, task


def test_in_check_mode_only_what_reads_is_run() -> None:
    ran = 0
    for file, task in tasks():
        if task.get("check_mode") is False:
            ran += 1
            argv = str(task["ansible.builtin.command"]["argv"])
            assert "primus_check_flags" in argv or any(word in argv for word in READS), f"{file}: {task['name']}"
    assert ran > 10


def test_no_task_that_sees_a_secret_tells_it() -> None:
    seen = 0
    for file, task in tasks():
        text = str({key: value for key, value in task.items() if key not in ("when", "name")})
        if any(word in text for word in ("@TOKEN@", "@KEY@", "ansible.builtin.password", "'token', 'create'")):
            seen += 1
            assert task.get("no_log") is True, f"{file}: {task['name']}"
            assert "argv" not in text or "print-join-command" in text, f"{file}: {task['name']}: on a command line"
    assert seen == 5


def test_every_module_is_one_of_ansible_itself() -> None:
    words = {key for _, task in tasks() for key in task if "." in key}
    assert words
    assert all(word.startswith("ansible.builtin.") for word in words)
