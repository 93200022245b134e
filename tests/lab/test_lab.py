"""Hosts are hosts: what is one machine's own is each host's own, power goes and comes, and one lab stands at a time."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from profiles.loading.load import load_cluster, load_release
from tests.bed import layout as bed_layout
from tests.bed import starting
from tests.bed.commands import BedError, succeeds, until
from tests.bed.options import Options as BedOptions
from tests.bed.prebuilt import digest_of
from tests.lab import images, machine, network, programs, releases
from tests.lab import lab as labs
from tests.lab.hosts import Host
from tests.lab.lab import Lab
from tests.lab.layout import Options
from tests.lab.rootfs import USER
from tests.support.running.waiting import patience

ANSWERS_S = patience(30.0)


def boot(host: Host) -> str:
    """Another one after each boot; "" while the host does not answer."""
    return host.run("cat /proc/sys/kernel/random/boot_id", check=False).strip()


OWN = (
    "hostname",
    "cat /etc/machine-id",
    "cat /etc/ssh/ssh_host_ed25519_key.pub",
    "cat /sys/class/net/eth0/address",
    "cat /proc/sys/kernel/random/boot_id",
    "readlink /proc/self/ns/net",
    "readlink /proc/self/ns/pid",
)


def test_a_host_is_a_machine_of_its_own(lab: Lab) -> None:
    told = [host.run("; ".join(OWN)).splitlines() for host in lab.hosts]
    for what, *answers in zip(OWN, *told, strict=True):
        assert len(set(answers)) == len(lab.hosts), (what, answers)
    names = " ".join(lab.options.names())
    for host in lab.hosts:
        assert host.run("cat /proc/1/comm; systemctl is-system-running").split() == ["systemd", "running"]
        assert host.run("ls /sys/class/net; sudo -n hostname", user=USER).split() == ["eth0", "lo", host.name]
        host.run(f"set -e; getent hosts mirror.lab api.lab; for peer in {names}; do ping -c1 -W2 $peer; done")


def test_a_host_without_power_is_noticed_and_comes_back(lab: Lab) -> None:
    host, peer = lab.hosts[:2]
    before = boot(host)
    host.run("echo kept >/root/kept; sysctl -qw net.ipv4.ip_forward=1; echo gone >/run/gone")
    host.power_cut()
    assert not host.is_on()
    assert network.namespace_of(host.name) not in network.namespaces()
    with pytest.raises(BedError):
        host.run("true")
    assert not succeeds(*peer.ssh(f"ping -c1 -W1 {host.address}"))
    host.power_on()
    assert boot(host) not in ("", before)
    assert host.run("cat /root/kept; cat /proc/sys/net/ipv4/ip_forward; ls /run/gone 2>&1 | wc -l").split() == [
        "kept",
        "0",
        "1",
    ]
    assert host.run("ls /run/gone", check=False) == ""


def test_a_host_reboots_itself_and_says_goodbye(lab: Lab) -> None:
    host = lab.hosts[0]
    unit = "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=true\nExecStop=/bin/sh -c 'echo bye >>/root/bye'\n"
    host.write("/etc/systemd/system/bye.service", unit)
    host.run("rm -f /root/bye; systemctl daemon-reload; systemctl start bye")
    before = boot(host)
    host.run("systemctl reboot", check=False)
    until("another boot", lambda: boot(host) not in ("", before), ANSWERS_S, every_s=0.2)
    host.booted()
    assert host.run("cat /root/bye").split() == ["bye"]
    host.run("systemctl start bye")
    host.power_cut()
    host.power_on()
    assert host.run("cat /root/bye").split() == ["bye"], "a power cut says no goodbye"
    host.run("systemctl start bye")
    host.shutdown()
    assert not host.is_on()
    host.power_on()
    assert host.run("cat /root/bye").split() == ["bye", "bye"]
    host.run("rm /etc/systemd/system/bye.service /root/bye; systemctl daemon-reload")


def test_what_was_written_on_a_host_is_seen(lab: Lab) -> None:
    host = lab.hosts[0]
    before = host.files_digest(["/etc", "/opt"])
    assert host.files_digest(["/etc", "/opt"]) == before
    host.run(
        "echo x >/opt/new; chmod 700 /etc/hosts; ln -sf /bin/true /etc/link; echo '#' >>/etc/fstab; echo y >/root/y"
    )
    after = host.files_digest(["/etc", "/opt"])
    changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    assert changed - {"/etc", "/opt"} == {"/opt/new", "/etc/hosts", "/etc/link", "/etc/fstab"}
    lab.renew(host)
    assert host.run("ls /opt/new /root/y /etc/link 2>&1 | grep -c 'No such'").strip() == "3"


def test_a_setting_of_the_machine_that_a_host_wrote_is_put_back(lab: Lab) -> None:
    name = "vm/max_map_count"
    machine.restore(lab.folder)  # a bootstrap before this test has tuned hosts, and with them the machine
    was = Path("/proc/sys", name).read_text().strip()
    lab.hosts[0].run(f"sysctl -qw {name.replace('/', '.')}={int(was) + 1}")
    assert machine.changed(lab.folder)[name] == was
    assert f"kernel setting {name}, was {was}" in labs.leftovers(lab.folder)
    machine.restore(lab.folder)
    assert Path("/proc/sys", name).read_text().strip() == was


def offered(lab: Lab, path: Path, version: str) -> None:
    """The mirror has what a release names."""
    release = load_release(str(path))
    assert f"v{release.version}" == version
    for file in (*release.files.values(), *release.image_archives):
        assert digest_of(lab.folder.mirror / file.path) == file.sha256


def test_what_the_mirror_serves_is_what_the_release_says(lab: Lab) -> None:
    cluster = load_cluster(str(lab.profile))
    assert cluster.bootstrap is not None
    assert list(cluster.bootstrap.hosts) == lab.options.names()
    path = releases.release_path(lab.folder)
    offered(lab, path, programs.VERSION)
    kubeadm = load_release(str(path)).files["kubeadm"]
    fetch = f"curl -sf {releases.MIRROR}/{kubeadm.path} | sha256sum"
    assert lab.hosts[-1].run(fetch).split()[0] == kubeadm.sha256


def test_the_next_patch_says_so_and_brings_only_images_of_other_names(lab: Lab) -> None:
    path = lab.stock_next()
    offered(lab, path, programs.NEXT)
    kubelet = f"curl -sf {releases.MIRROR}/{load_release(str(path)).files['kubelet'].path}"
    says = f"{kubelet} >/run/kubelet && chmod +x /run/kubelet && /run/kubelet --version && rm /run/kubelet"
    assert lab.hosts[0].run(says).split()[-1] == programs.NEXT
    both = [set(images.tags(lab.folder.mirror / file.path)) for file in load_release(str(path)).image_archives]
    assert both[0].isdisjoint(both[1])
    assert {image.name for image in load_release(str(path)).images} <= both[0] | both[1]


def test_no_second_lab_and_no_bed_beside_it(lab: Lab) -> None:
    with pytest.raises(BedError, match="a lab is up"):
        labs.up(Options(hosts=1))
    with pytest.raises(BedError, match="a lab is up"):
        starting.up(bed_layout.cache(), bed_layout.Folder(lab.folder.root / "bed"), BedOptions())
    assert all(host.is_on() for host in lab.hosts)


def test_who_is_not_known_does_not_come_in(lab: Lab) -> None:
    host = lab.hosts[0]
    command = [word for word in host.ssh("true") if word not in ("-i", str(host.folder.private_key))]
    refused = subprocess.run([*command[:1], "-o", "IdentitiesOnly=yes", *command[1:]], capture_output=True, check=False)
    assert refused.returncode == 255
    assert b"Permission denied" in refused.stderr
