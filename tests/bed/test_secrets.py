"""Secrets stay where they are: what is planted in them is in no other object, no log, no file, and no other's hands.

Planted are a password that a profile reads from a Secret, and the tokens of two attempts of one run, which the product
makes itself. They are looked for as they are, and as base64 at any offset.
"""

from __future__ import annotations

import secrets
from base64 import b64decode, b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from profiles.workspace import WorkspaceProfile
from tests.bed import samples, up
from tests.bed.api import Manifest, RefusedError
from tests.bed.commands import until
from tests.bed.ground import BedGround
from tests.bed.up import Bed
from tests.support.harness.stages import PROFILE, Stage, outcomes, stage, succeeded
from workflows import labels
from workflows.platform.workspace import PIPELINES

pytestmark = pytest.mark.story
SPACE, OTHER = "training", "bed-team-secrets"
PLANTED = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "bed-planted", "namespace": SPACE}}
ASKED = (
    ("GET", "/api/v1/namespaces/training/secrets/bed-planted"),
    ("GET", "/api/v1/namespaces/training/secrets"),
    ("GET", "/api/v1/namespaces/training/pods"),
    ("GET", "/api/v1/namespaces/training/pods/story:29400/proxy/status"),
    ("GET", "/apis/argoproj.io/v1alpha1/namespaces/training/workflows"),
    ("GET", "/apis/jobset.x-k8s.io/v1alpha2/namespaces/training/jobsets"),
    ("DELETE", "/apis/jobset.x-k8s.io/v1alpha2/namespaces/training/jobsets/story-a1"),
    ("POST", "/apis/argoproj.io/v1alpha1/namespaces/training/workflowtaskresults"),
)
"""What a pod of another workspace asks for."""
ASKING = """
import ssl, sys, urllib.error, urllib.request
base = "/var/run/secrets/kubernetes.io/serviceaccount"
context = ssl.create_default_context(cafile=base + "/ca.crt")
token = open(base + "/token").read()
for line in sys.argv[2:]:
    method, path = line.split()
    headers = {"Authorization": "Bearer " + token, "Content-Type": "application/json"}
    body = b"{}" if method == "POST" else None
    request = urllib.request.Request(sys.argv[1] + path, method=method, headers=headers, data=body)
    try:
        print(urllib.request.urlopen(request, context=context, timeout=20).status, line)
    except urllib.error.HTTPError as error:
        print(error.code, line)
"""


@dataclass(frozen=True)
class Needles:
    """Texts that must not be found."""

    words: dict[str, str]
    """What each of them is, by its name."""

    def found(self, text: bytes) -> list[str]:
        """Names of those that are in it."""
        return [name for name, word in self.words.items() if any(form in text for form in forms(word))]


def forms(word: str) -> list[bytes]:
    """The word, and the part of its base64 that does not depend on what stands around it, at each offset."""
    plain = word.encode()
    shifted = [b64encode(b"\0" * offset + plain).rstrip(b"=") for offset in range(3)]
    return [plain, *(text[4 if offset else 0 : -3] for offset, text in enumerate(shifted))]


@dataclass(frozen=True)
class Searched:
    """A run that has ended, and what was found of its secrets on the way."""

    needles: Needles
    secrets: list[str]
    """Needles found in Secrets: all of them, else nothing was looked for."""
    objects: list[tuple[str, str]]
    """Resource and needle."""
    kinds: int
    """How many resources were listed."""
    logs: list[tuple[str, str]]
    pods: int
    files: list[tuple[str, str]]
    sizes: dict[str, int]
    """Bytes read of each file."""
    refused: dict[str, int]
    """What the coordinator of the second attempt answers to each token."""


@pytest.fixture(scope="module")
def searched(prefect_server: str, standing: None) -> Iterator[Searched]:
    """A run with a password and two attempts; its objects are searched while it trains, its files afterwards."""
    del standing
    bed = up.find()
    assert bed is not None
    bed.settle()
    begin = {path: path.stat().st_size for path in bed.folder.logs.glob("*.log")}
    password = secrets.token_urlsafe(32)
    bed.api.ensure({**PLANTED, "stringData": {"password": password}})
    try:
        with stage(prefect_server, BedGround()) as scene:
            with scene.start(profile=str(with_password(scene.home)), overrides=("steps=400",)).held_at(10):
                first = token(bed, 1)
                scene.fault("kill-rank:1")
            scene.until(lambda story: len(story.attempts) == 2 and bool(story.attempts[1].submitted_at), "attempt 2")
            scene.at_step(20)
            needles = Needles({"password": password, "token of a1": first, "token of a2": token(bed, 2)})
            refused = {name: called(scene, word) for name, word in needles.words.items()}
            logs = pod_logs(bed)
            kinds = {path: said(bed, path) for path in resources(bed)}
            story = scene.end()
            assert succeeded(story), scene.tell()
            assert len(outcomes(story)) == 2, scene.tell()
            files = {path: 0 for path in scene.home.rglob("*") if path.is_file()} | begin
            texts = {str(path): read(path, offset) for path, offset in files.items()}
            yield Searched(
                needles,
                needles.found(kinds.pop("/api/v1/secrets")),
                hits(needles, kinds),
                len(kinds),
                hits(needles, logs),
                len(logs),
                hits(needles, texts),
                {path: len(text) for path, text in texts.items()},
                refused,
            )
    finally:
        bed.api.delete(PLANTED)


