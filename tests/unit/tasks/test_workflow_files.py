"""Manifests as people write them, and objects as controllers store them."""

from __future__ import annotations

import base64
import gzip
import json
import re

import pytest

from profiles.errors import ProfileError
from tasks.workflow_runs import read_workflow, with_name, with_parameters
from workflows.model.workflow import steps_of, unpacked, workflow_of

FORM = {"kind": "Workflow", "metadata": {"generateName": "x-"}, "spec": {}}


def test_plain_words_are_read_as_kubernetes_tools_read_them() -> None:
    text = (
        "kind: Workflow\nday: 2026-01-01\nclock: 1:30\nflag: yes\nmode: 0755\nversion: 1.10\nquoted: '1'\n1: {no: ~}\n"
    )
    assert read_workflow(text, "f") == {
        "kind": "Workflow",
        "day": "2026-01-01",
        "clock": "1:30",
        "flag": True,
        "mode": 0o755,
        "version": 1.1,
        "quoted": "1",
        "1": {"false": None},
    }


def test_values_of_parameters_become_texts_as_argos_own_command_makes_them() -> None:
    text = """
kind: Workflow
spec:
  arguments: {parameters: [{name: n, value: 3, enum: [3, 1.5]}, {name: f, default: true}]}
  templates:
    - outputs: {parameters: [{name: o, valueFrom: {default: 0}}]}
      withItems: [{parameters: [{value: 1}]}]
"""
    spec = read_workflow(text, "f")["spec"]
    assert spec["arguments"]["parameters"] == [
        {"name": "n", "value": "3", "enum": ["3", "1.5"]},
        {"name": "f", "default": "true"},
    ]
    [template] = spec["templates"]
    assert template["outputs"]["parameters"] == [{"name": "o", "valueFrom": {"default": "0"}}]
    assert template["withItems"] == [{"parameters": [{"value": 1}]}]


def test_anchors_merge_and_json_is_yaml() -> None:
    found = read_workflow("base: &b {a: 1, b: 2}\nkind: Workflow\nspec: {<<: *b, b: 3}\n", "f")
    assert found["spec"] == {"a": 1, "b": 3}
    assert read_workflow(json.dumps(FORM), "f") == FORM


def test_a_name_is_drawn_once_and_fits() -> None:
    names = {with_name(FORM, "")["metadata"]["name"] for _ in range(20)}
    assert len(names) > 10
    assert all(re.fullmatch(r"x-[a-z0-9]{5}", name) for name in names)
    long = {**FORM, "metadata": {"generateName": "y" * 80}}
    assert len(with_name(long, "")["metadata"]["name"]) == 63
    assert with_name(FORM, "given")["metadata"] == {"name": "given"}


def test_parameters_replace_or_are_added_and_a_slip_is_named() -> None:
    spec = {
        "entrypoint": "m",
        "arguments": {"parameters": [{"name": "a", "value": "1"}, {"name": "b", "valueFrom": {}}]},
        "templates": [{"name": "m", "inputs": {"parameters": [{"name": "d"}]}, "x": "{{workflow.parameters.c}}"}],
        "onExit": "{{=workflow.parameters['f-g'] + workflow.parameters[\"h\"]}}",
    }
    made = with_parameters({**FORM, "spec": spec}, ["b=2=3", "c=", "d=4"])
    assert made["spec"]["arguments"]["parameters"] == [
        {"name": "a", "value": "1"},
        {"name": "b", "value": "2=3"},
        {"name": "c", "value": ""},
        {"name": "d", "value": "4"},
    ]
    with pytest.raises(ProfileError, match="no parameter 'e'; it has a, b, c, d, f-g, h"):
        with_parameters({**FORM, "spec": spec}, ["e=1"])
    assert with_parameters(FORM, []) is FORM


def test_nodes_that_a_controller_compressed_are_unpacked() -> None:
    packed = base64.b64encode(gzip.compress(json.dumps({"w": {"phase": "Succeeded"}}).encode())).decode()
    found = unpacked({"status": {"phase": "Succeeded", "compressedNodes": packed}})
    assert found["status"] == {"phase": "Succeeded", "nodes": {"w": {"phase": "Succeeded"}}}
    strange = {"status": {"compressedNodes": "KLUv/Q=="}}
    assert unpacked(strange) == strange, "something newer than gzip stays as it is"


def test_every_reader_of_a_workflow_reads_compressed_nodes() -> None:
    report = {"name": "report", "value": '{"node": "n", "verdict": "pass"}'}
    nodes = {
        "gate": {"type": "Pod", "templateName": "gate", "phase": "Succeeded", "outputs": {"parameters": [report]}},
        "bad": {"type": "Pod", "displayName": "b", "phase": "Failed", "message": "m"},
    }
    plain = {"metadata": {}, "status": {"phase": "Failed", "nodes": nodes}}
    body = base64.b64encode(gzip.compress(json.dumps(nodes).encode())).decode()
    packed = {"metadata": {}, "status": {"phase": "Failed", "compressedNodes": body}}
    assert workflow_of(packed) == workflow_of(plain)
    assert workflow_of(packed).failed_steps == (("b", "m"),)
    assert len(workflow_of(packed).gate) == 1
    assert workflow_of(packed) == workflow_of(plain)
    assert [step.name for step in workflow_of(packed).steps] == ["b"]
    assert steps_of({}) == []


def test_tries_of_one_step_that_end_with_the_same_words_are_one_failed_step() -> None:
    names = ("apply(0)", "apply(1)", "apply(2)", "gate(0:n1)(0)", "gate(1:n2)(0)", "x(0:n1)", "x(1:n2)")
    words = {"apply(1)": "other"}
    nodes = {
        str(at): {"type": "Pod", "phase": "Failed", "displayName": name, "message": words.get(name, "m")}
        for at, name in enumerate(names)
    }
    view = workflow_of({"metadata": {"name": "w"}, "status": {"phase": "Failed", "nodes": nodes}})
    told = {"apply(0)": "m", "apply(1)": "other"} | dict.fromkeys(names[3:], "m")
    assert dict(view.failed_steps) == told


def test_a_try_that_failed_before_another_one_succeeded_is_no_failed_step() -> None:
    """So Argo writes it: a node of type Retry over its tries."""

    def node(kind: str, phase: str, *children: str) -> dict[str, object]:
        return {"type": kind, "phase": phase, "displayName": kind, "message": "StartError", "children": [*children]}

    nodes = {
        "well": node("Retry", "Succeeded", "well-0", "well-1"),
        "well-0": node("Pod", "Error"),
        "well-1": node("Pod", "Succeeded"),
        "ill": node("Retry", "Error", "ill-0", "ill-1"),
        "ill-0": node("Pod", "Failed"),
        "ill-1": node("Pod", "Error"),
        "at-work": node("Retry", "Running", "at-work-0", "at-work-1"),
        "at-work-0": node("Pod", "Error"),
        "at-work-1": node("Pod", "Running"),
    }
    view = workflow_of({"metadata": {"name": "w"}, "status": {"phase": "Running", "nodes": nodes}})
    assert len(view.failed_steps) == 3
    assert [step.phase for step in view.steps] == ["Error", "Failed", "Error", "Running", "Error", "Running"]
