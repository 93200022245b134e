"""Services and variables of made-up nodes."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cases.rows import rows
from workflows.programs.parsers.text import ParsedOutput
from workflows.programs.probes import one
from workflows.programs.probes import services as probes_services
from workflows.programs.probes.services import fabric_environment, services

Write = Callable[[str, str], None]
NAMES = {"names": "nvidia-persistenced,nvidia-fabricmanager"}


def systemctl(write: Write, script: str) -> ParsedOutput:
    write("run/systemd/system/running", "")
    write("bin/systemctl", f"#!/bin/sh\n{script}\n")
    return services(NAMES)


def told(found: ParsedOutput) -> tuple[float | None, str]:
    return (found.readings[0].value if found.readings else None), found.unknown


@rows("programs/probes/services")
def test_systemd_tells_which_services_are_down(
    write: Write, words: tuple[str, str], count: float, unknown: str
) -> None:
    script = f'[ "$1 $2" = "is-active --" ] || exit 9; printf "{words[0]}\\n{words[1]}\\n"; exit 3'
    assert told(systemctl(write, script)) == (count, unknown)


@rows("programs/probes/services")
def test_a_systemd_that_does_not_answer_is_unknown(
    write: Write, script: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probes_services, "ANSWER_SECONDS", 0.5 if "sleep" in script else 30.0)
    found = systemctl(write, script)
    assert found.readings == ()
    assert said in found.unknown


def process(write: Write, number: int, name: str, argv: str = "") -> None:
    write(f"proc/{number}/comm", name[:15] + "\n")
    write(f"proc/{number}/cmdline", (argv or f"/usr/bin/{name}") + "\0--flag\0")


def test_without_systemd_processes_tell_and_names_that_the_kernel_cuts_are_known(write: Write) -> None:
    process(write, 1, "init")
    process(write, 70, "nvidia-persistenced")
    assert told(services(NAMES)) == (1.0, "")
    process(write, 71, "nv-fabricmanager")
    assert told(services(NAMES)) == (0.0, "")


def test_a_pod_that_sees_only_itself_cannot_call_a_service_down(write: Write) -> None:
    process(write, 1, "python3")
    assert told(services(NAMES)) == (
        None,
        "nvidia-persistenced, nvidia-fabricmanager: this pod sees only its own processes, and no systemd",
    )
    process(write, 70, "nvidia-persistenced")
    assert told(services(NAMES)) == (0.0, "nobody tells whether nvidia-fabricmanager runs")


@pytest.mark.parametrize("names", ["", " , ", "--version", "a;reboot", "a b", "$(x)"])
def test_names_that_are_no_services_are_refused(write: Write, names: str) -> None:
    write("run/systemd/system/running", "")
    write("bin/systemctl", "#!/bin/sh\nexit 9\n")
    assert "names: must be names of services" in one.answer("services", {"names": names}).unknown


VARIABLES = ("NCCL_IB_HCA", "HSA_ENABLE_SDMA", "UCX_TLS", "NCCL_DEBUG")
WORDS = st.dictionaries(st.sampled_from(VARIABLES), st.text("ab", max_size=3))


@given(wanted=WORDS, given_=WORDS)
def test_variables_are_wrong_exactly_where_they_are_missing_or_other(
    wanted: dict[str, str], given_: dict[str, str]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name in VARIABLES:
            patch.delenv(name, raising=False)
        for name, value in given_.items():
            patch.setenv(name, value)
        [found] = fabric_environment({"wanted": json.dumps(wanted)}).readings
    assert found.value == sum(given_.get(name) != value for name, value in wanted.items())
    assert (found.word == "none is wanted") == (not wanted)
    assert all(name in found.line for name, value in wanted.items() if given_.get(name) != value)


def test_what_differs_is_shown_but_never_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_IB_HCA", "mlx5_9")
    monkeypatch.setenv("FABRIC_TOKEN", "hunter2")
    wanted = {"NCCL_IB_HCA": "mlx5_0", "FABRIC_TOKEN": "swordfish"}
    [found] = fabric_environment({"wanted": json.dumps(wanted)}).readings
    assert found.line == "FABRIC_TOKEN is another one; NCCL_IB_HCA is 'mlx5_9', wanted 'mlx5_0'"


def test_where_nobody_said_what_is_wanted_nothing_is_known() -> None:
    assert fabric_environment({}) == ParsedOutput(
        unknown="the variables that the fabric wants are not known: give `wanted`"
    )


@pytest.mark.parametrize("wanted", ["", "[]", '{"A": 1}', "{", "null"])
def test_a_wish_that_is_no_object_of_words_is_named(wanted: str) -> None:
    found = one.answer("fabric-environment", {"wanted": wanted})
    assert "wanted: must be a JSON object of words" in found.unknown
