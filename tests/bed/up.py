"""The bed that is up, as tests use it."""

from __future__ import annotations

import time
from dataclasses import dataclass

from tests.bed import artifacts, controllers, kwok, nodes, options, plane, tenancy
from tests.bed.api import Api, Manifest, RefusedError, path_of
from tests.bed.commands import BedError, until
from tests.bed.layout import Cache, Folder, cache, folder
from tests.bed.options import Options
from tests.bed.processes import Processes
from tests.bed.supervisor import NAME as SUPERVISOR

CONTROLLERS = ("workflow-controller", "jobset", "kueue")


@dataclass(frozen=True)
class Bed:
    """All that one needs to use it and to hurt it."""

    cache: Cache
    folder: Folder
    options: Options
    processes: Processes
    api: Api
    """Of the administrator."""

    def as_account(self, account: str, namespace: str) -> Api:
        """The API server, asked by a service account."""
        return Api(self.folder, self.options, tenancy.request_token(self.api, account, namespace))

    def find(self, manifest: Manifest) -> Manifest | None:
        """An object as it is now; None where it is gone."""
        try:
            return self.api.get(path_of(manifest))
        except RefusedError as refused:
            if refused.status == 404:
                return None
            raise

    def node_names(self) -> set[str]:
        """All nodes, real and played."""
        played = {kwok.name(index) for index in range(self.options.kwok)}
        return played | {node.name for node in self.options.real_nodes()}

    def wrong(self) -> list[str]:
        """What is not well, in words; nodes that are not Ready too."""
        found = [f"{name} does not run" for name in self.processes.names() if not self.processes.running(name)]
        found += [f"{name} is not ready" for name in CONTROLLERS if not controllers.ready(self.options, name)]
        if not self.api.healthy():
            found.append("the API server is not ready")
        if not plane.healthy(f"http://{self.options.plane}:{plane.DNS_HEALTH_PORT}/ready"):
            found.append("the name server is not ready")
        if not artifacts.ready(self.options):
            found.append("the artifact repository is not ready")
        if self.options.kwok and not kwok.ready(self.options):
            found.append("kwok is not ready")
        return found + [f"{name} is not Ready" for name in sorted(self.node_names() - self.api.ready_nodes())]

    def settle(self, limit_s: float = 90.0) -> None:
        """Start whatever is stopped and wait until all is well and every real node counts its GPUs.

        Raises:
            BedError: not within `limit_s`; says what is not well.
        """
        for name in sorted(self.processes.names(), key=lambda name: name == SUPERVISOR):
            self.processes.start_again(name)
        deadline = time.monotonic() + limit_s
        until("an API server that answers", self.api.healthy, limit_s, every_s=0.2)
        try:
            until("all of the bed well", lambda: not self.wrong(), deadline - time.monotonic(), every_s=0.3)
        except BedError as error:
            raise BedError(f"{error}: {', '.join(self.wrong())}") from error
        for node in self.options.real_nodes():
            nodes.give_gpus(self.api, self.options, node)


def find() -> Bed | None:
    """The bed of this checkout; None where none is up."""
    here = folder()
    known = options.load(here)
    if known is None:
        return None
    return Bed(cache(), here, known, Processes(here), Api(here, known))
