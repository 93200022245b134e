"""Transports under MPI and others: UCX, Open MPI, MVAPICH, Intel MPI, PSM, Gloo."""

from __future__ import annotations

from flows.decisions.rules import Rule
from profiles.vocabulary import FaultClass

F = FaultClass
WAITING = ("collective_timeout", "nccl-unhandled", "mpi-abort")

RULES: tuple[Rule, ...] = (
    Rule("ucx-unreachable",
         r"UCX +(?:ERROR|FATAL|WARN) .{0,120}(?:Transport retry count exceeded|Endpoint timeout|Remote (?:access|operation) error|"
         r"Local (?:QP operation|protection|length) error|RNR retry|Async event on \S{3,40}: (?:port (?:\d )?error|device)|"
         r"ibv_\w{3,24}\(.{0,60}failed|keepalive.{0,30}(?:failed|timeout))", F.FABRIC, 0.82,
         "nobody",
         "[1595598109.293924] [cn007:58829:0] ib_mlx5_log.c:177  UCX  ERROR Transport retry count exceeded "
         "on mlx5_0:1/IB",
         "[1595598109.293924] [cn007:58829:0] UCX  WARN  retry",
         "UCX", literals=("ucx",), supersedes=WAITING),
    Rule("ucx-no-transport",
         r"UCX +ERROR .{0,80}(?:no (?:active messages|remote registered memory|am bcopy|auxiliary) .{0,20}transport|"
         r"[Dd]estination is unreachable|device `?\S{1,40}'? is not available)", F.CONFIG, 0.5, "code",
         "[1595598109.293924] [cn007:58829:0] select.c:406  UCX  ERROR no active messages transport to <no debug data>: "
         "Unsupported operation",
         "[1595598109.293924] [cn007:58829:0] UCX  INFO  no device found",
         "UCX: no common transport", literals=("ucx",), advice="check UCX_TLS and UCX_NET_DEVICES"),
    Rule("openib-completion",
         r"from \S{1,80} to: (?P<peer>\S{1,80}) error polling \wP CQ with status", F.FABRIC, 0.85, "peer",
         "[[31705,1],77][btl_openib_component.c:2951:handle_wc] from c06n01 to: c06n03 error polling LP CQ with status "
         "RETRY EXCEEDED ERROR status number 12 for wr_id 294230912 opcode 1  vendor error 129 qp_idx 1",
         "[[31705,1],77][btl_openib_component.c:2951] opened mlx5_0",
         "Open MPI's openib BTL", literals=("error polling ",), supersedes=WAITING),
    Rule("mpi-fabric-report",
         r"InfiniBand retry count between two MPI processes has been|OpenFabrics stack has reported a network error|"
         r"There was an error initializing an OpenFabrics device|MPI_INIT has failed because at least one MPI process is "
         r"unreachable", F.FABRIC, 0.7, "nobody",
         "The InfiniBand retry count between two MPI processes has been exceeded.",
         "The InfiniBand device was opened by two MPI processes",
         "Open MPI's help texts",
         literals=("infiniband retry co", "openfabrics", "mpi_init has failed"), supersedes=WAITING),
    Rule("mvapich-completion",
         r"[Gg]ot (?:completion with error \d{1,3}, vendor code=0x[0-9a-f]{1,8}, dest rank=(?P<peer>\d{1,6})|FATAL event \d{1,3})",
         F.FABRIC, 0.85, "peer",
         "[cn12:mpi_rank_3][handle_cqe] Got completion with error 12, vendor code=0x81, dest rank=7",
         "[cn12:mpi_rank_3] got completion queue of 4096 entries",
         "MVAPICH2", literals=("completion with err", "fatal event "), supersedes=WAITING),
    Rule("psm-error",
         r"(?:\bhfi_\w{3,30}: .{0,80}(?:Network is down|error|fail)|PSM\d? .{0,60}(?:can't open|link (?:is )?down|Endpoint .{0,40}unreachable)|"
         r"OFI (?:poll|EP enable|get address vector map|endpoint open) failed)", F.FABRIC, 0.65, "nobody",
         "Abort(807526415) on node 3: Fatal error in PMPI_Allreduce: OFI poll failed (ofi_events.h:201:MPIDI_OFI_handle_cq: "
         "Input/output error)",
         "hfi_userinit: assigned context 3",
         "PSM2, Intel MPI", literals=("hfi_", "psm", "ofi poll failed", "ofi ep enable fail", "ofi get address vec", "ofi endpoint open f"),
         supersedes=(*WAITING, "input-output-error")),
    Rule("mpi-tcp-unconnected",
         r"was unable to complete a TCP connection to another process|WARNING: Open MPI failed to TCP connect to a peer MPI process|"
         r"An ORTE daemon has unexpectedly failed after launch|(?:ORTE|PRTE|PRRTE) was unable to reliably start one or more daemons|"
         r"(?:ORTE|PRTE) does not know how to route a message", F.RENDEZVOUS, 0.62, "nobody",
         "WARNING: Open MPI failed to TCP connect to a peer MPI process.  This should not happen.",
         "Open MPI connected to all peer MPI processes",
         "Open MPI's help texts",
         literals=("unable to complete", "failed to tcp conne", "orte daemon has une", "unable to reliably ", "how to route a mess")),
    Rule("gloo-timeout",
         r"(?:Gloo|gloo).{0,200}Timed out waiting \d+ms|Application timeout caused pair closure|"
         r"(?:gloo|Gloo).{0,120}(?:Read|Write|Recv|Send) timeout", F.COLLECTIVE_TIMEOUT, 0.7, "nobody",
         "RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting "
         "1800000ms for recv operation to complete",
         "gloo connected after waiting 5ms",
         "Gloo", literals=("timed out waiting ", "application timeout", " timeout"), echo=True),
    Rule("gloo-unconnected",
         r"[Gg]loo .{0,40}connectFullMesh failed|connectFullMesh failed with|\[(?:\S{0,80}/)?gloo/transport/\S{3,40}\] ?"
         r"(?:SO_ERROR: |Connect timeout|connect \[.{3,60}\]: )", F.RENDEZVOUS, 0.65, "nobody",
         "RuntimeError: Gloo connectFullMesh failed with [../third_party/gloo/gloo/transport/tcp/pair.cc:144] no error",
         "gloo connected the full mesh",
         "Gloo", literals=("connectfullmesh failed", "gloo/transport/")),
    Rule("mpi-lost-peer", r"(?:(?:ORTE|PRTE) has lost communication with a remote daemon|PMIX ERROR: .{0,40}(?:UNREACHABLE|LOST)|"
         r"btl_tcp_endpoint.{0,120}(?:failed(?!: (?:No route|Network is unr))|Connection)|A process or daemon was unable to complete)", F.COLLECTIVE_TIMEOUT,
         0.5, "nobody",
         "ORTE has lost communication with a remote daemon.",
         "ORTE daemon started",
         "Open MPI", literals=("btl_tcp_endpoint", "has lost communicat", "pmix error: ", "a process or daemon"), echo=True),
    Rule("mpi-daemon-lost", r"(?:ORTE|PRTE) has lost communication with its daemon located on node", F.NODE_LOST, 0.7, "node",
         "ORTE has lost communication with its daemon located on node:",
         "ORTE has lost communication with a remote daemon.",
         "Open MPI, help-errmgr-base.txt: the daemon of a node is gone, and mostly the node",
         literals=("has lost communicat",), supersedes=("batch-server-away", "collective_timeout")),
    Rule("gloo-peer-closed",
         r"gloo/transport/.{0,60}Connection closed by peer \[", F.COLLECTIVE_TIMEOUT, 0.4, "nobody",
         "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [192.168.7.7]:57000",
         "gloo/transport/tcp/pair.cc: connected",
         "Gloo: what survivors see", literals=("connection closed by peer",), supersedes=("peer-reset", "connection-error"),
         echo=True),
    Rule("ofi-nccl-failed",
         r"Unable to insert remote address into address vector", F.FABRIC, 0.7, "nobody",
         "NET/OFI Unable to insert remote address into address vector for device 1. RC: 0",
         "NCCL INFO NET/OFI Selected provider is efa, fabric is efa (found 32 nics)",
         "aws-ofi-nccl", literals=("into address vecto",), supersedes=(*WAITING, "nccl-python-wrapper")),
)  # fmt: skip
