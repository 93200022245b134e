from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiles.checks.check import Check
from profiles.checks.suite import SuiteProfile, needed_seconds
from profiles.errors import ProfileError
from profiles.loading import load
from profiles.loading.document import read_mapping, write
from profiles.loading.validation import checked
from tests.support.cases.rows import rows

HARDWARE = {item.name: load.load_hardware(item.name) for item in load.list_profiles() if item.kind == "hardware"}
GPUS = load.load_cluster("local-gpus")
CALM = settings(max_examples=60, deadline=None, derandomize=True)

SMALL: dict[str, Any] = {
    "name": "mine",
    "checks": [
        {
            "name": "hbm",
            "depth": "device",
            "probe": {"name": "gpu-memory"},
            "quantity": "hbm_bandwidth",
            "unit": "GB/s",
            "direction": "higher_is_better",
            "limits": {"absolute": [{"at_least": 2000, "source": "a test"}]},
            "deadline_seconds": 60,
            "vendors": ["amd", "nvidia"],
            "fault_class": "gpu_hardware",
            "what_to_do": "Replace it.",
        }
    ],
}
COMMAND: dict[str, Any] = {"probe": None, "command": ["tool"], "parser": "fio", "quantity": "rate", "vendors": []}


def _suite(change: dict[str, Any] | None = None, **whole: Any) -> SuiteProfile:
    """The small suite with its one check changed; None takes a field away."""
    check = {**SMALL["checks"][0], **(change or {})}
    data = {**SMALL, "checks": [{key: value for key, value in check.items() if value is not None}], **whole}
    return checked(SuiteProfile, data, "a test")


def _refusal(change: dict[str, Any] | None = None, **whole: Any) -> ProfileError:
    with pytest.raises(ProfileError) as caught:
        _suite(change, **whole)
    return caught.value


def _file(folder: Path, text: str, name: str = "mine") -> str:
    path = folder / f"{name}.yaml"
    path.write_text(text)
    return str(path)


FIGURE = st.floats(1e-6, 1e6, allow_nan=False)
SOURCE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8)
NUMBER_LIMITS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"absolute": st.tuples(st.fixed_dictionaries({"at_least": FIGURE, "source": SOURCE})).map(list)},
    optional={
        "percent_of_peak": st.tuples(st.fixed_dictionaries({"percent": st.floats(0.1, 100), "source": SOURCE})).map(
            list
        ),
        "peers": st.fixed_dictionaries({"robust_z": FIGURE, "nodes": st.integers(4, 99), "source": SOURCE}),
        "history": st.fixed_dictionaries(
            {"worse_by_percent": st.floats(0.1, 99), "days": st.floats(0.1, 90), "source": SOURCE}
        ),
    },
)
CHANGES: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"limits": NUMBER_LIMITS, "depth": st.sampled_from(["device", "fabric"]), "deadline_seconds": st.floats(1, 100)},
    optional={
        "attempts": st.fixed_dictionaries({"count": st.integers(1, 9), "combine": st.sampled_from(["best", "all"])}),
        "needs": st.lists(st.sampled_from(["gpus", "nics", "disk", "node"]), max_size=3),
        "severity": st.sampled_from(["fatal", "warning"]),
        "left_out": SOURCE,
        "launchers": st.lists(st.sampled_from(["kubernetes", "ansible", "slurm"]), max_size=2),
        "what_to_do": SOURCE,
        "spans": st.sampled_from(["node", "gang"]),
    },
)


def _drawn(changes: list[dict[str, Any]]) -> SuiteProfile:
    checks = [{**SMALL["checks"][0], **change, "name": f"c{i}"} for i, change in enumerate(changes)]
    return checked(SuiteProfile, {**SMALL, "checks": checks}, "a test")


ANY_SUITE = st.lists(CHANGES, min_size=1, max_size=6).map(_drawn)


@CALM
@given(ANY_SUITE)
def test_any_suite_written_as_yaml_reads_back_as_itself(suite: SuiteProfile) -> None:
    assert load.load_text(SuiteProfile, load.dump(suite)) == suite


@CALM
@given(ANY_SUITE, st.randoms(use_true_random=False))
def test_the_needed_time_lies_between_the_longest_check_and_all_in_a_row(
    suite: SuiteProfile, chance: random.Random
) -> None:
    checks = list(suite.checks)
    chance.shuffle(checks)
    longest = max(check.deadline_seconds for check in checks)
    assert longest <= needed_seconds(checks) <= sum(check.deadline_seconds for check in checks) + 1e-6
    assert needed_seconds([check.model_copy(update={"needs": ()}) for check in checks]) == longest


@CALM
@given(ANY_SUITE, st.sampled_from(sorted(HARDWARE)))
def test_a_suite_that_fits_has_no_floor_beyond_the_peak_and_no_check_without_a_limit(
    suite: SuiteProfile, name: str
) -> None:
    kind = HARDWARE[name]
    told = {problem.field.split(".")[1] for problem in suite.fits(kind)}
    peak = next((item.value * 1000 for item in kind.peaks if item.quantity == "hbm_bandwidth"), None)
    for check in suite.checks:
        floors = [bound.figure for bound in check.bounds_on(kind)]
        if check.applies_to(kind) and check.name not in told and peak is not None:
            assert floors
            assert all(floor is not None and peak * 0.01 <= floor <= peak for floor in floors)


