"""Which rotating tests run: at a turn, for a change, all, none; and that the plug-in does and says so."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Collection, Mapping, Sequence
from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.broken_before import FAILED_ITSELF, forgiven
from tests.conftest import starts_processes
from tests.proof import proof_of
from tests.rotation import (
    CORE,
    QUARANTINE,
    ROOT,
    TURNS,
    UNKNOWN_SECONDS,
    Area,
    Mode,
    Proof,
    Tables,
    core_of,
    file_of,
    files_of_changes,
    function_of,
    is_core,
    seconds_of,
    selection,
    turn_of,
)

FILES = st.sampled_from([f"tests/test_{name}.py" for name in ("calm", "links", "pairs", "ranks")])
NODE_IDS = st.frozensets(st.builds("{}::test_{}".format, FILES, st.integers(0, 99)), max_size=40)
PATHS = st.frozensets(
    st.sampled_from(["flows/testing/links.py", "flows/train.py", "docs/links.md", "tests/support/fakes/pair_tools.py"])
)
AREA = st.builds(
    Area,
    st.lists(
        st.sampled_from(["flows/*", "flows/testing/links.py", "tests/support/fakes/pair_*"]), min_size=1, max_size=2
    ).map(tuple),
    st.lists(FILES, min_size=1, max_size=2).map(tuple),
)
AREAS_OF_TESTS = st.lists(AREA, max_size=3)
TURN = st.integers(0, TURNS - 1)


ENOUGH = 1e9


def one_second(node_id: str) -> float:
    del node_id
    return 1.0


def chosen(
    node_ids: frozenset[str],
    turn: int,
    changed: Collection[str] = (),
    areas: Sequence[Area] = (),
    budget: float = ENOUGH,
) -> frozenset[str]:
    return selection(node_ids, turn, changed, areas, one_second, budget).runs


@given(NODE_IDS, st.integers(0, 10**6))
def test_over_eight_turns_in_a_row_each_test_comes_up_once(node_ids: frozenset[str], first: int) -> None:
    turns = [chosen(node_ids, (first + run) % TURNS) for run in range(TURNS)]
    assert sorted(one for turn in turns for one in turn) == sorted(node_ids)


@given(NODE_IDS, TURN, PATHS, AREAS_OF_TESTS)
def test_a_change_adds_all_tests_of_its_areas_and_no_others(
    node_ids: frozenset[str], turn: int, changed: frozenset[str], areas: list[Area]
) -> None:
    hit = [area for area in areas if any(fnmatchcase(path, glob) for path in changed for glob in area.paths)]
    expected = {one for one in node_ids if any(file_of(one) in area.tests for area in hit)}
    assert chosen(node_ids, turn, changed, areas) == chosen(node_ids, turn) | expected


@given(NODE_IDS, TURN)
def test_a_file_of_tests_that_was_changed_runs_whole(node_ids: frozenset[str], turn: int) -> None:
    for one in node_ids:
        assert chosen(node_ids, turn, [file_of(one)]) >= {it for it in node_ids if file_of(it) == file_of(one)}


@given(NODE_IDS, TURN, PATHS, AREAS_OF_TESTS, st.integers(0, 20))
def test_beyond_the_budget_tests_are_left_and_named(
    node_ids: frozenset[str], turn: int, changed: frozenset[str], areas: list[Area], budget: int
) -> None:
    wanted = chosen(node_ids, turn, changed, areas)
    found = selection(node_ids, turn, changed, areas, one_second, budget)
    assert len(found.runs) == min(budget, len(wanted))
    assert sorted([*found.runs, *found.late]) == sorted(wanted)
    whole = files_of_changes(changed, areas)
    if any(file_of(one) not in whole for one in found.runs):
        assert all(file_of(one) not in whole for one in found.late), "what changes concern comes first"


@given(NODE_IDS, st.integers(1, 5))
def test_over_eight_runs_each_test_of_a_changed_area_comes_first_once(node_ids: frozenset[str], budget: int) -> None:
    changed = {file_of(one) for one in node_ids}
    for turn in range(TURNS):
        runs = chosen(node_ids, turn, changed, budget=budget)
        in_turn = {one for one in node_ids if turn_of(one) == turn}
        assert runs >= in_turn or runs <= in_turn


@given(NODE_IDS, TURN)
def test_the_core_and_what_is_named_run_whatever_was_asked_for(node_ids: frozenset[str], number: int) -> None:
    core = core_of({"a": {"tests/test_calm.py": ["*"], "tests/test_ranks.py": ["test_7", "test_8"]}})
    always = {one for one in node_ids if file_of(one) in {"tests/test_calm.py", "tests/test_links.py"}}
    always |= node_ids & {"tests/test_ranks.py::test_7", "tests/test_ranks.py::test_8"}
    tables = Tables(core=core, budgets={"story": 0.0})
    for mode in (Mode.CORE, Mode.TURN):
        proof = Proof(mode, number, named=("tests/test_links.py",))
        assert proof.selected(dict.fromkeys(node_ids, "story"), tables).runs == always
    assert Proof(Mode.ALL).selected(dict.fromkeys(node_ids, "story"), tables).runs == node_ids


def test_what_needs_all_others_runs_with_all_of_them_only() -> None:
    tables = Tables(budgets={"bed": ENOUGH})
    assert Proof(number=turn_of("a::b")).selected({"a::b": "whole"}, tables).runs == frozenset()
    assert Proof(number=turn_of("a::b")).selected({"a::b": "bed"}, tables).runs == {"a::b"}
    assert Proof(Mode.ALL).selected({"a::b": "whole"}, tables).runs == {"a::b"}


def test_a_name_of_the_core_is_a_function_a_case_or_a_file() -> None:
    core = core_of({"x": {"tests/test_a.py": ["test_b", "test_c[1]"], "tests/test_d.py": ["*"]}})
    asked = [
        "a.py::test_b",
        "a.py::test_b[2]",
        "a.py::test_c[1]",
        "a.py::test_c[2]",
        "d.py::test_e[x[1]]",
        "a.py::test_bb",
    ]
    assert [is_core(f"tests/test_{one}", core) for one in asked] == [True, True, True, False, True, False]


def test_seconds_are_those_of_the_function() -> None:
    tables = Tables(seconds=seconds_of("# what each takes\ntests/test_a.py::test_b\t12.5\ntests/test_c.py\t3\n"))
    assert tables.takes("tests/test_c.py::test_d") == 3.0
    assert tables.takes("tests/test_a.py::test_b[1]") == 12.5
    assert tables.takes("tests/test_a.py::test_new") == UNKNOWN_SECONDS


def test_the_turn_of_a_test_is_that_of_its_name_on_every_machine() -> None:
    assert [turn_of(f"tests/test_a.py::test_b[{number}]") for number in range(6)] == [0, 1, 5, 0, 6, 1]


def test_no_turn_is_left_empty_where_there_are_many() -> None:
    turns = [turn_of(f"tests/test_a.py::test_b[{number}]") for number in range(800)]
    assert min(turns.count(turn) for turn in range(TURNS)) > 60


def test_what_was_left_out_is_told() -> None:
    assert Proof(number=10).lines(5) == ["left to other turns: 5 tests (turn 3 of 8; all of them: make proof)"]
    late = ["tests/a.py::b", "tests/a.py::c"]
    assert Proof(number=10).lines(3, late) == [
        "NOT PROVEN in this run, beyond tests/budget.toml: 2 tests that are in turn or concerned by changes",
        "    2 of tests/a.py",
        "left to other turns: 1 tests (turn 3 of 8; all of them: make proof)",
    ]
    core = "the core; left out: 5 tests (PRIMUS_PROOF=turn: a part of them; make proof: all)"
    assert Proof(Mode.CORE).lines(5) == [core]
    assert Proof(doubt="a shallow clone").lines(5)[0] == "rotation: a shallow clone"
    assert Proof(doubt="a shallow clone").lines(0) == []


def test_areas_name_what_there_is_and_all_that_rotates() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    areas = Tables.read().areas
    assert [glob for area in areas for glob in area.paths if not any(fnmatchcase(one, glob) for one in listed)] == []
    named = {name for area in areas for name in area.tests}
    assert named - rotating_files() == set(), "nothing in them rotates"
    assert rotating_files() - named - ALWAYS == set(), "no area names them"


ALWAYS = {
    f"tests/bed/test_{name}.py"
    for name in ("rights", "launchers", "seam_contract", "conformance", "argo_validation", "zz_rights_used")
} | {"tests/hosts/test_server_pages.py"}
"""All of it is core, or runs only with everything."""


def rotating_files() -> set[str]:
    """Files with a test that rotates."""
    marked = ("mark.rotation", "mark.story", "mark.alone")
    found = {path for path in (ROOT / "tests").glob("**/test_*.py") if any(word in path.read_text() for word in marked)}
    found |= {path for kind in ("bed", "lab") for path in (ROOT / "tests" / kind).glob("**/test_*.py")}
    return {str(path.relative_to(ROOT)) for path in found} - {
        "tests/house/test_rotation.py",
        "tests/house/test_house.py",
    }


def test_the_core_names_what_there_is() -> None:
    for one in Tables.read().core:
        file, _, name = one.partition("::")
        text = (ROOT / file).read_text()
        assert f"def {function_of(name)}(" in text or f"\n{function_of(name)} = " in text or not name, one


def test_nobody_is_in_quarantine_beyond_its_day() -> None:
    document = tomllib.loads(QUARANTINE.read_text(encoding="utf-8"))
    core = core_of(tomllib.loads(CORE.read_text(encoding="utf-8")))
    assert [name for name in document if not is_core(name, core)] == [], "only tests of the core are set aside"
    assert [name for name, row in document.items() if row["until"] <= date.today() or not row["why"]] == []  # noqa: DTZ011


class TestBrokenBefore:
    """Which failures do not hold a run."""

    def test_what_fails_at_the_commit_before_too_is_forgiven(self) -> None:
        assert forgiven(["a::b", "a::c"], (), lambda _: True) == {"a::b", "a::c"}

    def test_one_that_this_change_broke_holds_the_run(self) -> None:
        assert forgiven(["a::b", "a::c"], (), lambda one: one == "a::b") == frozenset()

    def test_nothing_of_the_core_is_forgiven_and_nothing_is_told_again_for_it(self) -> None:
        asked: list[str] = []
        assert forgiven(["a::b", "a::c"], ["a::c"], lambda one: not asked.append(one)) == frozenset()
        assert asked == []

    @pytest.mark.parametrize(
        ("last_line", "counts"),
        [
            ("1 failed in 2.11s", True),
            ("1 error in 2.11s", False),
            ("1 failed, 1 error in 2.11s", False),
            ("1 passed in 2.11s", False),
            ("no tests ran in 0.10s", False),
        ],
    )
    def test_only_a_failure_of_the_test_itself_tells_that_it_was_broken(self, last_line: str, counts: bool) -> None:
        assert (FAILED_ITSELF.search(f"F  [100%]\n{last_line}\n") is not None) is counts


class TestACheckout:
    """Repositories with so many commits."""

    def test_the_turn_is_the_number_of_commits(self, tmp_path: Path) -> None:
        for number in range(1, TURNS + 3):
            commit(tmp_path, f"flows/file-{number}.py")
            assert proof_of(tmp_path, {}).number == number

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
        assert (unknown.number, unknown.changed) == (3, ())
        assert unknown.doubt == "nowhere is not known here: nothing counts as changed"

    def test_a_shallow_clone_takes_its_turn_from_the_commit_and_says_so(self, tmp_path: Path) -> None:
        for name in ("a.py", "b.py"):
            commit(tmp_path / "whole", name)
        run("git", "clone", "--quiet", "--depth=1", f"file://{tmp_path}/whole", "shallow", folder=tmp_path)
        name = run("git", "rev-parse", "HEAD", folder=tmp_path / "whole").strip()
        found = proof_of(tmp_path / "shallow", {})
        assert (found.number, found.changed) == (int(name, 16) % 2**16, ())
        assert "shallow" in found.doubt
        assert "HEAD~1 is not known" in found.doubt

    def test_without_git_only_the_rotation_is_left(self, tmp_path: Path) -> None:
        found = proof_of(tmp_path, {})
        assert (found.mode, found.number, found.changed) == (Mode.TURN, 0, ())
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
    for name in ("rotation.py", "proof.py", "broken_before.py"):
        shutil.copy(ROOT / "tests" / name, root / "tests" / name)
    tables = {
        "areas.toml": "",
        "core.toml": '[x]\n"tests/test_some.py" = ["test_rotating[3]"]\n',
        "quarantine.toml": "",
        "seconds.tsv": "tests/test_some.py::test_rotating\t1.0\n",
        "budget.toml": "[rotation_seconds]\nunit = 100\n",
        "conftest.py": CONFTEST,
        "test_some.py": MODULE,
    }
    for name, text in tables.items():
        (root / "tests" / name).write_text(text)
    words = 'addopts = "--import-mode=importlib --strict-markers"\npythonpath = ["."]\nmarkers = ["rotation: x"]\n'
    (root / "pyproject.toml").write_text(f"[tool.pytest.ini_options]\n{words}")
    commit(root, "anything.py")
    commit(root, "last.py")
    return root


CONFTEST = """
from tests.broken_before import BrokenBefore
from tests.proof import Rotation
from tests.rotation import Tables

