"""Puts a component's objects there, fetches its chart, or takes it away; each step may be repeated.

primus-programs install-component --do=apply --component=registry --objects=/primus/objects/objects.json …
primus-programs install-component --do=fetch --component=harbor --url=http://mirror/charts/… --sha256=… --to=/work
primus-programs install-component --do=remove --component=harbor --resource=… --crd=… --remove-namespace=harbor
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import ssl
import sys
import time
import urllib.request
from dataclasses import dataclass
from typing import Any, List, Tuple, cast
from urllib.parse import quote

from workflows.programs.runtime import flags
from workflows.programs.runtime.kubernetes_api import Api, ApiError, Json, api_from
from workflows.programs.serving.note import note_path, write_note
from workflows.programs.serving.objects import (
    DEFINITIONS,
    Applier,
    ObjectsError,
    definitions_of,
    marked,
    own_objects,
    tolerating,
)
from workflows.programs.serving.world import part

CHART = "chart.tgz"
FETCH_SECONDS = 60.0
PENDING = ("pending-install", "pending-upgrade", "pending-rollback")
"""Of a revision whose helm was ended, after which no other helm touches the release (`helm.sh/helm/v3/pkg/release`)."""
AUTHORITY = "PRIMUS_MIRROR_AUTHORITY"
"""Variable with the certificate authority of the mirror (PEM); without it the image's own ones hold."""


class FetchError(Exception):
    """What the mirror gave is not what was asked for, or it gave nothing."""


@dataclass(frozen=True)
class Options(flags.Flags):
    """What is done, and with what."""

    component: str
    """Its name."""
    do: str = "apply"
    """`apply`, `fetch` or `remove`."""
    version: str = ""
    """Of the component, for its note."""
    wanted: str = ""
    """Fingerprint of what is installed, for its objects."""
    namespace: str = "default"
    """Where the component lives."""
    notes_in: str = "primus-bootstrap"
    """Namespace of the note."""
    objects: str = ""
    """File with its objects, a JSON list or an object with `items`; empty: none."""
    url: str = ""
    """Where the mirror has its list or chart; empty: nothing is fetched."""
    sha256: str = ""
    """Digest of that."""
    to: str = ""
    """Folder for a chart."""
    crd: Tuple[str, ...] = ()
    """Definitions that must be Established, or that go."""
    resource: Tuple[str, ...] = ()
    """Kinds whose objects go first, as `plural.group`."""
    data: bool = False
    """Volumes and their claims go as well."""
    remove_namespace: str = ""
    """Namespace that goes last; empty: none."""
    forget: bool = False
    """The note goes as well: nothing is left."""
    to_new_nodes: bool = False
    """Its pods may run on nodes that no preflight has passed yet."""
    deadline_seconds: float = 300.0
    """For all of it."""
    api: str = ""
    """URL of the API server; empty: the cluster in which this pod runs."""


