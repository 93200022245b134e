"""What a pickle says, read as data: its operation codes are listed, nothing is ever constructed or imported."""

from __future__ import annotations

import pickletools
from typing import Any, Dict, Iterator, List, Optional, Tuple

_ATOMS = frozenset(
    {"BININT", "BININT1", "BININT2", "LONG1", "LONG4", "INT", "LONG"}
    | {"SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "UNICODE", "SHORT_BINSTRING", "BINSTRING", "STRING"}
)
_PUTS = frozenset({"BINPUT", "LONG_BINPUT", "PUT"})
_GETS = frozenset({"BINGET", "LONG_BINGET", "GET"})


class PickleError(ValueError):
    """Not a whole pickle."""


def atoms(data: bytes) -> Iterator[Any]:
    """Every string and whole number in the order in which they are pushed; repeated ones are resolved.

    Raises:
        PickleError: cut off, or no pickle.
    """
    memo: Dict[int, Any] = {}
    top: Any = None
    try:
        for operation, argument, _ in pickletools.genops(data):
            name = operation.name
            if name == "MEMOIZE":
                memo[len(memo)] = top
            elif name in _PUTS:
                memo[int(str(argument))] = top
            else:
                top = _pushed(name, argument, memo)
                if top is not None:
                    yield top
    except (ValueError, IndexError, KeyError, OverflowError, UnicodeError, MemoryError) as error:
        raise PickleError(f"not a whole pickle: {error}") from error


def storage_needs(data: bytes) -> Dict[str, int]:
    """Files that a Distributed Checkpoint's `.metadata` names, with the least size each must have.

    Raises:
        PickleError: cut off, or no pickle.
    """
    return {
        path: max((offset + length for offset, length in pieces), default=0)
        for path, pieces in storage_pieces(data).items()
    }


def storage_pieces(data: bytes) -> Dict[str, List[Tuple[int, int]]]:
    """Where the pieces of a Distributed Checkpoint lie, by file: offset and length of each.

    Its `.metadata` holds one record `{relative_path, offset, length}` for each piece of a tensor.

    Raises:
        PickleError: cut off, or no pickle.
    """
    found: Dict[str, List[Tuple[int, int]]] = {}
    key: Optional[str] = None
    path, offset = "", 0
    for atom in atoms(data):
        if isinstance(atom, str):
            if key == "relative_path":
                path = atom
                found.setdefault(path, [])
            key = atom
            continue
        if key == "offset" and path:
            offset = int(atom)
        elif key == "length" and path:
            found[path].append((offset, int(atom)))
            path = ""
        key = None
    return found


def _pushed(name: str, argument: Any, memo: Dict[int, Any]) -> Any:
    if name in _ATOMS:
        return argument
    if name in _GETS:
        return memo.get(int(str(argument)))
    return None
