"""The shape of the house: sizes of files, functions and folders, names of classes, a line for each package, the tree.

What import-linter cannot say of who may import whom is said here too.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LAYERS = ("profiles", "workflows", "tasks", "flows", "deployments")
LONGEST_FILE = 500
"""Lines."""
LONGEST_FUNCTION = 40
FULLEST_FOLDER = 25
"""Modules."""
SHARED_NAMES = {"Options"}
"""Each program inside pods has its own, and is known from outside by it alone."""
ONLY_IN = {
    "prefect.client": ("tasks/prefect/", "tasks/prefect_clients.py"),
    "ansible_runner": ("tasks/ssh/",),
    "ansible": ("tasks/ssh/",),
}
"""Parts of third parties, and the packages that may import them. The rest stands in .importlinter."""
SHARED_WITH_PROGRAMS = {
    "checkpoints.inventory": "`primus checkpoints` looks as the gate does",
    "checkpoints.proofs": "where proofs lie in a run's folder",
    "checkpoints.surplus": "which checkpoints nobody needs and how they go: while a run lives, and after it",
    "coordinator.budgets": "limits of hangs, which flows compare with what they see themselves",
    "coordinator.saves": "what saving costs: the account and the coordinator advise by the same figures",
    "coordinator.scopes": "shapes of roles, which the coordinator's options carry",
    "coordinator.service": "the word by which a status says which right was lent, and how long our word holds",
    "coordinator.state": "limits that the coordinator's options carry",
    "checkpoints.kept_copies": "the word for no limit in the options of a gate",
    "fabric.report": "what members of a group and of a pair report",
    "launcher.lifecycle": "which ends of ranks are failures",
    "launcher.output": "how a rank's line is read back from its file",
    "launcher.termination": "the exit codes of a launcher",
    "progress.pace": "how rates come from times of reading: coordinator, account and screen say the same",
    "probes.call": "one call of a probe, which the options of `probe` carry",
    "probes.gpu_count": "the variable of fake GPUs",
    "runtime.kubernetes_api": "objects of any kind, asked for from a pod or from here",
    "serving.objects": "how objects of any kind are applied and go, also before there is an Argo that could",
    "serving.world": "what pods of proofs and of the first components tolerate",
    "runtime.files": "how many generations of a log there are",
    "runtime.http_client": "how a hosts file is read",
    "runtime.last_words": "fingerprints of failures",
    "runtime.processes": "how the process of Ansible takes along what it started",
    "runtime.proxies": "which hosts are never asked through a proxy",
    "runtime.report_token": "the names of variables that hold tokens, which no profile may set",
    "runtime.text": "what of others' words may reach a terminal or a page",
}
"""Modules of programs from which others take values or functions beside Options, and what for. What both sides tell
each other belongs into `workflows.wire`."""


@cache
def modules() -> dict[str, ast.Module]:
    """Every module of the product by its path below the root, parsed."""
    return {
        path.relative_to(ROOT).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
        for layer in LAYERS
        for path in sorted((ROOT / layer).rglob("*.py"))
    }


@pytest.fixture(autouse=True, scope="module")
def parsed_before() -> None:
    """Whichever test comes first does not pay for reading the whole house."""
    modules()


def packages() -> list[str]:
    """Folders with modules."""
    return sorted({path.rpartition("/")[0] for path in modules()})


def layer_of(path: str) -> str:
    """Programs inside pods are a layer of their own."""
    return "programs" if path.startswith("workflows/programs/") else path.partition("/")[0]


def imports() -> Iterator[tuple[str, str, str]]:
    """(path, module, name) of every import; the name is empty where a module is imported whole."""
    for path, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                yield from ((path, alias.name, "") for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                yield from ((path, node.module, alias.name) for alias in node.names)


def test_no_file_is_too_long() -> None:
    lengths = {path: len((ROOT / path).read_text(encoding="utf-8").splitlines()) for path in modules()}
    assert {path: lines for path, lines in lengths.items() if lines > LONGEST_FILE} == {}


def test_no_function_is_too_long() -> None:
    long = {
        f"{path}:{node.lineno} {node.name}": lines
        for path, tree in modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := (node.end_lineno or 0) - node.lineno + 1) > LONGEST_FUNCTION
    }
    assert long == {}


def test_no_folder_is_too_full() -> None:
    found: defaultdict[str, int] = defaultdict(int)
    for path in modules():
        folder, _, name = path.rpartition("/")
        found[folder] += name != "__init__.py"
    assert {folder: count for folder, count in found.items() if count > FULLEST_FOLDER} == {}


def test_no_public_class_has_the_name_of_another_one_of_its_layer() -> None:
    where: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for path, tree in modules().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and node.name not in SHARED_NAMES:
                where[layer_of(path), node.name].append(path)
    assert {f"{layer} {name}": paths for (layer, name), paths in where.items() if len(paths) > 1} == {}


def test_every_package_says_in_one_line_what_it_is() -> None:
    wrong: list[str] = []
    for folder in packages():
        tree = modules().get(f"{folder}/__init__.py")
        text = ast.get_docstring(tree, clean=False) if tree else None
        if not text or "\n" in text or not text.endswith("."):
            wrong.append(folder)
    assert wrong == []


def test_nothing_in_a_package_runs_when_it_is_imported() -> None:
    assert [path for path, tree in modules().items() if path.endswith("/__init__.py") and len(tree.body) != 1] == []


@pytest.mark.parametrize("module", ONLY_IN)
def test_parts_of_third_parties_are_imported_where_they_belong(module: str) -> None:
    users = {path for path, name, _ in imports() if name == module or name.startswith(f"{module}.")}
    assert {path for path in users if not path.startswith(ONLY_IN[module])} == set()


def test_programs_are_known_from_outside_by_their_options_and_the_wire() -> None:
    used: defaultdict[str, list[str]] = defaultdict(list)
    for path, module, name in imports():
        if layer_of(path) != "programs" and module.startswith("workflows.programs"):
            part = f"{module}.{name}".removeprefix("workflows.programs.")
            whole = f"workflows/programs/{part.replace('.', '/')}.py" in modules()
            used[part if whole else part.rpartition(".")[0]].append(path)
    with_options = {
        path.removeprefix("workflows/programs/").removesuffix(".py").replace("/", ".")
        for path, tree in modules().items()
        if layer_of(path) == "programs" and any(getattr(node, "name", "") == "Options" for node in tree.body)
    }
    mains = {"main", "health.main", "health.options"}
    assert {
        part: paths for part, paths in used.items() if part not in with_options | mains | {"parsers.text"}
    }.keys() == (SHARED_WITH_PROGRAMS.keys())


def test_what_is_imported_from_ourselves_is_there() -> None:
    missing = {
        (path, module)
        for path, module, _ in imports()
        if module.partition(".")[0] in LAYERS
        and not (ROOT / f"{module.replace('.', '/')}.py").is_file()
        and not (ROOT / module.replace(".", "/") / "__init__.py").is_file()
    }
    assert missing == set()


def test_the_tree_in_the_readme_says_of_a_package_what_the_package_says() -> None:
    drawn: dict[str, str] = {}
    path: list[str] = []
    for line in (ROOT / "README.md").read_text(encoding="utf-8").split("## The tree")[1].split("```")[1].splitlines():
        if line.strip():
            name, _, text = line.strip().partition(" ")
            path = [*path[: (len(line) - len(line.lstrip())) // 2], name.rstrip("/")]
            drawn["/".join(path)] = text.strip()
    said = {folder: ast.get_docstring(modules()[f"{folder}/__init__.py"]) for folder in packages()}
    assert {folder: text for folder, text in drawn.items() if folder in said} == said


def test_the_checkout_holds_no_other_folders() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    top = {path.partition("/")[0] for path in listed if "/" in path}
    assert top == {*LAYERS, "tests", "docs", ".ci"}


STANDS_IN_FOR = {"decisions": "flows/decisions", "programs": "workflows/programs", "embedded": "tasks/embedded"}
"""Folders of `tests/unit` that are called after a package below a layer."""
LONG_KNOWN = {"tests/bed", "tests/benchmarks"}
"""Folders with more modules than others may have."""

WHICH_TESTS_RUN = {"conftest.py", "rotation.py", "proof.py", "broken_before.py", "phases.py"}
"""What stands beside the folders: it decides which tests run, how often, and how long they may take."""


def folders_of_tests() -> dict[str, list[str]]:
    """The modules in each folder below `tests/`."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted((ROOT / "tests").rglob("*.py")):
        found[path.parent.relative_to(ROOT).as_posix()].append(path.name)
    return found


