"""What names say: temporary ones by whole words, the step by the word that announces it."""

from __future__ import annotations

from tests.support.cases.rows import rows
from workflows.programs.checkpoints import names


@rows("programs/checkpoints/names")
def test_a_temporary_name_is_no_checkpoint(name: str) -> None:
    assert names.is_temporary(name)
    assert names.is_apart(f"run/{name}/step-5")


@rows("programs/checkpoints/names")
def test_a_name_that_only_contains_such_letters_is_not_temporary(name: str) -> None:
    assert not names.is_temporary(name)


@rows("programs/checkpoints/names")
def test_the_number_that_its_word_announces_is_the_step(name: str, step: int) -> None:
    assert names.step_of(name) == step
    assert not names.is_written_again(name)


@rows("programs/checkpoints/names")
def test_a_number_that_may_be_anything_is_no_step(name: str, again: bool) -> None:
    assert names.step_of(name) is None
    assert names.is_written_again(name) is again
