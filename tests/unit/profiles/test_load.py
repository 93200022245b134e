from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from profiles.errors import ProfileError
from profiles.loading import load
from profiles.values import Value
from tests.support.cases.rows import rows

SMALL = "name: small\nroles:\n  - name: trainer\n    image: i\n    command: [a, b]\n"


def _file(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


def _refusal(path: str) -> ProfileError:
    with pytest.raises(ProfileError) as caught:
        load.load_run(path)
    return caught.value


def test_a_profile_is_found_by_name_and_by_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _file(tmp_path, "mine.yaml", SMALL)
    monkeypatch.chdir(tmp_path)
    assert load.load_run("demo").name == "demo"
    for way in (path, "mine.yaml", "./mine.yaml"):
        assert load.load_run(way).name == "small"


def test_a_folder_of_ones_own_comes_before_the_shipped_one(tmp_path: Path) -> None:
    _file(tmp_path, "runs/demo.yaml", SMALL)
    _file(tmp_path, "recovery/mine.yaml", "name: mine\nmax_attempts: 7\n")
    _file(tmp_path, "runs/other.yaml", "extends: demo\nname: other\nrecovery: mine\n")
    assert load.load_run("demo", search=[tmp_path]).name == "small"
    assert load.load_run("other", search=[tmp_path]).recovery.max_attempts == 7
    names = {(item.kind, item.name): item.path for item in load.list_profiles([tmp_path])}
    assert names["run", "demo"].is_relative_to(tmp_path)
    assert ("run", "other") in names
    assert ("cluster", "local") in names


@pytest.mark.parametrize(
    ("loader", "name", "words"),
    [
        (load.load_run, "dmeo", 'did you mean "demo"'),
        (load.load_run, "", "no run profile is called"),
        (load.load_cluster, "locl", 'did you mean "local"'),
        (load.load_hardware, "MI300", 'did you mean "mi300x"'),
        (load.load_recovery, "default.", 'did you mean "default"'),
        (load.load_run, "./", "no regular file"),
        (load.load_run, "/", "no regular file"),
        (load.load_run, "/dev/zero", "no regular file"),
        (load.load_run, "./missing.yaml", "cannot read"),
        (load.load_run, "./nul\0.yaml", "cannot read"),
        (load.load_run, "./" + "x" * 5000 + ".yaml", "cannot read"),
    ],
)
def test_a_profile_that_is_not_there_is_refused(loader: Any, name: str, words: str) -> None:
    with pytest.raises(ProfileError) as caught:
        loader(name)
    assert caught.value.field == "profile"
    assert words in caught.value.reason


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    assert "no regular file" in _refusal(str(tmp_path / "pipe.yaml")).reason


@rows("profiles/load")
def test_a_wrong_field_is_named_with_its_line(tmp_path: Path, change: str, field: str, words: str) -> None:
    path = _file(tmp_path, "mine.yaml", SMALL + f"    {change}\n")
    refusal = _refusal(path)
    assert refusal.field == field
    assert words in refusal.reason
    assert refusal.source.startswith(path)
    assert "is missing" in words or ", line 6" in refusal.source


@rows("profiles/load")
def test_a_wrong_profile_is_refused(
    tmp_path: Path, field: str, words: str, adds: str = "", instead_of: str = "", stands: str = "", whole: str = ""
) -> None:
    """The small profile with something more, with something else, or another text."""
    text = whole or SMALL.replace(instead_of or "no such words", stands) + (adds and f"{adds}\n")
    refusal = _refusal(_file(tmp_path, "mine.yaml", text))
    assert refusal.field == field
    assert words in refusal.reason


def test_the_misspelling_is_said_before_what_is_missing_for_it(tmp_path: Path) -> None:
    refusal = _refusal(_file(tmp_path, "mine.yaml", SMALL.replace("image: i", "imge: i")))
    assert refusal.field == "roles[0].imge"
    assert "wrong too: roles[0].image" in refusal.reason


def test_extends_merges_maps_and_roles_by_name_and_replaces_lists(tmp_path: Path) -> None:
    path = _file(
        tmp_path,
        "child.yaml",
        "extends: demo\nname: child\nroles:\n  - name: trainer\n    replicas: 3\n    command: [python3, other.py]\n"
        "    environment: {NEW: '1', OMP_NUM_THREADS: null}\n    resources: {cpu: null}\n    decides: true\n"
        "  - name: watcher\n    image: i\n    command: [w]\ncheckpoint: {keep: 5}\n",
    )
    child, demo = load.load_run(path), load.load_run("demo")
    trainer, before = child.roles[0], demo.roles[0]
    assert [role.name for role in child.roles] == ["trainer", "watcher"]
    assert (trainer.replicas, trainer.command, trainer.image) == (3, ("python3", "other.py"), before.image)
    assert trainer.environment == {"NEW": "1", "OPENBLAS_NUM_THREADS": "1"}
    assert (trainer.resources.cpu, trainer.resources.memory) == (None, before.resources.memory)
    assert child.checkpoint == demo.checkpoint.model_copy(update={"keep": 5})
    assert child.recovery == demo.recovery


def test_extends_follows_paths_from_the_file_that_names_them(tmp_path: Path) -> None:
    _file(tmp_path, "base.yaml", SMALL + "steps: 5\nverified: true\nby_hardware: {cpu: {verified: true}}\n")
    path = _file(tmp_path, "deep/child.yaml", "extends: ../base.yaml\nname: child\n")
    child = load.load_run(path)
    assert (child.name, child.steps) == ("child", 5)
    assert not child.verified, "what was run for real was the parent"
    assert child.by_hardware["cpu"].verified is None


def test_extends_in_a_circle_is_refused(tmp_path: Path) -> None:
    _file(tmp_path, "a.yaml", "extends: b.yaml\n")
    _file(tmp_path, "b.yaml", "extends: a.yaml\n")
    refusal = _refusal(str(tmp_path / "a.yaml"))
    assert refusal.field == "extends"
    assert "a.yaml -> b.yaml -> a.yaml" in refusal.reason


def test_a_named_recovery_replaces_the_inherited_one_and_an_inline_one_changes_it(tmp_path: Path) -> None:
    parent = "extends: demo\nname: parent\nrecovery: patient\n"
    _file(tmp_path, "parent.yaml", parent)
    named = load.load_run(_file(tmp_path, "named.yaml", "extends: parent.yaml\nrecovery: ask-first\n"))
    inline = load.load_run(_file(tmp_path, "inline.yaml", "extends: parent.yaml\nrecovery: {max_attempts: 9}\n"))
    nested = load.load_run(
        _file(tmp_path, "nested.yaml", "extends: parent.yaml\nrecovery: {extends: laptop, max_attempts: 9}\n")
    )
    assert named.recovery == load.load_recovery("ask-first")
    assert inline.recovery == load.load_recovery("patient").model_copy(update={"max_attempts": 9})
    assert nested.recovery == load.load_recovery("laptop").model_copy(update={"max_attempts": 9})


def test_an_inline_profile_extends_by_name_only() -> None:
    run = load.run_from_mapping({"extends": "demo", "name": "mine", "steps": 9}, overrides=["seed=3"])
    assert (run.name, run.steps, run.seed) == ("mine", 9, 3)
    with pytest.raises(ProfileError) as caught:
        load.run_from_mapping({"extends": "/etc/passwd.yaml"})
    assert caught.value.field == "extends"
    assert "opens no files" in caught.value.reason


@pytest.mark.parametrize("data", [{"name": float("nan")}, {"name": {1, 2}}, {"name": b"x"}, {}])
def test_an_inline_profile_of_strange_values_is_refused(data: dict[str, Any]) -> None:
    with pytest.raises(ProfileError):
        load.run_from_mapping(data)


def test_every_shipped_profile_is_listed_and_is_called_as_its_file() -> None:
    listed = load.list_profiles()
    loaders: dict[str, Any] = {
        "run": load.load_run,
        "cluster": load.load_cluster,
        "hardware": load.load_hardware,
        "recovery": load.load_recovery,
        "workspace": load.load_workspace,
        "suite": load.load_suite,
        "release": load.load_release,
        "component": load.load_component,
    }
    assert {item.kind for item in listed} == set(loaders)
    for item in listed:
        value: Value = loaders[item.kind](item.name)
        assert getattr(value, "name") == item.path.stem  # noqa: B009 - every kind has one, their root does not
