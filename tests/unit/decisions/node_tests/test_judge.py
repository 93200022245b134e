from __future__ import annotations

import pytest

from flows.decisions.node_tests.grading.model import AtLeast, AtMost, Equals, Fall, Peers
from flows.decisions.node_tests.judge import NodeAnswer, again, judge, rule_of
from profiles.checks.check import Check
from profiles.hardware import HardwareProfile
from profiles.loading.load import load_hardware, load_suite
from profiles.vocabulary import VerdictWord
from tests.support.cases.tool_samples import printed
from workflows.programs.parsers.registry import PARSERS
from workflows.programs.parsers.text import ParsedOutput, Reading

CPU = load_hardware("cpu")
SUITE = load_suite("any-machine")


def check(name: str) -> Check:
    return next(one for one in SUITE.checks if one.name == name)


GEMM, CORRECT = check("cpu-gemm"), check("cpu-gemm-correct")


def told(quantity: str, *values: float, unit: str = "GFLOP/s") -> tuple[ParsedOutput, ...]:
    return tuple(ParsedOutput((Reading(quantity, value, unit, line=f"{value} measured"),)) for value in values)


def answer(node: str, *values: float, **more: tuple[ParsedOutput, ...]) -> NodeAnswer:
    return NodeAnswer(node, "cpu", {"cpu-gemm": told("cpu_gemm", *values), **more})


def test_a_check_becomes_a_rule_with_all_its_limits() -> None:
    rule = rule_of(GEMM, CPU)
    assert [type(limit) for limit in rule.limits] == [AtLeast, Peers, Fall]
    assert (rule.quantity, rule.unit, rule.attempts, rule.combine) == ("cpu_gemm", "GFLOP/s", 3, "best")
    assert rule.noisy
    counted = rule_of(CORRECT, CPU)
    assert ([type(limit) for limit in counted.limits], counted.noisy) == ([AtMost], False)


@pytest.mark.parametrize("kind", [load_hardware(name) for name in ("mi300x", "h100", "cpu")], ids=lambda one: one.name)
def test_every_check_that_is_shipped_has_a_rule_on_the_hardware_it_is_for(kind: HardwareProfile) -> None:
    made = [rule_of(one, kind) for one in load_suite("full").checks if one.applies_to(kind)]
    assert len(made) > 5
    assert any(isinstance(limit, Equals | AtLeast | AtMost) for rule in made for limit in rule.limits)


def test_one_bad_figure_is_measured_again_and_the_second_blames() -> None:
    slow = (told("cpu_gemm", 0.001, 0.001, 0.001), told("cpu_gemm", 5.0, 5.0, 5.0))
    answers = [NodeAnswer("node-0", "cpu", {"cpu-gemm": slow[0]}), NodeAnswer("node-1", "cpu", {"cpu-gemm": slow[1]})]
    found = judge({"cpu": (GEMM,)}, {"cpu": CPU}, answers)
    assert again(found) == ("node-0",)
    assert (found["node-0"].verdict, found["node-1"].verdict) == (VerdictWord.UNKNOWN, VerdictWord.PASS)


def test_a_wrong_value_blames_at_once() -> None:
    wrong = told("cpu_gemm_wrong_values", 0.0, 3.0, 0.0, unit="count")
    found = judge({"cpu": (CORRECT,)}, {"cpu": CPU}, [NodeAnswer("node-0", "cpu", {"cpu-gemm-correct": wrong})])
    assert (found["node-0"].verdict, again(found)) == (VerdictWord.FAIL, ())


@pytest.mark.parametrize(
    "silent",
    [
        NodeAnswer("node-0", "cpu", {}),
        NodeAnswer("node-0", "cpu", {"cpu-gemm": (ParsedOutput(unknown="it hung"),) * 3}),
    ],
)
def test_a_node_that_told_nothing_is_unknown(silent: NodeAnswer) -> None:
    found = judge({"cpu": (GEMM, CORRECT)}, {"cpu": CPU}, [silent, answer("node-1", 5.0, 5.0, 5.0)])
    assert found["node-0"].verdict is VerdictWord.UNKNOWN
    assert all(reason["verdict"] == "unknown" and reason["evidence"] for reason in found["node-0"].reasons)


