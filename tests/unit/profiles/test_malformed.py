from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, cast

import pytest

from profiles.errors import ProfileError
from profiles.loading import load
from profiles.loading.document import read_mapping, write
from tests.proof import in_turn

CASES = 10_000
SEED = 20_260_101
JUNK: list[Any] = [
    None,
    True,
    -1,
    0,
    1.5,
    10**17,
    "",
    "x",
    "no such thing",
    [],
    {},
    [[]],
    [None],
    {"": 1},
    {"name": []},
    "\n",
    "{{",
    *("*", "../../etc", "(", "a" * 300, ["a", 1], {"a": {"b": {"c": "d"}}}, "é\u2028", "1Gi", [{"name": "trainer"}]),
]
TEXT_JUNK = [
    "\t",
    "&a ",
    "*a",
    "!!python/object:os.system ",
    "{",
    "}",
    "[",
    "]",
    ": ",
    "- ",
    "#",
    "'",
    '"',
    "\x00",
    "\r",
    "---\n",
    "<<: ",
    "? ",
    "|",
    ">",
    "%",
    "@",
    ".nan",
    "1e999",
    "9" * 40,
    "é",
    "\ufeff",
    "\x85",
    " " * 30,
    "[" * 60,
    "\u202e",
]

Load = Callable[[str], object]
LOADERS: dict[str, Load] = {
    "runs": load.load_run,
    "clusters": load.load_cluster,
    "hardware": load.load_hardware.__wrapped__,
    "recovery": load.load_recovery,
    "workspaces": load.load_workspace,
    "suites": load.load_suite,
    "releases": load.load_release,
    "components": load.load_component,
}
CLUSTER = load.load_cluster("local-gpus")


def _flipped(chance: random.Random, text: str) -> bytes:
    raw = bytearray(text.encode())
    raw[chance.randrange(len(raw))] = chance.randrange(256)
    return bytes(raw)


def _with_line(chance: random.Random, text: str, change: Callable[[str], str]) -> bytes:
    lines = text.splitlines(keepends=True)
    place = chance.randrange(len(lines))
    return "".join([*lines[:place], change(lines[place]), *lines[place + 1 :]]).encode()


def _inserted(chance: random.Random, text: str) -> bytes:
    place = chance.randrange(len(text))
    return (text[:place] + chance.choice(TEXT_JUNK) + text[place:]).encode()


CHANGES: list[Callable[[random.Random, str], bytes]] = [
    lambda chance, text: text[: chance.randrange(len(text))].encode(),
    lambda chance, text: text[chance.randrange(len(text)) :].encode("utf-16" if chance.random() < 0.3 else "utf-8"),
    lambda chance, text: text.replace(":", chance.choice(["", " :", "::", "="]), 1 + chance.randrange(5)).encode(),
    lambda chance, text: _with_line(chance, text, lambda line: line * 2),
    lambda chance, text: _with_line(chance, text, lambda line: ""),
    lambda chance, text: _with_line(chance, text, lambda line: chance.choice([" ", "\t", "   "]) + line),
    _inserted,
    _flipped,
]
"""Ways to damage a text: cut it, shift it, repeat it, change a byte."""


def _changed_text(chance: random.Random, text: str) -> bytes:
    return chance.choice(CHANGES)(chance, text)