def with_password(home: Path) -> Path:
    """The stories' profile with a variable that is read from a Secret."""
    profile = yaml.safe_load(PROFILE.read_text())
    profile["roles"][0]["secret_environment"] = [{"name": "PASSWORD", "secret": "bed-planted", "key": "password"}]
    path = home / "with-password.yaml"
    path.write_text(yaml.safe_dump(profile))
    return path


def token(bed: Bed, attempt: int) -> str:
    """Of an attempt's coordinator."""
    found = bed.api.get(f"/api/v1/namespaces/{SPACE}/secrets/{labels.secret_name('story', attempt)}")
    return b64decode(found["data"]["token"]).decode()


def resources(bed: Bed) -> list[str]:
    """Paths of all lists that the API server serves."""
    versions = [f"/apis/{group['preferredVersion']['groupVersion']}" for group in bed.api.get("/apis")["groups"]]
    return [
        f"{version}/{one['name']}"
        for version in ("/api/v1", *versions)
        for one in bed.api.get(version)["resources"]
        if "list" in one["verbs"]
    ]


def said(bed: Bed, path: str) -> bytes:
    """All objects of a resource, as the server tells them: annotations, status and managed fields too."""
    return repr(bed.api.get(path)).encode()


def pod_logs(bed: Bed) -> dict[str, bytes]:
    """What each container of the run's pods printed; those that have not begun printed nothing."""
    found: dict[str, bytes] = {}
    for pod in samples.pods(bed, SPACE, f"{labels.RUN}=story"):
        name, spec = pod["metadata"]["name"], pod["spec"]
        for container in [*spec.get("initContainers", []), *spec["containers"]]:
            path = f"/api/v1/namespaces/{SPACE}/pods/{name}/log?container={container['name']}"
            try:
                found[f"{name}/{container['name']}"] = str(bed.api.get(path)).encode()
            except RefusedError as refused:
                if refused.status not in (400, 404):
                    raise
    return found


def called(scene: Stage, word: str) -> int:
    """What the living coordinator answers to a token."""
    ours = {labels.RUN: "story", labels.ROLE: labels.COORDINATOR_ROLE, labels.ATTEMPT: "2"}
    [pod] = scene.cluster.list("Pod", ours)
    name = pod["metadata"]["name"]
    return scene.cluster.call(name, labels.COORDINATOR_PORT, "GET", "/status", token=word).status


def read(path: Path, offset: int) -> bytes:
    """A file from there on; one that was put away in between from its beginning."""
    with path.open("rb") as file:
        file.seek(offset if path.stat().st_size >= offset else 0)
        return file.read()


def hits(needles: Needles, texts: dict[str, bytes]) -> list[tuple[str, str]]:
    """Where which of them was found."""
    return [(where, name) for where, text in texts.items() for name in needles.found(text)]


def test_what_is_looked_for_is_there(searched: Searched) -> None:
    assert searched.secrets == list(searched.needles.words), "in Secrets, as base64"
    assert Needles({"a": "wanted-word-1"}).found(b'{"x":"' + b64encode(b"ab wanted-word-1 c") + b'"}') == ["a"]
    assert Needles({"a": "wanted-word-1"}).found(b"wanted-word-2") == []


def test_no_other_object_holds_a_secret(searched: Searched) -> None:
    assert searched.kinds > 60, "the list is wide"
    assert searched.objects == []


def test_no_pod_prints_one(searched: Searched) -> None:
    assert searched.pods >= 5
    assert searched.logs == []


def test_no_file_holds_one(searched: Searched) -> None:
    """Neither the run's folder, the ledger, the drivers' logs, nor any log of the bed, the audit log among them."""
    read_of = {Path(path).name: size for path, size in searched.sizes.items()}
    assert {"audit.log", "workflow-controller.log", "kubelet-node-0.log"} <= {name for name, n in read_of.items() if n}
    assert any(name.startswith("ledger") and size for name, size in read_of.items()), sorted(read_of)
    assert any(name == "rank-0.log" and size for name, size in read_of.items())
    assert searched.files == []


def test_a_coordinator_takes_its_own_token_only(searched: Searched) -> None:
    assert searched.refused == {"password": 401, "token of a1": 401, "token of a2": 200}


def test_a_pod_of_another_workspace_reaches_nothing(bed: Bed) -> None:
    """With the widest rights that a pod has there: the pipelines' own."""
    lines = [f"{method} {path}" for method, path in ASKED]
    spec = samples.pod_spec(samples.PYTHON, ["python3", "-c", ASKING, bed.options.server, *lines])
    asks: Manifest = samples.pod("asks", OTHER, {**spec, "serviceAccountName": PIPELINES})
    profile = WorkspaceProfile(name=OTHER, queue=samples.QUEUE, flavors=(samples.played(1),), pod_security="privileged")
    bed.api.ensure({**PLANTED, "stringData": {"password": "nothing"}})
    try:
        with samples.workspaces(bed, profile):
            bed.api.ensure(asks)
            samples.wait_phase(bed, asks, "Succeeded")
            answers = [line for line in samples.log(bed, OTHER, "asks").splitlines() if line]
    finally:
        bed.api.delete(PLANTED)
        until("the workspace gone", lambda: bed.find(samples.namespace(OTHER)) is None, samples.LIMIT_S, 0.3)
    assert answers == [f"403 {line}" for line in lines]
