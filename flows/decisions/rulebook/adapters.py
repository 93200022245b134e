"""Network adapters, their kernel drivers, ports and cables, and tools that look at them."""

from __future__ import annotations

from flows.decisions.rules import Rule
from profiles.vocabulary import FaultClass

F = FaultClass
WAITING = ("collective_timeout", "nccl-unhandled")

RULES: tuple[Rule, ...] = (
    Rule("mlx5-fatal",
         r"mlx5_core.{0,120}(?:device's health compromised|health poll failed|unrecoverable|"
         r"fatal error detected|FW fatal|Fatal error \d detected|Health issue observed|device is in error state|"
         r"mlx5_error_sw_reset|enter_error_state|PCI slot is unavailable|pci_err_detected|firmware internal error|"
         r"handling bad device|recovery failed|FW (?:assert|error) detected|mlx5_load_one failed with|"
         r"init_one:.{0,40}failed|handle_hca_cap failed|probe of \S{1,40} failed with error)", F.FABRIC, 0.93, "node",
         "mlx5_core 0000:3b:00.0: poll_health:825:(pid 0): device's health compromised - reached miss count",
         "mlx5_core 0000:3b:00.0: firmware version: 28.39.1002",
         "mlx5 kernel driver, health.c", literals=("mlx5_core",), supersedes=WAITING),
    Rule("mlx5-command-timeout", r"mlx5_core.{0,120}(?:wait_func(?:_handle_exec_timeout)?:|cmd_exec_timeout|"
         r"timeout\. Will cause a leak of a command)", F.FABRIC, 0.85, "node",
         "mlx5_core 0000:ab:00.0: wait_func:1173:(pid 2218): ACCESS_REG(0x805) timeout. Will cause a leak "
         "of a command resource",
         "mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link ACTIVE",
         "mlx5 kernel driver, cmd.c", literals=("timeout", "wait_func:"), supersedes=WAITING),
    Rule("mlx5-tx-timeout",
         r"\b(?:mlx5_core|mlx4_en|bnxt_en|ice|i40e|ionic|ena|gve).{0,80}TX timeout detected|NETDEV WATCHDOG: .{0,80}transmit queue \d+ timed out|"
         r"\bNETDEV WATCHDOG: CPU: \d{1,5}: transmit queue", F.FABRIC, 0.75, "node",
         "mlx5_core 0000:5e:00.0 eth2: TX timeout detected",
         "mlx5_core 0000:5e:00.0 eth2: Link up",
         "drivers' transmit watchdogs; NVSentinel issue 1334", literals=("netdev watchdog: ", "tx timeout detecte")),
    Rule("cable-error",
         r"Port module event(?:\[error\])?: module \d{1,3}, (?:Cable error|Cable unplugged)|"
         r"\b(?:transceiver|QSFP\w{0,4}|optical module|SFP\w{0,3}).{0,40}(?:fault|removed|unplugged|not present|high temperature alarm)",
         F.FABRIC, 0.75, "node",
         "mlx5_core 0000:5c:00.0: Port module event[error]: module 0, Cable error, High Temperature",
         "mlx5_core 0000:5c:00.0: Port module event: module 0, Cable plugged",
         "mlx5 events.c", literals=("port module event", "transceiver", "qsfp", "optical module", "sfp"),
         supersedes=WAITING),
    Rule("nic-link-down",
         r"\b(?:mlx5_core|mlx4_core|mlx4_en|bnxt_en|ionic|ice|i40e|ixgbe|igb|irdma|ena|efa|gve|qede|hns3|cxgb4|tg3|hfi1|"
         r"mlx5_ib)\b.{0,80}\b(?:(?i:link(?: is)? down)|Port: \d+ Link DOWN|NIC Link is Down|Lost carrier)", F.FABRIC,
         0.1, "node",
         "mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link DOWN",
         "mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link INIT",
         "NIC drivers; a flap alone is not a fault, so the observers of links judge it", literals=("link down", "link is down", "lost carrier"),
         supersedes=WAITING),
    Rule("bond-down", r"bond\w{1,12}: .{0,60}link status definitely down", F.FABRIC, 0.1, "node",
         "bond0: (slave ens1f0np0): link status definitely down, disabling slave",
         "bond0: (slave ens1f0np0): link status definitely up, 100000 Mbps full duplex",
         "Linux bonding: the observers of links judge it", literals=("link status defini",)),
    Rule("interfaceless-bond", r"bond\w{1,12}: .{0,60}now running without any active interface", F.FABRIC, 0.75, "node",
         "bond0: now running without any active interface!",
         "bond0: active interface up!",
         "Linux bonding", literals=("now running without",), supersedes=WAITING),
    Rule("bnxt-firmware",
         r"bnxt_(?:en|re).{0,100}(?:[Ff]irmware (?:fatal|non-fatal|non-responsive|not responding)|Error.{0,20}hwrm|"
         r"hwrm req_type .{0,40}timeout|FW (?:fatal|hang)|fatal (?:exception|error)|Failed to (?:modify|create) HW QP)", F.FABRIC,
         0.85, "node",
         "bnxt_en 0000:c1:00.0 ens1f0np0: Firmware fatal exception, hwrm req_type 0x15 seq id 0x3 timeout",
         "bnxt_en 0000:c1:00.0 ens1f0np0: NIC Link is Up, 400000 Mbps",
         "Broadcom bnxt_en driver", literals=("bnxt_",), supersedes=WAITING),
    Rule("ionic-fatal", r"ionic.{0,80}(?:FW (?:stopped|hang|down|appears)|heartbeat stalled|DEVCMD TIMEOUT|"
         r"DEVCMD \w{1,40} timeout|firmware (?:stopped|crashed|reset))", F.FABRIC, 0.85, "node",
         "ionic 0000:61:00.0: FW heartbeat stalled at 8913",
         "ionic 0000:61:00.0: Link up - 400 Gbps",
         "AMD Pensando AINIC driver",
         literals=(" timeout", "fw appears", "fw down", "fw hang", "fw stopped", "heartbeat stalled", "firmware stopped",
                   "firmware crashed", "firmware reset"),
         vendor="amd", supersedes=WAITING),
    Rule("ena-efa-reset",
         r"\b(?:ena|efa|gve|irdma|ice|i40e|hns3|hfi1|rdmavt)\b \S{0,40} ?.{0,60}(?:[Rr]eset(?:ting)? (?:requested|the device|"
         r"reason|due to)|Keep alive watchdog timeout|[Dd]evice (?:has )?(?:hung|stopped responding)|admin queue (?:error|timeout)|"
         r"Failed to process command \w{2,40}|missed (?:completions?|interrupts?)|Malicious event|PFR requested|tx hang)", F.FABRIC,
         0.65, "node",
         "ena 0000:00:05.0 eth0: Keep alive watchdog timeout.",
         "ena 0000:00:05.0 eth0: Elastic Network Adapter (ENA) found",
         "drivers of clouds' and of Intel's adapters",
         literals=("reset", "keep alive watchdog", "device hung", "device has hung", "stopped responding", "admin queue ",
                   "failed to process c", "missed completion", "missed interrupt", "malicious event", "pfr requested", "tx hang")),
    Rule("ib-port-state",
         r"\b(?:mlx\d_\d{1,2}|mlx5_bond_\d|ib\d{1,2}|hfi1_\d|bnxt_re\d{1,2}|irdma\d{1,2}|rdmap\w{3,20}|ionic_\d{1,2})\b.{0,120}"
         r"(?:SM (?:lost|not found)|port \d+ (?:is )?(?:in )?(?:INIT|DOWN) state|state[: ]{1,2}(?:1: )?(?:DOWN|Down)|"
         r"physical_state[: ]{1,2}(?:DISABLED|POLLING|LINK_UP_FAIL)|is not (?:ACTIVE|active)|link_layer .{0,30}\bdown\b)",
         F.FABRIC, 0.65, "node",
         "ibstat: mlx5_3: port 1 is in INIT state, subnet manager not running",
         "mlx5_3: port 1 is in ACTIVE state",
         "InfiniBand diagnostics, rdma link",
         literals=("sm lost", "sm not found", "state", "is not active", "link_layer ")),
    Rule("ib-error-counters",
         r"(?i)\b(?:link_?downed|LinkErrorRecovery|SymbolErrorCounter|port_rcv_errors|local_ack_timeout_err|"
         r"roce_adp_retrans\w{0,4}|packet_seq_err|excessive_buffer_overrun\w{0,8}|link_error_recovery)\w{0,8}"
         r"[ .:=]{1,40}(?:increased|[1-9]\d{2,12}\b)", F.FABRIC, 0.5, "node",
         "mlx5_4 port 1 link_error_recovery: 4211",
         "mlx5_4 port 1 link_downed: 0",
         "InfiniBand port counters",
         literals=("link_downed", "linkdowned", "linkerrorrecovery", "symbolerrorcounter", "port_rcv_errors",
                   "local_ack_timeout_err", "roce_adp_retrans", "packet_seq_err", "excessive_buffer_ov", "link_error_recovery")),
    Rule("node-check-fabric",
         r"(?i)(?:health check|nhc|node check|preflight|NPD|node-problem-detector).{0,80}(?:check_hw_ib|check_ib\w{0,12}|IB (?:port|link)|"
         r"infiniband|RoCE|NIC|rdma).{0,120}(?:fail|down|not active|no .{0,20}port|error)", F.FABRIC, 0.75, "node",
         "ERROR: nhc: Health check failed: check_hw_ib: No IB port mlx5_0:1 is ACTIVE (LinkUp).",
         "nhc: Health check passed: check_hw_ib",
         "LBNL node health check and its like",
         literals=("check_hw_ib", "check_ib", "ib port", "ib link", "infiniband", "roce", "nic", "rdma")),
    Rule("pcie-aer-fatal",
         r"(?:PCIe Bus Error: severity=Uncorrect(?:ed|able) \((?:Fatal|Non-Fatal)\)|AER: Uncorrect(?:ed|"
         r"able) \((?:Fatal|Non-Fatal)\) error)", F.GPU_HARDWARE, 0.75, "node",
         "pcieport 0000:00:01.1: AER: Uncorrected (Fatal) error received: 0000:02:00.0",
         "pcieport 0000:00:01.1: AER: Corrected error received: 0000:02:00.0",
         "Linux PCIe AER", literals=("uncorrect",)),
    Rule("ib-kernel-error",
         r"\b(?:infiniband|ib_core|mlx5_ib|rdma_rxe|ipoib|ib\d{1,2}|efa_\d)\b.{0,60}(?:dump error cqe|dump_cqe|QP .{0,24}error|"
         r"Failed to (?:process command|allocate|create|register|reg|modify|destroy)\b.{0,60}(?:err|status|\[)[ =]?-?\d|multicast join failed|transmit timeout|failed to modify QP|ib_query_port failed)", F.FABRIC, 0.6, "node",
         "infiniband mlx5_2: dump_cqe:272:(pid 0): dump error cqe",
         "infiniband mlx5_2: registered",
         "Linux RDMA core", literals=("dump error cqe", "dump_cqe", "error", "multicast join fai", "transmit timeout",
                                      "failed to modify", "ib_query_port fail", "failed to process c", "failed to allocate", "failed to create", "failed to register", "failed to reg", "failed to destroy")),
)  # fmt: skip
