"""The mirror of a site: what it says of digests, filled from what is at hand, and asked whether everything is there.

Files are looked at in the folder or fetched by HTTP, images asked for at the registry by their manifest. What is
written is whole and has its digest, or is not there at all; a fill that was ended goes on where it stopped.
"""

from __future__ import annotations

import hashlib
import json
import os
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from profiles.bootstrap.inventory import Mirror
from profiles.errors import ProfileError, Unavailable
from profiles.vocabulary import VerdictWord
from tasks.bootstrap.kubeadm_variables import authority_of
from tasks.settings import expanded
from workflows.model.mirror import (
    SUMS,
    MirrorFinding,
    MirrorItem,
    judged_file,
    judged_image,
    manifest_path,
    sums_of,
    sums_text,
)

SECONDS = 30.0
AT_ONCE = 8
NOT_FOUND = 404
CHUNK_BYTES = 1 << 20
PART = ".part"
IMAGES = "IMAGES"
"""File in the mirror's folder with the images that a registry must have: one a line."""
ACCEPT = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)
_Loader = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Filled:
    """What became of one file."""

    item: MirrorItem
    how: str
    """`there`, `copied`, `fetched` or `missing`."""
    digest: str
    """Of what is there now; "" where it is missing."""
    why: str = ""
    """Why it is missing."""


def said_digests(mirror: Mirror) -> dict[str, str]:
    """Digests by path, as the mirror's own list says them; none where it has no list.

    Raises:
        Unavailable: it does not answer.
        ProfileError: its list cannot be read.
    """
    if mirror.files_folder:
        path = Path(mirror.files_folder) / SUMS
        return _sums_in(path)
    if not mirror.files_url:
        return {}
    data = _fetched(mirror, SUMS)
    return _sums(data, _url(mirror, SUMS)) if data is not None else {}


def _sums_in(path: Path) -> dict[str, str]:
    """Digests that the file says; none where it is not there."""
    if not path.is_file():
        return {}
    try:
        return _sums(path.read_bytes(), str(path))
    except OSError as error:
        raise ProfileError(str(path), f"cannot be read: {error}") from error


