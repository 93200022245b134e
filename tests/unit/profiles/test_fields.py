from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import BaseModel

from profiles.fields import annotation_at, expected, field_names, holds_text, is_text, words, written
from profiles.loading.document import FieldPath
from profiles.run import RunProfile
from profiles.values import amount, did_you_mean, nearest
from tests.support.cases.rows import rows
from tests.support.generators.profile_reference import BEGIN, END, models, reference

PAGE = Path(__file__).parents[3] / "docs" / "profiles.md"
ALL = [model for _, found in models() for model in found]


@pytest.mark.parametrize("model", ALL, ids=lambda model: model.__name__)
def test_every_model_and_field_has_a_description(model: type[BaseModel]) -> None:
    assert (model.__doc__ or "").strip().endswith(".")
    for name, info in model.model_fields.items():
        assert (info.description or "").strip().endswith("."), f"{model.__name__}.{name} says nothing below it"


def test_every_field_is_documented() -> None:
    text = PAGE.read_text()
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    fresh = f"{before}{BEGIN}\n\n{reference()}\n\n{END}{after}"
    if os.environ.get("PRIMUS_GOLDEN") == "1":
        PAGE.write_text(fresh)
    assert PAGE.read_text() == fresh, "run `make golden` and look at the difference"


def test_all_models_of_the_profiles_are_documented() -> None:
    from profiles.values import Value

    def below(model: type[BaseModel]) -> set[str]:
        names = {model.__name__} if model.__module__.startswith("profiles.") else set[str]()
        return names.union(*(below(child) for child in model.__subclasses__()))

    assert below(Value) - {"Value"} == {model.__name__ for model in ALL}


@rows("profiles/fields")
def test_a_path_leads_to_an_annotation_or_nowhere(path: FieldPath, known: bool) -> None:
    assert (annotation_at(RunProfile, path) is not None) == known


@rows("profiles/fields")
def test_an_annotation_is_told_in_words(path: FieldPath, text: bool, leaves: bool, what: str) -> None:
    annotation = annotation_at(RunProfile, path)
    assert (is_text(annotation), holds_text(annotation)) == (text, leaves)
    assert expected(annotation).startswith(what)


def test_the_words_of_closed_vocabularies() -> None:
    assert words(annotation_at(RunProfile, ("recovery", "mode"))) == ["observe", "ask", "act"]
    assert "repair" in words(annotation_at(RunProfile, ("recovery", "ask_before", 0)))
    assert words(annotation_at(RunProfile, ("steps",))) == []
    assert field_names(annotation_at(RunProfile, ("roles", 0, "resources"))) == (
        "cpu",
        "memory",
        "gpus",
        "nics",
        "shared_memory",
    )


@rows("profiles/fields")
def test_a_path_is_written_as_overrides_read_it(path: FieldPath, text: str) -> None:
    assert written(path) == text


@rows("profiles/fields")
def test_did_you_mean(word: str, known: list[str], guess: str) -> None:
    assert nearest(word, known) == guess
    assert (f'did you mean "{guess}"' in did_you_mean(word, known)) == bool(guess)


def test_a_long_list_of_known_words_is_cut() -> None:
    assert "… (6 more)" in did_you_mean("zzz", [f"word{index}" for index in range(30)])


@rows("profiles/fields")
def test_quantities_are_counted_as_kubernetes_does(quantity: str, value: float) -> None:
    assert float(amount(quantity)) == value


def test_reading_profiles_imports_no_server_and_no_client() -> None:
    program = (
        "import sys, profiles.loading.load; print([name for name in sys.modules if name.split('.')[0] in sys.argv[1:]])"
    )
    heavy = ["prefect", "hera", "kubernetes", "httpx", "sqlalchemy", "pandas", "numpy", "typer", "rich", "asyncio"]
    answer = subprocess.run([sys.executable, "-c", program, *heavy], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
