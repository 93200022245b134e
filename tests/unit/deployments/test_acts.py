"""Every act of a person stands in the ledger with who did it and how that is known, and no caller chooses his name."""

from __future__ import annotations

import base64
import json
import os
import pwd
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import httpx
import pytest
import yaml
from prefect.client.schemas.objects import CreatedBy, FlowRun
from prefect.settings import PREFECT_API_AUTH_STRING, temporary_settings

from deployments import api
from deployments.cli import automations, demo, incidents, monitor, train, up, workflow
from deployments.cli.app import DIRECT
from deployments.cli.commands import GROUPS
from deployments.exit_codes import FAILED, GOOD
from deployments.processes import flow_run
from deployments.processes.runner import Runner
from flows import drill as drill_flow
from flows import failover as failover_flow
from flows import preflight as preflight_flow
from flows.building.site import KubeadmHosts
from profiles.drill import parse_fault
from profiles.errors import Conflict, NotFound, Unavailable
from profiles.loading.load import dump, load_cluster
from profiles.request import TrainRequest
from profiles.vocabulary import KnownBy, RunState
from tasks import processes
from tasks.clusters import embedded_cluster
from tasks.ledger.ledger import Ledger
from tasks.prefect import automations as callers
from tasks.processes import own_user
from tasks.runs import execute, faults
from tasks.runs.open import open_run
from tasks.settings import Settings, localised
from tests.support.builders import host_sights
from tests.support.builders.kubeadm_cluster import kubeadm_cluster, release
from tests.support.builders.kubeadm_cluster import sight_of as control_sight
from tests.support.builders.ledgers import a_person
from workflows.bootstrap.building import BuildingSight
from workflows.model.bootstrap import builder_of
from workflows.model.nodes import people_of
from workflows.model.records import Actor, ApprovalRecord, AttemptRecord, Driver, IncidentRecord

ME = Actor(f"{pwd.getpwuid(os.getuid()).pw_name}@{socket.gethostname()}", KnownBy.OS_USER)
ROOT = Path(__file__).parents[3]
MALLORY = "mallory"
Say = Callable[..., tuple[int, str, str]]
Json = dict[str, Any]

READERS = {
    "primus": "status runs logs checkpoints report verdict fleet why queue incidents diagnose ledger approvals doctor"
    " lint init config completion",
    "profiles": "list show validate",
    "render": "train preflight monitor health workspace bootstrap",
    "bootstrap": "import mirror",
    "clusters": "list show import",
    "workflow": "list show logs",
    "health": "serve",
}
"""They change no run, node or automation. Imports and `bootstrap mirror` write files, `health serve` answers for one
node."""
FORMS_THAT_READ = {"report"}


@pytest.fixture
def ledger(settings: Settings) -> Iterator[Ledger]:
    opened = Ledger(settings.ledger_url)
    open_run(TrainRequest(profile="demo", name="night"), settings, opened, time.time())
    lease = opened.acquire("night", Driver("elsewhere", 1, 1.0), time.time() - 600.0, lambda _: None)
    opened.plan_attempt(lease.fencing, AttemptRecord("night", 1, time.time(), "first", nodes=("node-0", "node-1")))
    asked = ApprovalRecord("q-1", "night", "night-a1-i1", "go on?", "waiting", time.time(), time.time() + 900.0)
    opened.ask(lease.fencing, asked)
    opened.release(lease)
    yield opened
    opened.close()


