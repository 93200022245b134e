"""The fabric: NCCL and RCCL about InfiniBand, RoCE, EFA and sockets; links, ports, cables, switches, adapters; RDMA."""

from __future__ import annotations

from flows.decisions.diagnosis.clues import Rule
from profiles.vocabulary import FaultClass

F = FaultClass
WAITING = ("collective_timeout",)
"""What everybody else prints when a link breaks."""

FABRIC_RULES: tuple[Rule, ...] = (
    Rule("nccl-connect-failed", r"Failed to execute operation (?:Connect|Setup) from rank \d{1,7}, retcode 2\b", F.FABRIC, 0.5, "nobody",
         "proxy.cc:1519 NCCL WARN [Proxy Service 11] Failed to execute operation Connect from rank 11, retcode 2",
         "proxy.cc:1119 NCCL WARN [Proxy Service 9] Failed to execute operation Connect from rank 9, retcode 6",
         "NCCL: a system call failed while the ranks were being connected; 6 is a peer that ended",
         supersedes=("nccl-peer-closed", "nccl-proxy-failed")),
    Rule("ib-completion-error",
         r"NET/IB ?[^:]{0,4}: ?Got completion (?:from peer (?P<peer>[\w.\-:%]{1,64}?)(?:<\d{1,5}>)? )?with "
         r"(?:status=|error )(?:IBV_WC_\w{2,24}\()?(?:12|10|13|11)\b", F.FABRIC, 0.88, "peer",
         "kp-ddp-worker-0:3468:3905 [4] ib_plugin.c:1615 NCCL WARN NET/IB : Got completion from peer "
         "10.216.210.236<54862> with status=12 opcode=0 len=0 vendor err 129 (Recv)",
         "NCCL WARN NET/IB : Got completion from peer 10.216.210.236<54862> with status=5 opcode=32656 "
         "len=32659 vendor err 249 (Recv)",
         "NCCL issues 1405, 1814: 12 = transport retries exceeded", supersedes=WAITING),
    Rule("ib-completion-local",
         r"NET/IB ?[^:]{0,4}: ?Got completion (?:from peer [\w.\-:%]{1,64}?(?:<\d{1,5}>)? )?with "
         r"(?:status=|error )(?:IBV_WC_\w{2,24}\()?(?:1|2|3|4|6|7|8|9)\b", F.FABRIC, 0.75, "nobody",
         "gpu5:6252:6325 [0] transport/net_ib.cu:788 NCCL WARN NET/IB : Got completion with error 4, opcode 1, len 0, "
         "vendor err 81",
         "gpu5:6252:6325 [0] transport/net_ib.cu:788 NCCL WARN NET/IB : Got completion with error 12, opcode 1, len 0",
         "verbs: 4 = local protection error, 9 = remote invalid request: the adapter or its set-up",
         supersedes=WAITING),
    Rule("ib-completion-flush",
         r"NET/IB ?[^:]{0,4}: ?Got completion .{0,80}with (?:status=|error )(?:IBV_WC_\w{2,24}\()?5\b", F.FABRIC,
         0.5, "nobody",
         "hostname-test:984:1357 [4] ib_plugin.c:1615 NCCL WARN NET/IB : Got completion from peer "
         "172.36.143.59<44206> with status=5 opcode=32656 len=32659 vendor err 249 (Recv)",
         "NCCL WARN NET/IB : Got completion from peer 172.36.143.59<44206> with status=12 opcode=129 "
         "len=65536 vendor err 129",
         "verbs: 5 = flushed after another error", echo=True),
    Rule("ib-async-fatal",
         r"NET/\w{2,8} ?: [^ ]{0,40} ?(?:Got async (?:error )?event|Async event|async fatal event on (?!QP)\w{2,16})"
         r".{0,24}: ?(?:port error|device fatal|local catastrophic error|local work queue catastrophic|CQ error)",
         F.FABRIC, 0.9, "node",
         "NCCL WARN NET/IB : mlx5_3:1 Got async event : port error",
         "NCCL WARN NET/IB : mlx5_3:1 Got async event : client reregistration",
         "NCCL net_ib async thread", supersedes=WAITING),
    Rule("ib-port-error", r"NET/\w{2,8} ?: [^ ]{1,40} Got non-fatal async event: port error", F.FABRIC, 0.8, "node",
         "nvl72-t11:393849:395082 [0] transport/net_ib.cc:253 NCCL WARN NET/IB : mlx5_3:1 Got non-fatal async event: "
         "port error(10)",
         "nvl72-t11:393849:395082 [0] transport/net_ib.cc:253 NCCL WARN NET/IB : mlx5_3:1 Got non-fatal async event: "
         "port active(9)",
         "NCCL net_ib async thread: the link is down; it may come back", supersedes=WAITING),
    Rule("ib-port-back",
         r"NET/\w{2,8} ?: [^ ]{1,40} (?:Got (?:non-fatal )?async event ?: (?:port active|client reregistration|"
         r"LID change|P_Key change|SM change|SQ drained|last WQE reached|GID table change)|GID table changed)", F.NONE, 1.0,
         "nobody",
         "NCCL WARN NET/IB : mlx5_3:1 Got async event : client reregistration",
         "NCCL WARN NET/IB : mlx5_3:1 Got async event : port error",
         "NCCL net_ib async thread: events of a living port"),
    Rule("ib-open-failed",
         r"NET/IB : Unable to (?:open device|query (?:device|port))|"
         r"\bibv_(?:open_device|create_qp|create_cq|query_port|query_device|query_gid|reg_mr\w{0,12}|modify_qp|post_send|"
         r"post_recv|poll_cq|alloc_pd)(?:\(\))? .{0,20}?failed(?! with error Cannot allocate| with error Bad address)"
         r"(?: with (?:error )?)?(?!.{0,40}Cannot allocate memory)", F.FABRIC, 0.72, "nobody",
         "NCCL WARN Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_bond_1:1, curr state INIT, "
         "next state RTR, local GID index 3, local GID ::ffff:172.168.20.71, remote GID ::ffff:172.16.20.65",
         "NCCL INFO NET/IB : Using [0]mlx5_0:1/IB",
         "NCCL ibvwrap: a queue pair that does not come up has no path, or a wrong GID", supersedes=WAITING,
         advice="check the adapters' ports, NCCL_IB_HCA, NCCL_IB_GID_INDEX and that every rail reaches its peers"),
    Rule("memlock-limit",
         r"(?:ibv_(?:reg_mr\w{0,12}|create_cq|create_qp)|memory registration).{0,60}Cannot allocate memory", F.CONFIG, 0.7,
         "code",
         "NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory",
         "ibv_reg_mr failed: Bad address",
         "NCCL troubleshooting: raise the locked memory limit",
         supersedes=("ib-open-failed", "host-out-of-memory-errno"), advice="raise the memlock limit of the container"),
    Rule("registration-failed", r"\bibv_reg_mr\w{0,12}(?:\(\))? failed(?: with error|:) Bad address", F.FABRIC, 0.5, "nobody",
         "NCCL WARN Call to ibv_reg_mr_iova2 failed with error Bad address",
         "NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory",
         "NCCL: GPU memory that the adapter cannot reach (nvidia-peermem, IOMMU, ACS)", supersedes=WAITING,
         advice="check nvidia-peermem, DMA-BUF and the IOMMU"),
    Rule("roce-gid", r"(?:Failed to get GID|no GID found|GID table is empty|No (?:valid )?GID(?: index)? found)",
         F.FABRIC, 0.6, "nobody",
         "NCCL WARN NET/IB : no GID found for device mlx5_2 port 1",
         "NCCL INFO GID index 3",
         "NCCL: no or a wrong GID", advice="check NCCL_IB_GID_INDEX and the RoCE set-up"),
    Rule("libmlx5-completion", r"\bmlx[45]: (?P<peer>[\w.-]{1,80}): got completion with error:", F.FABRIC, 0.7, "nobody",
         "mlx5: gpu5: got completion with error:",
         "mlx5: gpu5: completion queue created",
         "rdma-core, providers/mlx5/cq.c: the adapter's own dump", supersedes=WAITING),
    Rule("ofi-completion-error",
         r"NET/OFI Request \S{0,24} ?completed with error(?:.{0,500}Peer host id: (?P<peer>[\w-]{3,40}))?", F.FABRIC, 0.85,
         "peer",
         "NCCL WARN NET/OFI Request 0x7f456c222f60 completed with error. RC: 103. Error: 4126 (Unresponsive "
         "receiver (reachable by EFA device but handshake failed)",
         "NCCL WARN NET/OFI Could not find ncclGetVersion symbol",
         "aws-ofi-nccl", supersedes=("collective_timeout",)),
    Rule("efa-completion-error",
         r"\befa:\w{1,20}:\S{3,80}<warn>\s?.{0,20}\berr(?:or)?: -?\d{1,6}, message: .{1,600}?Peer host id: (?P<peer>[\w-]{3,40})",
         F.FABRIC, 0.85, "peer",
         "libfabric:451707:1708520807::efa:cq:efa_rdm_txe_handle_error():737<warn> err: 5, message: Invalid address My EFA "
         "addr: fi_addr_efa://[fe80::13:c2ff:fe6f:f03d]:0:1072483550 My host id: i-0db7083f3fcbebb65 Peer EFA addr: "
         "fi_addr_efa://[fe80::b8:aff:fe44:425]:0:947699476 Peer host id: i-0ce6d3d57139f053c (7)",
         "libfabric:451707:1708520807::efa:cq:efa_rdm_cq_open():120<info> message: 1024 entries",
         "libfabric, prov/efa", supersedes=WAITING),
    Rule("libfabric-error",
         r"(?i)\blibfabric:\d{1,9}:.{1,120}<warn>.{0,60}(?:\berr(?:or)?: -?\d{1,6}, message: (?!.{1,600}Peer host id)|"
         r"transport retry|link (?:is )?down|unresponsive|completion error|cq (?:read ?)?err|poll_cq.{0,40}err)", F.FABRIC, 0.7,
         "nobody",
         "libfabric:8811:1777727412::efa:ep_ctrl:efa_rdm_ep_poll():612<warn> err: 15, message: Remote destination "
         "resource not ready",
         "libfabric:8811:1777727412::core:mr:ofi_monitor():120<warn> FI_HMEM_CUDA: disabled",
         "libfabric's warnings of errors", supersedes=WAITING),
    Rule("nccl-peer-silent",
         r"[Cc]onnect(?:ion)? to (?P<peer>[\w.\-:%]{1,64}?)<\d{1,5}> (?:failed ?: |returned (?:\d{1,3}\()?)(?:"
         r"Connection timed out|Software caused connection abort|Operation timed out|No route to host|"
         r"Network is unreachable)", F.FABRIC, 0.62, "peer",
         "dgx-3:211:400 [0] misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to 10.4.1.7<40219> "
         "failed : Connection timed out",
         "dgx-3:211:400 NCCL INFO Connected all rings",
         "NCCL sockets", supersedes=("collective_timeout", "no-route")),
    Rule("nccl-peer-lost",
         r"(?:(?:Call to recv from|Call to send to) (?P<peer>[\w.\-:]{1,64}?)(?:<\d{1,5}>)? (?:failed ?: |returned )"
         r"(?:Connection timed out|No route to host|Network is unreachable|Software caused connection abort))", F.FABRIC, 0.55,
         "peer",
         "gpu-b11:91822:92411 [0] misc/socket.cc:58 NCCL WARN socketProgressOpt: Call to recv from 10.20.4.12<39721> "
         "failed : Connection timed out",
         "socketProgressOpt: Call to recv from 10.20.4.12<39721> failed : Connection reset by peer",
         "NCCL sockets: the peer's machine answers no more", supersedes=("no-route",)),
    Rule("nccl-accept-timeout", r"NCCL WARN .{0,80}Timeout waiting for connection", F.FABRIC, 0.5, "nobody",
         "dgx-3:211:400 [0] NCCL WARN NET/Socket : Timeout waiting for connection from rank 3",
         "dgx-3:211:400 NCCL INFO waiting for connection",
         "NCCL", supersedes=("collective_timeout",)),
    Rule("no-route", r"(?:No route to host|Network is unreachable)", F.FABRIC, 0.55, "nobody",
         "OSError: [Errno 113] No route to host",
         "traceroute: 3 hops",
         "errno EHOSTUNREACH, ENETUNREACH", fallback=True, supersedes=("python-exception",)),
    Rule("plugin-flow-error",
         r"(?:NET/FasTrak|NET/GPUDirectTCPX|NET/TCPX|NET/gIB).{0,120}(?:[Tt]imed? ?out|flow .{0,40}(?:error|stalled|"
         r"reset)|link down|connection (?:lost|reset))", F.FABRIC, 0.65, "nobody",
         "NCCL WARN NET/FasTrak : flow 0x7f21 to 10.8.0.4 stalled: no progress for 60 s",
         "NCCL INFO NET/FasTrak : using 8 devices",
         "Google's NCCL plugins", supersedes=WAITING),
    Rule("nccl-without-verbs",
         r"Failed to open lib(?:ibverbs|mlx5|rdmacm)\.so|dlvsym failed on (?:ibv|mlx5dv)_|NCCL WARN Missing \"", F.NONE, 1.0, "nobody",
         "ptv-gpu01:11007:11098 [0] misc/ibvwrap.cu:63 NCCL WARN Failed to open libibverbs.so[.1]",
         "ptv-gpu01:11007:11098 [0] misc/ibvwrap.cu:63 NCCL WARN Call to ibv_open_device failed",
         "NCCL takes sockets; RCCL's advice on the kernel's command line"),
    Rule("sharp-error",
         r"\[?(?:error|ERROR)\]? ?.{0,60}(?:sharp_coll_\w{2,40}|SHArP|sharp_?tree|aggregation node).{0,80}(?:fail|timed? ?out|error)|"
         r"\bsharpd\b.{0,80}(?:error|failed)", F.FABRIC, 0.45, "nobody",
         "[gpu-3:0:5512 - context.c:584] ERROR sharp_coll_init failed: aggregation node did not answer, timed out",
         "INFO sharp_coll_init started",
         "SHARP library", fallback=True),
)  # fmt: skip


