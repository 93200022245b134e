"""One host: booted by systemd-nspawn, reached by SSH, its power cut and switched on again."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.bed.commands import BedError, run, until
from tests.lab import groups, network
from tests.lab.layout import MOST_HOSTS, SERVER, VIRTUAL, Folder, Options
from tests.lab.rootfs import USER
from tests.support.running.waiting import patience

BOOT_S = patience(30.0)
SHUTDOWN_S = patience(90.0)
"""systemd's own limit for what does not end by itself."""
REBOOT = 133
"""How nspawn ends where the host asked for a reboot."""
BOUND = {
    "containerd": "/var/lib/containerd",
    "etcd": "/var/lib/etcd",
    "kubelet": "/var/lib/kubelet",
    "pods": "/var/log/pods",
}
"""Folders that lie on the machine's own file system: an overlay on an overlay is refused, and etcd wants a disk."""
DEVICES = ("/dev/kmsg", "/dev/fuse")
"""A kubelet reads the first one; file systems of users need the second."""
ENVIRONMENT = (
    "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=0",
    "SYSTEMD_NSPAWN_API_VFS_WRITABLE=1",
    "SYSTEMD_SECCOMP=0",
    "SYSTEMD_NSPAWN_LOCK=0",
)
"""As a machine: its own /proc/sys, and no system call that containers need refused."""
DIGESTS = r"""
find "$@" -xdev -printf '%p\t%y %m %U:%G %l\n' 2>/dev/null
find "$@" -xdev -type f -exec sha256sum {} + 2>/dev/null | sed -E 's/^([0-9a-f]+)  (.*)$/\2\t\1/'
"""


