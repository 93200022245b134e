"""The fabric: NICs, InfiniBand and RoCE, their drivers, and what NCCL and RCCL say about them."""

from __future__ import annotations

from flows.decisions.rules import Rule
from profiles.vocabulary import FaultClass

F = FaultClass

RULES: tuple[Rule, ...] = (
    Rule("ib-completion-error",
         r"NET/IB ?[^:]{0,4}: Got completion (?:from peer (?P<peer>[\w.\-:]{1,64}?)(?:<\d{1,5}>)? )?with "
         r"(?:status=|error )(?:12|10|13|11)\b", F.FABRIC, 0.85, "nobody",
         "kp-ddp-worker-0:3468:3905 [4] ib_plugin.c:1615 NCCL WARN NET/IB : Got completion from peer "
         "10.216.210.236<54862> with status=12 opcode=0 len=0 vendor err 129 (Recv)",
         "NCCL WARN NET/IB : Got completion from peer 10.216.210.236<54862> with status=5 opcode=32656 "
         "len=32659 vendor err 249 (Recv)",
         "NCCL issues 1405, 1814: 12 = transport retries exceeded", literals=(": got completion ",),
         supersedes=("collective_timeout", "nccl-unhandled")),
    Rule("ib-completion-flush", r"NET/IB ?[^:]{0,4}: Got completion .{0,80}with (?:status=|error )5\b", F.FABRIC,
         0.5, "nobody",
         "hostname-test:984:1357 [4] ib_plugin.c:1615 NCCL WARN NET/IB : Got completion from peer "
         "172.36.143.59<44206> with status=5 opcode=32656 len=32659 vendor err 249 (Recv)",
         "NCCL WARN NET/IB : Got completion from peer 172.36.143.59<44206> with status=12 opcode=129 "
         "len=65536 vendor err 129",
         "verbs: 5 = flushed after another error", literals=(": got completion ",), echo=True),
    Rule("ib-async-fatal",
         r"NET/IB ?: [^ ]{0,40} ?(?:Got async event|Async event).{0,10}: (?:port error|device fatal|"
         r"local catastrophic error)", F.FABRIC, 0.85, "node",
         "NCCL WARN NET/IB : mlx5_3:1 Got async event : port error",
         "NCCL WARN NET/IB : mlx5_3:1 Got async event : client reregistration",
         "NCCL net_ib async thread", literals=(": device fatal", "error"),
         supersedes=("collective_timeout", "nccl-unhandled")),
    Rule("mlx5-fatal", r"mlx5_core.{0,120}(?:device's health compromised|health poll failed|unrecoverable|"
         r"fatal error detected|FW fatal|Fatal error [12] detected)", F.FABRIC, 0.93, "node",
         "mlx5_core 0000:3b:00.0: poll_health:825:(pid 0): device's health compromised - reached miss count",
         "mlx5_core 0000:3b:00.0: firmware version: 28.39.1002",
         "mlx5 kernel driver, health.c", literals=("mlx5_core",),
         supersedes=("collective_timeout", "nccl-unhandled")),
    Rule("mlx5-command-timeout", r"mlx5_core.{0,120}(?:wait_func(?:_handle_exec_timeout)?:|cmd_exec_timeout|"
         r"timeout\. Will cause a leak of a command)", F.FABRIC, 0.85, "node",
         "mlx5_core 0000:ab:00.0: wait_func:1173:(pid 2218): ACCESS_REG(0x805) timeout. Will cause a leak "
         "of a command resource",
         "mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link ACTIVE",
         "mlx5 kernel driver, cmd.c", literals=("timeout", "wait_func:"),
         supersedes=("collective_timeout", "nccl-unhandled")),
    Rule("mlx5-tx-timeout",
         r"mlx5_core.{0,80}TX timeout detected|NETDEV WATCHDOG: .{0,80}transmit queue \d+ timed out", F.FABRIC, 0.8,
         "node",
         "mlx5_core 0000:5e:00.0 eth2: TX timeout detected",
         "mlx5_core 0000:5e:00.0 eth2: Link up",
         "mlx5e; NVSentinel issue 1334", literals=("netdev watchdog: ", "tx timeout detecte")),
    Rule("nic-link-down", r"(?:mlx5_core|bnxt_en|ionic|ice|i40e|mlx5_ib)\b.{0,80}\b(?:Link (?:is )?[Dd]own|"
         r"Port: \d+ Link DOWN|NIC Link is Down)", F.FABRIC, 0.7, "node",
         "mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link DOWN",
         "mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link INIT",
         "NIC drivers; a flap alone is not a fault", literals=("link down", "link is down"),
         supersedes=("collective_timeout", "nccl-unhandled")),
    Rule("bnxt-firmware",
         r"bnxt_(?:en|re).{0,100}(?:firmware (?:fatal|non-fatal) (?:exception|reset)|Error.{0,20}hwrm|"
         r"hwrm req_type .{0,40}timeout|FW (?:fatal|hang))", F.FABRIC, 0.85, "node",
         "bnxt_en 0000:c1:00.0 ens1f0np0: Firmware fatal exception, hwrm req_type 0x15 seq id 0x3 timeout",
         "bnxt_en 0000:c1:00.0 ens1f0np0: NIC Link is Up, 400000 Mbps",
         "Broadcom bnxt_en driver", literals=("bnxt_",)),
    Rule("ionic-fatal", r"ionic.{0,80}(?:FW (?:stopped|hang|down|appears)|heartbeat stalled|DEVCMD TIMEOUT|"
         r"DEVCMD \w{1,40} timeout)", F.FABRIC, 0.85, "node",
         "ionic 0000:61:00.0: FW heartbeat stalled at 8913",
         "ionic 0000:61:00.0: Link up - 400 Gbps",
         "AMD Pensando AINIC driver",
         literals=(" timeout", "fw appears", "fw down", "fw hang", "fw stopped", "heartbeat stalled"),
         vendor="amd"),
    Rule("ib-open-failed",
         r"NET/IB : Unable to open device|No device found\.? .{0,20}NET/IB|ibv_(?:open_device|create_qp|"
         r"reg_mr\w{0,12}|modify_qp).{0,20} failed(?: with error)?", F.FABRIC, 0.7, "node",
         "NCCL WARN Call to ibv_modify_qp failed with error Connection timed out",
         "NCCL INFO NET/IB : Using [0]mlx5_0:1/IB",
         "NCCL ibvwrap", literals=(" failed", "device"), supersedes=("collective_timeout",)),
    Rule("memlock-limit", r"(?:ibv_reg_mr|ibv_create_cq|memory registration).{0,60}Cannot allocate memory",
         F.CONFIG, 0.7, "code",
         "NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory",
         "ibv_reg_mr failed: Bad address",
         "NCCL troubleshooting: raise the locked memory limit", literals=("cannot allocate me",),
         supersedes=("ib-open-failed", "host-out-of-memory-errno"),
         advice="raise the memlock limit of the container"),
    Rule("no-route", r"(?:No route to host|Network is unreachable)", F.FABRIC, 0.6, "nobody",
         "NCCL WARN socketProgress: Connection to 10.4.1.7<40219> failed : No route to host",
         "traceroute: 3 hops",
         "errno EHOSTUNREACH, ENETUNREACH", literals=("network is unreach", "no route to host")),
    Rule("ucx-unreachable", r"UCX +ERROR .{0,80}(?:Transport retry count exceeded|Endpoint timeout)", F.FABRIC, 0.8,
         "nobody",
         "[1595598109.293924] [cn007:58829:0] ib_mlx5_log.c:177  UCX  ERROR Transport retry count exceeded "
         "on mlx5_0:1/IB",
         "[1595598109.293924] [cn007:58829:0] UCX  WARN  retry",
         "UCX", literals=("endpoint timeout", "transport retry co"),
         supersedes=("collective_timeout", "nccl-unhandled")),
    Rule("roce-gid", r"(?:Failed to get GID|no GID found|GID table is empty|ibv_query_gid.{0,20}failed)", F.CONFIG,
         0.55, "code",
         "NCCL WARN Call to ibv_query_gid failed with error No data available",
         "NCCL INFO GID index 3",
         "NCCL: wrong NCCL_IB_GID_INDEX",
         literals=("failed to get gid", "gid table is empty", "ibv_query_gid", "no gid found"),
         advice="check NCCL_IB_GID_INDEX and the RoCE set-up"),
    Rule("pcie-aer-fatal",
         r"(?:PCIe Bus Error: severity=Uncorrect(?:ed|able) \((?:Fatal|Non-Fatal)\)|AER: Uncorrect(?:ed|"
         r"able) \((?:Fatal|Non-Fatal)\) error)", F.GPU_HARDWARE, 0.75, "node",
         "pcieport 0000:00:01.1: AER: Uncorrected (Fatal) error received: 0000:02:00.0",
         "pcieport 0000:00:01.1: AER: Corrected error received: 0000:02:00.0",
         "Linux PCIe AER", literals=("uncorrect",)),
    Rule("ofi-completion-error", r"NET/OFI Request \S{0,24} ?completed with error", F.FABRIC, 0.82, "nobody",
         "NCCL WARN NET/OFI Request 0x7f456c222f60 completed with error. RC: 103. Error: 4126 (Unresponsive "
         "receiver (reachable by EFA device but handshake failed)",
         "NCCL WARN NET/OFI Could not find ncclGetVersion symbol",
         "aws-ofi-nccl", literals=("net/ofi request ",), supersedes=("collective_timeout",)),
    Rule("nccl-connect-failed",
         r"NCCL WARN .{0,80}(?:Connect(?:ion)? to (?P<peer>[\w.\-:]{1,64}?)(?:<\d{1,5}>)? failed ?: "
         r"(?:Connection timed out|Software caused connection abort|Operation timed out)|"
         r"Timeout waiting for connection)", F.FABRIC, 0.6, "nobody",
         "dgx-3:211:400 [0] misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to 10.4.1.7<40219> "
         "failed : Connection timed out",
         "dgx-3:211:400 NCCL INFO Connected all rings",
         "NCCL sockets", literals=("failed", "timeout waiting fo"), supersedes=("collective_timeout",)),
    Rule("bond-down", r"bond\d+: .{0,60}link status definitely down", F.FABRIC, 0.7, "node",
         "bond0: (slave ens1f0np0): link status definitely down, disabling slave",
         "bond0: (slave ens1f0np0): link status definitely up, 100000 Mbps full duplex",
         "Linux bonding", literals=("link status defini",)),
    Rule("ib-sm-lost",
         r"(?:mlx5_\d|ib\d+).{0,60}(?:SM (?:lost|not found)|port \d+ (?:is )?(?:in )?(?:INIT|DOWN) state)",
         F.FABRIC, 0.6, "nobody",
         "ibstat: mlx5_3: port 1 is in INIT state, subnet manager not running",
         "mlx5_3: port 1 is in ACTIVE state",
         "InfiniBand diagnostics", literals=("sm lost", "sm not found", "state")),
)  # fmt: skip
