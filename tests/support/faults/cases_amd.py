"""Cases of AMD's tools: amd-smi of two ROCm releases, RVS, AGFHC, TransferBench, rocBLAS, BabelStream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from profiles.hardware import HardwareProfile
from tests.support.cases.rows import values
from tests.support.cases.tool_samples import printed
from tests.support.faults.cases import EXPECTED, GPU, PASSES, SLOW_GPU, UNKNOWN, Case, Expect, Make, on_each
from tests.support.faults.node import Said, VirtualNode
from tests.support.faults.texts import amd_links, amd_metric, amd_pages, peer_copies
from tests.support.faults.trees import GEMM_GIGAFLOPS, PEER_COPY, amd_tools, gemm, rvs, stream

KINDS = ("mi250x", "mi300x", "mi325x", "mi355x")
ECC, PAGES, LINKS = "metric --ecc --json", "bad-pages --json", "xgmi --link-status --json"
CALLS = {"ecc": ECC, "ecc_blocks": "metric --ecc-blocks --json", "throttle": "metric --violation --json"}
NO_ERRORS = {"correctable_count": 0, "uncorrectable_count": 0, "deferred_count": 0}


def smi(answers: Mapping[str, Said]) -> Make:
    """A node whose amd-smi answers so."""
    return lambda node, hardware: amd_tools(node, hardware, dict(answers))


def _told(fields: Mapping[int, Any]) -> str:
    return "; ".join(f"GPU {index}: {told}" for index, told in fields.items()).replace("'", "")


@dataclass(frozen=True)
class Metric:
    """`amd-smi metric` with fields of one GPU changed."""

    check: str
    expect: str
    call: str
    kinds: tuple[str, ...] = ("mi300x",)
    gpus: dict[int, Any] = field(default_factory=dict[int, Any])
    """GPU -> what it tells; of blocks: their counters that are not 0."""
    release: int = 7

    def _whole(self, told: Any) -> Any:
        if self.call != "ecc_blocks" or told == "N/A":
            return told
        return {block: NO_ERRORS | counts for block, counts in told.items()}

    def cases(self, name: str) -> list[Case]:
        """One for each kind."""
        fields = {gpu: self._whole(told) for gpu, told in self.gpus.items()}

        def make(node: VirtualNode, hardware: HardwareProfile) -> None:
            text = amd_metric(self.call, fields, hardware.gpus_per_node, self.release)
            amd_tools(node, hardware, {CALLS[self.call]: Said(text)})

        return on_each(name, self.kinds, self.check, self.expect, make, _told(fields))


@dataclass(frozen=True)
class BadPages:
    """`amd-smi bad-pages`: pages of one GPU by their state."""

    check: str
    expect: str
    kinds: tuple[str, ...] = ("mi300x",)
    gpus: dict[int, dict[str, int]] = field(default_factory=dict[int, dict[str, int]])

    def cases(self, name: str) -> list[Case]:
        """One for each kind."""

        def make(node: VirtualNode, hardware: HardwareProfile) -> None:
            amd_tools(node, hardware, {PAGES: Said(amd_pages(self.gpus, hardware.gpus_per_node))})

        return on_each(name, self.kinds, self.check, self.expect, make, _told(self.gpus))


@dataclass(frozen=True)
class Xgmi:
    """`amd-smi xgmi --link-status`: letters of links that are not up."""

    expect: str
    kinds: tuple[str, ...] = ("mi300x",)
    letters: dict[int, dict[int, str]] = field(default_factory=dict[int, dict[int, str]])
    gpus: int | None = None

    def cases(self, name: str) -> list[Case]:
        """One for each kind."""

        def make(node: VirtualNode, hardware: HardwareProfile) -> None:
            text = amd_links(self.letters, hardware.gpus_per_node if self.gpus is None else self.gpus)
            amd_tools(node, hardware, {LINKS: Said(text)})

        return on_each(name, self.kinds, "xgmi-links", self.expect, make, _told(self.letters))


@dataclass(frozen=True)
class Refusal:
    """amd-smi that says that it cannot."""

    text: str
    code: int

    def case(self, name: str) -> Case:
        """On an MI300X."""
        answer = {ECC: Said(self.text, self.code)}
        return Case(name, "mi300x", "ecc-amd", UNKNOWN, smi(answer), "nothing else is printed")


def tool(
    name: str, kind: str, check: str, expect: Expect, program: str, answers: Mapping[str, Said], changed: str = ""
) -> Case:
    """One of the long tests."""
    return Case(name, kind, check, expect, lambda node, _: node.tool(program, dict(answers)), changed)


@dataclass(frozen=True)
class Rvs:
    """RVS on so many GPUs, of which one is slow, hot or broken, or a sample of its output."""

    check: str
    expect: str
    changed: str = ""
    kind: str = "mi300x"
    gpus: int = 8
    slow: int = -1
    hot: int = -1
    broken: int = -1
    sample: str = ""

    def case(self, name: str) -> Case:
        """On that kind."""
        text = printed("rvs", self.sample) if self.sample else rvs(self.gpus, self.slow, self.hot, self.broken)
        return tool(name, self.kind, self.check, EXPECTED[self.expect], "rvs", {"-r 4": Said(text)}, self.changed)


@dataclass(frozen=True)
class Agfhc:
    """A sample of AGFHC's output, of which one line became another or is missing."""

    expect: str
    line: str = ""
    becomes: str = ""
    code: int = 0

    def case(self, name: str) -> Case:
        """On an MI355X."""
        text = printed("agfhc", "1.23.2-all-lvl1-mi350x.txt")
        assert self.line in text
        changed = text.replace(self.line, self.becomes) if self.line else text
        told = f"{self.line.strip()} is {self.becomes.strip() or 'missing'}" if self.line else ""
        return tool(name, "mi355x", "agfhc", EXPECTED[self.expect], "agfhc", {"*": Said(changed, self.code)}, told)


