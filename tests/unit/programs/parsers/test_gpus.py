"""Tools that ask GPUs: nvidia-smi, rocm-smi, amd-smi, DCGM.

What a sound H100 with driver 580 printed, in both of nvidia-smi's forms, a moment apart.
"""

from __future__ import annotations

import pytest

from tests.support.cases.rows import rows
from tests.support.cases.tool_samples import figures, printed, value, whole, words
from workflows.programs.parsers.registry import PARSERS
from workflows.programs.parsers.text import Reading

A100 = "gpu 00000000:10:1c.0"
H100 = "gpu 00000000:19:00.0"


def test_a_row_that_waits_for_its_remapping_is_told() -> None:
    parsed = whole("nvidia-smi", "510-query-row-remap.txt")
    assert value(parsed, "row_remap_pending", A100) == 1
    assert value(parsed, "row_remap_failure", A100) == 0
    assert value(parsed, "rows_remapped_correctable", A100) == 1
    assert value(parsed, "ecc_correctable", f"{A100} dram") == 177
    assert value(parsed, "ecc_uncorrectable_lifetime", f"{A100} sram") == 0
    assert not [one for one in parsed.readings if one.quantity == "pages_retired"]
    assert "only 1 of 8 GPUs" in parsed.unknown
    assert parsed.version == "510.73.08"


@pytest.mark.parametrize(
    ("quantity", "subject", "expected"),
    [
        ("gpu_count", "", 1),
        ("gpu_temperature", H100, 29),
        ("gpu_memory_temperature", H100, 40),
        ("power", H100, 70.42),
        ("power_limit", H100, 700),
        ("gpu_clock", H100, 345),
        ("gpu_clock_max", H100, 1980),
        ("memory_clock", H100, 2619),
        ("pcie_generation", H100, 5),
        ("pcie_link_width", H100, 16),
        ("pcie_replays", H100, 0),
        ("gpu_memory_used", H100, 1 / 1024),
        ("throttle_hw_slowdown", H100, 0),
        ("throttle_hw_thermal_slowdown", H100, 0),
        ("ecc_uncorrectable", f"{H100} sram parity", 0),
        ("ecc_uncorrectable", f"{H100} sram sec-ded", 0),
        ("sram_threshold_exceeded", H100, 0),
        ("gpu_recovery_needed", H100, 0),
        ("gpu_reset_required", H100, 0),
    ],
)
def test_the_full_query_is_read(quantity: str, subject: str, expected: float) -> None:
    assert value(whole("nvidia-smi", "550-query-h100.txt"), quantity, subject) == expected


@rows("programs/parsers/gpus")
def test_the_most_that_clocks_may_be_and_what_a_person_wished_are_told(
    tool: str, sample: str, gpu: str, clocks: tuple[float | None, float | None], wished: list[str]
) -> None:
    parsed = whole(tool, sample)
    told = {name: number for name, number, _, subject in figures(parsed) if subject == gpu}
    assert (told.get("gpu_clock_max"), told.get("memory_clock_max")) == clocks
    assert [word for name, word, subject, _ in words(parsed) if name == "gpu_clock_set" and subject == gpu] == wished


@rows("programs/parsers/gpus")
def test_a_driver_without_wished_clocks_says_so_and_an_error_is_no_word(printed_as: str, word: list[str]) -> None:
    table = PARSERS["nvidia-smi"](f"index, clocks.applications.graphics [MHz]\n0, {printed_as}\n")
    query = PARSERS["nvidia-smi"](printed("nvidia-smi", "clocks-v100.txt").replace("1312 MHz", printed_as, 1))
    for parsed in (table, query):
        assert [told for name, told, _, _ in words(parsed) if name == "gpu_clock_set"] == word


def test_a_table_of_most_clocks_is_read() -> None:
    text = "index, clocks.max.sm [MHz], clocks.max.mem [MHz], clocks.applications.graphics [MHz]\n0, 1980, 2619, 1980\n"
    parsed = PARSERS["nvidia-smi"](text)
    assert (value(parsed, "gpu_clock_max", "gpu 0"), value(parsed, "memory_clock_max", "gpu 0")) == (1980, 2619)
    assert words(parsed) == [("gpu_clock_set", "1980 MHz", "gpu 0", "")]


