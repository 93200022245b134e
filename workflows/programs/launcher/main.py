r"""The launcher of one pod: starts its ranks, reads what they print, reports it, and ends them all together.

python3 -I -S programs.pyz launch --role=trainer --framework=regex --pattern='step (?P<step>\d+)' -- ./train.py
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import Dict, List, Mapping

from workflows.programs.launcher import termination
from workflows.programs.launcher.loop import Launcher
from workflows.programs.launcher.options import Options, Place, parse, parse_place
from workflows.programs.progress.reader import PatternError
from workflows.programs.runtime import flags, report_token

__all__ = ["Options", "main", "parse"]


def main(argv: List[str]) -> int:
    """Launch; the exit code is the first failing rank's, or says how the pod ended."""
    environment: Dict[str, str] = dict(os.environ)
    try:
        options, place = parse(argv), parse_place(environment)
        report_token.forget_secrets(os.environ)
        with report_token.kept(own_token(options, place)) as path:
            return Launcher(options, place, {**environment, report_token.VARIABLE: path}).run()
    except (flags.UsageError, PatternError) as error:
        return _refuse(str(error), environment)


def own_token(options: Options, place: Place) -> str:
    """The token by which this pod's ranks may report to the coordinator; "" where there is none to report to."""
    if not (place.token and place.coordinator_url):
        return ""
    return report_token.report_token(place.token, options.role, place.pod_index)


def _refuse(message: str, environment: Mapping[str, str]) -> int:
    """Leave a termination message for a launcher that cannot begin; no rank is to blame."""
    print(f"launch: {message}", file=sys.stderr, flush=True)
    attempt = environment.get("PRIMUS_ATTEMPT", "")
    readable = {
        **environment,
        **dict.fromkeys(report_token.SECRETS, ""),
        "PRIMUS_POD_INDEX": "0",
        "PRIMUS_RESUME_STEP": "",
    }
    place = parse_place({**readable, "PRIMUS_ATTEMPT": attempt if attempt.isdigit() else "1"})
    record = replace(place.record(environment.get("PRIMUS_ROLE", ""), "launcher-error", message), cause="arguments")
    termination.write(record, place.termination_log, "")
    return 2
