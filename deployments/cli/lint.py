"""`primus lint`: what is wrong with manifests, before they are sent to a cluster."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from deployments.cli.app import AsJson, app
from deployments.exit_codes import FAILED, GOOD, UNKNOWN, out, out_json
from profiles.errors import ProfileError
from tasks.workflow_runs import read_documents
from workflows import labels
from workflows.lint.lint import RULES, lint
from workflows.lint.subject import SCHEMAS, Finding
from workflows.model.manifest import part

STANDARD_INPUT = "-"


@dataclass(frozen=True)
class Checked:
    """One object of a file."""

    file: str
    kind: str
    """"" where it says none."""
    name: str
    findings: tuple[Finding, ...] | None
    """None: nothing is known of its kind here, so it was not checked."""

    @property
    def verdict(self) -> str:
        """`pass`, `fail` or `unknown`."""
        if self.findings is None:
            return "unknown"
        return "fail" if self.findings else "pass"


@app.command(name="lint")
def lint_files(
    files: Annotated[list[str], typer.Argument(help="Files of manifests, YAML or JSON; - for standard input.")],
    strict: Annotated[bool, typer.Option("--strict", help="Hold them to all rules, as our own manifests are.")] = False,
    as_json: AsJson = False,
) -> int:
    """What is wrong with manifests: fields that the API server refuses, and what hurts only once it runs.

    Workflows, JobSets, TrainJobs and their runtimes, PyTorchJobs, Jobs and Services are checked, also those that a
    Workflow applies. Nothing is sent anywhere. Objects that carry our labels must also have what our flows rely on:
    deadlines, limits, labels, the shape of a gang.
    Exit code 0: nothing is wrong; 1: something is; 2: a file cannot be read; 3: an object of another kind is in it.

    Example: primus render train demo | primus lint -
    """
    found = [checked for file in files for checked in check(_text(file), file, strict=strict)]
    if as_json:
        out_json([_document(one) for one in found])
    else:
        out("\n".join(line for one in found for line in lines_of(one)) or "no object in it")
    return exit_code(found)


def check(text: str, file: str, *, strict: bool = False) -> Iterator[Checked]:
    """Each object of a text; what a `List` holds counts one by one.

    Raises:
        ProfileError: no YAML, or a document that is no object.
    """
    for number, document in enumerate(read_documents(text, file), 1):
        where = f"document {number}"
        whole = _object(document, where, file)
        listed: Any = whole.get("items")
        if not isinstance(listed, list):
            yield _checked(whole, file, strict)
            continue
        for index, one in enumerate(cast("list[object]", listed)):
            yield _checked(_object(one, f"{where}: items[{index}]", file), file, strict)


def _object(found: object, where: str, file: str) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise ProfileError(where, f"must be an object, got {type(found).__name__}", file)
    whole = cast("dict[str, Any]", found)
    for key in ("metadata", "spec"):
        if not isinstance(whole.get(key, {}), dict | None):
            raise ProfileError(f"{where}: {key}", f"must be an object, got {type(whole[key]).__name__}", file)
    return whole


def _checked(manifest: dict[str, Any], file: str, strict: bool) -> Checked:
    kind, metadata = str(manifest.get("kind") or ""), part(manifest, "metadata")
    ours = strict or any(str(key).startswith(f"{labels.PREFIX}/") for key in part(metadata, "labels"))
    findings = tuple(lint(manifest, ours=ours)) if kind in SCHEMAS else None
    return Checked(file, kind, str(metadata.get("name") or metadata.get("generateName") or ""), findings)


def exit_code(found: Sequence[Checked]) -> int:
    """The worst of all verdicts; where nothing was there, nothing is known."""
    verdicts = {one.verdict for one in found}
    if "fail" in verdicts:
        return FAILED
    return UNKNOWN if "unknown" in verdicts or not verdicts else GOOD


def lines_of(one: Checked) -> list[str]:
    """The object in one line, and a line for each finding with what goes wrong otherwise."""
    head = f"{one.file}: {one.kind or 'no kind'} {one.name}".rstrip()
    if one.findings is None:
        return [f"{head}: unknown, not checked: only {', '.join(SCHEMAS)} are"]
    told = [f"  {item.path}: {item.message} ({item.rule}: {_why(item.rule, one.kind)})" for item in one.findings]
    return [f"{head}: {one.verdict}", *told]


def _why(rule: str, kind: str) -> str:
    """What goes wrong where a rule does not hold; what a Workflow applies is of another kind than the file."""
    rules = sorted((item for item in RULES if item.name == rule), key=lambda item: kind not in item.kinds)
    return rules[0].why if rules else "the API server refuses it"


def _document(one: Checked) -> dict[str, Any]:
    findings = [{"path": item.path, "rule": item.rule, "message": item.message} for item in one.findings or ()]
    return {"file": one.file, "kind": one.kind, "name": one.name, "verdict": one.verdict, "findings": findings}


def _text(file: str) -> str:
    if file == STANDARD_INPUT:
        return sys.stdin.read()
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ProfileError("FILE", f"cannot be read: {error}", file) from error
