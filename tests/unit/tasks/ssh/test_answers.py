"""What is made of what Ansible says of its tasks: answers, or a reason in one sentence. Any text may come from a host.

The messages are those of ansible-core 2.19.14 and OpenSSH 9.2.
"""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiles.admission import BareMetal
from tasks.ssh.ansible import TaskEnd, event_of
from tasks.ssh.failures import SAID_CHARACTERS, short
from tasks.ssh.probe import HostResults, report_of
from tests.support.builders.damaged import damaged, reaches
from tests.support.cases.rows import rows
from workflows.model.node_results import NodeResult
from workflows.programs.parsers.text import ParsedOutput, Reading
from workflows.programs.probes.run import pack_answers

ANSWERS = {
    0: [ParsedOutput((Reading("hbm_bandwidth", 4200.5, "GB/s", "gpu 3"),))],
    1: [ParsedOutput(unknown="it hung")],
}
REPORT = {"node": "a", "at": 1795381299.7, "seconds": 0.117, "answers": pack_answers(ANSWERS)}


def reader(**more: object) -> HostResults:
    hosts = {node: {"address": f"10.0.0.{index}"} for index, node in enumerate(("node-0", "node-1"))}
    return HostResults(BareMetal.model_validate({"hosts": hosts, **more}), {"h0": "node-0", "h1": "node-1"})


def event(task: str, ending: str, **result: object) -> TaskEnd:
    return TaskEnd(task, "h0", ending, result)


BEFORE = 'Task failed: Data could not be sent to remote host "10.0.0.0". Make sure this host can be reached over ssh: '
WHERE = "10.0.0.0 port 22"


@rows("tasks/ssh/answers")
def test_a_host_that_cannot_be_reached_is_unknown_with_the_reason(said: str, why: str) -> None:
    found = reader(known_hosts_file="/k")
    assert found.take(event("folder", "unreachable", msg=BEFORE + said, unreachable=True))
    assert found.told["node-0"].at == 0.0
    assert found.told["node-0"].why.startswith(why)
    assert "\n" not in found.told["node-0"].why


UNHEARD = (
    "Task failed: Data could not be sent to remote host '10.0.0.0'. Make sure this host can be reached over SSH: "
    "[Errno 32] Broken pipe"
)


def test_an_ssh_that_ended_unheard_is_tried_once_more_and_told_then() -> None:
    found = reader()
    assert not found.take(event("folder", "unreachable", msg=UNHEARD))
    assert (found.again, found.told) == ({"node-0"}, {})
    assert found.take(event("folder", "unreachable", msg=UNHEARD)), "the second time it is what there is to say"
    assert found.told["node-0"].why.endswith("[Errno 32] Broken pipe")
    later = reader()
    assert later.take(event("probe", "unreachable", msg=UNHEARD)), "a connection that was there was lost"
    assert later.again == set()


def test_a_host_that_is_lost_later_was_lost_while_it_was_tested() -> None:
    found = reader()
    assert not found.take(event("folder", "ok", path="/tmp/primus-flows-x"))
    assert found.take(event("probe", "unreachable", msg=BEFORE))
    lost = f"the connection to {WHERE} was lost while it was tested: the host died or stopped answering"
    assert found.told == {"node-0": NodeResult("node-0", why=lost)}


@rows("tasks/ssh/answers")
def test_a_step_that_fails_leaves_its_node_unknown_with_the_reason(
    task: str, result: dict[str, object], why: str
) -> None:
    found = reader()
    assert found.take(event(task, "failed", **result))
    assert found.told == {"node-0": NodeResult("node-0", why=why)}


def test_the_first_word_about_a_node_counts_and_removal_says_nothing() -> None:
    found = reader()
    content = base64.b64encode(json.dumps(REPORT).encode()).decode()
    assert not found.take(event("probe", "ok", stdout="{}"))
    assert found.take(event("report", "ok", content=content))
    assert not found.take(event("removal", "unreachable", msg="gone"))
    assert not found.take(event("report", "failed", msg="twice"))
    assert not found.take(TaskEnd("report", "h9", "ok", {}))
    assert found.told == {"node-0": NodeResult("node-0", 1795381299.7, 0.117, ANSWERS)}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        "null",
        "[" * 200_000,
        json.dumps({**REPORT, "answers": "no answers"}),
        json.dumps({**REPORT, "at": "soon"}),
        json.dumps({**REPORT, "at": float("nan")}),
        json.dumps({**REPORT, "at": 0}),
        json.dumps({**REPORT, "seconds": 10**400}),
    ],
    ids=["nothing", "empty", "list", "null", "deep", "no answers", "no time", "nan", "no moment", "huge"],
)
def test_a_report_that_cannot_be_read_is_unknown(text: str) -> None:
    told = report_of("a", text)
    assert (told.at, told.answers) == (0.0, {})
    assert told.why.startswith("its report cannot be read")


def test_a_report_is_no_more_than_a_report() -> None:
    found = reader()
    assert found.take(event("report", "ok", content="A" * (1 << 21)))
    assert found.told["node-0"].why == "its report is longer than 1048576 bytes"
    other = reader()
    assert other.take(event("report", "ok", content="é"))
    assert other.told["node-0"].why.startswith("its report cannot be read")


LINES = damaged(
    [
        json.dumps(
            {"event": "runner_on_ok", "event_data": {"task": "report", "host": "h0", "res": {"content": "e30="}}}
        ),
        json.dumps({"event": "runner_on_failed", "event_data": {"task": "probe", "host": "h1", "res": {"rc": 1}}}),
    ],
    ["null", "[]", "{}", '"', ",", '"event":', '"host":', "NaN", "[" * 2000],
)


@given(LINES | st.text())
def test_any_line_is_an_event_or_none(line: str) -> None:
    told = event_of(line)
    if told is not None:
        assert line.lstrip().startswith("{")
        assert told.host
        reader().take(told)


def test_such_lines_are_events_and_none() -> None:
    assert reaches(LINES, lambda line: event_of(line) not in (None, event("report", "ok", content="e30=")))
    assert reaches(LINES, lambda line: '"event":' in line and event_of(line) is None)


def results(values: Any) -> Any:
    """Results of tasks with these values."""
    return st.dictionaries(st.sampled_from(["msg", "rc", "stdout", "content", "timedout", "a"]), values)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(), lambda one: st.lists(one) | results(one), max_leaves=8
)


@given(
    st.sampled_from(["folder", "programs", "probe", "report", "removal", "other"]),
    st.sampled_from(["runner_on_ok", "runner_on_failed", "runner_on_unreachable", "verbose"]),
    results(JSON),
)
def test_whatever_a_host_says_is_told_or_a_reason(task: str, ending: str, result: dict[str, Any]) -> None:
    found = reader()
    line = json.dumps({"event": ending, "event_data": {"task": task, "host": "h0", "res": result}})
    told = event_of(line)
    if told is not None and found.take(told):
        assert found.told["node-0"].why
        assert "\n" not in found.told["node-0"].why
        assert len(found.told["node-0"].why) < SAID_CHARACTERS + 200


@given(st.text())
def test_what_was_said_is_one_short_line(text: str) -> None:
    assert len(short(text)) <= SAID_CHARACTERS + 2
    assert len(short(text).splitlines()) <= 1