AFTER = ("collective_timeout",)

LINK_RULES: tuple[Rule, ...] = (
    Rule("ibstat-down", r"^\s{0,12}(?:Port \d{1,3}: )?(?:State: (?:Down|Initializing|Armed)|Physical state: (?:Disabled|Polling|Sleep|LinkErrorRecovery))\s*$",
         F.FABRIC, 0.55, "node",
         "  Physical state: Polling",
         "  Physical state: LinkUp",
         "ibstat", supersedes=AFTER),
    Rule("link-flapping", r"(?i)\b(?:link|port|nic|carrier|interface|uplink)s?\b.{0,40}\bflap(?:ped|ping|s)\b(?!.{0,12}[:=] ?0\b)|"
         r"\bflapping\b.{0,60}\b(?:links?|ports?|nics?|mlx5_\d|rdma|carrier|interface)\b", F.FABRIC, 0.7, "node",
         "rdma link flapping on mlx5_7: 12 times in 10 minutes",
         "link flap detection enabled",
         "network operators, node problem detectors", supersedes=AFTER),
    Rule("link-error-counter", r"\b(?:link_downed|link_error_recovery|symbol_error(?:s|_counter)?|port_rcv_errors|"
         r"local_ack_timeout_err|packet_seq_err|roce_slow_restart)\b[\"']?[ =:]{1,3}[1-9]\d{2,18}\b", F.FABRIC, 0.55, "node",
         "mlx5_3/1 counters: symbol_error 8123",
         "mlx5_3/1 counters: symbol_error 0 link_downed 0",
         "perfquery, ethtool, exporters: hundreds of errors are no accident", fallback=True),
    Rule("mad-failed", r"_do_madrpc failed|\bmad_rpc\b.{0,60}\bfailed|ibpanic: .{0,80}failed", F.FABRIC, 0.7, "nobody",
         "ibwarn: [1234] mad_rpc: _do_madrpc failed; dport (Lid 12)",
         "mad_rpc: opened port 1",
         "infiniband-diags: the subnet manager or the port does not answer"),
    Rule("perftest-failed", r"^\s{0,4}Failed status \d{1,3}: wr_id|Completion with error at (?:client|server)", F.FABRIC, 0.85,
         "node",
         " Failed status 12: wr_id 0 syndrom 0x81",
         " Completed status 0: wr_id 0",
         "perftest (ib_write_bw)"),
    Rule("queue-pair-error", r"\b(?:mlx[45]_(?:core|ib|\d{1,3})|bnxt_re\w{0,6}|irdma\w{0,6}|ionic_?\w{0,6}|hns_roce\w{0,6}|erdma\w{0,6})\b"
         r".{0,100}\b(?:QP|CQ|qp|cq)\b.{0,60}\b(?:error|fatal|ERROR|FATAL)\b(?! ?[:=] ?0)", F.FABRIC, 0.65, "node",
         "mlx5_0: QP 1234 error: Local QP operation error",
         "mlx5_0: QP 1234 moved to RTS",
         "RDMA drivers", fallback=True, supersedes=AFTER),
    Rule("gid-missing", r"(?i)\b(?:unable to find|no|could not find|cannot find)(?: a| any)? (?:valid |usable |matching )?(?:RoCE ?v?2? )?"
         r"GID(?: index)?\b|\bGID index \d{1,3} (?:is )?(?:invalid|not (?:found|valid)|empty)", F.FABRIC, 0.6, "node",
         "NCCL WARN NET/IB : Unable to find a valid GID index",
         "NET/IB : GID index 3 is used",
         "NCCL, RCCL, UCX: the NIC has no address, or NCCL_IB_GID_INDEX names another one", fallback=True),
)  # fmt: skip


