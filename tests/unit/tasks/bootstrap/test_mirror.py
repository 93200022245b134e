from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from profiles.bootstrap.inventory import Mirror
from profiles.errors import ProfileError, Unavailable
from tasks.bootstrap.mirror import IMAGES, as_json, check_mirror, fill_mirror, mirror_bytes, said_digests
from tests.support.fakes.serving_stand_ins import Answer, Asked, serving
from workflows.model.mirror import SUMS, MirrorItem, sums_of

DATA = b"a program"
DIGEST = hashlib.sha256(DATA).hexdigest()
YAML = b"# two objects\nkind: Namespace\napiVersion: v1\nmetadata: {name: a}\n---\n---\nkind: Thing\napiVersion: v1\n"
FILE = MirrorItem("file", "bin/x", DIGEST, needed_by=("release",))


def fill(folder: Path, items: list[MirrorItem], *at_hand: Path) -> dict[str, str]:
    return {one.item.name: one.how for one in fill_mirror(items, folder, at_hand, lambda line: None)}


def test_fill_copies_what_is_at_hand_and_fetches_the_rest_and_goes_on_where_it_stopped(tmp_path: Path) -> None:
    hand, folder, asked = tmp_path / "hand", tmp_path / "mirror", list[str]()
    hand.mkdir()
    (hand / "x").write_bytes(DATA)
    (hand / "list.yaml").write_bytes(YAML)

    def origin(request: Asked) -> Answer:
        asked.append(request.path)
        return (200, {}, b"a chart") if request.path == "/chart.tgz" else (404, {}, b"")

    with serving(origin) as url:
        items = [
            FILE,
            MirrorItem("manifests", "manifests/list.json"),
            MirrorItem("chart", "charts/chart.tgz", "", f"{url}/chart.tgz"),
            MirrorItem("chart", "charts/gone.tgz", "", f"{url}/gone.tgz"),
            MirrorItem("chart", "charts/nowhere.tgz"),
            MirrorItem("image", "docker.io/a/b:1", "1" * 64),
        ]
        first = fill(folder, items, hand)
        assert first == {
            "bin/x": "copied",
            "manifests/list.json": "copied",
            "charts/chart.tgz": "fetched",
            "charts/gone.tgz": "missing",
            "charts/nowhere.tgz": "missing",
        }
        again = fill(folder, items)
    assert [name for name, how in again.items() if how == "there"] == [
        "bin/x",
        "manifests/list.json",
        "charts/chart.tgz",
    ]
    assert asked.count("/chart.tgz") == 1, "what is there is not fetched again"
    sums = sums_of((folder / SUMS).read_text())
    assert sums.keys() == {"bin/x", "manifests/list.json", "charts/chart.tgz"}
    for path, digest in sums.items():
        assert hashlib.sha256((folder / path).read_bytes()).hexdigest() == digest
    assert (folder / IMAGES).read_text() == f"docker.io/a/b:1@sha256:{'1' * 64}\n"
    assert [one["kind"] for one in json.loads((folder / "manifests/list.json").read_bytes())] == ["Namespace", "Thing"]


def test_fill_leaves_nothing_that_has_another_digest_and_mends_what_was_changed(tmp_path: Path) -> None:
    hand, folder = tmp_path / "hand", tmp_path / "mirror"
    hand.mkdir()
    (hand / "x").write_bytes(b"another program")
    assert fill(folder, [FILE], hand) == {"bin/x": "missing"}
    assert {path.name for path in folder.rglob("*") if path.is_file()} == {IMAGES, SUMS}
    assert not (folder / "bin" / "x").exists()
    (hand / "x").write_bytes(DATA)
    assert fill(folder, [FILE], hand) == {"bin/x": "copied"}
    (folder / "bin" / "x").write_bytes(b"bitten")
    assert fill(folder, [FILE], hand) == {"bin/x": "copied"}
    assert (folder / "bin" / "x").read_bytes() == DATA


def test_a_file_whose_digest_only_the_list_says_is_mended_too(tmp_path: Path) -> None:
    hand, folder, item = tmp_path / "hand", tmp_path / "mirror", MirrorItem("file", "x")
    hand.mkdir()
    (hand / "x").write_bytes(DATA)
    assert fill(folder, [item], hand) == {"x": "copied"}
    (folder / "x").write_bytes(b"bitten")
    assert fill(folder, [item], hand) == {"x": "copied"}


def test_other_bytes_than_the_list_says_are_not_taken(tmp_path: Path) -> None:
    hand, folder, item = tmp_path / "hand", tmp_path / "mirror", MirrorItem("file", "x")
    hand.mkdir()
    (hand / "x").write_bytes(DATA)
    assert fill(folder, [item], hand) == {"x": "copied"}
    (folder / "x").write_bytes(b"bitten")
    (hand / "x").write_bytes(b"another program")
    assert fill(folder, [item], hand) == {"x": "missing"}
    assert sums_of((folder / SUMS).read_text()) == {"x": DIGEST}


