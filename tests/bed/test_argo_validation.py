"""Argo's own validation beside ours: it accepts all that we send, and what it refuses is refused here too.

The validation is the one that the workflow-controller asks before it starts a workflow, compiled from Argo's module.
docs/workflow-run.md lists where the two differ.
"""

from __future__ import annotations

import copy
import json
import random
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from profiles.errors import Refused
from tasks.embedded.engine.argo.validate import validate_workflow
from tests.bed import building, layout, starting
from tests.golden.test_manifests import FOLDER as GOLDEN
from tests.support.builders.manifests import with_field
from tests.support.cases.conformance_cases import load_cases
from tests.support.cases.rows import tables
from tests.support.fakes.workflow_simulator import a_workflow
from tests.unit.workflows.lint.test_lint import PLAN, WORKFLOW
from workflows.attempt.training import manifests
from workflows.lint.lint import lint

pytestmark = pytest.mark.bedless
Manifest = dict[str, Any]
Way = tuple[str | int, ...]
CASES = load_cases()
RUN_BY_ARGO = frozenset(
    (
        *("artifact-store", "claim-templates", "config-map-value", "container-set", "daemon", "data", "empty-items"),
        *("endless-recursion", "http", "inline", "memoize", "metrics", "mutex", "pending-timeout", "plugin"),
        *("pod-spec-patch", "sidecar", "unknown-function", "workflow-mutex"),
    )
)
"""Refused by the embedded cluster alone: it does not run them, or knows before the run that they fail."""
LEFT_TO_US = ("gate takes no parameter 'more'", "{{item}} names nothing that is there by then")
"""What our lint says of references and Argo does not."""
KNOWN = re.compile(r"failed to resolve \{\{workflow\.(failures|outputs\.)")
"""The one thing that Argo knows better: which template is validated, and so gives a global output, before which."""
CHANGES = 2000
VALUES: Sequence[Any] = (
    *("", "x", "a b", "a.b", "1a", "0", "1s", "-1", "a && b", None, True, 0, 1, -1, [], {}, [{}]),
    *("{{inputs.parameters.no}}", "{{steps.no.outputs.result}}", "{{tasks.no.status}}", "{{workflow.parameters.no}}"),
    *("{{item}}", "{{item.no}}", "{{=1+}}", "{{pod.name}}", "{{retries}}", "{{workflow.status}}", "{{outputs.result}}"),
)
"""What fields are set to; most of it is wrong in most places."""


def ask(wanted: Sequence[Manifest]) -> list[str]:
    """What Argo says of each, "" where it has nothing against it."""
    with starting.alone(layout.cache()):
        program = building.have(layout.cache(), "validate")
    lines = "".join(f"{json.dumps(one, default=str)}\n" for one in wanted)
    done = subprocess.run([program], input=lines, capture_output=True, text=True, check=True)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(wanted), done.stderr
    return [answer["fields"] or answer["refused"] for answer in answers]


def ask_ourselves(manifest: Manifest) -> str:
    """What the embedded cluster says, "" where it has nothing against it."""
    try:
        validate_workflow(copy.deepcopy(manifest))
    except Refused as refused:
        return str(refused)
    return ""


def emitted() -> Iterator[tuple[str, Manifest]]:
    """Every Workflow of the golden files, by the file."""
    for path in sorted(GOLDEN.glob("*.yaml")):
        for manifest in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            if manifest["kind"] == "Workflow":
                yield path.stem, manifest


def test_argo_accepts_all_that_we_send() -> None:
    names, wanted = zip(*emitted(), strict=True)
    assert len(wanted) >= 20
    assert dict(zip(names, ask(wanted), strict=True)) == dict.fromkeys(names, "")


def test_argo_accepts_all_that_runs_and_refuses_the_rest() -> None:
    said = dict(zip([case.name for case in CASES], ask([case.manifest for case in CASES]), strict=True))
    refused = {case.name for case in CASES if case.refused} - {f"refused-{name}" for name in RUN_BY_ARGO}
    assert {name for name, words in said.items() if words} == refused, said