class SomeDriver:
    """A driver that nobody needs here."""

    def drive(self, run: str) -> int:
        return 4711

    def dismiss(self) -> None:
        """Nothing was begun."""


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, settings: Settings, tmp_path: Path) -> Iterator[None]:
    """Without what acts bring about: drivers, servers, faults, tests of nodes. Ledger and cluster are real."""

    def nothing(*_: Any, **__: Any) -> Any:
        return []

    for module in (api, train, demo):
        monkeypatch.setattr(module, "prepare_driver", lambda *_: SomeDriver())
    for module in (api, demo):
        monkeypatch.setattr(module, "ensure_console", lambda _: "http://127.0.0.1:9/api")
    for module in (train, demo):
        monkeypatch.setattr(module, "follow", lambda *_: RunState.SUCCEEDED)
    monkeypatch.setattr(api, "warm_up", nothing)
    monkeypatch.setattr(incidents, "ensure_console", lambda _: "http://127.0.0.1:9/api")
    monkeypatch.setattr(faults, "wait_for", nothing)
    monkeypatch.setattr(faults, "cause", lambda *_: time.time())
    monkeypatch.setattr(faults, "scene_of", nothing)
    monkeypatch.setattr(faults, "step_seen", lambda _: 1)
    drilled = dict.fromkeys(("detected_after_seconds", "resumed_after_seconds", "attempt", "action"))
    drilled |= {"fault": "kill-rank:1", "recovered": True, "why": "for a test"}
    monkeypatch.setattr(execute, "place_of", lambda *_: SimpleNamespace(role="trainer"))
    monkeypatch.setattr(execute, "execute", lambda *_: 0)
    monkeypatch.setattr(drill_flow, "measure", lambda *_: drilled)
    monkeypatch.setattr(preflight_flow, "prove", nothing)
    monkeypatch.setattr(preflight_flow, "prove_due", nothing)
    report = SimpleNamespace(faults=0, unknown=0)
    monkeypatch.setattr(monitor, "_once", lambda *_: monitor.Once(report))  # pyright: ignore[reportArgumentType]
    monkeypatch.setattr(monitor, "text", lambda *_: "nothing is wrong")
    monkeypatch.setattr(up, "services_up", lambda *_: "http://127.0.0.1:9/api")
    monkeypatch.setattr(up, "stop_console", lambda _: ["server"])
    there = SimpleNamespace(get=lambda *_: WORKFLOW, patch=nothing, delete=nothing)
    monkeypatch.setattr(workflow, "open_cluster", lambda *_: there)
    for name in ("check_workflow", "submit_workflow"):
        monkeypatch.setattr(workflow, name, nothing)
    monkeypatch.setattr(workflow, "_watched", lambda *_: {"status": {"phase": "Succeeded", "nodes": {}}})
    monkeypatch.setattr(automations, "settle", lambda *_, **__: [automations.Row("primus: tell", "created", "x")])
    (tmp_path / "hello.yaml").write_text(yaml.safe_dump(WORKFLOW))
    engine = {"kind": "kubeadm", "release": str(tmp_path / "release.yaml")}
    hosts = kubeadm_cluster(install_components=False, engine=engine)
    (tmp_path / "release.yaml").write_text(dump(release()))
    (tmp_path / "made.yaml").write_text(dump(hosts))
    looked = BuildingSight(1.0, host_sights.sight_of(hosts, pairs=False), control_sight(hosts, release()))
    monkeypatch.setattr(KubeadmHosts, "look", lambda *_, **__: looked)
    made = embedded_cluster(localised(load_cluster("local"), settings.home), settings.home)
    yield
    made.stop()


