"""Every command of `primus`: in which section of the help it stands, its summary there, and the module that has it.

A new command is a function in its module, registered with `@app.command()`, and a line here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Command:
    """A line of the help."""

    module: str
    summary: str
    """At most 60 characters: the help of a narrow terminal shows it whole."""
    acts: bool = False
    """Whether it does more than to look."""


def _of(module: str, summary: str) -> Command:
    return Command(f"deployments.cli.{module}", summary)


def _act(module: str, summary: str) -> Command:
    return Command(f"deployments.cli.{module}", summary, acts=True)


Section = Mapping[str, Command]
GROUPS: Mapping[str, Mapping[str, Section]] = {
    "primus": {
        "Train": {
            "train": _act("train", "Submit a run and watch it; the same --name continues it."),
            "run": _act("profiles", "Train with a command, without a profile."),
            "status": _of("train", "Where a run stands, and what happened to it."),
            "runs": _of("train", "Every run, the newest last."),
            "logs": _of("logs", "What the processes of a run printed, also of dead nodes."),
            "exec": _act("logs", "Run a command beside a living rank."),
            "stop": _act("train", "Save and end a run."),
            "resume": _act("train", "Continue a stopped or failed run after your fix."),
            "checkpoints": _of("checkpoints", "Checkpoints, their proofs, and which one a resume takes."),
            "report": _of("report", "Where every GPU-second of a run or a fleet went."),
            "demo": _act("demo", "Train here, lose a node, resume, compare the weights."),
            "drill": _act("drill", "Cause one fault in a living run and measure the recovery."),
        },
        "Nodes": {
            "preflight": _act("preflight", "Test nodes against limits, peers and their history."),
            "nodes": _of("nodes", "Nodes and verdicts; cordon one, or release it."),
            "verdict": _of("nodes", "What is known of one node, with the evidence."),
            "fleet": _of("fleet", "Every node on one screen."),
            "health": Command("", "The health daemon of a node, as IBM Autopilot's."),
        },
        "Observe": {
            "why": _of("why", "Why a run waits, and what blocks it."),
            "queue": _of("why", "What waits and what runs on a cluster, and its quotas."),
            "incidents": _of("incidents", "What happened, who is to blame, what was done about it."),
            "diagnose": _of("diagnose", "What any log files say: class, culprit, evidence, advice."),
            "monitor": _act("monitor", "Watch a cluster in the foreground, or once."),
            "ledger": _of("approvals", "The raw history, oldest first."),
        },
        "Decide": {
            "approvals": _of("approvals", "Questions that wait for a person."),
            "approve": _act("approvals", "Answer yes: the decision is carried out."),
            "deny": _act("approvals", "Answer no: nothing is done, the run stays stopped."),
            "pause": _act("approvals", "Halt every automatic action; training continues."),
            "unpause": _act("approvals", "Allow automatic actions again."),
            "failover": _act("incidents", "Diagnose and decide a run that no driver looks after."),
        },
        "Set up": {
            "bootstrap": Command("", "Make a cluster of hosts, prove it, keep it so."),
            "up": _act("up", "Start server, flow runner and monitor in the background."),
            "down": _act("up", "Stop what `primus up` started; training continues."),
            "config": _of("up", "What holds where a command says nothing, and who says so."),
            "init": _of("profiles", "Write a run profile for your program, with comments."),
            "gc": _act("checkpoints", "Remove what no run needs; --dry-run only says it."),
            "doctor": _of("why", "Whether a cluster is fit for runs, and what to mend."),
            "clusters": Command("", "Cluster profiles; make one from a living cluster."),
            "profiles": Command("", "Shipped profiles, and whether yours is right."),
            "render": Command("", "Print the manifests that would be sent."),
            "lint": _of("lint", "What is wrong with manifests, before anybody runs them."),
            "workflow": Command("", "Run any Argo Workflow, here or on a cluster."),
            "automations": _act("automations", "Whom the Prefect server notifies of what."),
            "completion": _of("completion", "A script that lets bash, zsh or fish complete words."),
        },
    },
    "profiles": {
        "Commands": {
            "list": _of("profiles", "The shipped profiles, and which were run for real."),
            "show": _of("profiles", "The whole value of a profile."),
            "validate": _of("profiles", "Whether a run profile is right and fits the cluster."),
        }
    },
    "clusters": {
        "Commands": {
            "list": _of("clusters", "Shipped cluster profiles and those of a folder."),
            "show": _of("clusters", "The whole value of a cluster profile."),
            "import": _of("clusters", "Make a profile from a living cluster."),
        }
    },
    "render": {
        "Commands": {
            "train": _of("profiles", "The manifests of a run's first attempt."),
            "preflight": _of("preflight", "The workflows of a test of nodes."),
            "monitor": _of("monitor", "The workflow of one sweep over nodes."),
            "health": _of("health", "The health service: daemons, rights, alerts."),
            "workspace": _of("profiles", "Namespace, rights, queue and quotas of a workspace."),
            "bootstrap": _of("hosts.bootstrap", "The plan of a bootstrap, and its components' workflow."),
        }
    },
    "workflow": {
        "Commands": {
            "run": _act("workflow", "Submit a workflow, watch it, show its tree."),
            "list": _of("workflow", "The workflows of a cluster, the newest last."),
            "show": _of("workflow", "Its tree, why it waits, what failed steps printed."),
            "logs": _of("workflow", "What its steps printed."),
            "stop": _act("workflow", "End it; exit handlers still run."),
            "delete": _act("workflow", "Delete it with its pods, logs and artifacts."),
        }
    },
    "bootstrap": {
        "Commands": {
            "CLUSTER": _act("hosts.bootstrap", "Make, join, leave, upgrade, compare, remove: --help."),
            "import": _of("hosts.bootstrap", "A cluster profile from an inventory of Kubespray."),
            "mirror": _of("hosts.bootstrap", "What an air-gapped mirror must have; fill and check it."),
        }
    },
    "health": {
        "Commands": {
            "serve": _act("health", "Serve this node's health in the foreground."),
        }
    },
}
"""By group, then by section, the most used first. A command without a module is a group of its own."""
