"""Checkpoints of the demo trainer (a shard a rank, digests, the manifest last, then one rename), and faults on request.

Each rank keeps its slice of weights and optimizer state and its own data position, so a checkpoint is complete only
with every shard. `step-<n>` appears only when all of it is on the storage.

Faults are asked for through a file that the trainer polls each step. The file holds one JSON object `{"fault":
"exception|nan|oom", "rank": 1, "step": 20}` or the words of the command line, `exception-rank:1,step=20`. Without a
step the fault fires at once, with one in the step after it was done. The rank that fires renames the file first
(`<file>.fired`), so that one request is one fault, in whatever attempt. `{"fault": "hold", "step": 20}` makes every
rank wait once 20 steps are done, for as long as the file says so: whoever wants to break something at that step has all
the time that a busy machine takes.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import resource
import shutil
import time
from dataclasses import dataclass
from typing import Any, Dict, Iterable, List, Optional, Tuple, cast

from workflows.programs.checkpoints import manifest
from workflows.programs.demo.collective import Collective
from workflows.programs.demo.model import Adam, digest

BLOCK_BYTES = 1 << 20

HOLD = "hold"
FAULTS = ("exception", "nan", "oom", HOLD)
HOLD_LOOK_SECONDS = 0.005
"""How often a rank that waits looks at the file."""
OOM_HEADROOM_BYTES = 256 << 20
OOM_BLOCK_BYTES = 4 * OOM_HEADROOM_BYTES


class RestoreError(ValueError):
    """The checkpoint cannot be continued; the message says what is wrong with which file."""


@dataclass
class Training:
    """Everything that changes while the demo trains."""

    weights: Any
    """Flat float32 vector."""
    optimizer: Adam
    step: int
    """Steps done."""
    loss: float
    """Mean loss over all ranks of the last step done, in nats per byte."""


def save(
    directory: str,
    training: Training,
    reader_state: Dict[str, Any],
    link: Collective,
    meta: Dict[str, Any],
    ballast: int,
) -> Tuple[str, int]:
    """Write `step-<n>` under `directory`; every rank calls it at the same step.

    `reader_state` is this rank's data position, `meta` is noted in the manifest, `ballast` are bytes of padding that
    this rank adds, so that benchmarks can have large checkpoints. Returns the checkpoint's path and the bytes written.

    Raises:
        OSError: the storage refused; nothing named `step-<n>` appeared.
    """
    final = os.path.join(directory, f"step-{training.step}")
    unfinished = os.path.join(directory, f".step-{training.step}.unfinished")
    if link.rank == 0:
        shutil.rmtree(unfinished, ignore_errors=True)
        os.makedirs(unfinished)
    link.gather(b"")
    # A network file system may not show this rank the folder that rank 0 has just made.
    os.makedirs(unfinished, exist_ok=True)
    entries = [_write(unfinished, f"shard-{link.rank}.npz", _shard(training, reader_state, link))]
    if ballast:
        entries.append(_write_ballast(unfinished, f"ballast-{link.rank}.bin", ballast, training.step))
    lines = link.gather(json.dumps([[e.path, e.bytes, e.sha256] for e in entries]).encode())
    if link.rank == 0:
        files = tuple(manifest.FileEntry(*entry) for line in lines for entry in json.loads(line))
        noted = {**meta, "loss": str(training.loss), "weights_sha256": digest(training.weights)}
        text = manifest.Manifest(training.step, link.world_size, files, noted).to_json()
        _write(unfinished, manifest.MANIFEST, text.encode())
        _publish(unfinished, final)
    link.gather(b"")
    return final, sum(entry.bytes for entry in entries)


def restore(path: str, training: Training, rank: int, world_size: int) -> Tuple[manifest.Manifest, Dict[str, Any]]:
    """Fill `training` from the checkpoint at `path`, checking every digest on the way.

    Returns:
        The manifest and this rank's data position.

    Raises:
        RestoreError: no checkpoint there, a file missing or changed, or saved by another number of ranks.
    """
    import numpy as np

    try:
        with open(os.path.join(path, manifest.MANIFEST), "rb") as file:
            found = manifest.parse(file.read())
    except (OSError, ValueError) as error:
        raise RestoreError(f"{path}: no usable {manifest.MANIFEST}: {error}") from error
    if found.world_size != world_size:
        raise RestoreError(f"{path}: saved by {found.world_size} ranks, this run has {world_size}; start as many")
    parts: Dict[str, Any] = {"weights": [], "mean": [], "square": []}
    position: Dict[str, Any] = {}
    known = {entry.path: entry for entry in found.files}
    for owner in range(world_size):
        shard = np.load(io.BytesIO(_read(path, known, f"shard-{owner}.npz")), allow_pickle=False)
        for name, slices in parts.items():
            slices.append(shard[name])
        if owner == rank:
            position = json.loads(bytes(shard["reader"]).decode())
    if f"ballast-{rank}.bin" in known:
        _read(path, known, f"ballast-{rank}.bin")
    training.weights[...] = np.concatenate(parts["weights"])
    training.optimizer.mean[...] = np.concatenate(parts["mean"])
    training.optimizer.square[...] = np.concatenate(parts["square"])
    training.step = found.step
    training.loss = float(found.meta.get("loss", "nan"))
    return found, position


def _shard(training: Training, reader_state: Dict[str, Any], link: Collective) -> bytes:
    import numpy as np

    total = len(training.weights)
    mine = slice(total * link.rank // link.world_size, total * (link.rank + 1) // link.world_size)
    buffer = io.BytesIO()
    np.savez(
        buffer,
        weights=training.weights[mine],
        mean=training.optimizer.mean[mine],
        square=training.optimizer.square[mine],
        reader=np.frombuffer(json.dumps(reader_state).encode(), dtype=np.uint8),
    )
    return buffer.getvalue()


def _write(folder: str, name: str, data: bytes) -> manifest.FileEntry:
    return _write_blocks(folder, name, [data])


def _write_ballast(folder: str, name: str, length: int, step: int) -> manifest.FileEntry:
    block = (hashlib.sha256(f"{name} {step}".encode()).digest() * (BLOCK_BYTES // 32))[:BLOCK_BYTES]
    return _write_blocks(folder, name, (block[: length - at] for at in range(0, length, BLOCK_BYTES)))


def _write_blocks(folder: str, name: str, blocks: Iterable[bytes]) -> manifest.FileEntry:
    path = os.path.join(folder, name)
    running = hashlib.sha256()
    length = 0
    try:
        with open(path, "wb") as file:
            for block in blocks:
                file.write(block)
                running.update(block)
                length += len(block)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        # Python names no file when a write fails; whoever looks for the full disk needs one.
        raise OSError(error.errno, error.strerror, path) from error
    return manifest.FileEntry(name, length, running.hexdigest())


def _read(path: str, known: Dict[str, manifest.FileEntry], name: str) -> bytes:
    entry = known.get(name)
    if entry is None:
        raise RestoreError(f"{path}: its manifest names no {name}")
    try:
        with open(os.path.join(path, name), "rb") as file:
            data = file.read()
    except OSError as error:
        raise RestoreError(f"{path}: {name}: {error.strerror}") from error
    if len(data) != entry.bytes or hashlib.sha256(data).hexdigest() != entry.sha256:
        raise RestoreError(f"{path}: {name} is not what was saved (size or digest differ)")
    return data


def _publish(unfinished: str, final: str) -> None:
    """Give the finished folder its name; one of that name from before a roll-back is replaced."""
    _sync_folder(unfinished)
    replaced = f"{unfinished}.replaced"
    if os.path.isdir(final):
        shutil.rmtree(replaced, ignore_errors=True)
        os.rename(final, replaced)
    os.rename(unfinished, final)
    _sync_folder(os.path.dirname(final))
    shutil.rmtree(replaced, ignore_errors=True)


def _sync_folder(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@dataclass(frozen=True)
class Fault:
    """One request."""

    fault: str
    """One of `FAULTS`."""
    rank: int
    step: int = 0
    """Fires once this many steps are done."""


class DemoFaultError(RuntimeError):
    """The exception that was asked for."""


def parse(text: str) -> Fault:
    """The request in `text`.

    Raises:
        ValueError: neither form, or a fault this trainer does not know.
    """
    text = text.strip()
    if text.startswith("{"):
        data = cast("Dict[str, Any]", json.loads(text))
        found = Fault(str(data.get("fault")), int(data.get("rank", 0)), int(data.get("step") or 0))
    else:
        head, *options = text.split(",")
        name, _, rank = head.partition("-rank:")
        named = {key: value for key, _, value in (option.partition("=") for option in options)}
        found = Fault(name, int(rank), int(named.get("step", 0)))
    if found.fault not in FAULTS:
        raise ValueError(f"fault {found.fault!r} is not one of {', '.join(FAULTS)}")
    return found


def due(path: str, rank: int, steps_done: int) -> Optional[str]:
    """The fault that this rank shall suffer now; its request is used up by asking. None: no fault.

    Returns when no hold of this step is asked for (any more). A file that cannot be understood is reported once by
    renaming it to `<path>.refused`.
    """
    request = _request(path)
    while request is not None and request.fault == HOLD and steps_done >= request.step:
        time.sleep(HOLD_LOOK_SECONDS)
        request = _request(path)
    if request is None or request.fault == HOLD or request.rank != rank or steps_done < request.step:
        return None
    return request.fault if _rename(path, ".fired") else None


def _request(path: str) -> Optional[Fault]:
    """What the file asks for now. None: nothing, or nothing that can be understood."""
    try:
        with open(path, encoding="utf-8") as file:
            return parse(file.read())
    except OSError:
        return None
    except (ValueError, TypeError, AttributeError) as error:
        print(f"fault file {path} is not understood: {error}", flush=True)
        _rename(path, ".refused")
        return None


def _rename(path: str, suffix: str) -> bool:
    """True where this process was the one that renamed it."""
    try:
        os.replace(path, path + suffix)
    except OSError:
        return False
    return True


def run_out_of_memory() -> None:
    """Ask for more memory than there is left. What is left is not filled first: a busy machine takes seconds for that.

    Raises:
        MemoryError: under a limit of address space that this process sets on itself first, so that the machine's other
            programs do not suffer.
    """
    used = _address_space_bytes()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    wanted = used + OOM_HEADROOM_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))
    hoard: List[bytearray] = []
    while True:
        hoard.append(bytearray(OOM_BLOCK_BYTES))


def _address_space_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[0]) * resource.getpagesize()
