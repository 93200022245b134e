"""Does the work of one flow run of the Prefect server and reports there how it ended.

`python -m deployments.processes.flow_run` does so for the flow run that a Prefect worker started it for; a flow runner
calls `drive_flow_run` or `run_plain` in a process that it forked. A flow run of `train` opens and drives a training
run. The other flows (approve, failover, monitor, report) train nothing and simply run to their end.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from contextlib import suppress
from types import FrameType
from typing import Any, cast

from pydantic import ValidationError

from deployments.processes.last_words import driving_here, note
from deployments.processes.offers import flow_at
from deployments.processes.prefork import LET_GO
from profiles.errors import Permanent, PrimusError, ProfileError
from profiles.loading.load import load_cluster
from profiles.request import TrainRequest
from profiles.vocabulary import FINISHED
from tasks.addresses import prepare
from tasks.context import patient
from tasks.lease import let_go
from tasks.ledger.ledger import Ledger
from tasks.prefect.automations import server_caller
from tasks.prefect.flow_runs import FlowRun, FlowRuns, flow_runs, run_of
from tasks.runs.open import open_run, resolve_request
from tasks.settings import Settings
from workflows.model.runs import ENDS

GIVEN = "PREFECT__FLOW_RUN_ID"
"""Variable by which Prefect's workers say which flow run a process is for."""
TRAIN = "flows.train.train"
LONGEST_STEM = 21
"""A name holds at most 30 characters: the profile's name, a dash and eight of the flow run's id."""


def run_plain(flow_run: str, entrypoint: str) -> int:
    """Run a flow run that trains nothing to its end; 0 where the server let it run, however it ended.

    The flow run is claimed for this process; `entrypoint` is the module path of its flow, as the runner offered it.
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


def entrypoint_of(flow_run: str) -> str:
    """Module path of the flow that a flow run is of."""
    with flow_runs() as server:
        return server.entrypoint(server.read(flow_run))


def drive_flow_run(flow_run: str) -> int:
    """Open the run that the flow run asks for, drive it to its end, and say how it ended; 0 where it was driven."""
    settings = Settings.from_environment(os.environ)
    run = patient(_opened)(flow_run, settings)
    if run is None:
        return 1
    signal.signal(LET_GO, _letting_go(run, settings))
    with driving_here(settings.home, run):
        state = _driven(flow_run, run)
    note(settings.home, run, state)
    ledger = Ledger(settings.ledger_url)
    patient(conclude)(flow_run, run, ledger)
    sys.stderr.write(f"{run}: {state}\n")
    return 0


def _opened(flow_run: str, settings: Settings) -> str | None:
    """Name of the run, which stands in the ledger now; None where the flow run was ended instead.

    Raises:
        Unavailable: server or ledger do not answer; safe to repeat.
    """
    ledger = Ledger(settings.ledger_url)
    try:
        with flow_runs() as server:
            asked = server.read(flow_run)
            server.stand_at(asked)
            if run_of(asked) and ledger.run(run_of(asked)) is not None:
                return run_of(asked)  # the request was read before: what its profile says by now is no matter
            try:
                return _open(asked, settings, ledger, server)
            except Permanent as error:
                server.leaves(asked)
                server.refuse(flow_run, str(error))
                return None
    finally:
        ledger.close()


def _open(asked: FlowRun, settings: Settings, ledger: Ledger, server: FlowRuns) -> str | None:
    """Open the run, or find it; None where another flow run has it already.

    Raises:
        Permanent: the request is wrong, or the name is that of another run; nothing was written.
    """
    request = _named(_request(asked.parameters), asked.id.hex, settings, ledger)
    # Before the run is opened: of two flow runs that open it at once each sees the other.
    server.belongs(asked, request.name)
    if request.profile or request.inline:
        open_run(request, settings, ledger, ledger.database.clock(), server_caller(asked))
    first = next((one.id for one in server.of_run(request.name) if one.phase not in ENDS), str(asked.id))
    if first == str(asked.id):
        return request.name
    server.leaves(asked)
    server.drop(str(asked.id), f"{request.name} is followed in flow run {first}")
    return None


def _named(request: TrainRequest, identity: str, settings: Settings, ledger: Ledger) -> TrainRequest:
    """The request with a name, checked as far as possible without writing anything."""
    if request.name and not request.profile and ledger.run(request.name) is not None:
        return request
    resolved = resolve_request(request, settings)
    ours = load_cluster(settings.cluster).name
    if resolved.cluster.name != ours:
        raise ProfileError("cluster", f"this runner serves {ours}, not {resolved.cluster.name}")
    # Of the flow run's own id, so that the same request becomes the same run however often it is taken up.
    name = request.name or f"{resolved.run.name[:LONGEST_STEM].rstrip('-')}-{identity[:8]}"
    return request.model_copy(update={"name": name})


def _request(parameters: dict[str, Any]) -> TrainRequest:
    try:
        return TrainRequest.model_validate(parameters.get("request") or {})
    except ValidationError as error:
        first = error.errors()[0]
        raise ProfileError(".".join(map(str, first["loc"])), first["msg"], "request") from error


def _driven(flow_run: str, run: str) -> str:
    """Run the `train` flow as this flow run; returns the state in which Prefect left it."""
    from prefect.exceptions import Abort, Pause
    from prefect.flow_engine import run_flow

    from flows.train import train

    with flow_runs() as server:
        asked = patient(server.read)(flow_run)
    wanted = {"request": TrainRequest(name=run, profile="")}
    try:
        # The engine's result carries no type.
        made = cast(Any, run_flow)(train, flow_run=asked, parameters=wanted, return_type="state")
        ended: object = asyncio.run(made)
    except (Abort, Pause) as error:
        return f"the server lets nobody run it: {error}"
    return str(ended)


def conclude(flow_run: str, run: str, ledger: Ledger) -> None:
    """Report to the server how the run ended; nothing is reported of a run that continues.

    Raises:
        Unavailable: server or ledger do not answer; safe to repeat.
    """
    record = ledger.run(run)
    if record is not None and record.state in FINISHED:
        with flow_runs() as server:
            server.conclude(flow_run, record.state, record.why)


def _letting_go(run: str, settings: Settings) -> Any:
    """The signal handler: nothing is decided any more, another thread releases the lease and ends the process.

    The thread that drives is not held up meanwhile: it may be in the middle of a write that the lease waits for.
    """

    def give_back() -> None:
        with suppress(PrimusError):
            let_go(settings.ledger_url, run)
        os._exit(0)

    def handle(_number: int, _frame: FrameType | None) -> None:
        threading.Thread(target=give_back, daemon=True).start()

    return handle


def main() -> int:
    """Drive the flow run that a worker gave, or run it where it trains nothing; the exit code."""
    given = os.environ.get(GIVEN, "")
    if not given:
        sys.stderr.write(f"{GIVEN} is not set: a worker sets it\n")
        return 2
    try:
        prepare(os.environ)
        entrypoint = patient(entrypoint_of)(given)
        return drive_flow_run(given) if entrypoint in ("", TRAIN) else run_plain(given, entrypoint)
    except PrimusError as error:
        sys.stderr.write(f"{error}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
