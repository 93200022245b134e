"""The join gate: in whatever order tests fail, processes die and nodes come anew, no untested node takes work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from flows.building.admission import admit_joining
from flows.testing import joining, prove
from flows.testing.proofs import suite_of
from profiles.admission import Admission, Occasions
from profiles.checks.catalogue import Depth
from profiles.cluster import ClusterProfile
from profiles.loading.load import load_cluster, load_hardware
from profiles.vocabulary import VerdictWord
from tasks.cluster import using
from tasks.context import World, standing_in
from tasks.ledger.ledger import Ledger
from tasks.settings import Settings
from tests.support.fakes.joining_nodes import OURS, TEAMS, MadeNodes, Script

HOUR = 3600.0
BOTH: tuple[Depth, ...] = ("smoke", "device")
WORDS = (VerdictWord.PASS, VerdictWord.FAIL, VerdictWord.UNKNOWN)


class KilledError(BaseException):
    """The process is gone: nothing of it catches this, and nothing of it is done afterwards."""


class Ground:
    """A cluster of made nodes, the clock, and what the process may still touch before it dies."""

    def __init__(self, home: Path, engine: str = "local", **admission: Any) -> None:
        suite = home / "gate.yaml"
        suite.write_text(yaml.safe_dump({"name": "gate", "checks": [_check(depth) for depth in BOTH]}))
        fields: dict[str, Any] = {"suite": str(suite), "depths": Occasions(join=("device",)), **admission}
        self.profile: ClusterProfile = load_cluster(engine).model_copy(update={"admission": Admission(**fields)})
        self.clock, self.touches, self.said = [100_000.0], float("inf"), list[str]()
        self.nodes, self.script = MadeNodes(self.touched), Script()
        found = Settings.from_environment({"PRIMUS_HOME": str(home)})
        self.world = World(found, Ledger(found.ledger_url, clock=lambda: self.clock[0]), now=lambda: self.clock[0])

    def touched(self) -> None:
        """One look or write of ours; the last one is not made."""
        if self.touches <= 0:
            raise KilledError
        self.touches -= 1

    def later(self, seconds: float = 10.0) -> None:
        self.clock[0] += seconds

    def join(self, name: str, pool: str = "cpu", offers: Mapping[str, str] | None = None) -> None:
        self.later()
        self.nodes.make(name, pool, TEAMS, OURS, at=self.clock[0], offers=offers)
        self.later()

    def prove(self, names: Sequence[str], depths: Sequence[Depth] = BOTH, touches: float = float("inf")) -> bool:
        """Test these; whether the process lived to the end."""
        self.touches = touches
        try:
            with standing_in(self.world), using(self.nodes):
                prove.prove(self.profile, suite_of(self.profile), depths, dict.fromkeys(names, "cpu"), self.said.append)
        except KilledError:
            return False
        finally:
            self.touches = float("inf")
            self.later()
        return True


def _check(depth: str) -> dict[str, Any]:
    return {
        "name": f"copy-{depth}",
        "depth": depth,
        "probe": {"name": "memory-bandwidth", "arguments": {"bytes": "1048576"}},
        "quantity": "memory_bandwidth",
        "unit": "GB/s",
        "direction": "higher_is_better",
        "limits": {"absolute": [{"at_least": 0.001, "source": "the test"}]},
        "deadline_seconds": 20,
        "fault_class": "straggler",
        "what_to_do": "Look at it.",
    }


def stand_in(ground: Ground, patch: pytest.MonkeyPatch) -> None:
    """The script says what tests find, and nobody is taken out: that is another gate."""
    patch.setattr(prove, "try_nodes", ground.script)
    patch.setattr(prove, "_settle", lambda profile, tell: None)


@pytest.fixture
def ground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ground]:
    made = Ground(tmp_path)
    stand_in(made, monkeypatch)
    yield made
    made.world.ledger.close()


@pytest.mark.parametrize("depth", BOTH)
@pytest.mark.parametrize("word", WORDS)
def test_only_a_pass_of_every_depth_takes_the_taint_away(ground: Ground, depth: str, word: VerdictWord) -> None:
    ground.join("n1")
    ground.script.words = {("n1", depth): word}
    assert ground.prove(["n1"])
    assert ground.nodes.keys("n1") == ({"team"} if word is VerdictWord.PASS else {"team", "startup"})
    kept = [line for line in ground.said if line.startswith("n1 keeps its start-up taint")]
    assert kept == ([] if word is VerdictWord.PASS else kept[:1])
    assert all(f"{depth}: {word}" in line for line in kept)


def test_what_passed_before_counts_for_nothing_once_the_taint_stands_again(ground: Ground) -> None:
    ground.join("n1")
    assert ground.prove(["n1"])
    ground.nodes.taint("n1", OURS)
    assert ground.prove(["n1"], ("smoke",))
    assert ground.nodes.keys("n1") == {"startup"}
    assert "n1 keeps its start-up taint: device: unknown: it was not tested" in ground.said
    assert ground.prove(["n1"])
    assert ground.nodes.keys("n1") == set()


def test_a_machine_that_comes_in_place_of_the_one_that_was_tested_is_not_admitted_for_it(ground: Ground) -> None:
    ground.join("n1")
    ground.script.amid = lambda depth: ground.join("n1") if depth == "device" else None
    assert ground.prove(["n1"])
    assert ground.nodes.keys("n1") == {"team", "startup"}
    assert "n1 keeps its start-up taint: the node was made anew while it was tested" in ground.said


def test_a_failure_that_stands_of_another_depth_keeps_the_taint_and_tells_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ground = Ground(tmp_path, depths=Occasions())
    stand_in(ground, monkeypatch)
    ground.script.words = {("n1", "device"): VerdictWord.FAIL}
    ground.join("n1")
    assert ground.prove(["n1"], ("device",))
    assert ground.prove(["n1"], ("smoke",))
    assert ground.nodes.keys("n1") == {"team", "startup"}
    assert any(line.startswith("n1 keeps its start-up taint: failed test device") for line in ground.said)
    ground.world.ledger.close()


def test_a_suite_without_a_smoke_test_admits_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ground = Ground(tmp_path)
    (tmp_path / "gate.yaml").write_text(yaml.safe_dump({"name": "gate", "checks": [_check("device")]}))
    stand_in(ground, monkeypatch)
    ground.join("n1")
    assert ground.prove(["n1"])
    assert ground.nodes.keys("n1") == {"team", "startup"}
    assert "n1 keeps its start-up taint: smoke: unknown: it was not tested" in ground.said
    ground.world.ledger.close()


def test_nodes_without_the_taint_are_left_alone(ground: Ground) -> None:
    ground.join("n1")
    ground.nodes.taint("n1", TEAMS)
    assert ground.prove(["n1"])
    assert ground.nodes.keys("n1") == {"team"}
    assert not any("start-up taint" in line for line in ground.said)


def gpus(tmp_path: Path) -> Ground:
    return Ground(tmp_path, "local-gpus", suite="smoke", depths=Occasions())


@pytest.mark.parametrize(("offered", "admitted"), [("8", True), ("7", False), ("0", False), ("16", False)])
def test_gpus_that_are_missing_from_allocatable_keep_a_node_from_its_test_and_are_told_as_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offered: str, admitted: bool
) -> None:
    ground = gpus(tmp_path)
    stand_in(ground, monkeypatch)
    pool = next(pool for pool in ground.profile.pools if load_hardware(pool.hardware).vendor == "amd")
    ground.join("n1", pool.name, {"amd.com/gpu": offered})
    with standing_in(ground.world):
        monkeypatch.setattr("flows.building.admission.open_cluster", lambda *_: ground.nodes)
        kept = admit_joining(ground.profile, None, ground.said.append)
    assert (ground.nodes.keys("n1"), kept) == (({"team"} if admitted else {"team", "startup"}), {})
    told = [line for line in ground.said if line.startswith("not tested yet: ")]
    assert told == ([] if admitted else [f"not tested yet: n1: {offered} of 8 amd.com/gpu in allocatable"])
    assert bool(ground.script.asked) == admitted
    ground.world.ledger.close()


def test_only_nodes_that_were_asked_for_and_carry_the_taint_are_tested(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("n1", "n2", "n3"):
        ground.join(name)
    ground.nodes.taint("n3", TEAMS)
    ground.script.words = {("n2", "smoke"): VerdictWord.FAIL}
    monkeypatch.setattr("flows.building.admission.open_cluster", lambda *_: ground.nodes)
    with standing_in(ground.world):
        assert admit_joining(ground.profile, ("n1", "n3"), ground.said.append) == {}
        assert ground.script.asked == [("smoke", ("n1",)), ("device", ("n1",))]
        assert ground.nodes.keys("n2") == {"team", "startup"}
        [why] = admit_joining(ground.profile, None, ground.said.append).values()
    assert why.startswith("still tainted, no preflight has passed it (fail: smoke: ")


def test_who_would_meet_nobody_is_measured_beside_a_proven_idle_node(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("n1", "n2", "n3"):
        ground.join(name)
    assert ground.prove(["n2", "n3"])
    monkeypatch.setattr(joining, "_meets", lambda *_: True)
    monkeypatch.setattr(joining, "users", lambda _: {"n2": "r"})
    suite = suite_of(ground.profile)

    def beside(pools: Mapping[str, str], *depths: str) -> list[str]:
        with standing_in(ground.world), using(ground.nodes):
            return list(joining.with_partners(ground.profile, suite, depths, pools, ground.said.append))

    assert beside({"n1": "cpu"}, "smoke", "fabric") == ["n1", "n3"]
    assert beside({"n1": "cpu"}, "smoke") == ["n1"]
    assert beside({"n1": "cpu", "n4": "cpu"}, "fabric") == ["n1", "n4"]
    ground.nodes.taint("n3", OURS)
    assert beside({"n1": "cpu"}, "fabric") == ["n1"]


NODE = st.integers(0, 1)
TEST = st.tuples(
    st.just("prove"),
    st.sampled_from([("smoke",), ("device",), BOTH, BOTH]),
    st.dictionaries(st.tuples(NODE, st.sampled_from(BOTH)), st.sampled_from(WORDS), max_size=2),
    st.one_of(st.none(), st.integers(0, 25)),
    st.one_of(st.none(), st.tuples(NODE, st.sampled_from(BOTH))),
)
CHANGE = st.tuples(st.sampled_from(["anew", "taint", "age"]), NODE)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    made = Ground(tmp_path_factory.mktemp("gate"))
    yield made
    made.world.ledger.close()


class Life:
    """What a node has shown since the taint was put on it: passes of both depths in one test, and nothing less."""

    def __init__(self) -> None:
        self.passed = False
        self.now: set[str] = set()


EXAMPLES = count()


@given(st.lists(st.one_of(TEST, TEST, CHANGE), min_size=1, max_size=5))
@example([("prove", BOTH, {(0, "smoke"): VerdictWord.FAIL}, 5, None)])
@settings(max_examples=25, deadline=None)
def test_no_order_of_failures_admits_an_untested_node(shared: Ground, happened: Sequence[Any]) -> None:
    names = [f"n{next(EXAMPLES)}-{index}" for index in range(2)]
    lives = [Life(), Life()]
    with ExitStack() as stack:
        stand_in(shared, stack.enter_context(pytest.MonkeyPatch.context()))
        shared.script = Script()
        stack.enter_context(pytest.MonkeyPatch.context()).setattr(prove, "try_nodes", shared.script)
        shared.nodes.nodes.clear()
        for name in names:
            shared.join(name)
        # What a test that died held ends by itself.
        for one in (*happened, ("age", 0), ("prove", BOTH, {}, None, None)):
            _happens(shared, names, lives, one)
            for name, life in zip(names, lives, strict=True):
                assert "team" in shared.nodes.keys(name)
                assert life.passed or "startup" in shared.nodes.keys(name), (name, one)
        assert [shared.nodes.keys(name) for name in names] == [{"team"}] * 2, shared.said[-12:]


def _happens(ground: Ground, names: Sequence[str], lives: list[Life], one: Any) -> None:
    match one:
        case ("prove", depths, words, touches, anew):
            for life in lives:
                life.now = set()

            ground.script.amid = partial(_measured, ground, names, lives, words, anew)
            ground.script.words = {(names[index], depth): word for (index, depth), word in words.items()}
            ground.prove(names, depths, float("inf") if touches is None else touches)
        case ("anew", index):
            lives[index] = Life()
            ground.join(names[index])
        case ("taint", index):
            lives[index] = Life()
            ground.nodes.taint(names[index], TEAMS, OURS)
        case _:
            ground.later(30 * HOUR)


def _measured(
    ground: Ground, names: Sequence[str], lives: list[Life], words: Mapping[Any, VerdictWord], anew: Any, depth: str
) -> None:
    """What each node has shown by now; then one of them may be made anew."""
    for index, life in enumerate(lives):
        tested = names[index] in ground.script.asked[-1][1]
        if tested and words.get((index, depth), VerdictWord.PASS) is VerdictWord.PASS:
            life.now.add(depth)
        life.passed |= life.now == set(BOTH)
    if anew is not None and anew[1] == depth:
        lives[anew[0]] = Life()
        ground.join(names[anew[0]])
