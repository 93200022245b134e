"""Each defect of a host is there when it was put in, and only then."""

from __future__ import annotations

import pytest

from tests.lab.faults import FAULTS, broken
from tests.lab.lab import Lab


@pytest.mark.parametrize("name", FAULTS)
def test_a_host_has_a_defect_when_it_was_put_in_and_only_then(lab: Lab, name: str) -> None:
    host = lab.hosts[0]
    with broken(name, lab, host):
        pass
    host.booted()
