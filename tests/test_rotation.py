"""Which rotating tests run: at a turn, for a change, all, none; and that the plug-in does and says so."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import starts_processes
from tests.rotation import AREAS, ROOT, TURNS, Area, Mode, Proof, areas_of, file_of, proof_of, selection, turn_of

FILES = st.sampled_from([f"tests/test_{name}.py" for name in ("calm", "links", "pairs", "ranks")])
NODE_IDS = st.frozensets(st.builds("{}::test_{}".format, FILES, st.integers(0, 99)), max_size=40)
PATHS = st.frozensets(
    st.sampled_from(["flows/testing/links.py", "flows/train.py", "docs/links.md", "tests/pair_tools.py"])
)
AREA = st.builds(
    Area,
    st.lists(st.sampled_from(["flows/*", "flows/testing/links.py", "tests/pair_*"]), min_size=1, max_size=2).map(tuple),
    st.lists(FILES, min_size=1, max_size=2).map(tuple),
)
AREAS_OF_TESTS = st.lists(AREA, max_size=3)
TURN = st.integers(0, TURNS - 1)


@given(NODE_IDS, st.integers(0, 10**6))
def test_over_eight_turns_in_a_row_each_test_comes_up_once(node_ids: frozenset[str], first: int) -> None:
    turns = [selection(node_ids, (first + run) % TURNS, (), (), Mode.TURN) for run in range(TURNS)]
    assert sorted(one for turn in turns for one in turn) == sorted(node_ids)


@given(NODE_IDS, TURN, PATHS, AREAS_OF_TESTS)
def test_what_is_asked_for_decides_before_turn_and_change(
    node_ids: frozenset[str], turn: int, changed: frozenset[str], areas: list[Area]
) -> None:
    assert selection(node_ids, turn, changed, areas, Mode.ALL) == node_ids
    assert selection(node_ids, turn, changed, areas, Mode.NONE) == frozenset()


@given(NODE_IDS, TURN, PATHS, AREAS_OF_TESTS)
def test_a_change_adds_all_tests_of_its_areas_and_no_others(
    node_ids: frozenset[str], turn: int, changed: frozenset[str], areas: list[Area]
) -> None:
    hit = [area for area in areas if any(fnmatchcase(path, glob) for path in changed for glob in area.paths)]
    expected = {one for one in node_ids if any(file_of(one) in area.tests for area in hit)}
    calm = selection(node_ids, turn, (), areas, Mode.TURN)
    assert selection(node_ids, turn, changed, areas, Mode.TURN) == calm | expected


@given(NODE_IDS, TURN)
def test_a_file_of_tests_that_was_changed_runs_whole(node_ids: frozenset[str], turn: int) -> None:
    for one in node_ids:
        chosen = selection(node_ids, turn, [file_of(one)], (), Mode.TURN)
        assert chosen >= {other for other in node_ids if file_of(other) == file_of(one)}


@given(NODE_IDS, TURN)
def test_a_file_that_is_named_runs_whole_whatever_was_asked_for(node_ids: frozenset[str], turn: int) -> None:
    for mode in Mode:
        proof = Proof(mode, turn, named=("tests/test_links.py",))
        chosen = proof.selected(node_ids, ())
        assert chosen >= {one for one in node_ids if file_of(one) == "tests/test_links.py"}
        assert {one for one in chosen if file_of(one) != "tests/test_links.py"} == {
            one for one in selection(node_ids, turn, (), (), mode) if file_of(one) != "tests/test_links.py"
        }


def test_the_turn_of_a_test_is_that_of_its_name_on_every_machine() -> None:
    assert [turn_of(f"tests/test_a.py::test_b[{number}]") for number in range(6)] == [0, 1, 5, 0, 6, 1]


def test_no_turn_is_left_empty_where_there_are_many() -> None:
    turns = [turn_of(f"tests/test_a.py::test_b[{number}]") for number in range(800)]
    assert min(turns.count(turn) for turn in range(TURNS)) > 60


def test_what_was_left_out_is_told_in_one_line() -> None:
    assert Proof(turn=2).lines(5) == ["left to other turns: 5 tests (turn 3 of 8; all of them: make proof)"]
    assert Proof(Mode.NONE).lines(5) == ["left out by PRIMUS_PROOF=none: 5 tests (all of them: make proof)"]
    assert Proof(doubt="a shallow clone").lines(5)[0] == "rotation: a shallow clone"
    assert Proof(doubt="a shallow clone").lines(0) == []


def test_areas_name_what_there_is() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    areas = areas_of(tomllib.loads(AREAS.read_text(encoding="utf-8")))
    assert [glob for area in areas for glob in area.paths if not any(fnmatchcase(one, glob) for one in listed)] == []
    assert {name for area in areas for name in area.tests} == rotating_files()


def rotating_files() -> set[str]:
    """Files in which a test or all tests have the marker."""
    found = (path for path in (ROOT / "tests").glob("**/test_*.py") if "mark.rotation" in path.read_text())
    return {str(path.relative_to(ROOT)) for path in found} - {"tests/test_rotation.py"}


class TestACheckout:
    """Repositories with so many commits."""

    def test_the_turn_is_the_number_of_commits(self, tmp_path: Path) -> None:
        for number in range(1, TURNS + 3):
            commit(tmp_path, f"flows/file-{number}.py")
            assert proof_of(tmp_path, {}).turn == number % TURNS

    def test_what_the_last_commit_and_the_working_tree_changed_counts(self, tmp_path: Path) -> None:
        for name in ("old.py", "last.py"):
            commit(tmp_path, name)
        (tmp_path / "old.py").write_text("changed")
        assert proof_of(tmp_path, {}).changed == ("last.py", "old.py")

    def test_a_base_may_be_given(self, tmp_path: Path) -> None:
        for name in ("a.py", "b.py", "ä c.py"):
            commit(tmp_path, name)
        assert proof_of(tmp_path, {"PRIMUS_PROOF_BASE": "HEAD~2"}).changed == ("b.py", "ä c.py")
        unknown = proof_of(tmp_path, {"PRIMUS_PROOF_BASE": "nowhere"})
        assert (unknown.turn, unknown.changed) == (3, ())
        assert unknown.doubt == "nowhere is not known here: nothing counts as changed"

    def test_a_shallow_clone_takes_its_turn_from_the_commit_and_says_so(self, tmp_path: Path) -> None:
        for name in ("a.py", "b.py"):
            commit(tmp_path / "whole", name)
        run("git", "clone", "--quiet", "--depth=1", f"file://{tmp_path}/whole", "shallow", folder=tmp_path)
        name = run("git", "rev-parse", "HEAD", folder=tmp_path / "whole").strip()
        found = proof_of(tmp_path / "shallow", {})
        assert (found.turn, found.changed) == (int(name, 16) % TURNS, ())
        assert "shallow" in found.doubt
        assert "HEAD~1 is not known" in found.doubt

    def test_without_git_only_the_rotation_is_left(self, tmp_path: Path) -> None:
        found = proof_of(tmp_path, {})
        assert (found.mode, found.turn, found.changed) == (Mode.TURN, 0, ())
        assert "no git history" in found.doubt

    def test_another_word_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="most"):
            proof_of(tmp_path, {"PRIMUS_PROOF": "most"})


MODULE = """
import pytest