def test_words_of_the_full_query_are_kept() -> None:
    parsed = whole("nvidia-smi", "550-query-h100.txt")
    assert parsed.unknown == ""
    assert ("fabric_state", "Completed", H100, "") in words(parsed)
    assert ("mig_mode", "Disabled", H100, "") in words(parsed)
    assert ("driver_version", "550.54.15", "", "") in words(parsed)


def test_a_fabric_that_is_not_ready_is_a_word_and_absent_gpus_are_unknown() -> None:
    parsed = whole("nvidia-smi", "580-fabric-in-progress.txt")
    assert ("fabric_state", "In Progress", "gpu 00000000:1b:00.0", "") in words(parsed)
    assert value(parsed, "gpu_count") == 7
    assert "only 1 of 7" in parsed.unknown


def test_figures_of_mig_devices_are_not_those_of_the_gpu() -> None:
    parsed = whole("nvidia-smi", "535-xml-a100-mig.txt")
    assert value(parsed, "gpu_memory_total", "gpu 00000000:01:00.0") == 80
    assert value(parsed, "power", "gpu 00000000:01:00.0") == 67.03
    assert "split into MIG devices" in parsed.unknown


def test_a_field_that_a_gpu_no_longer_answers_is_unknown() -> None:
    text = printed("nvidia-smi", "550-query-h100.txt").replace(": 29 C", ": Unknown Error")
    parsed = PARSERS["nvidia-smi"](text)
    assert not [one for one in parsed.readings if one.quantity == "gpu_temperature"]
    assert f"{H100}: a field reads Unknown Error" in parsed.unknown


def test_a_gpu_of_which_less_is_told_is_noted() -> None:
    text = printed("nvidia-smi", "550-query-h100.txt").replace("Attached GPUs                             : 1", "")
    second = text[text.index("GPU 00000000:19") : text.index("    Temperature")].replace(":19:", ":3B:")
    assert "less is told of one GPU" in PARSERS["nvidia-smi"](text + second).unknown


def test_a_table_is_read_by_its_header() -> None:
    parsed = whole("nvidia-smi", "550-csv.txt")
    assert value(parsed, "power", "gpu 0") == 71.58
    assert value(parsed, "gpu_temperature", "gpu 1") == 31
    assert value(parsed, "ecc_uncorrectable", "gpu 1") == 2
    assert value(parsed, "row_remap_pending", "gpu 1") == 1
    assert value(parsed, "throttle_hw_slowdown", "gpu 1") == 1
    assert not [
        one for one in parsed.readings if one.subject == "gpu 2" and one.quantity in ("power", "gpu_temperature")
    ]
    assert "temperature.gpu reads [Unknown Error]" in parsed.unknown


def test_a_table_without_units_takes_them_from_its_header_and_one_without_header_is_refused() -> None:
    parse = PARSERS["nvidia-smi"]
    assert figures(parse("index, power.draw [W], memory.used [MiB]\n3, 71.5, 1024\n")) == [
        ("power", 71.5, "W", "gpu 3"),
        ("gpu_memory_used", 1.0, "GiB", "gpu 3"),
    ]
    assert parse("3, 71.5, 1024\n").readings == ()
    assert "not as many cells" in parse("index, power.draw [W], memory.used [MiB]\n3, 71.5\n").unknown


def test_inactive_links_have_no_speed() -> None:
    parsed = whole("nvidia-smi", "545-nvlink-status-h100-pcie.txt")
    assert value(parsed, "nvlink_state", "gpu 0 link 4") == 0
    assert value(parsed, "nvlink_speed", "gpu 0 link 15") == 26.562
    assert sum(one.quantity == "nvlink_speed" for one in parsed.readings) == 12
    assert sum(one.quantity == "nvlink_state" for one in parsed.readings) == 18


def test_errors_of_links_are_told_by_counter() -> None:
    parsed = whole("nvidia-smi", "550-nvlink-errors.txt")
    assert value(parsed, "nvlink_errors", "gpu 0 link 17 crc") == 0
    text = printed("nvidia-smi", "550-nvlink-errors.txt")
    worse = PARSERS["nvidia-smi"](text.replace("Link 1: Replay Errors: 0", "Link 1: Replay Errors: 7"))
    assert value(worse, "nvlink_errors", "gpu 0 link 1 replay") == 7
    more = PARSERS["nvidia-smi"](text + "GPU 1: NVIDIA H100 80GB HBM3\n         Link 0: Replay Errors: 0\n")
    assert "fewer links" in more.unknown


