"""Cases of NVIDIA's tools: nvidia-smi of three drivers, its links, DCGM, nvbandwidth."""

from __future__ import annotations

from dataclasses import dataclass

from profiles.hardware import HardwareProfile
from tests.support.cases.rows import values
from tests.support.cases.tool_samples import printed
from tests.support.faults.cases import EXPECTED, GPU, UNKNOWN, UNKNOWN_WARNING, Case, Expect, Make, on_each
from tests.support.faults.node import Said, VirtualNode
from tests.support.faults.texts import Changes, bandwidths, dcgm, nvlink, smi_xml
from tests.support.faults.trees import nvidia_tools


def smi(answers: dict[str, Said]) -> Make:
    """A node whose nvidia-smi answers so."""
    return lambda node, hardware: nvidia_tools(node, hardware, answers)


def _xml(hardware: str, changes: Changes | None = None, gpus: int | None = None, code: int = 0) -> Make:
    def make(node: VirtualNode, kind: HardwareProfile) -> None:
        count = kind.gpus_per_node if gpus is None else gpus
        nvidia_tools(node, kind, {"-q -x": Said(smi_xml(hardware, count, changes), code)})

    return make


def field(name: str, healthy: str, bad: str) -> tuple[str, str]:
    """One field of the document with another value."""
    return f"<{name}>{healthy}<", f"<{name}>{bad}<"


@dataclass(frozen=True)
class Query:
    """`nvidia-smi -q -x` with fields of one GPU changed: name, healthy and bad value."""

    check: str
    expect: str
    kinds: tuple[str, ...] = ("h100",)
    fields: tuple[tuple[str, str, str], ...] = ()

    def cases(self, name: str) -> list[Case]:
        """One for each kind."""
        changes = [field(*one) for one in self.fields]
        told = "; ".join(f"{old} is {new}" for old, new in changes)
        return [
            case
            for kind in self.kinds
            for case in on_each(name, (kind,), self.check, self.expect, _xml(kind, {3: changes}), told)
        ]


@dataclass(frozen=True)
class Refusal:
    """nvidia-smi that says that it cannot."""

    text: str
    code: int

    def case(self, name: str) -> Case:
        """On an H100."""
        answer = {"-q -x": Said(self.text, self.code)}
        return Case(name, "h100", "ecc-nvidia", UNKNOWN, smi(answer), "nothing else is printed")


def smi_links(kind: str, what: str, changes: Changes, gpus: int | None = None) -> Make:
    """A node whose links say so."""

    def make(node: VirtualNode, hardware: HardwareProfile) -> None:
        count = hardware.gpus_per_node if gpus is None else gpus
        nvidia_tools(node, hardware, {f"nvlink {what}": Said(nvlink(kind, what, changes, count))})

    return make


@dataclass(frozen=True)
class Links:
    """`nvidia-smi nvlink` with one line of a GPU changed."""

    check: str
    expect: str
    kinds: tuple[str, ...] = ("h100",)
    change: tuple[tuple[str, str], ...] = ()

    def cases(self, name: str) -> list[Case]:
        """One for each kind."""
        what = "-s" if self.check == "nvlink-state" else "-e"
        told = "; ".join(f"{old.strip()} is {new.strip() or 'missing'}" for old, new in self.change)
        return [
            case
            for kind in self.kinds
            for make in [smi_links(kind, what, {5 if kind != "gb200" else 2: self.change})]
            for case in on_each(name, (kind,), self.check, self.expect, make, told)
        ]


@dataclass(frozen=True)
class Diag:
    """`dcgmi diag`: a document with one test of GPU 3 that ended otherwise, a sample, or another text."""

    expect: str
    changed: str = ""
    code: int = 0
    release: int = 4
    test: str = ""
    outcome: str = ""
    severity: int = 0
    """DCGM 4's `error_severity`: 2 isolates the GPU, 4 asks for triage."""
    why: str = ""
    sample: str = ""
    text: str = ""

    def case(self, name: str) -> Case:
        """On an H100."""
        tests = {self.test: (self.outcome, self.severity, self.why)} if self.test else None
        text = self.text or (printed("dcgm-diag", self.sample) if self.sample else dcgm(tests, old=self.release == 3))
        answer = {"diag -r 3 -j": Said(text, self.code)}
        make: Make = lambda node, _: node.tool("dcgmi", answer)  # noqa: E731 - as the others have it
        return Case(name, "h100", "dcgm-diag", EXPECTED[self.expect], make, self.changed)


@dataclass(frozen=True)
class Copies:
    """`nvbandwidth`: a figure a GPU."""

    kind: str
    expect: str
    figures: tuple[float, ...]
    changed: str = ""

    def case(self, name: str) -> Case:
        """On that kind."""
        answer = {"-j -t host_to_device_memcpy_ce": Said(bandwidths(self.figures))}
        return _copied(name, self.kind, EXPECTED[self.expect], answer, self.changed)


def _copied(name: str, kind: str, expect: Expect, answer: dict[str, Said], changed: str) -> Case:
    make: Make = lambda node, _: node.tool("nvbandwidth", answer)  # noqa: E731 - as the others have it
    return Case(name, kind, "nvbandwidth-host-to-gpu", expect, make, changed)


ONE_ERROR = {2: (field("dram_uncorrectable", "0", "1"),)}
CUT = smi_xml("h100", 8, {0: (field("dram_uncorrectable", "0", "9"),)})[:30_000]
PCIE_CARD = {"nvlink -s": Said(printed("nvidia-smi", "545-nvlink-status-h100-pcie.txt"))}
ONE_GPU = {"nvlink -e": Said(printed("nvidia-smi", "550-nvlink-errors.txt"))}


def _h100(name: str, check: str, expect: Expect, make: Make, changed: str = "") -> Case:
    return Case(name, "h100", check, expect, make, changed)


OTHERS = (
    _h100("seven of eight GPUs are listed", "ecc-nvidia", UNKNOWN, _xml("h100", gpus=7), "seven GPUs are attached"),
    _h100("a good document and exit code 14", "ecc-nvidia", UNKNOWN, _xml("h100", code=14), "the InfoROM is corrupt"),
    _h100("errors count whatever the exit code", "ecc-nvidia", GPU, _xml("h100", ONE_ERROR, code=14),
          "one error, exit code 14"),
    _h100("errors of a list that broke off count", "ecc-nvidia", GPU, smi({"-q -x": Said(CUT)}),
          "nine errors, cut in the middle"),
    _h100("seven GPUs tell of links", "nvlink-state", UNKNOWN, smi_links("h100", "-s", {}, 7), "GPU 7 is missing"),
    _h100("links of a PCIe card", "nvlink-state", GPU, smi(PCIE_CARD)),
    _h100("the sample of one GPU's counters", "nvlink-errors", UNKNOWN_WARNING, smi(ONE_GPU), "one GPU of eight"),
    _copied("copies were waived", "h100", UNKNOWN, {"*": Said(bandwidths([], "Waived"))}, "status: Waived"),
)  # fmt: skip
CASES: tuple[Case, ...] = (
    *(case for name, query in values("faults/nvidia", "nvidia_smi", Query).items() for case in query.cases(name)),
    *(refusal.case(name) for name, refusal in values("faults/nvidia", "nvidia_smi_refuses", Refusal).items()),
    *(case for name, links in values("faults/nvidia", "nvlink", Links).items() for case in links.cases(name)),
    *(diag.case(name) for name, diag in values("faults/nvidia", "dcgm", Diag).items()),
    *(copies.case(name) for name, copies in values("faults/nvidia", "nvbandwidth", Copies).items()),
    *OTHERS,
)
