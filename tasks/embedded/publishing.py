"""How a supervisor writes its pod's status: only while the pod is still its own."""

from __future__ import annotations

import time

from profiles.errors import Unavailable
from tasks.embedded.objects import OUTPUT_VALUES_ANNOTATION, finished

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from tasks.embedded.objects import Object
    from tasks.embedded.store import Store

RETRY_SECONDS = 1.0


class SupersededError(Exception):
    """Somebody else ended this pod, or it is gone: its supervisor has nothing to say any more."""


def publish(
    store: Store, name: str, uid: str, output_values: str | None, status_after: Callable[[Object], Object]
) -> None:
    """Replace the pod's status by what `status_after` makes of the stored one.

    A store that cannot be written (a full disk) is tried again for as long as it takes: the pod is left alone.

    Raises:
        SupersededError: the pod is gone, another, or declared finished by somebody else.
    """
    while True:
        try:
            _publish_once(store, name, uid, output_values, status_after)
            return
        except Unavailable:
            time.sleep(RETRY_SECONDS)


def _publish_once(
    store: Store, name: str, uid: str, output_values: str | None, status_after: Callable[[Object], Object]
) -> None:
    with store.transaction() as change:
        stored = change.get("Pod", name)
        if stored is None or stored["metadata"]["uid"] != uid or finished(stored):
            raise SupersededError
        if output_values is not None:
            stored["metadata"].setdefault("annotations", {})[OUTPUT_VALUES_ANNOTATION] = output_values
        stored["status"] = status_after(stored["status"])
        change.put(stored)
