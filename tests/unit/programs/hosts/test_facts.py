"""What a host tells of itself: every item by itself, from a made-up root and from this machine."""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from tests.support.builders.certificates import CERTIFICATE, CERTIFICATE_SHA256, ENDS, LONG_CERTIFICATE, LONG_ENDS
from workflows.model.host_facts import (
    HostFacts,
    HostGpu,
    HostNic,
    Leftovers,
    Membership,
    Unread,
    parse_facts,
)
from workflows.programs.hosts import cluster, disks, network
from workflows.programs.hosts.main import facts, serve
from workflows.programs.hosts.options import Options, from_json

T = TypeVar("T")
GPU = "sys/bus/pci/devices/0000:05:00.0"
TREE = {
    "etc/machine-id": "0123456789abcdef0123456789abcdef\n",
    "etc/os-release": 'ID=debian\nVERSION_ID="12"\nPRETTY_NAME="Debian 12"\n',
    "etc/resolv.conf": "search site\nnameserver 127.0.0.53\n",
    "run/systemd/resolve/resolv.conf": "nameserver 10.0.0.2\n",
    "proc/1/comm": "systemd\n",
    "proc/77/comm": "kubelet\n",
    "proc/mounts": "cg /sys/fs/cgroup cgroup2 rw 0 0\n"
    "/dev/a / ext4 rw 0 0\n/dev/b /var/lib/kubelet/pods/1/v ext4 rw 0 0\n",
    "proc/meminfo": "MemTotal: 1024 kB\nMemAvailable: 512 kB\n",
    "proc/swaps": "Filename Type Size Used Priority\n/swap file 8 0 -2\n",
    "proc/net/tcp": "head\n 0: 0100007F:1F90 00000000:0000 0A 0:0 0:0 0 0 0 4242 1\n",
    "sys/class/net/cni0/mtu": "1450\n",
    "sys/class/net/eth0/mtu": "9000\n",
    "sys/class/net/eth0/address": "02:00:00:00:00:01\n",
    "sys/class/net/eth0/operstate": "up\n",
    "etc/kubernetes/pki/ca.crt": CERTIFICATE,
    "etc/kubernetes/kubelet.conf": "clusters:\n- cluster:\n    certificate-authority: /etc/kubernetes/pki/ca.crt\n"
    "    server: https://10.0.0.1:6443\n  name: old\n",
    f"{GPU}/vendor": "0x1002\n",
    f"{GPU}/class": "0x120000\n",
    f"{GPU}/device": "0x74a1\n",
    f"{GPU}/vbios_version": "113-M\n",
    "sys/module/amdgpu/version": "6.10.5\n",
    "sys/class/infiniband/mlx5_0/fw_ver": "28.39.1002\n",
    "sys/class/infiniband/mlx5_0/ports/1/rate": "400 Gb/sec (4X NDR)\n",
    "sys/class/infiniband/mlx5_0/ports/1/state": "4: ACTIVE\n",
    "sys/class/dmi/id/bios_version": "2.1\n",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, content in TREE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    (tmp_path / "drivers/amdgpu").mkdir(parents=True)
    (tmp_path / GPU / "driver").symlink_to(tmp_path / "drivers/amdgpu")
    (tmp_path / "proc/77/fd").mkdir()
    (tmp_path / "proc/77/fd/3").symlink_to("socket:[4242]")
    return tmp_path


def known(item: T | Unread) -> T:
    assert not isinstance(item, Unread), item.why
    return item


def looked(asked: Options) -> HostFacts:
    found = parse_facts(json.dumps(facts(asked)))
    assert isinstance(found, HostFacts)
    return found


def test_a_host_is_read_from_its_files(root: Path) -> None:
    found = looked(Options(root=str(root), files=("/etc/os-release", "/nothing"), sysctls=("vm.none",)))
    assert (found.machine_id, found.init, found.cgroup) == ("0123456789abcdef0123456789abcdef", "systemd", 2)
    assert [known(found.memory).total_bytes, known(found.memory).swap_bytes] == [1 << 20, 8 << 10]
    assert (known(found.resolver).servers, known(found.resolver).behind) == (("127.0.0.53",), ("10.0.0.2",))
    assert known(found.ports)[0].process == "kubelet"
    assert known(found.ports)[0].port == 8080
    assert [(one.name, one.mtu) for one in known(found.interfaces)] == [("cni0", 1450), ("eth0", 9000)]
    assert found.memberships == (
        Membership("/etc/kubernetes/kubelet.conf", "https://10.0.0.1:6443", CERTIFICATE_SHA256),
    )
    assert found.authority == CERTIFICATE_SHA256
    assert found.leftovers == Leftovers(
        ("/etc/kubernetes/kubelet.conf", "/etc/kubernetes/pki/ca.crt"),
        ("kubelet",),
        ("cni0",),
        ("/var/lib/kubelet/pods/1/v",),
    )
    assert found.gpus == (HostGpu("0000:05:00.0", "amd", "0x74a1", "amdgpu", "6.10.5", "113-M"),)
    assert found.nics == (HostNic("mlx5_0", "", "", "28.39.1002", 400.0, True),)
    assert found.firmware == {"bios": "2.1"}
    assert [(one.file, one.expires_at) for one in known(found.certificates)] == [("/etc/kubernetes/pki/ca.crt", ENDS)]
    assert found.files["/nothing"] == ""
    assert len(str(found.files["/etc/os-release"])) == 64
    assert found.sysctls["vm.none"] == Unread("/proc/sys/vm/none: No such file or directory")


def test_a_configuration_may_be_written_in_one_line(root: Path) -> None:
    line = 'clusters: [{name: x, cluster: {server: "https://192.0.2.9:6443", certificate-authority-data: ""}}]'
    (root / "etc/kubernetes/kubelet.conf").write_text(line)
    assert known(looked(Options(root=str(root))).memberships)[0].server == "https://192.0.2.9:6443"


def test_a_name_server_that_is_dead_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "DNS_SECONDS", 0.3)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as living:
        living.bind(("127.0.0.1", 0))
        port = living.getsockname()[1]
        monkeypatch.setattr(network, "DNS_PORT", port)

        def answer() -> None:
            question, where = living.recvfrom(512)
            living.sendto(question[:2] + b"refused", where)

        thread = threading.Thread(target=answer)
        thread.start()
        assert network.answering(["127.0.0.1", "127.0.0.2"]) == [True, False]
        thread.join()


