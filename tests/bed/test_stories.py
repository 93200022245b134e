"""The stories of the embedded cluster, told with real pods on real nodes: the same code on another ground."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.bed.ground import BedGround
from tests.stages import Stage, outcomes, stage, succeeded
from tests.test_story_comes_back import (
    test_a_corrupt_newest_checkpoint_is_passed_over,
    test_a_killed_driver_is_taken_over,
    test_a_killed_launcher,
    test_a_killed_rank,
    test_a_lost_node,
    test_a_node_lost_in_silence,
    test_a_preemption_with_notice_loses_no_step,
    test_stop_and_resume,
)

__all__ = [
    "test_a_corrupt_newest_checkpoint_is_passed_over",
    "test_a_killed_driver_is_taken_over",
    "test_a_killed_launcher",
    "test_a_killed_rank",
    "test_a_lost_node",
    "test_a_node_lost_in_silence",
    "test_a_preemption_with_notice_loses_no_step",
    "test_stop_and_resume",
]
pytestmark = pytest.mark.story


@pytest.fixture
def scene(prefect_server: str) -> Iterator[Stage]:
    with stage(prefect_server, BedGround()) as made:
        yield made


@pytest.fixture(scope="module")
def unfailed(prefect_server: str) -> Iterator[str]:
    """Weights of a run of the same seed to which nothing happened."""
    with stage(prefect_server, BedGround()) as made:
        story = made.start("unfailed").end()
        assert succeeded(story), made.tell()
        assert outcomes(story) == ["succeeded"]
        made.no_orphans()
        yield made.weights()