PORT_AFTER = ("collective_timeout",)

PORT_RULES: tuple[Rule, ...] = (
    Rule("ibdiagnet-error",
         r"^-[EW]- .{0,200}(?i:Unexpected actual link|link (?:is )?down|symbol_error|link_down|high BER|BER .{0,30}exceed|not in active state|"
         r"Effective BER|link_error_recovery|port_rcv_errors)", F.FABRIC, 0.65, "nobody",
         "-E- Link: S0002c903/N0002c9/SwitchX P5 <--> gpu-03/U1/P1 - Unexpected actual link speed 10",
         "-I- Links Speed Check finished successfully",
         "ibdiagnet", supersedes=PORT_AFTER),
    Rule("switch-port-down",
         r"(?:%LINEPROTO|%LINK|%ETHPORT|%IFMGR|%ETH_PORT_CHANNEL)-\d-\w{2,40}: .{0,160}(?i:\bdown\b)|\bInterface \S{3,40},? (?:is |changed state to )"
         r"(?:link )?[Dd]own\b|\b(?:osm_\w{3,40}|OpenSM)\b.{0,160}(?:from ACTIVE to (?:DOWN|INIT)|num:(?:129|130|131) |[Tt]rap (?:129|130|131)\b|"
         r"Overrun Threshold|changed state .{0,30}DOWN)|\bUFM\b.{0,80}[Ll]ink (?:is |went )?[Dd]own", F.FABRIC, 0.65, "nobody",
         "Oct 04 11:22:34 leaf-sw-12 Ebra: %LINEPROTO-5-UPDOWN: Line protocol on Interface Ethernet1/17/1, changed state to down",
         "Oct 04 11:22:34 leaf-sw-12 Ebra: %LINEPROTO-5-UPDOWN: Line protocol on Interface Ethernet1/17/1, changed state to up",
         "switches' syslog, OpenSM, UFM", fallback=True, supersedes=PORT_AFTER),
    Rule("link-condition",
         r"\b(?:RDMA|IB|NIC|InfiniBand|Infiniband|RoCE|Ethernet|EFA)(?:Link|Port|Device|Nic|Card)?(?:Down|Flap(?:ping|ped)?|Fault|Lost)\b"
         r"(?![\"']?\W{1,30}(?:False|false|status\W{1,4}(?:False|false)|0\b))", F.FABRIC, 0.65, "node",
         "Warning  RDMALinkDown  kubelet  port 1 of mlx5_2 has no carrier",
         "RDMALinkDown   False   Wed, 02 Oct 2024 10:00:00   RDMALinkIsUp   all links are up",
         "conditions and alerts of node agents", fallback=True, supersedes=PORT_AFTER),
    Rule("link-degraded",
         r"\b(?:mlx[45]_\w{1,8}|bnxt_re\d{1,2}|ionic_\d{1,2}|rdmap\w{3,20}|ib\d{1,2}|ibp\w{2,12}|HCA|NIC|RDMA|rail)\b.{0,80}(?:\bexpected (?:rate |speed |"
         r"width )?(?:of )?\d{2,3} ?G|\b(?i:degraded)\b(?!\W{1,4}(?:0|[Nn]o|[Ff]alse))|\blink fail(?:ure|ed)\b)", F.FABRIC, 0.65, "node",
         "health check: mlx5_6 rate 100 Gb/sec (2X NDR) expected 400 Gb/sec (4X NDR)",
         "health check: mlx5_6 rate 400 Gb/sec (4X NDR)",
         "node health checks: a link came up with fewer lanes", fallback=True, supersedes=PORT_AFTER),
    Rule("no-ib-device", r"device '[^']{1,40}': sys files not found", F.FABRIC, 0.7, "node",
         "Fatal error:  device '*': sys files not found (/sys/class/infiniband/*/ports)",
         "Infiniband device 'mlx5_0' port 1 status:",
         "ibstatus: the machine shows no InfiniBand device", supersedes=PORT_AFTER),
    Rule("netdev-down", r"^\s{0,8}Link detected: no\s*$|\bport \d{1,2} ==> \S{2,20} \(Down\)", F.FABRIC, 0.35, "node",
         "mlx5_4 port 1 ==> ibp155s0 (Down)",
         "mlx5_4 port 1 ==> ibp155s0 (Up)",
         "ethtool, ibdev2netdev: some ports are not wired at all", fallback=True),
    Rule("perftest-unconnected",
         r"Couldn't create IB resources|Failed to modify QP(?: \w{1,12})? to RT[RS]|Unable to Connect the HCA's through the link", F.FABRIC,
         0.7, "nobody",
         " Unable to Connect the HCA's through the link",
         " Dual-port       : OFF          Device         : mlx5_0",
         "perftest", fallback=True),
    Rule("port-down-said",
         r"\b(?:IB|[Ii]nfini[Bb]and|RDMA|RoCE|HCA|mlx[45]_\d{1,2})\b.{0,40}\b(?:link|port) (?:is |went )?(?:down|DOWN)\b|"
         r"\b(?:rdma|ib|roce)_(?:port|link)_down\b(?![\"']?\W{1,3}(?:0|false|False)\b)", F.FABRIC, 0.65, "node",
         "ERROR: Detected IB link down on port mlx5_2/1 (physical state: Polling)",
         "rdma_port_down=0 on mlx5_2/1",
         "health checks and alerts", fallback=True, supersedes=PORT_AFTER),
    Rule("signal-integrity", r"\bBad signal integrity\b|\bBER\b.{0,40}\bexceed|\bPFC storm (?:was )?detected\b|"
         r"Port module event\[error\]: module \d{1,3}, \w", F.FABRIC, 0.65, "node",
         "Troubleshooting Info             : Bad signal integrity",
         "Troubleshooting Info             : No issue was observed",
         "mlxlink, mlx5, SONiC's PFC watchdog", fallback=True, supersedes=PORT_AFTER),
    Rule("rdma-cm-failed", r"\bRDMA_CM_EVENT_(?:UNREACHABLE|ADDR_ERROR|ROUTE_ERROR|CONNECT_ERROR|DEVICE_REMOVAL)\b|"
         r"\bib_(?:write|read|send)_(?:bw|lat)\b.{0,30}\bfailed\b", F.FABRIC, 0.65, "nobody",
         "failed to establish RDMA connection: rdma_cm event RDMA_CM_EVENT_UNREACHABLE, error -110",
         "rdma_cm event RDMA_CM_EVENT_ESTABLISHED",
         "librdmacm; perftest in preflight checks", fallback=True, supersedes=PORT_AFTER),
)  # fmt: skip


