"""What a sound H100 with driver 580 printed, in both of nvidia-smi's forms, a moment apart."""

from __future__ import annotations

from tests.support.cases.tool_samples import value, whole, words
from workflows.programs.parsers.text import Reading

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
