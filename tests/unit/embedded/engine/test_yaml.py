"""The YAML of manifests, as Kubernetes' own tools read it, held against PyYAML's own reading."""

from __future__ import annotations

import contextlib
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.embedded.engine.yaml_text import YamlError, read_yaml
from tasks.embedded.start_keeper import keeper_command, keeper_environment
from tests.support.cases.rows import rows


@rows("embedded/engine/yaml")
def test_what_people_write_is_read_as_pyyaml_reads_it(text: str) -> None:
    assert read_yaml(text) == yaml.safe_load(text)


def test_times_dates_and_keys_are_texts_as_for_kubernetes() -> None:
    assert read_yaml("a: 1:30\nb: 2026-01-02\n3: c\ntrue: d") == {"a": "1:30", "b": "2026-01-02", "3": "c", "true": "d"}


@rows("embedded/engine/yaml")
def test_what_is_not_read_is_refused_with_its_line(text: str, part: str) -> None:
    with pytest.raises(YamlError) as error:
        read_yaml(text)
    assert part in str(error.value)


def test_a_keeper_has_its_libraries_though_it_has_no_site_packages(tmp_path: Path) -> None:
    """With the keeper's own interpreter, options and paths; of the packages beside them none is imported."""
    python, *options, _program, here, root, packages = keeper_command(str(tmp_path))
    script = (
        "import json,sys;sys.path.insert(0,sys.argv[1]);sys.path.extend(sys.argv[3].split(':'));"
        "from tasks.embedded.engine.argo.resources import manifest_of;before='yaml' in sys.modules;"
        "from tasks.embedded.engine.expr.evaluate import evaluate_when;"
        "print(json.dumps([before,manifest_of('kind: Pod'),evaluate_when(\"'a' =~ 'a'\"),'pydantic' in sys.modules]))"
    )
    argv = [python, *options, script, here, root, packages]
    told = subprocess.run(argv, env=keeper_environment(root), capture_output=True, text=True, check=True)
    assert json.loads(told.stdout) == [False, {"kind": "Pod"}, True, False]


_ODD = "ab -:#{}[]'\"\n\t|>&*!%@`,?0.1e_~"
_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=30)
    | st.text(alphabet=_ODD, max_size=20)
)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(alphabet=_ODD, min_size=1, max_size=6), inner),
    max_leaves=12,
)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.text("abc", min_size=1, max_size=3), _VALUES, max_size=4))
def test_what_pyyaml_writes_is_read(value: dict[str, Any]) -> None:
    text = yaml.safe_dump(value, sort_keys=False, allow_unicode=True)
    if yaml.safe_load(text) != value:
        return  # the few texts that PyYAML itself does not read back
    assert read_yaml(text) == value


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet=_ODD + "\n  ", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(YamlError):
        read_yaml(text)
