"""Removing folders; `shutil` is too large for a keeper that must stay small."""

from __future__ import annotations

import os


def remove_tree(path: str) -> None:
    """Remove a folder and everything in it; links are removed, never followed. What cannot be removed stays."""
    try:
        entries = list(os.scandir(path))
    except FileNotFoundError:
        return
    except OSError:
        _quietly(os.unlink, path)
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            remove_tree(entry.path)
        else:
            _quietly(os.unlink, entry.path)
    _quietly(os.rmdir, path)


def _quietly(action: object, path: str) -> None:
    if callable(action):
        try:
            action(path)
        except OSError:
            return
