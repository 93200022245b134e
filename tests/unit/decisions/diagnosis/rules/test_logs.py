"""Logs as many programs write them: the class that an expert would say, and whom it blames."""

from __future__ import annotations

import pytest

from flows.decisions.diagnosis.diagnose import Diagnosis, diagnose
from flows.decisions.diagnosis.selection import evidence_of
from profiles.vocabulary import FaultClass
from tests.support.cases.rows import rows, tables

F = FaultClass
Culprits = set[tuple[str, int | None]]
NFS = "[  812.10] nfs: server nfs-3 not responding, still trying"
NFS_OK = "[  822.10] nfs: server nfs-3 OK"
LUSTRE = "[  812.10] Lustre: scratch-OST0007-osc-ffff: Connection to scratch-OST0007 (at 10.0.0.7@o2ib) was lost;"
LUSTRE_OK = "[  822.10] Lustre: scratch-OST0007-osc-ffff: Connection restored to 10.0.0.7@o2ib (at 10.0.0.7@o2ib)"
CEPH = "[  812.10] ceph: mds0 hung"


def read(log: str, file: str = "train.log") -> Diagnosis:
    return diagnose(evidence_of([(file, log.split("\n"))]))


@rows("diagnosis/ends")
def test_the_end_of_a_program_is_told_from_its_words(wanted: F, log: str) -> None:
    assert read(log).fault_class is wanted


@rows("diagnosis/restarts")
def test_a_training_that_begins_anew_is_seen(log: str) -> None:
    assert read(log).fault_class is F.STARTED_OVER


@rows("diagnosis/restarts")
def test_a_training_that_begins_or_goes_on_as_it_should_is_left_alone(log: str) -> None:
    assert read(log).fault_class is F.NONE


@rows("diagnosis/fabric")
def test_a_broken_fabric_is_told_by_a_line_alone(log: str) -> None:
    assert read(log).fault_class is F.FABRIC


@rows("diagnosis/fabric")
def test_a_hang_is_told_by_those_who_wait(log: str) -> None:
    assert read(log).fault_class is F.HANG


@rows("diagnosis/fabric")
def test_what_sounds_like_a_fault_of_a_gang_is_healthy(log: str) -> None:
    assert read(log).fault_class is F.NONE


@rows("diagnosis/fabric")
def test_the_slow_member_is_named(culprits: Culprits, log: str) -> None:
    found = read(log)
    assert (found.fault_class, set(found.culprits)) == (F.STRAGGLER, culprits)


@rows("diagnosis/fabric")
def test_exactly_the_culprit_is_named(wanted: F, culprits: Culprits, log: str, file: str = "t.log") -> None:
    found = read(log, file)
    assert (found.fault_class, set(found.culprits)) == (wanted, culprits)


def test_one_killed_rank_may_be_what_broke_the_others() -> None:
    raised = '[rank2]: Traceback (most recent call last):\n[rank2]:   File "/w/train.py", line 88, in <module>\n'
    ends = "srun: error: cn2: task 2: Exited with exit code 1\nsrun: error: cn1: task 0: Killed"
    assert read(f"{raised}[rank2]:     main()\n[rank2]: KeyError: 1\n{ends}", "slurm.out").victims == ()


@rows("diagnosis/machines")
def test_a_single_line_tells_its_class(wanted: F, log: str) -> None:
    found = read(log, "run.log")
    assert found.fault_class is wanted, found


@rows("diagnosis/machines")
def test_a_line_that_names_a_node_blames_it(node: str, log: str) -> None:
    assert read(log, "run.log").culprits == ((node, None),)


@rows("diagnosis/users")
def test_what_users_do_wrong_is_told_by_what_the_log_says(wanted: F, log: str) -> None:
    assert read(log).fault_class is wanted


@rows("diagnosis/users")
def test_what_users_programs_complain_of_may_be_healthy(log: str) -> None:
    assert read(log).fault_class is F.NONE


def test_no_user_error_blames_a_machine() -> None:
    told = [row.columns for row in tables("diagnosis/users")["what_users_do_wrong_is_told_by_what_the_log_says"]]
    assert not any(read(one["log"]).node_suspect for one in told if one["wanted"] != F.STORAGE)


def test_nodes_are_named_where_the_client_was_evicted() -> None:
    text = "[1.5] LustreError: 167-0: scratch-OST0012-osc: This client was evicted by scratch-OST0012; in progress"
    assert read(text, "dmesg-gpu-n03.log").culprits == (("gpu-n03", None),)


@rows("diagnosis/platforms")
def test_a_line_of_a_platform_tells_the_class_and_blames_nobody(wanted: F, log: str) -> None:
    found = read(log, "job.log")
    assert found.fault_class is wanted, (found.fault_class, found.why)
    assert found.culprits == () or wanted is F.UNKNOWN  # a rank that ended, whyever


@rows("diagnosis/platforms")
def test_causes_win_over_what_follows_from_them(files: dict[str, str], wanted: F) -> None:
    assert diagnose(evidence_of([(name, text.split("\n")) for name, text in files.items()])).fault_class is wanted


def mounts(*texts: str) -> F:
    return read("\n".join(texts), "dmesg-gpu-7.log").fault_class


@pytest.mark.parametrize("away", [NFS, LUSTRE, CEPH])
def test_a_file_server_that_stays_away_is_storage(away: str) -> None:
    assert mounts(away) is F.STORAGE


@pytest.mark.parametrize(("away", "back"), [(NFS, NFS_OK), (LUSTRE, LUSTRE_OK)])
def test_a_file_server_that_answers_again_is_nothing(away: str, back: str) -> None:
    assert mounts(away, back) is F.NONE


def test_another_file_server_s_answer_does_not_count() -> None:
    assert mounts(NFS, NFS_OK.replace("nfs-3", "nfs-4")) is F.STORAGE
    assert mounts(NFS, NFS_OK, NFS) is F.STORAGE


def test_an_evicted_client_is_storage_though_it_comes_back() -> None:
    evicted = "[  815.10] LustreError: 167-0: scratch-OST0007-osc-ffff: This client was evicted by scratch-OST0007;"
    assert mounts(LUSTRE, evicted, LUSTRE_OK) is F.STORAGE
