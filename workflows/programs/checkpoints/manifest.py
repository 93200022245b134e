"""The manifest of our own checkpoints: `step-<n>/manifest.json`, written last, names every file with size and digest.

A folder without it is an unfinished save. The demo trainer writes it; the recognisers and the resume step read it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any, Dict, Tuple, Union, cast

MANIFEST = "manifest.json"
"""Name of the file that is written last."""
FORMAT = "primus"
"""Word for this format in profiles and reports."""
OWN_DIGEST = "manifest_sha256"
"""Key of the digest over everything else in the manifest."""
SHA256_HEX_DIGITS = 64


class ManifestError(ValueError):
    """The text is no manifest; the message names the key."""


@dataclass(frozen=True)
class FileEntry:
    """One file of the checkpoint."""

    path: str
    """Relative to the checkpoint's folder, never outside of it."""
    bytes: int
    sha256: str
    """Hexadecimal digest of the whole file."""


@dataclass(frozen=True)
class Manifest:
    """What a finished checkpoint says about itself."""

    step: int
    """Training steps done."""
    world_size: int
    files: Tuple[FileEntry, ...]
    meta: Dict[str, Any]
    """Whatever else the trainer notes, e.g. `weights_sha256`, `loss`, `corpus_sha256`."""

    def to_json(self) -> str:
        """The text of `manifest.json`, equal for equal values."""
        files = [{"path": f.path, "bytes": f.bytes, "sha256": f.sha256} for f in self.files]
        plain = {"format": FORMAT, "version": 1, "step": self.step, "world_size": self.world_size}
        whole = {**plain, "files": files, "meta": self.meta}
        return json.dumps({**whole, OWN_DIGEST: _digest(whole)}, indent=1, sort_keys=True) + "\n"


def parse(text: Union[str, bytes]) -> Manifest:
    """The manifest in `text`.

    Raises:
        ManifestError: not JSON, or a key is missing, of the wrong type or out of range, or anything was changed since
            it was written.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ManifestError(f"not JSON: {error}") from error
    if not isinstance(data, dict):
        raise ManifestError("not a JSON object")
    plain = cast("Dict[str, Any]", data)
    found = _read(plain)
    stated = plain.pop(OWN_DIGEST, None)
    try:
        agrees = stated == _digest(plain)
    except RecursionError:
        agrees = False
    if not agrees:
        raise ManifestError(f"{OWN_DIGEST}: its own digest does not agree: it was changed after it was written")
    return found


def _digest(plain: Dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode("utf-8", "surrogatepass")).hexdigest()


def _read(plain: Dict[str, Any]) -> Manifest:
    if plain.get("format") != FORMAT:
        raise ManifestError(f"format is {plain.get('format')!r}, expected {FORMAT!r}")
    entries = plain.get("files")
    if not isinstance(entries, list) or not entries:
        raise ManifestError("files: expected a list with at least one entry")
    meta = plain.get("meta")
    return Manifest(
        step=_count(plain, "step"),
        world_size=_count(plain, "world_size"),
        files=tuple(_entry(index, one) for index, one in enumerate(cast("list[Any]", entries))),
        meta=cast("Dict[str, Any]", meta) if isinstance(meta, dict) else {},
    )


def _entry(index: int, data: Any) -> FileEntry:
    if not isinstance(data, dict):
        raise ManifestError(f"files[{index}]: expected an object")
    plain = cast("Dict[str, Any]", data)
    path, digest = plain.get("path"), plain.get("sha256")
    if not isinstance(path, str) or not path or path.startswith("/") or ".." in path.split("/") or "\0" in path:
        raise ManifestError(f"files[{index}].path: expected a path inside the checkpoint, got {path!r}")
    if not isinstance(digest, str) or len(digest) != SHA256_HEX_DIGITS:
        raise ManifestError(f"files[{index}].sha256: expected {SHA256_HEX_DIGITS} hexadecimal digits")
    return FileEntry(path, _count(plain, "bytes"), digest)


def _count(data: Dict[str, Any], key: str) -> int:
    value = data.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ManifestError(f"{key}: expected a whole number of at least 0, got {value!r}")
    return value
