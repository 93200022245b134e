from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.decisions.bootstrap.components import (
    chosen_components,
    component_differences,
    component_proofs,
    component_steps,
    refuse_unknown_digests,
    removal_order,
    with_digests,
)
from profiles.bootstrap.components import (
    ComponentProfile,
    ComponentProof,
    ComponentRemoval,
    InlineSource,
    ManifestsSource,
)
from profiles.bootstrap.engines import Adopt
from profiles.bootstrap.inventory import Bootstrap, ClusterHost, ComponentChoice
from profiles.errors import ProfileError
from profiles.loading.load import list_profiles, load_component
from workflows import labels
from workflows.model.components import ChosenComponent, InstalledComponent, installed_of, note_name
from workflows.wire import ServingReport, to_json

SHELF = {one.name: load_component(one.name) for one in list_profiles() if one.kind == "component"}
FIRST = ["argo-workflows", "jobset", "kueue"]
OBJECT = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "made"}}


def part(name: str, needs: Sequence[str] = (), **more: Any) -> ComponentProfile:
    return ComponentProfile(
        name=name,
        description="For tests.",
        category="figures",
        version="1",
        source=InlineSource(kind="inline", objects=(OBJECT,)),
        namespace=more.pop("namespace", f"ns-{name}"),
        needs=tuple(needs),
        proof=ComponentProof(kind="dns"),
        tried=True,
        **more,
    )


def cluster(*names: str, values: Mapping[str, Any] | None = None) -> Bootstrap:
    choices = tuple(ComponentChoice(name=name, values=dict(values or {})) for name in names)
    host = ClusterHost(address="192.0.2.1")
    return Bootstrap(hosts={"a": host}, engine=Adopt(kind="adopt"), components=choices)


def names_of(chosen: Sequence[ChosenComponent]) -> list[str]:
    return [one.name for one in chosen]


def test_argo_jobset_and_kueue_come_always_and_before_all_others() -> None:
    assert sorted(names_of(chosen_components(cluster(), SHELF, ()))) == FIRST
    chosen = names_of(chosen_components(cluster("vmalert", "metrics-server"), SHELF, ()))
    assert sorted(chosen[:3]) == FIRST
    assert chosen.index("jobset") < chosen.index("kueue")
    assert set(chosen[3:]) == {"metrics-server", "victoria-metrics", "alertmanager", "vmalert"}
    assert chosen.index("victoria-metrics") < chosen.index("vmalert")


def test_gpu_operators_come_only_where_a_pool_has_such_gpus() -> None:
    both = cluster("amd-gpu-operator", "dcgm-exporter")
    assert names_of(chosen_components(both, SHELF, ("cpu",)))[3:] == ["cert-manager"]
    assert "nvidia-gpu-operator" in names_of(chosen_components(both, SHELF, ("nvidia",)))
    assert names_of(chosen_components(both, SHELF, ("amd",)))[3:] == ["cert-manager", "amd-gpu-operator"]


def test_storage_that_is_chosen_comes_before_what_keeps_volumes_on_it() -> None:
    chosen = names_of(chosen_components(cluster("registry", "local-folder"), SHELF, ()))
    assert chosen.index("local-folder") < chosen.index("registry")
    assert "local-folder" not in names_of(chosen_components(cluster("registry"), SHELF, ()))


def test_wrong_choices_are_refused_by_their_names() -> None:
    for names, field, says in (
        (("victoria-metrix",), "bootstrap.components[0].name", 'did you mean "victoria-metrics"'),
        (("vmagent", "vmagent"), "bootstrap.components[1].name", "chosen twice"),
    ):
        with pytest.raises(ProfileError, match=says) as refused:
            chosen_components(cluster(*names), SHELF, ())
        assert refused.value.field == field
    with pytest.raises(ProfileError) as refused:
        chosen_components(cluster("vmagent", values={"intervall": "1s"}), SHELF, ())
    assert refused.value.field == "bootstrap.components[0].values.intervall"


