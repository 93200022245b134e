"""Strict check of a manifest against the definitions that `schemas/README.md` lists."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from workflows.findings import Finding

SCHEMAS = {
    "Workflow": "argo-workflow.json",
    "JobSet": "jobset.json",
    "TrainJob": "trainjob.json",
    "TrainingRuntime": "trainingruntime.json",
    "PyTorchJob": "pytorchjob.json",
    "Job": "job.json",
    "Service": "service.json",
}
RULE = "schema"
MESSAGE_CHARACTERS = 300


def schema_errors(manifest: Mapping[str, Any]) -> list[Finding]:
    """What the API server would refuse: unknown fields, wrong types, missing fields; empty where it takes all."""
    kind = str(manifest.get("kind", ""))
    if kind not in SCHEMAS:
        return [Finding("kind", RULE, f"{kind!r} is not one of {', '.join(SCHEMAS)}")]
    errors: Iterable[ValidationError] = _validator(kind).iter_errors(manifest)  # pyright: ignore[reportUnknownMemberType]
    return [Finding(_path(error), RULE, error.message[:MESSAGE_CHARACTERS]) for error in errors]


@cache
def _validator(kind: str) -> Draft202012Validator:
    return Draft202012Validator(json.loads(files("workflows").joinpath("schemas", SCHEMAS[kind]).read_text()))


def _path(error: ValidationError) -> str:
    """`$.spec.templates[0].name` without its first two characters; the top itself is `.`."""
    return error.json_path[2:] or "."
