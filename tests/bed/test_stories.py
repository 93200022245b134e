"""The stories of the embedded cluster, told with real pods on real nodes: the same code on another ground.

docs/bed.md says which of them are not told here, and why.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.bed.ground import BedGround
from tests.stories.recovery import test_comes_back as back
from tests.stories.recovery import test_gives_up as over
from tests.support.harness.stages import Stage, stage

pytestmark = pytest.mark.story


@pytest.fixture
def scene(prefect_server: str) -> Iterator[Stage]:
    with stage(prefect_server, BedGround()) as made:
        yield made


test_a_killed_rank = back.test_a_killed_rank
test_a_killed_launcher = back.test_a_killed_launcher
test_a_killed_coordinator_does_not_stop_the_training = back.test_a_killed_coordinator_does_not_stop_the_training
test_a_killed_driver_is_taken_over = back.test_a_killed_driver_is_taken_over
test_a_lost_node = back.test_a_lost_node
test_a_node_lost_in_silence = back.test_a_node_lost_in_silence
test_a_preemption_with_notice_loses_no_step = back.test_a_preemption_with_notice_loses_no_step
test_a_drained_node = back.test_a_drained_node
test_a_cordoned_node_is_kept_while_there_is_no_other = back.test_a_cordoned_node_is_kept_while_there_is_no_other
test_a_host_out_of_memory_is_tried_once_more = back.test_a_host_out_of_memory_is_tried_once_more
test_a_loss_that_is_no_number_is_rolled_back = back.test_a_loss_that_is_no_number_is_rolled_back
test_a_full_disk_while_saving = back.test_a_full_disk_while_saving
test_a_corrupt_newest_checkpoint_is_passed_over = back.test_a_corrupt_newest_checkpoint_is_passed_over
test_stop_and_resume = back.test_stop_and_resume
test_a_ledger_that_is_away_costs_nothing = back.test_a_ledger_that_is_away_costs_nothing

test_an_exception_in_the_user_s_code_is_not_retried = over.test_an_exception_in_the_user_s_code_is_not_retried
test_a_bad_image = over.test_a_bad_image
test_a_gang_that_finds_no_room = over.test_a_gang_that_finds_no_room
test_mode_observe_touches_nothing = over.test_mode_observe_touches_nothing
test_a_pause_holds_what_was_decided = over.test_a_pause_holds_what_was_decided
test_two_drivers_of_one_run = over.test_two_drivers_of_one_run
