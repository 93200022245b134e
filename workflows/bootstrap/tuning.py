"""What a host's kernel is set to, kept over reboots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from profiles.bootstrap.inventory import NodeTuning
from workflows.bootstrap.host_file import HELPERS, UNITS, HostFile

SYSCTLS = "/etc/sysctl.d/99-primus-flows.conf"
MODULES = "/etc/modules-load.d/primus-flows.conf"
SCRIPT = f"{HELPERS}/tune"
UNIT = "primus-tuning.service"
_UNIT = f"""[Unit]
Description=Huge pages and CPU frequency as the cluster's profile wants them
DefaultDependencies=no
After=sysinit.target local-fs.target
Before=kubelet.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart={SCRIPT}

[Install]
WantedBy=multi-user.target
"""
_PAGES = '[ ! -w {path} ] || echo "{word}" > {path}\n'
_GOVERNOR = """for file in /sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor; do
  [ ! -w "$file" ] || echo "{word}" > "$file"
done
"""


def sysctls(tuning: NodeTuning, wanted: Mapping[str, str]) -> dict[str, str]:
    """Kernel parameters by name; one with a leading `-` may be missing in the kernel."""
    numa = {"on": "1", "off": "0"}.get(tuning.numa_balancing)
    return dict(sorted({**wanted, **({"-kernel.numa_balancing": numa} if numa else {})}.items()))


def files(tuning: NodeTuning, wanted: Mapping[str, str], modules: Sequence[str]) -> list[HostFile]:
    """Files that keep all of it over reboots."""
    lines = [f"{name} = {value}" for name, value in sysctls(tuning, wanted).items()]
    made = [HostFile(SYSCTLS, "\n".join(lines) + "\n"), HostFile(MODULES, "\n".join(modules) + "\n")]
    if script := _script(tuning):
        made += [HostFile(SCRIPT, script, 0o755), HostFile(f"{UNITS}/{UNIT}", _UNIT)]
    return made


def units(tuning: NodeTuning) -> list[str]:
    """Units of these files."""
    return [UNIT] if _script(tuning) else []


def _script(tuning: NodeTuning) -> str:
    pages, governor = tuning.transparent_hugepages, tuning.cpu_governor
    body = _PAGES.format(path="/sys/kernel/mm/transparent_hugepage/enabled", word=pages) if pages else ""
    body += _GOVERNOR.format(word=governor) if governor else ""
    return f"#!/bin/sh\nset -eu\n{body}" if body else ""