RDMA_WAITING = ("collective_timeout", "mpi-abort")

RDMA_RULES: tuple[Rule, ...] = (
    Rule("ucx-transport-fatal",
         r"\w\.c:\d{1,5} +(?:UCX +)?(?:Fatal: )?(?:transport error: Endpoint timeout|Transport retry count exceeded|"
         r"Remote (?:access|operation)(?: error)? on \w|Local QP operation)", F.FABRIC, 0.8, "nobody",
         "[compute-0-20:9358 :0:9358]    ud_iface.c:737  UCX Fatal: transport error: Endpoint timeout",
         "[compute-0-20:9358 :0:9358]    ud_iface.c:737  UCX  DEBUG endpoint timeout is set to 300 s",
         "openucx/ucx issues 3087, 6253, 9306", supersedes=RDMA_WAITING),
    Rule("ucx-connect-failed",
         r"UCX +ERROR .{0,60}ibv_create_ah\(.{0,400}failed: |pml_ucx\.c:\d{1,5} +Error: (?:ucx|ucp_)\w{0,20}.{0,60}failed: "
         r"(?:Endpoint timeout|Connection timed out|Input/output error|Destination is unreachable|No route)", F.FABRIC, 0.72, "nobody",
         "[1719157763.321281] [node2:19381:0]       ib_device.c:1163 UCX  ERROR   ibv_create_ah(dlid=49152 sl=0 port=1 "
         "src_path_bits=0 dgid=::ffff:172.16.0.2 sgid_index=3 traffic_class=106) for UD mlx5 connect on mlx5_1 failed: "
         "Connection timed out",
         "[node2:19381] pml_ucx.c:147 mca_pml_ucx_open: UCX version 1.15.0",
         "openucx/ucx issue 9970: a RoCE rail without a path to its peer",
         supersedes=(*RDMA_WAITING, "input-output-error", "ucx-unreachable")),
    Rule("ucx-async-port", r"UCX +(?:DIAG|WARN|ERROR) .{0,60}(?i:async event)(?: on \S{3,40})?: port (?:\d{1,2} )?(?:is down|error on)",
         F.FABRIC, 0.75, "node",
         "[1713000000.1] [gpu01:221:a]  ib_device.c:470  UCX  WARN  IB Async event on mlx5_0: port is down",
         "[1713000000.1] [gpu01:221:a]  ib_device.c:470  UCX  DIAG  IB Async event on mlx5_0: port active",
         "UCX, ib_device.c", supersedes=RDMA_WAITING),
    Rule("ucx-peer-reset", r"error '(?:Connection reset by remote peer|Request canceled)' on \S{2,40} will not be handled|"
         r"pml_ucx\.c:\d{1,5} +Error: ucx (?:send|recv) failed: (?:Request canceled|Connection reset)", F.COLLECTIVE_TIMEOUT, 0.5,
         "nobody",
         "[xm066:789921:1] ucp_ep.c:1504 UCX  DIAG  ep 0x7ffff4be46c0: error 'Connection reset by remote peer' on "
         "rc_mlx5/mlx5_0:1 will not be handled since no error callback is installed",
         "[xm066:789921:1] ucp_ep.c:1504 UCX  DIAG  ep 0x7ffff4be46c0: connected on rc_mlx5/mlx5_0:1",
         "openucx/ucx issue 9306: the peer had ended", echo=True),
    Rule("ofi-call-failed",
         r"NCCL WARN NET/OFI (?:Couldn't|Could not|Unable to|Failed to|Creating new endpoint|Failure|Error)"
         r".{0,160}(?:\bRC: -?\d|failed: |unreachable|prov(?:ider)? err)|"
         r"\bfi_(?:cq_readerr|cq_read|send|recv|write|read|tsend|trecv)\b.{0,40}(?:\bRC: ?-?\d|failed|[Ee]rror:)", F.FABRIC, 0.62, "nobody",
         "ip-172-32-45-165:72593:73427 [7] create_nccl_ofi_component:459 NCCL WARN NET/OFI Couldn't open AV. RC: -22, "
         "ERROR: Invalid argument",
         "ip-172-32-45-165:72593:73427 [7] NCCL INFO NET/OFI Could not find ncclGetVersion symbol",
         "aws/aws-ofi-nccl issues 22, 24, 889", supersedes=(*RDMA_WAITING, "input-output-error", "no-route")),
    Rule("cxi-error",
         r"\bcxi_core\b.{0,80}(?:LINK_DOWN|link down|fatal|uncorrectable)|\bcxip_\w{3,40}\(\):\d{1,5}<warn>.{0,160}(?:UNDELIVERABLE|"
         r"Send error|NO_TARGET_CONN|RSP_ERR|link error|HRP_RSP_DISCARD|TIMEOUT)", F.FABRIC, 0.75, "nobody",
         "libfabric:3321:1700000000:cxi:ep_data:cxip_report_send_err():112<warn> nid001234: TXC (0x6821:1) Send error: pid 33, "
         "rc UNDELIVERABLE",
         "libfabric:3321:1700000000:cxi:core:cxip_getinfo():90<warn> default provider attributes",
         "libfabric, prov/cxi; HPE Slingshot's driver", supersedes=(*RDMA_WAITING, "libfabric-error")),
    Rule("retry-exceeded",
         r"(?i)\btransport retry (?:count(?:er)? )?exceeded|\bIBV_WC_(?:RNR_)?RETRY_EXC_ERR\b|\bRETRY_EXC_ERR\b|\bRNR retry "
         r"(?:count(?:er)? )?exceeded|wc->status == IBV_WC_SUCCESS\. (?:12|13|10)\b", F.FABRIC, 0.78, "nobody",
         "E0712 10:11:12.131415 4120 worker_pool.cpp:281] Worker: Process failed for slice (opcode: 1, peer 10.0.0.4): "
         "transport retry counter exceeded",
         "E0712 10:11:12.131415 4120 worker_pool.cpp:281] retry counter is 7",
         "verbs' word for status 12, whoever prints it", fallback=True, supersedes=(*RDMA_WAITING, "python-exception")),
    Rule("async-port-error",
         r"(?i)\basync\w{0,10} (?:fatal )?(?:error )?event:?\b.{0,30}\bport[ _](?:error|err|down)\b|\b(?:ionic|mlx5|bnxt|irdma)\w{0,12}: port error "
         r"event|\bIBV_EVENT_(?:PORT_ERR|DEVICE_FATAL)\b", F.FABRIC, 0.75, "node",
         "E0712 10:11:12.131415 4120 worker_pool.cpp:281] Received context async event port error for context mlx5_bond_3",
         "E0712 10:11:12.131415 4120 worker_pool.cpp:281] Received context async event port active for context mlx5_bond_3",
         "verbs' events, whoever prints them", fallback=True, supersedes=RDMA_WAITING),
    Rule("rdma-driver-error",
         r"\bmlx5_core\b.{0,120}(?:health recovery flow aborted|PCI reads still not working|Error cqe on cqn|TX timeout on queue)|"
         r"\bbnxt_(?:en|re)\S{0,4}\b.{0,80}(?:Error \(timeout: \d{1,8}\) msg|timed ?out \(\d{1,8} msec\)|cmdq\[\S{1,12} ?\S{0,12} send failed)|"
         r"\birdma\b.{0,80}(?:abnormal ae_id|CQP (?:timeout|error)|[Cc]ritical)|\befa\b.{0,60}Failed to modify qp.{0,20}\[-110\]", F.FABRIC,
         0.75, "node",
         "irdma 0000:31:00.0: ICRQ: abnormal ae_id = 0x406 bool qp=1 qp_id = 44, ae_src=5",
         "irdma 0000:31:00.0: GEN_2 device registered",
         "mlx5, bnxt, irdma and efa kernel drivers", fallback=True, supersedes=RDMA_WAITING),
)  # fmt: skip


