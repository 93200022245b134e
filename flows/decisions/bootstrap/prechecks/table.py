"""All pre-checks: what each asks, and what to do where the answer is no. Their names are what `--force` takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from profiles.errors import ProfileError
from profiles.values import did_you_mean


@dataclass(frozen=True)
class Precheck:
    """One check."""

    asks: str
    """What must hold."""
    advice: str
    """What to do where it does not."""
    forceable: bool = True
    """Whether somebody may go on though it does not hold."""


PRECHECKS: Mapping[str, Precheck] = {
    "reachable": Precheck(
        "the host answers over SSH", "switch it on, or correct its address and port in the inventory", forceable=False
    ),
    "host-key": Precheck("its key is the one we know", "compare the key on the host's console first", forceable=False),
    "login": Precheck(
        "it lets us in", "put our public key into its authorized_keys, or correct user and key", forceable=False
    ),
    "python": Precheck("it has Python 3.9 or later", "install it, or name it in bootstrap.ssh.python", forceable=False),
    "sudo": Precheck("we are root there without a password", "give the user NOPASSWD in sudoers, or log in as root"),
    "system": Precheck("all hosts of a pool run one system", "bring those that differ to the same release"),
    "kernel": Precheck(
        "all hosts of a pool run one kernel",
        "boot them into the same kernel, or set bootstrap.limits.kernels_may_differ",
    ),
    "systemd": Precheck(
        "systemd is process 1 and has started", "look at `systemctl --failed` and `systemctl list-jobs`"
    ),
    "cgroup": Precheck(
        "control groups are of version 2",
        "boot with systemd.unified_cgroup_hierarchy=1, or set failCgroupV1: false for the kubelet",
    ),
    "clock": Precheck("all clocks agree", "start chrony or systemd-timesyncd there and wait until it is synchronised"),
    "disk": Precheck("there is room below /var/lib", "free some, or mount a larger disk there"),
    "containerd-disk": Precheck(
        "containerd's folder lies on a disk of its own kind", "mount ext4 or xfs at /var/lib/containerd"
    ),
    "fsync": Precheck("etcd's disk is fast", "give /var/lib/etcd a local SSD, and nothing else to do for it"),
    "memory": Precheck("there is as much memory as its work needs", "look for a broken module, or correct the pool"),
    "swap": Precheck("swap is off", "swapoff -a, and take its lines out of /etc/fstab"),
    "ports-free": Precheck("nobody else has the ports of Kubernetes", "stop what listens there"),
    "ports": Precheck("every host reaches the ports it needs of every other one", "open them in the firewalls between"),
    "mtu": Precheck(
        "packets of full size go from every host to every other one",
        "set the same MTU on the switch ports and interfaces of the way",
    ),
    "machine-id": Precheck(
        "every machine-id is unique", "rm /etc/machine-id && systemd-machine-id-setup on the copies, then reboot"
    ),
    "mac": Precheck("every MAC is unique", "give the copies a MAC of their own"),
    "hostname": Precheck("every host name is unique", "hostnamectl hostname NAME on the copies"),
    "address": Precheck(
        "a host has its own address, and nobody else does", "correct node_ip, or take the address from the other host"
    ),
    "names": Precheck("names resolve there", "correct its /etc/resolv.conf or the zone"),
    "resolver": Precheck(
        "its name servers are others",
        "name a server of the site in /etc/resolv.conf: pods cannot ask the host's 127.0.0.1",
    ),
    "mirror": Precheck(
        "it gets a file of the mirror, with the right digest", "look at the mirror, and at the way to it"
    ),
    "registry": Precheck("it reaches the registry", "look at the registry, its certificate, and at the way to it"),
    "leftovers": Precheck("no old cluster has left anything", "kubeadm reset -f there, then remove what is named"),
    "foreign-cluster": Precheck(
        "it belongs to no other cluster",
        "take it out of that cluster first: drain, delete its node, reset it",
        forceable=False,
    ),
    "gpus": Precheck("it has the GPUs of its pool", "look for GPUs that fell off the bus, or correct the pool"),
    "gpu-driver": Precheck("one driver serves all GPUs of a pool", "install the same driver, or let it load"),
    "nics": Precheck("it has the fabric NICs of its pool, and they are up", "look at cables and switch ports"),
    "firmware": Precheck("all hosts of a pool have the same firmware", "bring those that differ to the same versions"),
    "certificates": Precheck(
        "its certificates hold for a while", "kubeadm certs renew all, then restart the control plane"
    ),
    "entropy": Precheck(
        "the kernel has entropy", "install rng-tools or haveged, or give the machine a hardware source"
    ),
    "limits": Precheck("a process may open enough files", "raise nofile and nproc in /etc/security/limits.conf"),
    "networks": Precheck(
        "pods' and services' networks meet none that it reaches", "choose other ones in bootstrap.networks"
    ),
}


def check_forced(forced: Mapping[str, str]) -> None:
    """Refuse to force what is unknown, what nobody may force, or what has no reason.

    Raises:
        ProfileError: which one.
    """
    for name, why in forced.items():
        check = PRECHECKS.get(name)
        if check is None:
            raise ProfileError("force", f'there is no pre-check "{name}"{did_you_mean(name, PRECHECKS, "pre-checks")}')
        if not check.forceable:
            raise ProfileError("force", f"{name} is never forced: {check.advice}")
        if not why.strip():
            raise ProfileError("force", f"{name} needs a reason, which is kept: --force {name}=REASON")
