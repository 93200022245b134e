"""The contract of the seam: what everything above `tasks.cluster.Cluster` relies on, whichever cluster is behind it.

`tests/bed/test_seam_contract.py` holds the same statements against a real control plane.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from profiles.errors import Conflict, Foreign, NotFound, Refused, Unavailable
from tasks.cluster import each
from tests.support.cases.rows import rows
from tests.support.simulated.seam_bench import (
    BENCHES,
    MINE,
    PORT,
    Bench,
    Script,
    conditions_of,
    gang,
    in_phase,
    lines_of,
    names_of,
    note,
    pod,
    pods_of,
    version_of,
)
from workflows import labels

RUNS = Script(lines=("ready",), exit_code=None)
LARGE = 501
"""One more than a page of the API server holds."""


@pytest.fixture(params=BENCHES)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    with BENCHES[request.param](tmp_path) as made:
        yield made


def test_a_cluster_says_who_it_is(bench: Bench) -> None:
    assert bench.cluster.name
    assert bench.cluster.versions()["engine"]


# Apply.


def test_apply_creates_and_returns_what_is_stored(bench: Bench) -> None:
    stored = bench.cluster.apply(note("a", "first"))
    assert stored == bench.cluster.get("ConfigMap", "a")
    assert (stored["kind"], stored["data"], stored["metadata"]["labels"]) == ("ConfigMap", {"text": "first"}, MINE)
    assert stored["metadata"]["uid"]
    assert stored["metadata"]["creationTimestamp"]
    assert stored["metadata"]["namespace"]


def test_apply_does_not_change_what_it_is_given(bench: Bench) -> None:
    wanted = note("a", "first")
    bench.cluster.apply(wanted)
    bench.cluster.apply(wanted)
    assert wanted == note("a", "first")


def test_the_same_applied_again_changes_nothing(bench: Bench) -> None:
    first = bench.cluster.apply(note("a", "first"))
    again = bench.cluster.apply(note("a", "first"))
    assert again["metadata"]["uid"] == first["metadata"]["uid"]
    assert version_of(again) == version_of(first)


def test_other_content_is_taken_over_by_the_same_object(bench: Bench) -> None:
    first = bench.cluster.apply(note("a", "first", annotations={"kept": "yes"}))
    second = bench.cluster.apply({**note("a", annotations={"kept": "yes"}), "data": {"other": "second"}})
    assert second["data"] == {"other": "second"}
    assert second["metadata"]["annotations"]["kept"] == "yes"
    assert second["metadata"]["uid"] == first["metadata"]["uid"]
    assert version_of(second) > version_of(first)
    assert bench.cluster.get("ConfigMap", "a") == second


def test_an_object_of_another_ledger_is_neither_taken_over_nor_changed(bench: Bench) -> None:
    theirs = bench.cluster.apply(note("a", "theirs", annotations={labels.LEDGER: "their-ledger"}))
    with pytest.raises(Foreign):
        bench.cluster.apply(note("a", "ours", annotations={labels.LEDGER: "our-ledger"}))
    assert bench.cluster.get("ConfigMap", "a") == theirs


def test_apply_of_an_old_version_is_a_conflict(bench: Bench) -> None:
    old = bench.cluster.apply(note("a", "first"))["metadata"]["resourceVersion"]
    bench.cluster.apply(note("a", "second"))
    with pytest.raises(Conflict):
        bench.cluster.apply(note("a", "third", resourceVersion=old))
    assert (bench.cluster.get("ConfigMap", "a") or {})["data"] == {"text": "second"}


def test_a_generated_name_makes_a_new_object_each_time(bench: Bench) -> None:
    wanted = note("")
    wanted["metadata"] = {"generateName": "made-", "labels": MINE}
    made = {bench.cluster.apply(wanted)["metadata"]["name"] for _ in range(2)}
    assert len(made) == 2
    assert all(name.startswith("made-") for name in made)


def test_a_gang_cannot_be_made_another(bench: Bench) -> None:
    bench.cluster.apply(gang(bench, "g", 1, RUNS, suspend=True))
    with pytest.raises(Refused):
        bench.cluster.apply(gang(bench, "g", 2, RUNS, suspend=True))
    [role] = (bench.cluster.get("JobSet", "g") or {})["spec"]["replicatedJobs"]
    assert role["template"]["spec"]["parallelism"] == 1


@rows("simulated/seam_contract")
def test_a_manifest_of_nothing_we_know_is_refused_with_the_path(
    bench: Bench, change: dict[str, Any], said: str
) -> None:
    with pytest.raises(Refused) as refusal:
        bench.cluster.apply(note("a") | change)
    assert refusal.value.path == said
    assert bench.cluster.get("ConfigMap", "a") is None


@pytest.mark.parametrize("dry_run", [False, True])
def test_an_unknown_field_is_refused_by_its_name(bench: Bench, dry_run: bool) -> None:
    wrong = pod(bench, "a", RUNS)
    wrong["spec"]["containers"][0]["comand"] = ["true"]
    with pytest.raises(Refused, match=r"spec\.containers\[0\]\.comand"):
        bench.cluster.apply(wrong, dry_run=dry_run)
    assert bench.cluster.get("Pod", "a") is None


def test_a_dry_run_says_what_would_be_and_touches_nothing(bench: Bench) -> None:
    before = bench.cluster.apply(note("a", "first"))
    assert bench.cluster.apply(note("a", "second"), dry_run=True)["data"] == {"text": "second"}
    assert bench.cluster.apply(note("b", "new"), dry_run=True)["data"] == {"text": "new"}
    assert bench.cluster.list("ConfigMap", MINE) == [before]
    bench.cluster.apply(note("c"))
    [seen] = lines_of(bench, "ConfigMap", 1, before["metadata"]["resourceVersion"])
    assert seen.object["metadata"]["name"] == "c"


# Get and list.


def test_what_does_not_exist_is_none(bench: Bench) -> None:
    for kind in ("ConfigMap", "Pod", "JobSet", "Workflow", "Node", "Secret"):
        assert bench.cluster.get(kind, "nobody") is None


def test_kinds_have_names_of_their_own(bench: Bench) -> None:
    bench.cluster.apply(note("a"))
    assert bench.cluster.get("Secret", "a") is None
    assert bench.cluster.list("Secret", MINE) == []


def test_a_list_has_what_carries_all_labels_by_name(bench: Bench) -> None:
    for name, colour in (("c", "red"), ("a", "red"), ("b", "blue")):
        bench.cluster.apply(note(name, marks={"colour": colour}))
    assert names_of(bench.cluster.list("ConfigMap", MINE)) == ["a", "b", "c"]
    assert names_of(bench.cluster.list("ConfigMap", {**MINE, "colour": "red"})) == ["a", "c"]
    assert bench.cluster.list("ConfigMap", {**MINE, "colour": "green"}) == []
    assert {"a", "b", "c"} <= set(names_of(bench.cluster.list("ConfigMap")))


def test_a_large_list_is_whole(bench: Bench) -> None:
    wanted = [f"n-{number:03}" for number in range(LARGE)]
    for name in wanted:
        bench.cluster.apply(note(name))
    assert names_of(bench.cluster.list("ConfigMap", MINE)) == wanted
    assert sorted(item["metadata"]["name"] for item in each(bench.cluster, "ConfigMap", MINE)) == wanted


def test_what_was_returned_may_be_changed_without_harm(bench: Bench) -> None:
    bench.cluster.apply(note("a", "first"))["data"]["text"] = "spoiled"
    (bench.cluster.get("ConfigMap", "a") or {})["data"]["text"] = "spoiled"
    bench.cluster.list("ConfigMap", MINE)[0]["data"]["text"] = "spoiled"
    lines_of(bench, "ConfigMap", 1, None)[0].object["data"]["text"] = "spoiled"
    assert (bench.cluster.get("ConfigMap", "a") or {})["data"] == {"text": "first"}


def test_versions_grow_over_all_objects(bench: Bench) -> None:
    writes = [note("a", "one"), note("b", "one"), note("a", "two"), note("c", "one"), note("b", "two")]
    versions = [version_of(bench.cluster.apply(item)) for item in writes]
    assert all(before < after for before, after in pairwise(versions))


# Watch.


def test_a_watch_from_nowhere_first_tells_all_there_is(bench: Bench) -> None:
    for name in ("a", "b"):
        bench.cluster.apply(note(name))
    bench.cluster.apply({**note("other"), "metadata": {"name": "other", "labels": {labels.RUN: "other"}}})
    seen = list(bench.cluster.watch("ConfigMap", MINE, timeout_seconds=0.0))
    assert sorted((event.type, event.object["metadata"]["name"]) for event in seen) == [("ADDED", "a"), ("ADDED", "b")]


def test_a_watch_goes_on_after_the_version_it_is_given(bench: Bench) -> None:
    since = bench.cluster.apply(note("before"))["metadata"]["resourceVersion"]
    told: list[tuple[str, dict[str, str]]] = []
    steps = (
        lambda: bench.cluster.apply(note("a", "one")),
        lambda: bench.cluster.apply(note("a", "two")),
        lambda: bench.cluster.delete("ConfigMap", "a"),
    )
    for step in steps:
        step()
        [event] = lines_of(bench, "ConfigMap", 1, since)
        told.append((event.type, event.object["data"]))
        assert int(event.resource_version) > int(since)
        since = event.resource_version
    assert told == [("ADDED", {"text": "one"}), ("MODIFIED", {"text": "two"}), ("DELETED", {"text": "two"})]


def test_a_watch_tells_in_the_order_of_what_happened(bench: Bench) -> None:
    since = bench.cluster.apply(note("before"))["metadata"]["resourceVersion"]
    for name in ("c", "a", "b"):
        bench.cluster.apply(note(name))
    bench.cluster.delete("ConfigMap", "before")
    seen = lines_of(bench, "ConfigMap", 4, since)
    assert [event.object["metadata"]["name"] for event in seen] == ["c", "a", "b", "before"]
    versions = [int(event.resource_version) for event in seen]
    assert versions == sorted(set(versions))


def test_who_is_behind_is_told_no_state_that_is_older_than_one_told_before(bench: Bench) -> None:
    since = bench.cluster.apply(note("before"))["metadata"]["resourceVersion"]
    for text in ("one", "two", "three"):
        newest = bench.cluster.apply(note("a", text))
    bench.cluster.apply(note("last"))
    texts: list[str] = []
    for event in bench.cluster.watch("ConfigMap", MINE, since=since, timeout_seconds=bench.patience_seconds):
        if event.object["metadata"]["name"] == "last":
            break
        texts.append(event.object["data"]["text"])
    assert texts[-1] == newest["data"]["text"] == "three"
    assert texts == sorted(texts, key=["one", "two", "three"].index)


def test_a_watch_that_is_open_tells_what_comes(bench: Bench) -> None:
    bench.cluster.apply(note("a", "one"))
    lines = iter(bench.cluster.watch("ConfigMap", MINE, timeout_seconds=bench.patience_seconds))
    assert next(lines).type == "ADDED"
    bench.cluster.apply(note("a", "two"))
    changed = next(lines)
    assert (changed.type, changed.object["data"]) == ("MODIFIED", {"text": "two"})
    bench.cluster.delete("ConfigMap", "a")
    assert next(lines).type == "DELETED"


def test_what_loses_its_label_is_told_as_deleted(bench: Bench) -> None:
    bench.cluster.apply(note("a"))
    lines = iter(bench.cluster.watch("ConfigMap", MINE, timeout_seconds=bench.patience_seconds))
    assert next(lines).type == "ADDED"
    bench.cluster.patch("ConfigMap", "a", {"metadata": {"labels": {labels.RUN: "other"}}})
    lost = next(lines)
    assert (lost.type, lost.object["metadata"]["name"]) == ("DELETED", "a")


def test_a_watch_tells_nothing_of_other_kinds(bench: Bench) -> None:
    since = bench.cluster.apply(note("a"))["metadata"]["resourceVersion"]
    secret: dict[str, Any] = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "labels": MINE}}
    bench.cluster.apply({**secret, "type": "Opaque", "stringData": {"token": "word"}})
    bench.cluster.apply(note("b"))
    [seen] = lines_of(bench, "ConfigMap", 1, since)
    assert seen.object["metadata"]["name"] == "b"


def test_a_quiet_watch_ends_by_itself(bench: Bench) -> None:
    since = bench.cluster.apply(note("a"))["metadata"]["resourceVersion"]
    assert list(bench.cluster.watch("ConfigMap", MINE, since=since, timeout_seconds=0.2)) == []


def test_who_comes_with_a_forgotten_version_is_told_all_anew(bench: Bench) -> None:
    since = bench.cluster.apply(note("a"))["metadata"]["resourceVersion"]
    bench.cluster.apply(note("b"))
    bench.expire_versions()
    sync, *rest = lines_of(bench, "ConfigMap", 3, since)
    assert (sync.type, sync.object) == ("SYNC", {})
    assert [(event.type, event.object["metadata"]["name"]) for event in rest] == [("ADDED", "a"), ("ADDED", "b")]
    bench.cluster.apply(note("c"))
    [after] = lines_of(bench, "ConfigMap", 1, rest[-1].resource_version)
    assert (after.type, after.object["metadata"]["name"]) == ("ADDED", "c")


# Patch.


def test_a_patch_merges_and_null_deletes(bench: Bench) -> None:
    first = bench.cluster.apply({**note("a"), "data": {"kept": "1", "changed": "1", "dropped": "1"}})
    patched = bench.cluster.patch("ConfigMap", "a", {"data": {"changed": "2", "dropped": None, "new": "2"}})
    assert patched["data"] == {"kept": "1", "changed": "2", "new": "2"}
    assert patched["metadata"]["uid"] == first["metadata"]["uid"]
    assert version_of(patched) > version_of(first)
    assert bench.cluster.get("ConfigMap", "a") == patched


def test_a_patch_replaces_lists(bench: Bench) -> None:
    for key in ("first", "second"):
        taint = {"key": f"{labels.PREFIX}/{key}", "effect": "PreferNoSchedule"}
        bench.cluster.patch("Node", bench.node, {"spec": {"taints": [taint]}})
    taints = (bench.cluster.get("Node", bench.node) or {})["spec"]["taints"]
    assert [item["key"] for item in taints] == [f"{labels.PREFIX}/second"]


def test_a_patch_that_changes_nothing_makes_no_version(bench: Bench) -> None:
    first = bench.cluster.apply(note("a", "same"))
    assert version_of(bench.cluster.patch("ConfigMap", "a", {"data": {"text": "same"}})) == version_of(first)


def test_a_patch_may_ask_for_the_version_it_read(bench: Bench) -> None:
    old = bench.cluster.apply(note("a", "one"))["metadata"]["resourceVersion"]
    new = bench.cluster.apply(note("a", "two"))["metadata"]["resourceVersion"]
    with pytest.raises(Conflict):
        bench.cluster.patch("ConfigMap", "a", {"metadata": {"resourceVersion": old}, "data": {"text": "three"}})
    assert (bench.cluster.get("ConfigMap", "a") or {})["data"] == {"text": "two"}
    pinned = {"metadata": {"resourceVersion": new}, "data": {"text": "three"}}
    assert bench.cluster.patch("ConfigMap", "a", pinned)["data"] == {"text": "three"}


def test_what_does_not_exist_cannot_be_patched(bench: Bench) -> None:
    with pytest.raises(NotFound):
        bench.cluster.patch("ConfigMap", "nobody", {"data": {"text": "new"}})
    assert bench.cluster.get("ConfigMap", "nobody") is None


# Delete.


def test_delete_is_safe_to_repeat(bench: Bench) -> None:
    bench.cluster.apply(note("a"))
    for _ in range(2):
        bench.cluster.delete("ConfigMap", "a")
    bench.cluster.delete("ConfigMap", "nobody")
    bench.cluster.delete("JobSet", "nobody", grace_seconds=0)
    assert bench.cluster.list("ConfigMap", MINE) == []


def test_a_new_object_under_an_old_name_is_another_one(bench: Bench) -> None:
    first = bench.cluster.apply(note("a"))
    bench.cluster.delete("ConfigMap", "a")
    assert bench.cluster.apply(note("a"))["metadata"]["uid"] != first["metadata"]["uid"]


def test_a_pod_that_is_deleted_goes_and_its_end_is_told(bench: Bench) -> None:
    bench.cluster.apply(pod(bench, "p", RUNS))
    running = in_phase(bench, "p", "Running")
    bench.cluster.delete("Pod", "p", grace_seconds=2)
    bench.until(lambda: bench.cluster.get("Pod", "p") is None)
    seen = bench.cluster.watch(
        "Pod", MINE, since=running["metadata"]["resourceVersion"], timeout_seconds=bench.patience_seconds
    )
    end = next(event for event in seen if event.type == "DELETED")
    assert end.object["metadata"]["uid"] == running["metadata"]["uid"]


# Pods.


def test_a_pod_gets_a_node_and_an_address(bench: Bench) -> None:
    bench.cluster.apply(pod(bench, "p", RUNS))
    running = in_phase(bench, "p", "Running")
    assert running["spec"]["nodeName"] in names_of(bench.cluster.list("Node"))
    assert bench.until(lambda: (bench.cluster.get("Pod", "p") or {})["status"].get("podIP"))
    assert bench.cluster.reaches("p", timeout_seconds=5.0) is True


@pytest.mark.parametrize(("code", "phase"), [(0, "Succeeded"), (3, "Failed")])
def test_a_pod_that_has_ended_says_how(bench: Bench, code: int, phase: str) -> None:
    bench.cluster.apply(pod(bench, "p", Script(exit_code=code)))
    [container] = in_phase(bench, "p", "Succeeded", "Failed")["status"]["containerStatuses"]
    assert container["state"]["terminated"]["exitCode"] == code
    assert (bench.cluster.get("Pod", "p") or {})["status"]["phase"] == phase


def test_a_log_is_kept_after_the_end_and_has_a_tail(bench: Bench) -> None:
    bench.cluster.apply(pod(bench, "p", Script(lines=("one", "two", "three"))))
    in_phase(bench, "p", "Succeeded")
    assert bench.cluster.logs("p") == "one\ntwo\nthree\n"
    assert bench.cluster.logs("p", "main", tail_lines=2) == "two\nthree\n"
    assert bench.cluster.logs("p", tail_lines=9) == "one\ntwo\nthree\n"
    assert list(bench.cluster.follow("p", timeout_seconds=bench.patience_seconds)) == ["one", "two", "three"]


def test_a_log_of_who_runs_is_followed_until_the_time_is_up(bench: Bench) -> None:
    bench.cluster.apply(pod(bench, "p", RUNS))
    in_phase(bench, "p", "Running")
    assert bench.until(lambda: bench.cluster.logs("p")) == "ready\n"
    assert list(bench.cluster.follow("p", timeout_seconds=1.0)) == ["ready"]


def test_a_pod_that_is_not_there_has_no_log_and_no_answer(bench: Bench) -> None:
    with pytest.raises(NotFound):
        bench.cluster.logs("nobody")
    with pytest.raises(NotFound):
        list(bench.cluster.follow("nobody", timeout_seconds=1.0))
    with pytest.raises(NotFound):
        bench.cluster.call("nobody", PORT, "GET", "/")


def test_a_pod_answers_what_it_is_asked(bench: Bench) -> None:
    bench.cluster.apply(pod(bench, "p", Script(echoes=True)))
    in_phase(bench, "p", "Running")

    def ask() -> list[str] | None:
        try:
            answer = bench.cluster.call("p", PORT, "POST", "/a?b=c", token="secret", body=b"words")
        except Unavailable:
            return None  # it listens a moment after it was started
        assert answer.status == 201
        return json.loads(answer.body)

    assert bench.until(ask) == ["POST", "/a?b=c", "secret", "words"]
    answer = bench.cluster.call("p", PORT, "GET", "/")
    assert json.loads(answer.body) == ["GET", "/", None, ""]
    with pytest.raises(Unavailable):
        bench.cluster.call("p", PORT + 1, "GET", "/")


# Gangs.


def test_a_gang_has_one_pod_for_each_index(bench: Bench) -> None:
    bench.cluster.apply(gang(bench, "g", 2, RUNS))
    bench.until(lambda: [one["status"].get("phase") for one in pods_of(bench, "g")] == ["Running"] * 2)
    pods = pods_of(bench, "g")
    indices = [one["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] for one in pods]
    assert indices == ["0", "1"]
    for index, one in enumerate(pods):
        assert one["metadata"]["name"].startswith(f"g-worker-0-{index}-")
        assert one["metadata"]["labels"].items() >= {**MINE, labels.ROLE: "worker"}.items()
        assert one["spec"]["nodeName"]


@pytest.mark.parametrize(("code", "state"), [(0, "Completed"), (3, "Failed")])
def test_a_gang_ends_as_its_pods_do(bench: Bench, code: int, state: str) -> None:
    bench.cluster.apply(gang(bench, "g", 2, Script(exit_code=code)))
    assert bench.until(lambda: (bench.cluster.get("JobSet", "g") or {}).get("status", {}).get("terminalState")) == state


@pytest.mark.parametrize("pods", [0, 2])
def test_a_gang_goes_and_takes_its_pods_with_it(bench: Bench, pods: int) -> None:
    bench.cluster.apply(gang(bench, "g", 2, RUNS, suspend=not pods))
    bench.until(lambda: len(pods_of(bench, "g")) == pods)
    bench.cluster.delete("JobSet", "g", grace_seconds=0)
    bench.until(lambda: bench.cluster.get("JobSet", "g") is None)
    bench.until(lambda: not pods_of(bench, "g"))


def test_a_gang_that_is_held_makes_pods_when_it_is_let_go(bench: Bench) -> None:
    bench.cluster.apply(gang(bench, "g", 1, RUNS, suspend=True))
    bench.cluster.apply(pod(bench, "p", Script()))
    in_phase(bench, "p", "Succeeded")
    assert pods_of(bench, "g") == []
    bench.cluster.patch("JobSet", "g", {"spec": {"suspend": False}})
    bench.until(lambda: len(pods_of(bench, "g")) == 1)


# Nodes.


def test_a_node_is_ready_and_says_what_it_has(bench: Bench) -> None:
    node = bench.cluster.get("Node", bench.node)
    assert node is not None
    assert conditions_of(node)["Ready"] == "True"
    assert {"cpu", "memory"} <= node["status"]["allocatable"].keys()
    assert node["metadata"]["labels"][labels.HOSTNAME] == bench.node


def test_a_node_that_is_closed_gets_no_pod(bench: Bench) -> None:
    for name in names_of(bench.cluster.list("Node")):
        bench.cluster.patch("Node", name, {"spec": {"unschedulable": name != bench.node}})
    bench.cluster.apply(gang(bench, "g", 2, RUNS))
    bench.until(lambda: [one["status"].get("phase") for one in pods_of(bench, "g")] == ["Running"] * 2)
    assert {one["spec"]["nodeName"] for one in pods_of(bench, "g")} == {bench.node}


def test_a_lost_node_is_not_ready_and_its_pods_have_failed(bench: Bench) -> None:
    bench.cluster.apply(pod(bench, "p", RUNS))
    node = in_phase(bench, "p", "Running")["spec"]["nodeName"]
    bench.lose_node(node)
    bench.until(lambda: conditions_of(bench.cluster.get("Node", node) or {})["Ready"] != "True")
    bench.until(
        lambda: (bench.cluster.get("Pod", "p") or {"status": {"phase": "Failed"}})["status"]["phase"] == "Failed"
    )
