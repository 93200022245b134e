"""Which components a cluster gets, in which order, how far that is true already, and how they go again. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from profiles.bootstrap.components import BuiltInSource, ComponentProfile, InlineSource, checked_values
from profiles.bootstrap.inventory import Bootstrap, ComponentChoice
from profiles.errors import ProfileError
from profiles.values import did_you_mean
from profiles.vocabulary import VerdictWord
from workflows.model.bootstrap import Stage, Step, StepProof
from workflows.model.components import ChosenComponent, InstalledComponent

FIELD = "bootstrap.components"


def chosen_components(
    bootstrap: Bootstrap, shelf: Mapping[str, ComponentProfile], vendors: Collection[str]
) -> tuple[ChosenComponent, ...]:
    """What the cluster gets, each behind all that it needs: first what the flow itself applies.

    Components of GPU vendors that no pool has are left out. `vendors` are those of the pools' hardware.

    Raises:
        ProfileError: an unknown or doubled name, a need that cannot be met, a circle, or a wrong value.
    """
    choices = _choices(bootstrap.components, shelf)
    first = [name for name in sorted(shelf) if shelf[name].first]
    wanted = dict.fromkeys([*first, *choices])
    for name in list(wanted):
        _add_needs(name, shelf, wanted, ())
    there = [name for name in wanted if shelf[name].vendor in ("", *vendors)]
    for name in there:
        _refuse_left_out(shelf[name], shelf, there)
    found: list[ChosenComponent] = []
    for name in _ordered(there, shelf):
        where = f"{FIELD}[{list(choices).index(name)}]" if name in choices else f"{FIELD}[{name}]"
        given = choices[name].values if name in choices else {}
        profile = shelf[name]
        found.append(ChosenComponent(profile, checked_values(profile, given, where), _own_digest(profile)))
    early = before_admission(found)
    return tuple(replace(one, to_new_nodes=one.name in early) for one in found)


def _choices(given: Sequence[ComponentChoice], shelf: Mapping[str, ComponentProfile]) -> dict[str, ComponentChoice]:
    found: dict[str, ComponentChoice] = {}
    for number, choice in enumerate(given):
        if choice.name not in shelf:
            reason = f'no component is called "{choice.name}"{did_you_mean(choice.name, shelf, "on the shelf")}'
            raise ProfileError(f"{FIELD}[{number}].name", reason)
        if choice.name in found:
            raise ProfileError(f"{FIELD}[{number}].name", f"{choice.name} is chosen twice: name it once")
        found[choice.name] = choice
    return found


def _add_needs(
    name: str, shelf: Mapping[str, ComponentProfile], wanted: dict[str, None], above: tuple[str, ...]
) -> None:
    if name in above:
        raise ProfileError(FIELD, f"components need each other in a circle: {' -> '.join((*above, name))}")
    for need in shelf[name].needs:
        if need not in shelf:
            reason = f"{name} needs {need}, which is not on the shelf{did_you_mean(need, shelf, 'on the shelf')}"
            raise ProfileError(FIELD, reason)
        _add_needs(need, shelf, wanted, (*above, name))
        wanted.setdefault(need)


def _refuse_left_out(profile: ComponentProfile, shelf: Mapping[str, ComponentProfile], there: Sequence[str]) -> None:
    missing = [need for need in profile.needs if need not in there]
    if missing:
        vendor = shelf[missing[0]].vendor
        reason = f"{profile.name} needs {missing[0]}, and no pool has GPUs of {vendor}: leave it out"
        raise ProfileError(FIELD, reason)


def _ordered(names: Sequence[str], shelf: Mapping[str, ComponentProfile]) -> list[str]:
    """Each behind those before which it may not come; otherwise in their own order, the flow's own first."""
    rest = sorted(names, key=lambda name: (not shelf[name].first, names.index(name)))
    done: list[str] = []
    while rest:
        ready = next((name for name in rest if not befores(shelf[name], rest)), None)
        if ready is None:
            raise ProfileError(FIELD, f"components wait for each other in a circle: {', '.join(sorted(rest))}")
        rest.remove(ready)
        done.append(ready)
    return done


