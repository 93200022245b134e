"""Inventories as Ansible reads them, which is started for real."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.import_inventory import import_inventory
from profiles.cluster import ClusterProfile
from profiles.errors import ProfileError
from profiles.loading import load

FAULTY = """\
# The file that is shipped with a well-known installer: three hosts of one name, addresses of three numbers.
[all]
host1 ansible_host=192.168.1 ip=192.168.1
host1 ansible_host=192.168.2 ip=192.168.2
host1 ansible_host=192.168.3 ip=192.168.3

[kube_control_plane]
host1
host2
host3

[etcd]
host1
host2

[kube_node]
host1
host2
host3

[k8s_cluster:children]
kube_control_plane
kube_node
"""
SOUND = """\
c1 ansible_host=10.0.0.1 ansible_user="ops"  # the first
n[1:3].site ansible_user=ops

[kube-master]
c1

[etcd:children]
kube-master

[kube-node]
n[1:3].site

[k8s-cluster:children]
kube-master
kube-node

[k8s-cluster:vars]
kube_pods_subnet=10.233.64.0/18
"""


def test_a_faulty_inventory_is_refused_with_all_its_faults(tmp_path: Path) -> None:
    (tmp_path / "hosts.ini").write_text(FAULTY)
    made = import_inventory(tmp_path / "hosts.ini")
    assert made.profile_text == ""
    told = "\n".join(f"{found.where}: {found.what}" for found in made.wrong)
    for words in (
        "host1: 3 hosts of [all] are called so (lines 3, 4, 5)",
        *(f"host1: ansible_host 192.168.{last}: is no address: it has 3 numbers" for last in (1, 2, 3)),
        "[etcd]: 2 members bear the loss of no more than 1 do",
        "[kube_control_plane]: names host2, host3, which nothing gives an address",
    ):
        assert words in told, told


def test_ranges_children_old_names_and_files_beside_it_are_taken(tmp_path: Path) -> None:
    folder = tmp_path / "My Site"
    (folder / "host_vars").mkdir(parents=True)
    (folder / "group_vars" / "all").mkdir(parents=True)
    (folder / "hosts.ini").write_text(SOUND)
    for place in (1, 2, 3):
        (folder / "host_vars" / f"n{place}.site.yml").write_text(f"ansible_host: 10.0.1.{place}\n")
    (folder / "group_vars" / "all" / "net.yml").write_text("kube_service_addresses: 10.233.0.0/18\n")
    made = import_inventory(folder / "hosts.ini")
    assert not made.wrong, made.findings
    cluster = load.load_text(ClusterProfile, made.profile_text)
    assert cluster.name == "my-site"
    assert cluster.bootstrap is not None
    assert {name: host.address for name, host in cluster.bootstrap.hosts.items()} == {
        "c1": "10.0.0.1",
        "n1.site": "10.0.1.1",
        "n2.site": "10.0.1.2",
        "n3.site": "10.0.1.3",
    }
    networks = cluster.bootstrap.networks
    assert (networks.pods, networks.services) == ("10.233.64.0/18", "10.233.0.0/18")
    assert [found.where for found in made.findings if "old name" in found.what] == [
        "[k8s-cluster]",
        "[kube-master]",
        "[kube-node]",
    ]


def test_a_program_is_no_inventory_and_never_run(tmp_path: Path) -> None:
    path = tmp_path / "hosts.ini"
    path.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    path.chmod(0o755)
    made = import_inventory(path, "mine")
    assert [found.where for found in made.wrong] == ["inventory"]
    assert not (tmp_path / "ran").exists()


def test_a_group_that_is_nowhere_is_said_in_ansibles_words(tmp_path: Path) -> None:
    path = tmp_path / "hosts.ini"
    path.write_text("[etcd:children]\nnowhere\n")
    wrong = import_inventory(path).wrong
    assert len(wrong) == 1
    assert "nowhere" in wrong[0].what


@pytest.mark.parametrize(
    ("name", "words"), [("none.ini", "No such file"), (".", "name the file"), ("raw.ini", "UTF-8")]
)
def test_what_is_no_file_of_text_is_refused(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / "raw.ini").write_bytes(b"\xff\xfe[all]")
    with pytest.raises(ProfileError) as caught:
        import_inventory(tmp_path / name)
    assert words in caught.value.reason
