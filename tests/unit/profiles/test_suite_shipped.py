from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, get_args

import pytest

from profiles.checks.catalogue import DEPTHS, FIGURES, PLACEHOLDERS, PROBES, SCALES, VENDOR_OF, Parser, Unit
from profiles.checks.check import Check
from profiles.checks.suite import SuiteProfile
from profiles.hardware import HardwareProfile, Peak
from profiles.loading import load
from profiles.loading.validation import checked

LISTED = load.list_profiles()
SUITES = {item.name: load.load_suite(item.name) for item in LISTED if item.kind == "suite"}
HARDWARE = {item.name: load.load_hardware(item.name) for item in LISTED if item.kind == "hardware"}
PAIRS = [(suite, hardware) for suite in SUITES for hardware in HARDWARE]

# What a smoke test must look at, and which checks do. (topic, checks, vendors that must have one of them)
BOTH = ("amd", "nvidia")
ALL = (*BOTH, "none")
SMOKE = [
    ("GPU count against the flavor", ["gpu-count"], BOTH),
    ("driver and module", ["gpu-driver"], BOTH),
    ("each GPU can be bound", ["gpu-bindable"], BOTH),
    ("a finite GEMM", ["gpu-finite-gemm"], BOTH),
    ("foreign processes", ["gpu-foreign-process"], BOTH),
    ("GPU memory in use", ["gpu-memory-in-use"], BOTH),
    ("ECC", ["ecc-amd", "ecc-nvidia"], BOTH),
    ("deferred errors", ["ecc-deferred-amd"], ("amd",)),
    ("worn memory", ["memory-worn-nvidia", "bad-pages-retired-amd"], BOTH),
    ("a reset that the driver asks for", ["recovery-nvidia"], ("nvidia",)),
    ("fabric of NVSwitch", ["nvlink-fabric", "nvlink-fabric-status"], ("nvidia",)),
    ("heat", ["thermal-margin-nvidia"], ("nvidia",)),
    ("remapped rows", ["remapped-rows-pending"], ("nvidia",)),
    ("failed remaps", ["remapped-rows-failed"], ("nvidia",)),
    ("bad pages", ["bad-pages-amd", "bad-pages-unreservable-amd"], ("amd",)),
    ("RAS", ["ras-amd"], ("amd",)),
    ("throttle reasons", ["throttle-amd", "throttle-nvidia"], BOTH),
    ("PCIe width", ["pcie-width"], BOTH),
    ("PCIe generation", ["pcie-generation"], BOTH),
    ("XGMI or NVLink state", ["xgmi-links", "nvlink-state"], BOTH),
    ("NIC ports", ["nic-ports"], BOTH),
    ("GIDs", ["nic-gids"], BOTH),
    ("link speed", ["nic-link-rate"], BOTH),
    ("error counters", ["nic-errors", "nic-symbol-errors"], BOTH),
    ("link flaps", ["link-flaps"], BOTH),
    ("ACS", ["pcie-acs"], BOTH),
    ("IOMMU", ["iommu"], BOTH),
    ("boot arguments", ["boot-arguments"], ALL),
    ("transparent huge pages", ["transparent-hugepages"], BOTH),
    ("NUMA balancing", ["numa-balancing"], BOTH),
    ("CPU governor", ["cpu-governor"], BOTH),
    ("memlock", ["memlock"], BOTH),
    ("/dev/shm", ["shared-memory"], BOTH),
    ("processes and threads", ["process-ids"], ALL),
    ("huge pages", ["hugepages"], ALL),
    ("clock skew", ["clock"], ALL),
    ("DNS", ["dns"], ALL),
    ("SSH", ["ssh"], ALL),
    ("fabric environment", ["fabric-environment"], BOTH),
    ("disk space", ["disk-space"], ALL),
    ("inodes", ["inodes"], ALL),
    ("kernel log with age", ["kernel-log"], ALL),
    ("lock-ups", ["kernel-lockups"], ALL),
    ("stuck processes", ["stuck-processes"], ALL),
    ("allocatable of the device plug-in", ["allocatable-gpus"], BOTH),
    ("kubelet", ["kubelet"], ALL),
    ("time of the management tool", ["management-tool-amd", "management-tool-nvidia"], BOTH),
    ("drift of versions", ["driver-version"], BOTH),
    ("clocks of GPUs", ["gpu-clock-amd", "gpu-clock-nvidia"], BOTH),
    ("clocks of GPU memory", ["memory-clock-amd", "memory-clock-nvidia"], BOTH),
    ("clocks that a person set", ["gpu-clock-set-nvidia"], ("nvidia",)),
    ("clocks of processors", ["cpu-clocks"], ALL),
]
DEEPER = [
    ("device", ["gemm-bf16", "gemm-correct", "hbm-bandwidth", "host-to-gpu", "gpu-to-gpu", "all-reduce-in-node"]),
    ("device", ["power-under-load", "heat-under-load", "dcgm-diag", "rvs-gst", "agfhc", "nvbandwidth-host-to-gpu"]),
    ("device", ["transferbench", "rocblas-bench", "babelstream"]),
    ("fabric", ["reach", "gang-all-reduce", "rdma-write", "nccl-tests-all-reduce", "tcp-bandwidth"]),
    ("storage", ["storage-correct", "storage-write", "volume-lifecycle", "fio", "ior", "mdtest"]),
    ("training", ["training-finite", "training-speed", "training-repeatable", "gang-training-rate"]),
    ("any-machine", ["cpu-gemm", "memory-bandwidth", "disk-write", "loopback", "process-all-reduce"]),
]