def test_circles_and_unknown_needs_are_refused_with_their_names() -> None:
    circle = {"a": part("a", ["b"]), "b": part("b", ["c"]), "c": part("c", ["a"])}
    with pytest.raises(ProfileError, match="a -> b -> c -> a"):
        chosen_components(cluster("a"), circle, ())
    with pytest.raises(ProfileError, match="a needs bb, which is not on the shelf"):
        chosen_components(cluster("a"), {"a": part("a", ["bb"]), "b": part("b")}, ())
    waits = {"a": part("a", after=("b",)), "b": part("b", ["a"])}
    with pytest.raises(ProfileError, match="wait for each other in a circle: a, b"):
        chosen_components(cluster("b"), waits, ())
    lost = {"a": part("a", ["b"]), "b": part("b", vendor="amd")}
    with pytest.raises(ProfileError, match="a needs b, and no pool has GPUs of amd"):
        chosen_components(cluster("a"), lost, ("nvidia",))


@st.composite
def shelves(draw: st.DrawFn) -> dict[str, ComponentProfile]:
    """Each component needs only such that are named after it, so there is no circle."""
    names = [f"c{number}" for number in range(draw(st.integers(1, 12)))]
    found: dict[str, ComponentProfile] = {}
    for number, name in enumerate(names):
        needs = draw(st.lists(st.sampled_from(names[number + 1 :]), unique=True)) if names[number + 1 :] else []
        first = draw(st.booleans()) and not needs
        found[name] = part(name, needs, first=first, namespace=draw(st.sampled_from(["one", "two", f"ns-{name}"])))
    return found


@given(shelves(), st.data())
def test_nothing_is_begun_before_what_it_needs_and_nothing_goes_before_what_needs_it(
    shelf: dict[str, ComponentProfile], data: st.DataObject
) -> None:
    asked = data.draw(st.lists(st.sampled_from(sorted(shelf)), unique=True))
    chosen = chosen_components(cluster(*asked), shelf, ())
    order = names_of(chosen)
    assert set(asked) <= set(order)
    for one in chosen:
        assert all(order.index(need) < order.index(one.name) for need in one.profile.needs)
    steps = component_steps(chosen, ("network/cluster",))
    assert [step.id for step in steps] == [f"components/{name}" for name in order]
    done = {"network/cluster"}
    for step in steps:
        assert set(step.after) <= done
        done.add(step.id)
    gone = removal_order(order, shelf, with_data=True)
    left = [one.profile.name for one in gone]
    assert sorted(left) == sorted(order)
    for name in left:
        assert all(left.index(name) < left.index(need) for need in shelf[name].needs)
    namespaces = [one.namespace for one in gone if one.namespace]
    assert sorted(namespaces) == sorted({shelf[name].namespace for name in order}), "each once"
    for number, one in enumerate(gone):
        after = [other.profile.namespace for other in gone[number + 1 :]]
        assert not one.namespace or one.namespace not in after, "a namespace goes with the last one in it"


def test_any_change_is_another_fingerprint_and_none_is_none() -> None:
    def wanted(**changes: Any) -> str:
        return replace(ChosenComponent(SHELF["vmagent"], {"interval": "15s"}), **changes).wanted

    assert wanted() == wanted()
    version = SHELF["vmagent"].model_copy(update={"version": "v9"})
    others = [wanted(values={"interval": "30s"}), wanted(sha256="a" * 64), wanted(profile=version), wanted(made_of="x")]
    assert len({wanted(), *others}) == 5


def note(name: str, version: str = "1", wanted: str = "", report: ServingReport | None = None) -> dict[str, Any]:
    data = {"version": version, "wanted": wanted} | ({"report": to_json(report)} if report else {})
    return {"metadata": {"name": note_name(name), "labels": {labels.COMPONENT: name}}, "data": data}