def befores(profile: ComponentProfile, names: Collection[str]) -> tuple[str, ...]:
    """Those of `names` that must serve before the component is begun."""
    return tuple(name for name in (*profile.needs, *profile.after) if name in names)


def _own_digest(profile: ComponentProfile) -> str:
    source = profile.source
    return "" if isinstance(source, InlineSource | BuiltInSource) else source.sha256 or ""


def with_digests(chosen: Sequence[ChosenComponent], said: Mapping[str, str]) -> tuple[ChosenComponent, ...]:
    """The components with the digests that the site's mirror says of their sources (path -> SHA-256).

    Raises:
        ProfileError: the mirror says another digest than the component's profile.
    """
    found: list[ChosenComponent] = []
    for one in chosen:
        source = one.profile.source
        if isinstance(source, InlineSource | BuiltInSource):
            found.append(one)
            continue
        told = said.get(source.path, "")
        if source.sha256 and told and told != source.sha256:
            reason = f"the mirror says {told} of {source.path}, the profile {source.sha256}: one of them is not it"
            raise ProfileError(f"components.{one.name}.source.sha256", reason)
        found.append(replace(one, sha256=source.sha256 or told))
    return tuple(found)


def refuse_unknown_digests(chosen: Sequence[ChosenComponent]) -> None:
    """Nothing where everything that comes from the mirror has a digest.

    Raises:
        ProfileError: names all that have none.
    """
    missing = [one for one in chosen if one.fetched and not one.sha256]
    if missing:
        source = missing[0].profile.source
        path = "" if isinstance(source, InlineSource | BuiltInSource) else source.path
        names = ", ".join(one.name for one in missing)
        reason = f"nobody says the digest of {path} ({names}): `primus bootstrap mirror --fill` writes SHA256SUMS"
        raise ProfileError(f"components.{missing[0].name}.source.sha256", reason)


def before_admission(chosen: Sequence[ChosenComponent]) -> frozenset[str]:
    """Names of components without which no node passes its tests, with all that stands before them."""
    by_name = {one.name: one.profile for one in chosen}
    found = {name for name, profile in by_name.items() if profile.first or profile.before_admission}
    waiting = list(found)
    while waiting:
        more = set(befores(by_name[waiting.pop()], by_name)) - found
        found |= more
        waiting += more
    return frozenset(found)


def component_steps(
    chosen: Sequence[ChosenComponent], after: Sequence[str] = (), only: Collection[str] | None = None
) -> tuple[Step, ...]:
    """One step a component, behind `after` (ids of steps) and behind the components that it needs. `only`: of these."""
    names = [one.name for one in chosen]
    return tuple(
        Step(
            Stage.COMPONENTS,
            one.name,
            one.wanted,
            f"{one.name} {one.profile.version}: {one.profile.description}",
            (*after, *(f"{Stage.COMPONENTS}/{name}" for name in befores(one.profile, names))),
        )
        for one in chosen
        if only is None or one.name in only
    )


@dataclass(frozen=True)
class ComponentDifference:
    """What stands between a component as it is and as it is wanted."""

    name: str
    what: str
    """`missing`, `unfinished`, `version`, `values` or `surplus`."""
    wanted: str
    """Version and fingerprint; "" for one that nobody wants."""
    found: str
    """Version and fingerprint; "" where there is none."""

    @property
    def text(self) -> str:
        """In one line."""
        return f"{self.name}: {self.what}: wanted {self.wanted or 'none'}, found {self.found or 'none'}"


