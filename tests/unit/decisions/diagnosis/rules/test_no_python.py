"""Images that lack what the launcher needs: the right class, the right rule, and what to do."""

from __future__ import annotations

import pytest

from flows.decisions.diagnosis.diagnose import diagnose
from flows.decisions.diagnosis.lines import gather
from profiles.vocabulary import FaultClass
from workflows.model.attempt import Evidence, LogLine, Signal
from workflows.model.cluster import Pod

RUNTIME = (
    "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: "
    'unable to start container process: exec: "{program}": executable file not found in $PATH: unknown'
)
OLD = "programs: needs Python 3.9 or later, this image has 3.6 (/usr/bin/python3)"


def never_started(message: str, reason: str = "StartError") -> Evidence:
    pod = Pod("p", "trainer", 0, "node-1", "Failed", reason=reason, message=message, exit_code=128)
    return Evidence(Signal.POD_FAILED, "demo", 1, 100.0, pods=(pod,))


def test_an_image_without_python() -> None:
    found = diagnose(never_started(RUNTIME.format(program="python3")))
    assert (found.fault_class, found.rule) == (FaultClass.CONFIG, "python-missing")
    assert found.advice == "the image has no python3 on its PATH: take one that has Python 3.9 or later"
    assert found.culprits == ()


def test_another_program_that_is_missing_is_not_about_python() -> None:
    found = diagnose(never_started(RUNTIME.format(program="./train.sh")))
    assert (found.fault_class, found.rule) == (FaultClass.CONFIG, "script-missing")


@pytest.mark.parametrize("code", [126, None])
def test_an_image_with_an_old_python(code: int | None) -> None:
    pod = Pod("p", "trainer", 0, "node-1", "Failed", reason="Error", exit_code=code)
    line = LogLine(OLD, "launcher", None, "node-1", None, "p", 1)
    found = diagnose(Evidence(Signal.POD_FAILED, "demo", 1, 100.0, pods=(pod,), lines=(line,)))
    assert (found.fault_class, found.rule) == (FaultClass.CONFIG, "python-old")
    assert found.advice == "take an image with Python 3.9 or later as its python3"


def test_only_containers_that_never_started_speak_by_their_message() -> None:
    said = RUNTIME.format(program="python3")
    assert [line.text for line in gather(never_started(said))] == [said]
    assert gather(never_started(said, "Error")) == ()
    assert gather(never_started("")) == ()
