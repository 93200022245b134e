from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.decisions.bootstrap.mirror import finding_lines, mirror_items, mirror_lines, release_with_digests
from profiles.bootstrap.release import ReleaseFile, ReleaseImage
from profiles.errors import ProfileError
from profiles.loading.load import load_release
from profiles.vocabulary import VerdictWord
from tests.support.builders.components import chosen_of, cluster_with, shelf
from workflows.model.mirror import (
    SUMS,
    MirrorFinding,
    MirrorItem,
    judged_file,
    judged_image,
    manifest_path,
    sums_of,
    sums_text,
)

ONE, OTHER = "1" * 64, "2" * 64


def test_everything_that_a_site_needs_is_listed_once_with_who_needs_it() -> None:
    cluster = cluster_with(sorted(shelf()))
    items = mirror_items(cluster, load_release("kubernetes-1.35"), chosen_of(cluster, "amd", "nvidia"))
    names = [(item.is_image, item.name) for item in items]
    assert names == sorted(set(names))
    by_name = {item.name: item for item in items}
    assert by_name["kubernetes/v1.35.1/kubelet"].digest.startswith("e7343310")
    assert by_name["charts/gpu-operator-v25.3.4.tgz"].needed_by == ("nvidia-gpu-operator",)
    assert by_name["manifests/argo-workflows-v4.1.4.json"].kind == "manifests"
    assert "harbor" in by_name["docker.io/alpine/helm:3.22.0"].needed_by
    assert by_name["registry.k8s.io/kueue/kueue:v0.19.2"].is_image
    assert by_name[cluster.programs_image].is_image
    lines = mirror_lines(items)
    assert len(lines) == len(items)
    assert any("not known" in line and "runc" in line for line in lines)
    assert mirror_items(cluster, None, ())[0].name == cluster.programs_image


def test_two_digests_of_one_path_are_refused() -> None:
    cluster, release = cluster_with([]), load_release("kubernetes-1.35")
    twice = release.model_copy(update={"image_archives": (ReleaseFile(path="kubernetes/v1.35.1/kubelet", sha256=ONE),)})
    with pytest.raises(ProfileError, match="wanted with two digests"):
        mirror_items(cluster, twice, ())
    same = release.model_copy(
        update={"images": (ReleaseImage(name="a:1"), ReleaseImage(name="a:1", digest=f"sha256:{ONE}"))}
    )
    [image] = [item for item in mirror_items(cluster, same, ()) if item.name == "a:1"]
    assert image.digest == ONE


def test_images_that_come_in_archives_are_in_no_registry() -> None:
    cluster, release = cluster_with([]), load_release("kubernetes-1.36")
    archives = release.model_copy(update={"image_archives": (ReleaseFile(path="images.tar", sha256=ONE),)})
    images = [item.name for item in mirror_items(cluster, archives, ()) if item.is_image]
    assert images == [cluster.programs_image]
    assert len([item for item in mirror_items(cluster, release, ()) if item.is_image]) == 1 + len(release.images)


def test_a_release_takes_digests_that_it_does_not_say_from_the_mirror() -> None:
    release = load_release("kubernetes-1.36")
    told = release_with_digests(release, {"kubernetes/v1.36.3/kubelet": ONE, "other": OTHER})
    assert (told.files["kubelet"].sha256, told.files["kubectl"].sha256) == (ONE, None)
    with pytest.raises(ProfileError, match="one of them is not it"):
        release_with_digests(load_release("kubernetes-1.35"), {"kubernetes/v1.35.1/kubelet": ONE})


@given(st.dictionaries(st.from_regex(r"[a-z][a-z0-9/._-]{0,20}", fullmatch=True), st.sampled_from([ONE, OTHER])))
def test_sums_are_read_as_they_are_written(digests: dict[str, str]) -> None:
    assert sums_of(sums_text(digests)) == digests


@pytest.mark.parametrize(
    ("text", "says"),
    [("abc  x", f"{SUMS}:1"), (f"{ONE}  x\n{OTHER}  x", "another digest above"), (f"{'g' * 64}  x", "no line of")],
)
def test_sums_that_say_nothing_certain_are_refused(text: str, says: str) -> None:
    with pytest.raises(ProfileError, match=says):
        sums_of(text)


def test_sums_of_other_tools_are_read_too() -> None:
    assert sums_of(f"{ONE} *./a/b\n\n{OTHER}  c\n") == {"a/b": ONE, "c": OTHER}


@pytest.mark.parametrize(
    ("wanted", "found", "said", "word", "says"),
    [
        (ONE, ONE, {}, "pass", "there"),
        ("", ONE, {"x": ONE}, "pass", "there"),
        (ONE, OTHER, {}, "fail", "wanted is 1111"),
        ("", ONE, {"x": OTHER}, "fail", "wanted is 2222"),
        ("", ONE, {}, "fail", "nobody says its digest"),
        (ONE, ONE, {"x": OTHER}, "fail", "SHA256SUMS says 2222"),
    ],
)
def test_a_file_is_there_by_its_digest_alone(
    wanted: str, found: str, said: dict[str, str], word: str, says: str
) -> None:
    finding = judged_file(MirrorItem("file", "x", wanted), found, said)
    assert (finding.word, says in finding.why) == (word, True), finding


@pytest.mark.parametrize(
    ("name", "digest", "path"),
    [
        ("registry.k8s.io/kueue/kueue:v0.19.2", "", "/v2/kueue/kueue/manifests/v0.19.2"),
        ("registry.k8s.io/kueue/kueue:v0.19.2", ONE, f"/v2/kueue/kueue/manifests/sha256:{ONE}"),
        ("primus-flows/programs:0.1", "", "/v2/primus-flows/programs/manifests/0.1"),
        ("localhost:5000/a/b", "", "/v2/a/b/manifests/latest"),
    ],
)
def test_an_image_is_asked_for_by_digest_or_tag(name: str, digest: str, path: str) -> None:
    assert manifest_path(MirrorItem("image", name, digest)) == path


def test_what_is_missing_is_told_and_the_rest_counted() -> None:
    image = MirrorItem("image", "a:1", ONE)
    findings = [
        judged_image(image, ONE),
        judged_image(image, OTHER),
        MirrorFinding(image, VerdictWord.UNKNOWN, "it does not answer"),
    ]
    assert [one.word for one in findings] == ["pass", "fail", "unknown"]
    *told, count = finding_lines(findings)
    assert count == "1 of 3 are there as they must be"
    assert [line.split()[0] for line in told] == ["fail", "unknown"]