WORKFLOW = {
    "apiVersion": "argoproj.io/v1alpha1",
    "kind": "Workflow",
    "metadata": {"name": "hello"},
    "spec": {"entrypoint": "main", "templates": [{"name": "main", "suspend": {}}]},
}
RUN, PEOPLE = "night", people_of("local")
ACTS: list[tuple[str, str, str]] = [
    ("train demo --name night --detach", RUN, "act train"),
    ("train demo --name new --detach", "new", "run new"),
    ("run --name quick --set roles.trainer.working_directory= --detach -- true", "quick", "run quick"),
    ("train demo --name night --tag team=vision --detach", RUN, "act tags"),
    ("train demo --name night --mode observe --detach", RUN, "mode night"),
    ("stop night --why enough", RUN, "request "),
    ("resume night --detach", RUN, "act resume"),
    ("resume night --mode observe --detach", RUN, "mode night"),
    ("pause night --why look", RUN, "paused night"),
    ("unpause night", RUN, "act unpause"),
    ("pause --all --why fabric", RUN, "paused night"),
    ("unpause --all", "", "act unpause"),
    ("approve q-1 --why spare", RUN, "approval q-1"),
    ("deny q-1 --why no", RUN, "approval q-1"),
    ("nodes cordon node-3 --why loud", PEOPLE, "act cordon node-3"),
    ("nodes release node-3 --why mended", PEOPLE, "act release node-3"),
    ("preflight --depth smoke", PEOPLE, "act preflight"),
    ("drill night --fault kill-rank:1", RUN, "act drill kill-rank:1"),
    ("exec night --rank 1 -- env", RUN, "act exec"),
    ("failover lost", "lost", "act failover"),
    ("monitor --once --mode act", PEOPLE, "act monitor"),
    ("up", "", "act up"),
    ("down", "", "act down"),
    ("automations --apply", "", "act automations"),
    ("gc", "", "act gc"),
    ("bootstrap {home}/made.yaml --check", builder_of("made"), "act bootstrap"),
    ("workflow run {home}/hello.yaml", PEOPLE, "act workflow run hello"),
    ("workflow stop hello", PEOPLE, "act workflow stop hello"),
    ("workflow delete hello", PEOPLE, "act workflow delete hello"),
]
"""Command line, run (or people of a cluster) that it is written about, beginning of the line: kind and subject."""


def full_name(group: str, name: str) -> str:
    """As it is typed: what a group does with its subject at once has no name of its own."""
    return name if group == "primus" else group if name == DIRECT.get(group) else f"{group} {name}"


def commands() -> set[str]:
    """Every command, with its group where it has one."""
    return {
        full_name(group, name)
        for group, sections in GROUPS.items()
        for section in sections.values()
        for name, command in section.items()
        if command.module
    }


def test_each_command_either_only_reads_or_is_an_act_that_is_tried_here_and_told_in_the_documents() -> None:
    tried = {" ".join(words.split()[:2]) if words.startswith("workflow") else words.split()[0] for words, *_ in ACTS}
    readers = {full_name(group, name) for group, names in READERS.items() for name in names.split()}
    assert tried | {"demo"} == commands() - readers
    page = (ROOT / "docs" / "on-call.md").read_text().partition("## Who did it")[2].partition("\n## ")[0]
    rows = [row.split("|") for row in page.partition("| act |")[2].splitlines()[2:] if row.startswith("|")]
    assert {name for row in rows for name in re.findall(r"`([^`]+)`", row[2])} == tried | {"demo"}
    forms = {name for row in rows for name in re.findall(r"flow run of `([^`]+)`", row[3])}
    flows = {
        item["entrypoint"].rpartition(".")[2]
        for item in yaml.safe_load((ROOT / "deployments" / "prefect.yaml").read_text())["deployments"]
    }
    assert forms == flows - FORMS_THAT_READ


@pytest.mark.parametrize("act", ACTS, ids=lambda act: act[0])
def test_each_command_that_does_something_is_told_with_who_did_it(
    say: Say,
    world: None,
    ledger: Ledger,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    act: tuple[str, str, str],
) -> None:
    words, about, line = act

    async def decided(_: str) -> str:
        return "none: for a test"

    if words.startswith("failover"):
        monkeypatch.setattr(failover_flow, "failover", decided)
        open_run(TrainRequest(profile="demo", name="lost"), settings, ledger, time.time())
        ledger.open_incident(None, IncidentRecord("lost-a1-i1", "lost", 1, 1.0, 1.0, "pod-failed"))
    if words.startswith("automations"):
        monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")  # nothing of it is asked for
    before = len(list(ledger.history()))
    code, _, err = say(*words.format(home=settings.home).split())
    assert code in (GOOD, FAILED), err
    new = list(ledger.history())[before:]
    told = [item for item in new if item.by is not None]
    assert [item for item in told if item.run == about and f"{item.kind} {item.subject}".startswith(line)], new
    assert {item.by for item in told} == {ME}
    people = [item for item in new if item.kind in ("run", "mode", "request", "paused", "unpaused", "act")]
    assert all(item.by == ME for item in people)
    rows = json.loads(say("ledger", "--json")[1])[before:]
    assert {(row["by"], row["known_by"], row["claim"]) for row in rows if row["by"]} == {(ME.name, "os-user", None)}
    assert f"by {ME}" in say("ledger")[1]
    if about in (RUN, "new", "lost"):
        document = json.loads(say("status", about, "--json")[1])
        assert {(row["by"], row["known_by"]) for row in document["acts"]} == {(ME.name, "os-user")}
        assert f"by {ME}: " in say("status", about)[1].partition("what people did:")[2]


