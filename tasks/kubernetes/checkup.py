"""What `primus doctor` asks a Kubernetes API server: rights, served kinds, time. Changes nothing."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from email.utils import parsedate_to_datetime

from profiles.cluster import ClusterProfile
from profiles.errors import NotFound, Permanent
from tasks.kubernetes.api_server import ApiServer, Request
from tasks.kubernetes.configuration import configuration_of
from tasks.kubernetes.resources import RESOURCES
from workflows.model.checkup import Attempted, RightFacts
from workflows.model.manifest import items, part
from workflows.platform.workspace import NODE_RIGHTS, RUNNER_RIGHTS, Right

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
KINDS = ("Workflow", "JobSet")
QUEUE_KINDS = ("Workload", "LocalQueue")


def server_of(profile: ClusterProfile) -> ApiServer:
    """The API server of a cluster profile; connects at the first request."""
    return ApiServer(lambda: configuration_of(profile.context, kubeconfig=profile.kubeconfig))


def skew_seconds(server: ApiServer, now: Callable[[], float] = time.time) -> float | None:
    """The server's clock minus ours, from the Date header; None where it sends none.

    Raises:
        Unavailable: no answer.
    """
    before = now()
    reply = server.ask(Request("GET", "/version", "read the server's time"))
    text = reply.headers.get("Date", "")
    try:
        told = parsedate_to_datetime(text).timestamp()
    except ValueError:
        return None
    # The header is cut to whole seconds: half a second is what it lacks on average.
    return told + 0.5 - (before + now()) / 2


def served(server: ApiServer, queue: bool) -> dict[str, Attempted]:
    """Whether the kinds that our manifests need are served in our version.

    Raises:
        Unavailable: no answer.
    """
    found: dict[str, Attempted] = {}
    for kind in (*KINDS, *(QUEUE_KINDS if queue else ())):
        resource = RESOURCES[kind]
        name = f"{resource.api_version} {resource.plural}"
        try:
            answer = server.json(Request("GET", f"/apis/{resource.api_version}", f"read {resource.api_version}"))
            plurals = {item.get("name") for item in items(answer, "resources")}
            here = resource.plural in plurals
            found[name] = Attempted(here, "served" if here else "not served")
        except NotFound:
            found[name] = Attempted(False, "not served")
        except Permanent as error:
            found[name] = Attempted(None, str(error))
    return found


def rights(server: ApiServer, namespace: str) -> Iterator[RightFacts]:
    """Whether our account may do each thing that driving runs needs.

    Raises:
        Unavailable: no answer.
    """
    for where, wanted in ((namespace, RUNNER_RIGHTS), ("", NODE_RIGHTS)):
        yield from _reviewed(server, where, wanted)


def _reviewed(server: ApiServer, namespace: str, wanted: Sequence[Right]) -> Iterator[RightFacts]:
    for group, resources, verbs in wanted:
        for resource in resources:
            for verb in verbs:
                yield _review(server, namespace, group, resource, verb)


def _review(server: ApiServer, namespace: str, group: str, resource: str, verb: str) -> RightFacts:
    plural, _, below = resource.partition("/")
    asked = {"namespace": namespace, "verb": verb, "group": group, "resource": plural, "subresource": below}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {key: value for key, value in asked.items() if value}},
    }
    name = f"{resource}.{group}" if group else resource
    try:
        answer = server.json(
            Request("POST", REVIEWS, f"ask whether we may {verb} {name}", body=json.dumps(body).encode())
        )
    except Permanent as error:
        return RightFacts(verb, name, None, str(error))
    status = part(answer, "status")
    allowed = status.get("allowed")
    return RightFacts(verb, name, bool(allowed) if allowed is not None else None, str(status.get("reason") or ""))