def test_no_test_stands_outside_of_a_folder() -> None:
    assert set(folders_of_tests()["tests"]) <= WHICH_TESTS_RUN
    assert set(folders_of_tests()) & {"tests/unit", "tests/stories", "tests/support"} == set()


def test_no_folder_of_tests_is_too_full() -> None:
    sizes = {folder: len(names) for folder, names in folders_of_tests().items() if folder not in LONG_KNOWN}
    assert {folder: size for folder, size in sizes.items() if size > FULLEST_FOLDER} == {}


def test_helpers_and_tests_do_not_mix() -> None:
    mixed = ("tests/unit/", "tests/stories/", "tests/hosts", "tests/house", "tests/simulated")
    helpers = [
        f"{folder}/{name}"
        for folder, names in folders_of_tests().items()
        for name in names
        if (folder.startswith(mixed) and not name.startswith("test_"))
        or (folder.startswith("tests/support") and name.startswith("test_"))
    ]
    assert helpers == []


def test_unit_tests_lie_as_the_packages_do() -> None:
    lost: list[str] = []
    for folder in folders_of_tests():
        if folder.startswith("tests/unit/"):
            first, _, rest = folder.removeprefix("tests/unit/").partition("/")
            package = f"{STANDS_IN_FOR.get(first, first)}/{rest}".rstrip("/")
            if package not in packages():
                lost.append(folder)
    assert lost == []


def files_of(folder: str) -> dict[str, str]:
    """Text of each file of tests below a folder of `tests/`."""
    found = (ROOT / "tests" / folder).rglob("test_*.py")
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in found}


def test_every_file_of_stories_holds_a_story() -> None:
    assert [path for path, text in files_of("stories").items() if "mark.story" not in text] == []


def test_no_file_of_unit_tests_is_all_stories() -> None:
    whole = re.compile(r"^pytestmark = .*mark\.story", re.MULTILINE)
    assert [path for path, text in files_of("unit").items() if whole.search(text)] == []
