"""How patient tests are with a machine, and that they end."""

from __future__ import annotations

import pytest

from tests.support.running import waiting


def test_a_calm_machine_gets_the_seconds_as_they_stand() -> None:
    instant = iter([0.0, 0.0])
    assert waiting.slowness(lambda: next(instant)) == 1.0


def test_a_machine_that_takes_three_times_as_long_gets_three_times_as_much(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter([10.0, 10.0 + 3 * waiting.CALM_SECONDS])
    factor = waiting.slowness(lambda: next(ticks))
    monkeypatch.setattr(waiting, "slowness_at_start", lambda: factor)
    assert waiting.patience(60.0) == pytest.approx(180.0)


def test_no_machine_is_waited_for_without_end() -> None:
    ticks = iter([0.0, 1e6])
    assert waiting.slowness(lambda: next(ticks)) == waiting.LONGEST_FACTOR


class TestUntil:
    """With a clock of its own, so that nobody waits."""

    @pytest.fixture(autouse=True)
    def clock(self, monkeypatch: pytest.MonkeyPatch) -> list[float]:
        now = [0.0]
        monkeypatch.setattr(waiting.time, "monotonic", lambda: now[0])
        monkeypatch.setattr(waiting.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
        monkeypatch.setattr(waiting, "slowness_at_start", lambda: 1.0)
        return now

    def test_it_gives_the_first_answer_that_is_not_empty(self) -> None:
        answers = iter([None, "", [], "there"])
        assert waiting.until("an answer", lambda: next(answers)) == "there"

    def test_it_fails_at_its_limit_with_what_is_known(
        self, clock: list[float], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(waiting, "slowness", lambda: 1.0)
        with pytest.raises(AssertionError, match="did not happen within 10 s: rain\nclear sky"):
            waiting.until("rain", lambda: None, lambda: "clear sky", limit_seconds=10.0)
        assert 10.0 < clock[0] < 11.0

    def test_a_machine_that_became_slower_meanwhile_is_given_more(
        self, clock: list[float], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(waiting, "slowness", lambda: 2.0)
        assert waiting.until("late", lambda: clock[0] > 15.0, limit_seconds=10.0)
        with pytest.raises(AssertionError, match="within 20 s"):
            waiting.until("never", lambda: None, limit_seconds=10.0)
