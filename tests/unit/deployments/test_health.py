"""`primus health serve`, as a process that answers and ends.

`primus render health`: what is printed, and how it is taken away again.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from deployments.cli.health import (
    KINDS,
    OPERATOR_KINDS,
    Serving,
    instructions,
    print_health_manifests,
    serve_checks,
    take_away,
)
from profiles.errors import ProfileError
from profiles.health import HealthValues
from tests.support.harness.health_daemons import get
from workflows.platform.health import check_pod, health
from workflows.platform.health_alerts import rules, scrape_config

SCRIPT = """
import sys
from deployments.cli.health import Serving, serve_checks
asked = Serving(port=0, readiness_port=-1, metrics_port=-1, node="laptop", interval="0", deep_interval="0")
sys.exit(serve_checks(asked))
"""


def test_it_serves_with_the_token_of_our_home_until_it_is_told_to_end(tmp_path: Path) -> None:
    environment = {"PRIMUS_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    root = Path(__file__).parents[3]
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, text=True, env=environment, cwd=root
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("health: laptop listening on 127.0.0.1: health ")
        port = int(line.rpartition(" ")[2])
        assert get(port, "/gpumem")[0] == 401
        token = (tmp_path / "token").read_text().strip()
        assert get(port, "/pvc", Authorization=f"Bearer {token}")[0] == 200
        process.terminate()
        assert process.wait(30) == 0


def test_what_cannot_be_used_is_said(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PRIMUS_TOKEN", "a b")
    with pytest.raises(ProfileError, match="is no token"):
        serve_checks(Serving())
    monkeypatch.setenv("PRIMUS_TOKEN", "good")
    before = [__import__("signal").getsignal(number) for number in (2, 15)]
    try:
        assert serve_checks(Serving(interval="often")) == 2
    finally:
        for number, handler in zip((2, 15), before, strict=True):
            __import__("signal").signal(number, handler)
    assert capfd.readouterr().err == "health: --w: write 90s, 30m, 1h or 1d, got 'often'\n"


def test_without_values_the_usual_service_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert print_health_manifests("", as_json=False) == 0
    text = capsys.readouterr().out
    assert list(yaml.safe_load_all(text)) == health(HealthValues())
    assert text.startswith("# The health service.")
    assert "--from-file=token=/dev/stdin" in text


def test_values_of_a_file_are_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "values.yaml"
    file.write_text("namespace: gpus\ncompatible: true\n")
    assert print_health_manifests(str(file), as_json=True) == 0
    assert json.loads(capsys.readouterr().out) == health(HealthValues(namespace="gpus", compatible=True))
    file.write_text("")
    assert print_health_manifests(str(file), as_json=True) == 0
    assert json.loads(capsys.readouterr().out) == health(HealthValues()), "an empty file is one too"


@pytest.mark.parametrize("part", ["check", "rules", "scrape"])
def test_parts_can_be_had_alone(part: str, capsys: pytest.CaptureFixture[str]) -> None:
    print_health_manifests("", part=part, as_json=False)
    usual = HealthValues()
    made = {"check": check_pod(usual), "rules": rules(usual), "scrape": {"scrape_configs": [scrape_config(usual)]}}
    assert list(yaml.safe_load_all(capsys.readouterr().out)) == [made[part]]


def test_what_cannot_be_read_is_told_by_its_field(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ProfileError, match="values: cannot read"):
        print_health_manifests(str(tmp_path / "none.yaml"), as_json=False)
    file = tmp_path / "values.yaml"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(ProfileError, match="values: cannot read"):
        print_health_manifests(str(file), as_json=False)
    file.write_text("port: 8080")
    with pytest.raises(ProfileError, match="port: must not be 8080"):
        print_health_manifests(str(file), as_json=False)
    with pytest.raises(ProfileError, match="part: must be all, check, rules or scrape, got 'al'"):
        print_health_manifests("", part="al", as_json=False)
    assert capsys.readouterr().out == "", "nothing was printed that somebody might apply"


@pytest.mark.parametrize("values", [HealthValues(), HealthValues(service_monitor=True, storage_class="fast")])
def test_everything_that_is_made_is_taken_away(values: HealthValues) -> None:
    first, pod, cluster, *_, space = take_away(values)
    removed = {kind.replace("policies", "policys").removesuffix("s") for kind in (*KINDS, *OPERATOR_KINDS)}
    for item in health(values):
        name, kind = item["metadata"]["name"], item["kind"]
        if kind == "Namespace":
            assert space == f"kubectl delete namespace {name}"
        elif kind.startswith("ClusterRole"):
            assert cluster == f"kubectl delete clusterrole,clusterrolebinding {name}"
        else:
            assert kind.lower() in removed
    assert ("prometheusrules" in first) == values.service_monitor
    assert check_pod(values)["metadata"]["name"] in pod


def test_labels_on_nodes_go_too_where_they_were_written() -> None:
    text = instructions(HealthValues(write_labels=True))
    assert "kubectl label nodes --all autopilot.ibm.com/gpuhealth- " in text
    assert "autopilot.ibm.com/dcgm.level.3.output-" in text
    assert "autopilot.ibm.com" not in instructions(HealthValues())
    assert all(line.startswith("#") or line == "---" for line in text.splitlines())
