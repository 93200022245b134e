"""Tables of tests: a row is typed, what is wrong with one is told with its place, and no table lies about unread."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from profiles.vocabulary import VerdictWord as V
from tests.support.cases.rows import FOLDER, rows, tables, values
from workflows.model.cluster import Pod
from workflows.model.manifest import Condition

TESTS = Path(__file__).resolve().parents[1]


def a_test() -> Callable[..., None]:
    """What tables below are made for, each time anew."""

    def test_sums(figures: tuple[int, ...], verdict: V = V.PASS, pod: Pod | None = None) -> None: ...

    return test_sums


def made(folder: Path, text: str) -> dict[str | None, dict[str, Any]]:
    """The arguments of each test that a table makes, by its name."""
    (folder / "area").mkdir()
    (folder / "area" / "numbers.yaml").write_text(f"sums:\n{text}\n", encoding="utf-8")
    marked: Any = rows("area/numbers", folder)(a_test())
    (mark,) = marked.pytestmark
    return {one.id: dict(zip(mark.args[0], one.values, strict=True)) for one in mark.args[1]}


def test_a_value_is_what_the_argument_wants(tmp_path: Path) -> None:
    pod = "{name: p, conditions: [{type: Ready, status: 'True'}]}"
    text = f"- {{case: all is said, figures: [2, 2], verdict: fail, pod: {pod}}}\n"
    assert made(tmp_path, text + "- {case: the rest is as ever, figures: []}") == {
        "all is said": {
            "figures": (2, 2),
            "verdict": V.FAIL,
            "pod": Pod("p", conditions=(Condition("Ready", "True"),)),
        },
        "the rest is as ever": {"figures": (), "verdict": V.PASS, "pod": None},
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("- {figures: [1]}\n- {figures: [1], colour: red}", "area/numbers.yaml:3: .*colour"),
        ("- {figures: [1]}\n- {verdict: pass}", "area/numbers.yaml:3: .*figures"),
        ("- {figures: [one]}", "area/numbers.yaml:2: .*figures"),
        ("- {figures: [1], verdict: good}", "area/numbers.yaml:2: .*verdict"),
        ("- {figures: [1], pod: {name: p, colour: red}}", "area/numbers.yaml:2: .*colour"),
        ("- {case: a, figures: [1]}\n- {case: a, figures: [2]}", "area/numbers.yaml:2: 'a' names another row too"),
        ("- {figures: [1], figures: [2]}", "area/numbers.yaml:2: 'figures' stands there twice"),
        ("- figures", "area/numbers.yaml:2: no mapping"),
        ("  figures: []", "area/numbers.yaml:2: no list of rows"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ValueError, match=f"(?s){words}"):
        made(tmp_path, text)


def test_a_table_for_several_tests_is_read_as_values(tmp_path: Path) -> None:
    (tmp_path / "pods.yaml").write_text("good:\n- {case: one, name: p}\nbad:\n- {case: one, colour: red}\n")
    assert values("pods", "good", Pod, tmp_path) == {"one": Pod("p")}
    with pytest.raises(ValueError, match=r"pods.yaml:4: (?s:.*)colour"):
        values("pods", "bad", Pod, tmp_path)


def _topics() -> list[str]:
    return sorted(file.relative_to(FOLDER).with_suffix("").as_posix() for file in FOLDER.rglob("*.yaml"))


@pytest.mark.parametrize("topic", _topics())
def test_every_table_is_read(topic: str) -> None:
    texts = [text for path in TESTS.rglob("*.py") if f'"{topic}"' in (text := path.read_text(encoding="utf-8"))]
    assert texts, f"nobody reads {topic}"
    unread = [key for key in tables(topic) if not any(f"test_{key}(" in text or f'"{key}"' in text for text in texts)]
    assert not unread
