"""Proofs of controllers: an object of theirs is made and becomes what it should."""

from __future__ import annotations

import base64
import json
import ssl
from typing import Callable, Dict, List, Mapping, Optional, cast

from workflows.programs.runtime.kubernetes_api import ApiError, Json
from workflows.programs.serving.ask import FAIL, PASS, UNKNOWN, Seen
from workflows.programs.serving.objects import Kinds
from workflows.programs.serving.world import EVERYTHING, PROGRAMS, RESOURCES, RESTRICTED, World, condition, phase

ARGO = "argoproj.io/v1alpha1"
JOBSET = "jobset.x-k8s.io/v1alpha2"
KUEUE = "kueue.x-k8s.io/v1beta2"
CERTIFICATES = "cert-manager.io/v1"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
MADE_QUEUE = "made"
"""Of the parameter `queue`: a flavor, a queue and its quota are made for the proof."""
GANG = 2
ACCOUNT = "primus-installer"
"""Of the pods of a workflow that a proof starts: they may report their outputs."""


def api_service(world: World, parameters: Mapping[str, str]) -> Seen:
    """The API server passes requests on, and a real answer comes: one entry for each ready node."""
    name, path = parameters["name"], parameters["path"]
    nodes = world.nodes()

    def told() -> str:
        """Nothing where all is well."""
        service = world.api.get(f"/apis/apiregistration.k8s.io/v1/apiservices/{name}")
        if condition(service, "Available") != "True":
            return f"APIService {name} is not available"
        there = {str(cast("Json", one.get("metadata") or {}).get("name")) for one in world.api.items(path)}
        missing = [node for node in nodes if node not in there]
        return f"{path} tells nothing of {', '.join(missing[:4])}" if missing else ""

    why = _settled(world, told)
    if why:
        return Seen(FAIL, why)
    return Seen(PASS, f"{path} told of all {len(nodes)} nodes") if nodes else Seen(UNKNOWN, "no node is ready")


def _settled(world: World, told: Callable[[], str]) -> str:
    """The last word of `told`, asked until it has nothing to say; what the API refuses meanwhile is a word too."""
    while True:
        try:
            why = told()
        except ApiError as error:
            if error.code == 0:
                raise
            why = str(error)
        if not why or world.late:
            return why
        world.pause()


def custom_resource(world: World, parameters: Mapping[str, str]) -> Seen:
    """An object of the kind is stored, and its controller gives it the condition; `stored`: nobody need look at it."""
    made: Json = json.loads(parameters["object"])
    wanted, path = parameters["condition"], Kinds(world.api).path(made, world.namespace)
    world.make(path, made)
    why = _settled(world, lambda: _state(world.api.get(path), wanted))
    what = f"{made['kind']} {made['metadata']['name']}"
    return Seen(FAIL, f"{what}: {why}") if why else Seen(PASS, f"{what} is {wanted}")


def _state(found: Json, wanted: str) -> str:
    if wanted == "stored":
        return "" if cast("Json", found.get("metadata") or {}).get("uid") else "it was accepted and not stored"
    told = condition(found, wanted)
    return "" if told == "True" else f"{wanted} is {told or 'not told'}"


def certificates(world: World, parameters: Mapping[str, str]) -> Seen:
    """An issuer issues: the Secret of a Certificate holds one that bears the name that was asked for."""
    name, subject = f"primus-proof-{world.mark[:8]}", f"primus-proof-{world.mark}"
    issuer = parameters.get("issuer", "")
    if not issuer:
        body: Json = {"apiVersion": CERTIFICATES, "kind": "Issuer", "metadata": {"name": name}}
        world.make(world.path("issuers", name, CERTIFICATES), {**body, "spec": {"selfSigned": {}}})
    reference = {"name": issuer or name, "kind": "ClusterIssuer" if issuer else "Issuer"}
    spec: Json = {"secretName": name, "commonName": subject, "isCA": True, "duration": "24h", "issuerRef": reference}
    world.make(
        world.path("certificates", name, CERTIFICATES),
        {"apiVersion": CERTIFICATES, "kind": "Certificate", "metadata": {"name": name}, "spec": spec},
    )

    def told() -> str:
        secret = _secret(world, name)
        if secret is None:
            return "no certificate was issued"
        found = _subject(base64.b64decode(str(secret.get("tls.crt") or "")).decode("ascii", "replace"))
        return "" if found == subject else f"the Secret holds {found or 'no certificate'}, asked was {subject}"

    try:
        why = _settled(world, told)
    finally:
        world.api.delete(world.path("secrets", name))
    return Seen(FAIL, why) if why else Seen(PASS, f"a certificate of {subject} was issued")


def _secret(world: World, name: str) -> Optional[Json]:
    try:
        return cast("Json", world.api.get(world.path("secrets", name)).get("data") or {})
    except ApiError as error:
        if error.code != 404:
            raise
        return None


