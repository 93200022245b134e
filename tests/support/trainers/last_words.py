"""A trainer whose rank 1 ends in the first attempt with whatever a story wants it to have said."""

from __future__ import annotations

import json
from typing import Any

from tests.support.harness.stages import Stage
from workflows import labels

FABRIC = "NCCL WARN NET/IB : Got completion from peer 10.0.0.9<54862> with status=12 opcode=0 len=0 vendor err 129"
DRIVER = "RuntimeError: HIP error: unspecified launch failure"
XID = "NVRM: Xid (PCI:0000:44:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
PROGRAM = """
import os, sys, time
if os.environ["RANK"] == "1" and os.environ["PRIMUS_ATTEMPT"] == "1":
    while not os.path.exists(sys.argv[1]):
        time.sleep(0.01)
    sys.exit(open(sys.argv[1]).read())
os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
"""
"""Rank 1 of the first attempt ends with the text of a file, as soon as it is there; all others train."""


def open_run(scene: Stage) -> Stage:
    """Write such a run down; the folder of its nodes' kernel logs is there."""
    words = ["python3", "-c", PROGRAM, "{run_dir}/last-words", "$(PRIMUS_FOLDER_PROGRAMS)/programs.pyz"]
    words += ["demo-train", "--steps", "{steps}", "--seed", "{seed}", "--checkpoint-dir", "{checkpoint_dir}"]
    # A second of training: a run that is over before its coordinator was asked once tells nothing of its steps.
    words += ["--save-every", "{interval_steps}", "--step-seconds", "0.05"]
    scene.open(overrides=(f"roles.trainer.command={json.dumps(words)}", "steps=20"))
    (scene.folder / "kernel").mkdir(parents=True)
    return scene


def begin(scene: Stage) -> str:
    """Start such a run; the node on which rank 1 waits for its last words."""
    open_run(scene).drive()
    scene.until(lambda story: story.attempt is not None and story.attempt.running_at is not None, "all pods running")
    [pod] = scene.cluster.list("Pod", {labels.ROLE: "trainer", "batch.kubernetes.io/job-completion-index": "1"})
    return str(pod["spec"]["nodeName"])


def say(scene: Stage, text: str) -> Stage:
    """Rank 1 says `text` and ends."""
    temporary = scene.folder / "last-words.tmp"
    temporary.write_text(text)
    temporary.replace(scene.folder / "last-words")
    return scene


def examinations(scene: Stage, kind: str = "Workflow") -> list[dict[str, Any]]:
    """The examinations that are there, as workflows or as pods."""
    return scene.cluster.list(kind, {labels.PIPELINE: "examination"})
