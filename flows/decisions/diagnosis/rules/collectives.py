"""Collectives, their transports, and rendezvous: stores, names, ports. Most lines are printed by victims.

The ranks that wait longest complain first. Transports are UCX, Open MPI, MVAPICH, Intel MPI, PSM and Gloo.
"""

from __future__ import annotations

from flows.decisions.diagnosis.clues import Rule
from profiles.vocabulary import FaultClass

F = FaultClass

COLLECTIVE_RULES: tuple[Rule, ...] = (
    Rule("nccl-watchdog-timeout", r"Watchdog caught collective operation timeout", F.COLLECTIVE_TIMEOUT, 0.75,
         "nobody",
         "[rank0]:[E1206 18:44:12.715298746 ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective "
         "operation timeout: WorkNCCL(SeqNum=7753, OpType=_REDUCE_SCATTER_BASE, NumelIn=544997376, "
         "NumelOut=68124672, Timeout(ms)=600000) ran for 600061 milliseconds before timing out.",
         "Watchdog started with a collective operation limit",
         "PyTorch ProcessGroupNCCL", supersedes=("nccl-watchdog-terminated", "nccl-async-abort"), echo=True),
    Rule("nccl-watchdog-terminated", r"(?:Process group watchdog|NCCL watchdog) thread terminated with exception",
         F.COLLECTIVE_TIMEOUT, 0.4, "nobody",
         "[rank0]:[E504 23:32:59.338 ProcessGroupNCCL.cpp:1896] [PG ID 0 PG GUID 0(default_pg) Rank 0] "
         "Process group watchdog thread terminated with exception: [Rank 0] Watchdog",
         "watchdog thread started",
         "PyTorch ProcessGroupNCCL: carries any other error", echo=True, wraps=True),
    Rule("nccl-watchdog-noticed",
         r"(?:Exception \(either an error or timeout\) detected by watchdog at work|failure detected by watchdog at work|"
         r"Received a (?:global|dump) (?:signal|timeout) .{0,20}due to a collective timeout|Observed flight recorder dump signal|"
         r"First PG on this rank (?:to signal dumping|that detected no)|Timeout at (?:NCCL|RCCL) (?:work|collective)|"
         r"Could not acquire GIL within \d+ ms)", F.COLLECTIVE_TIMEOUT, 0.5, "nobody",
         "[rank5]:[E228 16:20:45.101 ProcessGroupNCCL.cpp:1858] [PG ID 0 PG GUID 0(default_pg) Rank 5] Received a dump "
         "signal due to a collective timeout from  rank 4 and we will try our best to dump the debug info.",
         "[rank5] received a signal",
         "PyTorch ProcessGroupNCCL", echo=True),
    Rule("nccl-async-abort", r"To avoid data inconsistency, we are taking the entire process down|"
         r"Some NCCL operations have failed or timed out", F.COLLECTIVE_TIMEOUT, 0.4, "nobody",
         "[E ProcessGroupNCCL.cpp:475] To avoid data inconsistency, we are taking the entire process down.",
         "To avoid data loss, save often",
         "PyTorch ProcessGroupNCCL", echo=True),
    Rule("nccl-monitor-stuck",
         r"(?:Heartbeat monitor timed out|ProcessGroupNCCL's watchdog got stuck for \d+ seconds)",
         F.COLLECTIVE_TIMEOUT, 0.6, "nobody",
         "[rank3]: ProcessGroupNCCL's watchdog got stuck for 600 seconds without making progress in "
         "monitoring enqueued collectives.",
         "Heartbeat monitor started",
         "PyTorch heartbeat monitor", echo=True),
    Rule("monitored-barrier", r"Ranks? (?P<peer>\d[\d, ]{0,400}) failed to pass monitoredBarrier|"
         r"monitoredBarrier: .{0,40}Rank \d+ failed", F.COLLECTIVE_TIMEOUT, 0.8, "peer",
         "RuntimeError: Ranks 3 failed to pass monitoredBarrier in 1800000 ms",
         "monitoredBarrier passed",
         "PyTorch Gloo: names the missing ranks"),
    Rule("nccl-remote-error", r"\w{0,3}clRemoteError|\bRemoteError: A call failed|remote process exited or there was a network error",
         F.COLLECTIVE_TIMEOUT, 0.5, "nobody",
         "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2006, remote process "
         "exited or there was a network error",
         "process exited",
         "NCCL result codes", echo=True, wraps=True),
    Rule("nccl-cuda-call", r"\bunhandled (?:cuda|hip) error\b|UnhandledCudaError", F.UNKNOWN, 0.3, "rank",
         "ncclUnhandledCudaError: Call to CUDA function failed.",
         "unhandled event",
         "NCCL and RCCL result codes: a call of this process's own runtime failed, nobody waited for it", echo=True, wraps=True),
    Rule("nccl-system-call", r"\bunhandled system error\b|\w{0,3}lSystemError|\bSystemError: System call \(e\.g\.", F.UNKNOWN, 0.3, "nobody",
         "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1333, unhandled system "
         "error (run with NCCL_DEBUG=INFO for details), NCCL version 2.21.5",
         "unhandled event",
         "NCCL result codes: a socket, shared memory or an adapter; which one stands beside it", echo=True, wraps=True),
    Rule("nccl-internal", r"\w{0,3}lInternalError|\bInternalError: Internal check|internal error - please report this issue to the (?:N|R)CCL", F.UNKNOWN, 0.3, "nobody",
         "ncclInternalError: Internal check failed.",
         "internal check passed",
         "NCCL result codes", echo=True, wraps=True),
    Rule("nccl-usage", r"\w{0,3}lInvalid(?:Usage|Argument)|\bInvalidUsage: This usually|NCCL .{0,120}\binvalid (?:usage|argument) \(run with NCCL_DEBUG", F.CONFIG, 0.5, "code",
         "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.",
         "invalid usage of the mouse",
         "NCCL result codes: the communicator was asked for what cannot be", echo=True, wraps=True),
    Rule("nccl-peer-closed",
         r"(?:Connection closed by remote peer|Call to recv from|Call to send to) (?P<peer>[\w.\-:]{1,100}?)<\d{1,5}>"
         r"(?! failed ?: (?!Connection reset|Broken pipe))",
         F.COLLECTIVE_TIMEOUT, 0.45, "peer",
         "socketProgress: Connection closed by remote peer llama-ft-worker-2.train.svc<47712>",
         "socketProgress: Connection opened by remote peer llama-ft-worker-2.train.svc<47712>",
         "NCCL sockets: the peer's process ended", supersedes=("peer-reset",), echo=True),
    Rule("nccl-proxy-failed",
         r"Error encountered progressing operation=\w{1,24}, res=\d|\[Proxy Service .{0,60}(?:Could not receive|Accept failed|closing connection)",
         F.COLLECTIVE_TIMEOUT, 0.35, "nobody",
         "gpu-3:1:2 [3] proxy.cc:1521 NCCL WARN [Service thread] Error encountered progressing operation=Connect, res=3, closing "
         "connection",
         "gpu-3:1:2 [3] NCCL INFO [Proxy Service 3] started",
         "NCCL's proxy: carries any other error", echo=True, wraps=True),
    Rule("peer-reset",
         r"(?:Connection reset by peer|Connection closed by (?:remote )?peer|\bBrokenPipeError\b|Broken pipe|"
         r"ConnectionAbortedError|NCCL WARN .{0,60}socketProgress\w{0,6}: Connection closed|"
         r"\b(?:peer|rank \d{1,7}) closed (?:the|its) connection)", F.COLLECTIVE_TIMEOUT, 0.4, "nobody",
         "ConnectionResetError: [Errno 104] Connection reset by peer",
         "connection to peer established",
         "what survivors see when a peer dies", echo=True),
    Rule("store-lost",
         r"Failed to check the \"should dump\" flag on TCPStore|TCPStore server has shut ?down too early|"
         r"(?:recv|send)(?:Value|Bytes|Vector|String)\w{0,12} failed on SocketImpl|"
         r"Error waiting on exit barrier|Failed to recv, got \d+ bytes|failed to recv, got 0 bytes", F.COLLECTIVE_TIMEOUT, 0.35,
         "nobody",
         "[rank1]:[W504 23:33:01.2 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=3, addr=[gpu-1]:41822, "
         "remote=[gpu-0]:29500): failed to recv, got 0 bytes",
         "[c10d] TCPStore connected on SocketImpl(fd=3)",
         "PyTorch TCPStore: the host of the store ended first", supersedes=("peer-reset",), echo=True),
    Rule("peers-awaited", r"CreateSession still waiting for response from|Retry connect to ip\(retry time [3-9]|"
         r"Connecting to rank \d{1,6} failed, waiting for \d{3}|"
         r"(?i:still waiting (?:for|on) \d{1,6} (?:more )?(?:workers?|ranks?|peers?|nodes?|process(?:es)?|participants?|hosts?)\b)|"
         r"(?i:waiting for (?:the )?(?:\d{1,6} more (?:nodes?|workers?|ranks?|peers?|processes)|coordinator|ranks? \d)\b)|"
         r"(?i:timed out waiting for .{1,40} (?:clients?|workers?|peers?|nodes?) to (?:join|connect|register))|"
         r"is connected to (\d{1,6}) peer ranks\. Expected number of connected peer ranks is : (?!\1\b)|"
         r"Ray is trying to start at \S{1,60}, but is already running", F.RENDEZVOUS, 0.6, "nobody",
         "CreateSession still waiting for response from worker: /job:worker/replica:0/task:0",
         "CreateSession got its response",
         "TensorFlow, XGBoost's rabit, LightGBM: peers that do not come", fallback=True, supersedes=("unknown",)),
    Rule("elastic-child-failed", r"torch\.distributed\.elastic\.multiprocessing\.errors\.ChildFailedError|"
         r"failed \(exitcode: -?\d+\) local_rank", F.UNKNOWN, 0.3, "nobody",
         "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
         "multiprocessing started",
         "torchrun: the summary, not the cause", echo=True),
    Rule("elastic-sigterm", r"(?:Sending process \d+ closing signal SIGTERM|Received (?:Signals\.)?SIGTERM death signal)", F.UNKNOWN, 0.2, "nobody",
         "W0301 10:00:01 torch/distributed/elastic/multiprocessing/api.py:897] Sending process 4121 closing "
         "signal SIGTERM",
         "SIGTERM handler installed",
         "torchrun", echo=True),
    Rule("slurm-step-terminated", r"(?:slurmstepd: error: \*\*\* STEP \S+ ON \S+ CANCELLED|srun: (?:Job step aborted|Force Terminated (?:job|StepId)|Terminating (?:job step|StepId))|"
         r"srun: error: \S+: tasks? [\d,\-]+: (?:Exited|Terminated|Killed))", F.UNKNOWN, 0.25, "nobody",
         "srun: error: gpu-17: tasks 8-15: Terminated",
         "srun: job 4711 started",
         "Slurm", echo=True),
    Rule("mpi-abort", r"(?:MPI_ABORT was invoked on rank|mpirun noticed that process rank \d+)", F.UNKNOWN, 0.25,
         "nobody",
         "mpirun noticed that process rank 3 with PID 0 on node gpu-3 exited on signal 9 (Killed).",
         "mpirun started",
         "Open MPI", echo=True),
    Rule("nccl-mismatch", r"(?:Mismatched (?:collective|NCCL version)|NCCL WARN .{0,40}version mismatch|"
         r"Detected mismatch between collectives on ranks)", F.USER_CODE, 0.8, "code",
         "RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running collective: "
         "CollectiveFingerPrint",
         "mismatch repaired",
         "PyTorch TORCH_DISTRIBUTED_DEBUG"),
    Rule("jax-barrier", r"(?:DEADLINE_EXCEEDED: )?Barrier timed out\. (?!(?:Barrier_)?[Ii]d: PjRT_Client_Connect)(?:.{0,400}timed out task names:\s*"
         r"(?P<peer>/job:\S{1,60}/task:\d{1,6}))?", F.COLLECTIVE_TIMEOUT, 0.7,
         "peer",
         "jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Id: 0_async_write_complete.0.1. This "
         "usually happens because a task triggered the barrier too early or too slowly.",
         "barrier passed",
         "JAX coordination service", echo=True),
    Rule("hccl-timeout", r"\bEI000[26]: |\bHccl\w{2,40}.{0,80}(?:[Tt]imed? ?out|times out)", F.COLLECTIVE_TIMEOUT, 0.72, "nobody",
         "RuntimeError: HCCL function error: HcclCommInitRootInfo, error code is 4. EI0006: Getting socket times out.",
         "HCCL version 7.0",
         "Ascend's collectives", supersedes=("python-exception", "logged-exception"), echo=True),
    Rule("jax-heartbeat", r"(?:UNAVAILABLE: )?The following tasks are unhealthy .{0,60}: ?(?P<peer>/job:[\w/:, ]{1,800})|"
         r"UNAVAILABLE: The following tasks are unhealthy|(?P<task>/job:\S{1,40}/task:\d{1,6}) (?:has )?(?:heartbeat|Heartbeat) timed? ?out",
         F.UNKNOWN, 0.5, "peer",
         "UNAVAILABLE: The following tasks are unhealthy (stopped sending heartbeats): "
         "/job:jax_worker/replica:0/task:5",
         "all tasks healthy",
         "JAX coordination service: a task is gone or hangs, its own log says why", echo=True),
    Rule("jax-other-task",
         r"Terminating process because the (?:JAX distributed service|coordinator) detected fatal errors|"
         r"Failed to send RPC to coordination service\. Either the leader task", F.UNKNOWN, 0.5, "nobody",
         "client.h:77] Terminating process because the JAX distributed service detected fatal errors. This most likely "
         "indicates that another task died; see the other task logs for more details.",
         "The JAX distributed service detected 8 tasks",
         "JAX coordination service: another task ended", supersedes=("collective_timeout", "preempted"), echo=True),
    Rule("ray-actor-died", r"ray\.exceptions\.(?:ActorDiedError|RayActorError|WorkerCrashedError|ObjectLostError)",
         F.UNKNOWN, 0.3, "nobody",
         "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.",
         "ray.exceptions.RayTaskError(ValueError): ray::train()",
         "Ray", supersedes=("python-exception",), echo=True),
    Rule("horovod-shut-down",
         r"Horovod has been shut down\.|\bHorovodInternalError\b|gloo::IoException|Horovod (?:background loop|operation) .{0,40}(?:fail|error)",
         F.COLLECTIVE_TIMEOUT, 0.35, "nobody",
         "horovod.common.exceptions.HorovodInternalError: Horovod has been shut down. This was caused by an exception on one "
         "of the ranks or an attempt to allreduce, allgather or broadcast a tensor after one of the ranks finished execution.",
         "Horovod started",
         "Horovod: another rank ended", supersedes=("python-exception",), echo=True),
    Rule("collective-timed-out",
         r"(?i)\b(?:all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast|barrier|collective)\b[^|]{0,60}\b(?:timed out|time-?out) "
         r"(?:after|waiting|on|in|at|:)|\bEI000[26]\b|hccl .{0,60}(?:notify|connection) .{0,30}time ?out|"
         r"Collective ops is aborted by|torch\.distributed\.TimeoutError|NCCL (?:all|reduce|broad)\w{0,12} (?:timed out|timeout)",
         F.COLLECTIVE_TIMEOUT, 0.55, "nobody",
         "RuntimeError: all_reduce timed out after 1800 s on rank 4",
         "all_reduce took 12 ms",
         "common wording; Ascend's HCCL, TensorFlow", supersedes=("python-exception",), echo=True, fallback=True),
    Rule("slurm-preempted", r"CANCELLED AT \S{1,32} DUE TO (?:PREEMPTION|JOB REQUEUE)", F.PREEMPTED,
         0.93, "nobody",
         "slurmstepd: error: *** JOB 4711 ON gpu-17 CANCELLED AT 2025-03-01T10:00:00 DUE TO PREEMPTION ***",
         "slurmstepd: error: *** STEP 4711.0 ON gpu-17 CANCELLED AT 2025-03-01T10:00:00 DUE TO NODE FAILURE",
         "Slurm", supersedes=("slurm-step-terminated", "process_killed", "collective_timeout")),
)  # fmt: skip