def test_checks_share_what_they_need_one_after_the_other() -> None:
    first = _suite().checks[0]

    def made(seconds: float, *needs: Any, size: str = "") -> Check:
        call = (
            first.probe.model_copy(update={"arguments": {"share": size or str(random.random())}})
            if first.probe
            else None
        )
        return first.model_copy(update={"deadline_seconds": seconds, "needs": needs, "probe": call})

    assert needed_seconds([]) == 0
    assert needed_seconds([made(5), made(7)]) == 7
    assert needed_seconds([made(5, "gpus"), made(7, "gpus")]) == 12
    assert needed_seconds([made(5, "gpus"), made(7, "nics")]) == 7
    assert needed_seconds([made(5, "gpus"), made(7, "nics"), made(4, "gpus", "nics")]) == 11
    assert needed_seconds([made(5, "gpus"), made(7, "node")]) == 12
    assert needed_seconds([made(5, "gpus", size="0.5"), made(5, "gpus", size="0.5")]) == 5


@rows("profiles/suite")
def test_a_wrong_check_is_refused_by_its_field(change: dict[str, Any], field: str, words: str) -> None:
    refusal = _refusal(change)
    assert refusal.field == field
    assert words in refusal.reason
    assert "wrong too" not in refusal.reason


def test_a_suite_whose_checks_do_not_fit_each_other_is_refused() -> None:
    one = SMALL["checks"][0]
    other = {**one, "name": "other", "probe": {"name": "gpu-memory", "arguments": {"seconds": "9"}}}
    assert _refusal(checks=[one, one]).field == "checks[1].name"
    assert _refusal(checks=[]).field == "checks"
    assert _refusal(deadline_seconds={"smoke": 31}).field == "deadline_seconds.smoke"
    assert _refusal(good_for_hours={"device": 0}).field == "good_for_hours.device"
    alone = [{**item, "deadline_seconds": 1000, "needs": ["gpus"]} for item in (one, other)]
    refusal = _refusal(checks=alone)
    assert refusal.field == "deadline_seconds.device"
    assert "may take 2000" in refusal.reason
    assert _suite(checks=[{**item, "needs": []} for item in alone])
    assert _suite(checks=[{**alone[0], "vendors": ["amd"]}, {**alone[1], "vendors": ["nvidia"]}])
    assert _suite(checks=[alone[0], {**alone[1], "left_out": "no room"}])


@rows("profiles/suite")
def test_a_limit_that_hardware_cannot_keep_is_a_problem(
    change: dict[str, Any], hardware: str, field: str, words: str
) -> None:
    problems = _suite(change).fits(HARDWARE[hardware])
    assert [problem.field for problem in problems] == [f"checks.hbm.limits.{field}".rstrip(".")]
    assert words in problems[0].reason
    assert _suite({**change, "left_out": "not here"}).fits(HARDWARE[hardware]) == ()
    assert _suite(change).fits(HARDWARE["cpu"]) == ()


@pytest.mark.parametrize(("least_gpus", "applies"), [(0, True), (8, True), (9, False)])
def test_what_goes_on_between_gpus_is_not_asked_of_nodes_with_too_few(least_gpus: int, applies: bool) -> None:
    [check] = _suite({"least_gpus": least_gpus}).checks
    assert check.applies_to(HARDWARE["h100"]) is applies


def test_units_must_agree_with_the_peaks_and_are_converted_where_they_do() -> None:
    wrong = _suite({**COMMAND, "unit": "W", "peak": "hbm_bandwidth"})
    assert [problem.field for problem in wrong.fits(HARDWARE["mi300x"])] == ["checks.hbm.unit"]
    nowhere = _suite({**COMMAND, "peak": "warp_drive"})
    assert [problem.field for problem in nowhere.fits(HARDWARE["mi300x"])] == ["checks.hbm.peak"]
    half = {"percent_of_peak": [{"percent": 50, "source": "s"}]}
    for unit, figure in (("TB/s", 2.6625), ("GB/s", 2662.5), ("Gb/s", 21300.0)):
        check = _suite({**COMMAND, "unit": unit, "peak": "hbm_bandwidth", "limits": half}).checks[0]
        assert [bound.figure for bound in check.bounds_on(HARDWARE["mi300x"])] == [pytest.approx(figure)]


def test_the_entry_that_names_the_hardware_wins_over_the_one_for_all() -> None:
    both = [{"at_least": 1000, "source": "all"}, {"at_least": 2000, "hardware": ["h100"], "source": "one"}]
    check = _suite({"limits": {"absolute": both}}).checks[0]
    told = {name: check.bounds_on(HARDWARE[name])[0] for name in ("a100", "h100")}
    assert [(bound.figure, bound.source) for bound in told.values()] == [(1000, "all"), (2000, "one")]
    assert told["h100"].field == "limits.absolute[1].at_least"


