"""The list of what is in an image, as CycloneDX: each component with version, licence and every file it has there.

Specification: CycloneDX 1.6, https://cyclonedx.org/docs/1.6/json/.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from deployments.images.contents import Component

OWN = "image"
"""Reference of the image itself: owner of what belongs to no component, such as the list of users."""
_SPDX = re.compile(r"(?:[A-Za-z0-9.\-+]+|LicenseRef-[\w.\-]+)(?: (?:AND|OR|WITH) [A-Za-z0-9.\-+]+)*")


def document(
    name: str, version: str, digest: str, components: Iterable[Component], places: Sequence[Mapping[str, str]]
) -> bytes:
    """The list as JSON.

    `digest` is that of the image's manifest, `places` the component of each file by its path, one mapping a layer.
    Components that own no file are left out.
    """
    owned: dict[str, set[str]] = {}
    for layer in places:
        for path, reference in layer.items():
            owned.setdefault(reference or OWN, set()).add(path)
    listed = {one.reference: one for one in components if one.reference in owned}
    image = {
        "type": "container",
        "bom-ref": OWN,
        "name": name,
        "version": version,
        "hashes": [{"alg": "SHA-256", "content": digest.removeprefix("sha256:")}],
        **_places(owned.get(OWN, set())),
    }
    return _text(
        {
            "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
            "bomFormat": "CycloneDX",
            "specVersion": "1.6",
            "version": 1,
            "metadata": {"component": image},
            "components": [_component(one, owned[one.reference]) for _, one in sorted(listed.items())],
        }
    )


def _component(found: Component, paths: set[str]) -> dict[str, Any]:
    hashes = [{"alg": "SHA-256", "content": found.digest}] if found.digest else []
    return {
        "type": "library",
        "bom-ref": found.reference,
        "name": found.name,
        "version": found.version,
        "purl": found.reference,
        **({"hashes": hashes} if hashes else {}),
        **({"licenses": _licences(found.licences)} if found.licences else {}),
        **_places(paths),
    }


def _licences(told: Sequence[str]) -> list[dict[str, Any]]:
    """One SPDX expression, or names: CycloneDX allows no mixture."""
    if len(told) == 1 and _SPDX.fullmatch(told[0]):
        return [{"expression": told[0]}]
    return [{"license": {"name": name}} for name in told]


def _places(paths: set[str]) -> dict[str, Any]:
    return {"evidence": {"occurrences": [{"location": path} for path in sorted(paths)]}} if paths else {}


def _text(value: dict[str, Any]) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()
