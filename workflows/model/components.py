"""Components in values: what a cluster is to get, what is there, and the note that is left of each in the cluster.

The note is a ConfigMap beside the workflow that installs: which version, as what, and how it served when it was asked
last. It outlives the workflow; whoever looks reads all notes by one list.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from profiles.bootstrap.components import ChartSource, ComponentProfile, ManifestsSource, filled
from workflows import labels
from workflows.model.manifest import Json, part
from workflows.wire import ServingReport, from_json

NAMESPACE = "primus-bootstrap"
"""Where the workflow that installs runs, and the notes are kept."""
NOTE = "primus-component-"
"""Beginning of a note's name; the component's follows."""
FINGERPRINT_CHARACTERS = 16


@dataclass(frozen=True)
class ChosenComponent:
    """A component as one cluster gets it."""

    profile: ComponentProfile
    values: Mapping[str, Any]
    """By dotted name, all of them."""
    sha256: str = ""
    """Digest of its source, from its profile or as the site's mirror says it; "": nobody says it, or it needs none."""

    @property
    def name(self) -> str:
        """Of the component."""
        return self.profile.name

    @property
    def fetched(self) -> bool:
        """Whether it comes from the mirror."""
        return isinstance(self.profile.source, ChartSource | ManifestsSource)

    @property
    def wanted(self) -> str:
        """Fingerprint of everything that makes it what it is."""
        profile = self.profile
        source = profile.source.model_dump(mode="json", exclude={"origin", "helm_image", "sha256"})
        images = {image.name: image.digest for image in profile.images}
        said = [profile.version, source, self.sha256, dict(self.values), images, profile.namespace, profile.crds]
        text = json.dumps(said, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:FINGERPRINT_CHARACTERS]

    def proof_parameters(self, nodes: int, cluster: str) -> dict[str, str]:
        """What its proof is told; parameters that nobody says are left out."""
        given = {"namespace": self.profile.namespace, "version": self.profile.version}
        known = {**self.values, **given, "nodes": nodes, "cluster": cluster}
        found: dict[str, Any] = filled(self.profile.proof.parameters, known)
        return {name: str(value) for name, value in found.items()}


@dataclass(frozen=True)
class InstalledComponent:
    """A component that is there, by its note."""

    name: str
    version: str
    wanted: str
    """Fingerprint of what it was installed as; "": it is being installed, or that failed."""
    report: ServingReport | None = None
    """How it served when it was asked last; None: it never was, or what was noted cannot be read."""


def note_name(component: str) -> str:
    """Name of a component's note."""
    return f"{NOTE}{component}"


def installed_of(notes: Iterable[Json]) -> dict[str, InstalledComponent]:
    """What is there by its notes (ConfigMaps with the label `workflows.labels.COMPONENT`), by name."""
    found: dict[str, InstalledComponent] = {}
    for note in notes:
        name = str(part(note, "metadata", "labels").get(labels.COMPONENT) or "")
        if name and part(note, "metadata").get("name") == note_name(name):
            data = part(note, "data")
            version, wanted = str(data.get("version") or ""), str(data.get("wanted") or "")
            found[name] = InstalledComponent(name, version, wanted, _report(str(data.get("report") or "")))
    return found


def _report(text: str) -> ServingReport | None:
    try:
        return from_json(ServingReport, text)
    except ValueError:
        return None
