"""Real SSH servers on this machine, each a host of its own to whoever logs in: own port, own key, own PATH."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from profiles.admission import BareMetal, Host
from tests.support.running.waiting import patience

SEPARATED = Path("/run/sshd")
"""Where an SSH server of root's confines the part that speaks before anybody has logged in."""
LIMIT_SECONDS = patience(60.0)
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def missing_server() -> str:
    """Why there can be no SSH server here; "" where there can."""
    names = ("sshd", "ssh", "ssh-keygen", "sftp")
    missing = [name for name in names if shutil.which(name, path=f"{os.environ['PATH']}:{SYSTEM_PATH}") is None]
    return f"{' and '.join(missing)} not on PATH: preflight by SSH was NOT tried" if missing else ""


def needed_server() -> None:
    """Skip loudly, or fail where `PRIMUS_TEST_SSH` says that there must be one."""
    if reason := missing_server():
        if os.environ.get("PRIMUS_TEST_SSH") == "1":
            pytest.fail(reason)
        pytest.skip(reason)


class SshHosts:
    """Hosts by name of their node. All let in the one key of `settings`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.user = pwd.getpwuid(os.geteuid()).pw_name
        self.addresses: dict[str, Host] = {}
        self._servers: dict[str, subprocess.Popen[bytes]] = {}
        folder.mkdir(parents=True, exist_ok=True)
        if os.geteuid() == 0:
            SEPARATED.mkdir(mode=0o755, exist_ok=True)
        self._make_key(folder / "client")
        (folder / "authorized_keys").write_text((folder / "client.pub").read_text())
        (folder / "known_hosts").touch()
        (folder / "home").mkdir()

    def settings(self, **more: object) -> BareMetal:
        """The section of a cluster profile that reaches them."""
        own = {
            "hosts": dict(self.addresses),
            "user": self.user,
            "private_key_file": str(self.folder / "client"),
            "known_hosts_file": str(self.folder / "known_hosts"),
            "folder": str(self.folder / "remote" / "primus-flows"),
            "connect_seconds": 5.0,
        }
        (self.folder / "remote").mkdir(exist_ok=True)
        return BareMetal.model_validate({**own, **more})

    def start(self, node: str, path: str = SYSTEM_PATH, *, known: bool = True) -> None:
        """A host; `path` is the PATH of who logs in. Unless `known`, nobody knows its key."""
        key = self.folder / f"{node}-key"
        self._make_key(key)
        port = _free_port()
        settings = {
            "ListenAddress": f"127.0.0.1:{port}",
            "HostKey": key,
            "PidFile": "none",
            "AuthorizedKeysFile": self.folder / "authorized_keys",
            "StrictModes": "no",
            "UsePAM": "no",
            "PasswordAuthentication": "no",
            "PermitRootLogin": "prohibit-password",
            "Subsystem": "sftp internal-sftp",
            "SetEnv": f'"PATH={path}" "HOME={self.folder / "home"}"',  # whoever tests may have a PATH of his own there
        }
        file = self.folder / f"{node}.conf"
        file.write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
        program = shutil.which("sshd", path=f"{os.environ['PATH']}:{SYSTEM_PATH}")
        with (self.folder / f"{node}.log").open("ab") as log:
            command = [str(program), "-D", "-e", "-f", str(file)]
            self._servers[node] = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        self.addresses[node] = Host(address="127.0.0.1", port=port)
        self.wait(lambda: _greets(port), f"{node} greets: {(self.folder / f'{node}.log').read_text()}")
        if known:
            words = key.with_suffix(".pub").read_text().split()[:2]
            with (self.folder / "known_hosts").open("a") as file:
                file.write(f"[127.0.0.1]:{port} {' '.join(words)}\n")

    def nobody(self, node: str) -> None:
        """A node at whose port nobody listens."""
        self.addresses[node] = Host(address="127.0.0.1", port=_free_port())

    def freeze(self, node: str) -> None:
        """The host stops answering, and its connections stay open."""
        server = self._servers[node]
        for pid in [server.pid, *_below(server.pid)]:
            os.kill(pid, signal.SIGSTOP)

    def kill(self, node: str) -> None:
        """The host dies: its server and everything below it, at once."""
        server = self._servers.pop(node)
        # From the top: whoever is logged in hears nothing of what becomes of his commands.
        for pid in [server.pid, *reversed(_below(server.pid))]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        server.wait()

    def stop(self) -> None:
        """End all of them, and whoever is logged in."""
        for node in list(self._servers):
            self.kill(node)

    def wait(self, reached: Callable[[], object], what: str) -> None:
        """Until it is so."""
        deadline = time.monotonic() + LIMIT_SECONDS
        while not reached():
            assert time.monotonic() < deadline, f"did not happen: {what}"
            time.sleep(0.02)

    def left(self) -> list[str]:
        """What is left on the hosts."""
        return sorted(entry.name for entry in (self.folder / "remote").iterdir())

    def _make_key(self, path: Path) -> None:
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True, stdin=subprocess.DEVNULL
        )


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _greets(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
        return connection.recv(4) == b"SSH-"
    return False


def _below(pid: int) -> list[int]:
    """Descendants, the deepest first."""
    with contextlib.suppress(OSError):
        own = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [found for child in own for found in (*_below(int(child)), int(child))]
    return []
