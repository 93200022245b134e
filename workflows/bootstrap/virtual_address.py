"""The API's virtual address: keepalived carries it to a control plane whose API server lives.

Each control plane tells the others alone (unicast), asks its own API server as an unprivileged user over a verified
connection, and is worth 50 more while that one lives: the address follows a living API, and rests where it is while
none does.
"""

from __future__ import annotations

import shlex

from profiles.bootstrap.inventory import ApiEndpoint, Bootstrap
from workflows.bootstrap.host_file import HELPERS, SETTINGS, UNITS, HostFile

UNIT = "primus-api-address.service"
CONFIG = f"{SETTINGS}/keepalived.conf"
CHECK = f"{HELPERS}/api-lives"
START = f"{HELPERS}/api-address"
HIGHEST = 150
"""Priority of the first control plane; each further one has one less."""
LIVES = 50
"""More than the first one is above the last: whoever's API lives comes before all others."""
_CONFIG = """global_defs {{
  router_id {name}
  enable_script_security
  script_user nobody
}}
vrrp_script api {{
  script "{check}"
  interval 2
  timeout 3
  fall 2
  rise 1
  weight {lives}
}}
vrrp_instance api {{
  state BACKUP
  interface @INTERFACE@
  virtual_router_id {router}
  priority {priority}
  advert_int 1
  unicast_src_ip {own}
  unicast_peer {{
{peers}  }}
  virtual_ipaddress {{
    {address}/32
  }}
  track_script {{
    api
  }}
}}
"""
_CHECK = """#!/usr/bin/env python3
# Whether the API server of this host serves: as nobody, with its certificate compared.
import ssl
import sys
import urllib.request

try:
    context = ssl.create_default_context(cafile="/etc/kubernetes/pki/ca.crt")
    with urllib.request.urlopen("https://{own}:{port}/livez", timeout=2, context=context) as answer:
        sys.exit(0 if answer.status == 200 else 1)
except (OSError, ValueError) as error:
    sys.exit(str(error))
"""
_START = """#!/bin/sh
# keepalived with the interface that has the node's own address now, whatever it is called after a reboot.
set -eu
interface={interface}
[ -n "$interface" ] || interface=$(ip -o -4 address show to {own}/32 | awk '{{ print $2; exit }}')
[ -n "$interface" ] || {{ echo "no interface has the address {own}" >&2; exit 1; }}
sed "s/@INTERFACE@/$interface/" {config} > "$RUNTIME_DIRECTORY/keepalived.conf"
exec keepalived --dont-fork --vrrp --use-file "$RUNTIME_DIRECTORY/keepalived.conf" \\
  --pid "$RUNTIME_DIRECTORY/keepalived.pid" --vrrp_pid "$RUNTIME_DIRECTORY/vrrp.pid"
"""
_UNIT = f"""[Unit]
Description=The virtual address of the cluster's API
Wants=network-online.target
After=network-online.target

[Service]
ExecStart={START}
RuntimeDirectory=primus-api-address
Restart=always
RestartSec=2

[Install]
WantedBy=multi-user.target
"""


def files(bootstrap: Bootstrap, endpoint: ApiEndpoint, name: str) -> list[HostFile]:
    """Files of one control plane."""
    planes = bootstrap.control_planes
    own = bootstrap.hosts[name].ip
    peers = "".join(f"    {bootstrap.hosts[other].ip}\n" for other in planes if other != name)
    config = _CONFIG.format(
        name=name,
        check=CHECK,
        lives=LIVES,
        router=endpoint.router_id,
        priority=HIGHEST - planes.index(name),
        own=own,
        peers=peers,
        address=endpoint.address,
    )
    return [
        HostFile(CONFIG, config),
        HostFile(CHECK, _CHECK.format(own=own, port=endpoint.port), 0o755),
        HostFile(START, _START.format(interface=shlex.quote(endpoint.interface), own=own, config=CONFIG), 0o755),
        HostFile(f"{UNITS}/{UNIT}", _UNIT),
    ]
