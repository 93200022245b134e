"""Programs of the bed are taken from archives only where they are just what would be compiled here."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pytest

from tests.bed import building, debian, layout, manifests, packing, prebuilt
from tests.bed.layout import Cache
from tests.bed.prebuilt import PLATFORM, Archive, UnfitError, refusal

DNS = prebuilt.named("dns")
PROGRAM = b"#!/bin/sh\necho a program\n"
KNOWN = {file: "0" * 64 for archive in prebuilt.ARCHIVES for file in archive.files}


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Module folders of our own."""
    made = tmp_path / "modules"
    for name in ("argo", "dns", "validate"):
        (made / name).mkdir(parents=True)
        (made / name / "main.go").write_text(f"package {name}\n", encoding="utf-8")
    monkeypatch.setattr(layout, "MODULES", made)
    return made


@pytest.fixture
def cache(tmp_path: Path, modules: Path, monkeypatch: pytest.MonkeyPatch) -> Cache:
    """An empty cache, and beside it an archive of one program whose digest is committed."""
    found = Cache(tmp_path / "cache")
    found.make()
    (tmp_path / "archives").mkdir()
    monkeypatch.setenv("PRIMUS_BED_PREBUILT", str(tmp_path / "archives"))
    monkeypatch.setattr(prebuilt, "this_platform", lambda: PLATFORM)
    (found.binaries / "dns").write_bytes(PROGRAM)
    packing.pack_one(found, DNS, tmp_path / "archives" / DNS.file_name)
    digest = prebuilt.digest_of(found.binaries / "dns")
    (modules / prebuilt.DIGESTS).write_text(f"# a comment\n{digest}  dns\n", encoding="utf-8")
    (found.binaries / "dns").unlink()
    return found


def taken(cache: Cache) -> list[str]:
    """What is said when the program is wanted."""
    said: list[str] = []
    prebuilt.take(cache, [DNS], said.append)
    assert list(cache.root.glob(".*")) == [], "nothing half done is left"
    return said


def untouched(cache: Cache) -> bool:
    """Nothing is there that looks built."""
    return not DNS.done(cache) and not (cache.binaries / "dns").exists()


@pytest.mark.parametrize(
    ("here", "offered", "known", "reason"),
    [
        (PLATFORM, [DNS.file_name, "README.md"], KNOWN, ""),
        ("linux/aarch64", [DNS.file_name], KNOWN, "made for linux/amd64, this is linux/aarch64"),
        ("darwin/amd64", [DNS.file_name], KNOWN, "made for linux/amd64, this is darwin/amd64"),
        (PLATFORM, [], KNOWN, f"no {DNS.file_name}"),
        (PLATFORM, ["dns-0123.tar.xz", "trainer-0.tar.xz"], KNOWN, f"no {DNS.file_name}, only dns-0123.tar.xz"),
        (PLATFORM, [DNS.file_name], {"bed": "0"}, "no digest in PREBUILT.sha256 of dns"),
    ],
)
def test_an_archive_is_used_where_key_platform_and_digests_fit(
    here: str, offered: Collection[str], known: dict[str, str], reason: str
) -> None:
    assert refusal(DNS, here, offered, known) == reason


def test_a_change_of_a_source_asks_for_another_archive(modules: Path) -> None:
    before = {archive.name: archive.file_name for archive in prebuilt.ARCHIVES}
    assert prebuilt.key(["argo"]) != prebuilt.key(["argo", "validate"])
    (modules / "validate" / "main.go").write_text("package main\n", encoding="utf-8")
    changed = {archive.name for archive in prebuilt.ARCHIVES if archive.file_name != before[archive.name]}
    assert changed == {"validate", "manifests"}


def test_digests_are_in_no_key(modules: Path) -> None:
    before = layout.source_key(), layout.added_key("validate"), prebuilt.key(["argo", "dns"])
    (modules / prebuilt.DIGESTS).write_text("00  dns\n", encoding="utf-8")
    assert (layout.source_key(), layout.added_key("validate"), prebuilt.key(["argo", "dns"])) == before


def test_the_key_is_the_one_that_archives_are_named_after(modules: Path) -> None:
    (modules / "dns" / "go.mod").write_text("module dns\n", encoding="utf-8")
    # printf 'dns/go.mod\0module dns\n\0dns/main.go\0package dns\n\0' | sha256sum
    assert prebuilt.key(["dns"]) == "32d5cdd6d75ddc8d"