def _checks(suite: str) -> dict[str, Check]:
    return {check.name: check for check in SUITES[suite].checks}


@pytest.mark.parametrize(("topic", "names", "vendors"), SMOKE, ids=[row[0] for row in SMOKE])
def test_the_smoke_suite_looks_at(topic: str, names: list[str], vendors: tuple[str, ...]) -> None:
    found = [_checks("smoke")[name] for name in names]
    for vendor in vendors:
        assert any(not check.vendors or vendor in check.vendors for check in found), f"{topic}: nothing for {vendor}"
    assert all(check.depth == "smoke" and not check.left_out for check in found)


def test_the_list_of_topics_names_every_smoke_check() -> None:
    told = {name for _, names, _ in SMOKE for name in names}
    more = {"ecc-corrected-nvidia", "remapped-rows-uncorrectable", "nvlink-errors", "nvidia-services"}
    more |= {
        "throttle-prochot-amd",
        "disk-space-soon",
        "kernel-version",
        "gpu-library-version",
        "collective-library-version",
        "nic-firmware",
    }
    assert told | more == set(_checks("smoke"))


@pytest.mark.parametrize(("suite", "names"), DEEPER)
def test_the_deeper_suites_hold(suite: str, names: list[str]) -> None:
    assert set(names) <= set(_checks(suite))
    if suite != "any-machine":
        assert {check.depth for check in SUITES[suite].checks} == {suite}


@pytest.mark.parametrize("hardware", [name for name, one in HARDWARE.items() if one.nics_per_node])
def test_nodes_without_nics_are_not_asked_about_them(hardware: str) -> None:
    without = HARDWARE[hardware].model_copy(update={"nics_per_node": 0})
    before, after = (
        {one.name for one in SUITES["smoke"].checks_of("smoke", kind)} for kind in (HARDWARE[hardware], without)
    )
    gone = {"nic-ports", "nic-gids", "nic-link-rate", "nic-errors", "nic-symbol-errors", "nic-firmware"}
    assert before - after == gone


def test_the_full_suite_leaves_nothing_out() -> None:
    parts = {name: check for suite in DEPTHS for name, check in _checks(suite).items()}
    full = _checks("full")
    assert set(full) == set(parts)
    assert {name for name, check in full.items() if check.left_out} == set()
    assert all(
        full[name].model_copy(update={"left_out": ""}) == parts[name].model_copy(update={"left_out": ""})
        for name in full
    )


