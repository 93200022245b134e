"""Every object of a kind, a page at a time: of thousands only what is asked of each needs to be kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tasks.cluster import Cluster, Kind, Manifest


def each(cluster: Cluster, kind: Kind, labels: Mapping[str, str] | None = None) -> Iterator[Manifest]:
    """Every object that exists; in any order, and some of them twice where the list has to be begun anew.

    Raises:
        Unavailable: also in the middle; what was told until then is not all there is.
        NotFound, Refused.
    """
    for event in cluster.watch(kind, labels, timeout_seconds=0.0):
        if event.type in ("ADDED", "MODIFIED"):
            yield event.object
