"""A profile is made of a command: what can be read is taken, what cannot is refused or left out, never guessed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from profiles.errors import ProfileError
from profiles.from_command import (
    Data,
    Here,
    Launch,
    Program,
    as_text,
    profile_of,
    recipe_for,
    recipe_named,
    slug,
    with_hints,
    without_launcher,
)
from profiles.loading import load
from profiles.loading.document import read_mapping
from tests.support.cases.rows import rows

LOCAL, REMOTE = load.load_cluster("local"), load.load_cluster("kubernetes-example")
THERE = {"python3": "/opt/primus/bin/python3", "python": "/venv/bin/python", "torchrun": "/venv/bin/torchrun"}
HERE = Here("/home/u", lambda word: THERE.get(word, word if word.startswith("/") else None), "/opt/primus/bin")


def made(*command: str, like: str = "", script: str = "", cluster: Any = LOCAL, **said: Any) -> Data:
    """The profile's data; it is a whole profile that fits its cluster."""
    recipe = load.load_run(like) if like else None
    data, _ = profile_of(Program(command, **said), cluster, HERE, "mine", recipe, script)
    load.resolve(load.run_from_mapping(data), cluster)
    text = with_hints(as_text(data, "head"), data)
    assert read_mapping(text.encode(), "text").data == data
    return data


@rows("profiles/from_command")
def test_a_launcher_is_read_and_left_out(
    command: tuple[str, ...],
    words: tuple[str, ...],
    per_node: int | None = None,
    nodes: int | None = None,
    left_out: tuple[str, ...] = (),
) -> None:
    assert without_launcher(command) == Launch(words, per_node, nodes, left_out)


@rows("profiles/from_command")
def test_a_launcher_that_says_no_fixed_gang_is_refused(command: tuple[str, ...], said: str) -> None:
    with pytest.raises(ProfileError, match=f"COMMAND: .*{said}"):
        without_launcher(command)


@rows("profiles/from_command")
def test_a_name_is_made_of_the_program(command: tuple[str, ...], name: str) -> None:
    assert slug(command) == name


@rows("profiles/from_command")
def test_a_kind_of_program_is_known_by_its_text(
    recipe: str, script: str = "", command: tuple[str, ...] = ("python3", "t.py")
) -> None:
    assert recipe_for(command, script) == recipe
    assert not recipe or recipe in load.run_names()


@rows("profiles/from_command")
def test_where_it_saves_is_read(
    directory: str, checkpoints: str = "", pattern: str = "", words: tuple[str, ...] = ()
) -> None:
    checkpoint = made("python3", "t.py", *words, checkpoints=checkpoints)["checkpoint"]
    assert (checkpoint.get("directory", ""), checkpoint.get("pattern", "")) == (directory, pattern)
    assert checkpoint.get("format", "auto") == ("pattern" if pattern else "auto")
    assert checkpoint["first_step_after_resume"] == "any"


def test_one_process_is_not_told_that_it_is_one_of_many() -> None:
    [role] = made("python3", "t.py")["roles"]
    assert role["torchrun_variables"] is False
    assert (role["replicas"], role["processes_per_node"]) == (1, 1)
    for told in (made("torchrun", "t.py"), made("python3", "t.py", ranks=2)):
        assert "torchrun_variables" not in told["roles"][0]


def test_ranks_are_spread_evenly_over_nodes() -> None:
    [role] = made("torchrun", "--nproc-per-node=2", "--nnodes=3", "t.py")["roles"]
    assert (role["replicas"], role["processes_per_node"]) == (3, 2)
    [role] = made("torchrun", "--nproc-per-node=2", "t.py", ranks=4, nodes=2)["roles"]
    assert (role["replicas"], role["processes_per_node"]) == (2, 2)
    with pytest.raises(ProfileError, match="--ranks: 3 ranks cannot be spread evenly over 2 nodes"):
        made("python3", "t.py", ranks=3, nodes=2)