@flags.program("install-component")
def main(argv: List[str]) -> int:
    """Do it; 0, or 1 with one line that says what does not come or go."""
    options = flags.from_argv(Options, argv)
    doing = {"apply": apply, "fetch": fetch, "remove": remove}.get(options.do)
    if doing is None:
        raise flags.UsageError(f"--do: {options.do!r} is none of apply, fetch, remove")
    api = api_from(os.environ, options.api)
    if api is None:
        raise flags.UsageError("--api: this is no pod of a cluster; name the URL of its API server")
    try:
        doing(options, api)
    except (ApiError, ObjectsError, FetchError, OSError, ValueError) as error:
        print(f"install-component: {options.component}: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


def apply(options: Options, api: Api) -> None:
    """The note says that it is begun; then namespace, definitions and the rest."""
    objects = objects_of(options)
    begin(options, api)
    applier = Applier(api, time.monotonic() + options.deadline_seconds)
    names = [part(one, "metadata").get("name") for one in objects if one.get("kind") == "Namespace"]
    if options.namespace not in names:
        objects = [_namespace(options.namespace), *objects]
    if options.to_new_nodes:
        objects = [tolerating(one) for one in objects]
    found = [marked(one, options.component, options.wanted) for one in objects if not _is_system(one)]
    count = applier.apply(found, options.namespace, options.crd)
    print(f"{options.component}: {count} objects applied", flush=True)


def begin(options: Options, api: Api) -> None:
    """The note, without the fingerprint: it is being installed, and whatever it was before no longer holds."""
    write_note(api, options.notes_in, options.component, {"version": options.version, "wanted": ""})


def _namespace(name: str) -> Json:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def _is_system(one: Json) -> bool:
    """Namespaces of Kubernetes itself are nobody's component."""
    name = str(part(one, "metadata").get("name"))
    return one.get("kind") == "Namespace" and (name == "default" or name.startswith("kube-"))


def objects_of(options: Options) -> List[Json]:
    """The component's objects, from the file or from the mirror.

    Raises:
        FetchError, OSError, ValueError.
    """
    if options.objects:
        with open(options.objects, encoding="utf-8") as file:
            found: Any = json.load(file)
    elif options.url:
        found = json.loads(fetched(options))
    else:
        found = []
    listed: Any = cast("Json", found).get("items") if isinstance(found, dict) else found
    if not isinstance(listed, list):
        raise FetchError("its objects are no JSON list")
    return cast("List[Json]", listed)


def fetched(options: Options) -> bytes:
    """What the mirror has there, with the digest that was asked for.

    Raises:
        FetchError: it has nothing, or something else.
    """
    handlers: List[Any] = [urllib.request.ProxyHandler({})]
    if options.url.startswith("https:"):
        handlers.append(urllib.request.HTTPSHandler(context=_context()))
    try:
        with urllib.request.build_opener(*handlers).open(options.url, timeout=FETCH_SECONDS) as answer:
            data: bytes = answer.read()
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise FetchError(f"the mirror does not give {options.url}: {error}") from error
    found = hashlib.sha256(data).hexdigest()
    if found != options.sha256:
        raise FetchError(f"{options.url} has the digest {found}, and {options.sha256 or 'none'} was asked for")
    return data


def _context() -> ssl.SSLContext:
    return ssl.create_default_context(cadata=os.environ.get(AUTHORITY) or None)


def fetch(options: Options, api: Api) -> None:
    """The chart into the folder, whole or not at all; and the way is free for helm."""
    data = fetched(options)
    begin(options, api)
    count = free_release(options, api)
    if count:
        print(f"{options.component}: {count} unfinished revisions of its release forgotten", flush=True)
    path = os.path.join(options.to, CHART)
    with open(f"{path}.part", "wb") as file:
        file.write(data)
    os.replace(f"{path}.part", path)
    print(f"{options.component}: {len(data)} bytes fetched", flush=True)


def free_release(options: Options, api: Api) -> int:
    """Forget revisions of the component's release that a helm which was ended left pending; how many there were.

    What they made stays; the next helm takes it over, because it bears the release's name.

    Raises:
        ApiError.
    """
    place = f"/api/v1/namespaces/{quote(options.namespace, safe='')}/secrets"
    count = 0
    for secret in api.items(place, {"labelSelector": f"owner=helm,name={options.component}"}):
        told = part(secret, "metadata", "labels")
        ours = told.get("owner") == "helm" and told.get("name") == options.component
        if ours and told.get("status") in PENDING:
            api.delete(f"{place}/{quote(str(part(secret, 'metadata').get('name')), safe='')}")
            count += 1
    return count


def remove(options: Options, api: Api) -> None:
    """Objects of its kinds, its own objects, its definitions, its namespace, its note."""
    applier = Applier(api, time.monotonic() + options.deadline_seconds)
    count = sum(applier.remove_all_of(kind) for kind in options.resource)
    objects = objects_of(options)
    count += applier.remove(own_objects(objects, data=options.data), options.namespace)
    count += sum(applier.remove_path(f"{DEFINITIONS}/{name}") for name in definitions_of(objects, options.crd))
    if options.remove_namespace:
        count += applier.remove_path(f"/api/v1/namespaces/{options.remove_namespace}")
    if options.forget:
        applier.remove_path(note_path(options.notes_in, options.component))
    print(f"{options.component}: {count} objects removed", flush=True)
