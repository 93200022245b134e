"""Levels of lines: what their programs called information is believed only where it is unmistakable."""

from __future__ import annotations

import pytest

from flows.decisions.diagnosis.lines import Level, believed, level_of
from flows.decisions.diagnosis.matching import match_line, rule_by_name


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("INFO:root:epoch 1", Level.CALM),
        ("[INFO] GPU available: True", Level.CALM),
        ("2025-03-01 10:00:00,123 INFO: x", Level.CALM),
        ("[titan] 2026-05-18 16:05:25,724 - root - INFO - step: 49", Level.CALM),
        ("2022-10-01 10:00:00 | INFO | fairseq.trainer | x", Level.CALM),
        ("[2024-04-06 02:59:36,123] [INFO] [config.py:1000:print]   x", Level.CALM),
        ("[INFO|trainer.py:1234] 2023-01-01 10:00:00 >> x", Level.CALM),
        ("2024-05-01 10:00:00,123\tINFO worker.py:1642 -- x", Level.CALM),
        ("<info> [2022-05-09 22:47:55] Trial 1311 was assigned", Level.CALM),
        ('time="2024-02-21T09:31:59Z" level=info msg="x"', Level.CALM),
        ('{"level":"info","ts":"2024-02-21T09:31:59Z","msg":"x"}', Level.CALM),
        ("I0301 10:00:00.123456       1 request.go:700] x", Level.CALM),
        ("2024-03-01 10:00:00.123456: I tensorflow/x.cc:1] x", Level.CALM),
        ("[2025-01-10 10:00:00,123 I 123 123] (gcs_server) x", Level.CALM),
        ("W0301 10:00:01.000000 4121 torch/distributed/run.py:793] x", Level.WARNING),
        ("[rank0]:[W1206 18:44:12.715 ProcessGroupNCCL.cpp:1250] x", Level.WARNING),
        ("[W socket.cpp:697] [c10d] x", Level.WARNING),
        ("[2024-05-01 10:00:00] WARNING retrying read", Level.WARNING),
        ("  Warning  Unhealthy  24m  kubelet  x", Level.WARNING),
        ("node-1:123:456 [0] misc/ibvwrap.cu:63 NCCL WARN Failed to open libibverbs.so[.1]", Level.WARNING),
        ("2025-03-01 10:00:00,123 ERROR: x", Level.LOUD),
        ("E0719 10:00:00.123456 1 controller.go:321] x", Level.LOUD),
        ('time="2020-09-25T14:34:34.038Z" level=error msg="x"', Level.LOUD),
        ("2025-03-01 10:00:00,123 - trainer - ERROR - see the INFO lines above", Level.LOUD),
        ("INFO: task python:4121 blocked for more than 120 seconds.", Level.UNSAID),
        ("unhandled system error (run with NCCL_DEBUG=INFO for details)", Level.UNSAID),
        ("set TORCH_DISTRIBUTED_DEBUG to either INFO or DETAIL to print names", Level.UNSAID),
        ("ValueError: x", Level.UNSAID),
        ("", Level.UNSAID),
    ],
)
def test_the_level_is_read_from_the_prefix(text: str, level: Level) -> None:
    assert level_of(text) is level


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("2025-03-01 10:00:00,123 INFO: retrying: Connection reset by peer", []),
        ("2025-03-01 10:00:00,123 ERROR: Connection reset by peer", ["peer-reset"]),
        ("2025-03-01 10:00:00 - root - INFO - OSError: [Errno 28] No space left on device", ["disk-full"]),
        ("I 05-04 00:52:46 controller.py:100] The cluster is preempted.", ["preemption-said"]),
    ],
)
def test_information_counts_where_it_is_unmistakable(text: str, names: list[str]) -> None:
    assert [match.rule.name for match in match_line(text)] == names


def test_only_calm_lines_are_doubted() -> None:
    weak, calm_word = rule_by_name("peer-reset"), rule_by_name("told-to-save-and-leave")
    assert weak is not None
    assert calm_word is not None
    assert not believed(weak, Level.CALM)
    assert all(believed(weak, level) for level in Level if level is not Level.CALM)
    assert believed(calm_word, Level.CALM)