def test_the_suite_for_any_machine_tests_every_node_and_needs_no_tool() -> None:
    for hardware in HARDWARE.values():
        assert all(check.applies_to(hardware) and check.probe for check in SUITES["any-machine"].checks)


@pytest.mark.parametrize(("suite", "hardware"), PAIRS)
def test_no_shipped_limit_lies_beyond_any_shipped_peak(suite: str, hardware: str) -> None:
    kind = HARDWARE[hardware]
    assert SUITES[suite].fits(kind) == ()
    for check in SUITES[suite].checks:
        peak = next((item for item in kind.peaks if item.quantity == (check.peak or check.quantity)), None)
        for bound in check.bounds_on(kind) if check.applies_to(kind) else ():
            if peak is not None and bound.figure is not None:
                share = bound.figure * SCALES[check.unit][1] / (peak.value * SCALES[peak.unit][1])
                assert 0.01 <= share <= 1, f"{check.name} {bound.field}"


@pytest.mark.parametrize(("suite", "hardware"), PAIRS)
def test_a_shipped_limit_moved_beyond_the_peak_is_found(suite: str, hardware: str) -> None:
    kind, moved = HARDWARE[hardware], 0
    for check in SUITES[suite].checks_of("device", kind) + SUITES[suite].checks_of("fabric", kind):
        peak = next((item for item in kind.peaks if item.quantity == check.measure.peak), None)
        entry = next((item for item in check.limits.absolute if hardware in item.hardware), None)
        if peak is None or entry is None:
            continue
        top = peak.value * SCALES[peak.unit][1] / SCALES[check.unit][1]
        for figure, word in ((top * 1.01, "no healthy one can reach it"), (top * 0.005, "look at the unit")):
            limit = entry.model_copy(update={"at_least": figure})
            others = tuple(limit if item is entry else item for item in check.limits.absolute)
            limits = check.limits.model_copy(update={"absolute": others})
            changed = SUITES[suite].model_copy(update={"checks": (check.model_copy(update={"limits": limits}),)})
            problems = changed.fits(kind)
            assert [problem.field for problem in problems] == [
                f"checks.{check.name}.limits.absolute[{others.index(limit)}].at_least"
            ]
            assert word in problems[0].reason
            moved += 1
    assert moved > 0 or hardware == "cpu" or suite not in ("device", "full")


def _sources(value: Any) -> list[tuple[bool, str]]:
    """For each mapping with a number in limits: whether it holds one, and its source."""
    if isinstance(value, list):
        return [pair for item in value for pair in _sources(item)]
    if not isinstance(value, dict):
        return []
    inner = [pair for item in value.values() for pair in _sources(item)]
    numbers = [key for key, item in value.items() if isinstance(item, int | float) and not isinstance(item, bool)]
    return inner + ([(bool(numbers), value.get("source", ""))] if numbers or "source" in value else [])


KNOWN = r"our own|the pool's hardware profile|Azure NHC|Meta GCM|Primus|RVS|DCGM|AMD|NVIDIA|NVSentinel|gpud|Crusoe"
KNOWN += r"|SuperBench|Iglewicz|Autopilot|nccl-tests|CoreWeave|PCI Express|AGFHC|NPD"


@pytest.mark.parametrize("name", SUITES)
def test_every_number_of_a_shipped_limit_names_its_source(name: str) -> None:
    found = _sources([check.limits.model_dump(mode="json") for check in SUITES[name].checks])
    assert sum(has_number for has_number, _ in found) >= 5
    assert [source for _, source in found if not re.match(KNOWN, source)] == []


