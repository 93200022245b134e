"""The monitor's loop in the background: `python -m deployments.processes.monitor_loop`.

`primus up` and the monitor's pod on a cluster start it. It watches nodes and runs, sends the ledger's history to the
server as events, and restarts the other background processes of its home where they died. It waits for whatever is
away, and for the end of another monitor of the same cluster.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import FrameType

from deployments.cli.monitor import SWITCH_SECONDS
from flows.monitor import keep_watch
from flows.publishing import event_hook
from flows.watching.nodes import NodeNotice
from profiles.cluster import ClusterProfile
from profiles.errors import Conflict, Fenced, PrimusError, Transient
from profiles.loading.load import load_cluster
from tasks.addresses import prepare
from tasks.cluster import using
from tasks.clusters import open_cluster
from tasks.context import at_hand
from tasks.embedded.runtime.inherited import reset_inherited
from tasks.ledger.ledger import Ledger
from tasks.observe.reflector import Bell
from tasks.prefect.services import Tries, revive
from tasks.settings import Settings, localised

AGAIN_SECONDS = 5.0
"""Between two tries where a neighbour is away or another monitor of the cluster lives."""
HOOK_SECONDS = 1.0

Hook = Callable[[], object]


@dataclass
class Ending:
    """SIGTERM ends the loop."""

    asked: threading.Event = field(default_factory=threading.Event)
    bell: Bell = field(default_factory=Bell)

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        """As a signal's handler."""
        self.asked.set()
        self.bell.ring()


def tend(settings: Settings) -> Hook:
    """A hook that restarts what should run in this home and died."""
    tries = Tries(settings.home)

    def hook() -> None:
        for line in revive(settings.home, tries):
            _say(line)

    return hook


def watch(settings: Settings, profile: ClusterProfile, ending: Ending) -> None:
    """Watch until the end is asked for, whatever comes between."""
    hooks: Sequence[Hook] = (tend(settings), event_hook(Ledger(settings.ledger_url)))
    while not ending.asked.is_set():
        try:
            with at_hand(settings), using(open_cluster(profile, settings.home)):
                keep_watch(profile, profile.monitor.mode, _tell, ending.asked.is_set, ending.bell, hooks)
        except (Conflict, Fenced, Transient) as error:
            _say(f"{error}; tried again in {AGAIN_SECONDS:g} s")
            _meanwhile(hooks, ending)


def _meanwhile(hooks: Sequence[Hook], ending: Ending) -> None:
    """Run the hooks while the cluster is away: they need none."""
    for _ in range(int(AGAIN_SECONDS / HOOK_SECONDS)):
        for hook in hooks:
            try:
                hook()
            except (PrimusError, OSError) as error:
                _say(str(error))
        if ending.asked.wait(HOOK_SECONDS):
            return


def _tell(line: NodeNotice) -> None:
    _say(" ".join(part for part in (line.node or line.subject, f"{line.event}:", line.why) if part))


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def main() -> int:
    """Until SIGTERM."""
    reset_inherited()
    ending = Ending()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, ending)
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        prepare(os.environ)
        settings = Settings.from_environment(os.environ)
        settings.make_home()
        profile = localised(load_cluster(settings.cluster), settings.home)
        _say(f"watches {profile.name}, mode {profile.monitor.mode}")
        watch(settings, profile, ending)
    except PrimusError as error:
        _say(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
