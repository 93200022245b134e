"""The fabric as libraries see it: what NCCL and RCCL say of InfiniBand, RoCE, EFA and their sockets."""

from __future__ import annotations

from flows.decisions.rules import Rule
from profiles.vocabulary import FaultClass

F = FaultClass
WAITING = ("collective_timeout", "nccl-unhandled")
"""What everybody else prints when a link breaks."""

RULES: tuple[Rule, ...] = (
    Rule("ib-completion-error",
         r"NET/IB ?[^:]{0,4}: ?Got completion (?:from peer (?P<peer>[\w.\-:%]{1,64}?)(?:<\d{1,5}>)? )?with "
         r"(?:status=|error )(?:IBV_WC_\w{2,24}\()?(?:12|10|13|11)\b", F.FABRIC, 0.88, "peer",
         "kp-ddp-worker-0:3468:3905 [4] ib_plugin.c:1615 NCCL WARN NET/IB : Got completion from peer "
         "10.216.210.236<54862> with status=12 opcode=0 len=0 vendor err 129 (Recv)",
         "NCCL WARN NET/IB : Got completion from peer 10.216.210.236<54862> with status=5 opcode=32656 "
         "len=32659 vendor err 249 (Recv)",
         "NCCL issues 1405, 1814: 12 = transport retries exceeded", literals=("got completion ",),
         supersedes=WAITING),
    Rule("ib-completion-local",
         r"NET/IB ?[^:]{0,4}: ?Got completion (?:from peer [\w.\-:%]{1,64}?(?:<\d{1,5}>)? )?with "
         r"(?:status=|error )(?:IBV_WC_\w{2,24}\()?(?:1|2|3|4|6|7|8|9)\b", F.FABRIC, 0.75, "nobody",
         "gpu5:6252:6325 [0] transport/net_ib.cu:788 NCCL WARN NET/IB : Got completion with error 4, opcode 1, len 0, "
         "vendor err 81",
         "gpu5:6252:6325 [0] transport/net_ib.cu:788 NCCL WARN NET/IB : Got completion with error 12, opcode 1, len 0",
         "verbs: 4 = local protection error, 9 = remote invalid request: the adapter or its set-up",
         literals=("got completion ",), supersedes=WAITING),
    Rule("ib-completion-flush",
         r"NET/IB ?[^:]{0,4}: ?Got completion .{0,80}with (?:status=|error )(?:IBV_WC_\w{2,24}\()?5\b", F.FABRIC,
         0.5, "nobody",
         "hostname-test:984:1357 [4] ib_plugin.c:1615 NCCL WARN NET/IB : Got completion from peer "
         "172.36.143.59<44206> with status=5 opcode=32656 len=32659 vendor err 249 (Recv)",
         "NCCL WARN NET/IB : Got completion from peer 172.36.143.59<44206> with status=12 opcode=129 "
         "len=65536 vendor err 129",
         "verbs: 5 = flushed after another error", literals=("got completion ",), echo=True),
    Rule("ib-async-fatal",
         r"NET/\w{2,8} ?: [^ ]{0,40} ?(?:Got async (?:error )?event|Async event|async fatal event on (?!QP)\w{2,16})"
         r".{0,24}: ?(?:port error|device fatal|local catastrophic error|local work queue catastrophic|CQ error)",
         F.FABRIC, 0.9, "node",
         "NCCL WARN NET/IB : mlx5_3:1 Got async event : port error",
         "NCCL WARN NET/IB : mlx5_3:1 Got async event : client reregistration",
         "NCCL net_ib async thread", literals=("got async ", "async event", "async fatal event "),
         supersedes=WAITING),
    Rule("ib-port-error", r"NET/\w{2,8} ?: [^ ]{1,40} Got non-fatal async event: port error", F.FABRIC, 0.8, "node",
         "nvl72-t11:393849:395082 [0] transport/net_ib.cc:253 NCCL WARN NET/IB : mlx5_3:1 Got non-fatal async event: "
         "port error(10)",
         "nvl72-t11:393849:395082 [0] transport/net_ib.cc:253 NCCL WARN NET/IB : mlx5_3:1 Got non-fatal async event: "
         "port active(9)",
         "NCCL net_ib async thread: the link is down; it may come back", literals=("got non-fatal async event",),
         supersedes=WAITING),
    Rule("ib-port-back",
         r"NET/\w{2,8} ?: [^ ]{1,40} (?:Got (?:non-fatal )?async event ?: (?:port active|client reregistration|"
         r"LID change|P_Key change|SM change|SQ drained|last WQE reached|GID table change)|GID table changed)", F.NONE, 1.0,
         "nobody",
         "NCCL WARN NET/IB : mlx5_3:1 Got async event : client reregistration",
         "NCCL WARN NET/IB : mlx5_3:1 Got async event : port error",
         "NCCL net_ib async thread: events of a living port", literals=("async event", "gid table changed")),
    Rule("ib-open-failed",
         r"NET/IB : Unable to (?:open device|query (?:device|port))|"
         r"\bibv_(?:open_device|create_qp|create_cq|query_port|query_device|query_gid|reg_mr\w{0,12}|modify_qp|post_send|"
         r"post_recv|poll_cq|alloc_pd)(?:\(\))? .{0,20}?failed(?! with error Cannot allocate| with error Bad address)"
         r"(?: with (?:error )?)?(?!.{0,40}Cannot allocate memory)", F.FABRIC, 0.72, "nobody",
         "NCCL WARN Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_bond_1:1, curr state INIT, "
         "next state RTR, local GID index 3, local GID ::ffff:172.168.20.71, remote GID ::ffff:172.16.20.65",
         "NCCL INFO NET/IB : Using [0]mlx5_0:1/IB",
         "NCCL ibvwrap: a queue pair that does not come up has no path, or a wrong GID",
         literals=("ibv_", "unable to open dev", "unable to query"), supersedes=WAITING,
         advice="check the adapters' ports, NCCL_IB_HCA, NCCL_IB_GID_INDEX and that every rail reaches its peers"),
    Rule("memlock-limit",
         r"(?:ibv_(?:reg_mr\w{0,12}|create_cq|create_qp)|memory registration).{0,60}Cannot allocate memory", F.CONFIG, 0.7,
         "code",
         "NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory",
         "ibv_reg_mr failed: Bad address",
         "NCCL troubleshooting: raise the locked memory limit", literals=("cannot allocate me",),
         supersedes=("ib-open-failed", "host-out-of-memory-errno"),
         advice="raise the memlock limit of the container"),
    Rule("registration-failed", r"\bibv_reg_mr\w{0,12}(?:\(\))? failed(?: with error|:) Bad address", F.FABRIC, 0.5, "nobody",
         "NCCL WARN Call to ibv_reg_mr_iova2 failed with error Bad address",
         "NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory",
         "NCCL: GPU memory that the adapter cannot reach (nvidia-peermem, IOMMU, ACS)", literals=("bad address",),
         supersedes=WAITING, advice="check nvidia-peermem, DMA-BUF and the IOMMU"),
    Rule("roce-gid", r"(?:Failed to get GID|no GID found|GID table is empty|No (?:valid )?GID(?: index)? found)",
         F.FABRIC, 0.6, "nobody",
         "NCCL WARN NET/IB : no GID found for device mlx5_2 port 1",
         "NCCL INFO GID index 3",
         "NCCL: no or a wrong GID",
         literals=("gid found", "gid index found", "failed to get gid", "gid table is empty"),
         advice="check NCCL_IB_GID_INDEX and the RoCE set-up"),
    Rule("libmlx5-completion", r"\bmlx[45]: (?P<peer>[\w.-]{1,80}): got completion with error:", F.FABRIC, 0.7, "nobody",
         "mlx5: gpu5: got completion with error:",
         "mlx5: gpu5: completion queue created",
         "rdma-core, providers/mlx5/cq.c: the adapter's own dump", literals=(": got completion with error:",),
         supersedes=WAITING),
    Rule("ofi-completion-error",
         r"NET/OFI Request \S{0,24} ?completed with error(?:.{0,500}Peer host id: (?P<peer>[\w-]{3,40}))?", F.FABRIC, 0.85,
         "peer",
         "NCCL WARN NET/OFI Request 0x7f456c222f60 completed with error. RC: 103. Error: 4126 (Unresponsive "
         "receiver (reachable by EFA device but handshake failed)",
         "NCCL WARN NET/OFI Could not find ncclGetVersion symbol",
         "aws-ofi-nccl", literals=("net/ofi request ",), supersedes=("collective_timeout",)),
    Rule("efa-completion-error",
         r"\befa:\w{1,20}:\S{3,80}<warn>\s?.{0,20}\berr(?:or)?: -?\d{1,6}, message: .{1,600}?Peer host id: (?P<peer>[\w-]{3,40})",
         F.FABRIC, 0.85, "peer",
         "libfabric:451707:1708520807::efa:cq:efa_rdm_txe_handle_error():737<warn> err: 5, message: Invalid address My EFA "
         "addr: fi_addr_efa://[fe80::13:c2ff:fe6f:f03d]:0:1072483550 My host id: i-0db7083f3fcbebb65 Peer EFA addr: "
         "fi_addr_efa://[fe80::b8:aff:fe44:425]:0:947699476 Peer host id: i-0ce6d3d57139f053c (7)",
         "libfabric:451707:1708520807::efa:cq:efa_rdm_cq_open():120<info> message: 1024 entries",
         "libfabric, prov/efa", literals=("peer host id: ",), supersedes=WAITING),
    Rule("libfabric-error",
         r"(?i)\blibfabric:\d{1,9}:.{1,120}<warn>.{0,60}(?:\berr(?:or)?: -?\d{1,6}, message: (?!.{1,600}Peer host id)|"
         r"transport retry|link (?:is )?down|unresponsive|completion error|cq (?:read ?)?err|poll_cq.{0,40}err)", F.FABRIC, 0.7,
         "nobody",
         "libfabric:8811:1777727412::efa:ep_ctrl:efa_rdm_ep_poll():612<warn> err: 15, message: Remote destination "
         "resource not ready",
         "libfabric:8811:1777727412::core:mr:ofi_monitor():120<warn> FI_HMEM_CUDA: disabled",
         "libfabric's warnings of errors", literals=("libfabric:",), supersedes=WAITING),
    Rule("nccl-peer-silent",
         r"[Cc]onnect(?:ion)? to (?P<peer>[\w.\-:%]{1,64}?)<\d{1,5}> (?:failed ?: |returned (?:\d{1,3}\()?)(?:"
         r"Connection timed out|Software caused connection abort|Operation timed out|No route to host|"
         r"Network is unreachable)", F.FABRIC, 0.62, "peer",
         "dgx-3:211:400 [0] misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to 10.4.1.7<40219> "
         "failed : Connection timed out",
         "dgx-3:211:400 NCCL INFO Connected all rings",
         "NCCL sockets", literals=("connect to ", "connection to "), supersedes=("collective_timeout", "no-route")),
    Rule("nccl-peer-lost",
         r"(?:(?:Call to recv from|Call to send to) (?P<peer>[\w.\-:]{1,64}?)(?:<\d{1,5}>)? (?:failed ?: |returned )"
         r"(?:Connection timed out|No route to host|Network is unreachable|Software caused connection abort))", F.FABRIC, 0.55,
         "peer",
         "gpu-b11:91822:92411 [0] misc/socket.cc:58 NCCL WARN socketProgressOpt: Call to recv from 10.20.4.12<39721> "
         "failed : Connection timed out",
         "socketProgressOpt: Call to recv from 10.20.4.12<39721> failed : Connection reset by peer",
         "NCCL sockets: the peer's machine answers no more", literals=("call to recv from", "call to send to"),
         supersedes=("no-route",)),
    Rule("nccl-accept-timeout", r"NCCL WARN .{0,80}Timeout waiting for connection", F.FABRIC, 0.5, "nobody",
         "dgx-3:211:400 [0] NCCL WARN NET/Socket : Timeout waiting for connection from rank 3",
         "dgx-3:211:400 NCCL INFO waiting for connection",
         "NCCL", literals=("timeout waiting fo",), supersedes=("collective_timeout",)),
    Rule("no-route", r"(?:No route to host|Network is unreachable)", F.FABRIC, 0.55, "nobody",
         "OSError: [Errno 113] No route to host",
         "traceroute: 3 hops",
         "errno EHOSTUNREACH, ENETUNREACH", literals=("network is unreach", "no route to host"), fallback=True,
         supersedes=("python-exception",)),
    Rule("plugin-flow-error",
         r"(?:NET/FasTrak|NET/GPUDirectTCPX|NET/TCPX|NET/gIB).{0,120}(?:[Tt]imed? ?out|flow .{0,40}(?:error|stalled|"
         r"reset)|link down|connection (?:lost|reset))", F.FABRIC, 0.65, "nobody",
         "NCCL WARN NET/FasTrak : flow 0x7f21 to 10.8.0.4 stalled: no progress for 60 s",
         "NCCL INFO NET/FasTrak : using 8 devices",
         "Google's NCCL plugins", literals=("net/fastrak", "net/gpudirecttcpx", "net/tcpx", "net/gib"),
         supersedes=WAITING),
    Rule("nccl-without-verbs",
         r"Failed to open lib(?:ibverbs|mlx5|rdmacm)\.so|dlvsym failed on (?:ibv|mlx5dv)_|NCCL WARN Missing \"", F.NONE, 1.0, "nobody",
         "ptv-gpu01:11007:11098 [0] misc/ibvwrap.cu:63 NCCL WARN Failed to open libibverbs.so[.1]",
         "ptv-gpu01:11007:11098 [0] misc/ibvwrap.cu:63 NCCL WARN Call to ibv_open_device failed",
         "NCCL takes sockets; RCCL's advice on the kernel's command line",
         literals=("failed to open lib", "dlvsym failed on", "nccl warn missing")),
    Rule("sharp-error",
         r"\[?(?:error|ERROR)\]? ?.{0,60}(?:sharp_coll_\w{2,40}|SHArP|sharp_?tree|aggregation node).{0,80}(?:fail|timed? ?out|error)|"
         r"\bsharpd\b.{0,80}(?:error|failed)", F.FABRIC, 0.45, "nobody",
         "[gpu-3:0:5512 - context.c:584] ERROR sharp_coll_init failed: aggregation node did not answer, timed out",
         "INFO sharp_coll_init started",
         "SHARP library", literals=("sharp", "aggregation node"), fallback=True),
)  # fmt: skip
