"""Ports, cables and switches: what fabric managers, switches, and those who test links report."""

from __future__ import annotations

from flows.decisions.rules import Rule
from profiles.vocabulary import FaultClass

F = FaultClass
AFTER = ("collective_timeout", "nccl-unhandled")

RULES: tuple[Rule, ...] = (
    Rule("ibdiagnet-error",
         r"^-[EW]- .{0,200}(?i:Unexpected actual link|link (?:is )?down|symbol_error|link_down|high BER|BER .{0,30}exceed|not in active state|"
         r"Effective BER|link_error_recovery|port_rcv_errors)", F.FABRIC, 0.65, "nobody",
         "-E- Link: S0002c903/N0002c9/SwitchX P5 <--> gpu-03/U1/P1 - Unexpected actual link speed 10",
         "-I- Links Speed Check finished successfully",
         "ibdiagnet", literals=("-e- ", "-w- "), supersedes=AFTER),
    Rule("switch-port-down",
         r"(?:%LINEPROTO|%LINK|%ETHPORT|%IFMGR|%ETH_PORT_CHANNEL)-\d-\w{2,40}: .{0,160}(?i:\bdown\b)|\bInterface \S{3,40},? (?:is |changed state to )"
         r"(?:link )?[Dd]own\b|\b(?:osm_\w{3,40}|OpenSM)\b.{0,160}(?:from ACTIVE to (?:DOWN|INIT)|num:(?:129|130|131) |[Tt]rap (?:129|130|131)\b|"
         r"Overrun Threshold|changed state .{0,30}DOWN)|\bUFM\b.{0,80}[Ll]ink (?:is |went )?[Dd]own", F.FABRIC, 0.65, "nobody",
         "Oct 04 11:22:34 leaf-sw-12 Ebra: %LINEPROTO-5-UPDOWN: Line protocol on Interface Ethernet1/17/1, changed state to down",
         "Oct 04 11:22:34 leaf-sw-12 Ebra: %LINEPROTO-5-UPDOWN: Line protocol on Interface Ethernet1/17/1, changed state to up",
         "switches' syslog, OpenSM, UFM", literals=("%lineproto", "%link", "%ethport", "%eth_port_channel", "%ifmgr", "interface ", "osm_", "opensm", "ufm"),
         fallback=True, supersedes=AFTER),
    Rule("link-condition",
         r"\b(?:RDMA|IB|NIC|InfiniBand|Infiniband|RoCE|Ethernet|EFA)(?:Link|Port|Device|Nic|Card)?(?:Down|Flap(?:ping|ped)?|Fault|Lost)\b"
         r"(?![\"']?\W{1,30}(?:False|false|status\W{1,4}(?:False|false)|0\b))", F.FABRIC, 0.65, "node",
         "Warning  RDMALinkDown  kubelet  port 1 of mlx5_2 has no carrier",
         "RDMALinkDown   False   Wed, 02 Oct 2024 10:00:00   RDMALinkIsUp   all links are up",
         "conditions and alerts of node agents", literals=("down", "flap", "fault", "lost"), fallback=True, supersedes=AFTER),
    Rule("link-degraded",
         r"\b(?:mlx[45]_\w{1,8}|bnxt_re\d{1,2}|ionic_\d{1,2}|rdmap\w{3,20}|ib\d{1,2}|ibp\w{2,12}|HCA|NIC|RDMA|rail)\b.{0,80}(?:\bexpected (?:rate |speed |"
         r"width )?(?:of )?\d{2,3} ?G|\b(?i:degraded)\b(?!\W{1,4}(?:0|[Nn]o|[Ff]alse))|\blink fail(?:ure|ed)\b)", F.FABRIC, 0.65, "node",
         "health check: mlx5_6 rate 100 Gb/sec (2X NDR) expected 400 Gb/sec (4X NDR)",
         "health check: mlx5_6 rate 400 Gb/sec (4X NDR)",
         "node health checks: a link came up with fewer lanes", literals=("expected ", "degraded", "link fail"), fallback=True,
         supersedes=AFTER),
    Rule("no-ib-device", r"device '[^']{1,40}': sys files not found", F.FABRIC, 0.7, "node",
         "Fatal error:  device '*': sys files not found (/sys/class/infiniband/*/ports)",
         "Infiniband device 'mlx5_0' port 1 status:",
         "ibstatus: the machine shows no InfiniBand device", literals=("sys files not found",), supersedes=AFTER),
    Rule("netdev-down", r"^\s{0,8}Link detected: no\s*$|\bport \d{1,2} ==> \S{2,20} \(Down\)", F.FABRIC, 0.35, "node",
         "mlx5_4 port 1 ==> ibp155s0 (Down)",
         "mlx5_4 port 1 ==> ibp155s0 (Up)",
         "ethtool, ibdev2netdev: some ports are not wired at all", literals=("link detected: no", "==>"), fallback=True),
    Rule("perftest-unconnected",
         r"Couldn't create IB resources|Failed to modify QP(?: \w{1,12})? to RT[RS]|Unable to Connect the HCA's through the link", F.FABRIC,
         0.7, "nobody",
         " Unable to Connect the HCA's through the link",
         " Dual-port       : OFF          Device         : mlx5_0",
         "perftest", literals=("create ib resources", "failed to modify qp", "the hca's through"), fallback=True),
    Rule("port-down-said",
         r"\b(?:IB|[Ii]nfini[Bb]and|RDMA|RoCE|HCA|mlx[45]_\d{1,2})\b.{0,40}\b(?:link|port) (?:is |went )?(?:down|DOWN)\b|"
         r"\b(?:rdma|ib|roce)_(?:port|link)_down\b(?![\"']?\W{1,3}(?:0|false|False)\b)", F.FABRIC, 0.65, "node",
         "ERROR: Detected IB link down on port mlx5_2/1 (physical state: Polling)",
         "rdma_port_down=0 on mlx5_2/1",
         "health checks and alerts", fallback=True, literals=("link down", "link is down", "link went down", "port down", "port is down",
                   "port went down", "_port_down", "_link_down"), supersedes=AFTER),
    Rule("signal-integrity", r"\bBad signal integrity\b|\bBER\b.{0,40}\bexceed|\bPFC storm (?:was )?detected\b|"
         r"Port module event\[error\]: module \d{1,3}, \w", F.FABRIC, 0.65, "node",
         "Troubleshooting Info             : Bad signal integrity",
         "Troubleshooting Info             : No issue was observed",
         "mlxlink, mlx5, SONiC's PFC watchdog", fallback=True,
         literals=("bad signal integrity", "exceed", "pfc storm", "port module event"), supersedes=AFTER),
    Rule("rdma-cm-failed", r"\bRDMA_CM_EVENT_(?:UNREACHABLE|ADDR_ERROR|ROUTE_ERROR|CONNECT_ERROR|DEVICE_REMOVAL)\b|"
         r"\bib_(?:write|read|send)_(?:bw|lat)\b.{0,30}\bfailed\b", F.FABRIC, 0.65, "nobody",
         "failed to establish RDMA connection: rdma_cm event RDMA_CM_EVENT_UNREACHABLE, error -110",
         "rdma_cm event RDMA_CM_EVENT_ESTABLISHED",
         "librdmacm; perftest in preflight checks", fallback=True, literals=("rdma_cm_event_", "ib_write_", "ib_read_", "ib_send_"),
         supersedes=AFTER),
)  # fmt: skip