def test_what_is_there_is_read_from_the_notes_and_compared() -> None:
    chosen = tuple(ChosenComponent(part(name), {}) for name in ("same", "old", "other", "half", "none"))
    wanted = {one.name: one.wanted for one in chosen}
    notes = [
        note("same", wanted=wanted["same"]),
        note("old", version="0", wanted="x"),
        note("other", wanted="x"),
        note("half"),
        note("nobodys", wanted="y"),
        {"metadata": {"name": "a-map-of-others", "labels": {labels.COMPONENT: "none"}}, "data": {"wanted": "z"}},
    ]
    found = [(one.name, one.what) for one in component_differences(chosen, installed_of(notes))]
    assert found == [
        ("old", "version"),
        ("other", "values"),
        ("half", "unfinished"),
        ("none", "missing"),
        ("nobodys", "surplus"),
    ]


def test_a_component_holds_only_by_what_was_seen_lately_of_what_is_wanted() -> None:
    [one] = chosen = (ChosenComponent(part("a"), {}),)

    def word(wanted: str, report: ServingReport | None) -> str:
        return component_proofs(chosen, {"a": InstalledComponent("a", "1", wanted, report)}, 100.0)["components/a"].word

    served = ServingReport("a", "pass", "it answered", at=150.0, wanted=one.wanted)
    assert word(one.wanted, served) == "pass"
    assert word(one.wanted, replace(served, word="fail")) == "fail"
    assert word(one.wanted, replace(served, word="unknown")) == "unknown"
    assert word(one.wanted, replace(served, at=99.0)) == "unknown"
    assert word(one.wanted, replace(served, wanted="other")) == "unknown"
    assert word(one.wanted, None) == "unknown"
    assert word("other", served) == "fail"
    assert word("", served) == "fail"
    assert component_proofs(chosen, {}, 0.0)["components/a"].word == "fail"
    data = {"version": "1", "wanted": one.wanted, "report": "{"}
    unreadable = installed_of([note("a") | {"data": data}])
    assert component_proofs(chosen, unreadable, 0.0)["components/a"].word == "unknown"


def test_digests_come_from_the_profile_or_the_mirror_and_are_never_guessed() -> None:
    source = ManifestsSource(kind="manifests", path="manifests/a.json")
    bare = ChosenComponent(part("a").model_copy(update={"source": source}), {})
    inline = ChosenComponent(part("b"), {})
    with pytest.raises(ProfileError, match=r"nobody says the digest of manifests/a.json \(a\)"):
        refuse_unknown_digests((bare, inline))
    sealed = with_digests((bare, inline), {"manifests/a.json": "1" * 64})
    assert [one.sha256 for one in sealed] == ["1" * 64, ""]
    refuse_unknown_digests(sealed)
    pinned = bare.profile.model_copy(update={"source": source.model_copy(update={"sha256": "2" * 64})})
    with pytest.raises(ProfileError, match="one of them is not it"):
        with_digests((ChosenComponent(pinned, {}),), {"manifests/a.json": "1" * 64})


def test_data_stays_unless_it_is_asked_for_and_its_namespace_with_it() -> None:
    shelf = {"a": part("a", removal=ComponentRemoval(resources=("things.example.org",), data=("the volume",)))}
    [kept] = removal_order(["a"], shelf, with_data=False)
    assert (kept.keeps, kept.namespace, kept.resources) == (("the volume",), "", ("things.example.org",))
    [gone] = removal_order(["a"], shelf, with_data=True)
    assert (gone.keeps, gone.namespace) == ((), "ns-a")


def test_what_is_needed_by_one_that_stays_does_not_go() -> None:
    shelf = {"a": part("a"), "b": part("b", ["a"])}
    with pytest.raises(ProfileError, match="a is needed by b, which stays"):
        removal_order(["a", "b"], shelf, with_data=False, only=("a",))
    assert [one.profile.name for one in removal_order(["a", "b"], shelf, with_data=False, only=("b",))] == ["b"]
    with pytest.raises(ProfileError, match="not on the shelf"):
        removal_order(["zz"], shelf, with_data=False)
