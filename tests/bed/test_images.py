"""The product's images on real nodes, and runs with images that lack what the launcher needs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deployments.images import contents, oci
from deployments.images.__main__ import USER, build
from deployments.images.oci import Layer
from profiles.vocabulary import Action, FaultClass, RunState
from tests.bed import nodes, up
from tests.bed.commands import run
from tests.support.harness.old_pythons import old_python
from tests.support.harness.stages import Stage, incident, outcomes, succeeded
from workflows import labels

pytestmark = pytest.mark.story
WITHOUT = "bed.local/busybox:1"
OLD = "bed.local/old-python:1"
BUILT = "bed.local/built-programs:1"


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


@pytest.fixture(scope="module")
def cluster(standing: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A profile of the bed with the programs image as of now, run by its own user."""
    del standing
    folder = tmp_path_factory.mktemp("built")
    imported(build("programs", folder, [BUILT]).archive)
    profile = folder / "built.yaml"
    profile.write_text(f"extends: bed\nname: built\nprograms_image: {BUILT}\n")
    yield str(profile)
    removed(BUILT)


def started(scene: Stage, cluster: str, *overrides: str) -> Stage:
    """A run whose storage everybody may write to, as site administrators set it up."""
    scene.home.chmod(0o755)
    shared = scene.home / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    return scene.start(cluster=cluster, overrides=overrides)


def config_failure(scene: Stage) -> str:
    """The words of a run that was given up for its image, after one attempt and with nothing left behind."""
    story = scene.end()
    seen = incident(story)
    assert (seen.fault_class, seen.action) == (FaultClass.CONFIG, Action.GIVE_UP), scene.tell()
    assert story.run.state is RunState.FAILED, scene.tell()
    assert outcomes(story) == ["config"]
    assert seen.culprits == ()
    scene.no_orphans()
    return " ".join([*seen.evidence, story.run.why])


def test_an_image_without_python(scene: Stage, cluster: str) -> None:
    told = config_failure(started(scene, cluster, f"roles.trainer.image={WITHOUT}"))
    assert 'exec: "python3": executable file not found in $PATH' in told
    assert "the image has no python3 on its PATH: take one that has Python 3.9 or later" in told


def test_an_image_with_an_old_python_only(scene: Stage, cluster: str, tmp_path: Path) -> None:
    python = old_python("3.6") or old_python("3.7") or old_python("3.8")
    if python is None:
        pytest.skip("this machine has no Python older than 3.9: such an image was NOT tried")
    version = python.name.removeprefix("python")
    archive = tmp_path / "old.tar"
    oci.write(archive, {"Env": ["PATH=/usr/bin"]}, [old_layer(python, version)], [OLD])
    imported(archive)
    try:
        told = config_failure(started(scene, cluster, f"roles.trainer.image={OLD}"))
    finally:
        removed(OLD)
    assert f"programs: needs Python 3.9 or later, this image has {version} (" in told
    assert "take an image with Python 3.9 or later as its python3" in told


def old_layer(python: Path, version: str) -> Layer:
    """A real interpreter of that version with its standard library: `python3`, and nothing else."""
    layer, top = Layer(), python.parent.parent
    layer.folder("/tmp", 0o1777)
    layer.file(f"/opt/python/bin/python{version}", python)
    layer.link("/usr/bin/python3", f"/opt/python/bin/python{version}")
    library = list(contents.files(top / "lib" / f"python{version}", contents.NOT_NEEDED_OF_INTERPRETER))
    for path in library:
        layer.file(f"/opt/python/{path.relative_to(top)}", path)
    contents.add_libraries(layer, [python])
    return layer


def test_the_built_image_tests_nodes_brings_the_programs_and_coordinates(scene: Stage, cluster: str) -> None:
    started(scene, cluster, "steps=40").at_step(5)
    pods = scene.cluster.list("Pod", {labels.RUN: scene.run})
    coordinators = [pod for pod in pods if pod["metadata"]["labels"].get(labels.ROLE) == labels.COORDINATOR_ROLE]
    (coordinator,) = coordinators
    assert coordinator["spec"]["containers"][0]["image"] == BUILT
    assert scene.folder.stat().st_uid == USER
    story = scene.end()
    assert succeeded(story), scene.tell()
    assert outcomes(story) == ["succeeded"]
    scene.no_orphans()
