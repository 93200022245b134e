"""A mirror that is away stops nothing that does not need its word."""

from __future__ import annotations

from typing import Any

import pytest

from flows.building.ground import asks_mirror, refuse_other_version
from flows.decisions.bootstrap.judge import Wanted
from profiles.bootstrap.request import BootstrapRequest
from profiles.errors import ProfileError
from tests.support.builders.kubeadm_cluster import kubeadm_cluster, release

BARE: dict[str, Any] = {"path": "v1/x"}


@pytest.mark.parametrize(
    ("verb", "installs", "digests", "asks"),
    [
        ("leave", True, True, False),
        ("drift", False, True, False),
        ("drift", True, True, True),
        ("build", False, True, False),
        ("build", False, False, True),
        ("build", True, True, True),
        ("leave", True, False, True),
    ],
)
def test_the_mirror_is_asked_only_where_its_word_is_needed(
    verb: str, installs: bool, digests: bool, asks: bool
) -> None:
    bootstrap = kubeadm_cluster(install_components=installs).bootstrap
    assert bootstrap is not None
    more: dict[str, Any] = {} if digests else {"image_archives": [BARE]}
    fields: dict[str, Any] = {"cluster": "made", "verb": verb, "hosts": ("w1",) if verb == "leave" else ()}
    assert asks_mirror(bootstrap, release(**more), BootstrapRequest(**fields)) == asks


def test_an_upgrade_goes_to_the_release_that_the_profile_names() -> None:
    wanted = Wanted(kubeadm_cluster(), release(), {})
    refuse_other_version(wanted, BootstrapRequest(cluster="made", verb="upgrade", version="1.36.3"))
    with pytest.raises(ProfileError, match=r"bootstrap.engine.release: the profile's release test is 1\.36\.3"):
        refuse_other_version(wanted, BootstrapRequest(cluster="made", verb="upgrade", version="1.36.4"))
    engine = {"kind": "kubespray", "version": "1.36.3", "environment": "/opt/k"}
    own = kubeadm_cluster(engine={**engine, "source": {"archive": "/k.tar", "sha256": "a" * 64}})
    with pytest.raises(ProfileError, match=r"bootstrap.engine.version: is 1\.36\.3: name 1\.36\.4 there"):
        refuse_other_version(Wanted(own, None, {}), BootstrapRequest(cluster="made", verb="upgrade", version="1.36.4"))
