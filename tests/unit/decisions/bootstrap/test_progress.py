"""The table of hosts that people watch: made of what is heard, in any order, and cut to the rows there are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flows.decisions.bootstrap.progress import (
    URGENT,
    HostProgress,
    count_words,
    further_words,
    progress_after,
    view_of,
)
from workflows.model.bootstrap import LOOK, HostNews, NewsWord

NOW = 1_000_000.0


def heard(*news: HostNews, at: float = NOW, apart: float = 1.0) -> dict[str, HostProgress]:
    return progress_after({}, [(at + apart * index, one) for index, one in enumerate(news)])


def step(word: NewsWord, said: str = "", stage: str = "hosts", host: str = "n1") -> HostNews:
    return HostNews(host, stage, word, said)


def test_a_host_is_looked_at_worked_on_and_proven() -> None:
    looked = heard(HostNews("n1", LOOK, "not yet", "waits"), HostNews("n1", LOOK, "at work", "is asked"))
    assert looked["n1"] == HostProgress("n1", LOOK, "at work", "is asked", NOW + 1)
    assert looked["n1"].seconds(NOW + 5) == 4
    checked = progress_after(looked, [(NOW + 9, step("pass", "fit", "prechecks"))])
    assert (checked["n1"].word, checked["n1"].seconds(NOW + 99)) == ("pass", 8), "how long the look took"
    begun = progress_after(checked, [(NOW + 20, step("at work", "programs")), (NOW + 25, step("at work", "waits"))])
    assert (begun["n1"].said, begun["n1"].seconds(NOW + 30)) == ("waits", 10)
    ended = progress_after(begun, [(NOW + 40, step("fail", "no containerd"))])
    assert (ended["n1"].said, ended["n1"].seconds(NOW + 99)) == ("no containerd", 20)
    again = progress_after(ended, [(NOW + 50, step("at work", "programs"))])
    assert again["n1"].seconds(NOW + 51) == 1, "another try is timed by itself"


def test_what_waits_for_its_turn_has_taken_no_time() -> None:
    assert heard(step("not yet", "waits for its turn"))["n1"].seconds(NOW + 99) is None


def test_details_of_a_step_are_of_hosts_at_work_alone() -> None:
    detail = HostNews("n1", "", "at work", "kubeadm join")
    assert heard(step("at work", "joins"), detail)["n1"].said == "kubeadm join"
    assert heard(detail) == {}, "a play also runs on hosts of whom nothing was asked"
    assert heard(step("pass", "it is Ready"), detail)["n1"].said == "it is Ready"


def test_a_later_look_takes_nothing_from_what_is_known() -> None:
    looks = HostNews("n1", LOOK, "at work", "is asked")
    for known in (step("at work", "joins"), step("fail", "no node"), step("pass", "fit", "prechecks")):
        assert heard(known, looks) == heard(known)


def many(**words: int) -> dict[str, HostProgress]:
    names = [(word, f"{word[0]}{index}") for word, count in words.items() for index in range(count)]
    news = [step(word.replace("_", " "), host=name) for word, name in names]  # pyright: ignore[reportArgumentType]
    return heard(*news)


def test_where_all_fit_they_stand_in_their_own_order() -> None:
    progress = many(**{"pass": 2, "at_work": 1, "fail": 1})
    view = view_of(progress, 4)
    assert [row.subject for row in view.rows] == ["p0", "p1", "a0", "f0"]
    assert further_words(view) == ""
    assert view.further == {}


def test_where_they_do_not_fit_those_that_want_eyes_stand_first_and_the_rest_is_counted() -> None:
    progress = many(**{"pass": 9940, "not_yet": 10, "at_work": 30, "unknown": 1, "fail": 2})
    view = view_of(progress, 33)
    assert [row.subject for row in view.rows[:5]] == ["f0", "f1", "u0", "a0", "a1"]
    assert further_words(view) == "… and 9,950 further: 10 not yet, 9,940 pass"
    assert count_words(view.all) == "2 fail, 1 unknown, 30 at work, 10 not yet, 9,940 pass"
    assert view_of(progress, 0).rows == ()


NEWS = st.builds(
    HostNews,
    st.sampled_from(["n1", "n2", "n3", "n4"]),
    st.sampled_from(["", LOOK, "prechecks", "hosts", "workers"]),
    st.sampled_from(URGENT),
    st.text(max_size=5),
)
HEARD = st.lists(st.tuples(st.floats(0, 1e9), NEWS), max_size=40)


@given(HEARD, st.integers(0, 40), st.integers(-1, 6))
def test_no_host_is_lost_or_counted_twice_and_time_never_runs_backwards(
    told: list[tuple[float, HostNews]], cut: int, rows: int
) -> None:
    whole = progress_after({}, told)
    assert progress_after(progress_after({}, told[:cut]), told[cut:]) == whole, "it does not matter when it is drawn"
    view = view_of(whole, rows)
    assert len(view.rows) == min(len(whole), max(0, rows))
    assert sum(view.all.values()) == len(whole)
    assert sum(view.further.values()) == len(whole) - len(view.rows)
    shown = {row.subject for row in view.rows}
    hidden = [row for name, row in whole.items() if name not in shown]
    worst = max((URGENT.index(row.word) for row in view.rows), default=0)
    assert all(URGENT.index(row.word) >= worst for row in hidden), "nobody hidden is more urgent than who is shown"
    assert all((row.seconds(0.0) or 0.0) >= 0.0 for row in whole.values())
