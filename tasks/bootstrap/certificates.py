"""Certificates that controllers make for themselves, shown to them at once.

JobSet and Kueue make the certificates of their webhooks when they begin, write them into a Secret that was empty, and
serve once they see them in the volume that is mounted from it. A kubelet looks at a volume again after up to a minute
and a half, or when its pod changes. So each pod gets an annotation: 70 of the 146 s that the first components took.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tasks.bootstrap.site import pause
from workflows import labels
from workflows.model.manifest import Json, items, part
from workflows.programs.runtime.kubernetes_api import Api, ApiError

FILL_SECONDS = 60.0
"""For images to be pulled and controllers to begin."""
LOOK_SECONDS = 0.5


@dataclass(frozen=True)
class AwaitedCertificate:
    """A Secret that the pods which mount it fill themselves."""

    namespace: str
    secret: str
    selector: str
    """Of those pods, as the API takes it."""


def awaited_certificates(objects: Iterable[Json]) -> tuple[AwaitedCertificate, ...]:
    """Of Deployments that mount a Secret which comes with them and holds nothing."""
    found = list(objects)
    empty = {
        _place(one) for one in found if one.get("kind") == "Secret" and not (one.get("data") or one.get("stringData"))
    }
    awaited: list[AwaitedCertificate] = []
    for one in found:
        if one.get("kind") != "Deployment":
            continue
        chosen = part(one, "spec", "selector", "matchLabels")
        selector = ",".join(f"{key}={value}" for key, value in sorted(chosen.items()))
        for volume in items(one, "spec", "template", "spec", "volumes"):
            space, name = _place(one)[0], str(part(volume, "secret").get("secretName", ""))
            if (space, name) in empty:
                awaited.append(AwaitedCertificate(space, name, selector))
    return tuple(awaited)


def show_certificates(
    api: Api,
    awaited: Iterable[AwaitedCertificate],
    now: Callable[[], float] = time.monotonic,
    rest: Callable[[float], None] = pause,
) -> None:
    """Wait until these Secrets are filled, and have kubelets look at the volumes of their pods.

    Without it kubelets do so by themselves, only later: an API that does not answer is no error here.
    """
    left, until = list(awaited), now() + FILL_SECONDS
    while left and now() < until:
        with contextlib.suppress(ApiError):  # the proof of the component says what does not serve
            left = [one for one in left if not _shown(api, one)]
        if left:
            rest(LOOK_SECONDS)


def _shown(api: Api, one: AwaitedCertificate) -> bool:
    space = f"/api/v1/namespaces/{one.namespace}"
    if not api.get(f"{space}/secrets/{one.secret}").get("data"):
        return False
    pods = api.items(f"{space}/pods", {"labelSelector": one.selector})
    for pod in pods:
        mark = {labels.CERTIFICATE_SHOWN: one.secret}
        api.patch(f"{space}/pods/{part(pod, 'metadata')['name']}", {"metadata": {"annotations": mark}})
    return bool(pods)


def _place(one: Json) -> tuple[str, str]:
    metadata = part(one, "metadata")
    return str(metadata.get("namespace", "")), str(metadata.get("name", ""))