ADAPTER_WAITING = ("collective_timeout",)

ADAPTER_RULES: tuple[Rule, ...] = (
    Rule("mlx5-fatal",
         r"mlx5_core.{0,120}(?:device's health compromised|health poll failed|unrecoverable|"
         r"fatal error detected|FW fatal|Fatal error \d detected|Health issue observed|device is in error state|"
         r"mlx5_error_sw_reset|enter_error_state|PCI slot is unavailable|pci_err_detected|firmware internal error|"
         r"handling bad device|recovery failed|FW (?:assert|error) detected|mlx5_load_one failed with|"
         r"init_one:.{0,40}failed|handle_hca_cap failed|probe of \S{1,40} failed with error)", F.FABRIC, 0.93, "node",
         "mlx5_core 0000:3b:00.0: poll_health:825:(pid 0): device's health compromised - reached miss count",
         "mlx5_core 0000:3b:00.0: firmware version: 28.39.1002",
         "mlx5 kernel driver, health.c", supersedes=ADAPTER_WAITING),
    Rule("mlx5-command-timeout", r"mlx5_core.{0,120}(?:wait_func(?:_handle_exec_timeout)?:|cmd_exec_timeout|"
         r"timeout\. Will cause a leak of a command)", F.FABRIC, 0.85, "node",
         "mlx5_core 0000:ab:00.0: wait_func:1173:(pid 2218): ACCESS_REG(0x805) timeout. Will cause a leak "
         "of a command resource",
         "mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link ACTIVE",
         "mlx5 kernel driver, cmd.c", supersedes=ADAPTER_WAITING),
    Rule("mlx5-tx-timeout",
         r"\b(?:mlx5_core|mlx4_en|bnxt_en|ice|i40e|ionic|ena|gve).{0,80}TX timeout detected|NETDEV WATCHDOG: .{0,80}transmit queue \d+ timed out|"
         r"\bNETDEV WATCHDOG: CPU: \d{1,5}: transmit queue", F.FABRIC, 0.75, "node",
         "mlx5_core 0000:5e:00.0 eth2: TX timeout detected",
         "mlx5_core 0000:5e:00.0 eth2: Link up",
         "drivers' transmit watchdogs; NVSentinel issue 1334"),
    Rule("cable-error",
         r"Port module event(?:\[error\])?: module \d{1,3}, (?:Cable error|Cable unplugged)|"
         r"\b(?:transceiver|QSFP\w{0,4}|optical module|SFP\w{0,3}).{0,40}(?:fault|removed|unplugged|not present|high temperature alarm)",
         F.FABRIC, 0.75, "node",
         "mlx5_core 0000:5c:00.0: Port module event[error]: module 0, Cable error, High Temperature",
         "mlx5_core 0000:5c:00.0: Port module event: module 0, Cable plugged",
         "mlx5 events.c", supersedes=ADAPTER_WAITING),
    Rule("nic-link-down",
         r"\b(?:mlx5_core|mlx4_core|mlx4_en|bnxt_en|ionic|ice|i40e|ixgbe|igb|irdma|ena|efa|gve|qede|hns3|cxgb4|tg3|hfi1|"
         r"mlx5_ib)\b.{0,80}\b(?:(?i:link(?: is)? down)|Port: \d+ Link DOWN|NIC Link is Down|Lost carrier)", F.FABRIC,
         0.1, "node",
         "mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link DOWN",
         "mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link INIT",
         "NIC drivers; a flap alone is not a fault, so the observers of links judge it", supersedes=ADAPTER_WAITING),
    Rule("bond-down", r"bond\w{1,12}: .{0,60}link status definitely down", F.FABRIC, 0.1, "node",
         "bond0: (slave ens1f0np0): link status definitely down, disabling slave",
         "bond0: (slave ens1f0np0): link status definitely up, 100000 Mbps full duplex",
         "Linux bonding: the observers of links judge it"),
    Rule("interfaceless-bond", r"bond\w{1,12}: .{0,60}now running without any active interface", F.FABRIC, 0.75, "node",
         "bond0: now running without any active interface!",
         "bond0: active interface up!",
         "Linux bonding", supersedes=ADAPTER_WAITING),
    Rule("bnxt-firmware",
         r"bnxt_(?:en|re).{0,100}(?:[Ff]irmware (?:fatal|non-fatal|non-responsive|not responding)|Error.{0,20}hwrm|"
         r"hwrm req_type .{0,40}timeout|FW (?:fatal|hang)|fatal (?:exception|error)|Failed to (?:modify|create) HW QP)", F.FABRIC,
         0.85, "node",
         "bnxt_en 0000:c1:00.0 ens1f0np0: Firmware fatal exception, hwrm req_type 0x15 seq id 0x3 timeout",
         "bnxt_en 0000:c1:00.0 ens1f0np0: NIC Link is Up, 400000 Mbps",
         "Broadcom bnxt_en driver", supersedes=ADAPTER_WAITING),
    Rule("ionic-fatal", r"ionic.{0,80}(?:FW (?:stopped|hang|down|appears)|heartbeat stalled|DEVCMD TIMEOUT|"
         r"DEVCMD \w{1,40} timeout|firmware (?:stopped|crashed|reset))", F.FABRIC, 0.85, "node",
         "ionic 0000:61:00.0: FW heartbeat stalled at 8913",
         "ionic 0000:61:00.0: Link up - 400 Gbps",
         "AMD Pensando AINIC driver", vendor="amd", supersedes=ADAPTER_WAITING),
    Rule("ena-efa-reset",
         r"\b(?:ena|efa|gve|irdma|ice|i40e|hns3|hfi1|rdmavt)\b \S{0,40} ?.{0,60}(?:[Rr]eset(?:ting)? (?:requested|the device|"
         r"reason|due to)|Keep alive watchdog timeout|[Dd]evice (?:has )?(?:hung|stopped responding)|admin queue (?:error|timeout)|"
         r"Failed to process command \w{2,40}|missed (?:completions?|interrupts?)|Malicious event|PFR requested|tx hang)", F.FABRIC,
         0.65, "node",
         "ena 0000:00:05.0 eth0: Keep alive watchdog timeout.",
         "ena 0000:00:05.0 eth0: Elastic Network Adapter (ENA) found",
         "drivers of clouds' and of Intel's adapters"),
    Rule("ib-port-state",
         r"\b(?:mlx\d_\d{1,2}|mlx5_bond_\d|ib\d{1,2}|hfi1_\d|bnxt_re\d{1,2}|irdma\d{1,2}|rdmap\w{3,20}|ionic_\d{1,2})\b.{0,120}"
         r"(?:SM (?:lost|not found)|port \d+ (?:is )?(?:in )?(?:INIT|DOWN) state|state[: ]{1,2}(?:1: )?(?:DOWN|Down)|"
         r"physical_state[: ]{1,2}(?:DISABLED|POLLING|LINK_UP_FAIL)|is not (?:ACTIVE|active)|link_layer .{0,30}\bdown\b)",
         F.FABRIC, 0.65, "node",
         "ibstat: mlx5_3: port 1 is in INIT state, subnet manager not running",
         "mlx5_3: port 1 is in ACTIVE state",
         "InfiniBand diagnostics, rdma link"),
    Rule("ib-error-counters",
         r"(?i)\b(?:link_?downed|LinkErrorRecovery|SymbolErrorCounter|port_rcv_errors|local_ack_timeout_err|"
         r"roce_adp_retrans\w{0,4}|packet_seq_err|excessive_buffer_overrun\w{0,8}|link_error_recovery)\w{0,8}"
         r"[ .:=]{1,40}(?:increased|[1-9]\d{2,12}\b)", F.FABRIC, 0.5, "node",
         "mlx5_4 port 1 link_error_recovery: 4211",
         "mlx5_4 port 1 link_downed: 0",
         "InfiniBand port counters"),
    Rule("node-check-fabric",
         r"(?i)(?:health check|nhc|node check|preflight|NPD|node-problem-detector).{0,80}(?:check_hw_ib|check_ib\w{0,12}|IB (?:port|link)|"
         r"infiniband|RoCE|NIC|rdma).{0,120}(?:fail|down|not active|no .{0,20}port|error)", F.FABRIC, 0.75, "node",
         "ERROR: nhc: Health check failed: check_hw_ib: No IB port mlx5_0:1 is ACTIVE (LinkUp).",
         "nhc: Health check passed: check_hw_ib",
         "LBNL node health check and its like"),
    Rule("pcie-aer-fatal",
         r"(?:PCIe Bus Error: severity=Uncorrect(?:ed|able) \((?:Fatal|Non-Fatal)\)|AER: Uncorrect(?:ed|"
         r"able) \((?:Fatal|Non-Fatal)\) error)", F.GPU_HARDWARE, 0.75, "node",
         "pcieport 0000:00:01.1: AER: Uncorrected (Fatal) error received: 0000:02:00.0",
         "pcieport 0000:00:01.1: AER: Corrected error received: 0000:02:00.0",
         "Linux PCIe AER"),
    Rule("ib-kernel-error",
         r"\b(?:infiniband|ib_core|mlx5_ib|rdma_rxe|ipoib|ib\d{1,2}|efa_\d)\b.{0,60}(?:dump error cqe|dump_cqe|QP .{0,24}error|"
         r"Failed to (?:process command|allocate|create|register|reg|modify|destroy)\b.{0,60}(?:err|status|\[)[ =]?-?\d|multicast join failed|transmit timeout|failed to modify QP|ib_query_port failed)", F.FABRIC, 0.6, "node",
         "infiniband mlx5_2: dump_cqe:272:(pid 0): dump error cqe",
         "infiniband mlx5_2: registered",
         "Linux RDMA core"),
)  # fmt: skip
