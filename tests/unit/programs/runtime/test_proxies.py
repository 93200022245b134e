"""A rank that has a proxy for the outside asks its coordinator and the first rank directly."""

from __future__ import annotations

import pytest

from workflows.programs.launcher.options import Options, Rendezvous, parse_place
from workflows.programs.launcher.rank_set import rank_environment
from workflows.programs.runtime.proxies import exempted, host_of

GANG = {"PRIMUS_COORDINATOR_URL": "http://first-a1-coordinator.jobs:8470"}


def environment_of(base: dict[str, str]) -> dict[str, str]:
    return rank_environment(base, Options("trainer"), parse_place(base), Rendezvous(1, "10.0.0.7", 29500, 6), 0)


def test_a_rank_s_own_gang_is_exempt_from_its_proxy() -> None:
    found = environment_of(GANG | {"HTTPS_PROXY": "http://proxy.test:3128", "NO_PROXY": ".example.com"})
    assert found["HTTPS_PROXY"] == "http://proxy.test:3128", "the outside is asked as the user wants it"
    assert found["NO_PROXY"].startswith(".example.com,localhost,127.0.0.1,")
    assert found["NO_PROXY"].endswith(",first-a1-coordinator.jobs,10.0.0.7")


def test_a_program_without_a_proxy_gets_no_word_of_one() -> None:
    assert not [name for name in environment_of(GANG) if name.lower() == "no_proxy"]


@pytest.mark.parametrize(
    ("url", "host"), [("http://a.b:80", "a.b"), ("http://[::1]:80/x", "::1"), ("http://1.2.3.4:5", "1.2.3.4"), ("", "")]
)
def test_the_host_of_an_address(url: str, host: str) -> None:
    assert host_of(url) == host


def test_what_exempts_everything_stays_alone() -> None:
    assert exempted({"http_proxy": "x", "no_proxy": "*"}, ["a"])["no_proxy"] == "*"