def test_loading_a_suite_with_a_cluster_refuses_what_its_hardware_cannot_do(tmp_path: Path) -> None:
    path = _file(
        tmp_path,
        write(
            {**SMALL, "checks": [{**SMALL["checks"][0], "limits": {"absolute": [{"at_least": 5000, "source": "s"}]}}]}
        ),
    )
    assert load.load_suite(path).name == "mine"
    with pytest.raises(ProfileError) as caught:
        load.load_suite(path, cluster=load.load_cluster("kubernetes-example"))
    assert caught.value.field == "checks.hbm.limits.absolute[0].at_least"
    assert "the peak hbm_bandwidth of h200, 4800 GB/s" in caught.value.reason
    assert caught.value.source == "suite profile mine"


@rows("profiles/suite")
def test_hardware_that_nobody_has_is_refused_and_not_passed_over(
    tmp_path: Path, change: dict[str, Any], field: str
) -> None:
    path = _file(tmp_path, write({**SMALL, "checks": [{**SMALL["checks"][0], **change}]}))
    with pytest.raises(ProfileError) as caught:
        load.load_suite(path)
    assert caught.value.field == f"checks.hbm.{field}"
    assert 'did you mean "mi300x"' in caught.value.reason


def test_a_check_is_for_the_hardware_that_it_names() -> None:
    suite = _suite({"hardware": ["mi300x"]})
    found = {name: len(suite.checks_of("device", kind)) for name, kind in HARDWARE.items()}
    assert {name for name, count in found.items() if count} == {"mi300x"}


def test_suites_are_extended_by_name_and_several_at_once(tmp_path: Path) -> None:
    path = _file(
        tmp_path,
        "extends: [smoke, device]\nname: mine\nchecks:\n  - {name: dns, severity: warning}\n"
        "  - {name: agfhc, left_out: null}\ngood_for_hours: {smoke: 1}\ndeadline_seconds: {device: 7200}\n",
    )
    mine = load.load_suite(path, ["checks.clock.deadline_seconds=3", "good_for_hours.device=5"])
    found = {check.name: check for check in mine.checks}
    assert list(found) == [check.name for name in ("smoke", "device") for check in load.load_suite(name).checks]
    assert (found["dns"].severity, found["agfhc"].left_out, found["clock"].deadline_seconds) == ("warning", "", 3)
    assert (mine.good_for_hours.of("smoke"), mine.good_for_hours.of("device")) == (1, 5)


@rows("profiles/suite")
def test_wrong_parents_of_a_suite_are_refused(tmp_path: Path, parents: str, words: str) -> None:
    path = _file(tmp_path, f"extends: {parents}\nname: mine\n")
    with pytest.raises(ProfileError) as caught:
        load.load_suite(path)
    assert caught.value.field == "extends"
    assert words in caught.value.reason


def test_other_profiles_have_one_parent(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="must be the name of a profile"):
        load.load_run(_file(tmp_path, "extends: [demo, demo]\nname: mine\n"))


JUNK: list[Any] = [
    None,
    True,
    -1,
    0,
    1.5,
    10**17,
    "",
    "x",
    "{{",
    "{peer}",
    [],
    {},
    [[]],
    [None],
    {"name": []},
    "é\u2028",
]


def _places(data: Any, way: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    known: Any = data
    inner: Any = known.items() if isinstance(data, dict) else enumerate([*known]) if isinstance(data, list) else ()
    return [place for key, value in inner for place in ((*way, key), *_places(value, (*way, key)))]


def _outcome(path: Path) -> ProfileError | None:
    """The refusal, or None where the suite is good. Anything else that is raised fails the test."""
    try:
        load.load_suite(str(path), cluster=GPUS)
    except ProfileError as error:
        return error
    return None


def test_a_thousand_damaged_suites_are_refused_with_a_field_or_are_good(tmp_path: Path) -> None:
    chance = random.Random(20_260_214)
    names = ["smoke", "device", "fabric", "storage", "training", "any-machine"]
    texts = [read_mapping((load.SHIPPED / "suites" / f"{name}.yaml").read_bytes(), name).data for name in names]
    outcomes: Counter[bool] = Counter()
    for case in range(1000):
        suite = chance.choice(texts)
        data = json.loads(json.dumps({**suite, "checks": chance.sample(suite["checks"], min(3, len(suite["checks"])))}))
        *way, last = chance.choice(_places(data))
        holder = data
        for step in way:
            holder = holder[step]
        if chance.random() < 0.4:
            del holder[last]
        else:
            holder[last] = chance.choice(JUNK)
        # A new file each time: writing over the old one makes some file systems wait for the disk.
        path = tmp_path / f"{case}.yaml"
        path.write_text(write(data))
        refusal = _outcome(path)
        path.unlink()
        assert refusal is None or (refusal.field.strip() and refusal.reason.strip())
        outcomes[refusal is None] += 1
    assert outcomes[False] > 250
    assert outcomes[True] > 25
