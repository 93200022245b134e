"""What all profiles are made of: frozen values, names, units, Kubernetes quantities, and hints for misspelt words.

Every module of this folder may use it; it knows no file, no clock and no environment.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from decimal import Decimal
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

WRONG = "wrong"
"""Type of the errors made by `wrong`."""

NAME_PATTERN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
"""RFC 1123 label, as Kubernetes wants it."""
OR_EMPTY = "|^$"
"""Behind a pattern of a field that may be left empty."""

RunName = Annotated[str, Field(pattern=NAME_PATTERN, max_length=30)]
"""At most 30 characters: `<run>-a<number>-<role>-0-<index>-<suffix>` must stay below 63."""

RoleName = Annotated[str, Field(pattern=NAME_PATTERN, max_length=12)]
"""At most 12 characters, for the same reason."""

Text = Annotated[str, Field(min_length=1)]
"""Text that must not be empty."""
ObjectName = Annotated[str, Field(pattern=NAME_PATTERN, max_length=63)]
Seconds = Annotated[float, Field(ge=0)]
PositiveSeconds = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=0)]
PositiveCount = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1)]
"""A part of a whole, 0 to 1."""
Price = Annotated[float, Field(ge=0)]
"""In the currency of the cluster profile."""

QUANTITY_PATTERN = r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$"
Quantity = Annotated[str, Field(pattern=QUANTITY_PATTERN)]
"""A Kubernetes resource quantity, e.g. `500m`, `16Gi`, `8`."""
ENVIRONMENT_NAME_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]*$"
EnvironmentName = Annotated[str, Field(pattern=ENVIRONMENT_NAME_PATTERN)]
CONDITION_PATTERN = r"^[A-Za-z0-9*]([-A-Za-z0-9_./*]*[A-Za-z0-9*])?$"
ConditionType = Annotated[str, Field(pattern=CONDITION_PATTERN, max_length=316)]
"""Type of a Kubernetes condition; `*` stands for any text."""

STORAGE_CLASS_PATTERN = r"^([a-z0-9]([a-z0-9.-]*[a-z0-9])?)?$"
StorageClassName = Annotated[str, Field(pattern=STORAGE_CLASS_PATTERN, max_length=253)]
"""Name of a Kubernetes StorageClass; empty: none."""
TAINT_PATTERN = r"^[A-Za-z0-9._/-]+(=[A-Za-z0-9._-]*)?:(NoSchedule|PreferNoSchedule|NoExecute)$"
TaintText = Annotated[str, Field(pattern=TAINT_PATTERN)]
OWN_PREFIX = "primus-flows.io/"
"""Beginning of the labels and taints that this product sets by itself."""
HOST_PATTERN = r"^[A-Za-z0-9]([A-Za-z0-9.:_-]*[A-Za-z0-9])?$"
HostAddress = Annotated[str, Field(pattern=HOST_PATTERN)]
NETWORK_PATTERN = r"^[0-9.]+/[0-9]+$"
SYSCTL_PATTERN = r"^[a-z0-9_]+(\.[a-z0-9_/-]+)+$"
DOMAIN_PATTERN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
PROGRAM_PATTERN = r"^[A-Za-z0-9._/][A-Za-z0-9._/+-]*$"
LOGIN_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.@-]*$"
JUMP_PATTERN = r"^([A-Za-z0-9_][A-Za-z0-9_.-]*@)?[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?(:[0-9]{1,5})?$"
REGISTRY_PATTERN = r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]{1,5})?(/[a-z0-9]([a-z0-9._/-]*[a-z0-9])?)?$"
SERVER_PATTERN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*:[1-9][0-9]{0,4}$"
"""It names a folder of hosts, too: no separator, and no point beside another one."""
KUBERNETES_PATTERN = r"^1\.[0-9]+\.[0-9]+$"
COMMIT_PATTERN = r"^[0-9a-f]{40}$"
SHA256_PATTERN = r"^[0-9a-f]{64}$"
IMAGE_DIGEST_PATTERN = r"^sha256:[0-9a-f]{64}$"

LABEL_PATTERN = r"^[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$"
"""Name and value of a Kubernetes label."""
LABEL_CHARACTERS = 63
OWNER_PATTERN = r"^[A-Za-z0-9_.+$\\@-]*$"
"""What directories call their people, as `tasks.processes` takes it."""
OWNER_CHARACTERS = 64

PATTERNS = {
    LABEL_PATTERN: "letters, digits, `-`, `_` and `.`, with a letter or digit at both ends, as Kubernetes wants labels",
    OWNER_PATTERN: "a user's name: letters, digits and `_ . + $ \\ @ -`",
    NAME_PATTERN: "lower-case letters, digits and `-`, with a letter or digit at both ends",
    QUANTITY_PATTERN: "a quantity such as 500m, 16Gi or 8",
    CONDITION_PATTERN: "the type of a condition such as KernelDeadlock, with `*` for any text",
    STORAGE_CLASS_PATTERN: "lower-case letters, digits, `.` and `-`, with a letter or digit at both ends",
    TAINT_PATTERN: "key=value:Effect with a known effect",
    HOST_PATTERN: "a host name or an address",
    NETWORK_PATTERN: "an IPv4 network such as 10.244.0.0/16",
    SYSCTL_PATTERN: "the name of a kernel parameter such as vm.max_map_count",
    DOMAIN_PATTERN: "a DNS domain such as cluster.local, in lower-case letters",
    PROGRAM_PATTERN: "a program's name or path",
    LOGIN_PATTERN: "the name of a user",
    JUMP_PATTERN: "user@host:port, of which user and port may be left out",
    REGISTRY_PATTERN: "host:port or host:port/path, without https:// before and a tag behind",
    SERVER_PATTERN: "host:port, in lower-case letters, without http:// before and a path behind",
    KUBERNETES_PATTERN: "a version of Kubernetes such as 1.36.3",
    COMMIT_PATTERN: "the whole commit, 40 hexadecimal digits: a branch or a tag may change under one's hands",
    SHA256_PATTERN: "a SHA-256 digest, 64 hexadecimal digits",
    IMAGE_DIGEST_PATTERN: "a digest such as sha256:… with 64 hexadecimal digits",
    ENVIRONMENT_NAME_PATTERN: "letters, digits and `_`, not starting with a digit",
}
"""Patterns in words, for messages."""

_UNITS = {
    "": Decimal(1),
    "m": Decimal("0.001"),
    **{letter: Decimal(1000) ** power for power, letter in enumerate("kMGTP", start=1)},
    **{f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTP", start=1)},
}

SHOWN = 24
"""More words than this are not listed: the line would no longer be read."""


class Value(BaseModel):
    """A frozen value. An unknown key is an error; the docstring under a field is its description everywhere."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False, validate_default=True
    )


