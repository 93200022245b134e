"""The bed's own certificate authority, everybody's certificate, and kubeconfig files."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.bed.commands import run
from tests.bed.layout import Folder
from tests.bed.options import Options

DAYS = "30"
CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc")


@dataclass(frozen=True)
class Holder:
    """Who gets a certificate."""

    name: str
    subject: str
    """As in `/O=group/CN=user`: what Kubernetes takes for groups and user."""
    alternatives: tuple[str, ...] = ()
    client: bool = True
    """Gets a kubeconfig as well."""


def holders(options: Options) -> list[Holder]:
    """Everybody."""
    names = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
    addresses = ("127.0.0.1", options.plane, options.kubernetes_service)
    server = (*(f"IP:{address}" for address in addresses), *(f"DNS:{name}" for name in names))
    return [
        Holder("apiserver", "/CN=kube-apiserver", server, client=False),
        Holder("webhook", "/CN=webhook", ("IP:127.0.0.1", "DNS:localhost"), client=False),
        Holder("kubelet-client", "/O=system:masters/CN=apiserver-kubelet-client", client=False),
        Holder("admin", "/O=system:masters/CN=admin"),
        Holder("controller-manager", "/CN=system:kube-controller-manager"),
        Holder("scheduler", "/CN=system:kube-scheduler"),
        Holder("proxy", "/CN=system:kube-proxy"),
        Holder("dns", "/CN=system:coredns"),
        *(
            Holder(node.name, f"/O=system:nodes/CN=system:node:{node.name}", (f"IP:{node.address}", f"DNS:{node.name}"))
            for node in options.real_nodes()
        ),
    ]


def make(folder: Folder, options: Options) -> None:
    """All that is not there yet, and the administrator's kubeconfig."""
    where = folder.certificates
    if not (where / "ca.crt").exists():
        _authority(where)
    for holder in holders(options):
        if not (where / f"{holder.name}.crt").exists():
            _sign(where, holder)
        if holder.client:
            user = {"client-certificate": f"{where}/{holder.name}.crt", "client-key": f"{where}/{holder.name}.key"}
            write_kubeconfig(folder, options, holder.name, user)
    admin = {
        "client-certificate-data": encoded(where / "admin.crt"),
        "client-key-data": encoded(where / "admin.key"),
    }
    authority = {"certificate-authority-data": encoded(where / "ca.crt")}
    _write(folder.kubeconfig, _kubeconfig(options, "admin", admin, authority))


def encoded(path: Path) -> str:
    """A file as base64, as kubeconfigs and webhooks want it."""
    return base64.b64encode(path.read_bytes()).decode()


def _authority(where: Path) -> None:
    usages = ("basicConstraints=critical,CA:TRUE", "keyUsage=critical,keyCertSign,cRLSign")
    extensions = [word for usage in usages for word in ("-addext", usage)]
    files = ("-keyout", where / "ca.key", "-out", where / "ca.crt")
    run("openssl", "req", "-x509", *CURVE, "-days", DAYS, "-subj", "/CN=bed-ca", *files, *extensions)
    run("openssl", "genrsa", "-out", where / "service-accounts.key", "2048")
    run("openssl", "rsa", "-in", where / "service-accounts.key", "-pubout", "-out", where / "service-accounts.pub")


def _sign(where: Path, holder: Holder) -> None:
    usages = ["keyUsage=digitalSignature,keyEncipherment", "extendedKeyUsage=clientAuth,serverAuth"]
    usages += ["basicConstraints=critical,CA:FALSE"]
    usages += ["subjectAltName=" + ",".join(holder.alternatives)] if holder.alternatives else []
    extensions = [word for usage in usages for word in ("-addext", usage)]
    files = ("-keyout", where / f"{holder.name}.key", "-out", where / f"{holder.name}.crt")
    signer = ("-CA", where / "ca.crt", "-CAkey", where / "ca.key", "-days", DAYS)
    run("openssl", "req", "-x509", *CURVE, *signer, "-subj", holder.subject, *files, *extensions)


def write_kubeconfig(
    folder: Folder, options: Options, name: str, user: dict[str, str], namespace: str = "default"
) -> Path:
    """A kubeconfig for one component; its path."""
    path = folder.kubeconfigs / name
    authority = {"certificate-authority": f"{folder.certificates}/ca.crt"}
    _write(path, _kubeconfig(options, name, user, authority, namespace))
    return path


def write_account(folder: Folder, options: Options, path: Path, user: str, token: str, namespace: str) -> None:
    """A kubeconfig of a service account, complete in itself: it may be copied away."""
    authority = {"certificate-authority-data": encoded(folder.certificates / "ca.crt")}
    _write(path, _kubeconfig(options, user, {"token": token}, authority, namespace))


def _kubeconfig(
    options: Options, name: str, user: dict[str, str], authority: dict[str, str], namespace: str = "default"
) -> dict[str, object]:
    context = {"cluster": "bed", "user": name, "namespace": namespace}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "bed",
        "clusters": [{"name": "bed", "cluster": {"server": options.server, **authority}}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": "bed", "context": context}],
    }


def _write(path: Path, kubeconfig: dict[str, object]) -> None:
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(kubeconfig), encoding="utf-8")
