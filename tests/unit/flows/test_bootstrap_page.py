"""The page of a bootstrap and its artifacts: what was done when, what does not hold, and others' words harmless."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from flows.pages.bootstrap import EACH_HOST, MOST_ROWS, bootstrap_page, group_rows, plan_sheet, table_sheet, timeline
from flows.pages.frame import PLOT_WIDTH
from profiles.vocabulary import VerdictWord
from tests.support.builders.bootstraps import FAULTS, MadeBootstrap
from workflows.model.bootstrap import Stage, StepOutcome, StepRecord

SINCE = 1_800_000_000.0
TABLE = {
    "n1": {"prechecks": "pass", "hosts": "pass", "control-plane": "pass"},
    "w1": {"prechecks": "pass", "hosts": "fail", "workers": "not yet"},
    "jobset": {"components": "not yet"},
}
STEPS = (
    StepOutcome("hosts/n1", "programs on n1", VerdictWord.PASS, "all digests fit", 20.0),
    StepOutcome("control-plane/n1", "control plane on n1", VerdictWord.PASS, "its API answers", 41.5),
    StepOutcome("hosts/w1", "programs on w1", VerdictWord.FAIL, "<b>containerd</b> does not answer", 12.0),
    StepOutcome("workers/w1", "w1 joins", VerdictWord.FAIL, "no such node", None),
    StepOutcome("components/jobset", "jobset serves", VerdictWord.FAIL, "it is not there", None),
)


def record(stage: Stage, subject: str, began: float, ended: float | None, tries: int = 1) -> StepRecord:
    end = None if ended is None else SINCE + ended
    return StepRecord("made", stage, subject, "w", "proven", tries, SINCE + began, end, "said")


RECORDS = (
    record(Stage.HOSTS, "n1", 1.0, 21.0),
    record(Stage.CONTROL_PLANE, "n1", 22.0, 63.5),
    record(Stage.HOSTS, "w1", 1.0, 13.0),
    record(Stage.HOSTS, "old", -100.0, -90.0),
    record(Stage.WORKERS, "w2", 5.0, 5.0, tries=0),
)


def page() -> str:
    return bootstrap_page("made: build", "failed: hosts/w1", TABLE, STEPS, RECORDS, SINCE)


def test_the_page_says_what_was_done_what_does_not_hold_and_what_took_longest() -> None:
    text = page()
    for said in (
        "made: build",
        "failed: hosts/w1",
        "Begun 2027-01-15 08:00:00 UTC.",
        "1 of 2",
        "0 of 1",
        "1 min 4 s",
        "✖ fail",
        "· not yet",
    ):
        assert said in text
    assert text.index("control plane on n1") < text.index("programs on n1")
    assert "<b>" not in text
    assert "&lt;b&gt;containerd" in text


def test_what_failed_stands_apart_from_what_only_waits_for_it() -> None:
    broken, _, waits = page().partition("What was not begun yet")
    assert "containerd" in broken
    assert "no such node" not in broken
    assert waits.index("no such node") < waits.index("it is not there") < waits.index("Hosts and stages")


def test_the_page_of_a_comparison_says_each_difference_and_nothing_of_steps() -> None:
    text = bootstrap_page("made: drift", "1 difference", {}, (), (), SINCE, ["n1: <b>kubelet</b>: wanted 1.36"])
    assert "n1: &lt;b&gt;kubelet&lt;/b&gt;: wanted 1.36" in text
    for empty in ("Nothing was to be done", "hosts that hold", "What does not hold", "Hosts and stages", "<dl"):
        assert empty not in text


def test_only_what_this_command_carried_out_is_drawn() -> None:
    found = timeline([item for item in RECORDS if item.began_at >= SINCE and item.tries], SINCE)
    assert found is not None
    assert [lane.name for lane in found.lanes] == ["hosts/n1", "hosts/w1", "control-plane/n1"]
    assert found.about == "3 steps in 1 min 4 s, a mark every 15 s"
    assert [said for _, said in found.ticks] == ["0 s", "15 s", "30 s", "45 s"], "the last has no room for words"
    assert all(bar.x >= 0 and bar.x + bar.width <= PLOT_WIDTH for lane in found.lanes for bar in lane.bars)
    assert timeline([], SINCE) is None
    done = bootstrap_page("t", "all hold", {"n1": TABLE["n1"]}, STEPS[:2], (), SINCE)
    assert "Nothing was to be done: every proof held." in done
    assert "Nothing was carried out." in bootstrap_page("t", "a plan", TABLE, STEPS, (), SINCE)


def test_many_steps_are_drawn_a_lane_a_stage_and_none_is_left_out() -> None:
    made = MadeBootstrap(2000)
    found = timeline(made.records, SINCE)
    assert found is not None
    named = {lane.name: len(lane.bars) for lane in found.lanes}
    assert named == {
        "hosts (2,000)": 40,
        "control-plane (3)": 3,
        "workers (1,997)": 40,
        "network (2,000)": 40,
        "components (9)": 1,
        "proof": 1,
    }
    assert (
        found.lanes[0].bars[0].title == "hosts of cp-[1-3], gpu-r01-n[01-40], gpu-r02-n[01-07]: 1 min 30 s, from 40.0 s"
    )
    assert len(found.ticks) <= 7


@pytest.mark.parametrize(("hosts", "faults"), [(3, False), (60, True), (2000, True)])
def test_hosts_that_are_alike_are_one_row_and_bad_ones_stand_first(hosts: int, faults: bool) -> None:
    made = MadeBootstrap(hosts, faults)
    rows = group_rows({name: row for name, row in made.table.items() if "hosts" in row})
    assert len(rows) == {3: 1, 60: 3, 2000: 3}[hosts]
    assert sum(int(row["number"].replace(",", "")) for row in rows) == hosts
    assert rows[0]["hosts"] == ("✖ fail" if faults else "✔ pass")


@pytest.mark.parametrize("alike", [True, False])
def test_two_thousand_hosts_are_a_small_page(alike: bool) -> None:
    made = MadeBootstrap(2000, True, alike)
    text = bootstrap_page(*made.page)
    assert len(text.encode()) < 300_000
    assert all(fault in text for fault in FAULTS) or not alike
    if not alike:
        assert "more that differ in numbers" in text or f"{2000 - 3 - MOST_ROWS} more are not shown" in text


def test_the_artifacts_show_hosts_by_stages_and_the_plan() -> None:
    sheet = table_sheet("made", TABLE, "failed: hosts/w1")
    none = {"prechecks": "", "hosts": "", "control-plane": "", "workers": "", "components": ""}
    passed = {"prechecks": "✔ pass", "hosts": "✔ pass", "control-plane": "✔ pass"}
    assert (sheet.key, sheet.kind) == ("bootstrap-made-hosts", "table")
    assert sheet.data == [
        {"host or component": "n1"} | none | passed,
        {"host or component": "w1"} | none | {"prechecks": "✔ pass", "hosts": "✖ fail", "workers": "· not yet"},
        {"host or component": "jobset"} | none | {"components": "· not yet"},
    ]
    plan = plan_sheet("made", "build", STEPS)
    assert plan.key == "bootstrap-made-plan"
    assert str(plan.data).startswith("# made: build\n\n2 of 5 steps hold already.")
    assert "| hosts/w1 | programs on w1 |" in str(plan.data)
    assert "<b>" not in str(plan.data)
    drift = plan_sheet("made", "drift", (), ["n1: kubelet: wanted 1.36, found <b>1.35</b>"])
    assert drift.key == "bootstrap-made-drift"
    assert str(drift.data).startswith("# made: drift\n\n* n1: kubelet: wanted 1.36, found ")
    assert "hold already" not in str(drift.data)
    assert "<b>" not in str(drift.data)
    assert "* and 7 more" in str(plan_sheet("made", "drift", (), ["n1: a"] * 207).data)


def test_artifacts_of_two_thousand_hosts_are_read_at_once() -> None:
    made = MadeBootstrap(2000, True)
    rows = table_sheet("made", made.table, made.why).data
    assert isinstance(rows, list)
    assert [(row["host or component"], row["number"]) for row in rows[-10:]][:1] == [("argo-workflows", 1)]
    assert [row["number"] for row in rows[:3]] == [40, 3, 1957]
    assert len(json.dumps(rows)) < 20_000
    plan = str(plan_sheet("made", "build", made.steps).data)
    assert "| hosts | 20 | hosts/gpu-r" in plan
    assert len(plan) < 20_000
    few = MadeBootstrap(60)
    rows = table_sheet("made", few.table, few.why).data
    assert isinstance(rows, list)
    assert len(rows) == 60 + 10
    assert EACH_HOST >= 60


def test_a_page_stays_whole_whatever_hosts_say() -> None:
    odd = replace(STEPS[2], why="</td></table><script>alert(1)</script>\x1b[2J" + "漢" * 500)
    text = bootstrap_page("made: build", odd.why, TABLE, (odd,), RECORDS, SINCE)
    assert "<script" not in text
    assert "\x1b" not in text
    assert text.count("</table>") == page().count("</table>") - 1, "the table of what waits is empty, and gone"
