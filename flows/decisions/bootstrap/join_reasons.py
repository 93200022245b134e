"""Why a host does not become a node in time: the known reasons, from what kubeadm, kubelet and containerd say."""

from __future__ import annotations

import re
from collections.abc import Iterable

from workflows.model.host_facts import HostFacts, Unread

REASONS: tuple[tuple[str, str, str], ...] = (
    (
        "name taken",
        r"a Node with name \"[^\"]*\" and status \"[^\"]*\" already exists|node with the name .* already exists",
        "another node of its name is in the cluster: let that one leave, or name this host otherwise",
    ),
    (
        "time",
        r"certificate has expired or is not yet valid|current time \S+ is (?:before|after)|clock skew|"
        r"token \S+ is invalid for this cluster or it has expired.*clock",
        "its clock is not the cluster's: set it, and let NTP keep it",
    ),
    (
        "DNS",
        r"dial tcp: lookup \S+|no such host|server misbehaving|Temporary failure in name resolution",
        "a name is not resolved there: correct its /etc/resolv.conf",
    ),
    (
        "cgroup driver",
        r"expected cgroupsPath to be of format|cgroup driver: \\?\"?\w+\\?\"? is different from|"
        r"kubelet is configured to not run on a host using cgroup v1|failed to find subsystem mount for required",
        "kubelet and containerd do not handle control groups alike: both want systemd's, of a version they accept",
    ),
    (
        "port",
        r"bind: address already in use|\[ERROR Port-\d+\]|Port \d+ is in use",
        "somebody else has a port that it needs: end that process",
    ),
    (
        "runtime",
        r"failed to validate CRI|validate service connection: .*runtime|container runtime is not running|"
        r"unknown service runtime\.v1|containerd\.sock: connect: (?:no such file|connection refused)",
        "containerd does not answer: look at `systemctl status containerd` on it",
    ),
    (
        "image",
        r"[Ff]ailed to pull (?:and unpack )?image|ErrImagePull|ImagePullBackOff|failed to pull image|"
        r"failed to resolve (?:image|reference)",
        "an image cannot be had: look at the mirror and at what it holds",
    ),
    (
        "MTU",
        r"[Mm]essage too long|TLS handshake timeout|frag(?:mentation)? needed|packet size .*exceeds",
        "large packets do not come through: give every interface on the way the same MTU",
    ),
    (
        "token",
        r"could not find a JWS signature|There is no JWS signed token|token id \\?\"?\w+\\?\"? is invalid|"
        r"invalid bearer token|couldn't validate the identity of the API Server.*Unauthorized|Unauthorized",
        "its token is not accepted any more: join it again, which makes a new one",
    ),
    (
        "certificate",
        r"certificate signed by unknown authority|none of the public keys .* are pinned|"
        r"certificate is valid for .*, not|error decrypting|could not be decrypted|x509: ",
        "it trusts another authority than the cluster's: is it the right endpoint, and were old certificates removed?",
    ),
)
"""Word -> expression of a line -> what to do; the first that matches the newest line counts. Wordings: client-go and
kubeadm 1.36 (`cmd/kubeadm/app`), runc, containerd 1.6 to 2.3, Go's crypto/x509 and net."""
_COMPILED = tuple((word, re.compile(pattern), advice) for word, pattern, advice in REASONS)
_STAMP = re.compile(r"^(?:[A-Z]\d{4} \S+\s+\d+ \S+\] )?")
LINE_CHARACTERS = 200


def why_not_joined(facts: HostFacts | Unread, lines: Iterable[str]) -> str:
    """The reason in one line: its word, the line that tells it, what to do; "" where no line tells it.

    Args:
        facts: of the host, for what lines leave open.
        lines: what kubeadm, kubelet and containerd said there, the newest last.
    """
    for line in reversed(list(lines)):
        for word, pattern, advice in _COMPILED:
            if pattern.search(line):
                told = " ".join(_STAMP.sub("", line.strip()).split())
                return f"{word}: {advice} ({told[:LINE_CHARACTERS]})"
    return _by_facts(facts)


def _by_facts(facts: HostFacts | Unread) -> str:
    if isinstance(facts, Unread):
        return ""
    for unit, word in (("containerd.service", "runtime"), ("kubelet.service", "kubelet")):
        told = facts.units.get(unit)
        if told is not None and not isinstance(told, Unread) and told.active != "active":
            return f"{word}: {unit} is {told.active} on it"
    return ""
