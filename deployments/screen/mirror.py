"""`primus bootstrap mirror`: what a site without a way out must have; filled from what is at hand, and asked for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from deployments.exit_codes import FAILED, GOOD, UNKNOWN, out, out_json
from flows.building.components import wanted_in_mirror
from flows.decisions.bootstrap.mirror import finding_lines, mirror_lines
from profiles.cluster import ClusterProfile
from profiles.errors import ProfileError
from profiles.vocabulary import VerdictWord
from tasks.bootstrap.mirror import check_mirror, fill_mirror
from workflows.model.mirror import MirrorFinding, MirrorItem


def list_mirror(profile: ClusterProfile, *, as_json: bool) -> int:
    """Print everything that must be there; nothing is asked."""
    items = wanted_in_mirror(profile)
    if as_json:
        out_json([_as_json(item) for item in items])
    else:
        out("\n".join(mirror_lines(items)))
    return GOOD


def fill(profile: ClusterProfile, folder: str, at_hand: Sequence[str], *, as_json: bool) -> int:
    """Put all files into the folder, from folders at hand and from where projects publish them.

    Returns:
        0: all are there; 1: some are missing, each is named.

    Raises:
        ProfileError: the folder cannot be written, or one at hand is none.
    """
    sources = [Path(name).expanduser() for name in at_hand]
    for source in sources:
        if not source.is_dir():
            raise ProfileError("--from", f"{source} is no folder")

    def tell(line: str) -> None:
        if not as_json:
            out(line)

    filled = fill_mirror(wanted_in_mirror(profile), Path(folder).expanduser(), sources, tell)
    missing = [one for one in filled if one.how == "missing"]
    if as_json:
        out_json([{**_as_json(one.item), "how": one.how, "digest": one.digest, "why": one.why} for one in filled])
    else:
        out(f"{len(filled) - len(missing)} of {len(filled)} files are there; IMAGES lists what the registry must have")
    return FAILED if missing else GOOD


def check(profile: ClusterProfile, *, as_json: bool) -> int:
    """Ask the mirror for everything, by digest.

    Returns:
        0: all is there; 1: something is missing or another one; 3: of something nobody can tell.

    Raises:
        ProfileError: the profile has no section `bootstrap`, or something in it is wrong.
    """
    mirror = profile.bootstrap.mirror if profile.bootstrap else None
    items = wanted_in_mirror(profile)
    findings = check_mirror(mirror, items) if mirror else ()
    if as_json:
        out_json([{**_as_json(one.item), "verdict": one.word.value, "why": one.why} for one in findings])
    else:
        out("\n".join(finding_lines(findings)))
    return code_of(findings)


def code_of(findings: Sequence[MirrorFinding]) -> int:
    """The exit code that these findings are told by."""
    words = {one.word for one in findings}
    return FAILED if VerdictWord.FAIL in words else UNKNOWN if VerdictWord.UNKNOWN in words else GOOD


def _as_json(item: MirrorItem) -> dict[str, object]:
    return {
        "kind": item.kind,
        "name": item.name,
        "digest": item.digest,
        "origin": item.origin,
        "needed_by": list(item.needed_by),
    }
