"""The probe of a claimed volume: on real file systems that refuse, are full, or lose what was written."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from profiles.checks.catalogue import PROBES
from tests.support.cases.rows import rows
from workflows.programs.parsers.text import ParsedOutput
from workflows.programs.probes import measure
from workflows.programs.probes.call import load_parsed
from workflows.programs.probes.node import STORAGE_VARIABLE

MAIN = Path(measure.__file__).parents[1] / "main.py"
WORDS = {"bytes": str(8 << 20)}
MIB = 1 << 20


def mounts_here() -> bool:
    """Whether a user of this machine may mount in a namespace of his own."""
    if not shutil.which("unshare"):
        return False
    done = subprocess.run(["unshare", "-Urm", "true"], capture_output=True, check=False)
    return done.returncode == 0


def fault(parsed: ParsedOutput) -> tuple[float | None, str]:
    [reading] = parsed.readings
    assert (reading.quantity, reading.unit) == ("volume_faults", PROBES["volume"].quantities["volume_faults"])
    return reading.value, reading.line


@pytest.mark.skipif(not mounts_here(), reason="nobody may mount here")
@rows("programs/probes/volume")
def test_a_file_system_that_does_not_take_what_is_written_is_a_fault(
    tmp_path: Path, options: str, then: str, value: float, said: str
) -> None:
    script = f"mount -t tmpfs -o {options} none {tmp_path} && {then.format(tmp_path)} && exec "
    command = f"""{sys.executable} {MAIN} probe-one --name=volume '--arguments={{"bytes": "{8 * MIB}"}}'"""
    done = subprocess.run(
        ["unshare", "-Urm", "sh", "-c", script + command],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, STORAGE_VARIABLE: str(tmp_path)},
    )
    found, line = fault(load_parsed(done.stdout))
    assert found == value
    assert line.startswith(said)


def test_bytes_that_come_back_wrong_are_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed: list[str] = []

    def lose_a_byte(descriptor: int, *_: int) -> None:
        """The disk changes a byte as the cache is dropped."""
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        with open(path, "r+b") as file:
            byte = file.read(1)
            file.seek(0)
            file.write(bytes([byte[0] ^ 1]))
        changed.append(path)

    monkeypatch.setenv(STORAGE_VARIABLE, str(tmp_path))
    assert fault(measure.volume(WORDS))[0] == 0.0
    monkeypatch.setattr(os, "posix_fadvise", lose_a_byte)
    assert fault(measure.volume(WORDS)) == (1.0, "1 bytes came back wrong")
    assert changed
    assert list(tmp_path.iterdir()) == [], "the file is gone"


def test_what_is_no_fault_of_the_volume_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(STORAGE_VARIABLE, raising=False)
    assert measure.volume(WORDS).unknown == "no folder of a volume was given"
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(STORAGE_VARIABLE, str(tmp_path / "file"))
    with pytest.raises(FileExistsError):
        measure.volume(WORDS)
