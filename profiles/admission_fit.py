"""Whether a cluster's suite has the tests that its admission asks for."""

from __future__ import annotations

from profiles.cluster import ClusterProfile
from profiles.errors import ProfileError
from profiles.load import load_hardware
from profiles.suite import SuiteProfile


def check_admission(profile: ClusterProfile, suite: SuiteProfile) -> None:
    """Refuse wishes that no test can meet: a run would wait for ever.

    Only what the profile itself says is asked for; shipped wishes that a small suite cannot meet are left out.

    Raises:
        ProfileError: the field is named.
    """
    wanted = profile.admission.depths
    kinds = [load_hardware(pool.hardware) for pool in profile.pools]
    for field in sorted(wanted.model_fields_set):
        for depth in getattr(wanted, field):
            if not any(suite.checks_of(depth, kind) for kind in kinds):
                reason = f"suite {suite.name} has no check of depth {depth} for these nodes; name another suite"
                raise ProfileError(f"admission.depths.{field}", reason)
