"""`primus run -- COMMAND` asks as `primus train` does, and what `primus init` writes is right at once.

`primus render train … --as FORM`: what is printed, and what is refused before anything is.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_group

from deployments.cli import train
from deployments.cli.app import app
from deployments.cli.profiles import print_run
from deployments.exit_codes import GOOD
from profiles.errors import ProfileError
from profiles.loading import load
from profiles.request import TrainRequest
from tasks.runs.open import resolve_request
from tasks.settings import Settings

FLAGS = "--mode ask --tag team=vision --owner bob"
SHELL = r"""--checkpoints 'out/m-{step}.pt' --resume '--from {resume_from}' --progress 'step (?P<step>\d+)' --nodes 2"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder below the home's shared storage: what pods see, wherever temporary files lie."""
    monkeypatch.setenv("PRIMUS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}")
    monkeypatch.delenv("PRIMUS_CLUSTER", raising=False)
    here = tmp_path / "home" / "shared" / "mine"
    here.mkdir(parents=True)
    monkeypatch.chdir(here)
    (here / "train.py").write_text("import argparse\n")
    return here


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What `primus train` would be asked: the request, the command that says the same again, what is told."""
    found: list[Any] = []

    def take(request: TrainRequest, again: Any, notes: Any = (), **_: bool) -> int:
        found[:] = [request, again("train-1"), list(notes)]
        return GOOD

    monkeypatch.setattr(train, "train_run", take)
    return found


def primus(line: str) -> int:
    code = get_group(app).main(shlex.split(line), prog_name="primus", standalone_mode=False)
    return code if isinstance(code, int) else 0


def settings() -> Settings:
    return Settings.from_environment(os.environ)


def test_a_command_alone_is_a_request_with_a_whole_profile(asked: list[Any], folder: Path) -> None:
    assert (
        primus(f"run {SHELL} {FLAGS} --set roles.trainer.environment.LR=3 -- torchrun train.py --seed 5 --json") == GOOD
    )
    request, again, notes = asked
    resolved = resolve_request(request, settings())
    role = resolved.run.roles[0]
    assert (role.replicas, role.environment["LR"], role.working_directory) == (2, "3", str(folder))
    assert role.command[1:] == ("train.py", "--seed", "5", "--json")
    assert resolved.run.checkpoint.resume_argument == ("--from", "{resume_from}")
    assert resolved.run.checkpoint.directory == str(folder / "out")
    assert primus(again.removeprefix("primus ")) == GOOD
    assert asked[0] == request.model_copy(update={"name": "train-1"}), "the line that is shown asks for the same"
    assert notes[0].startswith("torchrun's work is done here: 2 ranks on 2 nodes, each runs ")
    kept = notes[-1].removeprefix("to keep it as a profile: primus ")
    assert primus(kept) == GOOD
    written = resolve_request(
        TrainRequest(profile="./train.yaml", overrides=("roles.trainer.environment.LR=3",)), settings()
    )
    assert written == resolved


def test_words_behind_the_first_are_the_command_s_without_dashes_too(asked: list[Any]) -> None:
    assert primus("run --steps 9 python3 train.py --json --name x") == GOOD
    assert asked[0].inline["roles"][0]["command"][1:] == ["train.py", "--json", "--name", "x"]
    assert asked[0].name == ""


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("run", "COMMAND: is missing"),
        ("run -- python3 typo.py", "COMMAND: there is no typo.py in "),
        ("run -- nosuch", "COMMAND: there is no program nosuch here"),
        ("run --name Bad_Name -- python3 train.py", "--name: must be lower-case letters"),
        ("run --mode typo -- python3 train.py", "--mode: is not a word"),
        ("init --like typo", "--like"),
        ("init --like nanogpt --ranks 2", "COMMAND: is missing, and what was said of it would be lost"),
        ("init --cluster typo", "profile"),
    ],
)
def test_what_is_wrong_is_named_and_nothing_is_begun(line: str, said: str, folder: Path, asked: list[Any]) -> None:
    with pytest.raises(ProfileError, match=said):
        primus(line)
    assert asked == []
    assert sorted(path.name for path in folder.iterdir()) == ["train.py"]


def test_a_folder_that_pods_cannot_see_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/dev/shm")
    with pytest.raises(ProfileError, match="each container has its own /dev; use another folder, or one below"):
        primus("run --dry-run -- true")


def test_a_folder_that_holds_files_is_told(asked: list[Any], folder: Path) -> None:
    primus("run --checkpoints out/ -- python3 train.py")
    assert not any("is not empty" in note for note in asked[2])
    (folder / "out").mkdir()
    (folder / "out" / "model-5.pt").touch()
    primus("run --checkpoints out/ -- python3 train.py")
    assert any(
        "is not empty: where checkpoints lie there, the run goes on from the newest" in note for note in asked[2]
    )


@pytest.mark.parametrize("cluster", ["local", "local-gpus", "kubernetes-example"])
@pytest.mark.parametrize("recipe", load.run_names())
def test_a_profile_like_a_shipped_one_fits_at_once(recipe: str, cluster: str, folder: Path) -> None:
    assert primus(f"init --like {recipe} --cluster {cluster} --out mine.yaml") == GOOD
    assert primus(f"profiles validate ./mine.yaml --cluster ./my-{cluster}.yaml") == GOOD
    assert yaml.safe_load((folder / "mine.yaml").read_text())["extends"] == recipe
    assert (folder / "mine.yaml").read_text().count("# ") > 8


def test_a_program_of_the_folder_is_found_and_nothing_is_written_over(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "train.py").write_text("from transformers import Trainer, HfArgumentParser\n")
    assert primus("init") == GOOD
    assert "it looks like a program of kind huggingface-trainer" in capsys.readouterr().err
    written = yaml.safe_load((folder / "train.yaml").read_text())
    assert written["progress"] == {"framework": "huggingface"}
    assert primus("profiles validate ./train.yaml") == GOOD
    (folder / "train.yaml").write_text("mine\n")
    with pytest.raises(ProfileError, match=r"train\.yaml: is there already: --force writes over it"):
        primus("init")
    assert (folder / "train.yaml").read_text() == "mine\n"
    assert primus("init --force --json") == GOOD
    assert yaml.safe_load((folder / "train.yaml").read_text()) == written


def test_in_an_empty_folder_the_demo_s_is_written(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "train.py").unlink()
    assert primus("init") == GOOD
    assert "no program was found here: this is the demo's" in capsys.readouterr().err
    assert primus("profiles validate ./my-demo.yaml") == GOOD


FORMS = {
    "jobset": ["JobSet"],
    "trainjob": ["TrainingRuntime", "TrainJob"],
    "pytorchjob": ["Service", "Job", "PyTorchJob"],
}
TWO_ROLES = """
extends: demo
name: two-roles
roles:
  - name: trainer
    decides: true
  - name: feeder
    image: example.org/feeder:1
    command: [feed]
