"""Checkpoint folders made from a written listing: what is looked into holds small real content, the rest a few bytes.

A line is a file, and is written a second after the line above it:

    step-10/{.metadata,__0_0.distcp}        files of whole content, by the end of their name
    step-20/__1_0.distcp half               cut in the middle; `empty`: of no bytes; `legacy`: of torch before 1.6
    step-20/__2_0.distcp gone               named by its `.metadata` or index, and not there
    latest = global_step20                  a text
    LATEST -> epoch_0_step_20               a link
    step-30/                                an empty folder
    step 20                                 the trainer reported this step
"""

from __future__ import annotations

import itertools
import json
import os
import re
from pathlib import Path

from tests.support.builders.checkpoint_samples import (
    dcp_metadata,
    npy_file,
    old_torch_file,
    safetensors_file,
    torch_file,
)

BEGAN = 1_000_000.0
"""Unix time of the first line, in seconds."""
BRACES = re.compile(r"\{([^{}]*)\}")
TORCH = (".pt", ".pth", ".ckpt", ".tar", ".npz")
INDEX = ".index.json"


def expand_braces(text: str) -> list[str]:
    """The paths that a path with `{a,b}` stands for."""
    parts = BRACES.split(text)
    choices = [part.split(",") if number % 2 else [part] for number, part in enumerate(parts)]
    return ["".join(chosen) for chosen in itertools.product(*choices)]


def put_listing(folder: Path, listing: str, run: Path) -> None:
    """Make the files of `listing` below `folder`, and the steps that it reports below `run`."""
    lines = [line.strip() for line in listing.splitlines() if line.strip()]
    shards = _shards(lines)
    for number, line in enumerate(lines):
        at = BEGAN + number
        words = line.split(" ", 2)
        if words[0] == "step":
            _report_step(run, int(words[1]), at)
            continue
        for path in expand_braces(words[0]):
            _put(folder / path, path, words[1:], shards)
            if (folder / path).is_file() and not (folder / path).is_symlink():
                os.utime(folder / path, (at, at))


def _put(place: Path, path: str, how: list[str], shards: dict[str, dict[str, bytes]]) -> None:
    if how == ["gone"]:
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    if path.endswith("/"):
        place.mkdir(exist_ok=True)
    elif how and how[0] == "->":
        place.symlink_to(how[1])
    elif how and how[0] == "=":
        place.write_text(how[1], encoding="utf-8")
    else:
        place.write_bytes(_cut(_content(path, how, shards), how))


def _cut(data: bytes, how: list[str]) -> bytes:
    return {"half": data[: len(data) // 2], "empty": b""}.get(how[0] if how else "", data)


def _content(path: str, how: list[str], shards: dict[str, dict[str, bytes]]) -> bytes:
    folder, _, name = path.rpartition("/")
    if name.endswith(".metadata"):
        return dcp_metadata({shard: len(data) for shard, data in shards.get(folder, {}).items()})
    if name.endswith(INDEX):
        stem = re.escape(name[: -len(INDEX)].split(".")[0])
        wanted = [shard for shard in shards.get(folder, {}) if re.match(stem + r"-\d+-of-", shard)]
        return json.dumps({"weight_map": {f"tensor {shard}": shard for shard in wanted}}).encode()
    if how == ["legacy"]:
        return old_torch_file()
    return _by_name(path)


def _by_name(path: str) -> bytes:
    name = path.rpartition("/")[2]
    if name.endswith(".distcp"):
        return torch_file(path.encode() * 10) * 2
    if name.endswith(TORCH):
        return torch_file(path.encode() * 10)
    if name.endswith((".bin", ".pkl")):
        return torch_file(path.encode()) if name.endswith(".bin") else b"\x80\x04K\x01."
    if name.endswith(".safetensors"):
        return safetensors_file()
    if name.endswith(".npy"):
        return npy_file()
    if name.endswith(".index"):  # the end of a table
        return path.encode() + bytes.fromhex("57fb808b247547db")
    if name.endswith(".ubj"):
        return b"{" + path.encode() + b"}"
    return b"{}" if name.endswith(".json") or name == "_METADATA" else path.encode()


def _shards(lines: list[str]) -> dict[str, dict[str, bytes]]:
    """Whole content of every file that a `.metadata` or an index may name, by folder and name."""
    found: dict[str, dict[str, bytes]] = {}
    for path in (path for line in lines for path in expand_braces(line.split(" ")[0])):
        folder, _, name = path.rpartition("/")
        if name.endswith(".distcp") or re.search(r"-\d+-of-\d+\.(safetensors|bin)$", name):
            found.setdefault(folder, {})[name] = _by_name(path)
    return found


def _report_step(run: Path, step: int, at: float) -> None:
    path = run / "a1" / "trainer-0" / "steps.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"step": step, "at": at}) + "\n")