def test_rocm_smi_tells_the_same_as_json_lines_and_overview() -> None:
    json = whole("rocm-smi", "6.0.2-mi100.json")
    assert value(json, "gpu_count") == 2
    assert value(json, "gpu_temperature", "gpu 1 junction") == 58
    assert value(json, "power", "gpu 0") == 36
    assert value(json, "pcie_link_speed", "gpu 0") == 16
    assert value(json, "pcie_link_width", "gpu 1") == 16
    assert value(json, "gpu_memory_total", "gpu 0") == pytest.approx(31.984, abs=1e-3)
    assert ("driver_version", "6.3.6", "", "") in words(json)
    assert value(whole("rocm-smi", "6.3-metrics.txt"), "power", "gpu 0") == 20
    assert value(whole("rocm-smi", "7.0-overview-mi350x.txt"), "power", "gpu 4") == 257


def test_rocm_smi_tells_errors_by_block_and_split_gpus() -> None:
    parsed = whole("rocm-smi", "5.7-ras-written.txt")
    assert value(parsed, "ecc_uncorrectable", "gpu 0 umc") == 1
    assert value(parsed, "ecc_correctable", "gpu 0 umc") == 3
    split = whole("rocm-smi", "6.4-overview-split.txt")
    assert "gpu 15 is split (CPX)" in split.unknown
    assert whole("rocm-smi", "6.3-nothing.txt").unknown == "the tool had nothing to report"


def test_amd_smi_tells_the_same_as_text_and_json() -> None:
    text = whole("amd-smi", "7.1-metric-mi300x.txt")
    json = whole("amd-smi", "7.0-metric-written.json")
    for parsed, power in ((text, 140), (json, 141)):
        assert value(parsed, "power", "gpu 0") == power
        assert value(parsed, "pcie_link_speed", "gpu 0") == 32
        assert value(parsed, "pcie_link_width", "gpu 0") == 16
        assert value(parsed, "ecc_uncorrectable", "gpu 0 umc") == 0
        assert value(parsed, "gpu_memory_total", "gpu 0") == pytest.approx(191.984, abs=1e-3)
    assert value(json, "ecc_correctable", "gpu 0") == 4
    assert value(json, "ecc_uncorrectable", "gpu 1") == 2
    assert value(json, "throttle_socket_thermal", "gpu 0") == 1
    assert value(json, "throttle_prochot", "gpu 0") == 0
    assert "gpu 1 is split (CPX)" in json.unknown


def test_amd_smi_tells_bad_pages_and_hardware_events() -> None:
    json = whole("amd-smi", "6.3-bad-pages-written.json")
    assert value(json, "bad_pages_retired", "gpu 0") == 0
    assert value(json, "bad_pages_retired", "gpu 1") == 2
    text = whole("amd-smi", "6.3-bad-pages-written.txt")
    assert value(text, "bad_pages_retired", "gpu 0") == 0
    assert ("bad_page", "0x00000000a1b2c000", "gpu 1", "") in words(text)
    assert words(whole("amd-smi", "7.2-ras-cper.txt"))[0] == ("ras_event", "FATAL 30", "gpu 0", "")
    assert words(whole("amd-smi", "7.1-static-mi350x.txt"))[0][:2] == ("product_name", "AMD Instinct MI350X")


def test_amd_smi_tells_links_that_are_down_and_not_those_that_are_disabled() -> None:
    parsed = whole("amd-smi", "6.4-xgmi-link-status.txt")
    assert value(parsed, "xgmi_links_down", "gpu 1") == 2
    assert value(parsed, "xgmi_links_up", "gpu 0") == 5
    json = PARSERS["amd-smi"]('[{"gpu": 3, "link_status": ["U", "D", "X"]}]')
    assert value(json, "xgmi_links_down", "gpu 3") == 1


def test_dcgm_judges_and_what_it_skipped_is_neither() -> None:
    four = whole("dcgm-diag", "4.2.3-level1-gb10.json")
    assert ("dcgm_test", "Fail, config", "gpu 0 software", "fail") in words(four)
    assert "Persistence mode for GPU 0" in four.readings[-1].line
    assert four.version == "4.2.3"
    three = whole("dcgm-diag", "3.1-level3-skipped.json")
    assert [one.said for one in three.readings] == ["", ""]
    assert three.unknown == "2 of 2 results are of tests that were skipped"
    assert words(whole("dcgm-diag", "3.2-warning-above.json"))[0][3] == "pass"


