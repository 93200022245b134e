"""Tools that load GPUs and what joins them: collectives, copies, kernels, vendors' own suites."""

from __future__ import annotations

import pytest

from tests.support.cases.tool_samples import figures, printed, value, whole, words
from workflows.programs.parsers.registry import PARSERS


def test_the_largest_message_is_told_by_place_once_the_table_has_ended() -> None:
    parsed = whole("nccl-tests", "rccl-mi350x-allreduce.txt")
    assert value(parsed, "bus_bandwidth", "in-place") == 367.51
    assert value(parsed, "bus_bandwidth", "out-of-place") == 360.97
    assert value(parsed, "bus_bandwidth_average") == 111.827
    assert value(parsed, "bus_bandwidth_by_size", "1048576 bytes in-place") == 34.73
    assert parsed.version == "develop:ae3e635"
    assert parsed.unknown == ""


def test_a_table_without_its_end_has_no_largest_message() -> None:
    text = printed("nccl-tests", "rccl-mi350x-allreduce.txt")
    broken = PARSERS["nccl-tests"](text[: text.index("# Out of bounds")])
    assert not [one for one in broken.readings if one.quantity == "bus_bandwidth"]
    assert "the average below the table is missing" in broken.unknown


def test_values_that_were_not_checked_are_not_called_right() -> None:
    parsed = whole("nccl-tests", "2.11-a100-allreduce.txt")
    assert not [one for one in parsed.readings if one.quantity == "collective_wrong_values"]
    assert parsed.unknown == "the values were not checked"
    assert value(parsed, "bus_bandwidth", "out-of-place") == 235.26


def test_wrong_values_are_the_tools_own_verdict() -> None:
    parsed = whole("nccl-tests", "wrong-values-written.txt")
    (verdict,) = [one for one in parsed.readings if one.quantity == "collective_wrong_values" and not one.subject]
    assert (verdict.value, verdict.said) == (3, "fail")
    assert value(parsed, "collective_wrong_values", "33554432 bytes out-of-place") == 3
    right = whole("nccl-tests", "2.21-efa-without-head.txt")
    assert [one.said for one in right.readings if one.quantity == "collective_wrong_values"] == ["pass"]


def test_what_mpirun_puts_before_each_line_is_left_out() -> None:
    parsed = whole("nccl-tests", "2.23-mpirun-prefix.txt")
    assert value(parsed, "bus_bandwidth_average") == 92.3405
    assert parsed.unknown == ""


def test_perftests_megabytes_are_two_to_the_twentieth() -> None:
    parsed = whole("ib-write-bw", "5.1-loopback-all-sizes.txt")
    assert value(parsed, "rdma_bandwidth_by_size", "ib0 65536 bytes") == pytest.approx(21167.79 * 2**20 * 8 / 1e9)
    best = [one.value for one in parsed.readings if one.quantity == "rdma_bandwidth"]
    assert best[0] == pytest.approx(23277.91 * 2**20 * 8 / 1e9)
    assert value(whole("ib-write-bw", "6-duration-gbits.txt"), "rdma_bandwidth") == 181.32


def test_latency_is_that_of_the_smallest_message() -> None:
    assert value(whole("ib-write-lat", "6-connectx.txt"), "rdma_latency") == 1.87
    parsed = whole("ib-write-lat", "5-all-sizes.txt")
    assert value(parsed, "rdma_latency") == 0.81
    assert value(parsed, "rdma_latency_p999_by_size", "8 bytes") == 6.64


def test_a_peer_that_is_not_there_is_unknown() -> None:
    assert whole("ib-write-bw", "6-no-peer-written.txt").unknown == "the other side does not answer"


def test_nvbandwidth_tells_where_the_data_goes() -> None:
    parsed = whole("nvbandwidth", "0.6-gh200.txt")
    assert value(parsed, "host_to_gpu_bandwidth", "cpu 0 -> gpu 2 ce") == 412.11
    assert value(parsed, "gpu_to_host_bandwidth", "gpu 1 -> cpu 0 ce") == 312.11
    assert value(parsed, "host_to_gpu_bidirectional_bandwidth", "cpu 0 <-> gpu 0 ce") == 176.92
    assert value(parsed, "host_gpu_latency", "cpu 0 <-> gpu 0 sm") == pytest.approx(0.77258)
    assert value(parsed, "host_to_gpu_bandwidth_sum", "ce") == 1985.6
    json = whole("nvbandwidth", "0.7-written.json")
    assert value(json, "gpu_to_gpu_bandwidth", "gpu 1 -> gpu 0 read ce") == 391.79
    assert "Waived" in json.unknown