@pytest.mark.rotation
@pytest.mark.parametrize("number", range(16))
def test_rotating(number):
    pass

def test_always():
    pass
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small project with this plug-in and seventeen tests, sixteen of which rotate, after one commit."""
    root = tmp_path_factory.mktemp("project")
    (root / "tests").mkdir()
    for name in ("rotation.py", "areas.toml"):
        shutil.copy(ROOT / "tests" / name, root / "tests" / name)
    words = 'addopts = "--import-mode=importlib --strict-markers"\npythonpath = ["."]\nmarkers = ["rotation: x"]\n'
    (root / "pyproject.toml").write_text(f"[tool.pytest.ini_options]\n{words}")
    hook = 'def pytest_configure(config):\n    config.pluginmanager.register(Rotation.of(config), "rotation")\n'
    (root / "tests" / "conftest.py").write_text(f"from tests.rotation import Rotation\n{hook}")
    (root / "tests" / "test_some.py").write_text(MODULE)
    commit(root, "anything.py")
    return root


TOLD = [turn_of(f"tests/test_some.py::test_rotating[{number}]") for number in range(16)].count(1)


@pytest.mark.parametrize("workers", [(), ("-p", "xdist", "-n", "2")], ids=["alone", "two-workers"])
def test_what_has_another_turn_is_left_out_and_counted(project: Path, workers: tuple[str, ...]) -> None:
    told = tell(project, *workers)
    assert f"{1 + TOLD} passed" in told
    left = [one for one in told.splitlines() if one.startswith("left ")]
    assert left == [f"left to other turns: {16 - TOLD} tests (turn 2 of 8; all of them: make proof)"]


def test_all_are_told_where_all_are_asked_for(project: Path) -> None:
    told = tell(project, PRIMUS_PROOF="all")
    assert "17 passed" in told
    assert "left " not in told


def test_whoever_names_the_file_gets_all_of_it(project: Path) -> None:
    assert "17 passed" in tell(project, "tests/test_some.py")


def test_what_was_not_asked_for_anyway_is_not_counted(project: Path) -> None:
    told = tell(project, "-k", "always or (rotating and 15)", PRIMUS_PROOF="none")
    assert "left out by PRIMUS_PROOF=none: 1 tests" in told


def test_an_unknown_mode_ends_the_run(project: Path) -> None:
    told = tell(project, PRIMUS_PROOF="most", code=4)
    assert "PRIMUS_PROOF: 'most' is not a valid Mode" in told


def tell(project: Path, *words: str, code: int = 0, **environment: str) -> str:
    """What pytest prints there."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PRIMUS_", "PYTEST_"))}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *words],
        cwd=project,
        env={**without_git(clean), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **environment},
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def without_git(environment: Mapping[str, str]) -> dict[str, str]:
    """Whoever calls us from a hook of git says which repository is meant."""
    return {name: value for name, value in environment.items() if not name.startswith("GIT_")}


def run(*words: str, folder: Path) -> str:
    """What a command prints."""
    environment = without_git(os.environ)
    return subprocess.run(words, cwd=folder, env=environment, check=True, capture_output=True, text=True).stdout


def commit(root: Path, name: str) -> None:
    """One more commit with a new file, in a repository that is made where there is none."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(name)
    if not (root / ".git").exists():
        run("git", "init", "--quiet", folder=root)
    run("git", "add", "--all", folder=root)
    who = ("-c", "user.name=somebody", "-c", "user.email=somebody@example.com", "-c", "commit.gpgsign=false")
    run("git", *who, "commit", "--quiet", "--message", name, folder=root)


@pytest.mark.parametrize(
    ("name", "starts"),
    [("programs_launch_scopes", True), ("embedded_keeper_fails", True), ("decisions_decide", False), ("corpus", False)],
)
def test_only_what_starts_processes_may_be_told_again(name: str, starts: bool) -> None:
    assert starts_processes(ROOT / "tests" / f"test_{name}.py") is starts
