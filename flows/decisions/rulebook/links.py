"""The state of links as tools, drivers and exporters tell it: down, flapping, counting errors."""

from __future__ import annotations

from flows.decisions.rules import Rule
from profiles.vocabulary import FaultClass

F = FaultClass
AFTER = ("collective_timeout", "nccl-unhandled")

RULES: tuple[Rule, ...] = (
    Rule("ibstat-down", r"^\s{0,12}(?:Port \d{1,3}: )?(?:State: (?:Down|Initializing|Armed)|Physical state: (?:Disabled|Polling|Sleep|LinkErrorRecovery))\s*$",
         F.FABRIC, 0.55, "node",
         "  Physical state: Polling",
         "  Physical state: LinkUp",
         "ibstat", literals=("state: ",), supersedes=AFTER),
    Rule("link-flapping", r"(?i)\b(?:link|port|nic|carrier|interface|uplink)s?\b.{0,40}\bflap(?:ped|ping|s)\b(?!.{0,12}[:=] ?0\b)|"
         r"\bflapping\b.{0,60}\b(?:links?|ports?|nics?|mlx5_\d|rdma|carrier|interface)\b", F.FABRIC, 0.7, "node",
         "rdma link flapping on mlx5_7: 12 times in 10 minutes",
         "link flap detection enabled",
         "network operators, node problem detectors", literals=("flapp", "flaps"), supersedes=AFTER),
    Rule("link-error-counter", r"\b(?:link_downed|link_error_recovery|symbol_error(?:s|_counter)?|port_rcv_errors|"
         r"local_ack_timeout_err|packet_seq_err|roce_slow_restart)\b[\"']?[ =:]{1,3}[1-9]\d{2,18}\b", F.FABRIC, 0.55, "node",
         "mlx5_3/1 counters: symbol_error 8123",
         "mlx5_3/1 counters: symbol_error 0 link_downed 0",
         "perfquery, ethtool, exporters: hundreds of errors are no accident",
         fallback=True, literals=("link_downed", "link_error_recove", "symbol_error", "port_rcv_errors", "local_ack_timeout", "packet_seq_err",
                   "roce_slow_restart")),
    Rule("mad-failed", r"_do_madrpc failed|\bmad_rpc\b.{0,60}\bfailed|ibpanic: .{0,80}failed", F.FABRIC, 0.7, "nobody",
         "ibwarn: [1234] mad_rpc: _do_madrpc failed; dport (Lid 12)",
         "mad_rpc: opened port 1",
         "infiniband-diags: the subnet manager or the port does not answer", literals=("madrpc", "mad_rpc", "ibpanic")),
    Rule("perftest-failed", r"^\s{0,4}Failed status \d{1,3}: wr_id|Completion with error at (?:client|server)", F.FABRIC, 0.85,
         "node",
         " Failed status 12: wr_id 0 syndrom 0x81",
         " Completed status 0: wr_id 0",
         "perftest (ib_write_bw)", literals=("failed status ", "completion with error at ")),
    Rule("queue-pair-error", r"\b(?:mlx[45]_(?:core|ib|\d{1,3})|bnxt_re\w{0,6}|irdma\w{0,6}|ionic_?\w{0,6}|hns_roce\w{0,6}|erdma\w{0,6})\b"
         r".{0,100}\b(?:QP|CQ|qp|cq)\b.{0,60}\b(?:error|fatal|ERROR|FATAL)\b(?! ?[:=] ?0)", F.FABRIC, 0.65, "node",
         "mlx5_0: QP 1234 error: Local QP operation error",
         "mlx5_0: QP 1234 moved to RTS",
         "RDMA drivers", fallback=True, literals=("error", "fatal"), supersedes=AFTER),
    Rule("gid-missing", r"(?i)\b(?:unable to find|no|could not find|cannot find)(?: a| any)? (?:valid |usable |matching )?(?:RoCE ?v?2? )?"
         r"GID(?: index)?\b|\bGID index \d{1,3} (?:is )?(?:invalid|not (?:found|valid)|empty)", F.FABRIC, 0.6, "node",
         "NCCL WARN NET/IB : Unable to find a valid GID index",
         "NET/IB : GID index 3 is used",
         "NCCL, RCCL, UCX: the NIC has no address, or NCCL_IB_GID_INDEX names another one", fallback=True, literals=("gid",)),
)  # fmt: skip
