"""A private Slurm for tests: munged, slurmctld and a slurmd a node, in a folder and in PID namespaces of its own.

Never the system's services: own key, own socket, own ports, stopped by the ids of the processes that were started.
Fixtures with it: `pytest_plugins = ["tests.support.servers.slurm_fixtures"]`.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.support.running.waiting import patience

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "sinfo", "scancel", "unshare")
APART = ("unshare", "--pid", "--fork", "--kill-child=SIGKILL", "--mount-proc", "--")
"""Whatever is started in it ends with it, as with a machine whose power is cut."""
REAPING = ("sh", "-c", '"$@" & wait', "init")
"""The first process there; it fetches orphans that ended, else Slurm takes a dead one for one that cannot be killed."""
LIMIT_SECONDS = patience(60.0)
NODES = 4


def missing_slurm() -> str:
    """Why there can be no Slurm here; "" where there can."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        return f"{' and '.join(missing)} not on PATH: nothing was tried through a real Slurm"
    if subprocess.run([*APART, "true"], capture_output=True, check=False).returncode:
        return "no PID namespaces for us here: nothing was tried through a real Slurm"
    return ""


def wait_for(what: str, happened: Callable[[], object], limit_seconds: float = LIMIT_SECONDS) -> None:
    """Return when it has happened; fails after a generous limit."""
    ends = time.monotonic() + limit_seconds
    while not happened():
        assert time.monotonic() < ends, f"not within {limit_seconds:g} s: {what}"
        time.sleep(0.1)


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


class SlurmCluster:
    """Nodes `node-0`, `node-1`, … of four CPUs each, all on this machine."""

    def __init__(self, folder: Path, nodes: int = NODES, settings: str = "") -> None:
        self.folder = folder
        self.nodes = [f"node-{number}" for number in range(nodes)]
        self.configuration = folder / "slurm.conf"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        for name in ("munge", "state", "spool"):
            (folder / name).mkdir()
        folder.chmod(0o755)
        (folder / "munge" / "key").write_bytes(os.urandom(128))
        (folder / "munge" / "key").chmod(0o600)
        self.configuration.write_text(self._written(settings))

    def _written(self, settings: str) -> str:
        folder, me, host = self.folder, getpass.getuser(), socket.gethostname().split(".")[0]
        ports = free_ports(1 + len(self.nodes))
        lines = [
            *("ClusterName=story", f"SlurmctldHost={host}(127.0.0.1)", f"SlurmUser={me}", f"SlurmdUser={me}"),
            *("AuthType=auth/munge", f"AuthInfo=socket={folder}/munge/socket", "CredType=cred/munge"),
            *(
                f"SlurmctldPort={ports[0]}",
                f"SlurmctldPidFile={folder}/slurmctld.pid",
                f"StateSaveLocation={folder}/state",
            ),
            *(f"SlurmdPidFile={folder}/%n.pid", f"SlurmdSpoolDir={folder}/spool/%n"),
            *("ProctrackType=proctrack/pgid", "TaskPlugin=task/none", "JobAcctGatherType=jobacct_gather/none"),
            *(
                "AccountingStorageType=accounting_storage/none",
                "MailProg=/bin/true",
                "SlurmdParameters=config_overrides",
            ),
            *("SelectType=select/cons_tres", "SelectTypeParameters=CR_Core", "GresTypes=gpu"),
            *("SchedulerType=sched/backfill", "SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0"),
            *("ReturnToService=2", "SlurmdTimeout=6", "KillWait=2", "MessageTimeout=5", "MinJobAge=300"),
            *settings.splitlines(),
        ]
        for name, port in zip(self.nodes, ports[1:], strict=True):
            lines.append(f"NodeName={name} NodeAddr=127.0.0.1 NodeHostname={host} Port={port} CPUs=4 RealMemory=1000")
        lines.append("PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP")
        return "\n".join([*lines, ""])

    @property
    def environment(self) -> dict[str, str]:
        return {"SLURM_CONF": str(self.configuration)}

    def start(self) -> None:
        munge = self.folder / "munge"
        places = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        own = [f"--{option}={munge / name}" for option, name in places.items()]
        self._start("munged", ["munged", "--foreground", "--force", "--num-threads=2", *own])
        wait_for("munged's socket", (munge / "socket").exists)
        self.start_controller()
        for node in self.nodes:
            self.start_node(node)
        wait_for("all nodes idle", lambda: [self.state(node) for node in self.nodes] == ["idle"] * len(self.nodes))

    def mend(self) -> None:
        """Everything runs, nothing is drained, nobody's job is there."""
        if "slurmctld" not in self._processes:
            self.start_controller()
        self.tried("scancel", f"--user={getpass.getuser()}")
        for node in self.nodes:
            if node not in self._processes:
                self.start_node(node)
            if self.state(node).startswith(("drain", "down")):
                self.tried("scontrol", "update", f"NodeName={node}", "State=RESUME")
        wait_for("all nodes idle", lambda: {self.state(node) for node in self.nodes} == {"idle"})

    def start_controller(self) -> None:
        self._start("slurmctld", ["slurmctld", "-D"])
        wait_for("slurmctld to answer", lambda: self.tried("scontrol", "ping").returncode == 0)

    def stop_controller(self) -> None:
        self._kill("slurmctld")

    def start_node(self, node: str) -> None:
        self._start(node, ["slurmd", "-D", "-N", node])

    def cut_power(self, node: str) -> None:
        """End its slurmd and everything that runs there, at once."""
        self._kill(node)

    def stop(self) -> None:
        for name in reversed(list(self._processes)):
            self._kill(name)

    def tried(self, *words: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, **self.environment}
        return subprocess.run(
            words, capture_output=True, text=True, check=False, env=environment, timeout=LIMIT_SECONDS
        )

    def ask(self, *words: str) -> str:
        done = self.tried(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def state(self, node: str) -> str:
        return self.tried("sinfo", "--noheader", "--Node", f"--nodes={node}", "--format=%T").stdout.strip()

    def reason(self, node: str) -> str:
        return self.ask("sinfo", "--noheader", "--Node", f"--nodes={node}", "--format=%E")

    def drain(self, node: str, reason: str) -> None:
        self.ask("scontrol", "update", f"NodeName={node}", "State=DRAIN", f"Reason={reason}")

    def jobs(self, *states: str) -> list[str]:
        """Names of jobs in these states; none named: of those that wait or run."""
        chosen = [f"--states={','.join(states)}"] if states else []
        return sorted(self.ask("squeue", "--noheader", "--format=%j", *chosen).split())

    def _start(self, name: str, words: Sequence[str]) -> None:
        with (self.folder / f"{name}.out").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [*APART, *REAPING, *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env={**os.environ, **self.environment},
                start_new_session=True,
            )

    def _kill(self, name: str) -> None:
        process = self._processes.pop(name, None)
        if process is not None:
            process.kill()
            process.wait(LIMIT_SECONDS)
