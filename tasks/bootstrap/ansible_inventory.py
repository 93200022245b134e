"""An inventory as Ansible itself reads it: `ansible-inventory --list`, in a process and an environment of its own.

Only the plug-ins for INI and YAML are asked: an inventory that is a program is never run. Files in `group_vars` and
`host_vars` beside it are read as Ansible does; no host is asked.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from profiles.errors import ProfileError, Unavailable
from workflows.model.bootstrap import InventoryText

MOST_BYTES = 16 << 20
"""Of an inventory: ten thousand hosts take some megabytes."""
SECONDS = 120.0
"""For Ansible to read it: it takes two for ten hosts and thirty for ten thousand."""
SAID_CHARACTERS = 400


def read_inventory(path: Path) -> InventoryText:
    """The inventory at `path`.

    Raises:
        ProfileError: there is no such file, or it is no text.
        Unavailable: Ansible could not be started, or did not end in time.
    """
    try:
        if path.stat().st_size > MOST_BYTES:
            raise ProfileError("inventory", f"{path} is larger than {MOST_BYTES} bytes: this is no inventory")
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ProfileError("inventory", f"{path} is not UTF-8 text") from error
    except OSError as error:
        what = "name the file, hosts.ini or hosts.yaml" if path.is_dir() else error.strerror
        raise ProfileError("inventory", f"cannot read {path}: {what}") from error
    is_yaml = path.suffix in (".yaml", ".yml", ".json")
    said, complaint = _listing(path)
    return InventoryText(text, is_yaml, said, complaint)


def _listing(path: Path) -> tuple[dict[str, Any], str]:
    with tempfile.TemporaryDirectory(prefix="primus-inventory-") as folder:
        (Path(folder) / "ansible.cfg").write_text("[defaults]\n", encoding="utf-8")
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": folder,
            "LC_ALL": "C.UTF-8",
            "ANSIBLE_CONFIG": f"{folder}/ansible.cfg",
            "ANSIBLE_HOME": f"{folder}/ansible",
            "ANSIBLE_INVENTORY_ENABLED": "ini,yaml",
            "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "True",
            "ANSIBLE_NOCOLOR": "1",
        }
        words = ["-m", "ansible", "inventory", "-i", str(path.absolute()), "--list"]
        try:
            ended = subprocess.run(
                [sys.executable, "-I", *words],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                env=environment,
                cwd=folder,
                timeout=SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Unavailable(f"Ansible does not read {path}: {error}") from error
    if ended.returncode == 0:
        try:
            return dict(json.loads(ended.stdout)), ""
        except ValueError:
            return {}, "what it says of it cannot be read"
    return {}, _reason(ended.stderr.decode("utf-8", "replace"), path)


def _reason(said: str, path: Path) -> str:
    """What is wrong, of all that Ansible says around it."""
    lines = [line for line in said.replace(str(path.absolute()), path.name).splitlines() if line.strip()]
    causes = [line for line in lines if not re.match(r"\[(WARNING|ERROR)\]|Failed to parse inventory with|<<<", line)]
    plug_in = f"'{'yaml' if path.suffix in ('.yaml', '.yml', '.json') else 'ini'}' plugin"
    start = next((place for place, line in enumerate(causes) if plug_in in line), 0)
    text = " ".join(" ".join(causes[start:] or lines).split())
    return text if len(text) <= SAID_CHARACTERS else text[:SAID_CHARACTERS] + "…"
