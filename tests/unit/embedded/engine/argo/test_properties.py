"""Whatever pods do and whenever the keeper dies: a workflow ends, and no pod is made twice."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.embedded.engine.argo.state import PodFacts, ResourceFacts
from tasks.embedded.engine.argo.validate import validate_workflow
from tasks.embedded.engine.argo.workflow import advance
from tests.support.fakes.workflow_simulator import ENDED, arguments, container, workflow

PHASES_DONE = ("Succeeded", "Failed", "Error", "Skipped", "Omitted")
LEAVES = ("plain", "tried", "pause", "apply")
WHENS = ("", "1 == 1", "1 == 2", "a ==", "{{workflow.parameters.p}} == x")


def draw_call(draw: st.DrawFn, name: str, templates: list[str]) -> dict[str, Any]:
    # The templates made last come first: so examples nest, also where Hypothesis draws its smallest value.
    call: dict[str, Any] = {"name": name, "template": draw(st.sampled_from(templates[::-1]))}
    for field, values in (
        ("when", st.sampled_from(WHENS[:3] + WHENS[4:])),
        ("withItems", st.lists(st.sampled_from(["a", 1, {"k": "v"}]), min_size=1, max_size=3)),
        ("continueOn", st.fixed_dictionaries({"failed": st.booleans(), "error": st.booleans()})),
        ("onExit", st.just("bye")),
    ):
        if draw(st.integers(0, 5)) == 5:
            call[field] = draw(values)
    if "withItems" not in call and draw(st.integers(0, 5)) == 5:
        expressions = ["true", "false", "workflow.status == 'Running'"]
        call["hooks"] = {"beside": {"template": "bye", "expression": draw(st.sampled_from(expressions))}}
    return call


@st.composite
def inner_templates(draw: st.DrawFn, name: str, templates: list[str]) -> dict[str, Any]:
    """A DAG or steps template over templates that are made already."""
    template: dict[str, Any] = {"name": name}
    count = draw(st.integers(2, 4))
    names = [f"{name}{index}" for index in range(count)]
    calls = [draw_call(draw, call, templates) for call in names]
    if draw(st.booleans()):
        by_depends = draw(st.booleans())  # all tasks of a DAG say it in the same way
        for index, call in enumerate(calls):
            if by_depends:
                call.pop("continueOn", None)
            before = draw(st.lists(st.sampled_from(names[:index]), unique=True, max_size=2)) if index else []
            if before and not by_depends:
                call["dependencies"] = before
            elif before:
                results = st.sampled_from(["", ".Succeeded", ".Failed", ".Skipped", ".Omitted", ".Errored"])
                call["depends"] = draw(st.sampled_from([" && ", " || "])).join(n + draw(results) for n in before)
        template["dag"] = {"tasks": calls, "failFast": draw(st.booleans())}
    else:
        cut = draw(st.integers(0, count - 1))
        template["steps"] = [group for group in (calls[:cut], calls[cut:]) if group]
    if draw(st.integers(0, 3)) == 0:
        template["parallelism"] = draw(st.integers(1, 2))
    if draw(st.integers(0, 4)) == 0:
        template["retryStrategy"] = {"limit": draw(st.integers(0, 1))}
    return template


@st.composite
def workflows(draw: st.DrawFn) -> dict[str, Any]:
    """A workflow of up to three levels."""
    retry = {"limit": draw(st.integers(0, 2)), "retryPolicy": draw(st.sampled_from(["Always", "OnFailure", "OnError"]))}
    if draw(st.booleans()):
        retry["backoff"] = {"duration": "3", "factor": 2}
    templates: list[dict[str, Any]] = [
        container("plain"),
        container("tried", "{{retries}}", retryStrategy=retry),
        container("bye"),
        {"name": "pause", "suspend": {"duration": "2"}},
        {"name": "apply", "resource": {"action": "apply", "manifest": '{"apiVersion": "v1", "kind": "ConfigMap"}'}},
    ]
    known = list(LEAVES)
    for name in ("low", "mid", "main"):
        templates.append(draw(inner_templates(name, known)))
        known = [*LEAVES, name]
    spec: dict[str, Any] = {"arguments": arguments(p="x")}
    if draw(st.booleans()):
        spec["parallelism"] = draw(st.integers(1, 3))
    if draw(st.integers(0, 3)) == 0:
        spec["activeDeadlineSeconds"] = draw(st.integers(1, 20))
    if draw(st.booleans()):
        spec["onExit"] = draw(st.sampled_from(["bye", "tried"]))
    return workflow(templates=templates, **spec)


class Chaos:
    """A world that does whatever Hypothesis says, with a keeper that forgets."""

    def __init__(self, manifest: dict[str, Any], data: st.DataObject) -> None:
        validate_workflow(manifest)
        self.manifest = manifest
        self.data = data
        self.now = 1_000_000.0
        self.pods: dict[str, PodFacts] = {}
        self.resources: dict[str, ResourceFacts] = {}
        self.made: dict[str, dict[str, Any]] = {}

    def choose(self, *options: str) -> str:
        return self.data.draw(st.sampled_from(options))

    def step(self, killed: str = "") -> float | None:
        """Advance; the keeper may be killed "after-pods", before it wrote the status, or "after-status" but before."""
        found = advance(self.manifest, self.pods, self.resources, self.now)
        assert advance(self.manifest, self.pods, self.resources, self.now) == found, "the same facts, the same step"
        for pod in found.create_pods:
            assert not self.stopped(pod), "nothing starts after a stop"
        if killed != "after-pods":
            self.manifest["status"] = json.loads(json.dumps(found.status))
        if killed == "after-status":
            return self.now
        for pod in found.create_pods:
            name = pod["metadata"]["name"]
            assert name not in self.made, f"{name} was made twice"
            self.made[name] = pod
            self.pods[name] = PodFacts("Pending")
        for node, _, manifest in found.apply_resources:
            self.resources[node] = ResourceFacts("Pending", object=manifest)
        for name in found.delete_pods:
            assert self.pods[name].phase in ("Pending", "Running")
            self.pods[name] = PodFacts("Failed", exit_code=143, finished_at=self.now)
        return found.wake_at if killed != "after-pods" else self.now

    def stopped(self, pod: dict[str, Any]) -> bool:
        """Whether this pod must not start any more."""
        how = self.manifest["spec"].get("shutdown")
        return how == "Terminate" or (
            how == "Stop" and "workflows.argoproj.io/on-exit" not in pod["metadata"]["labels"]
        )

    def happen(self, wake_at: float | None) -> None:
        """Something happens: a pod moves, a manifest is applied, or time passes."""
        living = [name for name, facts in self.pods.items() if facts.phase in ("Pending", "Running")]
        waiting = [node for node, facts in self.resources.items() if facts.phase == "Pending"]
        if waiting:
            phase = self.choose("Succeeded", "Succeeded", "Failed")
            self.resources[waiting[0]] = ResourceFacts(phase, "said no" if phase == "Failed" else "")
        elif living:
            self.now += 1
            name = self.data.draw(st.sampled_from(living))
            match self.choose("run", "good", "good", "bad", "lost"):
                case "run":
                    self.pods[name] = PodFacts("Running", node="n1")
                case "good":
                    self.pods[name] = PodFacts("Succeeded", exit_code=0, finished_at=self.now)
                case "bad":
                    self.pods[name] = PodFacts("Failed", exit_code=2, reason="Error", finished_at=self.now)
                case _:
                    self.pods[name] = PodFacts("Failed", reason="NodeLost", finished_at=self.now)
        else:
            assert wake_at is not None, f"nothing can happen any more: {json.dumps(self.manifest)}"
            self.now = max(self.now, wake_at)

    def live(self) -> int:
        """Until the workflow ends; how many steps it took."""
        for count in range(2000):
            wake_at = self.step(self.choose("", "", "", "after-pods", "after-status"))
            status = self.manifest.get("status", {})
            if status.get("phase") in ENDED:
                return count
            if count == 3:
                self.manifest["spec"]["shutdown"] = self.choose("", "", "Stop", "Terminate")
            self.happen(wake_at)
        raise AssertionError(f"no end: {json.dumps(self.manifest)}")


@settings(max_examples=40, deadline=None)
@given(workflows(), st.data())
def test_every_workflow_ends_whatever_happens(manifest: dict[str, Any], data: st.DataObject) -> None:
    chaos = Chaos(copy.deepcopy(manifest), data)
    chaos.live()
    status = chaos.manifest["status"]
    nodes = status["nodes"]
    assert all(node["phase"] in PHASES_DONE for node in nodes.values())
    assert all(child in nodes for node in nodes.values() for child in node.get("children", ()))
    assert all(node.get("boundaryID", key) in nodes for key, node in nodes.items())
    assert all(node["finishedAt"] for node in nodes.values())
    assert len({node["name"] for node in nodes.values()}) == len(nodes)
    chaos.step()
    assert not [name for name, facts in chaos.pods.items() if facts.phase in ("Pending", "Running")]
    assert chaos.manifest["status"] == status, "what is finished stays"


@settings(max_examples=40, deadline=None)
@given(workflows(), st.data())
def test_parallelism_is_never_exceeded(manifest: dict[str, Any], data: st.DataObject) -> None:
    chaos = Chaos(copy.deepcopy(manifest), data)
    limit = manifest["spec"].get("parallelism")
    for _ in range(40):
        wake_at = chaos.step()
        if chaos.manifest["status"]["phase"] in ENDED:
            return
        nodes = chaos.manifest["status"]["nodes"].values()
        active = [node for node in nodes if node["type"] == "Pod" and node["phase"] in ("Pending", "Running")]
        assert limit is None or len(active) <= limit
        chaos.happen(wake_at)


@settings(max_examples=40, deadline=None)
@given(workflows(), st.data())
def test_what_is_done_is_never_undone(manifest: dict[str, Any], data: st.DataObject) -> None:
    chaos = Chaos(copy.deepcopy(manifest), data)
    done: dict[str, Any] = {}
    for _ in range(40):
        wake_at = chaos.step()
        nodes = chaos.manifest["status"]["nodes"]
        for key, phase in done.items():
            assert nodes[key]["phase"] == phase
        done |= {key: node["phase"] for key, node in nodes.items() if node["phase"] in PHASES_DONE}
        if chaos.manifest["status"]["phase"] in ENDED:
            return
        chaos.happen(wake_at)
