"""What stands for an image: the host's programs, by the patterns of `cluster.json`."""

from __future__ import annotations

import fnmatch
import os

from tasks.embedded.mounts import TMP
from tasks.embedded.store import write_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from tasks.embedded.objects import Object


def find_image(images: Sequence[Object], name: str) -> tuple[int, Object] | None:
    """Place in the list and value of the first image whose pattern matches."""
    for index, image in enumerate(images):
        if fnmatch.fnmatchcase(name, image["pattern"]):
            return index, image
    return None


def host_argv(image: Object, argv: Sequence[str], own_folders: Sequence[str]) -> list[str]:
    """The host's argument vector of a container's.

    Args:
        image: the image's entry in `cluster.json`.
        argv: command and arguments, variables expanded.
        own_folders: mount points of the container; what lies there is no program of the image and is always allowed.

    Raises:
        FileNotFoundError: the image has no such program.
    """
    if not argv:
        raise FileNotFoundError("no command specified")
    program = image["programs"].get(argv[0])
    if program is not None:
        return [*program, *argv[1:]]
    inside = any(argv[0].startswith(folder.rstrip("/") + "/") for folder in own_folders)
    if image["host_path"] or inside:
        return list(argv)
    raise FileNotFoundError(
        f'exec: "{argv[0]}": executable file not found in $PATH (the image of pattern {image["pattern"]!r} has the '
        f"programs {', '.join(sorted(image['programs'])) or 'none'})"
    )


def programs_folder(root: str, index: int) -> str:
    """A folder for PATH in which an image's programs stand under their own names."""
    return os.path.join(root, "images", str(index))


def write_programs(root: str, images: Sequence[Mapping[str, Any]]) -> None:
    """Write one small script for each program with a bare name, so that a shell inside the image finds it as well."""
    for index, image in enumerate(images):
        folder = programs_folder(root, index)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        programs: Mapping[str, Sequence[str]] = image["programs"]
        names = {name for name in programs if "/" not in name}
        for stale in set(os.listdir(folder)) - names:
            os.unlink(os.path.join(folder, stale))
        for name in names:
            quoted = " ".join("'" + part.replace("'", "'\\''") + "'" for part in programs[name])
            path = os.path.join(folder, name)
            write_file(path, f'#!/bin/sh\nexec {quoted} "$@"\n'.encode())
            os.chmod(path, 0o755)  # noqa: S103 - a program; its folder is closed to others


def shown_folders(image: Object) -> list[str]:
    """Folders under /tmp that the image's programs or variables name: a private /tmp must show them."""
    words = [part for argv in image["programs"].values() for part in argv]
    words += [part for value in image["environment"].values() for part in value.split(":")]
    found = {"/".join(word.split("/")[:3]) for word in words if word.startswith(TMP + "/")}
    return sorted(folder for folder in found if os.path.exists(folder))