def test_a_demo_and_what_it_breaks_are_its_persons(world: None, ledger: Ledger, settings: Settings) -> None:
    run = demo._train(settings, ledger, "http://127.0.0.1:9/api", lose_node=False)
    assert [act.by for act in ledger.story(run).acts] == [ME]
    faults.break_at(run, parse_fault("lose-node:node-1"), settings, ledger, own_user())
    assert [act.what for act in ledger.story(run).acts] == ["train", "drill lose-node:node-1"]


ENVIRONMENTS: list[dict[str, str]] = [
    {name: MALLORY} for name in ("LOGNAME", "USER", "LNAME", "USERNAME", "GIT_AUTHOR_NAME", "PRIMUS_USER")
]
ENVIRONMENTS += [{"SUDO_USER": MALLORY, "SUDO_UID": "4711"}, {"HOME": "{home}", "XDG_CONFIG_HOME": "{home}"}]
ENVIRONMENTS += [{"HOSTNAME": MALLORY, "EMAIL": f"{MALLORY}@example.org"}]


@pytest.mark.parametrize("environment", ENVIRONMENTS, ids=lambda found: next(iter(found)))
def test_no_variable_and_no_file_of_the_caller_becomes_a_name(
    say: Say, ledger: Ledger, settings: Settings, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> None:
    (settings.home / ".gitconfig").write_text(f"[user]\n name = {MALLORY}\n")
    for name, value in environment.items():
        monkeypatch.setenv(name, value.format(home=settings.home))
    code, _, err = say("approve", "q-1", "--why", "the rack is back")
    assert code == GOOD
    given = ledger.approval("q-1")
    assert given is not None
    assert (given.answered_by, given.by) == (ME.name, ME)
    assert not any(MALLORY in str(item) for item in ledger.history())
    assert ("sudo changes the real user id" in err) is ("SUDO_USER" in environment)


def test_what_is_typed_as_a_reason_stands_behind_the_name_and_in_one_line(say: Say, ledger: Ledger) -> None:
    forged = f"x\n2026-01-01T00:00:00.000Z  night  approval  q-1  by {MALLORY}@host (os-user)\x1b[2K"
    assert say("approve", "q-1", "--why", forged)[0] == GOOD
    for shown in (say("ledger")[1], say("status", "night")[1]):
        [line] = [line for line in shown.splitlines() if MALLORY in line and str(ME) in line][-1:]
        assert line.index(str(ME)) < line.index(MALLORY)
        assert "\x1b" not in shown
    say("pause", "night", "--why", f"{MALLORY}@host (os-user): look")
    assert json.loads(say("status", "night", "--json")[1])["paused_why"].startswith(f"{ME}: ")


ASK = f"import sys; sys.path[:0] = {sys.path!r}; from tasks.processes import own_user; print(own_user())"
HERE = socket.gethostname()


def asked(*before: str, **environment: str) -> str:
    """What the product calls the user of a process that is started so."""
    words = [*before, os.path.realpath(sys.executable), "-c", ASK]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env={**os.environ, **environment})
    if done.returncode:
        pytest.skip(f"this machine does not let us: {done.stderr.strip()[-200:]}")
    return done.stdout.strip()


