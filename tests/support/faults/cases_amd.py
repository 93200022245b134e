"""Cases of AMD's tools: amd-smi of two ROCm releases, RVS, AGFHC, TransferBench, rocBLAS, BabelStream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from profiles.hardware import HardwareProfile
from tests.support.cases.tool_samples import printed
from tests.support.faults.cases import (
    GPU,
    HEAT,
    PASSES,
    PASSES_QUIETLY,
    SLOW_GPU,
    UNKNOWN,
    UNKNOWN_WARNING,
    WARNED_OF,
    Case,
    Expect,
    Make,
)
from tests.support.faults.node import Said, VirtualNode
from tests.support.faults.texts import BLOCKS, amd_links, amd_metric, amd_pages, peer_copies
from tests.support.faults.trees import GEMM_GIGAFLOPS, PEER_COPY, amd_tools, gemm, rvs, stream

KINDS = ("mi250x", "mi300x", "mi325x", "mi355x")
NEW = KINDS[1:]
ECC, BLOCK, HELD = "metric --ecc --json", "metric --ecc-blocks --json", "metric --violation --json"
PAGES, LINKS = "bad-pages --json", "xgmi --link-status --json"
Fields = Mapping[int, Any]


def smi(answers: Mapping[str, Said]) -> Make:
    """A node whose amd-smi answers so."""
    return lambda node, hardware: amd_tools(node, hardware, dict(answers))


def metric(
    name: str,
    check: str,
    expect: Expect,
    arguments: str,
    fields: Fields,
    kinds: Sequence[str] = ("mi300x",),
    release: int = 7,
) -> list[Case]:
    """`amd-smi metric` with fields of one GPU changed, on nodes of these kinds."""
    part = {ECC: "ecc", BLOCK: "ecc_blocks", HELD: "throttle"}[arguments]

    def make(node: VirtualNode, hardware: HardwareProfile) -> None:
        text = amd_metric(part, fields, hardware.gpus_per_node, release)
        amd_tools(node, hardware, {arguments: Said(text)})

    return [Case(f"{name} ({kind})", kind, check, expect, make, _told(fields)) for kind in kinds]


def _told(fields: Fields) -> str:
    return "; ".join(f"GPU {index}: {told}" for index, told in fields.items()).replace("'", "")


def block(name: str, corrected: int = 0, uncorrected: int = 0, deferred: int = 0) -> dict[str, Any]:
    """Counters of one block."""
    counts = {"correctable_count": corrected, "uncorrectable_count": uncorrected, "deferred_count": deferred}
    return {name: counts}


MEMORY: list[Case] = [
    *metric("no errors", "ecc-amd", PASSES, ECC, {}, KINDS),
    *metric("no errors, as ROCm 6 lists them", "ecc-amd", PASSES, ECC, {}, ("mi250x", "mi300x"), 6),
    *metric("an uncorrectable error", "ecc-amd", GPU, ECC, {3: {"total_uncorrectable_count": 1}}, KINDS),
    *metric(
        "an uncorrectable error, ROCm 6", "ecc-amd", GPU, ECC, {7: {"total_uncorrectable_count": 2}}, ("mi300x",), 6
    ),
    *metric("corrected errors are ordinary", "ecc-amd", PASSES, ECC, {0: {"total_correctable_count": 4211}}, KINDS),
    *metric("a deferred error", "ecc-deferred-amd", GPU, ECC, {2: {"total_deferred_count": 1}}, NEW),
    *metric("no deferred error", "ecc-deferred-amd", PASSES, ECC, {}, NEW),
    *metric("one GPU without counters", "ecc-amd", UNKNOWN, ECC, {5: "N/A"}, KINDS),
    *metric("one counter that is not told", "ecc-amd", UNKNOWN, ECC, {5: {"total_uncorrectable_count": "N/A"}}, NEW),
    *metric("no errors of any block", "ras-amd", PASSES, BLOCK, {}, KINDS),
    *(
        case
        for name in BLOCKS
        for case in metric(f"an uncorrectable error of {name}", "ras-amd", GPU, BLOCK, {4: block(name, uncorrected=1)})
    ),
    *metric("corrected errors of the memory", "ras-amd", PASSES, BLOCK, {4: block("UMC", corrected=17)}, KINDS),
    *metric("a GPU whose blocks are not told", "ras-amd", UNKNOWN, BLOCK, {6: "N/A"}),
    *metric("nothing throttles", "throttle-amd", PASSES_QUIETLY, HELD, {}, NEW),
    *metric(
        "the socket is too hot",
        "throttle-amd",
        WARNED_OF,
        HELD,
        {1: {"socket_thermal_violation_status": "ACTIVE"}},
        NEW,
    ),
    *metric(
        "the board asks to slow down",
        "throttle-prochot-amd",
        WARNED_OF,
        HELD,
        {1: {"prochot_violation_status": "ACTIVE"}},
        NEW,
    ),
    *metric("a power cap is no fault", "throttle-amd", PASSES_QUIETLY, HELD, {1: {"ppt_violation_status": "ACTIVE"}}),
    *metric(
        "a GPU that does not tell why it throttles",
        "throttle-amd",
        UNKNOWN_WARNING,
        HELD,
        {1: {"socket_thermal_violation_status": "N/A"}},
    ),
]


def pages(
    name: str, check: str, expect: Expect, counts: Mapping[int, Mapping[str, int]], kinds: Sequence[str] = ("mi300x",)
) -> list[Case]:
    """`amd-smi bad-pages`."""

    def make(node: VirtualNode, hardware: HardwareProfile) -> None:
        amd_tools(node, hardware, {PAGES: Said(amd_pages(counts, hardware.gpus_per_node))})

    return [Case(f"{name} ({kind})", kind, check, expect, make, _told(counts)) for kind in kinds]


def xgmi(
    name: str,
    expect: Expect,
    letters: Mapping[int, Mapping[int, str]],
    kinds: Sequence[str] = ("mi300x",),
    gpus: int | None = None,
) -> list[Case]:
    """`amd-smi xgmi --link-status`."""

    def make(node: VirtualNode, hardware: HardwareProfile) -> None:
        text = amd_links(letters, hardware.gpus_per_node if gpus is None else gpus)
        amd_tools(node, hardware, {LINKS: Said(text)})

    return [Case(f"{name} ({kind})", kind, "xgmi-links", expect, make, _told(letters)) for kind in kinds]


PARTS: list[Case] = [
    *pages("no bad pages", "bad-pages-amd", PASSES, {}, KINDS),
    *pages("a bad page that is still in use", "bad-pages-amd", GPU, {3: {"pending": 1}}, KINDS),
    *pages("a bad page that could not be taken out", "bad-pages-unreservable-amd", GPU, {3: {"un_res": 2}}, KINDS),
    *pages("ten retired pages", "bad-pages-retired-amd", PASSES_QUIETLY, {3: {"retired": 10}}),
    *pages("eleven retired pages", "bad-pages-retired-amd", WARNED_OF, {3: {"retired": 11}}, KINDS),
    Case(
        "bad pages of two GPUs as text",
        "mi300x",
        "bad-pages-amd",
        UNKNOWN,
        smi({PAGES: Said(printed("amd-smi", "6.3-bad-pages-written.txt"))}),
    ),
    *xgmi("all links up", PASSES, {}, KINDS),
    *xgmi("one link down, seen from both ends", GPU, {2: {5: "D"}, 5: {2: "D"}}, KINDS),
    *xgmi("all links of a GPU down", GPU, {1: {link: "D" for link in (0, 2, 3, 4, 5, 6, 7)}}, NEW),
    *xgmi("seven GPUs tell of links", UNKNOWN, {}, gpus=7),
    Case(
        "the sample of two links down",
        "mi300x",
        "xgmi-links",
        GPU,
        smi({LINKS: Said(printed("amd-smi", "6.4-xgmi-link-status.txt"))}),
    ),
    Case(
        "links that are not told",
        "mi300x",
        "xgmi-links",
        UNKNOWN,
        smi({LINKS: Said(amd_links().replace('"U"', '"N/A"'))}),
        "N/A instead of U",
    ),
]
NO_DRIVER = "ERROR:root:Unable to get devices, driver not initialized (amdgpu not found in modules)\n"


def refused(name: str, text: str, code: int) -> Case:
    """amd-smi that says that it cannot."""
    return Case(name, "mi300x", "ecc-amd", UNKNOWN, smi({ECC: Said(text, code)}), "nothing else is printed")


WHOLE = amd_metric("ecc")
REFUSALS: list[Case] = [
    refused("the driver is not loaded", NO_DRIVER, 255),
    refused(
        "the user may not look",
        "ERROR: User is missing the following required groups: render, video. Permission denied\n",
        255,
    ),
    refused("it found no GPU", "[]\n", 0),
    refused(
        "it crashed in its own code",
        'Traceback (most recent call last):\n  File "/opt/rocm/bin/amd-smi", line 91\nAmdSmiLibraryException: 43\n',
        1,
    ),
    refused("the document ends in the middle", WHOLE[: len(WHOLE) // 2], 0),
    Case(
        "the sample of a split GPU",
        "mi300x",
        "ecc-amd",
        GPU,
        smi({ECC: Said(printed("amd-smi", "7.0-metric-written.json"))}),
    ),
    Case("good counters and exit code 1", "mi300x", "ecc-amd", UNKNOWN, smi({ECC: Said(WHOLE, 1)}), "exit code 1"),
    Case(
        "seven of eight GPUs are listed",
        "mi300x",
        "ecc-amd",
        UNKNOWN,
        smi({ECC: Said(amd_metric("ecc", gpus=7))}),
        "GPU 7 is missing",
    ),
]


def tool(
    name: str, kind: str, check: str, expect: Expect, program: str, answers: Mapping[str, Said], changed: str = ""
) -> Case:
    """One of the long tests."""
    return Case(name, kind, check, expect, lambda node, _: node.tool(program, dict(answers)), changed)


def _rvs(name: str, check: str, expect: Expect, text: str, changed: str = "", kind: str = "mi300x") -> Case:
    return tool(name, kind, check, expect, "rvs", {"-r 4": Said(text)}, changed)


def _agfhc(name: str, expect: Expect, old: str = "", new: str = "", code: int = 0) -> Case:
    text = printed("agfhc", "1.23.2-all-lvl1-mi350x.txt")
    assert old in text
    told = f"{old.strip()} is {new.strip() or 'missing'}" if old else ""
    return tool(
        name, "mi355x", "agfhc", expect, "agfhc", {"*": Said(text.replace(old, new) if old else text, code)}, told
    )


LONG: list[Case] = [
    *(
        _rvs(f"RVS passes all ({kind})", "rvs-gst", PASSES, rvs(16 if kind == "mi250x" else 8), kind=kind)
        for kind in KINDS
    ),
    _rvs("RVS finds a GPU slow", "rvs-gst", SLOW_GPU, rvs(8, slow=3), "GPU 28854: met: FALSE"),
    _rvs("RVS finds a GPU without its power", "rvs-power", HEAT, rvs(8, hot=6), "GPU 28857: pass: FALSE"),
    _rvs("RVS finds wrong bits", "rvs-memory", GPU, rvs(8, broken=4), "mem Test 4: FAIL"),
    _rvs("RVS knows no such GPU", "rvs-gst", UNKNOWN, printed("rvs", "1.5.122-no-platform.txt")),
    _rvs("RVS lost a GPU on the way", "rvs-gst", UNKNOWN, rvs(7), "GPU 28858 has no result"),
    _rvs("RVS with one action of one GPU", "rvs-gst", UNKNOWN, printed("rvs", "0.0.60202-gst.txt")),
    _agfhc("AGFHC passes all", PASSES),
    _agfhc("AGFHC fails the memory", GPU, "PASS: hbm_bw-1-1 ", "FAIL: hbm_bw-1-1 ", 1),
    _agfhc("AGFHC fails the links", GPU, "PASS: xgmi_a2a-1-1 ", "FAIL: xgmi_a2a-1-1 ", 1),
    _agfhc("AGFHC fails a product", GPU, "PASS: gfx_fp8ri-1-1 ", "FAIL: gfx_fp8ri-1-1 ", 1),
    _agfhc("AGFHC gave a test up", UNKNOWN, "PASS: hbm_bw-1-1 ", "ABORT: hbm_bw-1-1 ", 1),
    _agfhc("AGFHC skipped a test", UNKNOWN, "5 Executed, 0 Skipped", "4 Executed, 1 Skipped"),
    _agfhc("AGFHC ended otherwise", UNKNOWN, "AGFHC_SUCCESS [0]", "AGFHC_TIMEOUT [5]", 5),
    _agfhc("AGFHC ended without its last line", UNKNOWN, "Program exiting with return code AGFHC_SUCCESS [0]\n", ""),
    *(
        tool(
            f"copies between GPUs ({kind})",
            kind,
            "transferbench",
            PASSES,
            "TransferBench",
            {"p2p": Said(peer_copies({}, PEER_COPY[kind], 16 if kind == "mi250x" else 8))},
        )
        for kind in KINDS
    ),
    *(
        tool(
            f"one slow pair of GPUs ({kind})",
            kind,
            "transferbench",
            SLOW_GPU,
            "TransferBench",
            {"p2p": Said(peer_copies({(6, 2): 20.3}, PEER_COPY[kind], 16 if kind == "mi250x" else 8))},
            "GPU 6 -> GPU 2: 20.30",
        )
        for kind in KINDS
    ),
    tool(
        "the sample of a slow pair",
        "mi355x",
        "transferbench",
        SLOW_GPU,
        "TransferBench",
        {"p2p": Said(printed("transferbench", "1.62-p2p-mi350x.txt"))},
    ),
]


def by_gpu(check: str, expect: Expect, call: tuple[str, str], good: str, bad: Said, kind: str, name: str) -> Case:
    """A tool that is called for each GPU: GPU 3 prints something else."""
    return tool(name, kind, check, expect, call[0], {call[1]: bad, "*": Said(good)}, "GPU 3 alone")


GEMM = ("rocblas-bench", "-f gemm -r d -m 8640 -n 8640 -k 8640 -i 20 --device 3")
STREAM = ("hip-stream", "--device 3")
EACH: list[Case] = [
    *(
        tool(
            f"products in double precision ({kind})",
            kind,
            "rocblas-bench",
            PASSES,
            "rocblas-bench",
            {"*": Said(gemm(GEMM_GIGAFLOPS[kind]))},
        )
        for kind in KINDS
    ),
    *(
        by_gpu(
            "rocblas-bench",
            SLOW_GPU,
            GEMM,
            gemm(GEMM_GIGAFLOPS[kind]),
            Said(gemm(GEMM_GIGAFLOPS[kind] / 3)),
            kind,
            f"one GPU computes at a third ({kind})",
        )
        for kind in KINDS
    ),
    by_gpu(
        "rocblas-bench",
        UNKNOWN,
        GEMM,
        gemm(81_300.0),
        Said("", 134),
        "mi300x",
        "one GPU's product crashes",
    ),
    tool("memory of all GPUs", "mi300x", "babelstream", PASSES, "hip-stream", {"*": Said(stream(1.0))}),
    by_gpu(
        "babelstream",
        SLOW_GPU,
        STREAM,
        stream(1.0),
        Said(stream(0.8)),
        "mi300x",
        "memory of one GPU at 80 %",
    ),
    by_gpu(
        "babelstream",
        SLOW_GPU,
        STREAM,
        stream(1.4),
        Said(stream(1.0)),
        "mi355x",
        "memory of an MI355X as slow as an MI300X's",
    ),
    by_gpu(
        "babelstream",
        UNKNOWN,
        STREAM,
        stream(1.0),
        Said(stream(1.0)[:520]),
        "mi300x",
        "memory of one GPU: broken off",
    ),
]
CASES: tuple[Case, ...] = (*MEMORY, *PARTS, *REFUSALS, *LONG, *EACH)