WAITING = ("collective_timeout", "mpi-abort")

TRANSPORT_RULES: tuple[Rule, ...] = (
    Rule("ucx-unreachable",
         r"UCX +(?:ERROR|FATAL|WARN) .{0,120}(?:Transport retry count exceeded|Endpoint timeout|Remote (?:access|operation) error|"
         r"Local (?:QP operation|protection|length) error|RNR retry|Async event on \S{3,40}: (?:port (?:\d )?error|device)|"
         r"ibv_\w{3,24}\(.{0,60}failed|keepalive.{0,30}(?:failed|timeout))", F.FABRIC, 0.82,
         "nobody",
         "[1595598109.293924] [cn007:58829:0] ib_mlx5_log.c:177  UCX  ERROR Transport retry count exceeded "
         "on mlx5_0:1/IB",
         "[1595598109.293924] [cn007:58829:0] UCX  WARN  retry",
         "UCX", supersedes=WAITING),
    Rule("ucx-no-transport",
         r"UCX +ERROR .{0,80}(?:no (?:active messages|remote registered memory|am bcopy|auxiliary) .{0,20}transport|"
         r"[Dd]estination is unreachable|device `?\S{1,40}'? is not available)", F.CONFIG, 0.5, "code",
         "[1595598109.293924] [cn007:58829:0] select.c:406  UCX  ERROR no active messages transport to <no debug data>: "
         "Unsupported operation",
         "[1595598109.293924] [cn007:58829:0] UCX  INFO  no device found",
         "UCX: no common transport", advice="check UCX_TLS and UCX_NET_DEVICES"),
    Rule("openib-completion",
         r"from \S{1,80} to: (?P<peer>\S{1,80}) error polling \wP CQ with status", F.FABRIC, 0.85, "peer",
         "[[31705,1],77][btl_openib_component.c:2951:handle_wc] from c06n01 to: c06n03 error polling LP CQ with status "
         "RETRY EXCEEDED ERROR status number 12 for wr_id 294230912 opcode 1  vendor error 129 qp_idx 1",
         "[[31705,1],77][btl_openib_component.c:2951] opened mlx5_0",
         "Open MPI's openib BTL", supersedes=WAITING),
    Rule("mpi-fabric-report",
         r"InfiniBand retry count between two MPI processes has been|OpenFabrics stack has reported a network error|"
         r"There was an error initializing an OpenFabrics device|MPI_INIT has failed because at least one MPI process is "
         r"unreachable", F.FABRIC, 0.7, "nobody",
         "The InfiniBand retry count between two MPI processes has been exceeded.",
         "The InfiniBand device was opened by two MPI processes",
         "Open MPI's help texts", supersedes=WAITING),
    Rule("mvapich-completion",
         r"[Gg]ot (?:completion with error \d{1,3}, vendor code=0x[0-9a-f]{1,8}, dest rank=(?P<peer>\d{1,6})|FATAL event \d{1,3})",
         F.FABRIC, 0.85, "peer",
         "[cn12:mpi_rank_3][handle_cqe] Got completion with error 12, vendor code=0x81, dest rank=7",
         "[cn12:mpi_rank_3] got completion queue of 4096 entries",
         "MVAPICH2", supersedes=WAITING),
    Rule("psm-error",
         r"(?:\bhfi_\w{3,30}: .{0,80}(?:Network is down|error|fail)|PSM\d? .{0,60}(?:can't open|link (?:is )?down|Endpoint .{0,40}unreachable)|"
         r"OFI (?:poll|EP enable|get address vector map|endpoint open) failed)", F.FABRIC, 0.65, "nobody",
         "Abort(807526415) on node 3: Fatal error in PMPI_Allreduce: OFI poll failed (ofi_events.h:201:MPIDI_OFI_handle_cq: "
         "Input/output error)",
         "hfi_userinit: assigned context 3",
         "PSM2, Intel MPI", supersedes=(*WAITING, "input-output-error")),
    Rule("mpi-tcp-unconnected",
         r"was unable to complete a TCP connection to another process|WARNING: Open MPI failed to TCP connect to a peer MPI process|"
         r"An ORTE daemon has unexpectedly failed after launch|(?:ORTE|PRTE|PRRTE) was unable to reliably start one or more daemons|"
         r"(?:ORTE|PRTE) does not know how to route a message", F.RENDEZVOUS, 0.62, "nobody",
         "WARNING: Open MPI failed to TCP connect to a peer MPI process.  This should not happen.",
         "Open MPI connected to all peer MPI processes",
         "Open MPI's help texts"),
    Rule("gloo-timeout",
         r"(?:Gloo|gloo).{0,200}Timed out waiting \d+ms|Application timeout caused pair closure|"
         r"(?:gloo|Gloo).{0,120}(?:Read|Write|Recv|Send) timeout", F.COLLECTIVE_TIMEOUT, 0.7, "nobody",
         "RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting "
         "1800000ms for recv operation to complete",
         "gloo connected after waiting 5ms",
         "Gloo", echo=True),
    Rule("gloo-unconnected",
         r"[Gg]loo .{0,40}connectFullMesh failed|connectFullMesh failed with|\[(?:\S{0,80}/)?gloo/transport/\S{3,40}\] ?"
         r"(?:SO_ERROR: |Connect timeout|connect \[.{3,60}\]: )", F.RENDEZVOUS, 0.65, "nobody",
         "RuntimeError: Gloo connectFullMesh failed with [../third_party/gloo/gloo/transport/tcp/pair.cc:144] no error",
         "gloo connected the full mesh",
         "Gloo"),
    Rule("mpi-lost-peer", r"(?:(?:ORTE|PRTE) has lost communication with a remote daemon|PMIX ERROR: .{0,40}(?:UNREACHABLE|LOST)|"
         r"btl_tcp_endpoint.{0,120}(?:failed(?!: (?:No route|Network is unr))|Connection)|A process or daemon was unable to complete)", F.COLLECTIVE_TIMEOUT,
         0.5, "nobody",
         "ORTE has lost communication with a remote daemon.",
         "ORTE daemon started",
         "Open MPI", echo=True),
    Rule("mpi-daemon-lost", r"(?:ORTE|PRTE) has lost communication with its daemon located on node", F.NODE_LOST, 0.7, "node",
         "ORTE has lost communication with its daemon located on node:",
         "ORTE has lost communication with a remote daemon.",
         "Open MPI, help-errmgr-base.txt: the daemon of a node is gone, and mostly the node",
         supersedes=("batch-server-away", "collective_timeout")),
    Rule("gloo-peer-closed",
         r"gloo/transport/.{0,60}Connection closed by peer \[", F.COLLECTIVE_TIMEOUT, 0.4, "nobody",
         "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [192.168.7.7]:57000",
         "gloo/transport/tcp/pair.cc: connected",
         "Gloo: what survivors see", supersedes=("peer-reset", "connection-error"), echo=True),
    Rule("ofi-nccl-failed",
         r"Unable to insert remote address into address vector", F.FABRIC, 0.7, "nobody",
         "NET/OFI Unable to insert remote address into address vector for device 1. RC: 0",
         "NCCL INFO NET/OFI Selected provider is efa, fabric is efa (found 32 nics)",
         "aws-ofi-nccl", supersedes=(*WAITING, "nccl-python-wrapper")),
)  # fmt: skip


