"""A world without processes for the workflow interpreter: pods that end as a table says, time that only tests move."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tasks.embedded.engine.argo.state import PodFacts, ResourceFacts, Step
from tasks.embedded.engine.argo.validate import validate_workflow
from tasks.embedded.engine.argo.workflow import advance

Outcome = PodFacts | int
"""How a pod ends: its exit code, or the whole facts."""
ENDED = ("Succeeded", "Failed", "Error")


def workflow(entrypoint: str = "main", name: str = "wf", **spec: Any) -> dict[str, Any]:
    """A manifest of a workflow."""
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": name, "namespace": "default", "uid": "u-1"},
        "spec": {"entrypoint": entrypoint, **spec},
    }


def container(name: str, *args: str, inputs: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    """A container template."""
    template: dict[str, Any] = {
        "name": name,
        "container": {"image": "busybox", "command": ["echo"], "args": list(args)},
        **more,
    }
    if inputs:
        template["inputs"] = {"parameters": [{"name": item} for item in inputs]}
    return template


def arguments(**values: Any) -> dict[str, Any]:
    """`arguments` of a step, task or workflow."""
    return {"parameters": [{"name": name, "value": value} for name, value in values.items()]}


NODE_NAME = "workflows.argoproj.io/node-name"


def node_of(pod: dict[str, Any]) -> str:
    """The full name of the node that a pod runs."""
    return pod["metadata"]["annotations"][NODE_NAME]


def ending(**exits: int) -> Any:
    """Exit codes by the last part of the node's name; everything else ends well."""
    return lambda pod: next((code for name, code in exits.items() if node_of(pod).endswith(f".{name}")), 0)


def task(name: str, *dependencies: str, template: str = "t", **more: Any) -> dict[str, Any]:
    """A step or task."""
    found: dict[str, Any] = {"name": name, "template": template, **more}
    return {**found, "dependencies": list(dependencies)} if dependencies else found


