"""`primus lint`: what it finds in anybody's manifests, what it asks of ours, and what it does not know."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.cases.rows import rows
from tests.support.harness.commands import primus_here
from workflows.lint.subject import SCHEMAS

HELLO = """
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {generateName: hello-}
spec:
  entrypoint: main
  templates:
  - name: main
    container: {image: busybox, command: [ls]%s}
"""
SECRET = ", env: [{name: HF_TOKEN, value: abc}]"
CONFIG = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\n"


@pytest.mark.parametrize(
    ("text", "words", "code", "told"),
    [
        pytest.param(HELLO % "", (), 0, "-: Workflow hello-: pass\n", id="good"),
        pytest.param(
            HELLO % SECRET, (), 1, "spec.templates[0].container.env: HF_TOKEN looks like a secret", id="secret"
        ),
        pytest.param(HELLO % ", imagee: x", (), 1, "(schema: the API server refuses it)", id="unknown-field"),
        pytest.param(HELLO % "", ("--strict",), 1, "spec.activeDeadlineSeconds: must be set", id="strict"),
        pytest.param(CONFIG, (), 3, "ConfigMap settings: unknown, not checked: only Workflow, JobSet", id="kind"),
        pytest.param(f"{HELLO % SECRET}---\n{CONFIG}", (), 1, "ConfigMap settings: unknown", id="worst-wins"),
        pytest.param("", (), 3, "no object in it\n", id="nothing"),
    ],
)
def test_what_it_says_of_a_manifest(text: str, words: tuple[str, ...], code: int, told: str) -> None:
    done = primus_here("lint", *words, "-", given=text)
    assert (done.returncode, done.stderr) == (code, "")
    assert told in done.stdout


def test_what_we_render_is_held_to_all_rules_and_passes() -> None:
    rendered = primus_here("render", "train", "demo").stdout
    assert primus_here("lint", "-", given=rendered).stdout == "-: Workflow demo-1-a1: pass\n"
    before, _, after = rendered.partition("  activeDeadlineSeconds:")
    broken = before + after.partition("\n")[2]
    done = primus_here("lint", "-", given=broken)
    assert done.returncode == 1
    assert "activeDeadlineSeconds: must be set (deadline: a step without a limit waits for ever)" in done.stdout


def test_objects_of_a_list_count_one_by_one(tmp_path: Path) -> None:
    file = tmp_path / "all.json"
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "one"}, "spec": {}}
    file.write_text(json.dumps({"kind": "List", "items": [service, {**service, "spec": {"ports": 5}}]}))
    found = json.loads(primus_here("lint", str(file), "--json").stdout)
    assert [(one["kind"], one["verdict"]) for one in found] == [("Service", "pass"), ("Service", "fail")]
    assert found[1]["findings"][0]["path"] == "spec.ports"


@rows("deployments/lint")
def test_what_is_no_manifest_is_refused(tmp_path: Path, text: str | None, told: str) -> None:
    file = tmp_path / "x.yaml"
    if text is not None:
        file.write_text(text)
    done = primus_here("lint", str(file))
    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr


@pytest.mark.parametrize("kind", [*SCHEMAS, "ConfigMap"])
@pytest.mark.parametrize("metadata", ["{}", "{labels: [a]}", "{labels: {primus-flows.io/run: 5}, name: 7}", "null"])
@pytest.mark.parametrize("spec", ["{}", "null", "{templates: [1]}", "{replicatedJobs: {a: b}, template: []}"])
def test_no_object_makes_it_stumble(kind: str, metadata: str, spec: str) -> None:
    text = f"apiVersion: v1\nkind: {kind}\nmetadata: {metadata}\nspec: {spec}\n"
    for words in ((), ("--strict",)):
        done = primus_here("lint", *words, "-", given=text)
        assert done.returncode in (0, 1, 3), done.stderr
        assert "mistake of ours" not in done.stderr