def test_a_figure_in_another_unit_is_no_figure() -> None:
    found = judge(
        {"cpu": (GEMM,)},
        {"cpu": CPU},
        [NodeAnswer("node-0", "cpu", {"cpu-gemm": told("cpu_gemm", 9.0, 9.0, 9.0, unit="s")})],
    )
    assert found["node-0"].verdict is VerdictWord.UNKNOWN


XGMI, BABEL = (
    next(one for one in load_suite("full").checks if one.name == name) for name in ("xgmi-links", "babelstream")
)


@pytest.mark.parametrize(("gpus", "verdict"), [(8, VerdictWord.PASS), (7, VerdictWord.UNKNOWN)])
def test_a_gpu_that_a_tool_s_list_leaves_out_was_not_looked_at(gpus: int, verdict: VerdictWord) -> None:
    kind = load_hardware("mi300x")
    listed = ParsedOutput(tuple(Reading("xgmi_links_down", 0.0, "count", f"gpu {index}") for index in range(gpus)))
    found = judge({"mi300x": (XGMI,)}, {"mi300x": kind}, [NodeAnswer("node-0", "mi300x", {"xgmi-links": (listed,)})])
    assert found["node-0"].verdict is verdict
    if verdict is VerdictWord.UNKNOWN:
        assert found["node-0"].reasons[0]["evidence"] == "7 of 8 GPUs reported a value"


def test_a_failure_counts_though_a_gpu_is_missing_from_the_list() -> None:
    kind = load_hardware("mi300x")
    listed = ParsedOutput((Reading("xgmi_links_down", 1.0, "count", "gpu 2"),))
    found = judge({"mi300x": (XGMI,)}, {"mi300x": kind}, [NodeAnswer("node-0", "mi300x", {"xgmi-links": (listed,)})])
    assert found["node-0"].verdict is VerdictWord.FAIL


@pytest.mark.parametrize(("gpus", "unknown"), [(8, ""), (3, ""), (8, "gpu 3: the text broke off")])
def test_several_figures_of_each_gpu_hide_no_gpu(gpus: int, unknown: str) -> None:
    kind = load_hardware("mi300x")
    kernels = [(index, name) for index in range(gpus) for name in ("copy", "mul", "add", "triad", "dot")]
    told = ParsedOutput(
        tuple(Reading("hbm_bandwidth", 4000.0, "GB/s", f"gpu {one} {name}") for one, name in kernels), unknown
    )
    answers = [NodeAnswer("node-0", "mi300x", {"babelstream": (told, told)})]
    found = judge({"mi300x": (BABEL,)}, {"mi300x": kind}, answers)
    assert found["node-0"].verdict is (VerdictWord.PASS if gpus == 8 and not unknown else VerdictWord.UNKNOWN)


NO_ROWS = "    Remapped Rows                         : N/A\n"


@pytest.mark.parametrize(
    ("model", "verdict"), [("NVIDIA A10", VerdictWord.PASS), ("NVIDIA H100 80GB HBM3", VerdictWord.UNKNOWN)]
)
def test_what_a_model_does_not_have_passes_and_what_it_does_not_tell_is_unknown(
    model: str, verdict: VerdictWord
) -> None:
    text = printed("nvidia-smi", "550-query-h100.txt").replace("NVIDIA H100 80GB HBM3", model)
    rows = text[text.index("    Remapped Rows\n") : text.index("    Temperature\n")]
    parsed = PARSERS["nvidia-smi"](text.replace(rows, NO_ROWS))
    kind = load_hardware("h100").model_copy(update={"gpus_per_node": 1})
    names = ("remapped-rows-pending", "remapped-rows-failed", "remapped-rows-uncorrectable")
    checks = [one for one in load_suite("smoke").checks if one.name in names]
    answers = [NodeAnswer("node-0", "h100", {name: (parsed,) for name in names})]
    found = judge({"h100": checks}, {"h100": kind}, answers)["node-0"]
    assert found.verdict is verdict
    assert {one["measured"] for one in found.reasons} == {"not applicable" if verdict is VerdictWord.PASS else None}
