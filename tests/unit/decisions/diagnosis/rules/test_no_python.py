"""Images that lack what the launcher needs: the right class, the right rule, and what to do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flows.decisions.diagnosis.diagnose import diagnose
from flows.decisions.diagnosis.lines import gather
from flows.decisions.policy import policy_of
from profiles.vocabulary import Action, FaultClass
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


@pytest.mark.parametrize("signal", [Signal.POD_FAILED, Signal.IMAGE])
def test_a_runtime_that_fails_is_the_node_s_and_nothing_in_the_profile(signal: Signal) -> None:
    said = (
        "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: "
        "unable to start container process: unable to apply cgroup configuration: error creating systemd unit "
        "`cri-containerd-36d9cefbfadd152ef0ff72ea79b081ab.scope`: got `failed`: unknown"
    )
    found = diagnose(replace(never_started(said), signal=signal))
    assert (found.fault_class, found.rule) == (FaultClass.NODE_LOST, "container-runtime")
    assert [node for node, _ in found.culprits] == ["node-1"]
    policy = policy_of(found.fault_class, found.rule)
    assert (policy.action, policy.nodes) == (Action.NEW_ATTEMPT, "quarantine-again")


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
