"""A persistent mapping of launchers, of which ten thousand report every second.

A copy of a dictionary of 12,500 takes 0.15 ms; here only the hundred around the changed one are copied.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterable, Iterator, Mapping, Optional, Tuple, TypeVar, cast

Key = Tuple[str, int]
T = TypeVar("T")
CHUNK_BITS = 7


class Members(Mapping[Key, T]):
    """Values by role and index."""

    __slots__ = ("_chunks", "_count")

    def __init__(self, chunks: Optional[Dict[Key, Dict[Key, T]]] = None, count: int = 0) -> None:
        self._chunks: Dict[Key, Dict[Key, T]] = chunks or {}
        self._count = count

    @classmethod
    def of(cls, pairs: Iterable[Tuple[Key, T]]) -> Members[T]:
        """All of them at once."""
        chunks: Dict[Key, Dict[Key, T]] = {}
        for key, value in pairs:
            chunks.setdefault((key[0], key[1] >> CHUNK_BITS), {})[key] = value
        return cls(chunks, sum(map(len, chunks.values())))

    def with_value(self, key: Key, value: T) -> Members[T]:
        """A mapping with this value added or replaced."""
        place = key[0], key[1] >> CHUNK_BITS
        before = self._chunks.get(place, {})
        return Members({**self._chunks, place: {**before, key: value}}, self._count + (key not in before))

    def map_values(self, change: Callable[[T], T]) -> Members[T]:
        """A mapping with every value changed."""
        chunks = {place: {key: change(one) for key, one in chunk.items()} for place, chunk in self._chunks.items()}
        return Members(chunks, self._count)

    def __getitem__(self, key: Key) -> T:
        return self._chunks[key[0], key[1] >> CHUNK_BITS][key]

    def __iter__(self) -> Iterator[Key]:
        for chunk in self._chunks.values():
            yield from chunk

    def __len__(self) -> int:
        return self._count

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Members) and dict(self.items()) == dict(cast("Members[Any]", other).items())

    __hash__ = None  # type: ignore[assignment]
