"""Collectives between GPUs: one process each by torch, tried with made-up arrays, and with torch where it is."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.support.cases.rows import rows
from workflows.programs.fabric import group_member, torch_group
from workflows.programs.fabric.report import GangReport
from workflows.programs.runtime import flags

MAIN = Path(group_member.__file__).parents[1] / "main.py"

REPORT = GangReport("n", 0, 0, 1.0)


@rows("programs/fabric/torch")
def test_the_answers_of_gpus_are_one_or_unknown(
    told: list[dict[str, Any]], rails: tuple[float, ...] | None, why: str
) -> None:
    found = torch_group.merge_reports(REPORT, told)
    assert (found.rails, found.why.startswith(why), found.by) == (rails, True, "gpus")


def test_without_torch_or_gpus_nothing_is_tried_between_gpus(tmp_path: Path) -> None:
    assert not torch_group.is_usable(0)
    assert not torch_group.is_usable(8, str(tmp_path))
    assert not torch_group.is_usable(8, str(tmp_path / "nosuch"))


def test_a_gpus_process_without_torch_says_so(tmp_path: Path) -> None:
    options = torch_group.Options(0, 2, 0, 1, "127.0.0.1", 1, 1, 0, 1, 1.0)
    (tmp_path / "torch.py").write_text("raise ImportError('no torch here')")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, str(MAIN), "gang-gpu", *options.argv()]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert json.loads(done.stdout)["gang_gpu"] == {"unknown": "ImportError: no torch here"}
    assert flags.from_argv(torch_group.Options, options.argv()) == options


class Numbers(np.ndarray[Any, Any]):
    """An array that takes torch's words."""

    def to(self, _: object) -> Numbers:
        return self


class Library:
    """What `gang_torch` asks of torch and its collectives, for node 1 of three; may get one value wrong."""

    float32 = "float32"

    def __init__(self, wrong_at: int = -1) -> None:
        self.wrong_at, self.calls = wrong_at, list[str]()

    def arange(self, count: int, device: object) -> Numbers:
        return np.arange(count, dtype=np.float64).view(Numbers)

    def empty(self, count: int, device: object) -> Numbers:
        return np.zeros(count).view(Numbers)

    def barrier(self) -> None:
        self.calls.append("barrier")

    def all_reduce(self, data: Numbers, group: object) -> None:
        own = data - 1  # what node 1 gave, without its number
        data[:] = 3 * own + 3
        self._spoil(data)

    def all_to_all_single(self, got: Numbers, given: Numbers, group: object) -> None:
        part = len(given) // 3
        own = (given - 1)[part : 2 * part]
        for node in range(3):
            got[node * part : (node + 1) * part] = own + node
        self._spoil(got)

    def _spoil(self, data: Numbers) -> None:
        if self.wrong_at >= 0:
            data[self.wrong_at] += 1


@pytest.mark.parametrize(("wrong_at", "wrong"), [(-1, 0), (0, 2), (17, 2)])
def test_a_rail_counts_every_value_that_is_wrong(wrong_at: int, wrong: int) -> None:
    options = torch_group.Options(1, 3, 0, 1, "127.0.0.1", 1, 1200, 600, 2, 1.0)
    library = Library(wrong_at)
    rail = torch_group._Rail  # pyright: ignore[reportPrivateUsage]
    told = rail(options, library, library, None, SimpleNamespace(type="cpu")).tell()
    assert told["wrong"] == wrong
    assert told["all_reduce"] > 0 < told["all_to_all"]
    assert library.calls == ["barrier", "barrier"], "nobody counts the time in which another one is late"


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="NO TORCH HERE: collectives of torch not tried")
def test_processes_of_torch_meet_and_agree() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    started: list[subprocess.Popen[str]] = []
    for node, gpu in ((0, 0), (0, 1), (1, 0), (1, 1)):
        options = torch_group.Options(node, 2, gpu, 2, "127.0.0.1", port, 100_000, 10_000, 2, 60.0, backend="gloo")
        command = [sys.executable, str(MAIN), "gang-gpu", *options.argv()]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    told = [json.loads(one.communicate(timeout=90)[0].splitlines()[-1])["gang_gpu"] for one in started]
    assert [one.get("wrong", one) for one in told] == [0, 0, 0, 0]