def test_transferbench_tells_tests_and_matrices() -> None:
    example = whole("transferbench", "1.62-example-mi350x.txt")
    assert value(example, "transfer_bandwidth", "test 3 transfer 01 G1 -> G0") == 46.304
    assert value(example, "aggregate_bandwidth", "test 1") == 55.015
    assert value(whole("transferbench", "1.69-csv.txt"), "transfer_bandwidth", "test 1 transfer 0 G0 -> P0") == 0.53
    every = whole("transferbench", "1.62-a2a-mi350x.txt")
    assert value(every, "gpu_to_gpu_bandwidth", "gpu 7 -> gpu 4") == 53.26
    assert value(every, "gpu_to_gpu_bandwidth_average", "gpu timed") == 51.417
    pairs = whole("transferbench", "1.62-p2p-mi350x.txt")
    assert value(pairs, "gpu_to_gpu_bandwidth", "gpu 7 -> gpu 1") == 46.66
    assert value(pairs, "host_to_gpu_bandwidth", "cpu 0 -> gpu 6") == 44.64
    assert value(pairs, "gpu_to_host_bandwidth", "gpu 1 -> cpu 0 of both") == 55.03
    assert value(pairs, "gpu_to_gpu_bandwidth_bidirectional", "gpu 7 <-> gpu 1") == 92.79
    assert value(pairs, "gpu_to_gpu_bandwidth_average", "one way") == 57.32


def test_rvs_judges_by_its_target_and_not_by_the_ramp() -> None:
    parsed = whole("rvs", "0.0.60202-gst.txt")
    (only,) = parsed.readings
    assert (only.quantity, only.value, only.unit, only.said) == ("fp8_gemm", 1687.129, "TFLOP/s", "pass")
    text = printed("rvs", "0.0.60202-gst.txt")
    failed = PARSERS["rvs"](text.replace("met: TRUE", "met: FALSE"))
    assert failed.readings[0].said == "fail"
    without = PARSERS["rvs"]("".join(line for line in text.splitlines(keepends=True) if "Target" not in line))
    assert without.readings == ()
    assert "have no result" in without.unknown


def test_rvs_tells_power_memory_links_and_bandwidths() -> None:
    power = whole("rvs", "0.0.60202-iet.txt")
    assert ("rvs_power_test", "TRUE", "gpu 28851 iet-620W-1K-rand-dgemm", "pass") in words(power)
    assert value(power, "power_peak", "gpu 28851 iet-620W-1K-rand-dgemm") == 127
    others = whole("rvs", "0.0.60202-pebb-mem-peqt-gm.txt")
    assert value(others, "gpu_to_host_bandwidth", "gpu 28851 -> cpu 1 d2h-sequential-64MB") == 55.664
    assert value(others, "hbm_bandwidth", "action_1 test 11") == 2003.01709
    assert ("rvs_pcie_test", "true", "pcie_act_1", "pass") in words(others)
    assert value(others, "rvs_violations", "gpu 28851 power") == 0
    old = whole("rvs", "old-pebb-pbqt.txt")
    assert value(old, "gpu_to_gpu_bandwidth", "gpu 50599 -> gpu 3254 action_1") == 4.539
    assert "found none" in whole("rvs", "1.5.122-no-platform.txt").unknown


def test_kernels_are_told_in_tera_and_giga() -> None:
    assert figures(whole("rocblas-bench", "6.2-fp32-mi300x.txt")) == [
        ("gemm", 97.1906, "TFLOP/s", "4000x4000x4000"),
        ("gemm_time", 1317.0, "us", "4000x4000x4000"),
    ]
    assert value(whole("rocblas-bench", "hipblas-vega20.txt"), "gemm", "4096x4096x4096") == 11.9415
    assert value(whole("babelstream", "5.0-mi300x.txt"), "hbm_bandwidth", "triad") == 3948.061647
    assert whole("babelstream", "5.0-mi300x.txt").unknown == ""


def test_a_health_check_without_tests_is_no_pass() -> None:
    passed = whole("agfhc", "1.23.2-all-lvl1-mi350x.txt")
    assert ("agfhc_result", "AGFHC_SUCCESS", "", "pass") in words(passed)
    assert ("agfhc_test", "PASS", "hbm_bw-1-1", "pass") in words(passed)
    assert value(passed, "gpu_count") == 8
    nothing = whole("agfhc", "1.23-recipe-info.txt")
    assert ("agfhc_result", "AGFHC_SUCCESS", "", "") in words(nothing)
    assert nothing.unknown == "no test was executed"
    text = printed("agfhc", "1.23.2-all-lvl1-mi350x.txt")
    failed = PARSERS["agfhc"](
        text.replace("PASS: hbm", "FAIL: hbm").replace("AGFHC_SUCCESS [0]", "AGFHC_TEST_FAIL [3]")
    )
    assert ("agfhc_test", "FAIL", "hbm_bw-1-1", "fail") in words(failed)
    assert "AGFHC_TEST_FAIL" in failed.unknown
