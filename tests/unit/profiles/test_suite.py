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
WORD: dict[str, Any] = {
    "probe": {"name": "node-settings"},
    "quantity": "cpu_governor",
    "unit": "",
    "direction": "text_equal",
    "limits": {"absolute": [{"words": ["performance"], "source": "a test"}]},
}


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
NUMBER_LIMITS = st.fixed_dictionaries(
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
ANY_CHECK = st.fixed_dictionaries(
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
).map(lambda change: {**SMALL["checks"][0], **change})
ANY_SUITE = st.lists(ANY_CHECK, min_size=1, max_size=6).map(
    lambda checks: checked(
        SuiteProfile, {**SMALL, "checks": [{**item, "name": f"c{i}"} for i, item in enumerate(checks)]}, "a test"
    )
)


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


@pytest.mark.parametrize(
    ("change", "field", "words"),
    [
        ({"vendor": "amd"}, "checks[0].vendor", 'did you mean "vendors"'),
        ({"depth": "smok"}, "checks[0].depth", 'did you mean "smoke"'),
        ({"probe": {"name": "gpu-memry"}}, "checks[0].probe.name", 'did you mean "gpu-memory"'),
        (
            {"probe": {"name": "gpu-memory", "arguments": {"size": "1"}}},
            "checks[0].probe.arguments.size",
            "known: seconds",
        ),
        ({"probe": {"name": "clock", "arguments": {"a": "1"}}}, "checks[0].probe.arguments.a", "it takes none"),
        ({"quantity": "hbm_bandwith"}, "checks[0].quantity", 'did you mean "hbm_bandwidth"'),
        ({"unit": "TB/s"}, "checks[0].unit", "must be 'GB/s', in which gpu-memory tells hbm_bandwidth"),
        ({"unit": "Gbs"}, "checks[0].unit", 'did you mean "Gb/s"'),
        ({"vendors": []}, "checks[0].vendors", "must name amd, nvidia or both"),
        ({"vendors": ["none"]}, "checks[0].vendors", "must name amd, nvidia or both"),
        ({"command": ["x"]}, "checks[0].command", "exactly one of probe and command"),
        ({"probe": None}, "checks[0].command", "exactly one of probe and command"),
        ({"parser": "fio"}, "checks[0].parser", "must be left out for a probe"),
        ({**COMMAND, "parser": None}, "checks[0].parser", "must say who reads"),
        ({**COMMAND, "parser": "foi"}, "checks[0].parser", 'did you mean "fio"'),
        ({**COMMAND, "quantity": "Rate"}, "checks[0].quantity", "lower-case letters"),
        ({**COMMAND, "command": ["tool", "{gup}"]}, "checks[0].command[1]", 'did you mean "gpu"'),
        ({**COMMAND, "command": ["tool", "{peer}"]}, "checks[0].command[1]", "set spans: pair"),
        ({**COMMAND, "command": ["tool", "{port}"]}, "checks[0].command[1]", "set spans: pair"),
        ({"spans": "pair"}, "checks[0].spans", "must be pair for the probe pair-sockets, and for no other"),
        ({**COMMAND, "command": ["tool", "{{gpu}}"]}, "checks[0].command[1]", "must not hold {{"),
        ({**COMMAND, "command": ["tool", "{gpu}"]}, "checks[0].vendors", "it looks at GPUs"),
        ({**COMMAND, "needs": ["gpus"]}, "checks[0].vendors", "it looks at GPUs"),
        ({**COMMAND, "peer_command": ["a"]}, "checks[0].peer_command", "set spans: pair"),
        ({**COMMAND, "parser": "rvs"}, "checks[0].vendors", "must be [amd]"),
        ({**COMMAND, "command": ["/opt/x/nvidia-smi"], "vendors": ["amd"]}, "checks[0].vendors", "must be [nvidia]"),
        ({**COMMAND, "parser": "rvs", "vendors": ["amd", "nvidia"]}, "checks[0].vendors", "must be [amd]"),
        (
            {"probe": {"name": "gpu-memory", "arguments": {"share": "{pth}"}}},
            "checks[0].probe.arguments.share",
            '"path"',
        ),
        ({"limits": {}}, "checks[0].limits", "must hold at least one limit"),
        ({"limits": {"absolute": [{"at_least": 1}]}}, "checks[0].limits.absolute[0].source", "is missing"),
        (
            {"limits": {"absolute": [{"at_least": 1, "source": ""}]}},
            "checks[0].limits.absolute[0].source",
            "at least 1",
        ),
        (
            {"limits": {"absolute": [{"at_most": 1, "source": "s"}]}},
            "checks[0].limits.absolute[0].at_most",
            "must give at_least",
        ),
        ({"limits": {"absolute": [{"source": "s"}]}}, "checks[0].limits.absolute[0].at_least", "it gives none"),
        (
            {"limits": {"absolute": [{"at_least": 1, "equals": 1, "source": "s"}]}},
            "checks[0].limits.absolute[0].equals",
            "and nothing else",
        ),
        (
            {"limits": {"absolute": [{"at_least": 1, "source": "s"}, {"at_least": 2, "source": "s"}]}},
            "checks[0].limits.absolute[1].hardware",
            "join the two",
        ),
        (
            {"limits": {"percent_of_peak": [{"percent": 101, "source": "s"}]}},
            "checks[0].limits.percent_of_peak[0].percent",
            "must be at most 100, got 101",
        ),
        (
            {"limits": {"hardware_figure": {"figure": "gpus_per_node", "source": "s"}}},
            "checks[0].limits.hardware_figure.figure",
            "is told in count",
        ),
        (
            {"limits": {"peers": {"robust_z": 3, "nodes": 3, "source": "s"}}},
            "checks[0].limits.peers.nodes",
            "at least 4",
        ),
        ({"limits": {"peers": {"source": "s"}}}, "checks[0].limits.peers.robust_z", "must be given for figures"),
        ({"limits": {"peers": {"robust_z": 3.5}}}, "checks[0].limits.peers.source", "is missing"),
        (
            {"limits": {"history": {"worse_by_percent": 0, "days": 1, "source": "s"}}},
            "checks[0].limits.history.worse_by_percent",
            "greater than 0",
        ),
        ({**WORD, "unit": "s"}, "checks[0].unit", "exactly where direction is text_equal"),
        ({**WORD, "attempts": {"count": 2}}, "checks[0].attempts.combine", "must be all"),
        (
            {**WORD, "limits": {"absolute": [{"equals": 1, "source": "s"}]}},
            "checks[0].limits.absolute[0].equals",
            "give words",
        ),
        (
            {**WORD, "limits": {"peers": {"robust_z": 3, "source": "s"}}},
            "checks[0].limits.peers.robust_z",
            "have a majority",
        ),
        (
            {**WORD, "limits": {"history": {"worse_by_percent": 5, "days": 1, "source": "s"}}},
            "checks[0].limits.history",
            "take it out",
        ),
        (
            {**WORD, "limits": {"percent_of_peak": [{"percent": 5, "source": "s"}]}},
            "checks[0].limits.percent_of_peak",
            "better side",
        ),
        ({"limits": {"tool_judges": {"source": "s"}}}, "checks[0].limits.tool_judges", "is for commands"),
        ({"attempts": {"count": 0}}, "checks[0].attempts.count", "at least 1"),
        ({"needs": ["gpu"]}, "checks[0].needs[0]", 'did you mean "gpus"'),
        ({"fault_class": "gpu"}, "checks[0].fault_class", "is not a word"),
        ({"what_to_do": None}, "checks[0].what_to_do", "is missing"),
        ({"deadline_seconds": 0}, "checks[0].deadline_seconds", "greater than 0"),
        ({"deadline_seconds": 1801}, "checks[0].deadline_seconds", "more than the 1800 of depth device"),
        ({"depth": "smoke", "deadline_seconds": 31}, "checks[0].deadline_seconds", "more than the 30 of depth smoke"),
        ({"depth": "smoke", "deadline_seconds": 9, "spans": "gang"}, "checks[0].spans", "must be node"),
    ],
)
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


@pytest.mark.parametrize(
    ("change", "hardware", "field", "words"),
    [
        ({"limits": {"absolute": [{"at_least": 5400, "source": "s"}]}}, "mi300x", "absolute[0].at_least", "lies above"),
        (
            {"limits": {"absolute": [{"at_least": 2.3, "source": "s"}]}},
            "h200",
            "absolute[0].at_least",
            "look at the unit",
        ),
        (
            {"direction": "lower_is_better", "limits": {"absolute": [{"at_most": 9000, "source": "s"}]}},
            "mi300x",
            "absolute[0].at_most",
            "would never be missed",
        ),
        (
            {"direction": "equal", "limits": {"absolute": [{"equals": 9000, "source": "s"}]}},
            "mi300x",
            "absolute[0].equals",
            "no healthy one",
        ),
        (
            {"peak": "hbm_bandwith", "limits": {"percent_of_peak": [{"percent": 5, "source": "s"}]}},
            "h100",
            "percent_of_peak[0].percent",
            'did you mean "hbm_bandwidth"',
        ),
        (
            {"limits": {"absolute": [{"at_least": 900, "hardware": ["a100"], "source": "s"}]}},
            "h100",
            "",
            "hold nothing",
        ),
    ],
)
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


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"hardware": ["mi300"]}, "hardware"),
        (
            {"limits": {"absolute": [{"at_least": 9, "hardware": ["mi300"], "source": "s"}]}},
            "limits.absolute[0].hardware",
        ),
        (
            {"limits": {"percent_of_peak": [{"percent": 9, "hardware": ["mi300"], "source": "s"}]}},
            "limits.percent_of_peak[0].hardware",
        ),
    ],
)
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


@pytest.mark.parametrize(
    ("parents", "words"),
    [
        ("[]", "must be the name"),
        ("[smoke, 5]", "must be the name"),
        ("[smoke, devise]", 'did you mean "device"'),
        ("[smoke, mine.yaml]", "runs in a circle"),
        ("[" + "smoke, " * 8 + "smoke]", "up to 8"),
    ],
)
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
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
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