@dataclass(frozen=True)
class Host:
    """A host of a lab."""

    name: str
    folder: Folder

    @property
    def address(self) -> str:
        """In the LAN."""
        return network.address_of(self.name)

    @property
    def _own(self) -> Path:
        return self.folder.host(self.name)

    @property
    def root(self) -> Path:
        """Its root file system, whether it runs or not."""
        return self._own / "root"

    @property
    def console(self) -> Path:
        """What systemd said as it booted."""
        return self._own / "console.log"

    def ssh(self, command: str = "", user: str = "root") -> list[str]:
        """The command line that runs a command there, or opens a shell."""
        options = {
            "UserKnownHostsFile": self.folder.known_hosts,
            "StrictHostKeyChecking": "yes",
            "BatchMode": "yes",
            "ConnectTimeout": 5,
            "LogLevel": "ERROR",
        }
        words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
        target = [f"{user}@{self.address}", *([command] if command else [])]
        return ["ssh", "-F", "/dev/null", "-i", str(self.folder.private_key), *words, *target]

    def run(
        self, command: str, user: str = "root", stdin: str | None = None, limit_s: float = 60.0, check: bool = True
    ) -> str:
        """What a command printed there, by SSH.

        Raises:
            BedError: it failed (and `check` is set), did not end, or the host does not answer.
        """
        try:
            done = subprocess.run(
                self.ssh(command, user), input=stdin, capture_output=True, text=True, timeout=limit_s, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise BedError(f"{self.name}: {command[:200]}: not within {limit_s:.0f} s") from error
        if check and done.returncode:
            said = (done.stderr or done.stdout).strip()[-1500:]
            raise BedError(f"{self.name}: {command[:300]}: exit {done.returncode}: {said}")
        return done.stdout

    def enter(self, command: str) -> str:
        """What a command printed there, past SSH and its keys; BedError where it fails or the host is off."""
        every = ("--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--root", "--wd")
        return run("nsenter", "--target", self.process(), *every, "--", "/bin/sh", "-c", command)

    def write(self, path: str, text: str, mode: str = "644") -> None:
        """A file there, with its folder."""
        where = shlex.quote(path)
        self.run(f"mkdir -p $(dirname {where}) && cat >{where} && chmod {mode} {where}", stdin=text)

    def files_digest(self, paths: Sequence[str]) -> dict[str, str]:
        """Kind, mode, owner, target and SHA-256 of all below some paths, by path: equal means untouched."""
        words = " ".join(map(shlex.quote, paths))
        told = self.run(f"set -- {words}; {DIGESTS}", limit_s=patience(120.0))
        found: dict[str, str] = {}
        for line in told.splitlines():
            path, _, what = line.partition("\t")
            found[path] = f"{found[path]} {what}" if path in found else what
        return found

    def process(self) -> int:
        """Its PID 1, as this machine counts; BedError where the host is off."""
        for process in groups.members(self.name):
            with contextlib.suppress(OSError):
                said = Path(f"/proc/{process}/status").read_text()
                [seen] = [line.split()[1:] for line in said.splitlines() if line.startswith("NSpid:")]
                if len(seen) == 2 and seen[1] == "1":
                    return process
        raise BedError(f"host {self.name} is off")

    def is_on(self) -> bool:
        """Whether it has power."""
        return bool(groups.members(self.name))

    def power_on(self) -> None:
        """Switch it on and wait until it has booted."""
        if self.is_on():
            raise BedError(f"host {self.name} is on")
        self.start()
        self.booted()

    def start(self) -> None:
        """Switch it on and wait for nothing."""
        groups.remove(self.name)
        binds = [f"--bind={self._own / name}:{where}" for name, where in BOUND.items()]
        binds += [f"--bind={self.folder.shared}", *(f"--bind={device}" for device in DEVICES if Path(device).exists())]
        options = (
            *("--quiet", f"--machine={self.name}", f"--directory={self.root}", "--register=no", "--keep-unit"),
            *("--kill-signal=SIGRTMIN+3", "--resolv-conf=off", "--timezone=off", "--link-journal=no"),
            *(f"--network-namespace-path=/run/netns/{network.namespace_of(self.name)}", "--capability=all"),
            *("--console=pipe", *binds, "/usr/local/sbin/lab-init"),
        )
        lines = [
            "code=" + str(REBOOT),
            f"while [ $code = {REBOOT} ]; do",
            *network.unplug(self.name),
            *network.plug(self.name),
            shlex.join(["env", *ENVIRONMENT, "systemd-nspawn", *options]),
            "code=$?",
            "done",
            *network.unplug(self.name),
        ]
        groups.spawn(self.name, lines, self.console)
        until(f"power at {self.name}", self.is_on, 5.0)

    def booted(self) -> None:
        """Wait until all its units are up.

        On version 1 of control groups about one boot in five loses the race for an early unit's group (219/CGROUP):
        such a unit is started again.

        Raises:
            BedError: a unit failed twice, or the host did not boot; its console's last words are told.
        """
        try:
            until(f"boot of {self.name}", self._answers, BOOT_S, every_s=0.1)
        except BedError as error:
            raise BedError(f"{error}; {self.console}: {self.console.read_text(errors='replace')[-1500:]}") from error
        failed = self.run("systemctl --failed --plain --no-legend | cut -d' ' -f1").split()
        if failed:
            units = shlex.join(failed)
            self.run(f"systemctl reset-failed {units}; systemctl restart {units}")
        state = self.run("systemctl is-system-running", check=False).strip()
        if state != "running":
            raise BedError(f"host {self.name} is {state}: {self.run('systemctl --failed --plain --no-legend')}")

    def _answers(self) -> bool:
        return self.run("systemctl is-system-running --wait", check=False, limit_s=BOOT_S).strip() != ""

    def power_cut(self) -> None:
        """No goodbye: SIGKILL to its PID 1, with which all its processes go. What was written stays, synced or not."""
        with contextlib.suppress(BedError, ProcessLookupError):
            os.kill(self.process(), signal.SIGKILL)
        self._off(patience(15.0))

    def shutdown(self) -> None:
        """Orderly; what does not end within systemd's own time is cut off."""
        if self.is_on():
            self.enter("systemctl --no-block poweroff")
            self._off(SHUTDOWN_S)

    def _off(self, limit_s: float) -> None:
        """Wait until nothing of it runs; SIGKILL for what is left then."""
        with contextlib.suppress(BedError):
            until(f"end of {self.name}", lambda: not self.is_on(), limit_s)
        for process in groups.members(self.name):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        until(f"end of {self.name} after SIGKILL", lambda: not self.is_on())

    def install(self, template: Path) -> None:
        """Make its root, and what is its own alone: name, machine-id, keys."""
        for name in ("upper", "work", "root", *BOUND):
            (self._own / name).mkdir(parents=True)
        layers = f"lowerdir={template},upperdir={self._own / 'upper'},workdir={self._own / 'work'}"
        run("mount", "-t", "overlay", "overlay", "-o", f"{layers},index=off,xino=off", self.root)
        everybody = "".join(f"{network.address_of(name)} {name}\n" for name in Options(MOST_HOSTS).names())
        written = {
            "etc/hostname": f"{self.name}\n",
            "etc/hosts": f"127.0.0.1 localhost\n{everybody}{VIRTUAL} api.lab\n{SERVER} mirror.lab\n",
            "etc/resolv.conf": f"nameserver {SERVER}\nsearch lab\n",
            "etc/machine-id": f"{uuid.uuid4().hex}\n",
            "etc/lab-network": network.own_settings(self.name),
        }
        for name, text in written.items():
            (self.root / name).unlink(missing_ok=True)  # resolv.conf may be a link
            (self.root / name).write_text(text, encoding="utf-8")
        allowed = self.folder.private_key.with_suffix(".pub").read_text()
        for home, owner in (("root", 0), (f"home/{USER}", (self.root / "home" / USER).stat().st_uid)):
            keys = self.root / home / ".ssh"
            keys.mkdir(exist_ok=True)
            keys.chmod(0o700)
            (keys / "authorized_keys").write_text(allowed)
            for path in (keys, keys / "authorized_keys"):
                os.chown(path, owner, owner)
        key = make_key(self.root / "etc/ssh/ssh_host_ed25519_key", self.name)
        with self.folder.known_hosts.open("a") as known:
            known.write(f"{self.name},{self.address} {key}\n")

    def renew(self, template: Path) -> None:
        """Make another host of the same name and address of it, with nothing that this one had, and switch it on."""
        self.power_cut()
        run("umount", "-l", self.root)
        run("rm", "-rf", "--one-file-system", self._own)
        known = self.folder.known_hosts.read_text().splitlines(keepends=True)
        self.folder.known_hosts.write_text("".join(one for one in known if not one.startswith(f"{self.name},")))
        self.install(template)
        self.power_on()


def make_key(path: Path, comment: str) -> str:
    """A pair of keys; the public one, without its comment."""
    path.unlink(missing_ok=True)
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", path)
    return " ".join(path.with_suffix(".pub").read_text().split()[:2])