def _subject(text: str) -> str:
    """Common name of a certificate of an authority; "" where there is none to be read."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cadata=text)
    except (ssl.SSLError, ValueError):
        return ""
    for certificate in context.get_ca_certs():
        for pairs in cast("List[List[List[str]]]", certificate.get("subject") or []):
            for key, value in pairs:
                if key == "commonName":
                    return value
    return ""


def workflow(world: World, parameters: Mapping[str, str]) -> Seen:
    """A workflow of one pod succeeds, and the word that the pod left comes back."""
    name = f"primus-proof-{world.mark[:8]}"
    template: Json = {
        "name": "main",
        "container": {
            "image": world.image,
            "command": [PROGRAMS, "serving-helper", "--do=say", f"--text={world.mark}", "--file=/tmp/word"],
            "resources": RESOURCES,
        },
        "outputs": {"parameters": [{"name": "word", "valueFrom": {"path": "/tmp/word", "default": ""}}]},  # noqa: S108
    }
    spec: Json = {
        "entrypoint": "main",
        "serviceAccountName": ACCOUNT,
        "activeDeadlineSeconds": 600,
        "tolerations": [EVERYTHING],
        "templates": [template],
    }
    path = world.path("workflows", name, ARGO)
    world.make(path, {"apiVersion": ARGO, "kind": "Workflow", "metadata": {"name": name}, "spec": spec})

    def told() -> str:
        found = world.api.get(path)
        if phase(found) != "Succeeded":
            message = cast("Json", found.get("status") or {}).get("message") or "no word"
            return f"a workflow is {phase(found) or 'not looked at by any controller'} ({message})"
        return "" if world.mark in json.dumps(found) else "a workflow succeeded and its pod's word did not come back"

    why = _settled(world, told)
    return Seen(FAIL, why) if why else Seen(PASS, "a workflow of one pod succeeded and its word came back")


def gang(world: World, parameters: Mapping[str, str]) -> Seen:
    """A JobSet of two pods runs to its end, in `namespace` where that is told; with `queue` Kueue admits it first."""
    where = parameters.get("namespace", "")
    name, queue = f"primus-proof-{world.mark[:8]}", parameters.get("queue", "")
    if queue == MADE_QUEUE:
        queue = _made_queue(world, name)
    path = world.path("jobsets", name, JOBSET, where)
    world.make(path, _jobset(world, name, queue))

    def told() -> str:
        found = world.api.get(path)
        if condition(found, "Completed") != "True":
            failed = condition(found, "Failed") == "True"
            suspended = condition(found, "Suspended") == "True"
            return "a gang failed" if failed else "a gang is not admitted" if suspended else "a gang did not end"
        return "" if not queue or _admitted(world, name, where) else "a gang ran that its queue did not admit"

    why = _settled(world, told)
    if why:
        return Seen(FAIL, f"{why} (queue {queue})" if queue else why)
    return Seen(PASS, f"a gang of {GANG} pods {'was admitted and ' if queue else ''}ran to its end")


def _made_queue(world: World, name: str) -> str:
    def body(kind: str, spec: Json) -> Json:
        return {"apiVersion": KUEUE, "kind": kind, "metadata": {"name": name}, "spec": spec}

    quota = [{"name": "cpu", "nominalQuota": "2"}, {"name": "memory", "nominalQuota": "2Gi"}]
    groups = [{"coveredResources": ["cpu", "memory"], "flavors": [{"name": name, "resources": quota}]}]
    root = f"/apis/{KUEUE}"
    world.make(f"{root}/resourceflavors/{name}", body("ResourceFlavor", {}))
    world.make(
        f"{root}/clusterqueues/{name}", body("ClusterQueue", {"namespaceSelector": {}, "resourceGroups": groups})
    )
    world.make(world.path("localqueues", name, KUEUE), body("LocalQueue", {"clusterQueue": name}))
    return name


def _jobset(world: World, name: str, queue: str) -> Json:
    container: Json = {
        "name": "main",
        "image": world.image,
        "command": [PROGRAMS, "serving-helper", "--do=say", f"--text={world.mark}"],
        "resources": RESOURCES,
        "securityContext": RESTRICTED,
    }
    pod: Json = {"restartPolicy": "Never", "containers": [container], "tolerations": [EVERYTHING]}
    job: Json = {
        "parallelism": GANG,
        "completions": GANG,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "template": {"spec": pod},
    }
    labels: Dict[str, str] = {QUEUE_LABEL: queue} if queue else {}
    spec: Json = {"replicatedJobs": [{"name": "g", "replicas": 1, "template": {"spec": job}}]}
    return {"apiVersion": JOBSET, "kind": "JobSet", "metadata": {"name": name, "labels": labels}, "spec": spec}


def _admitted(world: World, name: str, namespace: str) -> bool:
    for found in world.api.items(world.path("workloads", group=KUEUE, namespace=namespace)):
        owners = cast("List[Json]", cast("Json", found["metadata"]).get("ownerReferences") or [])
        if any(owner.get("name") == name for owner in owners):
            return condition(found, "Admitted") == "True"
    return False