def dag(*tasks: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A DAG template called main."""
    return {"name": "main", "dag": {"tasks": list(tasks), **more}}


def steps(*groups: list[dict[str, Any]], name: str = "main", **more: Any) -> dict[str, Any]:
    """A steps template."""
    return {"name": name, "steps": list(groups), **more}


def with_value(**values: str) -> Any:
    """Every pod ends well and leaves these outputs."""
    return lambda pod: PodFacts("Succeeded", exit_code=0, outputs=values, node="n0")


def a_workflow() -> dict[str, Any]:
    """A workflow with one of everything."""
    step: dict[str, Any] = {"name": "a", "template": "work", "arguments": arguments(m="1")}
    return workflow(
        templates=[
            {
                "name": "main",
                "steps": [[step], [{"name": "b", "template": "graph", "when": "{{steps.a.status}} == x"}]],
            },
            {
                "name": "graph",
                "dag": {
                    "tasks": [
                        {"name": "p", "template": "apply"},
                        {
                            "name": "q",
                            "template": "work",
                            "depends": "p",
                            "arguments": arguments(m="{{item}}"),
                            "withItems": [1],
                        },
                        {"name": "r", "template": "pause", "depends": "q"},
                    ]
                },
            },
            {
                **container("work", "{{inputs.parameters.m}}", inputs=("m",)),
                "outputs": {"parameters": [{"name": "o", "valueFrom": {"path": "/o", "default": ""}}]},
                "retryStrategy": {"limit": 1, "backoff": {"duration": "1s", "factor": 2}, "expression": "true"},
                "volumes": [{"name": "v", "emptyDir": {}}],
                "metadata": {"labels": {"l": "x"}},
            },
            {"name": "apply", "resource": {"action": "apply", "manifest": '{"apiVersion": "v1", "kind": "ConfigMap"}'}},
            {"name": "pause", "suspend": {"duration": "1"}},
            {"name": "code", "script": {"image": "i", "command": ["sh"], "source": "true"}},
        ],
        onExit="pause",
        arguments=arguments(p="1"),
        tolerations=[{"key": "k", "operator": "Exists"}],
        volumes=[{"name": "w", "hostPath": {"path": "/x"}}],
    )


@dataclass
class World:
    """Runs one workflow to its end, one pod event at a time."""

    manifest: dict[str, Any]
    outcome: Callable[[dict[str, Any]], Outcome] = lambda pod: 0
    now: float = 1_000_000.0
    pods: dict[str, PodFacts] = field(default_factory=dict)
    manifests: dict[str, dict[str, Any]] = field(default_factory=dict)
    resources: dict[str, ResourceFacts] = field(default_factory=dict)
    applied: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    most_at_once: int = 0
    wake_at: float | None = None
    strict: bool = True

    def __post_init__(self) -> None:
        validate_workflow(self.manifest)

    def step(self) -> Step:
        """Advance once, do what the step says, and check that doing nothing changes nothing."""
        found = advance(self.manifest, self.pods, self.resources, self.now)
        self.manifest["status"] = json.loads(json.dumps(found.status))
        for pod in found.create_pods:
            name = pod["metadata"]["name"]
            assert name not in self.manifests, f"pod {name} was created twice"
            assert len(name) <= 63
            self.manifests[name] = pod
            self.pods[name] = PodFacts("Pending")
        for node, action, manifest in found.apply_resources:
            assert node not in self.resources
            self.applied.append((action, manifest))
            self.resources[node] = ResourceFacts("Pending", object=manifest)
        for name in found.delete_pods:
            self.deleted.append(name)
            self.pods[name] = PodFacts("Failed", exit_code=143, reason="Error", finished_at=self.now)
        self.most_at_once = max(self.most_at_once, len(self.living()))
        self.wake_at = found.wake_at
        if self.strict:
            again = advance(copy.deepcopy(self.manifest), self.pods, self.resources, self.now)
            if not found.apply_resources and not found.create_pods and not found.delete_pods:
                assert again.status == found.status
            assert not again.create_pods
            assert not again.apply_resources
        return found

    def living(self) -> list[str]:
        """Pods that are not done."""
        return [name for name, facts in self.pods.items() if facts.phase in ("Pending", "Running")]

    def settle_resources(self) -> bool:
        """Let every applied manifest arrive; whether there was one on its way."""
        waiting = [node for node, facts in self.resources.items() if facts.phase == "Pending"]
        for node in waiting:
            self.resources[node] = ResourceFacts("Succeeded", object=self.resources[node].object)
        return bool(waiting)

    def end(self, name: str, outcome: Outcome) -> None:
        """Let a pod end."""
        if isinstance(outcome, PodFacts):
            self.pods[name] = outcome
            return
        self.pods[name] = PodFacts(
            "Failed" if outcome else "Succeeded",
            exit_code=outcome,
            reason="Error" if outcome else "Completed",
            node="n0",
            started_at=self.now,
            finished_at=self.now,
        )

    def run(self, limit: int = 3000) -> dict[str, Any]:
        """Advance until the workflow ends: pods run and end in the order of their creation, then time moves on."""
        for _ in range(limit):
            found = self.step()
            if self.phase in ENDED:
                return self.manifest["status"]
            living = self.living()
            if living:
                self.now += 1
                self.end(living[0], self.outcome(self.manifests[living[0]]))
            elif self.settle_resources() or found.delete_pods:
                continue
            elif self.wake_at is not None:
                self.now = max(self.now, self.wake_at)
            else:
                raise AssertionError(f"nothing can happen any more: {self.phases()}")
        raise AssertionError(f"no end after {limit} steps: {self.phases()}")

    @property
    def phase(self) -> str:
        return self.manifest["status"]["phase"]

    @property
    def message(self) -> str:
        return self.manifest["status"].get("message", "")

    @property
    def nodes(self) -> Mapping[str, dict[str, Any]]:
        """Nodes by their full name."""
        return {node["name"]: node for node in self.manifest["status"]["nodes"].values()}

    def phases(self) -> dict[str, str]:
        """Phases by the nodes' full names."""
        return {name: node["phase"] for name, node in self.nodes.items()}

    def args(self) -> dict[str, list[str]]:
        """The arguments of every created pod's main container by its node's name."""
        return {
            pod["metadata"]["annotations"]["workflows.argoproj.io/node-name"]: pod["spec"]["containers"][0].get(
                "args", []
            )
            for pod in self.manifests.values()
        }
