"""Runs a flow run that trains nothing, in the process that was made for it: approve, failover, monitor, report."""

from __future__ import annotations

import asyncio
import sys
from typing import Any, cast

from deployments.offers import flow_at
from tasks.flow_runs import flow_runs
from tasks.world import patient


def run_plain(flow_run: str, entrypoint: str) -> int:
    """Run it to its end; 0 where the server let it run, however it ended.

    Args:
        flow_run: its id, claimed for this process.
        entrypoint: module path of its flow, as the runner offered it.
    """
    from prefect.exceptions import Abort, Pause
    from prefect.flow_engine import run_flow

    with flow_runs() as server:
        asked = patient(server.read)(flow_run)
    try:
        # The engine's result carries no type.
        made = cast(Any, run_flow)(
            flow_at(entrypoint), flow_run=asked, parameters=asked.parameters, return_type="state"
        )
        ended: object = asyncio.run(made)
    except (Abort, Pause) as error:
        sys.stderr.write(f"flow run {flow_run}: the server lets nobody run it: {error}\n")
        return 1
    sys.stderr.write(f"flow run {flow_run}: {entrypoint}: {ended}\n")
    return 0
