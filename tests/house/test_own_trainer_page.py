"""The page about one's own trainer: its files are the tested ones, its commands work as they stand there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

from deployments.cli.app import app
from deployments.cli.train import TrainOptions, same_again
from tests.support.trainers.own_trainer import PAGE, PROFILE, RESTARTS, blocks, put_files, shell


def test_the_profiles_on_the_page_are_the_tested_ones() -> None:
    assert blocks("yaml") == [PROFILE.read_text(), RESTARTS.read_text()]


def test_what_is_done_by_hand_works_by_hand(tmp_path: Path) -> None:
    put_files(tmp_path)
    _, train, resume, *_ = blocks("bash")
    said = shell(train, tmp_path)
    shown = re.findall(r"^0\.\d+ 0\.\d+ +\d+0000 .*$", PAGE, re.MULTILINE)
    assert len(shown) == 2
    assert all(re.search(rf"^0\.\d+ 0\.\d+ +{line.split()[2]} +", said, re.MULTILINE) for line in shown)
    assert re.search(r"^0\.\d+ 0\.\d+ +40000 ", shell(resume, tmp_path), re.MULTILINE)


def test_what_starts_nothing_works(tmp_path: Path) -> None:
    put_files(tmp_path)
    (tmp_path / "train.vw").write_text("1 | a\n")
    data, look = [block for block in blocks("bash") if "DATA" in block][:2]
    said = shell(data + look, tmp_path, PRIMUS_HOME=str(tmp_path / "home"))
    assert "vowpal-wabbit is right and fits local, pool cpu" in said
    assert "--data=$(PRIMUS_FOLDER_STORAGE_0)/train.vw" in said
    assert not (tmp_path / "home" / "shared" / "runs").exists()


def test_the_pattern_can_be_tried(tmp_path: Path) -> None:
    [tried] = [block for block in blocks("bash") if "re.search" in block]
    pattern = yaml.safe_load(PROFILE.read_text())["progress"]["pattern"]
    assert pattern in tried
    assert "match='0.438200 0.393500" in shell(tried, tmp_path)


def commands() -> list[list[str]]:
    lines = [line for block in blocks("bash") for line in block.splitlines()]
    return [shlex.split(line)[1:] for line in lines if line.startswith("primus ")]


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_every_command_is_one(words: list[str]) -> None:
    """Parsed, not run: the story runs them."""
    with get_command(app).make_context("primus", list(words)) as context:
        group = context.command
        name, command, rest = group.resolve_command(context, list(words))  # pyright: ignore
        if hasattr(command, "resolve_command"):
            with command.make_context(name, rest, parent=context) as inner:
                name, command, rest = command.resolve_command(inner, rest)
        command.make_context(name, rest, parent=context).close()


def test_the_line_that_continues_a_run_has_its_changes() -> None:
    options = TrainOptions("./mine.yaml", "x", "local", ("steps=5", "data.path=/a b"), "")
    line = same_again(options, "x")
    assert shlex.split(line)[:5] == ["primus", "train", "./mine.yaml", "--name", "x"]
    assert shlex.split(line)[5:] == ["--cluster", "local", "--set", "steps=5", "--set", "data.path=/a b"]