def test_an_item_that_cannot_be_read_spoils_no_other_one(root: Path) -> None:
    (root / "etc/machine-id").write_text("uninitialized\n")
    (root / "etc/kubernetes/pki/ca.crt").write_text("garbage")
    (root / "proc/meminfo").unlink()
    found = looked(Options(root=str(root)))
    assert isinstance(found.machine_id, Unread)
    assert "systemd-machine-id-setup" in found.machine_id.why
    for item in (found.memory, found.authority, found.memberships, found.certificates):
        assert isinstance(item, Unread)
    assert found.init == "systemd"


def test_what_nobody_may_look_at_is_not_taken_for_missing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.lstat

    def refusing(path: Any, *more: Any, **named: Any) -> os.stat_result:
        if str(path).startswith(str(root / "etc/kubernetes")):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path, *more, **named)

    monkeypatch.setattr(os, "lstat", refusing)
    found = looked(Options(root=str(root)))
    assert found.memberships == Unread("/etc/kubernetes/admin.conf: Permission denied")
    assert found.authority == Unread("/etc/kubernetes/pki/ca.crt: Permission denied")


def test_a_file_where_a_folder_should_be_is_no_membership(root: Path) -> None:
    shutil.rmtree(root / "etc/kubernetes")
    (root / "etc/kubernetes").write_text("")
    found = looked(Options(root=str(root)))
    assert (found.memberships, found.authority) == ((), "")


