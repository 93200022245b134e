"""The program archive."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from profiles.errors import Unavailable
from tasks import programs_archive as tasks_programs_archive
from tasks.programs_archive import programs_archive
from tests.support.harness.old_pythons import old_python
from tests.support.running.made_once import COMPILED


@pytest.fixture(autouse=True)
def made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each archive by compiling, which elsewhere is done once."""
    monkeypatch.setattr(tasks_programs_archive, "compiled", COMPILED)


def test_the_same_content_is_one_file_with_the_same_bytes(tmp_path: Path) -> None:
    one, again, other = (programs_archive(tmp_path / name) for name in ("a", "a", "b"))
    assert one == again
    assert one.read_bytes() == other.read_bytes()
    assert one.parent.name == other.parent.name


def test_bytes_do_not_depend_on_what_else_the_process_did(tmp_path: Path) -> None:
    code = "import sys, pathlib; from tasks.programs_archive import programs_archive as p; p(pathlib.Path(sys.argv[1]))"
    for number, before in enumerate(("", "import json, ast, profiles.run; ")):
        command = [sys.executable, "-c", before + code, str(tmp_path / str(number))]
        subprocess.run(command, check=True, env={"PYTHONHASHSEED": str(number), "PYTHONPATH": "."})
    first, second = sorted(tmp_path.rglob("programs.pyz"))
    assert first.read_bytes() == second.read_bytes()


def test_other_content_is_another_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "workflows"
    (package / "programs" / "stacks" / "python_start").mkdir(parents=True)
    changing = ("programs/main.py", "programs/stacks/python_start/sitecustomize.py")
    for name in ("__init__.py", "status.py", "wire.py", "programs/__init__.py", *changing):
        (package / name).write_text("A = 1\n")
    monkeypatch.setattr(tasks_programs_archive, "_PACKAGE", package)
    before = programs_archive(tmp_path)
    for number, name in enumerate(changing):
        (package / name).write_text(f"A = 22{number}\n")
        after = programs_archive(tmp_path)
        assert before != after
        assert before.exists()
        before = after


def test_every_module_is_there_as_source_and_compiled(tmp_path: Path) -> None:
    with zipfile.ZipFile(programs_archive(tmp_path)) as archive:
        names = set(archive.namelist())
        sources = {name for name in names if name.endswith(".py")}
        assert {"__main__.py", "workflows/__init__.py", "workflows/status.py", "workflows/wire.py"} <= sources
        assert {"workflows/programs/main.py", "workflows/programs/stacks/python_start/sitecustomize.py"} <= sources
        assert {f"{name}c" for name in sources} == names - sources
        assert archive.read("workflows/wire.pyc")[:4] == importlib.util.MAGIC_NUMBER


def test_nothing_but_the_programs_and_the_reports_is_inside(tmp_path: Path) -> None:
    with zipfile.ZipFile(programs_archive(tmp_path)) as archive:
        for name in archive.namelist():
            allowed = (
                "__main__.",
                "workflows/__init__.",
                "workflows/status.",
                "workflows/wire.",
                "workflows/programs/",
            )
            assert name.startswith(allowed), name


def start(archive: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", "-S", str(archive), *argv]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_it_starts_and_names_its_programs(tmp_path: Path) -> None:
    ended = start(programs_archive(tmp_path), "no-such-program")
    assert ended.returncode == 2
    assert "launch" in ended.stderr


def test_it_copies_itself_into_a_pod(tmp_path: Path) -> None:
    archive = programs_archive(tmp_path)
    assert start(archive, "copy", f"--to={tmp_path / 'pod'}").returncode == 0
    assert (tmp_path / "pod" / "programs.pyz").read_bytes() == archive.read_bytes()


def test_compiled_modules_are_taken_where_they_fit_and_the_source_elsewhere(tmp_path: Path) -> None:
    """Another Python's compiled modules are recognised and passed over: images bring their own Python."""
    archive = programs_archive(tmp_path)
    foreign = tmp_path / "foreign.pyz"
    with zipfile.ZipFile(archive) as source, zipfile.ZipFile(foreign, "w") as target:
        for name in source.namelist():
            content = source.read(name)
            target.writestr(name, b"\0\0\r\n" + content[4:] if name.endswith(".pyc") else content)
    assert start(foreign, "no-such-program").returncode == 2
    broken = tmp_path / "broken.pyz"
    with zipfile.ZipFile(archive) as source, zipfile.ZipFile(broken, "w") as target:
        for name in source.namelist():
            content = source.read(name)
            target.writestr(name, b"raise SystemExit(77)\n" if name.endswith(".py") else content)
    assert start(broken, "no-such-program").returncode == 2


OLD = "import sys; sys.version_info = (3, 6, 15); import runpy; runpy.run_path(sys.argv[1], run_name='__main__')"
SAYS = "programs: needs Python 3.9 or later, this image has 3.6 ("


def test_an_old_python_is_told_so_in_one_line(tmp_path: Path) -> None:
    archive = programs_archive(tmp_path)
    ended = subprocess.run(
        [sys.executable, "-I", "-S", "-c", OLD, str(archive)], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 126
    assert ended.stderr.startswith(SAYS)
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize("version", ["2.7", "3.6", "3.7", "3.8"])
def test_real_old_pythons_get_as_far_as_that_line(tmp_path: Path, version: str) -> None:
    """Where this machine has them; what they must understand is checked without them below."""
    python = old_python(version)
    if python is None:
        pytest.skip(f"this machine has no Python {version}")
    archive = programs_archive(tmp_path)
    ended = subprocess.run([python, str(archive), "launch"], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr.count("\n")) == (126, 1), ended.stderr
    assert f"this image has {version} (" in ended.stderr


def test_what_comes_before_the_line_has_nothing_new(tmp_path: Path) -> None:
    with zipfile.ZipFile(programs_archive(tmp_path)) as archive:
        source = archive.read("__main__.py").decode("ascii")
    tree = ast.parse(source, feature_version=(3, 4))
    kinds = {type(node) for node in ast.walk(tree)}
    assert not kinds & {ast.JoinedStr, ast.AnnAssign, ast.NamedExpr, ast.Await, ast.AsyncFunctionDef, ast.Starred}
    first, check, *_ = tree.body
    assert ast.unparse(first) == "import sys"
    assert isinstance(check, ast.If), "the check comes before anything else is imported"


def test_many_builders_at_once_leave_one_whole_file(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        paths = set(pool.map(lambda _: programs_archive(tmp_path), range(16)))
    (path,) = paths
    assert [file.name for file in path.parent.iterdir()] == ["programs.pyz"]
    assert zipfile.ZipFile(path).testzip() is None


def test_a_home_that_cannot_be_written_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "programs").write_text("a file where the folder should be")
    with pytest.raises(Unavailable, match="cannot be written"):
        programs_archive(tmp_path)
