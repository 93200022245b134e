"""Many hosts over SSH at once: one OpenSSH client each, one conversation each with the program that tells facts.

A conversation is bounded in time and in bytes. Whatever a host says is data: lines that are no answer are passed over,
and how a conversation failed is a value, never an error.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import signal
import time
from dataclasses import dataclass
from typing import Any

from profiles.bootstrap.inventory import ClusterHost, Ssh
from profiles.errors import ProfileError
from tasks.embedded.engine.json_values import Json, as_map
from tasks.settings import expanded
from tasks.ssh.failures import Way, failure_of, short
from tasks.ssh.host_program import program, remote_command
from tasks.ssh.inventory import USER, WORD, proxy_command, ssh_arguments
from workflows.model.host_facts import Unread
from workflows.model.host_sight import ClockBounds, LookFailure

MOST_BYTES = 1 << 20
"""All that a host may say; a large one's facts are some ten thousand."""
MOST_ERRORS = 1 << 14
"""Bytes of what the client itself says that are kept."""
LOGIN_SECONDS = 20.0
"""Beside the time to connect, for a login and for Python to start on a busy host."""
ENDING_SECONDS = 2.0
CLOCK_QUESTIONS = 3
KEPT_OF_OURS = ("PATH", "HOME", "USER", "LOGNAME", "SSH_AUTH_SOCK", "KRB5CCNAME")
_FIELD = "bootstrap.ssh"


@dataclass(frozen=True)
class Target:
    """How one host is reached."""

    name: str
    command: tuple[str, ...]
    """The client's whole command line."""
    way: Way


class LookError(Exception):
    """A conversation failed; what was told until then stands."""

    def __init__(self, kind: LookFailure, why: str) -> None:
        super().__init__(why)
        self.kind, self.why = kind, why


def target(name: str, host: ClusterHost, ssh: Ssh) -> Target:
    """How a host of an inventory is reached.

    Raises:
        ProfileError: a field could be read as more than a name by a shell on the way.
    """
    user, port = host.user or ssh.user, host.port or ssh.port
    own = ssh.model_copy(update={"private_key_file": host.private_key_file or ssh.private_key_file})
    key_field = f"bootstrap.hosts.{name}" if host.private_key_file else _FIELD
    key_field += ".private_key_file"
    if not WORD.fullmatch(ssh.python) or ssh.python.startswith("-"):
        raise ProfileError(f"{_FIELD}.python", f"must be a program's name or path, got {ssh.python!r}")
    if not USER.fullmatch(user):
        field = f"bootstrap.hosts.{name}.user" if host.user else f"{_FIELD}.user"
        raise ProfileError(field, f"must be the name of a user, got {user!r}")
    for field, path in ((key_field, own.private_key_file), (f"{_FIELD}.known_hosts_file", own.known_hosts_file)):
        if '"' in path or "\n" in path:
            raise ProfileError(field, f"must be a path without quotation marks and in one line, got {path!r}")
    options = ssh_arguments(own, _FIELD)
    if own.private_key_file:
        options += ["-i", str(expanded(own.private_key_file, key_field))]
    jump = host.jump or ssh.jump
    _check_jump(f"bootstrap.hosts.{name}.jump" if host.jump else f"{_FIELD}.jump", jump)
    through = ["-o", f"ProxyCommand={proxy_command(jump, user, options)}"] if jump else []
    words = ["ssh", "-T", "-x", *options, *through, "-p", str(port), "-l", user, "--", host.address]
    command = (*words, remote_command(ssh.python, user))
    known = own.known_hosts_file or "~/.ssh/known_hosts"
    where = f"{host.address} port {port}" + (f" (through {jump})" if jump else "")
    return Target(name, command, Way(where, user, known, ssh.connect_seconds, ssh.python))


def _check_jump(field: str, jump: str) -> None:
    login, _, place = jump.rpartition("@")
    address, _, port = place.partition(":")
    fine = WORD.fullmatch(address) and not address.startswith("-") and (port or "22").isdigit()
    if jump and not (fine and (not login or USER.fullmatch(login))):
        raise ProfileError(field, f"must be user@host:port, of which user and port may be left out, got {jump!r}")


def environment() -> dict[str, str]:
    """The client's own: its words are matched, and it needs nothing else of ours."""
    return {**{name: os.environ[name] for name in KEPT_OF_OURS if name in os.environ}, "LC_ALL": "C"}


