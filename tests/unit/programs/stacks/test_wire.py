"""Stacks from launcher to coordinator: what is sent comes back, and what is no answer is refused by name."""

from __future__ import annotations

import copy
import json
import random
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflows.programs.stacks.values import (
    DUMP_BYTES,
    LIMIT_BYTES,
    MOST,
    NAME_BYTES,
    Dump,
    Frame,
    ProcessStacks,
    StackAnswer,
    Thread,
    answer_to_json,
    from_json,
)

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
NUMBER = st.integers(0, 2**31)
FRAMES = st.builds(Frame, TEXT, TEXT, NUMBER)
THREADS = st.builds(Thread, NUMBER, TEXT, TEXT, st.lists(FRAMES, max_size=3), TEXT, st.lists(TEXT, max_size=3))
PROCESSES = st.builds(ProcessStacks, st.integers(0, 5), NUMBER, TEXT, st.booleans(), TEXT, TEXT, TEXT,
                      st.lists(THREADS, max_size=3), st.lists(TEXT, max_size=3))  # fmt: skip
SECONDS = st.floats(0, 1e12)
BY_RANK = st.lists(PROCESSES, max_size=4).map(lambda found: sorted(found, key=lambda one: one.rank))
DUMPS = st.builds(Dump, TEXT, SECONDS, SECONDS, BY_RANK, NUMBER)
ANSWERS = st.builds(StackAnswer, TEXT, TEXT, DUMPS)
ONE = StackAnswer(
    "train-0", "s3", Dump("node-0", 10.0, 0.1, [ProcessStacks(0, 41, threads=[Thread(41, frames=[Frame("f")])])], 2)
)


def sent(answer: StackAnswer) -> dict[str, Any]:
    """As the coordinator reads it."""
    return json.loads(json.dumps(answer_to_json(answer)))


@given(ANSWERS)
def test_what_is_sent_comes_back(answer: StackAnswer) -> None:
    assert from_json(sent(answer)) == answer


def test_it_has_the_agreed_shape() -> None:
    body = sent(ONE)
    assert {key: body[key] for key in ("pod", "node", "id")} == {"pod": "train-0", "node": "node-0", "id": "s3"}
    assert [(one["rank"], [process["pid"] for process in one["processes"]]) for one in body["stacks"]] == [(0, [41])]


@pytest.mark.parametrize("letter", ["a", "ü", "\N{GRINNING FACE}", "\0", '"'])
def test_whatever_is_in_it_the_body_stays_within_the_limit(letter: str) -> None:
    frames = [Frame(letter * 500, letter * 500, 1)] * 100
    dump = Dump(
        "n", 0.0, 0.0, [ProcessStacks(rank, rank, threads=[Thread(1, frames=frames)] * 9) for rank in range(64)]
    )
    body = json.dumps(answer_to_json(StackAnswer("p", "s1", dump)))
    assert DUMP_BYTES / 8 < len(body) <= LIMIT_BYTES
    assert from_json(json.loads(body)).dump.processes


BAD: dict[str, tuple[tuple[str | int, ...], Any, str]] = {
    "no pod": (("pod",), ..., "pod: expected a text, got nothing"),
    "the node is a number": (("node",), 3, "node: expected a text, got int"),
    "the id is too long": (("id",), "s" * NAME_BYTES, "pod, node, id: longer than"),
    "no Unicode": (("pod",), "\ud800", "not Unicode"),
    "the time is true": (("at",), True, "at: expected a number, got bool"),
    "the time is not a number": (("at",), float("nan"), "at: expected a number from 0"),
    "it took negative time": (("seconds",), -1, "seconds: expected a number from 0"),
    "too many left out": (("left_out",), int(MOST), "left_out: expected a number from 0"),
    "no stacks": (("stacks",), ..., "stacks: expected a list of objects"),
    "stacks are texts": (("stacks",), ["a"], "stacks: expected a list of objects"),
    "no rank": (("stacks", 0, "rank"), ..., "stacks[0].rank: expected a number, got nothing"),
    "half a rank": (("stacks", 0, "rank"), 0.5, "stacks[0].rank: expected a number, got float"),
    "no processes": (("stacks", 0, "processes"), None, "stacks[0].processes: expected a list of objects"),
    "no process number": (
        ("stacks", 0, "processes", 0, "pid"),
        ...,
        "stacks[0].processes: ProcessStacks: pid is missing",
    ),
    "threads are one": (("stacks", 0, "processes", 0, "threads"), {}, "ProcessStacks.threads: expected a list"),
    "too long": (("stacks", 0, "processes", 0, "program"), "x" * LIMIT_BYTES, "more than 1048576"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_answer_is_refused_by_name(name: str) -> None:
    path, value, words = BAD[name]
    with pytest.raises(ValueError, match=re.escape(words)):
        from_json(changed(sent(ONE), path, value))


def test_a_rank_stands_there_once() -> None:
    body = sent(ONE)
    with pytest.raises(ValueError, match=r"stacks\[1\].rank: 0 stands there twice"):
        from_json({**body, "stacks": body["stacks"] * 2})


def test_what_is_nested_without_end_is_refused() -> None:
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    with pytest.raises(ValueError, match="nested too deeply"):
        from_json({**sent(ONE), "more": nested})


def test_names_that_are_too_long_are_not_sent() -> None:
    with pytest.raises(ValueError, match="longer than"):
        answer_to_json(StackAnswer("p" * NAME_BYTES, "s1", ONE.dump))


@given(ANSWERS, st.integers())
def test_junk_is_refused_or_understood_but_never_breaks_it(answer: StackAnswer, seed: int) -> None:
    body, chance = sent(answer), random.Random(seed)
    junk: list[Any] = [None, -1, 1e400, "", [], {}, True, [{}], "\udfff", ...]
    path = chosen(body, chance)
    try:
        found = from_json(changed(body, path, chance.choice(junk)))
    except ValueError:
        return
    assert from_json(sent(found)) == found


def chosen(value: Any, chance: random.Random) -> tuple[str | int, ...]:
    """A place in it."""
    if not value or not isinstance(value, (dict, list)) or chance.random() < 0.2:
        return ()
    key = chance.choice(list(value) if isinstance(value, dict) else range(len(value)))  # type: ignore[arg-type]
    return (key, *chosen(value[key], chance))


def changed(body: dict[str, Any], path: tuple[str | int, ...], value: Any) -> dict[str, Any]:
    """With another value there; ...: with none."""
    if not path:
        return body
    body = copy.deepcopy(body)
    place: Any = body
    for key in path[:-1]:
        place = place[key]
    if value is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return body
