"""What Slurm's commands print, read: lines of a real one, and any text at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.slurm import commands
from tasks.slurm.commands import Job, NodeLine
from tests.support.builders.damaged import damaged, reaches
from tests.support.cases.rows import rows

SQUEUE = """\
1|COMPLETED|node-0|None|primus-x.node-0
3|DEADLINE||DeadLine|primus-x.node-1
12|PENDING||ReqNodeNotAvail, UnavailableNodes:node-1|k.node-1
11|RUNNING|node-2|None|k.node-2
10|PENDING||JobHeldUser|bad
"""
"""`squeue --format=%i|%T|%N|%r|%j` of Slurm 22.05.8 on Debian 12, nodes made up."""
SINFO = """\
node-0|idle|none
node-1|drained|primus: cpu|gemm = bad
node-2|mixed*|none
node-3|down*|Not responding
"""
"""`sinfo --Node --format=%N|%T|%E`, of the same."""
NODE_FAIL = "JobId=2 JobName=k UserId=root(0) JobState=NODE_FAIL Reason=NodeDown Dependency=(null) ExitCode=0:0 Power="
NOT_OPENED = "JobId=1 JobName=j.sh JobState=FAILED Reason=JobLaunchFailure Requeue=1 ExitCode=0:53 RunTime=00:00:00"
"""`scontrol --oneliner show job`, of the same, shortened."""


def test_lines_of_a_real_slurm_are_read() -> None:
    assert commands.jobs_in(SQUEUE) == [
        Job(1, "COMPLETED", "node-0", "", "primus-x.node-0"),
        Job(3, "DEADLINE", "", "DeadLine", "primus-x.node-1"),
        Job(12, "PENDING", "", "ReqNodeNotAvail, UnavailableNodes:node-1", "k.node-1"),
        Job(11, "RUNNING", "node-2", "", "k.node-2"),
        Job(10, "PENDING", "", "JobHeldUser", "bad"),
    ]
    nodes = commands.nodes_in(SINFO)
    assert nodes["node-1"] == NodeLine("node-1", "drained", silent=False, reason="primus: cpu|gemm = bad")
    assert (nodes["node-2"].state, nodes["node-2"].silent, nodes["node-0"].silent) == ("mixed", True, False)
    assert [name for name, line in nodes.items() if line.kept_out] == ["node-1"]
    assert (commands.state_in(NODE_FAIL), commands.exit_in_words(NODE_FAIL)) == ("NODE_FAIL", "")
    assert commands.exit_in_words(NOT_OPENED).startswith("Slurm could not open its folder")


PRINTED = damaged(
    [SQUEUE, SINFO, NODE_FAIL, NOT_OPENED, "123;cluster\n"], ["|", "\n", "=", ":", "(", "*", "None", "\0"]
)


def test_such_texts_tell_of_jobs_and_nodes_other_than_the_real_ones() -> None:
    assert reaches(PRINTED, lambda text: commands.jobs_in(text) not in ([], commands.jobs_in(SQUEUE)))
    assert reaches(PRINTED, lambda text: commands.nodes_in(text) not in ({}, commands.nodes_in(SINFO)))
    assert reaches(PRINTED, lambda text: "JobState=" in text and commands.state_in(text) == commands.GONE)


@given(PRINTED | st.text(st.sampled_from("0123456789|;=: \n\r\tNODEJobSatxi*,()\0é")) | st.text())
def test_whatever_slurm_prints_is_read_without_a_crash(text: str) -> None:
    for job in commands.jobs_in(text):
        assert commands.ended_in_words(job, commands.exit_in_words(text), "")
        assert commands.waited_in_words(job, None, 1.0)
    for name, line in commands.nodes_in(text).items():
        assert name
        assert line.in_words
    assert commands.state_in(text) in {*commands.ENDED, commands.GONE}
    commands.number_in(text)


@pytest.mark.parametrize(
    ("text", "number"),
    [("123\n", 123), ("123;cluster\n", 123), ("a banner\n5\n", 5), ("", None), ("Submitted\n", None), ("²", None)],
)
def test_the_number_of_a_job_is_the_last_line(text: str, number: int | None) -> None:
    assert commands.number_in(text) == number


def test_of_several_jobs_the_one_that_goes_on_counts() -> None:
    def job(number: int, state: str) -> Job:
        return Job(number, state, "", "", "n")

    def chosen(*jobs: Job) -> int:
        return commands.by_name(jobs)["n"].number

    assert chosen(job(1, "FAILED"), job(3, "PENDING"), job(2, "RUNNING")) == 2
    assert chosen(job(4, "PENDING"), job(3, "PENDING")) == 3
    assert chosen(job(4, "COMPLETED"), job(5, "COMPLETED")) == 5


@rows("tasks/slurm/answers")
def test_why_a_node_was_not_handed_out_is_slurms_own_reason(line: NodeLine | None, reason: str, said: str) -> None:
    told = commands.waited_in_words(Job(1, "PENDING", "", reason, "n"), line, 600.4)
    assert told == f"Slurm did not hand it out within 600 s: {said}"


@rows("tasks/slurm/answers")
def test_why_a_job_told_nothing_is_said_in_words(state: str, reason: str, exit_words: str, said: str) -> None:
    assert commands.ended_in_words(Job(9, state, "", reason, "n"), exit_words, "boom") == said
