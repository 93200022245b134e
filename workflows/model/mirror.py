"""The mirror of a site without a way out, in values: one thing, how it is asked for, what is said of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from profiles.bootstrap.release import ReleaseImage
from profiles.errors import ProfileError
from profiles.vocabulary import VerdictWord
from workflows.model.components import image_reference

SUMS = "SHA256SUMS"
"""File in the mirror's folder that says the digest of every other one, as `sha256sum` writes it."""
HEX_CHARACTERS = 64
ItemKind = Literal["file", "chart", "manifests", "archive", "image"]
SHOWN_DIGEST = 12


@dataclass(frozen=True)
class MirrorItem:
    """One thing that must be there."""

    kind: ItemKind
    name: str
    """Path below the mirror's base URL or folder; of an image its own name with tag."""
    digest: str = ""
    """SHA-256 in hexadecimal digits, of an image of its manifest; "": the mirror has to say it."""
    origin: str = ""
    """Where its project publishes it; "" where nobody wrote that down."""
    needed_by: tuple[str, ...] = ()
    """Names of the release and the components."""

    @property
    def is_image(self) -> bool:
        """Whether it stands in the registry and not among the files."""
        return self.kind == "image"


@dataclass(frozen=True)
class MirrorFinding:
    """Whether one thing is there as it must be."""

    item: MirrorItem
    word: VerdictWord
    why: str
    """What was asked and what came, in one line."""


def sums_of(text: str) -> dict[str, str]:
    """Digests by path from the text of a `SHA256SUMS`.

    Raises:
        ProfileError: a line is none of `<digest>  <path>`, or one path has two.
    """
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        digest, _, path = line.partition(" ")
        path = path.lstrip(" *").removeprefix("./")
        if not line.strip():
            continue
        if len(digest) != HEX_CHARACTERS or set(digest) - set("0123456789abcdef") or not path:
            raise ProfileError(f"{SUMS}:{number}", f"is no line of `sha256sum`: {line[:80]!r}")
        if found.setdefault(path, digest) != digest:
            raise ProfileError(f"{SUMS}:{number}", f"{path} has another digest above")
    return found


def sums_text(digests: Mapping[str, str]) -> str:
    """The text of a `SHA256SUMS`; `sha256sum -c` reads it."""
    return "".join(f"{digests[path]}  {path}\n" for path in sorted(digests))


def judged_file(item: MirrorItem, found: str, said: Mapping[str, str]) -> MirrorFinding:
    """A file by the digest of what the mirror gives (`found`) and what its list says."""
    wanted = item.digest or said.get(item.name, "")
    if item.digest and said.get(item.name, item.digest) != item.digest:
        why = f"its {SUMS} says {said[item.name][:SHOWN_DIGEST]}…, the profile {item.digest[:SHOWN_DIGEST]}…"
        return MirrorFinding(item, VerdictWord.FAIL, why)
    if not wanted:
        why = f"it is there ({found[:SHOWN_DIGEST]}…) and nobody says its digest: neither the profile nor {SUMS}"
        return MirrorFinding(item, VerdictWord.FAIL, why)
    if found != wanted:
        return MirrorFinding(item, VerdictWord.FAIL, f"has {found[:SHOWN_DIGEST]}…, wanted is {wanted[:SHOWN_DIGEST]}…")
    return MirrorFinding(item, VerdictWord.PASS, f"there, {found[:SHOWN_DIGEST]}…")


def judged_image(item: MirrorItem, found: str) -> MirrorFinding:
    """An image by the digest of the manifest that the registry gives, as hexadecimal digits."""
    if item.digest and found != item.digest:
        why = f"has {found[:SHOWN_DIGEST]}…, wanted is {item.digest[:SHOWN_DIGEST]}…"
        return MirrorFinding(item, VerdictWord.FAIL, why)
    return MirrorFinding(item, VerdictWord.PASS, f"there, sha256:{found[:SHOWN_DIGEST]}…")


def manifest_path(item: MirrorItem) -> str:
    """Path of an image's manifest in the mirror's registry, behind its host: by digest where that is known."""
    host = "mirror"
    reference = image_reference(ReleaseImage(name=item.name), host).removeprefix(f"{host}/")
    name, colon, tag = reference.rpartition(":")
    if not colon or "/" in tag:
        name, tag = reference, "latest"
    return f"/v2/{name}/manifests/{f'sha256:{item.digest}' if item.digest else tag}"
