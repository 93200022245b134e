"""Fixtures for a test module that says `pytest_plugins = ["tests.support.servers.slurm_fixtures"]`: `slurm`, a real
one.

Where there can be none the tests are skipped, with what was not tried; where PRIMUS_TEST_SLURM=1 they fail instead.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.servers.slurm_cluster import SlurmCluster, missing_slurm

PROLOG = Path(__file__).parents[3] / "deployments" / "slurm" / "prolog.sh"


@contextmanager
def running(nodes: int = 4, *, prolog: bool = False) -> Generator[SlurmCluster]:
    """A Slurm of so many nodes; `prolog`: ours, with verdicts in its folder `verdicts`."""
    reason = missing_slurm()
    if reason:
        if os.environ.get("PRIMUS_TEST_SLURM") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))  # munge's socket must have a short path
    cluster = SlurmCluster(folder, nodes, f"Prolog={folder}/prolog.sh" if prolog else "")
    if prolog:
        (folder / "prolog.conf").write_text(f"VERDICTS={folder}/verdicts\n")
        (folder / "prolog.sh").write_text(f"#!/bin/sh\nPRIMUS_PROLOG_CONF={folder}/prolog.conf exec {PROLOG}\n")
        (folder / "prolog.sh").chmod(0o755)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def slurm_cluster() -> Iterator[SlurmCluster]:
    """One Slurm for the module's tests."""
    with running() as cluster:
        yield cluster


@pytest.fixture
def slurm_of_six() -> Iterator[SlurmCluster]:
    """One with as many nodes as the launchers' matrix."""
    with running(6) as cluster:
        yield cluster


@pytest.fixture
def slurm_with_prolog() -> Iterator[SlurmCluster]:
    """One whose nodes ask for verdicts before a job begins."""
    with running(2, prolog=True) as cluster:
        yield cluster


@pytest.fixture
def slurm(slurm_cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmCluster]:
    """It with all nodes idle, before and after; our own commands speak with it."""
    monkeypatch.setenv("SLURM_CONF", str(slurm_cluster.configuration))
    yield slurm_cluster
    slurm_cluster.mend()
