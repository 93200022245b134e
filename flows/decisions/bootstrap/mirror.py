"""What a cluster's mirror must hold, each thing once, and how that is told. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from profiles.bootstrap.components import ChartSource, ManifestsSource
from profiles.bootstrap.release import ReleaseFile, ReleaseImage, ReleaseProfile
from profiles.cluster import ClusterProfile
from profiles.errors import ProfileError
from profiles.vocabulary import VerdictWord
from workflows.model.components import ChosenComponent
from workflows.model.mirror import SHOWN_DIGEST, MirrorFinding, MirrorItem


def mirror_items(
    cluster: ClusterProfile, release: ReleaseProfile | None, chosen: Sequence[ChosenComponent]
) -> tuple[MirrorItem, ...]:
    """Everything that this cluster needs, each thing once: files first, then images, by name.

    `release`: None where somebody else makes the cluster.

    Raises:
        ProfileError: two want one path with different digests.
    """
    found = [*(_of_release(release) if release else ()), *_of_components(chosen)]
    found += [_image(ReleaseImage(name=cluster.programs_image), "the pods of this product")]
    if cluster.admission.gpu_image:
        found.append(_image(ReleaseImage(name=cluster.admission.gpu_image), "tests of nodes with GPUs"))
    once: dict[tuple[bool, str], MirrorItem] = {}
    for item in found:
        key = (item.is_image, item.name)
        once[key] = _together(once[key], item) if key in once else item
    return tuple(once[key] for key in sorted(once))


def release_with_digests(release: ReleaseProfile, said: Mapping[str, str]) -> ReleaseProfile:
    """The release with what the site's mirror says of files of which it says no digest itself.

    Raises:
        ProfileError: the mirror says another digest than the release.
    """

    def told(file: ReleaseFile) -> ReleaseFile:
        digest = said.get(file.path)
        if file.sha256 and digest and digest != file.sha256:
            reason = f"the mirror says {digest} of {file.path}, the release {file.sha256}: one of them is not it"
            raise ProfileError(f"releases.{release.name}", reason)
        return file.model_copy(update={"sha256": file.sha256 or digest})

    files = {name: told(file) for name, file in release.files.items()}
    return release.model_copy(update={"files": files, "image_archives": tuple(map(told, release.image_archives))})


def _of_release(release: ReleaseProfile) -> Iterable[MirrorItem]:
    by = (release.name,)
    for file in release.files.values():
        yield MirrorItem("file", file.path, file.sha256 or "", file.origin, by)
    for archive in release.image_archives:
        yield MirrorItem("archive", archive.path, archive.sha256 or "", archive.origin, by)
    if not release.image_archives:  # else hosts import them, and pull none
        yield from (_image(image, release.name) for image in release.images)


def _of_components(chosen: Sequence[ChosenComponent]) -> Iterable[MirrorItem]:
    for one in chosen:
        match one.profile.source:
            case ChartSource() as chart:
                yield MirrorItem("chart", chart.path, one.sha256, chart.origin, (one.name,))
                yield _image(ReleaseImage(name=chart.helm_image), one.name)
            case ManifestsSource() as listed:
                yield MirrorItem("manifests", listed.path, one.sha256, listed.origin, (one.name,))
            case _:
                pass
        yield from (_image(image, one.name) for image in one.profile.images)


def _image(image: ReleaseImage, by: str) -> MirrorItem:
    return MirrorItem("image", image.name, image.digest.removeprefix("sha256:"), "", (by,))


def _together(one: MirrorItem, other: MirrorItem) -> MirrorItem:
    if one.digest and other.digest and one.digest != other.digest:
        who = ", ".join((*one.needed_by, *other.needed_by))
        raise ProfileError("mirror", f"{one.name} is wanted with two digests, {one.digest} and {other.digest} ({who})")
    by = tuple(dict.fromkeys((*one.needed_by, *other.needed_by)))
    return MirrorItem(one.kind, one.name, one.digest or other.digest, one.origin or other.origin, by)


def mirror_lines(items: Sequence[MirrorItem]) -> tuple[str, ...]:
    """The list for people: what, where, digest, who needs it."""
    width = max((len(item.name) for item in items), default=0)
    return tuple(
        f"{item.kind:9}  {item.name:{width}}  {item.digest[:SHOWN_DIGEST] or 'not known':{SHOWN_DIGEST}}  "
        f"{', '.join(item.needed_by)}"
        for item in items
    )


def finding_lines(findings: Sequence[MirrorFinding]) -> tuple[str, ...]:
    """What is not there as it must be, each in a line; one line that counts what is."""
    bad = [one for one in findings if one.word is not VerdictWord.PASS]
    told = [f"{one.word.value:7}  {one.item.kind} {one.item.name}: {one.why}" for one in bad]
    good = len(findings) - len(bad)
    return (*told, f"{good} of {len(findings)} are there as they must be")
