"""The root file system that all hosts stand on: Debian with systemd and sshd, made once and kept.

It holds what a site's installer puts on a host, and no identity: no machine-id, no key of a host, no key of a user.
"""

from __future__ import annotations

import hashlib
import platform
from pathlib import Path

from tests.bed import starting
from tests.bed.commands import BedError, run
from tests.bed.layout import Cache
from tests.lab.network import any_lab

SUITE = "bookworm"
"""Its systemd is 252: the last ones that boot on version 1 of control groups are 255."""
PACKAGES = (
    *("systemd", "systemd-sysv", "dbus", "udev", "openssh-server", "sudo", "python3", "procps", "util-linux", "kmod"),
    *("iproute2", "iputils-ping", "iptables", "nftables", "conntrack", "ethtool", "socat", "ebtables", "ipset"),
    *("curl", "ca-certificates", "openssl", "tar", "less", "e2fsprogs", "acl", "fuse3", "libfuse2", "busybox-static"),
    *("containerd", "runc", "containernetworking-plugins", "keepalived", "chrony", "libfaketime", "dnsmasq-base"),
)
"""What kubeadm wants of a host, and Debian's own container runtime; dnsmasq is the LAN's name server."""
OFF = ("keepalived", "containerd", "chrony")
"""Installed, and not started: whoever makes a node of the host does that. The machine's clock is no host's to set."""
MASKED = (
    *("systemd-udevd.service", "systemd-udevd-kernel.socket", "systemd-udevd-control.socket"),
    *("systemd-modules-load.service", "systemd-logind.service", "getty@tty1.service", "console-getty.service"),
    *("apt-daily.timer", "apt-daily-upgrade.timer", "e2scrub_all.timer", "fstrim.timer", "dpkg-db-backup.timer"),
    *("systemd-networkd-wait-online.service", "sys-kernel-debug.mount", "sys-kernel-tracing.mount"),
)
"""They would touch the machine itself, or wait for what no host here has."""
BUILT_IN = (
    *("kernel/net/bridge/br_netfilter", "kernel/fs/overlayfs/overlay", "kernel/net/netfilter/nf_conntrack"),
    *("kernel/net/ipv4/netfilter/ip_tables", "kernel/drivers/net/vxlan/vxlan", "kernel/drivers/net/veth"),
    "kernel/fs/fuse/fuse",
)
"""Parts of this kernel that are modules elsewhere: `modprobe` of them succeeds."""
USER = "ops"
"""A user beside root who may do everything by sudo without a password."""
INIT = """#!/bin/sh
# Controllers of version 1 come read-only into a container; a kubelet makes groups below the host's own.
for c in /sys/fs/cgroup/*/; do mount -o remount,rw,bind "$c" 2>/dev/null || mount -o remount,rw "$c"; done
# /sys comes from the machine, with its network cards: another one, of this host's own network.
mount --make-rprivate /
mkdir /run/groups && mount --rbind /sys/fs/cgroup /run/groups
umount -R -l /sys && mount -t sysfs sysfs /sys
mount --rbind /run/groups /sys/fs/cgroup && umount -R -l /run/groups && rmdir /run/groups
mount --make-rshared /
ip -batch /etc/lab-network
exec /lib/systemd/systemd
"""
"""What PID 1 does before it becomes systemd; the addresses are what a site's installer wrote down."""
SSHD = """PermitRootLogin prohibit-password
PasswordAuthentication no
UseDNS no
HostKey /etc/ssh/ssh_host_ed25519_key
"""
LEFT_OUT = ("/usr/share/man/*", "/usr/share/doc/*", "/usr/share/locale/*")


def key() -> str:
    """Named after all that it is made from: another list of packages is another root."""
    said = repr((SUITE, PACKAGES, OFF, MASKED, BUILT_IN, USER, INIT, SSHD, LEFT_OUT, platform.release()))
    return hashlib.sha256(said.encode()).hexdigest()[:16]


def have(cache: Cache) -> Path:
    """The root; it is made where it is not there (40 seconds of a processor).

    Raises:
        BedError: it could not be made; nothing half made is left.
    """
    root = cache.root / f"rootfs-{key()}"
    half = cache.root / ".rootfs.half"
    cache.make()
    with starting.alone(cache):
        if root.exists():
            return root
        _remove(half)
        _install(half)
        _prepare(half)
        half.rename(root)
        if not any_lab():  # else hosts of another one may stand on it
            for other in cache.root.glob("rootfs-*"):
                if other != root:
                    _remove(other)
    return root


def _remove(root: Path) -> None:
    """A build that was killed may have left the machine's own /proc mounted there."""
    run("rm", "-rf", "--one-file-system", root)


def sources() -> Path:
    """Where this machine takes Debian's packages from; BedError where it is no Debian."""
    for name in ("/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list"):
        if Path(name).exists():
            return Path(name)
    raise BedError("no list of Debian's sources on this machine: the hosts are Debian, made by mmdebstrap")


def _install(half: Path) -> None:
    left_out = [f"--dpkgopt=path-exclude={path}" for path in LEFT_OUT]
    options = ("--variant=minbase", "--mode=root", '--aptopt=Acquire::Languages "none"', *left_out)
    included = f"--include={','.join(PACKAGES)}"
    run("nice", "-n", "10", "mmdebstrap", "--quiet", *options, included, SUITE, half, sources())


def _prepare(half: Path) -> None:
    """What a site's installer does, but for what makes one host of it."""
    for path in half.glob("etc/ssh/ssh_host_*"):
        path.unlink()
    (half / "etc/machine-id").write_text("")
    (half / "etc/default/locale").write_text("LANG=C.UTF-8\n")
    (half / "etc/ssh/sshd_config.d/lab.conf").write_text(SSHD)
    _write(half / "usr/local/sbin/lab-init", INIT, 0o755)
    run("chroot", half, "useradd", "--create-home", "--shell", "/bin/bash", USER)
    _write(half / f"etc/sudoers.d/{USER}", f"{USER} ALL=(ALL) NOPASSWD: ALL\n", 0o440)
    release = platform.release()
    modules = half / "lib/modules" / release
    modules.mkdir(parents=True, exist_ok=True)
    (modules / "modules.builtin").write_text("".join(f"{name}.ko\n" for name in BUILT_IN))
    (modules / "modules.order").write_text("")
    run("chroot", half, "depmod", release)
    control = ("systemctl", f"--root={half}")
    run(*control, "disable", *OFF)
    run(*control, "mask", *MASKED)
    run(*control, "enable", "ssh.service")


def _write(path: Path, text: str, mode: int) -> None:
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