RENDEZVOUS_RULES: tuple[Rule, ...] = (
    Rule("store-timeout",
         r"(?:wait timeout after \d+ms, keys:|\bSocket Timeout\b|"
         r"The client socket has timed out after \d+|client socket has failed to connect to any network address|"
         r"connect\(\) timed out\. Original timeout was \d+ ms)",
         F.RENDEZVOUS, 0.72, "nobody",
         "torch.distributed.DistStoreError: wait timeout after 300000ms, keys: /default_pg/0//worker/attempt_0",
         "store ready",
         "PyTorch TCPStore", supersedes=("connection-refused",)),
    Rule("store-waits",
         r"Timed out after \d+ seconds waiting for clients|Timed out initializing process group in store based barrier|"
         r"Timed out waiting for \d+ (?:clients|workers|nodes|processes)|\d+/\d+ (?:clients|workers|nodes) joined", F.RENDEZVOUS,
         0.75, "nobody",
         "torch.distributed.DistStoreError: Timed out after 901 seconds waiting for clients. 15/16 clients "
         "joined.",
         "store ready: 16 clients",
         "PyTorch: this one waited, another one did not come", supersedes=("python-exception",), echo=True),
    Rule("store-error", r"\bDistStoreError\b", F.RENDEZVOUS, 0.6, "nobody",
         "torch.distributed.DistStoreError: Could not create the store",
         "store without an error",
         "PyTorch", fallback=True, supersedes=("python-exception",)),
    Rule("rendezvous-failed", r"\bRendezvous(?:Timeout|Closed|Connection|State|Graceful\w{0,10})?(?:Error|Exit)\b|"
         r"(?i:\brendezvous\b.{0,40}(?:failed|timed? ?out))|(?i:time[d ]{0,2}out .{0,60}\b(?:to (?:complete|join)|waiting for) .{0,40}rendezvous)",
         F.RENDEZVOUS, 0.8, "nobody",
         "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d "
         "store has failed. See inner exception for details.",
         "rendezvous complete",
         "torchrun, DLRover"),
    Rule("rendezvous-heartbeat-lost", r"has failed to send a keep-alive heartbeat to the rendezvous", F.RENDEZVOUS, 0.7, "nobody",
         "WARNING:torch.distributed.elastic.rendezvous.dynamic_rendezvous:The node 'gpu-7_1543408_0' has failed to send a "
         "keep-alive heartbeat to the rendezvous '0' due to an error of type RendezvousTimeoutError.",
         "keep-alive heartbeat sent",
         "torchrun: the store's host left first, or stands still with what it runs", supersedes=("rendezvous-failed",), echo=True),
    Rule("address-in-use", r"(?:EADDRINUSE|(?i:address already in use)|[Pp]ort \d{2,5} is (?:already )?(?:in use|occupied)|"
         r"failed to listen on any local network address|Only one usage of each socket address|but another process is utilizing it)", F.RENDEZVOUS, 0.85, "nobody",
         "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network "
         "address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
         "the address is in usage statistics",
         "errno EADDRINUSE"),
    Rule("connection-refused", r"(?:Connection refused|ECONNREFUSED)", F.RENDEZVOUS, 0.45, "nobody",
         "ConnectionRefusedError: [Errno 111] Connection refused",
         "request refused by policy",
         "errno ECONNREFUSED", echo=True),
    Rule("nccl-refused",
         r"(?:[Cc]onnect(?:ion)? to (?P<peer>[\w.\-:%]{1,64}?)<\d{1,5}>|NCCL WARN .{0,100}connect|"
         r"\bsocket\w{0,8}Connect\w{0,8}: .{0,60}?connect\w{0,3}) (?:returned|failed ?:)(?: \d{1,3}\()? ?Connection refused(?!, retrying)|"
         r"\bsocket\w{0,8}Connect\w{0,8}: (?:exceeded|too many) (?:error )?retr",
         F.RENDEZVOUS, 0.5, "peer",
         "gpu-3:2387398:2387398 [3] os/linux.cc:200 NCCL WARN ncclOsSocketPollConnect: connect to 10.82.101.249<37857> returned "
         "Connection refused, exceeded error retry count after 35 attempts",
         "gpu-3:2387398:2387398 [3] NCCL INFO connect to 10.82.101.249<37857> returned Connection refused, retrying",
         "NCCL's bootstrap: nobody listens at the peer, mostly because it ended", supersedes=("connection-refused",),
         echo=True),
    Rule("store-unreached", r"client socket has failed to connect to (?!any)\S{1,120} \(errno: (?:101|110|113)\b", F.RENDEZVOUS, 0.6,
         "nobody",
         "[W socket.cpp:601] [c10d] The client socket has failed to connect to [node-0]:29500 (errno: 110 - Connection timed out).",
         "[W socket.cpp:601] [c10d] The client socket has failed to connect to [node-0]:29500 (errno: 111 - Connection refused).",
         "PyTorch TCPStore: tried again until the time is up", supersedes=("no-route",)),
    Rule("name-resolution",
         r"(?:[Tt]emporary failure in name resolution|Name or service not known|nodename nor servname provided|"
         r"[Cc]ould not resolve host|No address associated with hostname|getaddrinfo .{0,60}(?:failed|ENOTFOUND|EAI_AGAIN)|"
         r"cannot be retrieved \(gai error|nslookup: can't resolve|server can't find \S{1,120}: NXDOMAIN|Name does not resolve)", F.RENDEZVOUS, 0.75, "nobody",
         "socket.gaierror: [Errno -3] Temporary failure in name resolution",
         "resolved host in 3 ms",
         "getaddrinfo", supersedes=("store-timeout", "store-error")),
    Rule("nccl-unique-id", r"retrieving ncclUniqueId from", F.RENDEZVOUS, 0.55, "nobody",
         "RuntimeError: [1] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d "
         "key-value store by key '0', but store->get('0') got error: Connection was closed",
         "ncclUniqueId was sent",
         "PyTorch: rank 0 did not come to it, or went away",
         supersedes=("store-lost", "peer-reset", "python-exception"), echo=True),
    Rule("jax-connect",
         r"Coordination service agent in error status: DEADLINE_EXCEEDED|Barrier timed out\. (?:Barrier_)?[Ii]d: PjRT_Client_Connect|RPC: /tensorflow\.CoordinationService/RegisterTask|"
         r"[Ff]ailed to connect to (?:the )?(?:JAX |distributed )?coordinat(?:or|ion service)|jax\.distributed\.initialize.{0,80}(?:timed? ?out|fail)",
         F.RENDEZVOUS, 0.75, "nobody",
         "jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Id: PjRT_Client_Connect. This usually "
         "happens because a task triggered the barrier too early or too slowly.",
         "Connected to the JAX coordinator",
         "JAX coordination service: before the first step", supersedes=("jax-barrier", "python-exception")),
    Rule("horovod-start-timeout", r"Timed out waiting for (?:tasks to start|[Ss]park tasks|hosts|(?:the )?mpirun)|"
         r"TimeoutException: Timed out waiting for", F.RENDEZVOUS, 0.7, "nobody",
         "horovod.runner.common.util.timeout.TimeoutException: Timed out waiting for tasks to start. Please check connectivity "
         "between servers. You may need to increase the --start-timeout parameter if you have too many servers.",
         "all tasks started",
         "Horovod's launcher", supersedes=("python-exception",)),
    Rule("bootstrap-mismatch",
         r"Bootstrap Root : (?:mismatch in rank count|rank \d+ of \d+ ranks has already checked in)|"
         r"bootstrap.{0,60}mismatch in (?:rank|nranks|magic)", F.CONFIG, 0.75, "code",
         "gpu-3:1958:1958 [3] bootstrap.cc:151 NCCL WARN Bootstrap Root : mismatch in rank count from procs 16 : 8",
         "gpu-3:1958:1958 [3] NCCL INFO Bootstrap Root : all ranks checked in",
         "NCCL's bootstrap", advice="start all ranks with one world size"),
    Rule("nccl-duplicate-gpu", r"Duplicate GPU detected : rank \d+ and rank \d+", F.CONFIG, 0.9, "code",
         "NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 3b000",
         "GPU detected : 8",
         "NCCL init", supersedes=("rendezvous",), advice="set the device from LOCAL_RANK"),
    Rule("env-missing", r"environment variable (?:MASTER_ADDR|MASTER_PORT|RANK|WORLD_SIZE) expected, but not set",
         F.CONFIG, 0.9, "code",
         "ValueError: Error initializing torch.distributed using env:// rendezvous: environment variable "
         "MASTER_ADDR expected, but not set",
         "environment variable RANK is 3",
         "PyTorch", advice="start the program by its launcher"),
    Rule("address-family", r"\(errno: 97 - Address family not supported by protocol\)", F.NONE, 1.0, "nobody",
         "[W304 12:17:18.228653728 socket.cpp:767] [c10d] The client socket cannot be initialized to connect to "
         "[::ffff:10.99.91.59]:29500 (errno: 97 - Address family not supported by protocol).",
         "OSError: [Errno 97] Address family not supported by protocol",
         "PyTorch tries IPv6 first and then IPv4"),
    Rule("jax-not-registered",
         r"coordination service as cluster registration failed|Barrier timed out\. Id: \[Init\]Wait_for_all_tasks_to_register",
         F.RENDEZVOUS, 0.88, "nobody",
         "Stopping coordination service as cluster registration failed. This may be due to 1) some tasks crashed earlier "
         "before connecting, 2) some tasks were never scheduled, or 3) scheduling delays.",
         "Barrier timed out. Id: 0_async_write_complete.0.1.",
         "JAX coordination service", supersedes=("jax-barrier", "python-exception")),
    Rule("server-not-ready", r"\bMaster init: Unavailable: ", F.RENDEZVOUS, 0.55, "nobody",
         "E tensorflow/core/distributed_runtime/master.cc:269] Master init: Unavailable: OS Error",
         "I tensorflow/core/distributed_runtime/master_session.cc:1017] Start master session",
         "TensorFlow's servers: not all of them came", echo=True),
    Rule("quorum-missing", r"No quorum, only have \d{1,6} participants, need \d", F.RENDEZVOUS, 0.55, "nobody",
         "torchft::lighthouse: 2025-01-09T19:50:55.422+00:00 - INFO start: No quorum, only have 1 participants, need 2",
         "torchft::lighthouse: 2025-01-09T19:50:55.422+00:00 - INFO start: Quorum! participants: 2",
         "torchft's lighthouse", echo=True),
    Rule("store-silent", r"\[c10d\] waitForInput: (?:poll for socket .{0,200} returned 0, likely a timeout|socket .{0,200} timed out after \d)",
         F.RENDEZVOUS, 0.4, "nobody",
         "[W228 18:45:15.741177013 socket.cpp:487] [c10d] waitForInput: socket SocketImpl(fd=11, addr=[a.com]:38674, "
         "remote=[::ffff:33.148.62.162]:23456) timed out after 900000ms",
         "[c10d] waitForInput: socket ready",
         "PyTorch TCPStore", echo=True, fallback=True),
)  # fmt: skip
