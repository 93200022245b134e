"""The contract of the seam on a real control plane: a dozen of its statements, as they stand."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from profiles.loading.load import load_cluster
from tasks.cluster import Kind
from tests.bed import samples
from tests.bed.ground import BedCluster, BedGround
from tests.bed.up import Bed
from tests.simulated import test_seam_contract as contract
from tests.support.simulated.seam_bench import MINE, RealBench, names_of

KINDS: tuple[Kind, ...] = ("JobSet", "Pod", "ConfigMap", "Secret")


class BedBench(RealBench):
    """The bed, whose containers come from images of its own."""

    image = samples.PYTHON


@pytest.fixture
def bench(bed: Bed) -> Iterator[BedBench]:
    cluster = BedCluster(load_cluster("bed"), bed.options, bed.folder)
    made = BedBench(cluster, "node-0", BedGround.deadline_seconds)
    there = names_of(cluster.list("ConfigMap"))
    yield made
    for kind in KINDS:
        for name in names_of(cluster.list(kind, MINE)):
            cluster.delete(kind, name, grace_seconds=1)
    # One statement takes the label away: what it made is known by nothing but that it was not there before.
    for name in set(names_of(cluster.list("ConfigMap"))).difference(there):
        cluster.delete("ConfigMap", name)
    made.until(lambda: not any(cluster.list(kind, MINE) for kind in KINDS))
    cluster.close()


test_apply_creates_and_returns_what_is_stored = contract.test_apply_creates_and_returns_what_is_stored
test_the_same_applied_again_changes_nothing = contract.test_the_same_applied_again_changes_nothing
test_other_content_is_taken_over_by_the_same_object = contract.test_other_content_is_taken_over_by_the_same_object
test_an_object_of_another_ledger = contract.test_an_object_of_another_ledger_is_neither_taken_over_nor_changed
test_a_dry_run_touches_nothing = contract.test_a_dry_run_says_what_would_be_and_touches_nothing
test_a_list_has_what_carries_all_labels_by_name = contract.test_a_list_has_what_carries_all_labels_by_name
test_a_watch_goes_on_after_the_version_it_is_given = contract.test_a_watch_goes_on_after_the_version_it_is_given
test_a_watch_tells_in_the_order_of_what_happened = contract.test_a_watch_tells_in_the_order_of_what_happened
test_what_loses_its_label_is_told_as_deleted = contract.test_what_loses_its_label_is_told_as_deleted
test_a_patch_may_ask_for_the_version_it_read = contract.test_a_patch_may_ask_for_the_version_it_read
test_delete_is_safe_to_repeat = contract.test_delete_is_safe_to_repeat
test_a_log_is_kept_after_the_end_and_has_a_tail = contract.test_a_log_is_kept_after_the_end_and_has_a_tail
test_a_pod_that_has_ended_says_how = contract.test_a_pod_that_has_ended_says_how
test_a_gang_goes_and_takes_its_pods_with_it = contract.test_a_gang_goes_and_takes_its_pods_with_it
