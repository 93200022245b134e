"""Progress that ranks report themselves: who may, what is refused, and which source is believed."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.embedded.runtime.processes import children
from tests.support.builders.attempt_plans import a_plan
from tests.support.harness.launcher_harness import PORT, TOKEN, GangOnLoopback, terminate, until
from tests.unit.programs.coordinator.test_fuzz import bodies, scalars
from tests.unit.programs.coordinator.test_http import ask
from workflows.attempt.training import manifests
from workflows.programs.coordinator import journal, service
from workflows.programs.coordinator.rank_reports import ReportFilter
from workflows.programs.coordinator.reducer import advance
from workflows.programs.coordinator.service import Coordinator
from workflows.programs.coordinator.state import REPLICA, LauncherJoined, Member, ReportsReceived, State
from workflows.programs.coordinator.store import ExpectedGang
from workflows.programs.launcher.main import own_token
from workflows.programs.launcher.options import Options, Rendezvous, parse_place
from workflows.programs.launcher.rank_set import rank_environment
from workflows.programs.launcher.reporting import LOOK_SECONDS
from workflows.programs.runtime.http_server import Request, Response
from workflows.programs.runtime.report_token import kept, report_token
from workflows.wire import FILE, PhaseSeen, StepSeen

OWN = report_token(TOKEN, "trainer", 0)
STEP = {"role": "trainer", "pod_index": 0, "rank": 1, "incarnation": 1, "report": "StepSeen", "step": 7}


def gang() -> Coordinator:
    """Two pods of two ranks, both joined."""
    one = Coordinator(ExpectedGang("trainer", 2, 2, 100, 3), {"PRIMUS_TOKEN": TOKEN})
    for index in range(2):
        joined = {"role": "trainer", "pod_index": index, "processes": 2, "pods": 2}
        assert ask(one, "POST", "/v1/join", joined, TOKEN).status == 200
    return one


def post(one: Coordinator, token: str = OWN, **changes: Any) -> Response:
    body = {name: value for name, value in {**STEP, **changes}.items() if value is not ...}
    return ask(one, "POST", "/v1/progress", body, token)


def launched(one: Coordinator, *items: dict[str, Any], sequence: int) -> None:
    """A batch of the launcher of pod 0."""
    body = {"role": "trainer", "pod_index": 0, "sequence": sequence, "reports": list(items)}
    assert ask(one, "POST", "/v1/report", body, TOKEN).status == 200


def rows(one: Coordinator) -> list[int]:
    return [row[0] for row in ask(one, "GET", "/v1/steps", token=TOKEN).body["steps"]]


def test_a_token_of_a_pod_says_nothing_about_another_nor_about_the_attempts() -> None:
    made = {report_token(token, role, index) for token in "ab" for role in ("trainer", "feeder") for index in (0, 1)}
    assert len(made) == 8
    assert all(len(one) == 64 for one in made)
    assert report_token(TOKEN, "trainer", 0) == OWN


def test_a_posted_step_is_progress_at_the_coordinators_time() -> None:
    one = gang()
    answer = post(one, at=5.0, loss=2.5, seconds=0.1, tokens_per_second=9.0)
    assert (answer.status, answer.body) == (200, {"counted": True})
    status = ask(one, "GET", "/status", token=TOKEN).body
    assert (status["step"], status["loss"]) == (7, 2.5)
    assert status["first_step"]["at"] > 1e9
    assert one.store.hangs[0].watch.step == 7
    assert post(one, report="PhaseSeen", phase="checkpoint", detail="x" * 999, step=...).status == 200
    assert one.state.progress.phase == "checkpoint"
    assert one.store.hangs[0].watch.phase == "checkpoint"


@pytest.mark.parametrize(
    ("changes", "status", "said"),
    [
        ({"token": ""}, 401, "token"),
        ({"token": "x"}, 401, "token"),
        ({"token": report_token("another attempt's", "trainer", 0)}, 401, "token"),
        ({"token": report_token(TOKEN, "trainer", 1)}, 401, "not of this role and pod_index"),
        ({"pod_index": 1}, 401, "token"),
        ({"role": "feeder"}, 401, "token"),
        ({"role": "feeder", "token": report_token(TOKEN, "feeder", 0)}, 404, "has not joined"),
        ({"rank": 2}, 403, "rank 2 is not of trainer 0"),
        ({"rank": -1}, 400, "no such number can be"),
        ({"incarnation": 2}, 409, "incarnation 2 is not this one"),
        ({"incarnation": 0}, 409, "incarnation 0"),
        ({"incarnation": ...}, 400, "incarnation: must be given"),
        ({"rank": ...}, 400, "rank: must be given"),
        ({"report": "RankEnd"}, 400, "report: must be one of StepSeen, PhaseSeen"),
        ({"report": ...}, 400, "report: must be one of"),
        ({"report": ["StepSeen"]}, 400, "report: must be one of"),
        ({"step": ...}, 400, "step is missing"),
        ({"step": "7"}, 400, "StepSeen.step: expected int"),
        ({"step": 0}, 400, "no such number can be"),
        ({"step": 10**16}, 400, "no such number can be"),
        ({"step": True}, 400, "StepSeen.step: expected int"),
        ({"loss": "low"}, 400, "StepSeen.loss: expected float"),
        ({"report": "PhaseSeen", "phase": "lunch"}, 400, "phase: must be one of"),
        ({"report": "PhaseSeen"}, 400, "phase is missing"),
        ({"role": 5, "token": TOKEN}, 400, "role: must be a text"),
        ({"pod_index": "0", "token": TOKEN}, 400, "pod_index a whole number"),
        ({"role": "r" * 99, "token": report_token(TOKEN, "r" * 99, 0)}, 401, "token"),
    ],
)
def test_what_is_wrong_is_refused_and_changes_nothing(changes: dict[str, Any], status: int, said: str) -> None:
    one = gang()
    before = one.state
    answer = post(one, **changes)
    assert answer.status == status
    assert said in answer.body["error"]
    assert one.state is before


def test_with_a_ranks_token_there_is_nothing_else() -> None:
    one = gang()
    before = one.state
    for method, path in [*service._ROUTES, ("GET", "/v1/progress"), ("GET", "/x")]:  # pyright: ignore[reportPrivateUsage] - every one that there is
        if (method, path) != ("POST", "/v1/progress"):
            assert ask(one, method, path, STEP, OWN).status == 401, path
    assert one.state is before


def test_without_an_attempts_token_nobody_may_report() -> None:
    one = Coordinator(ExpectedGang("trainer"), {})
    for token in ("", report_token("", "trainer", 0)):
        assert ask(one, "POST", "/v1/progress", STEP, token).status == 401


def test_posts_leave_the_launchers_numbers_alone() -> None:
    one = gang()
    launched(one, {"report": "PhaseSeen", "phase": "init", "at": 5.0}, sequence=4)
    for step in range(1, 9):
        assert post(one, rank=0, step=step).status == 200
    assert one.state.members["trainer", 0].sequence == 4
    launched(one, {"report": "PhaseSeen", "phase": "evaluation", "at": 6.0}, sequence=4)
    assert one.state.progress.phase == "step"  # said once already
    launched(one, {"report": "PhaseSeen", "phase": "evaluation", "at": 6.0}, sequence=5)
    assert one.state.progress.phase == "evaluation"


def test_what_a_rank_prints_counts_before_what_it_posts() -> None:
    one = gang()
    launched(one, {"report": "StepSeen", "step": 1, "at": 5.0, "rank": 0}, sequence=1)
    assert post(one, rank=0, step=2).body == {"counted": False}
    assert post(one, rank=0, report="PhaseSeen", phase="checkpoint").body == {"counted": False}
    assert rows(one) == [1]
    assert post(one, rank=1, step=2).body == {"counted": True}  # another rank, which prints none


def test_a_rank_that_posts_and_prints_is_counted_once_and_believed_by_what_it_prints() -> None:
    one = gang()
    for step in (1, 2, 3):
        assert post(one, rank=0, step=step).body == {"counted": True}
    # What it printed meanwhile comes later, since launchers gather it: it is no way back.
    printed = [{"report": "StepSeen", "step": step, "at": 5.0, "rank": 0} for step in (1, 2, 3, 4)]
    launched(one, *printed, sequence=1)
    assert post(one, rank=0, step=5).body == {"counted": False}
    launched(one, {"report": "StepSeen", "step": 5, "at": 6.0, "rank": 0}, sequence=2)
    assert rows(one) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("by", ["post", "print"])
def test_a_file_that_grows_counts_only_until_somebody_tells_a_step(by: str) -> None:
    one = gang()
    grown = {"report": "PhaseSeen", "phase": "step", "at": 5.0, "rank": 0, "detail": "/f has 5 bytes", "source": FILE}
    launched(one, grown, sequence=1)
    assert one.state.progress.phase_at == 5.0
    if by == "post":
        post(one, rank=0, step=1)
    else:
        launched(one, {"report": "StepSeen", "step": 1, "at": 5.5, "rank": 0}, sequence=2)
    told = one.state.progress
    launched(one, {**grown, "at": 9e9}, sequence=3)
    assert one.state.progress is told
    assert one.state.members["trainer", 0].sequence == 3


def test_in_the_next_incarnation_trust_is_earned_anew() -> None:
    trust, key = ReportFilter(), ("trainer", 0)
    printed = ReportsReceived(5.0, key, 1, (StepSeen(9, 5.0, 0),))
    first, second = State("trainer"), State("trainer", incarnation=2)
    assert trust.filter_event(first, printed) is printed
    again = ReportsReceived(6.0, key, 1, (StepSeen(3, 6.0, 0, incarnation=2),), posted=True)
    assert trust.filter_event(first, ReportsReceived(5.5, key, 1, (StepSeen(10, 5.5, 0),), posted=True)).reports == ()
    assert trust.filter_event(second, again) is again
    grown = ReportsReceived(7.0, key, 2, (PhaseSeen("step", 7.0, 0, "grown", 2, FILE), PhaseSeen("evaluation", 7.0, 0)))
    assert [one.phase for one in trust.filter_event(second, grown).reports] == ["evaluation"]


def test_each_gang_has_an_incarnation_of_its_own() -> None:
    one = Coordinator(ExpectedGang("trainer", 2, 2, 100, 3, scope=REPLICA, replica_groups=2), {"PRIMUS_TOKEN": TOKEN})
    for index in range(2):
        joined = {"role": "trainer", "pod_index": index, "processes": 2, "pods": 2, "incarnation": 1 + index}
        assert ask(one, "POST", "/v1/join", joined, TOKEN).status == 200
    assert [gang.incarnation for gang in one.store.gangs.states] == [1, 2]
    second: dict[str, Any] = {"pod_index": 1, "rank": 2, "token": report_token(TOKEN, "trainer", 1)}
    assert post(one).status == 200
    assert post(one, **second).status == 409
    assert post(one, **second, incarnation=2).body == {"counted": True}
    assert [gang.progress.step for gang in one.store.gangs.states] == [7, 7]
    foreign: dict[str, Any] = {**second, "rank": 1}
    assert post(one, **foreign, incarnation=2).status == 403
    printed = {"report": "StepSeen", "step": 8, "at": 5.0, "rank": 0}
    launched(one, printed, sequence=1)
    assert post(one, rank=0, step=9).body == {"counted": False}
    assert post(one, **second, incarnation=2, step=9).body == {"counted": True}


def test_a_rank_of_a_further_replica_group_is_told_its_number_over_all_of_them() -> None:
    base = {"PRIMUS_TOKEN": TOKEN, "PRIMUS_REPORT_TOKEN_FILE": "/tmp/token", "PRIMUS_POD_INDEX": "3"}
    options = Options("trainer", pods=4, processes_per_node=2, world_size=8, replica_groups=2)
    got = rank_environment(base, options, parse_place(base), Rendezvous(1, "127.0.0.1", 29500, 6), 1)
    assert (got["RANK"], got["PRIMUS_RANK"], got["PRIMUS_POD_INDEX"]) == ("3", "7", "3")


def test_posts_of_a_helping_role_are_no_progress() -> None:
    one = gang()
    assert ask(one, "POST", "/v1/join", {"role": "feeder", "pod_index": 0, "essential": False}, TOKEN).status == 200
    answer = post(one, role="feeder", rank=0, token=report_token(TOKEN, "feeder", 0))
    assert (answer.status, answer.body) == (200, {"counted": False})
    assert one.state.progress.step is None


def test_what_was_posted_is_known_to_a_coordinator_that_is_started_again(tmp_path: Path) -> None:
    path, one = str(tmp_path / "journal.jsonl"), gang()
    one.open_journal(path)
    for index in range(2):
        ask(one, "POST", "/v1/join", {"role": "trainer", "pod_index": index, "processes": 2, "pods": 2}, TOKEN)
    launched(one, {"report": "PhaseSeen", "phase": "init", "at": 5.0}, sequence=4)
    for step in (1, 2, 3):
        post(one, rank=0, step=step)
    one.close()
    assert OWN not in Path(path).read_text()
    again = Coordinator(ExpectedGang("trainer", 2, 2, 100, 3), {"PRIMUS_TOKEN": TOKEN})
    again.open_journal(path)
    again.close()
    assert (again.state.progress.step, rows(again)) == (3, [1, 2, 3])
    assert again.state.members["trainer", 0].sequence == 4


def test_a_post_is_written_down_as_what_it_is() -> None:
    posted = ReportsReceived(5.0, ("trainer", 0), 4, (StepSeen(7, 5.0, 1, loss=2.0),), posted=True)
    assert journal.from_line(journal.to_line(posted)) == posted
    plain = ReportsReceived(5.0, ("trainer", 0), 4, ())
    assert "posted" not in journal.to_line(plain)
    assert journal.from_line(journal.to_line(plain)) == plain


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 6), st.integers(1, 9)), max_size=20))
def test_a_batch_of_the_launcher_counts_once_whatever_is_posted_between(history: list[tuple[bool, int, int]]) -> None:
    state, key, seen = (
        advance(State("trainer"), LauncherJoined(0.0, Member("trainer", 0))).state,
        ("trainer", 0),
        set[int](),
    )
    for posted, sequence, step in history:
        own = state.members[key].sequence if posted else sequence
        before = state
        state = advance(state, ReportsReceived(1.0, key, own, (StepSeen(step, 1.0, 0),), posted=posted)).state
        if not posted and sequence <= max(seen, default=0):
            assert state is before
        if not posted:
            seen.add(sequence)
        assert state.members[key].sequence == max(seen, default=0)


fuzzed = st.dictionaries(
    st.sampled_from([*STEP, "phase", "at", "loss", "seconds", "total_steps", "detail", "source"]), scalars, max_size=6
)


@settings(max_examples=200)
@given(fuzzed | bodies, st.booleans(), st.sampled_from([OWN, TOKEN, "x", ""]))
def test_no_malformed_post_breaks_the_coordinator_or_is_believed(
    more: dict[str, Any], likely: bool, token: str
) -> None:
    one = gang()
    body = {**STEP, **more} if likely else more
    before = one.state
    answer = one.handle(Request("POST", "/v1/progress", {}, token, body))
    assert isinstance(answer, Response)
    assert answer.status in (200, 400, 401, 403, 404, 409)
    assert answer.status == 401 or token in (OWN, TOKEN)
    if answer.status != 200:
        assert answer.body["error"]
        assert one.state is before
    assert not one.state.orders
    assert one.state.incarnation == 1
    assert [one.sequence for one in one.state.members.values()] == [0, 0]
    json.dumps(ask(one, "GET", "/status", token=TOKEN).body, allow_nan=False)


def test_only_ranks_of_a_gang_get_a_token_and_by_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    base = {"PRIMUS_TOKEN": TOKEN, "PRIMUS_COORDINATOR_URL": "http://c:1", "PRIMUS_POD_INDEX": "3"}
    meeting, options = Rendezvous(1, "127.0.0.1", 29500, 3), Options("trainer")
    own = own_token(options, parse_place(base))
    assert own == report_token(TOKEN, "trainer", 3)
    with kept(own) as path:
        found = Path(path)
        assert (found.read_text(), found.stat().st_mode & 0o777) == (own, 0o600)
        assert found.parent.stat().st_mode & 0o777 == 0o700
        got = rank_environment({**base, "PRIMUS_REPORT_TOKEN_FILE": path}, options, parse_place(base), meeting, 0)
        assert got["PRIMUS_REPORT_TOKEN_FILE"] == path
        assert not any(secret in value for secret in (TOKEN, own) for value in got.values())
    assert list(tmp_path.iterdir()) == []
    for missing in ("PRIMUS_TOKEN", "PRIMUS_COORDINATOR_URL"):
        with kept(own_token(options, parse_place({**base, missing: ""}))) as path:
            less = {**base, missing: "", "PRIMUS_REPORT_TOKEN_FILE": path}
            assert "PRIMUS_REPORT_TOKEN_FILE" not in rank_environment(less, options, parse_place(less), meeting, 0)
    # It is made where ranks are started, so nothing that is sent to a cluster or printed by `primus render` has it.
    assert "PRIMUS_REPORT_TOKEN" not in json.dumps(manifests(a_plan()))


def test_where_no_file_can_be_written_nobody_reports_and_training_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "gone"))
    with kept("a token") as path:
        assert path == ""


GUIDE = Path(__file__).parents[4] / "docs" / "bring-your-own-trainer.md"
EXAMPLE = GUIDE.read_text().partition("Where nothing can be printed")[2].partition("```python")[2].partition("```")[0]
POSTS = (
    f"{EXAMPLE}"
    """
