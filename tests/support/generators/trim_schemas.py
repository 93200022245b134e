"""Make workflows/schemas/*.json from the definitions of Argo Workflows, JobSet, Kubeflow and Kubernetes itself.

Run by hand when a version changes; workflows/schemas/README.md has the commands.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

OPENAPI = "api/openapi-spec/swagger.json"
TARGET = Path(__file__).parents[3] / "workflows" / "schemas"
SOURCES = {
    "argo-workflow.json": ("argo-workflows", "manifests/base/crds/full/argoproj.io_workflows.yaml"),
    "jobset.json": ("jobset", "config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml"),
    "trainjob.json": ("kubeflow/trainer", "manifests/base/crds/trainer.kubeflow.org_trainjobs.yaml"),
    "trainingruntime.json": ("kubeflow/trainer", "manifests/base/crds/trainer.kubeflow.org_trainingruntimes.yaml"),
    "pytorchjob.json": ("training-operator", "manifests/base/crds/kubeflow.org_pytorchjobs.yaml"),
    "job.json": ("kubernetes", f"{OPENAPI}#io.k8s.api.batch.v1.Job"),
    "service.json": ("kubernetes", f"{OPENAPI}#io.k8s.api.core.v1.Service"),
}
"""Schema -> word in the folder's name of the module, file in it; for Kubernetes' own kinds also the definition."""
QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
KEPT = (
    *("type", "enum", "pattern", "required", "minimum", "maximum", "minLength", "maxLength"),
    *("minItems", "maxItems", "minProperties", "maxProperties"),
)
"""Keywords that mean the same in JSON Schema. Descriptions, formats, defaults, list types and CEL rules are dropped."""
SHARED_BYTES = 60
"""A part of at least so many bytes that occurs twice becomes a definition."""
TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
METADATA = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        **{key: {"type": "string"} for key in ("name", "generateName", "namespace")},
        "labels": TEXTS,
        "annotations": TEXTS,
    },
}


def trimmed(schema: dict[str, Any]) -> dict[str, Any]:
    """One part of a structural schema as strict JSON Schema: an object takes only the fields that it names."""
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"], **({"pattern": schema["pattern"]} if "pattern" in schema else {})}
    result = {key: schema[key] for key in KEPT if key in schema}
    if "properties" in schema:
        result["properties"] = {name: trimmed(part) for name, part in schema["properties"].items()}
    if "items" in schema:
        result["items"] = trimmed(schema["items"])
    more = schema.get("additionalProperties")
    if isinstance(more, dict):
        result["additionalProperties"] = trimmed(more)
    elif schema.get("type") == "object" and not schema.get("x-kubernetes-preserve-unknown-fields"):
        result["additionalProperties"] = False
    if schema.get("nullable") and isinstance(result.get("type"), str):
        result["type"] = [result["type"], "null"]
    return result


def shared(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with every large part that occurs twice written once, under `$defs`."""
    counts: Counter[str] = Counter()
    _count(schema, counts)
    names = {text: str(number) for number, text in enumerate(sorted(text for text in counts if counts[text] > 1))}
    definitions: dict[str, Any] = {}
    body = _replaced(schema, names, definitions)
    return {**body, "$defs": {name: definitions[name] for name in sorted(definitions, key=int)}}


def _text(part: Any) -> str:
    return json.dumps(part, sort_keys=True, separators=(",", ":"))


def _count(part: Any, counts: Counter[str]) -> None:
    """Counts parts; below one that was seen already nothing is counted again, since it will be written once."""
    text = _text(part)
    if len(text) < SHARED_BYTES:
        return
    counts[text] += 1
    if counts[text] == 1:
        for child in _children(part):
            _count(child, counts)


def _children(part: dict[str, Any]) -> list[Any]:
    more = part.get("additionalProperties")
    own = [part["items"]] if "items" in part else []
    return [*part.get("properties", {}).values(), *own, *([more] if isinstance(more, dict) else [])]


def _replaced(part: Any, names: dict[str, str], definitions: dict[str, Any], *, top: bool = True) -> Any:
    name = None if top else names.get(_text(part))
    if name in definitions:
        return {"$ref": f"#/$defs/{name}"}
    result = dict(part)
    if "properties" in part:
        result["properties"] = {
            key: _replaced(child, names, definitions, top=False) for key, child in part["properties"].items()
        }
    for key in ("items", "additionalProperties"):
        if isinstance(part.get(key), dict):
            result[key] = _replaced(part[key], names, definitions, top=False)
    if name is None:
        return result
    definitions[name] = result
    return {"$ref": f"#/$defs/{name}"}


def _kind(text: str) -> tuple[str, str, dict[str, Any]]:
    """API version, kind and whole schema of a custom resource definition."""
    document = yaml.load(text, Loader=yaml.CSafeLoader)["spec"]
    version = document["versions"][0]
    return f"{document['group']}/{version['name']}", document["names"]["kind"], version["schema"]["openAPIV3Schema"]


def _own_kind(text: str, name: str) -> tuple[str, str, dict[str, Any]]:
    """The same of a kind that Kubernetes brings along."""
    definitions = json.loads(text)["definitions"]
    names = definitions[name]["x-kubernetes-group-version-kind"][0]
    version = "/".join(filter(None, (names["group"], names["version"])))
    return version, names["kind"], _resolved(definitions[name], definitions)


def _resolved(part: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """The part with definitions in place of references to them, in the words of custom resource definitions."""
    if "$ref" in part:
        name = part["$ref"].removeprefix("#/definitions/")
        found = _resolved(definitions[name], definitions)
        return {**found, "x-kubernetes-int-or-string": True} if name == QUANTITY else found
    result = dict(part)
    if part.get("format") == "int-or-string":
        result["x-kubernetes-int-or-string"] = True
    if "properties" in part:
        result["properties"] = {key: _resolved(child, definitions) for key, child in part["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(part.get(key), dict):
            result[key] = _resolved(part[key], definitions)
    return result


def main(modules: list[str]) -> None:
    """Write the schemas of each module folder, e.g. `…/github.com/argoproj/argo-workflows/v4@v4.1.4`."""
    for folder in map(Path, modules):
        for name, (word, source) in SOURCES.items():
            if word not in str(folder):
                continue
            path, _, definition = source.partition("#")
            text = (folder / path).read_text()
            api, kind, whole = _own_kind(text, definition) if definition else _kind(text)
            body = {
                "type": "object",
                "additionalProperties": False,
                "required": ["apiVersion", "kind", "metadata", "spec"],
                "properties": {
                    "apiVersion": {"const": api},
                    "kind": {"const": kind},
                    "metadata": METADATA,
                    "spec": trimmed(whole["properties"]["spec"]),
                },
            }
            note = f"From {folder.name.partition('@')[2]} of {word}, Apache-2.0; see README.md here."
            TARGET.joinpath(name).write_text(
                json.dumps({"$comment": note, **shared(body)}, separators=(",", ":")) + "\n"
            )
            print(name, TARGET.joinpath(name).stat().st_size)


if __name__ == "__main__":
    main(sys.argv[1:])