def pytest_configure(config):
    rotation = Rotation.of(config)
    config.pluginmanager.register(rotation, "rotation")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(BrokenBefore(rotation, Tables.read()), "broken-before")
"""
IN_TURN = {number for number in range(16) if turn_of(f"tests/test_some.py::test_rotating[{number}]") == 2}
TOLD = len(IN_TURN | {3})


@pytest.mark.parametrize("workers", [(), ("-p", "xdist", "-n", "2")], ids=["alone", "two-workers"])
def test_what_has_another_turn_is_left_out_and_counted(project: Path, workers: tuple[str, ...]) -> None:
    told = tell(project, *workers)
    assert f"{1 + TOLD} passed" in told
    left = [one for one in told.splitlines() if one.startswith("left ")]
    assert left == [f"left to other turns: {16 - TOLD} tests (turn 3 of 8; all of them: make proof)"]


def test_the_core_alone_runs_where_it_is_asked_for(project: Path) -> None:
    told = tell(project, PRIMUS_PROOF="core")
    assert "2 passed" in told
    assert "the core; left out: 15 tests" in told


def test_what_fails_in_turn_holds_the_run_unless_it_failed_before(project: Path, tmp_path: Path) -> None:
    root = shutil.copytree(project, tmp_path / "broken")
    broken = next(one for one in range(16) if one != 3 and turn_of(f"tests/test_some.py::test_rotating[{one}]") == 4)
    (root / "tests" / "test_some.py").write_text(MODULE.replace("    pass", f"    assert number != {broken}", 1))
    commit(root, "third.py")
    assert "BROKEN BEFORE" not in tell(root, PRIMUS_PROOF="turn", code=1)
    commit(root, "fourth.py")
    told = tell(root, PRIMUS_PROOF="turn")
    assert "BROKEN BEFORE" in told
    assert f"tests/test_some.py::test_rotating[{broken}]" in told.partition("BROKEN BEFORE")[2]


def test_all_are_told_where_all_are_asked_for(project: Path) -> None:
    told = tell(project, PRIMUS_PROOF="all")
    assert "17 passed" in told
    assert "left " not in told


def test_whoever_names_the_file_gets_all_of_it(project: Path) -> None:
    assert "17 passed" in tell(project, "tests/test_some.py")


def test_what_was_not_asked_for_anyway_is_not_counted(project: Path) -> None:
    told = tell(project, "-k", "always or (rotating and 15)", PRIMUS_PROOF="core")
    assert "the core; left out: 1 tests" in told


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
    [
        ("unit/programs/launcher/test_scopes", True),
        ("unit/embedded/test_keeper_fails", True),
        ("unit/decisions/recovery/test_decide", False),
        ("corpus/test_corpus", False),
    ],
)
def test_only_what_starts_processes_may_be_told_again(name: str, starts: bool) -> None:
    assert starts_processes(ROOT / "tests" / f"{name}.py") is starts