def test_a_user_id_without_a_name_is_called_by_number() -> None:
    assert asked("setpriv", "--reuid", "54321", "--clear-groups") == f"uid-54321@{HERE} (os-user)"


def test_where_anybody_may_be_root_nobody_is_believed() -> None:
    assert asked("unshare", "--user", "--map-root-user") == f"uid-0@{HERE} (unverified)"
    assert asked("unshare", "--user") == f"uid-65534@{HERE} (unverified)"


def test_a_library_that_answers_for_the_system_names_nobody() -> None:
    assert asked(LD_PRELOAD="/nonexistent/libnss_wrapper.so") == f"uid-{os.getuid()}@{HERE} (os-user)"


def test_a_file_of_the_callers_own_names_nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    theirs = tmp_path / "passwd"
    theirs.write_text(f"{MALLORY}:x:{os.getuid()}:0::/:/bin/sh\n")
    os.chown(theirs, 54321 if os.getuid() == 0 else -1, -1)
    monkeypatch.setattr(processes, "USERS", theirs)
    assert str(own_user()) == f"uid-{os.getuid()}@{HERE} (os-user)"
    laid_over = asked("unshare", "--mount", "sh", "-c", f'mount --bind {theirs} /etc/passwd && exec "$@"', "sh")
    assert laid_over == f"uid-{os.getuid()}@{HERE} (os-user)"


