"""A small "trainer" that trains for some steps and then really meets a fault, of which the system tells.

Standard library only; it is copied into the run's folder and started there, so that pods see it. Nothing is faked: the
message that the diagnosis reads is the one the system prints.

    python3 real_causes.py CAUSE
"""

import mmap
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

RANK = int(os.environ.get("RANK", "0"))
STEPS = 12
AT = 5
"""The step at which it happens."""


def memory_limit() -> None:
    """Run out of address space, as a container with a limit does."""
    resource.setrlimit(resource.RLIMIT_AS, (512 << 20, 512 << 20))
    held: list[bytearray] = []
    while True:
        held.append(bytearray(64 << 20))


def disk_full() -> None:
    """Fill a file system of 64 KiB."""
    if "MOUNTED" not in os.environ:
        script = 'mount -t tmpfs -o size=64k tmpfs /mnt && exec "$@"'
        os.environ["MOUNTED"] = "1"
        os.execvp("unshare", ["unshare", "-Urm", "sh", "-c", script, "sh", sys.executable, *sys.argv])
    with open("/mnt/shard.bin", "wb") as file:
        file.write(b"x" * (1 << 20))


def bus_error() -> None:
    """Touch shared memory that is full: the kernel answers with SIGBUS."""
    if "MOUNTED" not in os.environ:
        script = 'mount -t tmpfs -o size=64k tmpfs /dev/shm && exec "$@"'
        os.environ["MOUNTED"] = "1"
        os.execvp("unshare", ["unshare", "-Urm", "sh", "-c", script, "sh", sys.executable, *sys.argv])
    with open("/dev/shm/batch", "w+b") as file:
        file.truncate(1 << 20)
        memory = mmap.mmap(file.fileno(), 1 << 20)
        for offset in range(0, 1 << 20, 4096):
            memory[offset] = 1


def port_in_use() -> None:
    """Bind a port that another socket has."""
    taken = socket.create_server(("127.0.0.1", 0))
    socket.create_server(taken.getsockname())


def no_such_name() -> None:
    """Ask for a name that cannot exist (RFC 6761)."""
    socket.create_connection(("trainer-0.invalid", 29500))


def reset_connection() -> None:
    """Read from a peer that cut the connection with a reset."""
    server = socket.create_server(("127.0.0.1", 0))

    def cut() -> None:
        link, _ = server.accept()
        link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        link.close()

    threading.Thread(target=cut, daemon=True).start()
    client = socket.create_connection(server.getsockname())
    while client.recv(1) == b"":
        raise EOFError("closed in order, not cut")


def user_exception() -> None:
    """A mistake in the program."""
    batch = [1.0, 2.0]
    print(batch[7])


def not_a_number() -> None:
    """A loss that overflows."""
    loss = 1e308
    for step in range(AT, 10_000):
        loss = loss * 10 - loss * 10
        report(step, loss)
        time.sleep(0.05)


def killed() -> None:
    """Somebody kills it."""
    os.kill(os.getpid(), signal.SIGKILL)


def terminated() -> None:
    """Somebody terminates it without a word to the launcher."""
    os.kill(os.getpid(), signal.SIGTERM)


def missing_module() -> None:
    """The image lacks a package."""
    __import__("flash_attention_that_nobody_installed")


def truncated_checkpoint() -> None:
    """Read a checkpoint whose end is missing."""
    import pickle

    with open("checkpoint-40.pt", "wb") as file:
        file.write(pickle.dumps({"weights": [0.1] * 1000})[:-200])
    with open("checkpoint-40.pt", "rb") as file:
        pickle.load(file)


def segmentation_fault() -> None:
    """Native code reads where nothing is."""
    import ctypes

    ctypes.string_at(0)


def wrong_argument() -> None:
    """Another program of the role is called with a flag that it does not know."""
    raise SystemExit(subprocess.run([sys.executable, "-m", "zipfile", "--learning-rate", "1"], check=False).returncode)


def report(step: int, loss: float) -> None:
    """One line as the demo trainer prints it."""
    print(f"step {step}/{STEPS} | loss {loss:.4f} | tokens/s 1000 | step time 0.0200 s", flush=True)


def main() -> None:
    """Train, then meet the fault on rank 1."""
    cause = globals()[sys.argv[1]]
    if "MOUNTED" in os.environ:
        cause()
    for step in range(1, STEPS + 1):
        time.sleep(0.02)
        report(step, 3.0 - step / 100)
        if step == AT and (0 if cause is not_a_number else 1) == RANK:
            cause()
    if RANK == 0 and cause is not not_a_number:
        time.sleep(60)


main()