def test_what_fits_is_unpacked_and_needs_no_compiler(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")  # no Go
    assert building.have(cache, "dns").read_bytes() == PROGRAM
    assert (cache.binaries / "dns").stat().st_mode & 0o777 == 0o755
    assert DNS.done(cache)
    assert [family for family in building.missing(cache) if family[0].name == "dns"] == []


def test_what_was_taken_is_said(cache: Cache) -> None:
    [said] = taken(cache)
    assert said.startswith("prebuilt, unpacked from ")
    assert said.endswith(": dns")


def test_a_wrong_digest_is_compiled_and_said(cache: Cache, modules: Path) -> None:
    (modules / prebuilt.DIGESTS).write_text(f"{'1' * 64}  dns\n", encoding="utf-8")
    assert taken(cache) == [f"not prebuilt: dns (dns in {DNS.file_name} has another digest than PREBUILT.sha256 says)"]
    assert untouched(cache)
    assert "dns" in {component.name for family in building.missing(cache) for component in family}


@pytest.mark.parametrize("content", [b"", b"no archive", None])
def test_a_broken_archive_is_compiled_and_said(cache: Cache, content: bytes | None) -> None:
    path = prebuilt.folder() / DNS.file_name
    path.write_bytes(path.read_bytes()[:80] if content is None else content)
    [said] = taken(cache)
    assert f"not prebuilt: dns ({DNS.file_name} cannot be unpacked: " in said
    assert untouched(cache)


def test_an_archive_without_the_program_is_compiled_and_said(cache: Cache) -> None:
    with tarfile.open(prebuilt.folder() / DNS.file_name, "w:xz") as packed:
        packed.addfile(tarfile.TarInfo("other"), io.BytesIO())
    assert taken(cache) == [f"not prebuilt: dns ({DNS.file_name} has no dns)"]
    assert untouched(cache)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE])
def test_a_program_that_is_no_file_is_not_unpacked(cache: Cache, kind: bytes) -> None:
    entry = tarfile.TarInfo("dns")
    entry.type, entry.linkname = kind, "/bin/true"
    with tarfile.open(prebuilt.folder() / DNS.file_name, "w:xz") as packed:
        packed.addfile(entry)
    assert taken(cache) == [f"not prebuilt: dns ({DNS.file_name} has no dns)"]
    assert untouched(cache)


def test_nothing_else_in_an_archive_is_unpacked(cache: Cache, tmp_path: Path) -> None:
    with tarfile.open(prebuilt.folder() / DNS.file_name, "w:xz") as packed:
        for name in ("../escaped", "beside", "dns"):
            entry = tarfile.TarInfo(name)
            entry.size = len(PROGRAM)
            packed.addfile(entry, io.BytesIO(PROGRAM))
    assert "prebuilt, unpacked" in taken(cache)[0]
    assert {path.name for path in tmp_path.iterdir()} == {"archives", "cache", "modules"}
    assert [path.name for path in cache.binaries.iterdir()] == ["dns"]


def test_an_interrupted_unpack_goes_on_cleanly(cache: Cache) -> None:
    half = cache.root / ".dns.half"
    half.mkdir()
    (half / "dns").write_bytes(PROGRAM[:5])
    (cache.binaries / "dns").write_bytes(PROGRAM[:7])  # no stamp: the one before ended here
    assert [archive.name for archive in prebuilt.missing(cache) if archive.name == "dns"] == ["dns"]
    assert "prebuilt, unpacked" in taken(cache)[0]
    assert (cache.binaries / "dns").read_bytes() == PROGRAM
    assert DNS.done(cache)


def test_of_two_programs_both_are_taken_or_none(cache: Cache) -> None:
    two = replace(DNS, files=("dns", "second"))
    with pytest.raises(UnfitError, match="has no second"):
        prebuilt.unpack(prebuilt.folder() / DNS.file_name, two, {**prebuilt.digests(), "second": "0"}, cache)
    assert untouched(cache)


def test_no_folder_is_one_line(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRIMUS_BED_PREBUILT", "/nowhere/at/all")
    said: list[str] = []
    prebuilt.take(cache, prebuilt.missing(cache), said.append)
    assert said == [
        "not prebuilt: kubernetes, controllers, argo, validate, dns, pause, manifests"
        " (there is no folder /nowhere/at/all)"
    ]


def test_without_a_compiler_what_is_not_prebuilt_is_refused(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRIMUS_BED_PREBUILT", "/nowhere/at/all")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(debian.BedError, match="no Go on PATH"):
        building.have(cache, "dns")


def test_the_program_of_an_added_folder_replaces_the_one_of_other_sources(cache: Cache) -> None:
    archive = Archive("validate", ("argo", "validate"), ("validate",), added="validate")
    (cache.stamps / "validate-0123").write_text("1.0\n")
    cache.stamp(archive.stamps[0], archive.added, 1.0)
    assert [path.name for path in cache.stamps.iterdir()] == archive.stamps


def test_every_program_and_manifest_is_in_an_archive_and_has_a_digest() -> None:
    components = [one for family in [*building.components(), building.optional()] for one in family]
    programs = {file: archive for archive in prebuilt.ARCHIVES for file in archive.files if "/" not in file}
    assert {component.name for component in components} == set(programs)
    assert all(component.stamp in programs[component.name].stamps for component in components)
    rendered = {f"manifests/{name}.json" for name in (*manifests.SOURCES, "trainer")} | {"manifests/kwok-stages.yaml"}
    assert {file for archive in prebuilt.ARCHIVES for file in archive.files} - set(programs) == rendered
    assert set(prebuilt.digests()) == set(programs) | rendered
    assert all(len(digest) == 64 for digest in prebuilt.digests().values())
