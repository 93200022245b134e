"""Secrets in what others say are masked before anything of it is shortened, told, logged or kept. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection

MASK = "***"
_TOKENS = re.compile(r"\b[a-z0-9]{6}\.[a-z0-9]{16}\b")
_KEYS = re.compile(r"(certificate[- ]?key[\"']?[\s=:,\"']+)[0-9a-f]{64}\b", re.IGNORECASE)
"""What kubeadm prints of its own: bootstrap tokens, keys of certificates. Digests of an authority are no secret."""


def masked(text: str, secrets: Collection[str] = ()) -> str:
    """The text without these secrets, however their lines were broken, and without what kubeadm hands out."""
    for secret in sorted(secrets, key=len, reverse=True):
        words = [re.escape(word) for word in secret.split()]
        if words:
            text = re.sub(r"(?:\s|\\[nrt])+".join(words), MASK, text)
    return _KEYS.sub(rf"\1{MASK}", _TOKENS.sub(MASK, text))
