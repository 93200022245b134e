"""JuiceFS on the lab's hosts, as a site mounts it: its names in an etcd of the LAN, its data in an object store there.

The client is upstream's own; etcd is the bed's, the object store moto's, which forgets everything when it ends.
"""

from __future__ import annotations

import sys

from tests.bed import artifacts
from tests.bed import layout as bed_layout
from tests.bed.commands import run, succeeds, until
from tests.bed.layout import ROOT
from tests.lab import groups, releases
from tests.lab.components import programs
from tests.lab.hosts import Host
from tests.lab.lab import LAN, Lab, in_lan
from tests.lab.layout import NAMESPACE, SERVER
from tests.lab.programs import place_file
from tests.support.running.waiting import patience

MOUNT = "/mnt/primus"
NAMES = f"{SERVER}:2379"
DATA = f"http://{SERVER}:{artifacts.PORT}/{artifacts.BUCKET}"
VOLUME = f"etcd://{NAMES}/primus"
CLIENT = "/usr/local/bin/juicefs"
MOUNT_S = patience(60.0)
UNIT = f"""[Unit]
Description=JuiceFS at {MOUNT}
After=network.target
Before=kubelet.service

[Service]
ExecStartPre=/bin/mkdir -p {MOUNT}
ExecStart={CLIENT} mount --no-usage-report --cache-dir /var/cache/juicefs {VOLUME} {MOUNT}
ExecStop={CLIENT} umount {MOUNT}
Restart=on-failure

[Install]
WantedBy=multi-user.target
"""


def serve(lab: Lab) -> None:
    """A new volume in the LAN; what an earlier one held is gone with its object store."""
    client = programs.juicefs()
    place_file(client, lab.folder.mirror / "juicefs")
    logs = lab.folder.logs
    store = [sys.executable, "-m", "tests.bed.artifacts", SERVER]
    groups.spawn(LAN, [f"cd {ROOT}", in_lan(store)], logs / "objects.log")
    etcd = [
        *(str(bed_layout.cache().binaries / "etcd"), "--data-dir", str(lab.folder.root / "juicefs-names")),
        *("--listen-client-urls", f"http://{NAMES}", "--advertise-client-urls", f"http://{NAMES}"),
        *("--listen-peer-urls", "http://127.0.0.1:2380", "--initial-advertise-peer-urls", "http://127.0.0.1:2380"),
        *("--initial-cluster", "default=http://127.0.0.1:2380"),
    ]
    groups.spawn(LAN, [in_lan(etcd)], logs / "names-of-files.log")
    lan = ("nsenter", f"--net=/run/netns/{NAMESPACE}", "--")
    for url in (DATA, f"http://{NAMES}/health"):
        until(f"{url} answers", lambda url=url: succeeds(*lan, "curl", "-sf", url), MOUNT_S, every_s=0.5)
    keys = ("--access-key", "lab", "--secret-key", "lab")
    run(*lan, client, "format", "--storage", "s3", "--bucket", DATA, *keys, "--trash-days", "0", VOLUME, "primus")


def mount(host: Host) -> None:
    """The volume on a host, also after a boot."""
    host.run(f"curl -sfo {CLIENT} {releases.MIRROR}/juicefs && chmod 755 {CLIENT}")
    host.write("/etc/systemd/system/juicefs.service", UNIT)
    host.run("systemctl daemon-reload && systemctl enable -q --now juicefs")
    until(f"JuiceFS on {host.name}", lambda: "fuse.juicefs" in host.run(f"findmnt -no FSTYPE {MOUNT}"), MOUNT_S)
