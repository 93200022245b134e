"""`primus checkpoints` of anybody's folder: what it lists, and what it could not look into."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from deployments.cli.checkpoints import _request  # pyright: ignore[reportPrivateUsage]
from profiles.loading.load import load_cluster, load_run, resolve
from tasks.ledger.ledger import Ledger
from tasks.settings import Settings, localised
from tests.support.builders.checkpoint_samples import numbered_file, put
from tests.support.builders.ledgers import HERE, a_run, an_attempt
from tests.support.harness.commands import primus_here
from workflows.programs.checkpoints.kept_copies import NO_LIMITS, ResumeLimits


def test_what_a_resume_would_take_is_what_the_next_attempt_may_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRIMUS_HOME", str(tmp_path))
    monkeypatch.delenv("PRIMUS_LEDGER_URL", raising=False)
    resolved = resolve(load_run("demo"), load_cluster("local"))
    resolved = resolved.model_copy(update={"cluster": localised(resolved.cluster, tmp_path)})
    ledger = Ledger(Settings.from_environment({"PRIMUS_HOME": str(tmp_path)}).ledger_url)
    ledger.open_run(a_run(resolved=resolved.model_dump(mode="json")))
    fencing = ledger.acquire("demo", HERE, 1000.0, lambda _: None).fencing
    assert _request("demo").limits == NO_LIMITS
    rolled_back = replace(an_attempt(), max_resume_step=40, excluded_checkpoints=("/ck/step-60",))
    ledger.plan_attempt(fencing, rolled_back)
    assert _request("demo").limits == ResumeLimits(40, ("/ck/step-60",))
    ledger.close()


def test_a_link_to_itself_is_left_out_and_told_and_a_link_above_lists_nothing_twice(tmp_path: Path) -> None:
    put(tmp_path / "ck", numbered_file(20))
    (tmp_path / "ck" / "latest").symlink_to("latest")
    (tmp_path / "ck" / "all").symlink_to(".")
    done = primus_here("checkpoints", str(tmp_path / "ck"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("its header is readable") == 1
    assert done.stdout.endswith("could not look into latest: Too many levels of symbolic links\n")
    told = json.loads(primus_here("checkpoints", str(tmp_path / "ck"), "--json").stdout)
    assert [(one["step"], one["would_resume"]) for one in told] == [(20, True)]
