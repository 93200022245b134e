"""The same made-up nodes on a real control plane and on the embedded cluster: the same records, field by field.

The embedded cluster's are compared with those by SSH and through Slurm in `tests/hosts/test_preflight_ansible.py` and
`tests/hosts/test_slurm_nodes.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from profiles.cluster import ClusterProfile
from profiles.loading.load import load_cluster
from tasks.cluster import using
from tasks.context import at_hand
from tasks.kubernetes.api_server import ApiServer
from tasks.kubernetes.cluster import KubernetesCluster
from tasks.kubernetes.configuration import configuration_of
from tasks.node_tests.preflight import run_preflight
from tasks.settings import localised, make_own_storage
from tests.bed import samples
from tests.bed.commands import until
from tests.bed.up import Bed
from tests.support.fakes.launcher_matrix import (
    EXPECTED,
    NODES,
    FakedNodes,
    as_played,
    of_any_cluster,
    outline,
    plan,
    settings_in,
    told_by_pods,
    verdicts,
)
from workflows.model.node_results import NodeResult
from workflows.node_tests.preflight import PreflightPlan

pytestmark = pytest.mark.story


def profile_with(faked: FakedNodes, home: Path) -> ClusterProfile:
    """The bed's profile; the tools are on the PATH of the pods that test its nodes."""
    known = localised(load_cluster("bed"), home)
    [pool] = known.pools
    tools = pool.model_copy(update={"fabric_environment": {"PATH": faked.path}})
    return known.model_copy(update={"pools": (tools,)})


def told_by_real_pods(
    bed: Bed, home: Path, made_up: Sequence[str], number: int
) -> tuple[PreflightPlan, list[NodeResult]]:
    """What so many made-up nodes tell that each real node plays one of them."""
    real = [node.name for node in bed.options.real_nodes()]
    players = dict(zip(made_up, real, strict=True))
    profile = profile_with(FakedNodes(home / "shared" / made_up[0], players), home)
    make_own_storage(profile, home)
    asked = plan(profile, "kubernetes", real, number)
    environment = {"KUBECONFIG": str(bed.folder.account("runner"))}
    cluster = KubernetesCluster(profile, ApiServer(lambda: configuration_of("bed", environment)))
    with at_hand(settings_in(home)), using(cluster):
        try:
            told = run_preflight(asked, lambda phase, count: None)
        finally:
            cluster.delete("Workflow", asked.name)
            until("the test is gone", lambda: cluster.get("Workflow", asked.name) is None, samples.LIMIT_S, 0.2)
            cluster.close()
    return asked, as_played(told, players)


def test_the_same_nodes_get_the_same_verdicts_on_a_real_control_plane(bed: Bed, tmp_path: Path) -> None:
    at_once = len(list(bed.options.real_nodes()))
    own: dict[str, object] = {}
    for begin in range(0, len(NODES), at_once):
        asked, told = told_by_real_pods(bed, tmp_path / "bed", NODES[begin : begin + at_once], begin + 1)
        assert [(item.node, item.why) for item in told] == [(node, "") for node in NODES[begin : begin + at_once]]
        own |= verdicts(asked, told)
    in_pods, pods = told_by_pods(tmp_path / "embedded", FakedNodes(tmp_path / "bin"))
    others = verdicts(in_pods, pods)
    assert outline(own) == outline(others) == EXPECTED
    assert of_any_cluster(own) == of_any_cluster(others), "records are equal but for time and the cluster's name"