def component_differences(
    chosen: Sequence[ChosenComponent], installed: Mapping[str, InstalledComponent]
) -> tuple[ComponentDifference, ...]:
    """What is not as it is wanted, in the order of the install; then what is there and wanted by nobody."""
    found: list[ComponentDifference] = []
    for one in chosen:
        there = installed.get(one.name)
        what = _difference(one, there)
        if what:
            seen = f"{there.version} ({there.wanted or 'unfinished'})" if there else ""
            found.append(ComponentDifference(one.name, what, f"{one.profile.version} ({one.wanted})", seen))
    names = {one.name for one in chosen}
    surplus = [there for name, there in sorted(installed.items()) if name not in names]
    found += [ComponentDifference(there.name, "surplus", "", f"{there.version} ({there.wanted})") for there in surplus]
    return tuple(found)


def _difference(one: ChosenComponent, there: InstalledComponent | None) -> str:
    if there is None:
        return "missing"
    if not there.wanted:
        return "unfinished"
    if there.version != one.profile.version:
        return "version"
    return "" if there.wanted == one.wanted else "values"


def component_proofs(
    chosen: Sequence[ChosenComponent], installed: Mapping[str, InstalledComponent], since: float
) -> dict[str, StepProof]:
    """Whether each component serves, by the id of its step; what was seen before `since` (Unix seconds) is too old."""
    return {f"{Stage.COMPONENTS}/{one.name}": _proof(one, installed.get(one.name), since) for one in chosen}


def _proof(one: ChosenComponent, there: InstalledComponent | None, since: float) -> StepProof:
    what = _difference(one, there)
    if there is None or what:
        found = f" (found {there.version} as {there.wanted or 'unfinished'})" if there else ""
        return StepProof(VerdictWord.FAIL, f"{what}: {one.profile.version} as {one.wanted} is wanted{found}")
    report = there.report
    if report is None or report.wanted != one.wanted:
        return StepProof(VerdictWord.UNKNOWN, "installed as wanted; nobody asked it yet to serve")
    if report.at < since:
        return StepProof(VerdictWord.UNKNOWN, f"it served ({report.word}) when it was asked, which is too long ago")
    return StepProof(VerdictWord(report.word), report.why)


@dataclass(frozen=True)
class ComponentGoes:
    """One component that is taken away."""

    profile: ComponentProfile
    resources: tuple[str, ...]
    """Kinds whose objects go first, as `plural.group`."""
    namespace: str
    """Namespace that goes with it; "": it is shared, or still used by one that stays."""
    keeps: tuple[str, ...]
    """What holds data and stays, in words; nothing where people asked for that to go too, or there is none."""


def removal_order(
    installed: Collection[str], shelf: Mapping[str, ComponentProfile], *, with_data: bool, only: Collection[str] = ()
) -> tuple[ComponentGoes, ...]:
    """Components in the order in which they go: each before all that it needs. `only`: these alone; empty: all.

    A namespace goes with the last component in it, and not where it holds data that stays.

    Raises:
        ProfileError: one that goes is needed by one that stays, or is not on the shelf.
    """
    going = [name for name in installed if not only or name in only]
    unknown = sorted(set(going) - shelf.keys())
    if unknown:
        raise ProfileError(FIELD, f"{unknown[0]} is installed and not on the shelf: take its profile along")
    staying = [name for name in installed if name not in going]
    for name in staying:
        needed = [need for need in (shelf[name].needs if name in shelf else ()) if need in going]
        if needed:
            raise ProfileError(FIELD, f"{needed[0]} is needed by {name}, which stays: take that away first, or both")
    order = list(reversed(_ordered(sorted(going), shelf)))
    later = {name: order[number + 1 :] for number, name in enumerate(order)}
    return tuple(_goes(shelf[name], later[name], staying, shelf, with_data=with_data) for name in order)


def _goes(
    profile: ComponentProfile,
    later: Sequence[str],
    staying: Sequence[str],
    shelf: Mapping[str, ComponentProfile],
    *,
    with_data: bool,
) -> ComponentGoes:
    others = [shelf[name].namespace for name in (*later, *staying) if name in shelf]
    removal = profile.removal
    keeps = () if with_data else removal.data
    shared = removal.keeps_namespace or profile.namespace in others or bool(keeps)
    return ComponentGoes(profile, removal.resources, "" if shared else profile.namespace, keeps)
