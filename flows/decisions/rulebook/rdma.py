"""RDMA under other names: UCX's older wording, plugins over libfabric, Slingshot, engines that move tensors."""

from __future__ import annotations

from flows.decisions.rules import Rule
from profiles.vocabulary import FaultClass

F = FaultClass
WAITING = ("collective_timeout", "nccl-unhandled", "mpi-abort")

RULES: tuple[Rule, ...] = (
    Rule("ucx-transport-fatal",
         r"\w\.c:\d{1,5} +(?:UCX +)?(?:Fatal: )?(?:transport error: Endpoint timeout|Transport retry count exceeded|"
         r"Remote (?:access|operation)(?: error)? on \w|Local QP operation)", F.FABRIC, 0.8, "nobody",
         "[compute-0-20:9358 :0:9358]    ud_iface.c:737  UCX Fatal: transport error: Endpoint timeout",
         "[compute-0-20:9358 :0:9358]    ud_iface.c:737  UCX  DEBUG endpoint timeout is set to 300 s",
         "openucx/ucx issues 3087, 6253, 9306", literals=("endpoint timeout", "transport retry", "remote access", "remote operation",
                   "local qp operation"), supersedes=WAITING),
    Rule("ucx-connect-failed",
         r"UCX +ERROR .{0,60}ibv_create_ah\(.{0,400}failed: |pml_ucx\.c:\d{1,5} +Error: (?:ucx|ucp_)\w{0,20}.{0,60}failed: "
         r"(?:Endpoint timeout|Connection timed out|Input/output error|Destination is unreachable|No route)", F.FABRIC, 0.72, "nobody",
         "[1719157763.321281] [node2:19381:0]       ib_device.c:1163 UCX  ERROR   ibv_create_ah(dlid=49152 sl=0 port=1 "
         "src_path_bits=0 dgid=::ffff:172.16.0.2 sgid_index=3 traffic_class=106) for UD mlx5 connect on mlx5_1 failed: "
         "Connection timed out",
         "[node2:19381] pml_ucx.c:147 mca_pml_ucx_open: UCX version 1.15.0",
         "openucx/ucx issue 9970: a RoCE rail without a path to its peer", literals=("ibv_create_ah", "pml_ucx.c"),
         supersedes=(*WAITING, "input-output-error", "ucx-unreachable")),
    Rule("ucx-async-port", r"UCX +(?:DIAG|WARN|ERROR) .{0,60}(?i:async event)(?: on \S{3,40})?: port (?:\d{1,2} )?(?:is down|error on)",
         F.FABRIC, 0.75, "node",
         "[1713000000.1] [gpu01:221:a]  ib_device.c:470  UCX  WARN  IB Async event on mlx5_0: port is down",
         "[1713000000.1] [gpu01:221:a]  ib_device.c:470  UCX  DIAG  IB Async event on mlx5_0: port active",
         "UCX, ib_device.c", literals=("async event",), supersedes=WAITING),
    Rule("ucx-peer-reset", r"error '(?:Connection reset by remote peer|Request canceled)' on \S{2,40} will not be handled|"
         r"pml_ucx\.c:\d{1,5} +Error: ucx (?:send|recv) failed: (?:Request canceled|Connection reset)", F.COLLECTIVE_TIMEOUT, 0.5,
         "nobody",
         "[xm066:789921:1] ucp_ep.c:1504 UCX  DIAG  ep 0x7ffff4be46c0: error 'Connection reset by remote peer' on "
         "rc_mlx5/mlx5_0:1 will not be handled since no error callback is installed",
         "[xm066:789921:1] ucp_ep.c:1504 UCX  DIAG  ep 0x7ffff4be46c0: connected on rc_mlx5/mlx5_0:1",
         "openucx/ucx issue 9306: the peer had ended", literals=("will not be handled", "pml_ucx.c"), echo=True),
    Rule("ofi-call-failed",
         r"NCCL WARN NET/OFI (?:Couldn't|Could not|Unable to|Failed to|Creating new endpoint|Failure|Error)"
         r".{0,160}(?:\bRC: -?\d|failed: |unreachable|prov(?:ider)? err)|"
         r"\bfi_(?:cq_readerr|cq_read|send|recv|write|read|tsend|trecv)\b.{0,40}(?:\bRC: ?-?\d|failed|[Ee]rror:)", F.FABRIC, 0.62, "nobody",
         "ip-172-32-45-165:72593:73427 [7] create_nccl_ofi_component:459 NCCL WARN NET/OFI Couldn't open AV. RC: -22, "
         "ERROR: Invalid argument",
         "ip-172-32-45-165:72593:73427 [7] NCCL INFO NET/OFI Could not find ncclGetVersion symbol",
         "aws/aws-ofi-nccl issues 22, 24, 889", literals=("net/ofi ", "fi_cq_read", "fi_send", "fi_recv", "fi_write", "fi_read",
                   "fi_tsend", "fi_trecv"), supersedes=(*WAITING, "input-output-error", "no-route")),
    Rule("cxi-error",
         r"\bcxi_core\b.{0,80}(?:LINK_DOWN|link down|fatal|uncorrectable)|\bcxip_\w{3,40}\(\):\d{1,5}<warn>.{0,160}(?:UNDELIVERABLE|"
         r"Send error|NO_TARGET_CONN|RSP_ERR|link error|HRP_RSP_DISCARD|TIMEOUT)", F.FABRIC, 0.75, "nobody",
         "libfabric:3321:1700000000:cxi:ep_data:cxip_report_send_err():112<warn> nid001234: TXC (0x6821:1) Send error: pid 33, "
         "rc UNDELIVERABLE",
         "libfabric:3321:1700000000:cxi:core:cxip_getinfo():90<warn> default provider attributes",
         "libfabric, prov/cxi; HPE Slingshot's driver", literals=("cxi",), supersedes=(*WAITING, "libfabric-error")),
    Rule("retry-exceeded",
         r"(?i)\btransport retry (?:count(?:er)? )?exceeded|\bIBV_WC_(?:RNR_)?RETRY_EXC_ERR\b|\bRETRY_EXC_ERR\b|\bRNR retry "
         r"(?:count(?:er)? )?exceeded|wc->status == IBV_WC_SUCCESS\. (?:12|13|10)\b", F.FABRIC, 0.78, "nobody",
         "E0712 10:11:12.131415 4120 worker_pool.cpp:281] Worker: Process failed for slice (opcode: 1, peer 10.0.0.4): "
         "transport retry counter exceeded",
         "E0712 10:11:12.131415 4120 worker_pool.cpp:281] retry counter is 7",
         "verbs' word for status 12, whoever prints it", literals=("transport retry", "retry_exc_err", "rnr retry", "ibv_wc_success"),
         fallback=True, supersedes=(*WAITING, "python-exception")),
    Rule("async-port-error",
         r"(?i)\basync\w{0,10} (?:fatal )?(?:error )?event:?\b.{0,30}\bport[ _](?:error|err|down)\b|\b(?:ionic|mlx5|bnxt|irdma)\w{0,12}: port error "
         r"event|\bIBV_EVENT_(?:PORT_ERR|DEVICE_FATAL)\b", F.FABRIC, 0.75, "node",
         "E0712 10:11:12.131415 4120 worker_pool.cpp:281] Received context async event port error for context mlx5_bond_3",
         "E0712 10:11:12.131415 4120 worker_pool.cpp:281] Received context async event port active for context mlx5_bond_3",
         "verbs' events, whoever prints them", literals=("async", "port error event", "ibv_event_"), fallback=True, supersedes=WAITING),
    Rule("rdma-driver-error",
         r"\bmlx5_core\b.{0,120}(?:health recovery flow aborted|PCI reads still not working|Error cqe on cqn|TX timeout on queue)|"
         r"\bbnxt_(?:en|re)\S{0,4}\b.{0,80}(?:Error \(timeout: \d{1,8}\) msg|timed ?out \(\d{1,8} msec\)|cmdq\[\S{1,12} ?\S{0,12} send failed)|"
         r"\birdma\b.{0,80}(?:abnormal ae_id|CQP (?:timeout|error)|[Cc]ritical)|\befa\b.{0,60}Failed to modify qp.{0,20}\[-110\]", F.FABRIC,
         0.75, "node",
         "irdma 0000:31:00.0: ICRQ: abnormal ae_id = 0x406 bool qp=1 qp_id = 44, ae_src=5",
         "irdma 0000:31:00.0: GEN_2 device registered",
         "mlx5, bnxt, irdma and efa kernel drivers", literals=("mlx5_core", "bnxt_", "irdma", "modify qp"), fallback=True,
         supersedes=WAITING),
)  # fmt: skip
