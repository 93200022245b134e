"""The token with which the ranks of one pod may report their progress, and nothing else."""

from __future__ import annotations

VARIABLE = "PRIMUS_REPORT_TOKEN"


def report_token(token: str, role: str, pod_index: int) -> str:
    """It follows from the attempt's token, so that the coordinator need not remember any; not the other way round.

    Args:
        token: of the attempt; who has it controls the gang.
        role: of the pod.
        pod_index: of the pod.
    """
    import hashlib  # not everybody who reads this module makes one
    import hmac

    return hmac.new(token.encode(), f"report:{role}:{pod_index}".encode("utf-8", "replace"), hashlib.sha256).hexdigest()


def same(one: str, other: str) -> bool:
    """Whether two tokens are equal, in a time that tells nothing; an empty one never is."""
    import hmac

    return bool(one) and hmac.compare_digest(one.encode("utf-8", "replace"), other.encode("utf-8", "replace"))