def test_this_machine_is_read_and_nothing_is_left(tmp_path: Path) -> None:
    before = sorted(os.listdir(tmp_path))
    found = looked(Options(fsync=str(tmp_path / "later/etcd"), names=("localhost",), folders=(str(tmp_path),)))
    assert known(found.fsync).writes == 100
    assert known(found.fsync).folder == str(tmp_path)
    assert sorted(os.listdir(tmp_path)) == before
    assert found.names["localhost"]
    assert known(found.disks)[0].total_bytes > 0
    for item in ("hostname", "kernel", "arch", "python", "init", "memory", "limits", "interfaces", "entropy"):
        assert not isinstance(getattr(found, item), Unread), item


def test_a_disk_that_does_next_to_nothing_in_time_is_judged_by_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disks, "FSYNC_SECONDS", 0.0)
    found = disks.fsync_latency("/", str(tmp_path))
    assert found["writes"] == 1
    assert found["p99_ms"] == found["median_ms"] > 0


def test_the_time_a_certificate_ends_is_read_without_a_library() -> None:
    for pem, ends in ((CERTIFICATE, ENDS), (LONG_CERTIFICATE, LONG_ENDS)):
        assert cluster.expires_at(cluster.der_of(pem)) == ends
    with pytest.raises(cluster.CannotReadError, match="cut off"):
        cluster.expires_at(cluster.der_of(CERTIFICATE)[:200])


def test_a_conversation_goes_line_by_line() -> None:
    lines = [b"W\n", b"clock\n", f"facts {Options(folders=()).to_json()}\n".encode(), b"facts [\n", b"nonsense\n"]
    said = io.BytesIO()
    assert serve(io.BytesIO(b"".join(lines)), said) == 2
    words = [line.split(b" ", 2) for line in said.getvalue().splitlines()]
    assert [word[:2] for word in words] == [[b"W", one] for one in (b"clock", b"facts", b"facts", b"unknown")]
    assert isinstance(parse_facts(words[1][2].decode()), HostFacts)
    assert isinstance(parse_facts(words[2][2].decode()), Unread)


@contextmanager
def tls_server(folder: Path) -> Iterator[str]:
    """Where it answers: `address:port`."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a")])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + timedelta(days=1))
    (folder / "pair.pem").write_bytes(
        made.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
        + key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "pair.pem")

    def answer(listener: socket.socket) -> None:
        with suppress(OSError):
            connection, _ = listener.accept()
            with connection:
                context.wrap_socket(connection, server_side=True).close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer, args=(listener,))
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


def test_a_service_is_reached_where_somebody_answers_tls(tmp_path: Path) -> None:
    def told(service: str) -> str:
        return str(network.works(Options(services=(service,), root=str(tmp_path)))[f"service:{service}"]())

    with tls_server(tmp_path) as served, socket.create_server(("127.0.0.1", 0)) as gone:
        assert told(served) == "the host is no node yet"
        (tmp_path / "etc/kubernetes").mkdir(parents=True)
        (tmp_path / "etc/kubernetes/kubelet.conf").touch()
        assert told(served) == ""
        silent = f"127.0.0.1:{gone.getsockname()[1]}"
        gone.close()
        assert "refused" in told(silent)


def test_options_survive_the_way() -> None:
    asked = Options(names=("a",), fetch=(("http://m/x", "ab"),), registry="http://r", images=True, services=("a:1",))
    assert from_json(asked.to_json()) == asked
    assert from_json('{"later": 1}') == Options()


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda one: (
            st.lists(one)
            | st.dictionaries(st.sampled_from(["items", "is", "why", "hostname", "memory", "file:/x", "gpus"]), one)
        ),
    )
)
def test_whatever_a_host_says_is_data(value: object) -> None:
    for document in (json.dumps(value), json.dumps({"items": value}), json.dumps({"items": {"gpus": value}})):
        assert isinstance(parse_facts(document), HostFacts | Unread)


def test_no_text_of_a_host_acts_on_a_terminal() -> None:
    told = {"items": {"hostname": {"is": "a\x1b]0;x\x07\nb"}, "kernel": {"why": "\x1b[31m" + "x" * 9999}}}
    found = parse_facts(json.dumps(told))
    assert isinstance(found, HostFacts)
    assert isinstance(found.kernel, Unread)
    assert found.hostname == "a\ufffd]0;x\ufffd b"
    assert found.kernel.why == "x" * 300