def wrong(field: str, reason: str) -> PydanticCustomError:
    """What a validator of a whole value raises: `field` is wrong, seen from that value, because of `reason`."""
    return PydanticCustomError(WRONG, "{reason}", {"field": field, "reason": reason})


def refuse_own_taints(field: str, taints: Iterable[str]) -> None:
    """Nothing where none of these taints (`key=value:Effect`) is one that this product sets and takes away.

    Pods of runs tolerate the taints that profiles name: with one of ours they would come to nodes that nothing has
    proven, or that were taken out.

    Raises:
        PydanticCustomError: one is.
    """
    for text in taints:
        if text.startswith(OWN_PREFIX):
            key = text.partition(":")[0].partition("=")[0]
            raise wrong(
                field, f"must not name {key}: pods of runs would tolerate it, and it is set and taken away here"
            )


def amount(quantity: str) -> Decimal:
    """A quantity such as `500m` or `16Gi` in its base unit (CPUs, bytes). Exact.

    It has been checked against the pattern of `profiles.values.Quantity`.
    """
    number = quantity.rstrip("mkKMGTPi")
    return Decimal(number) * _UNITS[quantity[len(number) :]]


def nearest(word: str, known: Iterable[str]) -> str:
    """The known word that is spelt most alike; "" where nothing comes near."""
    by_lower = {item.lower().replace("-", "_"): item for item in known}
    found = difflib.get_close_matches(word.lower().replace("-", "_")[:80], list(by_lower), n=1, cutoff=0.6)
    return by_lower[found[0]] if found else ""


def did_you_mean(word: str, known: Iterable[str], noun: str = "known") -> str:
    """The end of a sentence, e.g. `; did you mean "replicas"? (known: command, image, replicas)`."""
    words = sorted(set(known))
    close = nearest(word, words)
    guess = f'; did you mean "{close}"?' if close else ""
    if not words:
        return guess
    more = f", … ({len(words) - SHOWN} more)" if len(words) > SHOWN else ""
    return f"{guess} ({noun}: {', '.join(words[:SHOWN])}{more})"