def test_on_this_machine_the_words_mean_what_they_mean_in_this_shell() -> None:
    assert made("python3", "t.py")["roles"][0]["command"] == ["python3", "t.py"]
    assert made("python", "t.py")["roles"][0]["command"] == ["/venv/bin/python", "t.py"]
    assert made("torchrun", "t.py")["roles"][0]["command"] == ["/venv/bin/python3", "t.py"]
    assert made("./a.out", "x")["roles"][0]["command"] == ["/home/u/./a.out", "x"]
    assert made("python3", "t.py")["roles"][0]["working_directory"] == "/home/u"
    with pytest.raises(ProfileError, match="COMMAND: there is no program nosuch here"):
        made("nosuch")


def test_on_a_cluster_it_runs_in_an_image_and_not_in_this_folder() -> None:
    with pytest.raises(ProfileError, match="--image: is missing"):
        made("python3", "t.py", cluster=REMOTE)
    data = made("nosuch", cluster=REMOTE, image="registry/mine:1", checkpoints="out")
    assert (data["roles"][0]["image"], data["roles"][0]["command"]) == ("registry/mine:1", ["nosuch"])
    assert "working_directory" not in data["roles"][0]
    assert data["checkpoint"]["directory"] == "{run_dir}/work/out"
    assert data["hardware"] == ["mi300x", "h200", "cpu"]


def test_planned_steps_are_one_word_of_the_command() -> None:
    data = made("python3", "t.py", "--max_steps=300", "--log-steps", "5")
    assert (data["steps"], data["roles"][0]["command"][2:]) == (300, ["--max_steps={steps}", "--log-steps", "5"])
    data = made("python3", "t.py", "--steps", "300")
    assert (data["steps"], data["roles"][0]["command"][2:]) == (300, ["--steps", "{steps}"])
    data = made("python3", "t.py", "--steps", "300", steps=20)
    assert (data["steps"], data["roles"][0]["command"][2:]) == (20, ["--steps", "300"])
    assert "steps" not in made("python3", "t.py", "--max_iters=300")


def test_a_recipe_lends_how_steps_and_checkpoints_look() -> None:
    told = made("python3", "t.py", like="huggingface-trainer", script="HfArgumentParser(TrainingArguments)")
    assert told["progress"] == {"framework": "huggingface"}
    assert told["checkpoint"]["format"] == "huggingface"
    assert told["checkpoint"]["resume_argument"] == ["--resume_from_checkpoint={resume_from}"]
    assert "first_step_after_resume" not in told["checkpoint"], "it is told what to go on from, so it is judged"
    by_itself = made("python3", "t.py", like="huggingface-trainer", script="Trainer(model)")
    assert "resume_argument" not in by_itself["checkpoint"], "the program has no such option"


def test_how_steps_look_is_a_word_or_a_pattern() -> None:
    assert made("python3", "t.py", progress="lightning")["progress"] == {"framework": "lightning"}
    pattern = r"it (?P<step>\d+)"
    assert made("python3", "t.py", progress=pattern)["progress"] == {"framework": "regex", "pattern": pattern}
    for bad in ("regex", "typo", r"it (\d+)"):
        with pytest.raises(ProfileError, match="--progress: must be one of huggingface, "):
            made("python3", "t.py", progress=bad)
    with pytest.raises(ProfileError, match=r"--checkpoints: .* is no regular expression"):
        made("python3", "t.py", checkpoints="(?P<step")


def test_a_recipe_may_be_named_by_a_part_of_its_name() -> None:
    names = load.run_names()
    parts = {"nanogpt": "nanogpt", "huggingface": "huggingface-trainer", "megatron": "megatron-lm", "demo": "demo"}
    assert {part: recipe_named(part, names) for part in parts} == parts
    with pytest.raises(ProfileError, match="several are: pytorch-ddp, pytorch-fsdp"):
        recipe_named("pytorch", names)
    with pytest.raises(ProfileError, match='did you mean "nanogpt"'):
        recipe_named("nanogtp", names)


def test_a_command_without_words_is_refused() -> None:
    with pytest.raises(ProfileError, match="COMMAND: is missing"):
        profile_of(replace(Program(()), ranks=1), LOCAL, HERE, "mine", None, "")
