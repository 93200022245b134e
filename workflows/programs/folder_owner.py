"""Whose a run's folder is: the ledger of the run is written there once, and no run of another one goes on there.

Names of runs are told apart by the ledger alone, and runs of many ledgers may share one storage.
"""

from __future__ import annotations

import os

from workflows.programs import checkpoint_proofs

NAME = "ledger"
VARIABLE = "PRIMUS_LEDGER"
"""Environment variable with the identity of the ledger that the run stands in."""


def claim(run_dir: str, ledger: str) -> str:
    """Identity of the other ledger that owns the folder; "" where it is ours.

    A folder without an owner becomes ours: nobody was there yet, or an older version that wrote none.

    Args:
        run_dir: the run's folder; made where it is missing.
        ledger: our identity; "": nobody asks whose it is.

    Raises:
        OSError: the storage cannot be read or written.
    """
    if ledger and not owner_of(run_dir):
        os.makedirs(run_dir, exist_ok=True)
        _write_once(os.path.join(run_dir, NAME), ledger)
    return other_owner(run_dir, ledger)


def other_owner(run_dir: str, ledger: str) -> str:
    """The same, and nothing is written.

    Raises:
        OSError: the storage cannot be read.
    """
    owner = owner_of(run_dir) if ledger else ""
    return "" if owner == ledger else owner


def owner_of(run_dir: str) -> str:
    """Identity of the ledger that the folder belongs to; "" where none is written there.

    Raises:
        OSError: the storage cannot be read.
    """
    try:
        with open(os.path.join(run_dir, NAME), "rb") as file:
            return file.read(256).decode("utf-8", "replace").strip()
    except FileNotFoundError:
        return ""


def refusal(run_dir: str, owner: str) -> str:
    """What is said of a folder that another ledger owns; short, since whoever diagnoses it cuts long lines."""
    return (
        f"{run_dir} belongs to another ledger ({owner[:8]}): choose another --name; "
        f"where that ledger is lost, delete the file `{NAME}` there"
    )


def _write_once(path: str, ledger: str) -> None:
    # Not by a process's number: many containers call theirs 1.
    unfinished = f"{path}.{ledger}.unfinished"
    checkpoint_proofs.write_atomically(unfinished, f"{ledger}\n".encode())
    try:
        os.link(unfinished, path)  # of two who come at once one is first, and stays
    except FileExistsError:
        os.unlink(unfinished)
    except OSError:
        os.replace(unfinished, path)  # a storage without hard links
    else:
        os.unlink(unfinished)
