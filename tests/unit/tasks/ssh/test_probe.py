"""Preflight by SSH without SSH: what Ansible is told, and what is refused."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from profiles.admission import BareMetal
from profiles.errors import ProfileError
from profiles.loading.load import load_hardware
from tasks.ssh import inventory as ssh_inventory
from tasks.ssh import probe as ssh_probe
from tasks.ssh.ansible import TaskEnd, environment
from tasks.ssh.inventory import Archive, aim, inventory, ssh_arguments, storage_folders, whole_seconds
from tasks.ssh.probe import HostResults
from tests.support.cases.rows import rows
from tests.support.fakes.launcher_matrix import CHECKS, NODES, cluster_of, plan, suite
from workflows.model.node_results import NodeResult
from workflows.node_tests.preflight import node_checks
from workflows.programs.probes import over_ssh, run
from workflows.programs.probes.call import from_json
from workflows.programs.runtime import flags

ARCHIVE = Archive(Path("/home/someone/programs.pyz"), "0" * 40)
HOME = Path("/home/someone/.primus")


class Loader(yaml.SafeLoader):
    """Reads what an inventory marks as no template."""


class Unsafe(str):
    """Text under that mark."""


Loader.add_constructor("!unsafe", lambda loader, node: Unsafe(loader.construct_scalar(node)))  # type: ignore[arg-type]


def nobody(*_: object) -> None:
    """Nobody listens."""


def section(**more: object) -> BareMetal:
    hosts = {node: {"address": f"10.0.0.{index}"} for index, node in enumerate(NODES)}
    return BareMetal.model_validate({"hosts": hosts, **more})


def written(settings: BareMetal, nodes: tuple[str, ...] = NODES) -> dict[str, Any]:
    asked = plan(cluster_of(HOME), "ansible", nodes)
    found = yaml.load(inventory(asked, settings, aim(asked, settings).nodes, ARCHIVE), Loader)
    return found["all"]


def test_a_node_without_a_host_is_named_with_what_to_do() -> None:
    settings = BareMetal.model_validate({"hosts": {"node-1": {"address": "a"}}})
    found = aim(plan(cluster_of(HOME), "ansible", ("node-0", "node-1")), settings)
    assert dict(found.nodes) == {"h0": "node-1"}
    assert dict(found.unknown) == {
        "node-0": "the cluster profile does not say where it is: add it to bare_metal.hosts as 'node-0'"
    }


def test_the_inventory_names_every_host_once_and_what_is_run_on_it() -> None:
    hosts: dict[str, dict[str, Any]] = {**{node: {"address": f"10.0.0.{index}"} for index, node in enumerate(NODES)}}
    hosts["node-2"] = {"address": "gpu-2.example.org", "port": 2222}
    told = written(section(hosts=hosts))
    [pool] = told["children"].values()
    assert {name: host["primus_node"] for name, host in pool["hosts"].items()} == {
        f"h{index}": node for index, node in enumerate(NODES)
    }
    assert (pool["hosts"]["h2"]["ansible_host"], pool["hosts"]["h2"]["ansible_port"]) == ("gpu-2.example.org", 2222)
    asked = plan(cluster_of(HOME), "ansible")
    options = flags.from_argv(run.Options, pool["vars"]["primus_probe_flags"])
    assert from_json(options.calls) == asked.calls("cpu").calls
    assert (options.path, options.out_dir) == ("", ""), "the host finds its own folders"
    words = ["--folder=/tmp/x-1", *told["vars"]["primus_host_flags"], "--", *pool["vars"]["primus_probe_flags"]]
    outer = flags.from_argv(over_ssh.Options, words)
    assert outer.storage == storage_folders(asked.cluster) == (f"{HOME}/shared",)
    assert outer.prefix == "primus-flows-"
    assert outer.deadline_seconds > options.deadline_seconds
    assert told["vars"]["primus_probe_seconds"] > outer.deadline_seconds, "a host ends by itself before it is given up"


def test_text_of_a_profile_is_no_template() -> None:
    told = written(section(user="trainer", private_key_file="/keys/{{ key }}", known_hosts_file="/a b/known"))
    texts = [*told["vars"].values(), *told["vars"]["primus_host_flags"]]
    texts += [item for group in told["children"].values() for item in group["vars"]["primus_probe_flags"]]
    texts += [item for group in told["children"].values() for host in group["hosts"].values() for item in host.values()]
    plain = {text for text in texts if isinstance(text, str) and not isinstance(text, Unsafe)}
    assert plain == {"ssh", ARCHIVE.sha1}
    assert told["vars"]["ansible_ssh_private_key_file"] == "/keys/{{ key }}"
    assert 'UserKnownHostsFile="/a b/known"' in shlex.split(told["vars"]["ansible_ssh_common_args"])


@pytest.mark.parametrize("settings", [section(), section(known_hosts_file="/k", private_key_file="/p")])
def test_keys_of_hosts_are_always_compared_and_nobody_is_asked(settings: BareMetal) -> None:
    options = ssh_arguments(settings)[1::2]
    assert {"StrictHostKeyChecking=yes", "BatchMode=yes", "ConnectTimeout=10", "ForwardAgent=no"} <= set(options)
    assert ("IdentitiesOnly=yes" in options) == bool(settings.private_key_file)


@rows("tasks/ssh/probe")
def test_what_a_shell_could_read_is_refused_and_named(field: str, value: str) -> None:
    with pytest.raises(ProfileError) as error:
        written(section(**{field: value}))
    assert error.value.field == f"bare_metal.{field}"
    assert repr(value) in str(error.value)


def test_storage_is_looked_for_where_a_host_and_where_a_pod_has_it() -> None:
    kubernetes = cluster_of(HOME)
    [own] = kubernetes.storage
    moved = kubernetes.model_copy(update={"storage": (own.model_copy(update={"mount_path": "/data"}),)})
    claimed = own.model_copy(update={"kind": "claim", "source": "shared", "mount_path": "/data"})
    assert storage_folders(moved) == (f"{HOME}/shared", "/data")
    assert storage_folders(kubernetes.model_copy(update={"storage": (claimed,)})) == ("/data",)
    assert storage_folders(kubernetes.model_copy(update={"storage": ()})) == ()


def test_more_rounds_may_take_longer() -> None:
    asked, settings = plan(cluster_of(HOME), "ansible"), section(at_once=2)
    limits = [whole_seconds(asked, settings, hosts) for hosts in (1, 2, 3, 96)]
    assert limits[0] == limits[1] < limits[2] < limits[3]
    assert limits[0] > ssh_inventory.host_seconds(asked)


def test_checks_of_other_launchers_are_left_out() -> None:
    made = {
        launcher: [check.name for check in node_checks(suite(), "device", load_hardware("cpu"), launcher)]
        for launcher in ("kubernetes", "ansible", "slurm")
    }
    assert made == {
        "kubernetes": [name for name in CHECKS if name != "host-only"],
        "ansible": [name for name in CHECKS if name != "pod-only"],
        "slurm": [name for name in CHECKS if name != "pod-only"],
    }


def test_ansible_sees_no_token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PRIMUS_TOKEN", "a-token")
    monkeypatch.setenv("PRIMUS_LEDGER_URL", "postgresql://u:password@h/d")
    monkeypatch.setenv("ANSIBLE_HOST_KEY_CHECKING", "False")
    told = environment(tmp_path, 32, 10.0)
    assert not {"a-token", "postgresql://u:password@h/d"} & set(told.values())
    assert (told["ANSIBLE_HOST_KEY_CHECKING"], told["ANSIBLE_FORKS"]) == ("True", "32")


def test_where_ansible_is_missing_nodes_are_unknown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tasks.ssh.probe.missing_program", lambda: "ansible-core is not installed")
    told = ssh_probe.run_over_ssh(plan(cluster_of(HOME), "ansible", NODES[:2]), section(), tmp_path, nobody)
    assert told == [NodeResult(node, why="it was not reached: ansible-core is not installed") for node in NODES[:2]]


def test_only_hosts_whose_ssh_ended_unheard_are_asked_once_more(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[list[str]] = []
    refused = [TaskEnd("folder", "h0", "unreachable", {"msg": "ssh: connect to host a port 22: Connection refused"})]
    unheard = TaskEnd("folder", "h1", "unreachable", {"msg": "Data could not be sent: [Errno 32] Broken pipe"})
    no_key = TaskEnd("folder", "h1", "unreachable", {"msg": "Host key verification failed."})

    def follow(hosts: str, _settings: BareMetal, reader: HostResults, *_: object) -> str:
        asked.append(sorted(set(re.findall(r"\bh\d\b", hosts))))
        for event in [*refused, unheard] if len(asked) == 1 else [no_key]:
            reader.take(event)
        return "Ansible ended with 4"

    monkeypatch.setattr("tasks.ssh.probe.missing_program", lambda: "")
    monkeypatch.setattr("tasks.ssh.probe._follow", follow)
    told = ssh_probe.run_over_ssh(plan(cluster_of(HOME), "ansible", NODES[:2]), section(), tmp_path, nobody)
    assert asked == [["h0", "h1"], ["h1"]]
    assert "refuses the connection" in told[0].why
    assert "compare it on the host, then add it" in told[1].why


def test_who_said_nothing_is_told_by_the_end_of_the_try_that_asked_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ends = iter([("time was up after 9 s", True), ("Ansible ended with 4: broken", False)])

    def follow(_hosts: str, _settings: BareMetal, reader: HostResults, *_: object) -> str:
        words, first = next(ends)
        if first:
            reader.take(TaskEnd("folder", "h1", "unreachable", {"msg": "[Errno 32] Broken pipe"}))
        return words

    monkeypatch.setattr("tasks.ssh.probe.missing_program", lambda: "")
    monkeypatch.setattr("tasks.ssh.probe._follow", follow)
    told = ssh_probe.run_over_ssh(plan(cluster_of(HOME), "ansible", NODES[:2]), section(), tmp_path, nobody)
    assert [one.why for one in told] == [
        "it was not reached: time was up after 9 s",
        "it was not reached: Ansible ended with 4: broken",
    ]


def test_the_tasks_of_the_playbook_are_those_that_are_read() -> None:
    [play] = yaml.safe_load(ssh_probe.PLAYBOOK.read_text())
    first, test = play["tasks"]
    tasks = [first, *test["block"], *test["always"]]
    assert [task["name"] for task in tasks] == ["folder", "programs", "probe", "report", "removal"]
    modules = {next(key for key in task if "." in key) for task in tasks}
    assert all(module.startswith("ansible.builtin.") for module in modules)
    assert not {"ansible.builtin.shell", "ansible.builtin.raw", "ansible.builtin.script"} & modules
    assert all("timeout" in task for task in tasks), "no step may hang"
