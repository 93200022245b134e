"""The token with which the ranks of one pod may report their progress, and nothing else."""

from __future__ import annotations

VARIABLE = "PRIMUS_REPORT_TOKEN"


def report_token(token: str, role: str, pod_index: int) -> str:
    """The token by which a pod's ranks report progress; derived from the attempt's token, so nobody has to store it."""
    import hashlib  # not everybody who reads this module makes one
    import hmac

    return hmac.new(token.encode(), f"report:{role}:{pod_index}".encode("utf-8", "replace"), hashlib.sha256).hexdigest()


def same(one: str, other: str) -> bool:
    """Whether two tokens are equal, in a time that tells nothing; an empty one never is."""
    import hmac

    return bool(one) and hmac.compare_digest(one.encode("utf-8", "replace"), other.encode("utf-8", "replace"))
