"""`primus doctor`: whether a cluster is fit for runs; each check with a verdict and what to do."""

from __future__ import annotations

import os

from deployments.edge import FAILED, GOOD, UNKNOWN, out, out_json
from deployments.tables import table
from flows.decisions.checkup import Check, checkup, overall
from profiles.load import load_cluster
from profiles.vocabulary import VerdictWord
from tasks.checkup import look_over
from tasks.opening import localised
from tasks.settings import Settings


def show_doctor(cluster: str, *, as_json: bool) -> int:
    """Look a cluster over.

    Returns:
        0 where everything passed, 1 where something failed, 3 where something could not be found out.

    Raises:
        ProfileError: no such cluster profile.
    """
    settings = Settings.from_environment(os.environ)
    settings.make_home()
    profile = localised(load_cluster(cluster or settings.cluster), settings.home)
    checks = checkup(look_over(profile, settings.home))
    verdict = overall(checks)
    if as_json:
        rows = [{**vars(item), "verdict": str(item.verdict)} for item in checks]
        out_json({"cluster": profile.name, "engine": profile.engine, "verdict": str(verdict), "checks": rows})
    else:
        out(text(profile.name, checks))
    return {VerdictWord.PASS: GOOD, VerdictWord.FAIL: FAILED}.get(verdict, UNKNOWN)


def text(cluster: str, checks: tuple[Check, ...]) -> str:
    """The same for people: one line, every check, then what to do."""
    bad = [item for item in checks if item.verdict is not VerdictWord.PASS]
    lines = [f"{cluster}: {overall(checks)}: {len(checks) - len(bad)} of {len(checks)} checks passed", ""]
    lines.append(table([vars(item) for item in checks], ("verdict", "check", "measured")))
    for item in bad:
        lines += ["", f"{item.check}: {item.measured}", f"  do: {item.advice}"]
    return "\n".join(lines)
