"""Tokens of service accounts that expire within seconds: the API server itself gives none for less than ten minutes.

They are signed with the bed's own key, so that the server checks them like any other.
"""

from __future__ import annotations

import base64
import json
import subprocess
import time

from tests.bed.up import Bed

ISSUER = "https://kubernetes.default.svc"
LEEWAY_S = 60
"""The server forgives clocks that differ by a minute."""


def token(bed: Bed, account: str, namespace: str, seconds: float) -> str:
    """A token that the server takes for so many seconds, and for up to ten more that it remembers its own yes."""
    found = bed.api.get(f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}")
    who = {"namespace": namespace, "serviceaccount": {"name": account, "uid": found["metadata"]["uid"]}}
    now = int(time.time())
    claims = {
        "iss": ISSUER,
        "aud": [ISSUER],
        "sub": f"system:serviceaccount:{namespace}:{account}",
        "iat": now - 2 * LEEWAY_S,
        "nbf": now - 2 * LEEWAY_S,
        "exp": now - LEEWAY_S + round(seconds),
        "kubernetes.io": who,
    }
    said = f"{_encoded(json.dumps({'alg': 'RS256', 'typ': 'JWT'}).encode())}.{_encoded(json.dumps(claims).encode())}"
    key = bed.folder.certificates / "service-accounts.key"
    signed = subprocess.run(
        ["openssl", "dgst", "-sha256", "-sign", str(key)], input=said.encode(), capture_output=True, check=True
    )
    return f"{said}.{_encoded(signed.stdout)}"


def _encoded(words: bytes) -> str:
    return base64.urlsafe_b64encode(words).decode().rstrip("=")