def test_argo_refuses_the_references_that_our_lint_refuses() -> None:
    wrong: list[Manifest] = []
    for rule, apply in WORKFLOW:
        if rule == "references":
            wrong.append(copy.deepcopy(manifests(PLAN)[-1]))
            apply(wrong[-1])
    assert len(wrong) >= 10
    accepted = [one for one, words in zip(wrong, ask(wrong), strict=True) if not words]
    assert [finding.message for one in accepted for finding in lint(one, PLAN)] == list(LEFT_TO_US)
    assert ask([manifests(PLAN)[-1]]) == [""]


def test_a_mistake_that_argo_finds_is_one_here() -> None:
    """The list of mistakes that the embedded cluster names by their paths: a third of them Argo finds as well."""
    wrong: list[Manifest] = []
    for row in tables("embedded/engine/argo/refused")["a_mistake_is_named_by_its_path"]:
        wrong.append(with_field(a_workflow(), row.columns["at"], row.columns.get("value", ...)))
    assert ask([a_workflow()]) == [""]
    assert sum(map(bool, ask(wrong))) >= 45


def paths(value: object, here: Way = ()) -> Iterator[Way]:
    """The ways to everything inside a value."""
    inside = cast(Any, value)
    keys: Sequence[str | int] = (
        list(inside) if isinstance(value, dict) else range(len(inside)) if isinstance(value, list) else ()
    )
    for key in keys:
        yield (*here, key)
        yield from paths(inside[key], (*here, key))


def at(value: Any, way: Way) -> Any:
    """What lies there."""
    for key in way:
        value = value[key]
    return value


def spoil(spec: Manifest, chance: random.Random) -> None:
    """One change: a thing taken away, set to something, doubled, or put where another one lies."""
    ways = list(paths(spec))
    way, other = chance.choice(ways), chance.choice(ways)
    parent, found = at(spec, way[:-1]), copy.deepcopy(at(spec, other))
    kinds: dict[str, Callable[[], object]] = {
        "drop": lambda: parent.pop(way[-1]),
        "set": lambda: parent.__setitem__(way[-1], chance.choice(VALUES)),
        "put": lambda: parent.__setitem__(way[-1], found),
        "add": lambda: (
            cast(list[Any], parent).append(copy.deepcopy(at(parent, way[-1:])))
            if isinstance(parent, list)
            else parent.__setitem__(str(other[-1]), found)
        ),
    }
    kinds[chance.choice(list(kinds))]()


def test_whatever_argo_refuses_is_refused_here() -> None:
    chance = random.Random(4)  # always the same changes: a new gap is a change of ours, not of luck
    sound = [case.manifest for case in CASES if not case.refused]
    spoiled: list[Manifest] = []
    for _ in range(CHANGES):
        spoiled.append(copy.deepcopy(chance.choice(sound)))
        spoil(spoiled[-1]["spec"], chance)
    said = ask(spoiled)
    refused = [(words, one) for words, one in zip(said, spoiled, strict=True) if words]
    assert len(refused) > CHANGES // 4
    assert [words for words, one in refused if not ask_ourselves(one) and not KNOWN.search(words)] == []


def test_what_was_added_is_compiled_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modules = tmp_path / "modules"
    shutil.copytree(layout.MODULES, modules)
    monkeypatch.setattr(layout, "MODULES", modules)
    before = layout.source_key(), layout.added_key("validate")
    (modules / "validate" / "main.go").write_text("package main\n", encoding="utf-8")
    after = layout.source_key(), layout.added_key("validate")
    assert after[0] == before[0]
    assert after[1] != before[1]
    (modules / "pause" / "main.go").write_text("package main\n", encoding="utf-8")
    assert layout.source_key() != before[0]
