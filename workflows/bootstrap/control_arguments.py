"""Arguments with which the control plane's programs run, held against those that are wanted. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from profiles.bootstrap.arguments import KUBEADM_DEFAULTS, KUBEADM_OWN, ControlProgram
from workflows.bootstrap.component_configuration import FieldDifference

INSTEAD = {"authorization-config": "authorization-mode"}
"""Argument -> the one that kubeadm then leaves out."""


def argument_differences(
    program: ControlProgram, wanted: Mapping[str, str], running: Sequence[str]
) -> list[FieldDifference]:
    """In which arguments a running program differs from what kubeadm makes of the wanted ones.

    Args:
        program: which one.
        wanted: arguments over kubeadm's own, by name.
        running: its command line, without the program itself.
    """
    found = arguments_of(running)
    left_out = {INSTEAD.get(name) for name in wanted}
    defaults = {name: value for name, value in KUBEADM_DEFAULTS[program].items() if name not in left_out}
    expected = {**{name: value for name, value in defaults.items() if name in found}, **wanted}
    names = [name for name in sorted({*expected, *found}) if name not in KUBEADM_OWN[program] or name in wanted]
    return [
        FieldDifference(f"{program} --{name}", expected.get(name, "none"), found.get(name, "none"))
        for name in names
        if _one_line(expected.get(name)) != _one_line(found.get(name))
    ]


def arguments_of(words: Sequence[str]) -> dict[str, str]:
    """`--name=value` as name and value; `--name` alone is true."""
    pairs = (word.lstrip("-").partition("=") for word in words if word.startswith("-"))
    return {name: value if equals else "true" for name, equals, value in pairs}


def _one_line(value: str | None) -> str | None:
    """As a host tells it."""
    return None if value is None else " ".join(value.split())
