"""Proof of a registry: a made image is pushed, comes back byte by byte, and is pulled by the runtime of every node."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import tarfile
from dataclasses import dataclass
from typing import Dict, List, Mapping, Tuple
from urllib.parse import urljoin

from workflows.programs.runtime.kubernetes_api import Json
from workflows.programs.serving.ask import FAIL, PASS, UNKNOWN, NotServedError, Seen, served
from workflows.programs.serving.world import PodWish, World, part, parts

REPOSITORY = "primus-proof/serving"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
OCTETS = "application/octet-stream"
NOT_PULLED = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable")
"""Why a container waits whose image did not come."""


@dataclass(frozen=True)
class MadeImage:
    """A tiny image that nobody has seen before."""

    layer: bytes
    config: bytes
    manifest: bytes

    @property
    def digest(self) -> str:
        """By which it is pulled."""
        return digest_of(self.manifest)


def digest_of(data: bytes) -> str:
    """`sha256:` and the digest."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def made_image(mark: str) -> MadeImage:
    """An image whose only file holds `mark`."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        entry = tarfile.TarInfo("mark")
        entry.size = len(mark)
        archive.addfile(entry, io.BytesIO(mark.encode()))
    layer = gzip.compress(plain.getvalue(), mtime=0)
    root = {"type": "layers", "diff_ids": [digest_of(plain.getvalue())]}
    config = _json({"architecture": "amd64", "os": "linux", "config": {"Cmd": ["/mark"]}, "rootfs": root})
    parts = {"config": _part(CONFIG, config), "layers": [_part(LAYER, layer)]}
    return MadeImage(layer, config, _json({"schemaVersion": 2, "mediaType": MANIFEST, **parts}))


def _part(kind: str, data: bytes) -> Dict[str, object]:
    return {"mediaType": kind, "digest": digest_of(data), "size": len(data)}


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def registry(world: World, parameters: Mapping[str, str]) -> Seen:
    """Push, read back, and where `pulled_as` says by which name nodes know it, pull on every node."""
    image, url = made_image(world.mark), parameters["url"].rstrip("/")
    headers = _credentials(world, parameters.get("secret", ""))
    push(url, image, headers)
    read_back(url, image, headers)
    pulled_as = parameters.get("pulled_as", "")
    if not pulled_as:
        return Seen(PASS, f"{image.digest} was pushed and came back whole; pulling on nodes was not asked for")
    host = pulled_as.partition("://")[2] or pulled_as
    return pulled(world, f"{host.rstrip('/')}/{REPOSITORY}@{image.digest}", image.digest)


def _credentials(world: World, secret: str) -> Dict[str, str]:
    """What stands in the Secret; it never leaves this process."""
    if not secret:
        return {}
    data: Mapping[str, str] = world.api.get(world.path("secrets", secret)).get("data") or {}
    pair = [base64.b64decode(data.get(key, "")) for key in ("username", "password")]
    return {"Authorization": f"Basic {base64.b64encode(b':'.join(pair)).decode()}"}


def push(url: str, image: MadeImage, headers: Mapping[str, str]) -> None:
    """Both blobs, then the manifest.

    Raises:
        NoAnswerError, NotServedError.
    """
    for blob in (image.layer, image.config):
        begun = served("POST", f"{url}/v2/{REPOSITORY}/blobs/uploads/", (202,), b"", headers)
        place = begun.headers.get("location", "")
        if not place:
            raise NotServedError("an upload was begun and the answer names no location for it")
        whole = urljoin(f"{url}/", place)
        end = f"{whole}{'&' if '?' in whole else '?'}digest={digest_of(blob)}"
        served("PUT", end, (201,), blob, {**headers, "Content-Type": OCTETS})
    target = f"{url}/v2/{REPOSITORY}/manifests/{image.digest}"
    served("PUT", target, (201,), image.manifest, {**headers, "Content-Type": MANIFEST})


def read_back(url: str, image: MadeImage, headers: Mapping[str, str]) -> None:
    """All three parts by their digests.

    Raises:
        NoAnswerError.
        NotServedError: one is missing, or is another one.
    """
    asked: List[Tuple[str, bytes]] = [(f"manifests/{image.digest}", image.manifest)]
    asked += [(f"blobs/{digest_of(blob)}", blob) for blob in (image.config, image.layer)]
    for place, wanted in asked:
        reply = served("GET", f"{url}/v2/{REPOSITORY}/{place}", (200,), None, {**headers, "Accept": MANIFEST})
        if reply.body != wanted:
            raise NotServedError(f"{place} was accepted, and {digest_of(reply.body)} came back")


def pulled(world: World, image: str, digest: str) -> Seen:
    """Whether the runtime of every node gets the image; it cannot run, and need not."""
    nodes = world.nodes()
    wishes = {node: PodWish(f"pull-{number}", node=node, image=image, command=()) for number, node in enumerate(nodes)}
    for wish in wishes.values():
        world.start(wish)
    bad: List[str] = []
    for node, wish in wishes.items():
        state = world.waited(wish, lambda pod: bool(_pull_state(pod, digest)))
        told = _pull_state(state, digest) if state is not None else "it is still being pulled"
        if told != PASS:
            bad.append(f"{node}: {told}")
    if not nodes:
        return Seen(UNKNOWN, "no node is ready to pull anything")
    return Seen(FAIL, "; ".join(bad[:4])) if bad else Seen(PASS, f"{len(nodes)} nodes pulled {digest}")


def _pull_state(pod: Json, digest: str) -> str:
    for status in parts(pod, "status", "containerStatuses"):
        if digest in str(status.get("imageID") or ""):
            return PASS
        waiting = part(status, "state", "waiting")
        if waiting.get("reason") in NOT_PULLED:
            return f"{waiting.get('reason')} {' '.join(str(waiting.get('message') or '').split())[:160]}".strip()
    return ""