def test_a_list_that_is_no_text_is_told_by_its_place(tmp_path: Path) -> None:
    (tmp_path / SUMS).write_bytes(b"\xff\xfe")
    with pytest.raises(ProfileError, match=r"SHA256SUMS: is no text in UTF-8"):
        said_digests(Mirror(files_folder=str(tmp_path)))
    with pytest.raises(ProfileError, match="UTF-8"):
        fill(tmp_path, [FILE])
    with serving(lambda asked: (200, {}, b"\xff\xfe")) as url, pytest.raises(ProfileError, match="UTF-8"):
        said_digests(Mirror(files_url=url))


@pytest.mark.parametrize("text", ["", "no certificate", None])
def test_an_authority_that_is_none_is_told_by_its_field(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "ca.pem"
    if text is not None:
        path.write_text(text)
    mirror = Mirror(files_url="https://mirror.example.org", ca_file=str(path))
    for asks in (lambda: said_digests(mirror), lambda: check_mirror(mirror, [FILE])):
        with pytest.raises(ProfileError) as refused:
            asks()
        assert refused.value.field == "bootstrap.mirror.ca_file"


def test_fill_says_where_it_cannot_write(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ProfileError, match="cannot be written"):
        fill(tmp_path / "file" / "below", [FILE])


@pytest.mark.parametrize("text", [b"{", b"- a\n- b\n", b"", b"just words"])
def test_what_holds_no_objects_becomes_no_list(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"no YAML|no object"):
        as_json(text)


def test_equal_objects_become_equal_bytes() -> None:
    assert as_json(YAML) == as_json(
        b"apiVersion: v1\nmetadata: {name: a}\nkind: Namespace\n---\napiVersion: v1\nkind: Thing\n"
    )


def made_mirror(folder: Path) -> list[MirrorItem]:
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "x").write_bytes(DATA)
    (folder / "listed").write_bytes(DATA)
    (folder / "nobody").write_bytes(DATA)
    (folder / SUMS).write_text(f"{DIGEST}  listed\n")
    return [
        FILE,
        MirrorItem("file", "listed"),
        MirrorItem("file", "nobody"),
        MirrorItem("file", "gone", DIGEST),
        MirrorItem("file", "bin/x", "2" * 64),
    ]


def test_check_of_a_folder_names_what_is_not_there(tmp_path: Path) -> None:
    items = made_mirror(tmp_path)
    words = [one.word for one in check_mirror(Mirror(files_folder=str(tmp_path)), items)]
    assert words == ["pass", "pass", "fail", "fail", "fail"]
    assert said_digests(Mirror(files_folder=str(tmp_path))) == {"listed": DIGEST}
    assert said_digests(Mirror()) == {}


def test_check_asks_the_mirror_and_its_registry(tmp_path: Path) -> None:
    items = made_mirror(tmp_path)
    manifest, broken = b'{"schemaVersion": 2}', [False]
    known = hashlib.sha256(manifest).hexdigest()

    def mirror(asked: Asked) -> Answer:
        if broken[0]:
            return 503, {}, b""
        if asked.path.startswith("/v2/"):
            assert "application/vnd.oci.image.manifest.v1+json" in asked.headers["Accept"]
            return (200, {}, manifest) if "/a/b/manifests/" in asked.path else (404, {}, b"")
        path = tmp_path / asked.path.removeprefix("/files/")
        return (200, {}, path.read_bytes()) if path.is_file() else (404, {}, b"")

    images = [
        MirrorItem("image", "docker.io/a/b:1"),
        MirrorItem("image", "docker.io/a/b:1", known),
        MirrorItem("image", "docker.io/a/b:1", "3" * 64),
        MirrorItem("image", "docker.io/a/c:1"),
    ]
    with serving(mirror) as url:
        site = Mirror(files_url=f"{url}/files", registry=url.removeprefix("http://"), registry_insecure=True)
        words = [one.word for one in check_mirror(site, [*items, *images])]
        assert words == ["pass", "pass", "fail", "fail", "fail", "pass", "pass", "fail", "fail"]
        assert mirror_bytes(site, "listed", DIGEST) == DATA
        for path, digest, says in (
            ("listed", "", "nobody says"),
            ("listed", "2" * 64, "wanted is"),
            ("gone", DIGEST, "has no"),
        ):
            with pytest.raises(ProfileError, match=says):
                mirror_bytes(site, path, digest)
        broken[0] = True
        assert {one.word for one in check_mirror(site, [*items, *images])} == {"unknown"}
        with pytest.raises(Unavailable, match="503"):
            mirror_bytes(site, "listed", DIGEST)
    assert {one.word for one in check_mirror(site, items)} == {"unknown"}, "nobody answers there any more"
    with pytest.raises(Unavailable):
        said_digests(site)
