"""What Argo itself made of the conformance cases: its trees, recorded on the bed and kept for its exact version.

One file a case in `tests/golden/argo-VERSION/`, with the digest of the case's file as it was then. They are written by
`make bed-golden` alone, on the bed; look at the difference before you commit it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.bed import versions
from tests.support.cases.conformance_cases import FOLDER as CASES
from tests.support.cases.conformance_cases import Case

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
A_RACE = frozenset({"timeout-step"})
"""Trees that are not compared: how far its second step comes in five seconds is a matter of the machine."""
IN_TURN = 8
"""So many cases, others at each commit, are asked again although nothing changed: an unsteady answer is noticed."""
Json = dict[str, Any]


def folder() -> Path:
    """For the version of Argo that the bed runs."""
    return GOLDEN / f"argo-{versions.version(versions.ARGO).removeprefix('v')}"


def digest_of(name: str) -> str:
    """SHA-256 of a case's file."""
    return hashlib.sha256((CASES / f"{name}.yaml").read_bytes()).hexdigest()


def tree_by_argo(name: str) -> Json | None:
    """The recorded tree of a case; None where none is."""
    found = _read(name)
    return None if found is None else found["tree"]


def changed(name: str) -> bool:
    """Whether Argo was not asked about the case as it is now."""
    found = _read(name)
    return found is None or found["case"] != digest_of(name)


def _read(name: str) -> Json | None:
    path = folder() / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def record(name: str, tree: Json) -> None:
    """Write down what Argo made of it."""
    folder().mkdir(parents=True, exist_ok=True)
    text = json.dumps({"case": digest_of(name), "tree": tree}, indent=1, ensure_ascii=False)
    (folder() / f"{name}.json").write_text(f"{text}\n", encoding="utf-8")


def asked_anew(cases: Iterable[Case], turn: int, everything: bool) -> list[Case]:
    """Cases that Argo is asked about: those that changed since, and some in turn; or all."""
    found = list(cases)
    parts = -(-len(found) // IN_TURN)
    in_turn = {case.name for case in found[turn % parts :: parts]}
    return [case for case in found if everything or case.name in in_turn or changed(case.name)]
