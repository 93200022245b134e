"""`primus render train … --as FORM`: what is printed, and what is refused before anything is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from deployments.cli.profiles import print_run
from deployments.exit_codes import GOOD
from profiles.errors import ProfileError

FORMS = {
    "jobset": ["JobSet"],
    "trainjob": ["TrainingRuntime", "TrainJob"],
    "pytorchjob": ["Service", "Job", "PyTorchJob"],
}
TWO_ROLES = """
extends: demo
name: two-roles
roles:
  - name: trainer
    decides: true
  - name: feeder
    image: example.org/feeder:1
    command: [feed]
"""


@pytest.mark.parametrize(("form", "kinds"), FORMS.items(), ids=FORMS)
def test_a_form_is_the_gang_alone(form: str, kinds: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert print_run("demo", "kubernetes-example", (), form, as_json=True) == GOOD
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    assert [one["kind"] for one in found] == kinds
    assert {one["metadata"]["namespace"] for one in found} == {"training"}


def test_what_is_printed_for_people_is_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    printed: list[Any] = []
    for as_json, read in ((True, json.loads), (False, yaml.safe_load_all)):
        print_run("megatron-lm", "kubernetes-example", ("roles.trainer.replicas=4",), "trainjob", as_json=as_json)
        printed.append(list(read(capsys.readouterr().out)))
    assert printed[0] == printed[1]
    assert printed[0][1]["spec"]["trainer"]["numNodes"] == 4


@pytest.mark.parametrize(("form", "field"), [("helm", "as"), ("pytorchjob", "roles[1]")])
def test_what_is_refused_prints_nothing(
    form: str, field: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profile = tmp_path / "two-roles.yaml"
    profile.write_text(TWO_ROLES)
    with pytest.raises(ProfileError) as error:
        print_run(str(profile), "kubernetes-example", (), form, as_json=False)
    assert error.value.field == field
    assert capsys.readouterr().out == ""