def _sums(data: bytes, where: str) -> dict[str, str]:
    try:
        return sums_of(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ProfileError(where, f"is no text in UTF-8: {error}") from error


def mirror_bytes(mirror: Mirror, path: str, digest: str) -> bytes:
    """What the mirror has there, by its digest.

    Raises:
        ProfileError: nobody says its digest, it is not there, or it is another one.
        Unavailable: the mirror does not answer.
    """
    if not digest:
        raise ProfileError(
            "mirror", f"nobody says the digest of {path}: `primus bootstrap mirror --fill` writes {SUMS}"
        )
    if mirror.files_folder:
        file = Path(mirror.files_folder) / path
        data = file.read_bytes() if file.is_file() else None
    else:
        data = _fetched(mirror, path) if mirror.files_url else None
    if data is None:
        raise ProfileError("mirror", f"has no {path}: `primus bootstrap mirror --check` names all that is missing")
    found = hashlib.sha256(data).hexdigest()
    if found != digest:
        raise ProfileError("mirror", f"{path} has the digest {found}, wanted is {digest}")
    return data


def _fetched(mirror: Mirror, path: str) -> bytes | None:
    url = _url(mirror, path)
    with _client(mirror) as client:
        try:
            answer = client.get(url)
        except httpx.HTTPError as error:
            raise Unavailable(f"the mirror does not give {url}: {error}") from error
    if answer.status_code == NOT_FOUND:
        return None
    if answer.is_error:
        raise Unavailable(f"the mirror answers {answer.status_code} to {url}")
    return answer.content


def check_mirror(mirror: Mirror, items: Sequence[MirrorItem]) -> tuple[MirrorFinding, ...]:
    """Whether each thing is there as it must be, in the order of `items`; who does not answer leaves it unknown.

    Raises:
        ProfileError: the mirror's certificate authority cannot be read.
    """
    with _client(mirror) as client, ThreadPoolExecutor(AT_ONCE) as pool:
        try:
            said = said_digests(mirror)
        except (Unavailable, ProfileError) as error:
            why = str(error)
            return tuple(MirrorFinding(item, VerdictWord.UNKNOWN, why) for item in items)

        def checked(item: MirrorItem) -> MirrorFinding:
            return _checked(client, mirror, item, said)

        return tuple(pool.map(checked, items))


def _checked(client: httpx.Client, mirror: Mirror, item: MirrorItem, said: dict[str, str]) -> MirrorFinding:
    try:
        if item.is_image:
            return _image(client, mirror, item)
        digest = _digest_there(client, mirror, item)
    except (httpx.HTTPError, OSError) as error:
        return MirrorFinding(item, VerdictWord.UNKNOWN, f"it does not answer: {error}")
    if isinstance(digest, int):
        word = VerdictWord.FAIL if digest == NOT_FOUND else VerdictWord.UNKNOWN
        return MirrorFinding(item, word, "is not there" if word is VerdictWord.FAIL else f"the mirror answers {digest}")
    return judged_file(item, digest, said)


def _digest_there(client: httpx.Client, mirror: Mirror, item: MirrorItem) -> str | int:
    """Digest of the file, or the HTTP status of one that is not given."""
    if mirror.files_folder:
        path = Path(mirror.files_folder) / item.name
        return digest_of(path) if path.is_file() else NOT_FOUND
    if not mirror.files_url:
        return NOT_FOUND
    with client.stream("GET", _url(mirror, item.name)) as answer:
        if answer.is_error:
            return answer.status_code
        found = hashlib.sha256()
        for chunk in answer.iter_bytes(CHUNK_BYTES):
            found.update(chunk)
        return found.hexdigest()


def _image(client: httpx.Client, mirror: Mirror, item: MirrorItem) -> MirrorFinding:
    if not mirror.registry:
        return MirrorFinding(item, VerdictWord.UNKNOWN, "the cluster profile names no mirror.registry to ask")
    host, _, below = mirror.registry.partition("/")
    path = manifest_path(item)
    if below:
        path = path.replace("/v2/", f"/v2/{below.strip('/')}/", 1)
    url = f"{'http' if mirror.registry_insecure else 'https'}://{host}{path}"
    answer = client.get(url, headers={"Accept": ACCEPT})
    if answer.status_code == NOT_FOUND:
        return MirrorFinding(item, VerdictWord.FAIL, "is not in the registry")
    if answer.is_error:
        return MirrorFinding(item, VerdictWord.UNKNOWN, f"the registry answers {answer.status_code}")
    return judged_image(item, hashlib.sha256(answer.content).hexdigest())


def checked_authority(mirror: Mirror) -> str:
    """Certificates that vouch for the mirror, PEM; "": none.

    Raises:
        ProfileError: the file cannot be read, or holds no certificates.
    """
    _context(mirror)
    return authority_of(mirror)


def _context(mirror: Mirror) -> ssl.SSLContext:
    authority_of(mirror)  # it says by the field's name what cannot be read
    path = str(expanded(mirror.ca_file, "bootstrap.mirror.ca_file")) if mirror.ca_file else None
    try:
        return ssl.create_default_context(cafile=path)
    except ssl.SSLError as error:
        reason = f"{mirror.ca_file} holds no certificates in PEM: {error}"
        raise ProfileError("bootstrap.mirror.ca_file", reason) from error


def _client(mirror: Mirror) -> httpx.Client:
    return httpx.Client(verify=_context(mirror), timeout=SECONDS, follow_redirects=True, trust_env=False)


def _url(mirror: Mirror, path: str) -> str:
    return f"{mirror.files_url.rstrip('/')}/{path}"


def digest_of(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fill_mirror(items: Sequence[MirrorItem], folder: Path, at_hand: Sequence[Path], tell: Tell) -> tuple[Filled, ...]:
    """Put every file into the folder: kept where it is there, copied from `at_hand`, fetched from its origin.

    Then the lists: `SHA256SUMS` of all that is there, and `IMAGES` of what a registry must have. An image is not
    copied: that is the work of the site's own tool.

    Raises:
        ProfileError: the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        known = _sums_in(folder / SUMS)
        found: list[Filled] = []
        with httpx.Client(timeout=SECONDS, follow_redirects=True) as client:
            for item in (one for one in items if not one.is_image):
                found.append(_filled(client, item, folder, at_hand, known))
                tell(f"{found[-1].how:8} {item.name}{f': {found[-1].why}' if found[-1].why else ''}")
        digests = known | {one.item.name: one.digest for one in found if one.digest}
        _write(folder / SUMS, sums_text(digests).encode())
        _write(folder / IMAGES, "".join(f"{_reference(one)}\n" for one in items if one.is_image).encode())
    except OSError as error:
        raise ProfileError("--fill", f"{folder} cannot be written: {error.strerror or error}") from error
    return tuple(found)


def _reference(item: MirrorItem) -> str:
    return f"{item.name}@sha256:{item.digest}" if item.digest else item.name


def _filled(
    client: httpx.Client, item: MirrorItem, folder: Path, at_hand: Sequence[Path], known: dict[str, str]
) -> Filled:
    target, wanted = folder / item.name, item.digest or known.get(item.name, "")
    if target.is_file():
        digest = digest_of(target)
        if not wanted or digest == wanted:
            return Filled(item, "there", digest)
    why = "nobody wrote down where its project publishes it" if not item.origin else ""
    for source in _sources(item, at_hand):
        try:
            digest = _put(_read_file(source), target, _is_converted(item, source.name), wanted)
            return Filled(item, "copied", digest)
        except ValueError as error:
            why = f"{source}: {error}"
    if item.origin:
        try:
            with client.stream("GET", item.origin) as answer:
                answer.raise_for_status()
                chunks = answer.iter_bytes(CHUNK_BYTES)
                return Filled(item, "fetched", _put(chunks, target, _is_converted(item, item.origin), wanted))
        except (httpx.HTTPError, ValueError) as error:
            why = f"{item.origin}: {error}"
    return Filled(item, "missing", "", why)


def _sources(item: MirrorItem, at_hand: Sequence[Path]) -> Iterator[Path]:
    """Files at hand that may be it: under its path, or by its name alone."""
    name = Path(item.name)
    names = [name, Path(name.name)]
    if item.kind == "manifests":
        names += [name.with_suffix(".yaml"), Path(f"{name.stem}.yaml")]
    yield from (folder / one for folder in at_hand for one in names if (folder / one).is_file())


def _is_converted(item: MirrorItem, source: str) -> bool:
    """Projects publish their objects as YAML; the mirror has them as JSON, which whoever applies them can read."""
    return item.kind == "manifests" and source.endswith((".yaml", ".yml"))


def _read_file(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk


def _put(chunks: Iterator[bytes], target: Path, converted: bool, wanted: str) -> str:
    """Write it whole under its name, or not at all; its digest.

    Raises:
        ValueError: it has another digest than the wanted one, or is no YAML.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + PART)
    try:
        with part.open("wb") as file:
            if converted:
                file.write(as_json(b"".join(chunks)))
            else:
                file.writelines(chunks)
            file.flush()
            os.fsync(file.fileno())
        digest = digest_of(part)
        if wanted and digest != wanted:
            raise ValueError(f"has the digest {digest}, wanted is {wanted}")
        part.replace(target)
        return digest
    finally:
        part.unlink(missing_ok=True)


def as_json(text: bytes) -> bytes:
    """The objects of a YAML text as one JSON list: the same bytes for the same objects.

    Raises:
        ValueError: it is no YAML, or holds something that is no object of Kubernetes.
    """
    try:
        found: list[Any] = [one for one in yaml.load_all(text, Loader=_Loader) if one]
    except yaml.YAMLError as error:
        raise ValueError(f"is no YAML: {error}") from error
    if not found or not all(isinstance(one, Mapping) and "kind" in one for one in found):
        raise ValueError("holds what is no object of Kubernetes")
    return (json.dumps(found, sort_keys=True, separators=(",", ":"), default=str) + "\n").encode()


def _write(path: Path, data: bytes) -> None:
    part = path.with_name(path.name + PART)
    part.write_bytes(data)
    part.replace(path)
