"""Output of containers: what there is, and as it comes."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from profiles.errors import NotFound, Refused, Unavailable
from tasks.cluster import Manifest
from tasks.kubernetes.api_server import ApiServer, Request
from tasks.kubernetes.resources import RESOURCES
from workflows.model.manifest import items, part

LOG_BYTES = 32 << 20
"""The newest part of a log that is kept in memory."""
_LOG_SECONDS = 30.0
_SILENCE_SECONDS = 5.0
"""A silent connection is opened anew after this time: it may be dead, and the time may be up."""
_POLL_SECONDS = 0.5
_STAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.\d+)?(Z|[+-]\d\d:\d\d)")
_NOT_YET = ("is waiting to start", "PodInitializing", "ContainerCreating", "does not have a host assigned")
_UNNAMED = "a container name must be specified"


@dataclass(frozen=True)
class LogSource:
    """Whose output is wanted."""

    server: ApiServer
    namespace: str
    pod: str
    name: str
    """"" for the pod's default container."""

    def request(self, more: Mapping[str, str]) -> Request:
        """A request for its log."""
        query = {"container": self.name, **more} if self.name else dict(more)
        path = RESOURCES["Pod"].path(self.namespace, self.pod, "log")
        return Request("GET", path, f"read the log of {self.pod}", query, headers={"Accept": "*/*"})

    def named(self) -> LogSource:
        """The same with the name of the pod's default container.

        Raises:
            NotFound: the pod is gone.
        """
        pod = self._pod()
        chosen = part(pod, "metadata", "annotations").get("kubectl.kubernetes.io/default-container")
        name = str(chosen or items(pod, "spec", "containers")[0]["name"])
        return LogSource(self.server, self.namespace, self.pod, name)

    def ended(self) -> bool:
        """Whether nothing more can come: the container ended, or the pod did or is gone."""
        try:
            status = part(self._pod(), "status")
        except NotFound:
            return True
        if status.get("phase") in ("Succeeded", "Failed"):
            return True
        containers = [*items(status, "initContainerStatuses"), *items(status, "containerStatuses")]
        return any(each["name"] == self.name and "terminated" in part(each, "state") for each in containers)

    def _pod(self) -> Manifest:
        request = Request("GET", RESOURCES["Pod"].path(self.namespace, self.pod), f"get Pod {self.pod}")
        return self.server.json(request)


def read_log(container: LogSource, tail_lines: int | None) -> str:
    """What was printed so far, at most the newest `LOG_BYTES`; "" while there is nothing.

    Raises:
        NotFound: the pod is gone.
        Unavailable.
    """
    more = {} if tail_lines is None else {"tailLines": str(tail_lines)}
    kept: deque[bytes] = deque()
    size, deadline = 0, container.server.clock() + _LOG_SECONDS
    try:
        with container.server.lines(container.request(more), _LOG_SECONDS) as lines:
            for line in lines:
                kept.append(line)
                size += len(line) + 1
                while size > LOG_BYTES:
                    size -= len(kept.popleft()) + 1
                if container.server.clock() > deadline:
                    raise Unavailable(f"the log of {container.pod} came too slowly")
    except Refused as error:
        if _UNNAMED in error.reason and not container.name:
            return read_log(container.named(), tail_lines)
        if any(words in error.reason for words in _NOT_YET):
            return ""
        raise
    return "".join(line.decode("utf-8", "replace") + "\n" for line in kept)


@dataclass
class _Seen:
    """Lines of the newest second: a log can only be continued from a whole second on."""

    second: str = ""
    """RFC 3339."""
    lines: Counter[bytes] = field(default_factory=Counter[bytes])

    def add(self, stamp: bytes, line: bytes) -> None:
        """Remember a line that was handed on."""
        found = _STAMP.fullmatch(stamp)
        second = b"".join(found.groups()).decode("ascii") if found else self.second
        if second != self.second:
            self.second, self.lines = second, Counter()
        self.lines[line] += 1


def follow_log(container: LogSource, timeout_seconds: float) -> Iterator[str]:
    """Lines as they come, each once, through broken connections, until the container ended or the time is up.

    Ends at most `_SILENCE_SECONDS` late where the container is silent.

    Raises:
        NotFound: the pod was gone from the beginning.
        Unavailable: no answer until the time was up.
    """
    server, seen = container.server, _Seen()
    container = container if container.name else container.named()
    deadline = server.clock() + timeout_seconds
    trouble: Unavailable | None = None
    while (left := deadline - server.clock()) > 0:
        ended, began = False, server.clock()
        try:
            ended = container.ended()
            yield from _connected(container, seen, min(left, _SILENCE_SECONDS), deadline)
            trouble = None
        except NotFound:
            return
        except Unavailable as error:
            trouble = error
        if ended and trouble is None:
            return
        if server.clock() - began < _POLL_SECONDS:
            server.sleep(max(0.0, min(_POLL_SECONDS, deadline - server.clock())))
    if trouble is not None:
        raise trouble


def _connected(container: LogSource, seen: _Seen, silence_seconds: float, deadline: float) -> Iterator[str]:
    more = {"follow": "true", "timestamps": "true"}
    repeated: Counter[bytes] = Counter()
    if seen.second:
        more["sinceTime"] = seen.second
        repeated = Counter(seen.lines)
    try:
        with container.server.lines(container.request(more), silence_seconds) as lines:
            for line in lines:
                if repeated[line] > 0:
                    repeated[line] -= 1
                    continue
                stamp, _, text = line.partition(b" ")
                seen.add(stamp, line)
                yield text.decode("utf-8", "replace")
                if container.server.clock() >= deadline:
                    return
    except Refused as error:
        if not any(words in error.reason for words in _NOT_YET):
            raise