def _places(data: Any, way: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner: Iterable[tuple[Any, Any]] = ()
    if isinstance(data, (dict, list)):
        inner = cast("dict[str, Any]", data).items() if isinstance(data, dict) else enumerate(cast("list[Any]", data))
    return [place for key, value in inner for place in ((*way, key), *_places(value, (*way, key)))]


def _changed_data(chance: random.Random, data: dict[str, Any]) -> bytes:
    copy = json.loads(json.dumps(data))
    *way, last = chance.choice(_places(copy))
    holder = copy
    for step in way:
        holder = holder[step]
    match chance.randrange(4):
        case 0:
            del holder[last]
        case 1 if isinstance(last, str):
            cut = chance.randrange(len(last) + 1)
            holder[last[:cut] + chance.choice(["", "x", "_", "-", "S"]) + last[cut + 1 :]] = holder.pop(last)
        case _:
            holder[last] = chance.choice(JUNK)
    return write(copy).encode()


def _outcome(path: Path, kind: str) -> ProfileError | None:
    """The refusal, or None where the profile is good. Anything else that is raised fails the test."""
    try:
        value = LOADERS[kind](str(path))
        if kind == "runs":
            load.resolve(value, CLUSTER)  # type: ignore[arg-type]
    except ProfileError as error:
        return error
    return None


@pytest.mark.parametrize("part", in_turn(range(4), 2))
def test_ten_thousand_malformed_profiles_are_refused_with_a_field_or_are_good(tmp_path: Path, part: int) -> None:
    chance = random.Random(SEED + part)
    shipped = [item for item in load.list_profiles() if item.path.stat().st_size < 1800]
    texts = [(item.path.parent.name, item.path.read_text()) for item in shipped]
    parsed = [(kind, text, read_mapping(text.encode(), kind).data) for kind, text in texts]
    refused: Counter[str] = Counter()
    for case in range(CASES // 4):
        # A new file each time: writing over the old one makes some file systems wait for the disk.
        path = tmp_path / f"{case}.yaml"
        kind, text, data = chance.choice(parsed)
        path.write_bytes(_changed_text(chance, text) if chance.random() < 0.6 else _changed_data(chance, data))
        refusal = _outcome(path, kind)
        path.unlink()
        if refusal is not None:
            assert refusal.field.strip()
            assert refusal.reason.strip()
            assert "Traceback" not in str(refusal)
            refused[kind] += 1
    assert sum(refused.values()) > CASES // 4 * 0.5, "the changes no longer break anything: this test proves nothing"
    assert set(refused) == set(LOADERS)


@pytest.mark.parametrize(
    ("raw", "field", "words"),
    [
        (b"", "(whole file)", "is empty"),
        (b"# only a comment\n", "(whole file)", "is empty"),
        (b"- a\n- b\n", "(whole file)", "must be a mapping"),
        (b"just words", "(whole file)", "must be a mapping"),
        (b"name: \xff", "line 1", "UTF-8"),
        ("name: x".encode("utf-16"), "line 1", "UTF-8"),
        (b"name: x\n\troles: []\n", "line 2, column 1", "spaces, not with tabs"),
        (b"name: x\nname: y\n", "line 2, column 1", "'name' twice"),
        (b"roles:\n  - image: a\n    image: b\n", "line 3, column 5", "'image' twice"),
        (b"a: &x 1\nb: *x\n", "line 1, column 4", "anchor"),
        (b"a: [*x]\n", "line 1, column 5", "alias"),
        (b"a: !!python/name:os.system x\n", "line 1, column 4", "tag"),
        (b"seed: .nan\n", "line 1, column 7", "finite"),
        (b"seed: -.inf\n", "line 1, column 7", "finite"),
        (b"seed: 1e999\n", "line 1, column 7", "beyond"),
        (b"seed: 99999999999999999999\n", "line 1, column 7", "18 digits"),
        (b"a: " + b"[" * 100, "line 1, column 27", "deeper than 24"),
        (b"a: " + b"{b: " * 100, "line 1, column 96", "deeper than 24"),
        (b"a: 1\n---\nb: 2\n", "line 2, column 1", "second document"),
        (b"? [a]\n: b\n", "line 1, column 3", "key"),
        (b'a: "\\0"\n', "line 1, column 4", "NUL"),
        (b"a: 'open\n", "line", "quoted scalar"),
        (b"a: b: c\n", "line 1, column 5", "not valid YAML"),
        (b"a: x\x01\n", "(whole file)", "control characters"),
        (b"a: " + b"x" * (1 << 20), "(whole file)", "larger than"),
    ],
)
def test_a_text_that_is_no_profile_is_refused_with_its_place(
    tmp_path: Path, raw: bytes, field: str, words: str
) -> None:
    path = tmp_path / "broken.yaml"
    path.write_bytes(raw)
    with pytest.raises(ProfileError) as caught:
        load.load_run(str(path))
    assert caught.value.field.startswith(field)
    assert words in caught.value.reason
    assert caught.value.source == str(path)
