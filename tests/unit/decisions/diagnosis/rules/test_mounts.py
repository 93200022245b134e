"""File servers that do not answer: only those that never answer again are a failure."""

from __future__ import annotations

import pytest

from flows.decisions.diagnosis.diagnose import diagnose
from flows.decisions.diagnosis.selection import evidence_of
from profiles.vocabulary import FaultClass

F = FaultClass
NFS = "[  812.10] nfs: server nfs-3 not responding, still trying"
NFS_OK = "[  822.10] nfs: server nfs-3 OK"
LUSTRE = "[  812.10] Lustre: scratch-OST0007-osc-ffff: Connection to scratch-OST0007 (at 10.0.0.7@o2ib) was lost;"
LUSTRE_OK = "[  822.10] Lustre: scratch-OST0007-osc-ffff: Connection restored to 10.0.0.7@o2ib (at 10.0.0.7@o2ib)"
CEPH, CEPH_OK = "[  812.10] ceph: mds0 hung", "[  822.10] ceph: mds0 recovery completed"


def found(*texts: str) -> FaultClass:
    return diagnose(evidence_of([("dmesg-gpu-7.log", texts)])).fault_class


@pytest.mark.parametrize("away", [NFS, LUSTRE, CEPH])
def test_a_server_that_stays_away_is_storage(away: str) -> None:
    assert found(away) is F.STORAGE


@pytest.mark.parametrize(("away", "back"), [(NFS, NFS_OK), (LUSTRE, LUSTRE_OK)])
def test_a_server_that_answers_again_is_nothing(away: str, back: str) -> None:
    assert found(away, back) is F.NONE


def test_another_server_s_answer_does_not_count() -> None:
    assert found(NFS, NFS_OK.replace("nfs-3", "nfs-4")) is F.STORAGE
    assert found(NFS, NFS_OK, NFS) is F.STORAGE


def test_an_evicted_client_is_storage_though_it_comes_back() -> None:
    evicted = "[  815.10] LustreError: 167-0: scratch-OST0007-osc-ffff: This client was evicted by scratch-OST0007;"
    assert found(LUSTRE, evicted, LUSTRE_OK) is F.STORAGE