import time
def wait():
    while not os.path.exists(os.environ["GO"]):
        time.sleep(0.01)
if os.environ["RANK"] == "1":
    wait()
for step in range(1, int(os.environ["STEPS"]) + 1):
    report(step, loss=1.0 / step)
    if step == int(os.environ["HOLD"]):
        wait()
"""
)


@pytest.fixture
def loopback(tmp_path: Path) -> Iterator[GangOnLoopback]:
    one = GangOnLoopback(tmp_path)
    one.environment["PRIMUS_COORDINATOR_URL"] = f"http://{one.net}.1:{PORT}"
    one.trainer.write_text(POSTS)
    yield one
    one.close()


def test_a_trainer_that_prints_nothing_and_posts_is_followed(loopback: GangOnLoopback) -> None:
    boss = loopback.coordinate(pods=2)
    told = {"STEPS": "9", "HOLD": "6", "GO": str(loopback.folder / "go")}
    flags = ("--framework=none", "--steps=9")
    command = [sys.executable, "-S", str(loopback.trainer)]
    pods = [loopback.launch(index, *flags, pods=2, command=command, **told) for index in (0, 1)]  # pyright: ignore[reportArgumentType] - variables are in capitals
    until(lambda: loopback.ask("/status").get("step") == 6, "step 6")
    status = loopback.ask("/status")
    assert (status["phase"], status["first_step"]["step"]) == ("step", 1)
    # A pod's token is not the other pod's, and stops nobody.
    ranks = loopback.ranks()
    environments = [Path(f"/proc/{ranks[rank]}/environ").read_bytes() for rank in (0, 1)]
    names = [one.partition(b"PRIMUS_REPORT_TOKEN_FILE=")[2].partition(b"\0")[0].decode() for one in environments]
    tokens = [Path(name).read_text() for name in names]
    assert tokens == [report_token(TOKEN, "trainer", 0), report_token(TOKEN, "trainer", 1)]
    # What a rank prints with `env` holds none, nor what any other child of a launcher does.
    for pod in pods:
        for child in children(pod.process.pid):
            for secret in (*tokens, TOKEN):
                assert secret.encode() not in Path(f"/proc/{child}/environ").read_bytes()
    (loopback.folder / "go").write_text("")
    assert [pod.end() for pod in pods] == [0, 0]
    assert [row[0] for row in loopback.ask("/v1/steps?since=0")["steps"]] == list(range(1, 10))
    terminate(boss)
    assert boss.end() == 0
    written = [path.read_text(errors="replace") for path in loopback.run_dir.rglob("*") if path.is_file()]
    for text in [*written, boss.text, *(pod.text for pod in pods)]:
        assert not any(secret in text for secret in (*tokens, TOKEN))
    assert not any(Path(name).exists() for name in names), "with the pod's end it is gone"


GROWS = """
import os, time
ending = None
while ending is None or time.monotonic() < ending:
    with open(os.environ["FILE"], "a") as file:
        file.write("more")
    time.sleep(0.02)
    if ending is None and os.path.exists(os.environ["GO"]):
        print('@primus {"report": "StepSeen", "step": 1}', flush=True)
        ending = time.monotonic() + 2.5 * LOOK
"""


def test_a_launcher_tells_of_a_growing_file_until_a_rank_tells_a_step(loopback: GangOnLoopback) -> None:
    loopback.trainer.write_text(GROWS.replace("LOOK", str(LOOK_SECONDS)))
    grown, go = str(loopback.folder / "grown"), loopback.folder / "go"
    flags = ("--framework=file", f"--progress-file={grown}")
    pod = loopback.alone(*flags, command=[sys.executable, "-S", str(loopback.trainer)], FILE=grown, GO=str(go))
    pod.says("bytes")
    go.write_text("")
    assert pod.end() == 0
    told = pod.reports()
    at = next(place for place, one in enumerate(told) if isinstance(one, StepSeen))
    by_file = [place for place, one in enumerate(told) if isinstance(one, PhaseSeen) and one.source == FILE]
    assert by_file
    assert max(by_file) < at