@pytest.mark.parametrize("name", SUITES)
def test_shipped_suites_name_hardware_and_words_that_exist(name: str) -> None:
    for check in SUITES[name].checks:
        for entry in (check, *check.limits.absolute, *check.limits.percent_of_peak):
            assert set(entry.hardware) <= set(HARDWARE)
            assert {HARDWARE[item].vendor for item in entry.hardware} <= set(check.vendors or ALL), check.name
        assert check.what_to_do.endswith(".")
        assert check.left_out == "" or check.left_out.endswith(".")


def test_the_closed_lists_hold_no_dead_and_no_unknown_words() -> None:
    checks = SUITES["full"].checks + SUITES["any-machine"].checks
    assert {check.probe.name for check in checks if check.probe} == set(PROBES)
    texts = [
        text for check in checks for text in (*check.command, *(check.probe.arguments.values() if check.probe else ()))
    ]
    assert {word for text in texts for word in re.findall(r"{(\w+)}", text)} == set(PLACEHOLDERS)
    assert {unit for probe in PROBES.values() for unit in probe.quantities.values()} <= set(get_args(Unit))
    assert set(SCALES) | set(FIGURES.values()) <= set(get_args(Unit))
    assert set(get_args(Peak.model_fields["unit"].annotation)) <= set(SCALES)
    assert {check.parser for check in checks if check.parser} <= set(get_args(Parser))
    assert set(FIGURES) <= set(HardwareProfile.model_fields)
    assert set(VENDOR_OF) & set(get_args(Parser)) >= {"rvs", "nvidia-smi"}
    assert all(probe.what.endswith(".") for probe in PROBES.values())


@pytest.mark.parametrize("name", SUITES)
def test_a_shipped_suite_written_as_yaml_reads_back_as_itself(name: str) -> None:
    assert load.load_text(SuiteProfile, load.dump(SUITES[name])) == SUITES[name]
    assert checked(SuiteProfile, json.loads(json.dumps(SUITES[name].model_dump(mode="json"))), "a test") == SUITES[name]


def test_a_figure_of_the_hardware_profile_is_a_limit() -> None:
    count = _checks("smoke")["gpu-count"]
    assert {name: count.bounds_on(HARDWARE[name])[0].figure for name in ("mi250x", "gb200")} == {
        "mi250x": 16,
        "gb200": 4,
    }


@pytest.mark.parametrize("cluster", ["local", "local-gpus", "kubernetes-example", "bed"])
@pytest.mark.parametrize("name", SUITES)
def test_every_shipped_suite_can_be_used_on_every_shipped_cluster(name: str, cluster: str) -> None:
    plain = SUITES[name]
    found = load.load_suite(name, cluster=load.load_cluster(cluster, ["admission.storage_class=fast-ssd"]))
    assert found == plain
    left = load.load_suite(name, cluster=load.load_cluster(cluster))
    changed = [one for one, was in zip(left.checks, plain.checks, strict=True) if one != was]
    assert all(check.probe and check.probe.name == "volume" and check.left_out for check in changed)
    assert bool(changed) is (name in ("storage", "full"))


def test_the_suite_shown_in_the_guide_is_right(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "profiles.md").read_text()
    text = next(block for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if "extends: smoke" in block)
    path = tmp_path / "ours.yaml"
    path.write_text(text)
    ours = load.load_suite(str(path), cluster=load.load_cluster("local-gpus"))
    assert len(ours.checks) == len(SUITES["smoke"].checks) + 1


@pytest.mark.parametrize(("suite", "hardware"), PAIRS)
def test_a_fatal_check_of_one_node_can_be_judged_without_peers_and_past(suite: str, hardware: str) -> None:
    kind = HARDWARE[hardware]
    lonely = [
        check.name
        for check in SUITES[suite].checks
        if check.applies_to(kind)
        and check.severity == "fatal"
        and not (check.bounds_on(kind) or check.limits.tool_judges)
    ]
    assert lonely == [], "such a check would leave every node of a small cluster unknown"


def test_the_parsers_that_suites_name_are_there() -> None:
    from workflows.programs.parsers.registry import PARSERS

    assert set(PARSERS) == set(get_args(Parser))