"""


@pytest.mark.parametrize(("form", "kinds"), FORMS.items(), ids=FORMS)
def test_a_form_is_the_gang_alone(form: str, kinds: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert print_run("demo", "kubernetes-example", (), form, as_json=True) == GOOD
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    assert [one["kind"] for one in found] == kinds
    assert {one["metadata"]["namespace"] for one in found} == {"training"}


def test_what_is_printed_for_people_is_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    printed: list[Any] = []
    for as_json, read in ((True, json.loads), (False, yaml.safe_load_all)):
        print_run("megatron-lm", "kubernetes-example", ("roles.trainer.replicas=4",), "trainjob", as_json=as_json)
        printed.append(list(read(capsys.readouterr().out)))
    assert printed[0] == printed[1]
    assert printed[0][1]["spec"]["trainer"]["numNodes"] == 4


@pytest.mark.parametrize(("form", "field"), [("helm", "as"), ("pytorchjob", "roles[1]")])
def test_what_is_refused_prints_nothing(
    form: str, field: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profile = tmp_path / "two-roles.yaml"
    profile.write_text(TWO_ROLES)
    with pytest.raises(ProfileError) as error:
        print_run(str(profile), "kubernetes-example", (), form, as_json=False)
    assert error.value.field == field
    assert capsys.readouterr().out == ""
