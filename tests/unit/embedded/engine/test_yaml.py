"""The YAML reader of resource manifests, held against PyYAML."""

from __future__ import annotations

import contextlib
import re
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.embedded.engine.yaml_text import YamlError, read_yaml

WRITTEN_BY_PEOPLE = [
    """apiVersion: v1 # a comment
kind: Pod
metadata: {name: x, labels: {a: "b", c: 'd'}}
spec:
  containers:
  - name: main
    image: "a:1"
    command: [sh, -c]
    args:
      - |
        echo hi
          deeper

        done
      - >-
        folded text
        here

        paragraph
    env:
    - {name: A, value: "1"}
    -   name: B
        value: plain text
          continued
  empty: {}
  list: []
  none:
  n: ~
  url: http://x:80/y#z
  "quoted key": 'it''s'
""",
    "---\na:\n- b\n- - c\n  - d\n-\n  e: 1\n",
    'a: "line one\n  line two\\\n  joined \\u0041"\nb:\n  - x: 1\n    y:\n    - 2\n  # comment\n',
    "a: 0x1F\nb: 1_000\nc: 010\nd: -1.5\ne: .5\nf: yes\ng: Off\nh: 1e3\ni: .inf\n",
    "a: |\n\n  x\n\n\n",
    "a: |+\n  x\n\n\nb: 1\n",
    "a: |2\n    x\n   y\n",
    "a: >\n  x\n  y\n\n    deep\n  z\n",
    "a: [1, [2, 3], {b: c}, 'd, e']\nf: {g: [h], i: }\n",
    "[a, b]",
    "just text",
    "",
]


@pytest.mark.parametrize("text", WRITTEN_BY_PEOPLE)
def test_what_people_write_is_read_as_pyyaml_reads_it(text: str) -> None:
    assert read_yaml(text) == yaml.safe_load(text)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("a: &x 1", "line 1: anchors"),
        ("a: 1\nb: *x", "line 2: aliases"),
        ("a: !t x", "tags"),
        ("a: b: c", "has a colon"),
        ("a:\n\t- x", "a tab cannot indent"),
        ("a: [1, 2", "a bracket is not closed"),
        ("a: 'x", "a quote is not closed"),
        ("a: 1\na: 2", "line 2: the key 'a' stands twice"),
        ("a: 1\n---\nb: 2", "only one document"),
        ("? x\n: y", "complex keys"),
        ("a: {b 1}", "expected ':'"),
        ("a: 1\n  b: 2", "has a colon"),
        ("a:\n  b: 1\n    c: 2", "has a colon"),
        ("a: 'x' y", "unexpected 'y'"),
        ("a: |x\n  b", "block text"),
    ],
)
def test_what_is_not_read_is_refused_with_its_line(text: str, part: str) -> None:
    with pytest.raises(YamlError) as error:
        read_yaml(text)
    assert part in str(error.value)


_ODD = "ab -:#{}[]'\"\n\t|>&*!%@`,?0.1e_~"
_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=30)
    | st.text(alphabet=_ODD, max_size=20)
)
_KEYS = st.text(min_size=1, max_size=12) | st.text(alphabet=_ODD, min_size=1, max_size=6)
_VALUES = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_KEYS, inner, max_size=4), max_leaves=12
)


class BlockDumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks, as builders of manifests do."""


BlockDumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None),
)


@pytest.mark.parametrize("text", ["\n0", "\n 0", " 0\n1", "x\n\n", "x\n", "a\n  b\n c", "\n\n"])
@pytest.mark.parametrize(
    "shape", [lambda text: {"a": [text]}, lambda text: {"a": text}, lambda text: [[text], {"b": [text]}]]
)
def test_texts_of_several_lines_are_read_as_blocks(shape: Any, text: str) -> None:
    value = shape(text)
    assert read_yaml(yaml.dump(value, Dumper=BlockDumper)) == value


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.text("abc", min_size=1, max_size=3), _VALUES, max_size=4), st.sampled_from([80, 1 << 20]))
def test_what_pyyaml_writes_is_read(value: dict[str, Any], width: int) -> None:
    text = yaml.dump(value, Dumper=BlockDumper, sort_keys=False, allow_unicode=True, width=width)
    if re.search(r"^\s*(- )*\? ", text, re.MULTILINE) or yaml.safe_load(text) != value:
        return  # complex keys, and the few texts that PyYAML itself does not read back
    assert read_yaml(text) == value


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet=_ODD + "\n  ", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(YamlError):
        read_yaml(text)
