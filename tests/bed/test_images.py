"""The product's images on real nodes, and runs with images that lack what the launcher needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from deployments.images import interpreter, oci
from deployments.images.__main__ import build
from deployments.images.layers import Layer
from profiles.vocabulary import Action, FaultClass, RunState
from tests.bed import nodes, up
from tests.bed.commands import run
from tests.bed.ground import BedGround
from tests.old_pythons import old_python
from tests.stages import Stage, incident, outcomes, stage, succeeded
from workflows import labels

pytestmark = pytest.mark.story
WITHOUT = "bed.local/busybox:1"
OLD = "bed.local/old-python:1"
BUILT = "bed.local/built-programs:1"


@pytest.fixture
def scene(prefect_server: str) -> Iterator[Stage]:
    with stage(prefect_server, BedGround()) as made:
        yield made


def imported(archive: Path) -> None:
    """Give an image to every real node."""
    bed = up.find()
    assert bed is not None
    for node in bed.options.real_nodes():
        client = ("ctr", "--address", nodes.socket(bed.folder, node), "-n", "k8s.io")
        run(*client, "images", "import", "--snapshotter", "overlayfs", archive)


def removed(name: str) -> None:
    """Take it away again."""
    bed = up.find()
    assert bed is not None
    for node in bed.options.real_nodes():
        run("ctr", "--address", nodes.socket(bed.folder, node), "-n", "k8s.io", "images", "remove", name, check=False)


def config_failure(scene: Stage, story: Any) -> str:
    """The words of a run that was given up for its image, after one attempt and with nothing left behind."""
    seen = incident(story)
    assert (seen.fault_class, seen.action) == (FaultClass.CONFIG, Action.GIVE_UP), scene.tell()
    assert story.run.state is RunState.FAILED, scene.tell()
    assert outcomes(story) == ["config"]
    assert seen.culprits == ()
    scene.no_orphans()
    return " ".join([*seen.evidence, seen.why, story.run.why])


def test_an_image_without_python(scene: Stage) -> None:
    story = scene.start(overrides=(f"roles.trainer.image={WITHOUT}",)).end()
    told = config_failure(scene, story)
    assert 'exec: "python3": executable file not found in $PATH' in told
    assert "the image has no python3 on its PATH: take one that has Python 3.9 or later" in story.run.why


def test_an_image_with_an_old_python_only(scene: Stage, tmp_path: Path) -> None:
    python = old_python("3.6") or old_python("3.7") or old_python("3.8")
    if python is None:
        pytest.skip("this machine has no Python older than 3.9")
    version = python.name.removeprefix("python")
    archive = tmp_path / "old.tar"
    oci.write(archive, {"Env": ["PATH=/usr/bin"]}, [old_layer(python, version)], [OLD])
    imported(archive)
    try:
        story = scene.start(overrides=(f"roles.trainer.image={OLD}",)).end()
    finally:
        removed(OLD)
    told = config_failure(scene, story)
    assert f"programs: needs Python 3.9 or later, this image has {version} (" in told
    assert "take an image with Python 3.9 or later as its python3" in story.run.why


def old_layer(python: Path, version: str) -> Layer:
    """A real interpreter of that version with its standard library: `python3`, and nothing else."""
    layer, top = Layer(), python.parent.parent
    layer.folder("/tmp", 0o1777)
    layer.file(f"/opt/python/bin/python{version}", python)
    layer.link("/usr/bin/python3", f"/opt/python/bin/python{version}")
    library = list(interpreter.files(top / "lib" / f"python{version}", interpreter.NOT_NEEDED))
    for path in library:
        layer.file(f"/opt/python/{path.relative_to(top)}", path)
    interpreter.add_libraries(layer, [python])
    return layer


def pods_of(scene: Stage, role: str) -> Sequence[dict[str, Any]]:
    found = scene.cluster.list("Pod", {labels.RUN: scene.run})
    return [pod for pod in found if pod["metadata"]["labels"].get(labels.ROLE) == role]


def test_the_built_image_brings_the_programs_and_coordinates(scene: Stage, tmp_path: Path) -> None:
    imported(build("programs", tmp_path, [BUILT]).archive)
    cluster = tmp_path / "built.yaml"
    cluster.write_text(f"extends: bed\nname: built\nprograms_image: {BUILT}\nrun_as_user: 0\n")
    try:
        scene.start(cluster=str(cluster), overrides=("steps=20",)).at_step(5)
        (coordinator,) = pods_of(scene, labels.COORDINATOR_ROLE)
        story = scene.end()
    finally:
        removed(BUILT)
    assert coordinator["spec"]["containers"][0]["image"] == BUILT
    assert succeeded(story), scene.tell()
    assert outcomes(story) == ["succeeded"]
    scene.no_orphans()
