"""Checkpoints as training programs leave them, small, written without those programs."""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import struct
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

from workflows.programs.checkpoints import manifest

Files = dict[str, bytes]


def torch_file(payload: bytes = b"weights" * 50) -> bytes:
    """As `torch.save` writes since version 1.6: a stored zip of `data.pkl` and storages."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        members = {
            "archive/data.pkl": pickle.dumps({"model": 1}, protocol=2),
            "archive/data/0": payload,
            "archive/version": b"3\n",
        }
        for name, data in members.items():  # a member of its own date: the same bytes whenever it is written
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data)
    return _with_zip64_record(buffer.getvalue())


def _with_zip64_record(data: bytes) -> bytes:
    """As torch writes its zips, whatever their size; the places in it count from the zip's own beginning."""
    at = data.rindex(b"PK\x05\x06")
    count, length, offset = struct.unpack_from("<HII", data, at + 10)
    record = struct.pack("<4sQHHIIQQQQ", b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, length, offset)
    return data[:at] + record + struct.pack("<4sIQI", b"PK\x06\x07", 0, at, 1) + data[at:]


def safetensors_file(numbers: int = 64) -> bytes:
    header = json.dumps({
        "__metadata__": {"format": "pt"},
        "weight": {"dtype": "F32", "shape": [numbers], "data_offsets": [0, numbers * 4]},
    }).encode()  # fmt: skip
    return struct.pack("<Q", len(header)) + header + bytes(range(256)) * (numbers // 64)


def npy_file(numbers: int = 64) -> bytes:
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({numbers},), }}".encode()
    header += b" " * (118 - len(header) - 1) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + b"\0" * 4 * numbers


class _StorageInfo:
    """Stands in for the class of that name in torch: only its attributes reach the pickle."""

    def __init__(self, relative_path: str, offset: int, length: int) -> None:
        self.relative_path = relative_path
        self.offset = offset
        self.length = length


def old_torch_file() -> bytes:
    """As `torch.save` wrote before version 1.6: five pickles, then two tensors of four floats."""

    def pickled(value: object) -> bytes:
        return pickle.dumps(value, protocol=2)

    # PROTO 2, a tuple of two persistent ids ("storage", torch FloatStorage, key, "cpu", 4), STOP
    one = b"(X\x07\0\0\0storagectorch\nFloatStorage\nq\x01X\x01\0\0\0%dX\x03\0\0\0cpuK\x04tQ"
    again = b"(X\x07\0\0\0storageh\x01X\x01\0\0\0%dX\x03\0\0\0cpuK\x04tQ"
    main = b"\x80\x02" + one % 0 + again % 1 + b"\x86."
    head = pickled(0x1950A86A20F9469CFC6C) + pickled(1001) + pickled({"little_endian": True})
    tensors = b"".join(struct.pack("<q", 4) + b"\0" * 16 for _ in range(2))
    return head + main + pickled(["0", "1"]) + tensors


def dcp_metadata(shards: Mapping[str, int], protocol: int = 4) -> bytes:
    """`.metadata` of a Distributed Checkpoint that needs these shards with these sizes, in two pieces each."""
    storage = {}
    for name, size in shards.items():
        storage[f"{name}-a"] = _StorageInfo(name, 0, size // 2)
        storage[f"{name}-b"] = _StorageInfo(name, size // 2, size - size // 2)
    return pickle.dumps({"state_dict_metadata": {}, "storage_data": storage}, protocol=protocol)


def primus(step: int = 20, ranks: int = 2) -> Files:
    shards = {f"shard-{rank}.npz": f"{step} {rank} ".encode() * 40 for rank in range(ranks)}
    entries = tuple(
        manifest.FileEntry(name, len(data), hashlib.sha256(data).hexdigest()) for name, data in shards.items()
    )
    text = manifest.Manifest(step, ranks, entries, {"loss": "1.0"}).to_json()
    return {f"step-{step}/{name}": data for name, data in {**shards, "manifest.json": text.encode()}.items()}


def dcp(step: int = 20, ranks: int = 2) -> Files:
    shards = {f"__{rank}_0.distcp": torch_file(f"{step} tensor {rank} ".encode() * 20) * 2 for rank in range(ranks)}
    whole = {**shards, ".metadata": dcp_metadata({name: len(data) for name, data in shards.items()})}
    return {f"step-{step}/{name}": data for name, data in whole.items()}


def megatron_legacy(step: int = 20, tensor: int = 2, pipeline: int = 1) -> Files:
    found: dict[str, bytes] = {"latest_checkpointed_iteration.txt": str(step).encode()}
    for t in range(tensor):
        for p in range(pipeline):
            name = f"mp_rank_{t:02d}" + (f"_{p:03d}" if pipeline > 1 else "")
            found[f"iter_{step:07d}/{name}/model_optim_rng.pt"] = torch_file(f"{t} {p}".encode() * 20)
            found[f"iter_{step:07d}/{name}/distrib_optim.pt"] = torch_file()
    return found


def megatron_dist(step: int = 20) -> Files:
    shards = {f"__{rank}_{part}.distcp": b"x" * 200 for rank in range(2) for part in range(2)}
    whole = {
        **shards,
        ".metadata": dcp_metadata({name: len(data) for name, data in shards.items()}),
        "common.pt": torch_file(),
        "metadata.json": b'{"sharded_backend": "torch_dist", "sharded_backend_version": 1}',
    }
    tracker = {"latest_checkpointed_iteration.txt": str(step).encode()}
    return {**{f"iter_{step:07d}/{name}": data for name, data in whole.items()}, **tracker}


def huggingface(step: int = 20) -> Files:
    whole = {
        "model.safetensors": safetensors_file(),
        "optimizer.pt": torch_file(),
        "scheduler.pt": torch_file(b"s"),
        "rng_state.pth": torch_file(b"r"),
        "config.json": b"{}",
        "training_args.bin": torch_file(b"a"),
        "trainer_state.json": json.dumps({"global_step": step, "log_history": []}).encode(),
    }
    return {f"checkpoint-{step}/{name}": data for name, data in whole.items()}


def huggingface_sharded(step: int = 20) -> Files:
    found = dict(huggingface(step))
    del found[f"checkpoint-{step}/model.safetensors"]
    names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    index = {"metadata": {}, "weight_map": {"a": names[0], "b": names[1]}}
    found[f"checkpoint-{step}/model.safetensors.index.json"] = json.dumps(index).encode()
    return found | {f"checkpoint-{step}/{name}": safetensors_file() for name in names}


def numbered_file(step: int = 20) -> Files:
    return {f"model_{step:06d}.pt": torch_file(f"{step}".encode() * 30)}


def one_file(step: int = 20) -> Files:
    return {"ckpt.pt": torch_file(f"{step}".encode() * 30)}


SAMPLES: dict[str, Callable[[int], Files]] = {
    "primus": primus,
    "dcp": dcp,
    "megatron_legacy": megatron_legacy,
    "megatron_dist": megatron_dist,
    "huggingface": huggingface,
    "huggingface_sharded": huggingface_sharded,
    "numbered_file": numbered_file,
    "one_file": one_file,
}
"""One whole checkpoint of a step, by kind."""


def put(folder: Path, files: Files) -> None:
    """Write files under `folder`."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
