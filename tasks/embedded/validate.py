"""Checks of manifests: every field is known, has its type, and is one that the embedded cluster runs.

Raises `Refused` with the path of the first field that is not. Workflows are checked by the interpreter's own tables.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from typing import Any

from profiles.errors import Refused
from tasks.embedded.engine.json_values import is_list, is_map
from tasks.embedded.engine.quantity import milli
from tasks.embedded.fields import KINDS, METADATA, NOT_RUN, Schema
from tasks.embedded.objects import API_VERSIONS, Object, section
from tasks.embedded.pod_rules import NAME, check_jobset, check_pod_spec

_LABEL = re.compile(r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$")
FIELD_PATHS = re.compile(
    r"^(metadata\.(name|namespace|uid|labels|annotations|(labels|annotations)\['[^']+'\])"
    r"|spec\.(nodeName|serviceAccountName)|status\.(podIP|podIPs|hostIP))$"
)


def validate(manifest: Object, namespace: str) -> None:
    """Check a manifest before anything is written.

    Raises:
        Refused: with the path of the field that is wrong and what to do.
    """
    kind = manifest.get("kind")
    if not isinstance(kind, str) or kind not in API_VERSIONS:
        raise Refused("kind", f"{kind!r} is none of {', '.join(sorted(API_VERSIONS))}")
    if kind in ("Job", "Workload"):
        raise Refused("kind", f"the embedded cluster does not run a {kind}; apply a JobSet")
    if manifest.get("apiVersion") != API_VERSIONS[kind]:
        raise Refused("apiVersion", f"{manifest.get('apiVersion')!r} is not {API_VERSIONS[kind]!r}")
    _metadata(manifest, kind, namespace)
    if kind in KINDS:
        check(manifest, KINDS[kind], "")
    match kind:
        case "Workflow":
            from tasks.embedded.engine.workflow import validate_workflow  # noqa: PLC0415 - large, seldom needed

            validate_workflow(manifest)
        case "Pod":
            check_pod_spec(section(manifest, "spec"), "spec")
        case "JobSet":
            check_jobset(manifest)
        case _:
            return


def _metadata(manifest: Object, kind: str, namespace: str) -> None:
    metadata = manifest.get("metadata")
    if not is_map(metadata):
        raise Refused("metadata", "missing; it needs a name")
    check(metadata, METADATA, "metadata")
    name = str(metadata.get("name") or str(metadata.get("generateName") or "").rstrip("-") + "-x")
    limit = 63 if kind in ("Workflow", "JobSet", "Pod") else 253
    if not NAME.match(name) or len(name) > limit:
        raise Refused("metadata.name", f"{name!r} is no name: a-z, 0-9 and - only, at most {limit} characters")
    if kind != "Node" and metadata.get("namespace", namespace) != namespace:
        raise Refused("metadata.namespace", f"{metadata['namespace']!r} is not this cluster's {namespace!r}")
    for key, value in section(metadata, "labels").items():
        if len(value) > 63 or (value and not _LABEL.match(value)):
            raise Refused(f"metadata.labels[{key}]", f"{value!r} is no label value: at most 63 of A-Z a-z 0-9 - _ .")


def check(value: Any, schema: Any, path: str) -> None:
    """Check a value against a schema of `fields`."""
    match schema:
        case str():
            _TYPES[schema.rstrip("!")](value, path)
        case [item]:
            if not is_list(value):
                raise Refused(path, f"a list is needed, not {_shown(value)}")
            for index, entry in enumerate(value):
                check(entry, item, f"{path}[{index}]")
        case _:
            _object(value, schema, path)


def _object(value: Any, schema: Schema, path: str) -> None:
    if not is_map(value):
        raise Refused(path, f"an object is needed, not {_shown(value)}")
    for key, entry in value.items():
        inner = f"{path}.{key}" if path else key
        if key not in schema:
            raise Refused(inner, _unknown(key, schema))
        if entry is not None:
            check(entry, schema[key], inner)
    for key, kind in schema.items():
        if isinstance(kind, str) and kind.endswith("!") and value.get(key) in (None, ""):
            raise Refused(f"{path}.{key}" if path else key, "missing")


def _unknown(key: str, schema: Schema) -> str:
    if key in NOT_RUN:
        return "the embedded cluster does not run this field; remove it, or use a Kubernetes cluster"
    near = difflib.get_close_matches(key, schema, n=1)
    return "unknown field" + (f"; did you mean {near[0]}?" if near else "")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _is(*kinds: type) -> Callable[[Any, str], None]:
    words = {str: "text", int: "a whole number", bool: "true or false", float: "a number", dict: "an object"}

    def checked(value: Any, path: str) -> None:
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise Refused(path, f"{words[kinds[0]]} is needed, not {_shown(value)}")

    return checked


def _texts(value: Any, path: str) -> None:
    if not is_list(value) or not all(isinstance(item, str) for item in value):
        raise Refused(path, f"a list of texts is needed, not {_shown(value)} (quote numbers)")


def _numbers(value: Any, path: str) -> None:
    if not is_list(value) or not all(isinstance(item, int) for item in value):
        raise Refused(path, f"a list of whole numbers is needed, not {_shown(value)}")


def _labels(value: Any, path: str) -> None:
    if not is_map(value):
        raise Refused(path, f"an object is needed, not {_shown(value)}")
    for key, entry in value.items():
        if not isinstance(entry, str):
            raise Refused(f"{path}[{key}]", f"text is needed, not {_shown(entry)} (quote it)")


def _quantity(value: Any, path: str) -> None:
    try:
        milli(value)
    except (ValueError, TypeError) as error:
        raise Refused(path, str(error)) from error


def _quantities(value: Any, path: str) -> None:
    if not is_map(value):
        raise Refused(path, f"an object is needed, not {_shown(value)}")
    for key, entry in value.items():
        _quantity(entry, f"{path}[{key}]")


def _path(value: Any, path: str) -> None:
    _is(str)(value, path)
    if not value.startswith("/"):
        raise Refused(path, f"{value!r} must begin with /")


def _inner_path(value: Any, path: str) -> None:
    _is(str)(value, path)
    if value.startswith("/") or ".." in value.split("/"):
        raise Refused(path, f"{value!r} must stay inside the volume: no leading / and no ..")


def _field_path(value: Any, path: str) -> None:
    _is(str)(value, path)
    if not FIELD_PATHS.match(value):
        raise Refused(path, f"{value!r} is none of metadata.name/namespace/uid/labels['x']/annotations['x'], "
                      "spec.nodeName, spec.serviceAccountName, status.podIP, status.hostIP")  # fmt: skip


_TYPES: Mapping[str, Callable[[Any, str], None]] = {
    "text": _is(str),
    "whole": _is(int),
    "flag": _is(bool),
    "number": _is(float, int),
    "texts": _texts,
    "numbers": _numbers,
    "labels": _labels,
    "quantity": _quantity,
    "quantities": _quantities,
    "path": _path,
    "inner-path": _inner_path,
    "field-path": _field_path,
    "free": lambda value, path: None,
}