@pytest.mark.parametrize(
    "name", ["a b", "r\u043e\u043et", "eve\x1b[2K", "x" * 65, "root (os-user)", "", "new\nline", "\u202etoor"]
)
def test_a_name_that_people_could_misread_is_its_number(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(pwd, "getpwuid", lambda _: SimpleNamespace(pw_name=name))
    assert str(own_user()) == f"uid-{os.getuid()}@{HERE} (os-user)"


FORGED = f'{MALLORY}" (os-user) by root@{HERE}\n\x1b[2K'


def a_flow_run(**more: Any) -> FlowRun:
    """Of the server, with everything that its caller may choose."""
    made_by = CreatedBy(id=uuid4(), type="AUTOMATION", display_value=FORGED)
    given: Json = {"name": MALLORY, "tags": [MALLORY, f"run:{MALLORY}"], "labels": {"user": MALLORY}}
    return FlowRun.model_validate(
        {"flow_id": uuid4(), "deployment_id": uuid4(), "created_by": made_by, **given, **more}
    )


@pytest.mark.parametrize(("password", "known_by"), [("admin:secret", "server-password"), (None, "unverified")])
def test_whoever_holds_the_servers_password_is_nobody_whatever_he_says(password: str | None, known_by: str) -> None:
    with temporary_settings({PREFECT_API_AUTH_STRING: password}):
        found = callers.server_caller(a_flow_run())
        assert (found.name, str(found.known_by)) == (callers.UNKNOWN_PERSON, known_by)
        assert callers.server_caller() == Actor("prefect", KnownBy(known_by))
    assert "\n" not in found.claim
    assert "\x1b" not in found.claim
    said = str(found)
    assert said.startswith(f"prefect ({known_by}, says: \"mallory' [os-user] by root@")
    assert said.count("(os-user)") == 0
    assert said.endswith('")')


FORMS: dict[str, tuple[Json, str, str]] = {
    "approve": ({"approval": "q-1", "answer": "approve", "why": f"by {MALLORY}"}, RUN, "approval q-1"),
    "drill": ({"run": RUN, "fault": "kill-rank:1"}, RUN, "act drill kill-rank:1"),
    "failover": ({"run": "lost"}, "lost", "act failover"),
    "monitor": ({"mode": "observe"}, PEOPLE, "act monitor"),
    "preflight": ({"depth": "smoke"}, PEOPLE, "act preflight"),
}
"""Flow: what its form was filled in with, and what is written about which run."""


def asked_for(api: str, flow: str, parameters: Json) -> str:
    """Id of a flow run that somebody asks the server for, with every name that he can give himself."""
    name = base64.b64encode(FORGED.encode()).decode()
    headers = {"Prefect-Automation-Id": str(uuid4()), "Prefect-Automation-Name": name, "X-Forwarded-User": MALLORY}
    with httpx.Client(base_url=api, headers=headers) as client:
        made = client.post("/flows/", json={"name": flow}).raise_for_status().json()["id"]
        given = {"name": f"acts-{uuid4().hex[:8]}", "flow_id": made, "entrypoint": f"flows.{flow}.{flow}"}
        deployment = client.post("/deployments/", json=given).raise_for_status().json()["id"]
        asking = {"parameters": parameters, "name": MALLORY, "tags": [MALLORY], "labels": {"user": MALLORY}}
        for _ in range(10):  # Prefect's own way of writing refuses now and then; a home's own server does not
            answer = client.post(f"/deployments/{deployment}/create_flow_run", json=asking)
            if answer.status_code != 503:
                break
        asked = answer.raise_for_status().json()
    assert asked["created_by"]["display_value"] == FORGED, "the server believes it"
    return asked["id"]


@pytest.mark.parametrize("flow", FORMS)
def test_each_form_of_the_server_is_a_strangers_who_holds_its_password(
    prefect_server: str,
    world: None,
    ledger: Ledger,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    flow: str,
) -> None:
    async def recovered(*_: Any) -> None:
        """Nothing is to be decided here."""

    monkeypatch.setattr(failover_flow, "recover", recovered)
    open_run(TrainRequest(profile="demo", name="lost"), settings, ledger, time.time())
    ledger.open_incident(None, IncidentRecord("lost-a1-i1", "lost", 1, 1.0, 1.0, "pod-failed"))
    parameters, about, line = FORMS[flow]
    identity = asked_for(prefect_server, flow, parameters)
    with temporary_settings({PREFECT_API_AUTH_STRING: "admin:secret"}):
        assert flow_run.run_plain(identity, f"flows.{flow}.{flow}") == 0
    told = [item for item in ledger.history() if item.by is not None]
    assert [item for item in told if item.run == about and f"{item.kind} {item.subject}".startswith(line)], told
    assert {(item.by.name, item.by.known_by) for item in told if item.by} == {("prefect", KnownBy.SERVER_PASSWORD)}
    assert {item.by.claim for item in told if item.by} == {Actor("", KnownBy.UNVERIFIED, FORGED).claim}
    if flow == "approve":
        given = ledger.approval("q-1")
        assert given is not None
        assert (given.answered_by, given.answerer) == ("prefect", told[-1].by)


def test_a_run_and_its_end_that_the_server_is_asked_for_are_a_strangers(ledger: Ledger, settings: Settings) -> None:
    inline = {"request": {"profile": "demo", "name": "theirs", "mode": "observe"}}
    server: Any = SimpleNamespace(belongs=lambda *_: None, of_run=lambda _: [])
    with temporary_settings({PREFECT_API_AUTH_STRING: "admin:secret"}):
        for _ in range(2):
            assert flow_run._open(a_flow_run(parameters=inline), settings, ledger, server) in ("theirs", None)
            server.leaves = server.drop = lambda *_: None
        runner: Any = SimpleNamespace(now=time.time, ledger=ledger, asked=set())
        Runner._ask_to_stop(runner, "f" * 36, "theirs")
    acts = ledger.story("theirs").acts
    assert [act.what for act in acts] == ["train", "train", "stop"]
    assert {(act.by.name, act.by.known_by) for act in acts} == {("prefect", KnownBy.SERVER_PASSWORD)}


def test_a_timetable_and_a_program_of_ours_are_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    for found in (None, a_flow_run(created_by=CreatedBy(type="SCHEDULE")), a_flow_run(deployment_id=None)):
        monkeypatch.setattr(callers.FlowRunContext, "get", lambda found=found: SimpleNamespace(flow_run=found))
        assert callers.asked_by() is None
    assert callers.present_caller().name == "prefect", "a form is filled in by somebody"


def test_what_was_done_twice_has_both_who_did_it(ledger: Ledger) -> None:
    ada, ben = a_person("ada@desk"), a_person("ben@desk")
    for person in (ada, ben):
        ledger.pause("night", "look", by=person)
        ledger.answer("q-1", True, person, "yes", time.time())
        ledger.pause(None, "fabric", by=person)
    acts = [(item.subject, item.by) for item in ledger.history() if item.kind == "act"]
    assert acts == [("pause", ben), ("approve q-1", ben), ("pause", ben)]
    given = ledger.approval("q-1")
    assert given is not None
    assert given.answerer == ada
    assert ledger.everything_paused() == "ada@desk (os-user): fabric"
    ledger.unpause("night")
    assert ledger.story("night").acts[-1].by.known_by is KnownBy.UNVERIFIED, "a caller that says nobody is not left out"


def test_an_answer_that_comes_too_late_is_not_its_persons_expiry(ledger: Ledger) -> None:
    ledger.ask(None, ApprovalRecord("late", "night", "i", "?", "waiting", 1.0, 2.0))
    with pytest.raises(Conflict, match="expired already"):
        ledger.answer("late", True, a_person(), "yes", 3.0)
    assert [item.by for item in ledger.history() if item.subject == "late"] == [None, None]


def test_a_run_is_of_who_asked_for_it_and_found_by_what_he_calls_it(say: Say, world: None, ledger: Ledger) -> None:
    def printed(line: str) -> str:
        return say(*line.split())[1]

    def found(filters: str) -> list[str]:
        return [one["run"] for one in json.loads(printed(f"runs --json {filters}"))]

    mine = ME.name.partition("@")[0]
    printed("train demo --name mine --tag team=vision --tag long= --detach")
    printed("train demo --name his --owner bob --tag team=vision --detach")
    assert found("--owner me") == found(f"--owner {mine}") == ["mine"]
    assert found("--tag team=vision") == ["mine", "his"]
    assert found("--tag team=vision --tag long= --owner bob") == []
    assert found("--owner bob") == ["his"]
    kept = ledger.story("mine").run
    assert (kept.owner, kept.tags) == (mine, {"team": "vision", "long": ""})
    assert f"owner {mine}, tags team=vision,long=" in printed("status mine")
    assert "team=vision" in printed("runs")
    printed("train demo --name his --tag team=nlp --detach")
    changed = ledger.story("his")
    assert (changed.run.owner, changed.run.tags) == ("bob", {"team": "nlp"}), "words change, the run is the same"
    assert changed.acts[-1].by == ME


def test_a_program_asks_as_a_person_does(
    world: None, settings: Settings, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRIMUS_HOME", str(settings.home))
    with pytest.raises(Unavailable, match="nobody drives new: its driver is gone"):
        api.train(api.TrainRequest(name="new", tags={"a": "b"}))
    with pytest.raises(Unavailable, match="nobody drives night"):
        api.resume(RUN, "look again")
    assert [(act.what, act.by, act.why) for act in ledger.story(RUN).acts][-1] == ("resume", ME, "look again")
    assert [(run["run"], run["tags"]) for run in api.runs(limit=1)] == [("new", {"a": "b"})]
    assert api.status("new")["owner"] == ME.name.partition("@")[0]
    lease = ledger.acquire("new", Driver("elsewhere", 2, 1.0), time.time() - 600.0, lambda _: None)
    ledger.set_run_state("new", lease.fencing, RunState.FAILED, "its program is broken", time.time())
    with pytest.raises(Conflict, match=r"new has failed: its program is broken; resume\(\) continues it"):
        api.train(api.TrainRequest(name="new"))
    assert api.stop("new") is api.wait("new") is RunState.FAILED
    ledger.resume_run("new", "mended", time.time())
    ledger.set_run_state("new", lease.fencing, RunState.SUCCEEDED, "done", time.time())
    with pytest.raises(Conflict, match="new has succeeded; there is nothing to resume"):
        api.resume("new")
    with pytest.raises(NotFound):
        api.wait("nobody")