class Conversation:
    """One connection to one host. Close it whatever happened."""

    def __init__(self, to: Target) -> None:
        self._to = to
        self._word = f"primus-{secrets.token_hex(8)}"
        self._process: asyncio.subprocess.Process | None = None
        self._errors = bytearray()
        self._reading: asyncio.Task[None] | None = None
        self._bytes = 0
        self._kept = bytearray(b"\n")
        """What came and is not dropped yet, from the end of a line on."""

    async def open(self) -> None:
        """Connect and start the program; it has said its first word afterwards.

        Raises:
            LookError: why not.
        """
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._to.command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=environment(),
                start_new_session=True,
            )
        except OSError as error:
            raise LookError(LookFailure.LOST, f"ssh cannot be started here: {error.strerror or error}") from error
        self._reading = asyncio.create_task(self._read_errors(self._process))
        await self._write(program() + f"{self._word}\n".encode())
        await self._ask("clock", "clock", "", self._to.way.connect_seconds + LOGIN_SECONDS)

    async def clock(self) -> ClockBounds | Unread:
        """Its clock minus ours, by the quickest of some answers.

        Raises:
            LookError: it does not answer.
        """
        best: ClockBounds | Unread = Unread("it did not tell its time")
        width = float("inf")
        for _ in range(CLOCK_QUESTIONS):
            asked = time.time()
            told = await self._ask("clock", "clock", "", LOGIN_SECONDS)
            heard, its = time.time(), told.get("time")
            if isinstance(its, float) and 0 <= heard - asked < width:
                best, width = ClockBounds(its - heard, its - asked), heard - asked
        return best

    async def facts(self, options: str, seconds: float) -> str:
        """The document of facts, as it came.

        Raises:
            LookError: it did not come.
        """
        return json.dumps(await self._ask("facts", "facts", options, seconds))

    async def listen(self, told: Json, seconds: float) -> Json:
        """Let it listen; what it says of that. Raises as `facts`."""
        return await self._ask("listen", "ready", json.dumps(told), seconds)

    async def go(self, told: Json, seconds: float) -> Json:
        """Let it try its peers; what it found. Raises as `facts`."""
        return await self._ask("go", "reached", json.dumps(told), seconds)

    async def close(self) -> None:
        """End the connection, by force where it does not end itself."""
        process = self._process
        if process is None:
            return
        with contextlib.suppress(OSError):
            if process.stdin is not None:
                process.stdin.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._drained(process), ENDING_SECONDS)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._drained(process), ENDING_SECONDS)
        if self._reading is not None:
            self._reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reading
        self._process = None  # its number may soon be another process's

    async def _drained(self, process: asyncio.subprocess.Process) -> None:
        """Until it has ended: asyncio tells so only when its output was read to the end."""
        while process.stdout is not None and await process.stdout.read(1 << 16):
            pass
        await process.wait()

    async def _write(self, data: bytes) -> None:
        stream = self._process.stdin if self._process else None
        if stream is not None:
            with contextlib.suppress(OSError):  # it has ended: why is read from its errors
                stream.write(data)
                await stream.drain()

    async def _ask(self, request: str, answer: str, more: str, seconds: float) -> Json:
        try:
            return await asyncio.wait_for(self._asked(request, answer, more), seconds)
        except TimeoutError:
            said = short(self._errors.decode("utf-8", "replace"))
            late = f"{self._to.way.where} did not tell its {answer} within {seconds:g} s"
            raise LookError(LookFailure.TIMED_OUT, late + (f": {said}" if said else "")) from None

    async def _asked(self, request: str, answer: str, more: str) -> Json:
        await self._write(f"{request} {more}\n".encode())
        line = await self._line(f"\n{self._word} {answer} ".encode())
        try:
            told: Any = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise LookError(LookFailure.UNREADABLE, f"its answer cannot be read: {short(str(error))}") from error
        return as_map(told)

    async def _line(self, begin: bytes) -> bytes:
        """The rest of the next line that begins so; whatever else is said is dropped as it comes."""
        kept = self._kept
        while True:
            start = kept.find(begin)
            end = kept.find(b"\n", start + 1) if start >= 0 else -1
            if end >= 0:
                line = bytes(kept[start + len(begin) : end])
                del kept[:end]
                return line
            if start < 0:
                del kept[: max(0, kept.rfind(b"\n"))]
            stream = self._process.stdout if self._process else None
            block = await stream.read(1 << 16) if stream is not None else b""
            if not block:
                raise await self._ended()
            self._bytes += len(block)
            if self._bytes > MOST_BYTES:
                raise self._flood()
            kept += block

    def _flood(self) -> LookError:
        return LookError(LookFailure.UNREADABLE, f"it said more than {MOST_BYTES >> 20} MiB: nothing of it is taken")

    async def _ended(self) -> LookError:
        """Why the client ended."""
        process, code = self._process, None
        if process is not None:
            with contextlib.suppress(TimeoutError):
                code = await asyncio.wait_for(process.wait(), ENDING_SECONDS)
        if self._reading is not None:
            await asyncio.wait({self._reading}, timeout=ENDING_SECONDS)
        return LookError(*failure_of(self._to.way, self._errors.decode("utf-8", "replace"), code))

    async def _read_errors(self, process: asyncio.subprocess.Process) -> None:
        stream = process.stderr
        while stream is not None and (block := await stream.read(1 << 14)):
            self._errors += block[: max(0, MOST_ERRORS - len(self._errors))]
