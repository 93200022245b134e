"""Two people with a ledger each on one real control plane: the stories of the embedded cluster, told there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.bed.ground import BedGround
from tests.stories.train import test_two_ledgers as two
from tests.support.harness.stages import Stage, stage

pytestmark = pytest.mark.story


@pytest.fixture
def first(prefect_server: str) -> Iterator[Stage]:
    with stage(prefect_server, BedGround()) as made:
        yield made


second = two.second

test_a_name_that_is_taken_on_the_cluster_is_refused = (
    two.test_a_name_that_is_taken_on_the_cluster_is_refused_and_the_first_run_goes_on
)
test_a_name_that_is_taken_between_plan_and_submission = two.test_a_name_that_is_taken_between_plan_and_submission
test_a_folder_that_is_taken_is_refused = two.test_a_folder_that_is_taken_is_refused_and_its_checkpoints_stay
