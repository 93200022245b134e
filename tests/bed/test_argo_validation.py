"""Argo's own validation beside ours: it accepts all that we send, and each finds what the other finds.

The validation is the one that the workflow-controller asks before it starts a workflow, compiled from Argo's module.
"""

from __future__ import annotations

import copy
import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.bed import building, layout, starting
from tests.conformance_cases import Case, load_cases
from tests.test_embedded_workflow_refused import REFUSED, change
from tests.test_workflows_golden import FOLDER as GOLDEN
from tests.test_workflows_lint import PLAN, WORKFLOW
from tests.workflow_simulator import a_workflow
from workflows.lint import lint
from workflows.manifests import manifests

Manifest = dict[str, Any]
CASES = load_cases()


def ask(wanted: Sequence[Manifest]) -> list[str]:
    """What Argo says of each, "" where it has nothing against it."""
    with starting.alone(layout.cache()):
        program = building.have(layout.cache(), "validate")
    lines = "".join(f"{json.dumps(one, default=str)}\n" for one in wanted)
    done = subprocess.run([program], input=lines, capture_output=True, text=True, check=True)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(wanted), done.stderr
    return [answer["fields"] or answer["refused"] for answer in answers]