WHOLE = amd_metric("ecc")


def _mi300x(name: str, check: str, expect: Expect, call: str, said: Said, changed: str = "") -> Case:
    return Case(name, "mi300x", check, expect, smi({call: said}), changed)


OTHERS: list[Case] = [
    _mi300x("bad pages of two GPUs as text", "bad-pages-amd", UNKNOWN, PAGES,
            Said(printed("amd-smi", "6.3-bad-pages-written.txt"))),
    _mi300x("the sample of two links down", "xgmi-links", GPU, LINKS,
            Said(printed("amd-smi", "6.4-xgmi-link-status.txt"))),
    _mi300x("links that are not told", "xgmi-links", UNKNOWN, LINKS, Said(amd_links().replace('"U"', '"N/A"')),
            "N/A instead of U"),
    _mi300x("the document ends in the middle", "ecc-amd", UNKNOWN, ECC, Said(WHOLE[: len(WHOLE) // 2]),
            "nothing else is printed"),
    _mi300x("the sample of a split GPU", "ecc-amd", GPU, ECC, Said(printed("amd-smi", "7.0-metric-written.json"))),
    _mi300x("good counters and exit code 1", "ecc-amd", UNKNOWN, ECC, Said(WHOLE, 1), "exit code 1"),
    _mi300x("seven of eight GPUs are listed", "ecc-amd", UNKNOWN, ECC, Said(amd_metric("ecc", gpus=7)),
            "GPU 7 is missing"),
]  # fmt: skip


def _peers(name: str, kind: str, expect: Expect, slow: Mapping[tuple[int, int], float], changed: str = "") -> Case:
    text = peer_copies(slow, PEER_COPY[kind], 16 if kind == "mi250x" else 8)
    return tool(f"{name} ({kind})", kind, "transferbench", expect, "TransferBench", {"p2p": Said(text)}, changed)


TRANSFERS: list[Case] = [
    *(_peers("copies between GPUs", kind, PASSES, {}) for kind in KINDS),
    *(_peers("one slow pair of GPUs", kind, SLOW_GPU, {(6, 2): 20.3}, "GPU 6 -> GPU 2: 20.30") for kind in KINDS),
    tool("the sample of a slow pair", "mi355x", "transferbench", SLOW_GPU, "TransferBench",
         {"p2p": Said(printed("transferbench", "1.62-p2p-mi350x.txt"))}),
]  # fmt: skip
GEMM = ("rocblas-bench", "-f gemm -r d -m 8640 -n 8640 -k 8640 -i 20 --device 3")
STREAM = ("hip-stream", "--device 3")


def by_gpu(name: str, kind: str, expect: Expect, call: tuple[str, str], good: str, bad: Said) -> Case:
    """A tool that is called for each GPU: GPU 3 prints something else."""
    check = "rocblas-bench" if call == GEMM else "babelstream"
    return tool(name, kind, check, expect, call[0], {call[1]: bad, "*": Said(good)}, "GPU 3 alone")


def _products(kind: str) -> list[Case]:
    good = gemm(GEMM_GIGAFLOPS[kind])
    name, slow = f"one GPU computes at a third ({kind})", Said(gemm(GEMM_GIGAFLOPS[kind] / 3))
    return [
        tool(f"products in double precision ({kind})", kind, "rocblas-bench", PASSES, GEMM[0], {"*": Said(good)}),
        by_gpu(name, kind, SLOW_GPU, GEMM, good, slow),
    ]


EACH: list[Case] = [
    *(case for kind in KINDS for case in _products(kind)),
    by_gpu("one GPU's product crashes", "mi300x", UNKNOWN, GEMM, gemm(81_300.0), Said("", 134)),
    tool("memory of all GPUs", "mi300x", "babelstream", PASSES, "hip-stream", {"*": Said(stream(1.0))}),
    by_gpu("memory of one GPU at 80 %", "mi300x", SLOW_GPU, STREAM, stream(1.0), Said(stream(0.8))),
    by_gpu("memory of an MI355X as slow as an MI300X's", "mi355x", SLOW_GPU, STREAM, stream(1.4), Said(stream(1.0))),
    by_gpu("memory of one GPU: broken off", "mi300x", UNKNOWN, STREAM, stream(1.0), Said(stream(1.0)[:520])),
]
CASES: tuple[Case, ...] = (
    *(case for name, metric in values("faults/amd", "amd_smi_metric", Metric).items() for case in metric.cases(name)),
    *(
        case
        for name, pages in values("faults/amd", "amd_smi_bad_pages", BadPages).items()
        for case in pages.cases(name)
    ),
    *(case for name, xgmi in values("faults/amd", "amd_smi_xgmi", Xgmi).items() for case in xgmi.cases(name)),
    *(refusal.case(name) for name, refusal in values("faults/amd", "amd_smi_refuses", Refusal).items()),
    *OTHERS,
    *(one.case(name) for name, one in values("faults/amd", "rvs", Rvs).items()),
    *(one.case(name) for name, one in values("faults/amd", "agfhc", Agfhc).items()),
    *TRANSFERS,
    *EACH,
)
