"""Images of kubeadm's list, all in one archive that containerd imports; each layer is kept and unpacked once a host.

They are called as kubeadm calls them and hold what was compiled here, not what upstream publishes.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import tarfile
from pathlib import Path

from deployments.images.oci import Layer
from tests.bed.commands import run
from tests.bed.images import USERS, add_entry
from tests.bed.layout import MULTI_CALL, Cache
from tests.lab.programs import KUBERNETES, VERSION, program

SHELL_TOOLS = ("sh", "sleep", "cat", "wget", "nslookup", "nc", "ls", "echo", "test", "mkdir", "rm", "df", "true")
"""Names under which the images find busybox."""
PACKET_FILTER = (
    *("/usr/sbin/xtables-nft-multi", "/usr/sbin/xtables-legacy-multi", "/usr/sbin/nft", "/usr/sbin/conntrack"),
    *("/usr/sbin/ipset", "/usr/bin/ip", "/usr/bin/kmod"),
)
"""What kube-proxy calls, from the hosts' Debian."""
PROTOCOLS = b"ip 0 IP\nicmp 1 ICMP\ntcp 6 TCP\nudp 17 UDP\nipv6-icmp 58 IPv6-ICMP\nsctp 132 SCTP\n"
"""Names of /etc/protocols. Without them nft calls tcp 6, and a kube-proxy that begins over its own table, which it
reads back by name, takes every service for another one and removes it."""
XTABLES = ("iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore")
PLUGINS = "usr/lib/x86_64-linux-gnu/xtables"
BUSYBOX = "busybox.lab/busybox:1"
"""For pods of tests; nobody has it but this archive."""
LAYERS = {
    "kube-apiserver": ("kube",),
    "kube-controller-manager": ("kube",),
    "kube-scheduler": ("kube",),
    "etcd": ("kube",),
    "kube-proxy": ("kube", "net"),
    "coredns": ("coredns",),
    "pause": ("pause",),
    "busybox": ("base",),
}
"""Layers of an image by the last part of its name, the lowest first."""
ENTRY = {"pause": "/pause", "coredns": "/coredns"}


def names(here: Cache, version: str) -> list[str]:
    """The images that this version's kubeadm wants, and one for pods of tests."""
    kubeadm = program(here, "kubeadm", version)
    listed = run(kubeadm, "config", "images", "list", "--kubernetes-version", version).split()
    return [*listed, BUSYBOX]


def short(image: str) -> str:
    """`coredns` of registry.k8s.io/coredns/coredns:v1.14.2."""
    return image.rpartition("/")[2].partition(":")[0]


def with_users() -> Layer:
    """Users, and a folder for temporary files."""
    layer = Layer()
    layer.folder("/tmp", 0o1777)
    layer.data("/etc/passwd", USERS)
    layer.data("/etc/group", b"root:x:0:\nnogroup:x:65534:\n")
    layer.data("/etc/nsswitch.conf", b"hosts: files dns\n")
    return layer


def layer_of(name: str, here: Cache, root: Path, version: str) -> Layer:
    """One layer of `LAYERS`."""
    layer = with_users() if name in ("kube", "coredns", "base") else Layer()
    if name == "kube":
        layer.file("/usr/local/bin/kubernetes", program(here, KUBERNETES, version))
        for called in MULTI_CALL:
            layer.link(f"/usr/local/bin/{called}", "kubernetes")
    elif name == "net":
        add_programs(layer, root, PACKET_FILTER)
        for called in XTABLES:
            layer.link(f"/usr/sbin/{called}", "xtables-nft-multi")
        layer.link("/usr/sbin/modprobe", "/usr/bin/kmod")
        layer.data("/etc/protocols", PROTOCOLS)
        for plugin in sorted((root / PLUGINS).iterdir()):
            layer.file(f"/{PLUGINS}/{plugin.name}", plugin)
    elif name == "base":
        layer.file("/bin/busybox", root / "usr/bin/busybox")
        for called in SHELL_TOOLS:
            layer.link(f"/bin/{called}", "busybox")
    else:
        layer.file(f"/{name}", here.binaries / name)
    return layer


def add_programs(layer: Layer, root: Path, programs: tuple[str, ...]) -> None:
    """Programs of the hosts' Debian with the libraries that they name, where the loader looks for them."""
    for path in programs:
        real = inside(root, "readlink", "-f", path).strip()
        layer.file(real, root / real.lstrip("/"))
        if real != path:
            layer.link(path, real)
        for word in inside(root, "ldd", real).split():
            if word.startswith("/"):
                layer.file(word, root / inside(root, "readlink", "-f", word).strip().lstrip("/"))


def inside(root: Path, *command: str) -> str:
    """What a command says in the hosts' root file system; of one that fails, what it said until then."""
    return subprocess.run(["chroot", str(root), *command], capture_output=True, text=True, check=False).stdout


def archive(here: Cache, root: Path, version: str) -> Path:
    """The archive of a version's images; it is written where it is not there.

    The next patch's has only those that have other names than ours: the rest is the same. It is named after how it is
    made, too: another layer is another archive.
    """
    made = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:8]
    target = here.images / f"images-{version}-{root.name}-{made}.tar"
    if target.exists():
        return target
    ours = names(here, VERSION) if version != VERSION else []
    wanted = [image for image in names(here, version) if image not in ours]
    parts_of_all = sorted({part for image in wanted for part in LAYERS[short(image)]})
    contents = {name: layer_of(name, here, root, version).content() for name in parts_of_all}
    digests = {name: f"sha256:{hashlib.sha256(content).hexdigest()}" for name, content in contents.items()}
    half = target.with_name(f".{target.name}.half")
    listed: list[dict[str, object]] = []
    with tarfile.open(half, "w") as packed:
        for name, content in contents.items():
            add_entry(packed, f"{name}.tar", content)
        for image in wanted:
            parts = LAYERS[short(image)]
            config = _config(image, [digests[part] for part in parts])
            called = f"{hashlib.sha256(config).hexdigest()}.json"
            add_entry(packed, called, config)
            listed.append({"Config": called, "RepoTags": [image], "Layers": [f"{part}.tar" for part in parts]})
        add_entry(packed, "manifest.json", json.dumps(listed).encode())
    half.rename(target)
    return target


def tags(path: Path) -> list[str]:
    """Names of the images in an archive."""
    with tarfile.open(path) as packed:
        content = packed.extractfile("manifest.json")
        assert content is not None
        return [tag for image in json.load(content) for tag in image["RepoTags"]]


def _config(image: str, digests: list[str]) -> bytes:
    settings: dict[str, object] = {
        "Env": ["PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
        "WorkingDir": "/",
        "Labels": {"image": image},  # so that two images of the same layers are two
    }
    if entry := ENTRY.get(short(image)):
        settings["Entrypoint"] = [entry]
    roots = {"type": "layers", "diff_ids": digests}
    return json.dumps({"architecture": "amd64", "os": "linux", "config": settings, "rootfs": roots}).encode()
