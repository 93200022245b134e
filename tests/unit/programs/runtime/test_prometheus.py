"""The text of metrics that programs write, read back by Prometheus' own client."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from workflows.programs.runtime.prometheus import FIGURE_DIGITS, Family, exposition

ODD = st.sampled_from(['"', "\\", "\n", "n", "{", "}", ",", "=", "a", " ", "é"])
TEXTS = st.lists(ODD, max_size=8).map("".join) | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


def test_a_page_byte_for_byte() -> None:
    families = [
        Family("steps", "gauge", 'A "step" of C:\\runs,\nor none.', [((), 7.0)]),
        Family("bytes_total", "counter", "Received.", [((("rank", 0), ("nic", 'm"l\\x\n')), 1234567.0), ((), 0.5)]),
        Family("odd", "gauge", "No number.", [((), value) for value in (math.nan, math.inf, -math.inf)]),
        Family("none", "gauge", "Nothing is known.", []),
    ]
    assert exposition(families) == (
        '# HELP steps A "step" of C:\\\\runs,\\nor none.\n# TYPE steps gauge\nsteps 7\n'
        "# HELP bytes_total Received.\n# TYPE bytes_total counter\n"
        'bytes_total{rank="0",nic="m\\"l\\\\x\\n"} 1234567\nbytes_total 0.5\n'
        "# HELP odd No number.\n# TYPE odd gauge\nodd NaN\nodd +Inf\nodd -Inf\n"
        "# HELP none Nothing is known.\n# TYPE none gauge\n"
    )
    assert not exposition([])


def test_digits_are_those_of_figures_and_never_cut_whole_numbers() -> None:
    samples = [((), value) for value in (1 / 3, 1234567.0, 1234567.5)]
    lines = exposition([Family("x", "gauge", "", samples)], FIGURE_DIGITS).splitlines()[2:]
    assert lines == ["x 0.333333", "x 1234567", "x 1.23457e+06"]
    assert exposition([Family("x", "gauge", "", samples)]).splitlines()[2] == "x 0.333333333333333"


@given(TEXTS, st.lists(st.tuples(TEXTS, st.floats()), min_size=1, max_size=4))
def test_what_is_written_is_read_back(what: str, series: list[tuple[str, float]]) -> None:
    family = Family("figure", "gauge", what, [((("of", text), ("n", 1)), value) for text, value in series])
    [found] = text_string_to_metric_families(exposition([family]))
    assert (found.name, found.type, found.documentation.strip()) == ("figure", "gauge", what.strip())
    assert [sample.labels for sample in found.samples] == [{"of": text, "n": "1"} for text, _ in series]
    for sample, (_, value) in zip(found.samples, series, strict=True):
        same = math.isnan(sample.value) and math.isnan(value)
        assert same or sample.value == value or math.isclose(sample.value, value, rel_tol=1e-14)
