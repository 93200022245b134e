"""Which version of what is built: read from the go.mod files, so that each number stands in one place."""

from __future__ import annotations

import functools
import re

from tests.bed.layout import MODULES

KUBERNETES = "k8s.io/kubernetes"
ETCD = "go.etcd.io/etcd/server/v3"
ARGO = "github.com/argoproj/argo-workflows/v4"
JOBSET = "sigs.k8s.io/jobset"
KUEUE = "sigs.k8s.io/kueue"
KWOK = "sigs.k8s.io/kwok"
COREDNS = "github.com/coredns/coredns"
TRAINER = "github.com/kubeflow/trainer/v2"

FOLDERS = {
    KUBERNETES: "kubernetes",
    ETCD: "kubernetes",
    ARGO: "argo",
    JOBSET: "controllers",
    KUEUE: "controllers",
    KWOK: "controllers",
    COREDNS: "dns",
    TRAINER: "trainer",
}


@functools.cache
def version(module: str) -> str:
    """The version that our go.mod requires, as in `v1.36.3`; LookupError where it names none."""
    text = (MODULES / FOLDERS[module] / "go.mod").read_text(encoding="utf-8")
    found = re.search(rf"^(?:require)?\s*{re.escape(module)} (v\S+)", text, re.MULTILINE)
    if found is None:
        raise LookupError(f"{FOLDERS[module]}/go.mod does not require {module}")
    return found.group(1)


@functools.cache
def go_needed() -> tuple[int, ...]:
    """The newest Go that a go.mod asks for, as in (1, 26, 5)."""
    asked = (
        re.search(r"^go (\S+)", path.read_text(encoding="utf-8"), re.MULTILINE) for path in MODULES.glob("*/go.mod")
    )
    return max(tuple(int(part) for part in found.group(1).split(".")) for found in asked if found)