def test_dcgms_table_is_read_and_its_missing_end_is_told() -> None:
    table = whole("dcgm-diag", "4-table-written.txt")
    assert ("dcgm_test", "Fail", "gpu 1 pcie", "fail") in words(table)
    assert ("dcgm_test", "Pass", "gpu 0 pcie", "pass") in words(table)
    assert ("dcgm_warning", "PCIe replays are above the limit", "gpu1 pcie", "") in words(table)
    assert "skipped" in table.unknown
    assert "broke off" not in table.unknown
    assert "the last line of its table is missing" in whole("dcgm-diag", "3.3.1-table.txt").unknown
    row = whole("dcgm-diag", "3.0-table-row-remap.txt")
    assert words(row) == [("dcgm_error", "GPU 3 has uncorrectable memory errors and row", "", "")]


@rows("programs/parsers/gpus")
def test_states_that_come_to_the_same_are_told_as_one_quantity(healthy: str, bad: str, quantity: str) -> None:
    text = printed("nvidia-smi", "590-xml-rtx-pro.txt")
    assert healthy in text
    parse = PARSERS["nvidia-smi"]
    before, after = parse(text), parse(text.replace(healthy, bad))
    assert {one.value for one in before.readings if one.quantity == quantity} == {0.0}
    assert sum(one.value or 0.0 for one in after.readings if one.quantity == quantity) == 1.0


def test_the_room_below_the_heat_limit_is_read_from_both_forms() -> None:
    assert value(whole("nvidia-smi", "590-xml-rtx-pro.txt"), "gpu_temperature_margin", "gpu 00000000:61:00.0") == 68.0
    assert value(whole("nvidia-smi", "550-query-h100.txt"), "gpu_temperature_margin", "gpu 00000000:19:00.0") == 58.0


def test_a_test_of_which_dcgm_only_warns_is_neither_passed_nor_failed() -> None:
    text = (
        '{"DCGM Diagnostic": {"test_categories": [{"tests": [{"name": "pcie", "results": ['
        '{"entity_group": "GPU", "entity_id": 3, "status": "Warn"}]}]}]}}'
    )
    found = PARSERS["dcgm-diag"](text)
    assert found.readings[0].said == ""
    assert found.unknown.startswith("DCGM neither passes nor fails gpu 3 pcie")


GPU = "gpu 00000000:00:06.0"
FORMS = ("580-query-h100.txt", "580-xml-h100.txt")
MOVING = {"power", "gpu_memory_temperature"}


def told(form: str) -> dict[tuple[str, str], Reading]:
    parsed = whole("nvidia-smi", form)
    assert (parsed.unknown, parsed.version) == ("", "580.159.04")
    return {(one.quantity, one.subject.replace("sec-ded", "secded")): one for one in parsed.readings}


def test_both_forms_tell_the_same() -> None:
    text, xml = (told(form) for form in FORMS)
    assert text.keys() == xml.keys()
    for key in text.keys() - {key for key in text if key[0] in MOVING}:
        assert (text[key].value, text[key].word, text[key].unit) == (xml[key].value, xml[key].word, xml[key].unit), key


def test_nothing_is_wrong_with_it() -> None:
    for form in FORMS:
        found = told(form)
        for name in ("gpu_replacement_needed", "gpu_recovery_needed", "row_remap_failure", "ecc_uncorrectable"):
            assert {one.value for key, one in found.items() if key[0] == name} == {0.0}, name
        assert {one.value for key, one in found.items() if key[0].startswith("throttle_")} == {0.0}


def test_figures_are_those_of_the_card() -> None:
    parsed = whole("nvidia-smi", FORMS[0])
    assert ("product_name", "NVIDIA H100 80GB HBM3", GPU, "") in words(parsed)
    figures = {name: value(parsed, name, GPU) for name in ("power_limit", "pcie_generation", "gpu_clock_max")}
    assert figures == {"power_limit": 700.0, "pcie_generation": 5.0, "gpu_clock_max": 1980.0}
    assert value(parsed, "gpu_count") == 1
