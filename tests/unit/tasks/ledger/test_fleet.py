from __future__ import annotations

from tasks.ledger.ledger import Ledger
from tests.support.builders.ledgers import driven
from workflows.model.records import NodeRecord

pytest_plugins = ["tests.support.servers.ledger_fixtures"]


def test_nodes_remember_the_newest_state_and_the_brake_counts_ours(ledger: Ledger) -> None:
    fencing = driven(ledger)
    states = [("node-0", "quarantined", 10.0), ("node-1", "quarantined", 20.0), ("node-0", "testing", 30.0)]
    states += [("node-1", "schedulable", 40.0), ("gpu-0", "quarantined", 50.0)]
    for node, state, since in states:
        record = NodeRecord("local", node, state, "why", since, "i", "gpu" if node == "gpu-0" else "cpu")
        ledger.set_node(record, run="demo", fencing=fencing)
        ledger.set_node(record, run="demo", fencing=fencing)
    assert [(node.node, node.state) for node in ledger.nodes("local")] == [
        ("gpu-0", "quarantined"),
        ("node-0", "testing"),
        ("node-1", "schedulable"),
    ]
    newest = ledger.node("local", "node-1")
    assert newest is not None
    assert newest.since == 40.0
    assert ledger.node("local", "node-9") is None
    counts = ledger.brake_counts("local", "cpu", 15.0)
    assert (counts.quarantined, counts.evictions) == (1, 1)
    assert ledger.brake_counts("local", "gpu", 0.0).quarantined == 1
    assert ledger.brake_counts("elsewhere", "cpu", 0.0).evictions == 0
