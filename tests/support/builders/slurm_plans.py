"""Plans of tests through Slurm, for tests."""

from __future__ import annotations

from collections.abc import Sequence

from profiles.checks.suite import SuiteProfile
from profiles.cluster import ClusterProfile
from profiles.loading.load import load_hardware
from workflows.node_tests.pods import Rack
from workflows.node_tests.preflight import PreflightPlan


def check(name: str, **call: object) -> dict[str, object]:
    """A check of a copy in memory, or of whatever `call` says."""
    return {
        "name": name,
        "depth": "device",
        "probe": {"name": "memory-bandwidth", "arguments": {"bytes": "4194304"}},
        "quantity": "memory_bandwidth",
        "unit": "GB/s",
        "direction": "higher_is_better",
        "limits": {"absolute": [{"at_least": 0.001, "source": "the story"}]},
        "deadline_seconds": 20,
        "fault_class": "straggler",
        "what_to_do": "Look at it.",
        **call,
    }


def tool(name: str, *command: str) -> dict[str, object]:
    """A check that calls a command."""
    return check(name, probe=None, command=command, parser="babelstream")


COPY, SLOW = check("copy"), tool("slow", "sh", "-c", "sleep 3; echo x")


def plan_on(nodes: Sequence[str], *checks: dict[str, object], number: int = 1, hardware: str = "cpu") -> PreflightPlan:
    """A test of these nodes; none named: of a copy in memory."""
    storage = {"kind": "host_path", "source": "/nowhere", "mount_path": "/nowhere"}
    pool = {"name": "all", "hardware": hardware, "nodes": max(1, len(nodes))}
    document = {"name": "machines", "engine": "kubernetes", "pools": [pool], "storage": [storage]}
    suite = {"name": "story", "checks": list(checks) or [COPY], "deadline_seconds": {"device": 30}}
    return PreflightPlan(
        cluster=ClusterProfile.model_validate(document),
        hardware={"all": load_hardware(hardware)},
        suite=SuiteProfile.model_validate(suite),
        depth="device",
        name=f"primus-preflight-machines-{number}",
        racks=(Rack("all", tuple(nodes)),),
        launcher="slurm",
    )
