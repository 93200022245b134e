"""An inventory of Kubespray or Ansible becomes a cluster profile, or all that is wrong with it is named."""

from __future__ import annotations

import re
from pathlib import Path

from flows.decisions.bootstrap.inventory_import import Imported, imported
from profiles.loading.load import list_profiles
from tasks.bootstrap.ansible_inventory import read_inventory


def import_inventory(path: Path, name: str = "") -> Imported:
    """Read the inventory at `path`; nothing is written, no host is asked.

    `name`: of the cluster; empty: the one of the file's folder where that is one, else `imported`.

    Raises:
        ProfileError: there is no such file.
        Unavailable: Ansible could not be started here.
    """
    told = read_inventory(path)
    guess = re.sub(r"[^a-z0-9]+", "-", path.absolute().parent.name.lower()).strip("-")[:63]
    kinds = [item.name for item in list_profiles() if item.kind == "hardware" and item.name != "cpu"]
    return imported(name or guess or "imported", told, kinds)
