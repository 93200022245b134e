"""The page of a bootstrap and its artifacts: what was done when, what does not hold, and others' words harmless."""

from __future__ import annotations

from flows.pages.bootstrap import bootstrap_page, plan_sheet, table_sheet, timeline
from profiles.vocabulary import VerdictWord
from workflows.model.bootstrap import Stage, StepOutcome, StepRecord

SINCE = 1_800_000_000.0
TABLE = {
    "n1": {"prechecks": "pass", "hosts": "pass", "control-plane": "pass"},
    "w1": {"prechecks": "pass", "hosts": "fail", "workers": "not yet"},
}
STEPS = (
    StepOutcome("hosts/n1", "programs on n1", VerdictWord.PASS, "all digests fit", 20.0),
    StepOutcome("control-plane/n1", "control plane on n1", VerdictWord.PASS, "its API answers", 41.5),
    StepOutcome("hosts/w1", "programs on w1", VerdictWord.FAIL, "<b>containerd</b> does not answer", 12.0),
    StepOutcome("workers/w1", "w1 joins", VerdictWord.FAIL, "no such node", None),
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
        "1 min 4 s",
        "does not hold",
        "workers/w1",
        "no such node",
        "not yet",
    ):
        assert said in text
    assert text.index("control plane on n1") < text.index("programs on n1")
    assert "<b>" not in text
    assert "&lt;b&gt;containerd" in text


def test_the_page_of_a_comparison_says_each_difference_and_nothing_of_steps() -> None:
    text = bootstrap_page("made: drift", "1 differences", {}, (), (), SINCE, ["n1: <b>kubelet</b>: wanted 1.36"])
    assert "n1: &lt;b&gt;kubelet&lt;/b&gt;: wanted 1.36" in text
    assert "Nothing was to be done" not in text
    assert "hosts and components" not in text


def test_only_what_this_command_carried_out_is_drawn() -> None:
    plot = timeline([item for item in RECORDS if item.began_at >= SINCE and item.tries], SINCE)
    assert plot is not None
    assert len(plot.bars) == 3
    assert plot.label.startswith("3 steps in 1 min 4 s, the first one at the top (hosts blue, control-plane orange, ")
    assert all(bar.depth < bar.height for bar in plot.bars), "each in a row of its own"
    assert all(bar.x >= 0 and bar.x + bar.width <= 1002 for bar in plot.bars)
    assert timeline([], SINCE) is None
    assert "Nothing was to be done" in bootstrap_page("t", "all hold", TABLE, STEPS[:2], (), SINCE)


def test_the_artifacts_show_hosts_by_stages_and_the_plan() -> None:
    sheet = table_sheet(TABLE, "failed: hosts/w1")
    assert sheet.data == [
        {"host": "n1", "prechecks": "✔ pass", "hosts": "✔ pass", "control-plane": "✔ pass", "workers": ""},
        {"host": "w1", "prechecks": "✔ pass", "hosts": "✖ fail", "control-plane": "", "workers": "· not yet"},
    ]
    plan = str(plan_sheet("made", STEPS).data)
    assert "2 of 4 steps hold already." in plan
    assert "| hosts/w1 | programs on w1 |" in plan
    assert "<b>" not in plan
    drift = str(plan_sheet("made", (), ["n1: kubelet: wanted 1.36, found <b>1.35</b>"]).data)
    assert drift.startswith("# made\n\n* n1: kubelet: wanted 1.36, found ")
    assert "hold already" not in drift
    assert "<b>" not in drift
    assert "* and 7 more" in str(plan_sheet("made", (), ["n1: a"] * 207).data)
    many = {f"h{index}": {"hosts": "pass"} for index in range(350)}
    assert table_sheet(many, "all").description.endswith("(150 more are not shown)")
