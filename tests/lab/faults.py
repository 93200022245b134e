"""What may be wrong with a host before it becomes a node: one defect each, put in, asked whether it is there, mended.

Most are three lines of a shell, run past SSH. What a host shares with this machine cannot be broken for one host
alone: swap, memory and entropy are made-up files of /proc, the clock and the kernel's version are those that a session
over SSH sees. Not to be had here: another version of control groups, no systemd, firmware, GPUs that are missing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tests.bed.commands import BedError, run, succeeds, until
from tests.lab import groups, network
from tests.lab.hosts import Host
from tests.lab.lab import Lab
from tests.lab.layout import FIRST, NAMESPACE, SERVER, VIRTUAL
from tests.lab.programs import VERSION
from tests.lab.releases import MIRROR_PORT
from tests.lab.rootfs import USER
from tests.support.running.waiting import patience

Act = Callable[[Lab, Host], object]
SLOW_WRITES = 3
"""Writes a second of a host whose disk is slow: one fsync of a file takes two or three."""


@dataclass(frozen=True)
class HostFault:
    """A defect of one host."""

    name: str
    what: str
    """In words."""
    inflict: Act
    mend: Act
    there: Callable[[Lab, Host], bool]
    """Whether it is there now, found out without what inflicted it."""


def other(lab: Lab, host: Host) -> Host:
    """The host whose twin the broken one becomes; BedError in a lab of one."""
    found = [one for one in lab.hosts if one.name != host.name]
    if not found:
        raise BedError("a twin needs a second host")
    return found[0]


def _said(lab: Lab, host: Host, command: str) -> str:
    """A command with what it speaks of; a name that is not among these stays as it is."""
    words = {"SERVER": SERVER, "VIRTUAL": VIRTUAL, "PODS": f"{FIRST}.128.0/20", "USER": USER}
    if "{TWIN" in command:
        twin = other(lab, host)
        words |= {
            "TWIN": twin.name,
            "TWIN_IP": twin.address,
            "TWIN_ID": (twin.root / "etc/machine-id").read_text().strip(),
        }
    for name, word in words.items():
        command = command.replace(f"{{{name}}}", word)
    return command


def _true(say: Callable[[str], object], command: str) -> bool:
    try:
        say(command)
    except BedError:
        return False
    return True


def shell(name: str, what: str, inflict: str, mend: str, there: str, session: bool = False) -> HostFault:
    """A defect in lines of a shell; `there` ends with 0 while it is there, `session`: as SSH sees it."""

    def asked(lab: Lab, host: Host) -> bool:
        return _true(host.run if session else host.enter, _said(lab, host, there))

    return HostFault(
        name,
        what,
        lambda lab, host: host.enter(f"set -e; {_said(lab, host, inflict)}"),
        lambda lab, host: host.enter(f"set -e; {_said(lab, host, mend)}"),
        asked,
    )


def moved(name: str, what: str, path: str, there: str, session: bool = False) -> HostFault:
    """A file that is not where it belongs."""
    return shell(name, what, f"mv {path} {path}.was", f"mv {path}.was {path}", there, session)


def written(name: str, what: str, path: str, text: str, there: str, session: bool = False) -> HostFault:
    """A file with another content than it has on a sound host, or that is there at all."""
    folder, own = str(PurePosixPath(path).parent), f"/run/lab-{name}-folder"
    keep = f"if [ -e {path} ]; then mv {path} {path}.was; fi; [ -d {folder} ] || {{ mkdir -p {folder}; touch {own}; }}"
    gone = f"rm -f {path}; if [ -e {own} ]; then rm {own}; rmdir -p {folder} 2>/dev/null || true; fi"
    back = f"if [ -e {path}.was ]; then mv {path}.was {path}; else {gone}; fi"
    return shell(name, what, f"{keep}; cat >{path} <<'END'\n{text}\nEND\n", back, there, session)


def made_up(name: str, what: str, path: str, make: str, there: str) -> HostFault:
    """A file of /proc under which another one lies; `make` writes it to its output."""
    laid = f"/run/lab-{name}"
    return shell(name, what, f"{make} >{laid}; mount --bind {laid} {path}", f"umount {path}; rm {laid}", there)


def running(name: str, what: str, command: str, there: str) -> HostFault:
    """A process that nobody expects."""
    unit = f"lab-{name.replace('_', '-')}"
    return shell(name, what, f"systemd-run --quiet --collect --unit={unit} {command}", f"systemctl stop {unit}", there)


def blocked(name: str, what: str, rule: str) -> HostFault:
    """Packets that a filter drops."""
    chain = rule.partition(" ")[0]
    hook = f"add chain inet lab_{name} {chain} {{ type filter hook {chain} priority 0; }}"
    lines = f"nft add table inet lab_{name}; nft '{hook}'; nft 'add rule inet lab_{name} {rule} drop'"
    return shell(
        name, what, lines, f"nft delete table inet lab_{name}", f"nft list table inet lab_{name} | grep -q drop"
    )


FOREIGN = """apiVersion: v1
kind: Config
clusters: [{name: elsewhere, cluster: {server: "https://192.0.2.9:6443", certificate-authority-data: ""}}]
contexts: [{name: elsewhere, context: {cluster: elsewhere, user: node}}]
current-context: elsewhere
users: [{name: node, user: {client-certificate: /var/lib/kubelet/pki/kubelet-client-current.pem}}]"""
OLD_MANIFEST = "apiVersion: v1\nkind: Pod\nmetadata: {name: kube-apiserver, namespace: kube-system}"
RESTART_SSH = "systemctl daemon-reload; systemctl restart ssh"
SSHD = "/etc/systemd/system/ssh.service.d/lab.conf"
KEY = "/etc/ssh/ssh_host_ed25519_key"
CERTIFICATE = "/etc/kubernetes/pki/apiserver.crt"
SMALL = """mkdir -p /run/small; mount -t tmpfs -o size=300m tmpfs /run/small
tar --one-file-system -C /var/lib -cf - . | tar -C /run/small -xf -; mount --bind /run/small /var/lib"""

LOGIN = (
    shell(
        "no_sshd", "nobody listens for SSH", "systemctl stop ssh", "systemctl start ssh", "! systemctl -q is-active ssh"
    ),
    moved(
        "key_refused", "our key is not known there", "/root/.ssh/authorized_keys", "! [ -e /root/.ssh/authorized_keys ]"
    ),
    shell(
        "host_key_changed",
        "the host shows another key than it is known by",
        f"mv {KEY} {KEY}.was; mv {KEY}.pub {KEY}.pub.was; ssh-keygen -q -t ed25519 -N '' -f {KEY}; {RESTART_SSH}",
        f"mv {KEY}.was {KEY}; mv {KEY}.pub.was {KEY}.pub; {RESTART_SSH}",
        f"[ -e {KEY}.was ] && ! cmp -s {KEY} {KEY}.was",
    ),
    moved("sudo_missing", "there is no sudo", "/usr/bin/sudo", "! command -v sudo"),
    moved("sudo_asks", "sudo wants a password", "/etc/sudoers.d/{USER}", "! su {USER} -c 'sudo -n true' 2>/dev/null"),
    moved("python_missing", "there is no Python", "/usr/bin/python3", "! command -v python3"),
)
SYSTEM = (
    written(
        "other_os",
        "another release of the system than its peers have",
        "/etc/os-release",
        'ID=debian\nVERSION_ID="11"\nVERSION_CODENAME=bullseye\nPRETTY_NAME="Debian GNU/Linux 11 (bullseye)"',
        "grep -q bullseye /etc/os-release",
    ),
    shell(
        "other_kernel",
        "another version of the kernel than its peers have",
        f"mkdir -p {SSHD.rpartition('/')[0]}; printf '[Service]\\nExecStart=\\n"
        f"ExecStart=/usr/bin/setarch x86_64 --uname-2.6 /usr/sbin/sshd -D\\n' >{SSHD}; {RESTART_SSH}",
        f"rm -r {SSHD.rpartition('/')[0]}; {RESTART_SSH}",
        "uname -r | grep -q ^2.6",
        session=True,
    ),
    written(
        "clock_off",
        "its clock is five minutes ahead",
        "/etc/environment",
        "LD_PRELOAD=/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1\nFAKETIME=+300s",
        "[ $(($(date +%s) - $(cut -d. -f1 /proc/uptime) - $(awk '/btime/ {print $2}' /proc/stat))) -gt 250 ]",
        session=True,
    ),
    made_up(
        "swap_on",
        "it swaps",
        "/proc/swaps",
        "printf 'Filename\\tType\\tSize\\tUsed\\tPriority\\n/swapfile file 2097148 0 -2\\n'",
        "grep -q swapfile /proc/swaps",
    ),
    made_up(
        "little_memory",
        "it has 1 GiB of memory",
        "/proc/meminfo",
        "sed 's/^MemTotal:.*/MemTotal:        1048576 kB/' /proc/meminfo",
        "grep -q '^MemTotal: *1048576 kB' /proc/meminfo",
    ),
    made_up(
        "little_entropy",
        "the kernel has few random bits",
        "/proc/sys/kernel/random/entropy_avail",
        "echo 12",
        "grep -qx 12 /proc/sys/kernel/random/entropy_avail",
    ),
    written(
        "few_files",
        "a process may open few files",
        "/etc/security/limits.d/lab.conf",
        "root hard nofile 512\nroot soft nofile 512",
        "[ $(ulimit -Hn) = 512 ]",
        session=True,
    ),
    shell(
        "disk_full",
        "there is no room below /var/lib",
        SMALL,
        "umount -l /var/lib; umount -l /run/small",
        "[ $(df --output=avail /var/lib | tail -1) -lt 500000 ]",
    ),
)
IDENTITY = (
    shell(
        "machine_id_twin",
        "another host has the same machine-id",
        "cp /etc/machine-id /etc/machine-id.was; echo {TWIN_ID} >/etc/machine-id",
        "cat /etc/machine-id.was >/etc/machine-id; rm /etc/machine-id.was",
        "[ -e /etc/machine-id.was ] && ! cmp -s /etc/machine-id /etc/machine-id.was",
    ),
    shell(
        "hostname_twin",
        "another host has the same name",
        "hostname >/run/lab-name; hostname {TWIN}; echo {TWIN} >/etc/hostname",
        "hostname $(cat /run/lab-name); hostname >/etc/hostname; rm /run/lab-name",
        "[ $(hostname) = {TWIN} ]",
    ),
    shell(
        "address_twin",
        "another host has the same address",
        "sysctl -qw net.ipv4.conf.all.arp_ignore=1; ip addr add {TWIN_IP}/32 dev lo",
        "ip addr del {TWIN_IP}/32 dev lo; sysctl -qw net.ipv4.conf.all.arp_ignore=0",
        "ip -o addr show dev lo | grep -qF {TWIN_IP}/32",
    ),
    shell(
        "virtual_address_taken",
        "the API's virtual address is its own already",
        "ip addr add {VIRTUAL}/32 dev eth0",
        "ip addr del {VIRTUAL}/32 dev eth0",
        "ip -o addr show dev eth0 | grep -qF {VIRTUAL}/32",
    ),
)
NETWORK = (
    shell(
        "mtu_small",
        "its card carries 1400 bytes",
        "ip link set eth0 mtu 1400",
        "ip link set eth0 mtu 1500",
        "grep -qx 1400 /sys/class/net/eth0/mtu",
    ),
    shell(
        "pods_routed",
        "it has a route into the network of pods",
        "ip route add {PODS} via {SERVER}",
        "ip route del {PODS}",
        "ip route show {PODS} | grep -q via",
    ),
    written(
        "resolver_itself",
        "it asks itself for names",
        "/etc/resolv.conf",
        "nameserver 127.0.0.1",
        "grep -qx 'nameserver 127.0.0.1' /etc/resolv.conf",
    ),
    written(
        "resolver_dead",
        "its name server does not answer",
        "/etc/resolv.conf",
        f"nameserver {FIRST}.0.99",
        "! timeout 2 getent hosts nobody.lab.example >/dev/null && grep -qF .0.99 /etc/resolv.conf",
    ),
    blocked("ports_blocked", "its peers cannot reach etcd and kubelet", "input tcp dport { 2379, 2380, 6443, 10250 }"),
    blocked("mirror_blocked", "it cannot reach the mirror", f"output tcp dport {MIRROR_PORT}"),
    running(
        "port_taken",
        "somebody listens where the API server will",
        "/usr/bin/socat TCP-LISTEN:6443,reuseaddr,fork EXEC:/bin/cat",
        "ss -Hltn sport = :6443 | grep -q 6443",
    ),
)
LEFT_OVERS = (
    written("old_manifest", "a static pod of an old cluster", "/etc/kubernetes/manifests/kube-apiserver.yaml",
            OLD_MANIFEST, "[ -e /etc/kubernetes/manifests/kube-apiserver.yaml ]"),
    written("foreign_kubelet_conf", "it is a node of another cluster", "/etc/kubernetes/kubelet.conf", FOREIGN,
            "grep -qF 192.0.2.9 /etc/kubernetes/kubelet.conf"),
    written("old_etcd_data", "a member of an old etcd", "/var/lib/etcd/member/snap/db", "old",
            "[ -e /var/lib/etcd/member/snap/db ]"),
    written("old_cni_settings", "a network of an old cluster", "/etc/cni/net.d/10-old.conflist",
            '{"cniVersion": "0.4.0", "name": "old", "plugins": []}', "[ -e /etc/cni/net.d/10-old.conflist ]"),
    shell("old_kubelet", "a kubelet of an old cluster runs",
          "cp /bin/sleep /run/kubelet; systemd-run --quiet --collect --unit=lab-old-kubelet /run/kubelet 86400",
          "systemctl stop lab-old-kubelet; rm /run/kubelet", "pidof /run/kubelet >/dev/null"),
    shell("old_interface", "a bridge of an old cluster", "ip link add cni0 type bridge", "ip link del cni0",
          "[ -e /sys/class/net/cni0 ]"),
    shell("certificate_ends", "a certificate of the API server ends tomorrow",
          f"mkdir -p {CERTIFICATE.rpartition('/')[0]}; "
          "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes "
          f"-keyout /dev/null -subj /CN=kube-apiserver -days 1 -out {CERTIFICATE} 2>&1",
          f"rm {CERTIFICATE}; rmdir -p {CERTIFICATE.rpartition('/')[0]} 2>/dev/null || true",
          f"[ -e {CERTIFICATE} ] && ! openssl x509 -in {CERTIFICATE} -noout -checkend 172800 >/dev/null"),
)  # fmt: skip


def _throttle(host: Host, writes: int) -> None:
    """Limit the writes of all its processes; 0: no limit. Groups on version 1 do not inherit it."""
    device = os.stat(host.folder.root).st_dev
    line = f"{os.major(device)}:{os.minor(device)} {writes}"
    for path in groups.paths(host.name):
        for one in path.rglob("blkio.throttle.write_iops_device"):
            one.write_text(line)


def _slow(host: Host) -> bool:
    return any(
        str(SLOW_WRITES) in (path / "blkio.throttle.write_iops_device").read_text().split()[1::2]
        for path in groups.paths(host.name)
        if (path / "blkio.throttle.write_iops_device").exists()
    )


def _freeze(host: Host, word: str) -> None:
    for path in groups.paths(host.name):
        if (path / "freezer.state").exists():
            (path / "freezer.state").write_text(word)


def _frozen(host: Host) -> bool:
    return any((path / "freezer.state").read_text().strip() != "THAWED" for path in groups.paths(host.name)
               if (path / "freezer.state").exists())  # fmt: skip


def _spoil(lab: Lab) -> None:
    path = _spoilt(lab)
    path.rename(path.with_suffix(".was"))  # written over, it would be another one in the cache too
    path.write_text("not what the release says\n")


def _spoilt(lab: Lab) -> Path:
    return lab.folder.mirror / VERSION.removeprefix("v") / "kubectl"


def _path_mtu(host: Host, size: int) -> None:
    run("ip", "-n", NAMESPACE, "link", "set", network.port_of(host.name), "mtu", size)


def _pings(host: Host, size: int = 56) -> bool:
    return succeeds("ping", "-c1", "-W1", "-M", "do", "-s", size, host.address)


OUTSIDE = (
    HostFault(
        "unreachable",
        "its cable is pulled",
        lambda lab, host: network.cut(host.name),
        lambda lab, host: network.mend(host.name),
        lambda lab, host: not _pings(host),
    ),
    HostFault(
        "path_mtu_small",
        "the way to it carries 1400 bytes, its card says 1500",
        lambda lab, host: _path_mtu(host, 1400),
        lambda lab, host: _path_mtu(host, 1500),
        lambda lab, host: _pings(host) and not _pings(host, 1472),
    ),
    HostFault(
        "mirror_spoilt",
        "a file of the mirror is not what the release says, for all hosts",
        lambda lab, host: _spoil(lab),
        lambda lab, host: _spoilt(lab).with_suffix(".was").replace(_spoilt(lab)),
        lambda lab, host: _spoilt(lab).stat().st_size < 100,
    ),
    HostFault(
        "disk_slow",
        "one fsync takes most of a second",
        lambda lab, host: _throttle(host, SLOW_WRITES),
        lambda lab, host: _throttle(host, 0),
        lambda lab, host: _slow(host),
    ),
    HostFault(
        "frozen",
        "it takes connections and says nothing",
        lambda lab, host: _freeze(host, "FROZEN"),
        lambda lab, host: _freeze(host, "THAWED"),
        lambda lab, host: _frozen(host),
    ),
)
FAULTS = {fault.name: fault for fault in (*LOGIN, *SYSTEM, *IDENTITY, *NETWORK, *LEFT_OVERS, *OUTSIDE)}
"""All of them, by name."""


@contextmanager
def broken(name: str, lab: Lab, host: Host) -> Generator[HostFault]:
    """A host with one defect, which is there for sure; afterwards it is gone for sure.

    Raises:
        BedError: the defect was there before, did not come, or did not go.
    """
    fault = FAULTS[name]
    if fault.there(lab, host):
        raise BedError(f"{host.name}: {fault.what}, before anybody broke it")
    try:
        fault.inflict(lab, host)
        until(f"{host.name} broken: {fault.what} ({name})", lambda: fault.there(lab, host), patience(3.0))
        yield fault
    finally:
        fault.mend(lab, host)
    until(f"{host.name} mended: no more {fault.what}", lambda: not fault.there(lab, host), patience(3.0))
