"""A site's own copy of Kubespray is what the profile pins, and its Ansible the one that it accepts."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from profiles.bootstrap.engines import Kubespray
from profiles.errors import Refused, Unavailable
from tasks.bootstrap import kubespray_source
from tasks.bootstrap.kubespray_source import KubesprayCopy, accepted_ansible, take_copy
from tests.support.fakes.kubespray_copies import archive_of, repository_of, stand_in

ENVIRONMENT = sys.prefix


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    return repository_of(tmp_path_factory.mktemp("origin"))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ansible takes a second to tell its version: what it tells is asked once, elsewhere."""

    def told(environment: Path) -> Version:
        del environment
        return Version("2.19.5")

    monkeypatch.setattr(kubespray_source, "ansible_version", told)


def _engine(source: dict[str, Any], version: str = "1.36.3") -> Kubespray:
    said = {"kind": "kubespray", "source": source, "environment": ENVIRONMENT, "version": version}
    return Kubespray.model_validate(said)


@pytest.mark.usefixtures("quick")
def test_a_commit_is_taken_once_and_again_where_somebody_changed_it(
    repository: tuple[Path, str], tmp_path: Path
) -> None:
    folder, commit = repository
    engine = _engine({"url": str(folder), "commit": commit})
    copy = take_copy(engine, tmp_path / "home")
    assert copy == KubesprayCopy(tmp_path / "home" / commit, Path(ENVIRONMENT))
    assert (copy.folder / "cluster.yml").read_text() == (folder / "cluster.yml").read_text()
    began = copy.folder.stat().st_ino
    assert take_copy(engine, tmp_path / "home").folder.stat().st_ino == began
    (copy.folder / "cluster.yml").write_text("- hosts: all\n")
    (copy.folder / "more.yml").write_text("- hosts: all\n")
    assert (take_copy(engine, tmp_path / "home").folder / "cluster.yml").read_text() != "- hosts: all\n"
    assert not (copy.folder / "more.yml").exists()
    assert [path.name for path in (tmp_path / "home").iterdir()] == [commit]


def test_a_commit_that_is_not_there_and_a_repository_that_is_not(repository: tuple[Path, str], tmp_path: Path) -> None:
    with pytest.raises(Refused, match="is no commit of"):
        take_copy(_engine({"url": str(repository[0]), "commit": "a" * 40}), tmp_path)
    with pytest.raises(Unavailable, match="cannot be fetched"):
        take_copy(_engine({"url": str(tmp_path / "nowhere"), "commit": "a" * 40}), tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("quick")
def test_an_archive_is_compared_before_it_is_unpacked(tmp_path: Path) -> None:
    path, digest = archive_of(tmp_path)
    home = tmp_path / "home"
    with pytest.raises(Refused, match=f"has {digest}: another archive"):
        take_copy(_engine({"archive": str(path), "sha256": "b" * 64}), home)
    assert list(home.iterdir()) == []
    copy = take_copy(_engine({"archive": str(path), "sha256": digest}), home)
    assert (copy.folder / "cluster.yml").is_file()
    path.unlink()
    assert take_copy(_engine({"archive": str(path), "sha256": digest}), home) == copy


def test_an_image_needs_a_runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = _engine({"image": "quay.io/kubespray/kubespray", "digest": f"sha256:{'c' * 64}"})
    there: dict[str, str] = {}
    monkeypatch.setattr(shutil, "which", there.get)
    with pytest.raises(Refused, match="podman or docker here, and neither is"):
        take_copy(engine, tmp_path)
    there["podman"] = "/usr/bin/podman"
    copy = take_copy(engine, tmp_path)
    assert (copy.image, copy.runtime) == (f"quay.io/kubespray/kubespray@sha256:{'c' * 64}", "podman")


def test_both_ranges_of_a_copy_hold(tmp_path: Path) -> None:
    accepted = accepted_ansible(stand_in(tmp_path))
    assert ("2.19.14" in accepted, "2.18.19" in accepted, "2.20.0" in accepted) == (True, False, False)


def test_an_ansible_outside_the_range_is_refused_before_anything_runs(tmp_path: Path) -> None:
    stand_in(tmp_path / "copy")
    (tmp_path / "copy" / "meta" / "runtime.yml").write_text('requires_ansible: ">=2.18.0,<2.19.0"\n')
    with pytest.raises(Refused, match=r"has ansible-core 2\.19\.\d+, and this copy of Kubespray accepts") as caught:
        kubespray_source.refuse_misfits(tmp_path / "copy", Path(ENVIRONMENT), "1.36.3")
    assert caught.value.path == "bootstrap.engine.environment"


def test_variables_that_a_copy_no_longer_knows_are_read_from_it(tmp_path: Path) -> None:
    copy = KubesprayCopy(stand_in(tmp_path / "copy"), Path(ENVIRONMENT))
    assert copy.removed == {"loadbalancer_apiserver", "apiserver_loadbalancer_domain_name"}
    assert KubesprayCopy(tmp_path, Path(ENVIRONMENT)).removed == frozenset()


def test_what_says_no_range_is_no_kubespray(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="is this Kubespray"):
        accepted_ansible(tmp_path)


def test_an_environment_without_ansible_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="says no version of ansible-core"):
        kubespray_source.refuse_misfits(stand_in(tmp_path / "copy"), tmp_path, "1.36.3")


@pytest.mark.usefixtures("quick")
def test_a_version_that_the_copy_does_not_know_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"1\.36\.9 is not known to this copy; the newest it knows: 1\.35\.4, 1\.36\.3"):
        kubespray_source.refuse_misfits(stand_in(tmp_path), Path(ENVIRONMENT), "1.36.9")
