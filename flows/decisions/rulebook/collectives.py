"""Collectives and launchers. Most lines are printed by victims: whoever waits longest complains first."""

from __future__ import annotations

from flows.decisions.rules import Rule
from profiles.vocabulary import FaultClass

F = FaultClass

RULES: tuple[Rule, ...] = (
    Rule("nccl-watchdog-timeout", r"Watchdog caught collective operation timeout", F.COLLECTIVE_TIMEOUT, 0.75,
         "nobody",
         "[rank0]:[E1206 18:44:12.715298746 ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective "
         "operation timeout: WorkNCCL(SeqNum=7753, OpType=_REDUCE_SCATTER_BASE, NumelIn=544997376, "
         "NumelOut=68124672, Timeout(ms)=600000) ran for 600061 milliseconds before timing out.",
         "Watchdog started with a collective operation limit",
         "PyTorch ProcessGroupNCCL", literals=("watchdog caught co",),
         supersedes=("nccl-watchdog-terminated", "nccl-async-abort"), echo=True),
    Rule("nccl-watchdog-terminated", r"(?:Process group watchdog|NCCL watchdog) thread terminated with exception",
         F.COLLECTIVE_TIMEOUT, 0.4, "nobody",
         "[rank0]:[E504 23:32:59.338 ProcessGroupNCCL.cpp:1896] [PG ID 0 PG GUID 0(default_pg) Rank 0] "
         "Process group watchdog thread terminated with exception: [Rank 0] Watchdog",
         "watchdog thread started",
         "PyTorch ProcessGroupNCCL: carries any other error", literals=("watchdog thread te",), echo=True),
    Rule("nccl-watchdog-noticed",
         r"(?:Exception \(either an error or timeout\) detected by watchdog at work|failure detected by watchdog at work|"
         r"Received a (?:global|dump) (?:signal|timeout) .{0,20}due to a collective timeout|Observed flight recorder dump signal|"
         r"First PG on this rank (?:to signal dumping|that detected no)|Timeout at (?:NCCL|RCCL) (?:work|collective)|"
         r"Could not acquire GIL within \d+ ms)", F.COLLECTIVE_TIMEOUT, 0.5, "nobody",
         "[rank5]:[E228 16:20:45.101 ProcessGroupNCCL.cpp:1858] [PG ID 0 PG GUID 0(default_pg) Rank 5] Received a dump "
         "signal due to a collective timeout from  rank 4 and we will try our best to dump the debug info.",
         "[rank5] received a signal",
         "PyTorch ProcessGroupNCCL",
         literals=("detected by watchd", "due to a collectiv", "observed flight re", "first pg on this r", "timeout at nccl",
                   "timeout at rccl", "could not acquire "), echo=True),
    Rule("nccl-async-abort", r"To avoid data inconsistency, we are taking the entire process down|"
         r"Some NCCL operations have failed or timed out", F.COLLECTIVE_TIMEOUT, 0.4, "nobody",
         "[E ProcessGroupNCCL.cpp:475] To avoid data inconsistency, we are taking the entire process down.",
         "To avoid data loss, save often",
         "PyTorch ProcessGroupNCCL", literals=("some nccl operatio", "to avoid data inco"), echo=True),
    Rule("nccl-monitor-stuck",
         r"(?:Heartbeat monitor timed out|ProcessGroupNCCL's watchdog got stuck for \d+ seconds)",
         F.COLLECTIVE_TIMEOUT, 0.6, "nobody",
         "[rank3]: ProcessGroupNCCL's watchdog got stuck for 600 seconds without making progress in "
         "monitoring enqueued collectives.",
         "Heartbeat monitor started",
         "PyTorch heartbeat monitor", literals=("eartbeat monitor t", "processgroupnccl's"), echo=True),
    Rule("monitored-barrier", r"Ranks? (?P<peer>\d[\d, ]{0,400}) failed to pass monitoredBarrier|"
         r"monitoredBarrier: .{0,40}Rank \d+ failed", F.COLLECTIVE_TIMEOUT, 0.8, "peer",
         "RuntimeError: Ranks 3 failed to pass monitoredBarrier in 1800000 ms",
         "monitoredBarrier passed",
         "PyTorch Gloo: names the missing ranks", literals=("monitoredbarrier",)),
    Rule("nccl-remote-error", r"ncclRemoteError|remote process exited or there was a network error",
         F.COLLECTIVE_TIMEOUT, 0.5, "nobody",
         "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2006, remote process "
         "exited or there was a network error",
         "process exited",
         "NCCL result codes", literals=("remote",), echo=True),
    Rule("nccl-unhandled",
         r"(?:unhandled (?:cuda|system) error|ncclUnhandledCudaError|ncclSystemError|ncclInternalError)",
         F.COLLECTIVE_TIMEOUT, 0.35, "nobody",
         "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1333, unhandled system "
         "error (run with NCCL_DEBUG=INFO for details), NCCL version 2.21.5",
         "unhandled event",
         "NCCL result codes",
         literals=("unhandled cuda err", "unhandled system e", "ncclunhandledcudae", "ncclsystemerror", "ncclinternalerror"),
         echo=True),
    Rule("nccl-peer-closed",
         r"(?:Connection closed by remote peer|Call to recv from|Call to send to) (?P<peer>[\w.\-:]{1,100}?)<\d{1,5}>"
         r"(?! failed ?: (?!Connection reset|Broken pipe))",
         F.COLLECTIVE_TIMEOUT, 0.45, "peer",
         "socketProgress: Connection closed by remote peer llama-ft-worker-2.train.svc<47712>",
         "socketProgress: Connection opened by remote peer llama-ft-worker-2.train.svc<47712>",
         "NCCL sockets: the peer's process ended", literals=("closed by remote peer", "call to recv from", "call to send to"),
         supersedes=("peer-reset",), echo=True),
    Rule("nccl-proxy-failed",
         r"Error encountered progressing operation=\w{1,24}, res=\d|\[Proxy Service .{0,60}(?:Could not receive|Accept failed|closing connection)",
         F.COLLECTIVE_TIMEOUT, 0.35, "nobody",
         "gpu-3:1:2 [3] proxy.cc:1521 NCCL WARN [Service thread] Error encountered progressing operation=Connect, res=3, closing "
         "connection",
         "gpu-3:1:2 [3] NCCL INFO [Proxy Service 3] started",
         "NCCL's proxy: carries any other error", literals=("error encountered ", "[proxy service"), echo=True),
    Rule("peer-reset",
         r"(?:Connection reset by peer|Connection closed by (?:remote )?peer|\bBrokenPipeError\b|Broken pipe|"
         r"ConnectionAbortedError|NCCL WARN .{0,60}socketProgress\w{0,6}: Connection closed|"
         r"\b(?:peer|rank \d{1,7}) closed (?:the|its) connection)", F.COLLECTIVE_TIMEOUT, 0.4, "nobody",
         "ConnectionResetError: [Errno 104] Connection reset by peer",
         "connection to peer established",
         "what survivors see when a peer dies",
         literals=("broken pipe", "brokenpipeerror", "connection reset b", "connection closed", "connectionabortede",
                   "closed the connect", "closed its connect"), echo=True),
    Rule("store-lost",
         r"Failed to check the \"should dump\" flag on TCPStore|TCPStore server has shut ?down too early|"
         r"(?:recv|send)(?:Value|Bytes|Vector|String)\w{0,12} failed on SocketImpl|"
         r"Error waiting on exit barrier|Failed to recv, got \d+ bytes|failed to recv, got 0 bytes", F.COLLECTIVE_TIMEOUT, 0.35,
         "nobody",
         "[rank1]:[W504 23:33:01.2 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=3, addr=[gpu-1]:41822, "
         "remote=[gpu-0]:29500): failed to recv, got 0 bytes",
         "[c10d] TCPStore connected on SocketImpl(fd=3)",
         "PyTorch TCPStore: the host of the store ended first",
         literals=("failed to recv, go", "failed to check th", "has shut down too ", "has shutdown too e", " failed on socketi",
                   "bytes failed on so", "waiting on exit ba", "failed on socketimpl"), supersedes=("peer-reset",), echo=True),
    Rule("elastic-child-failed", r"torch\.distributed\.elastic\.multiprocessing\.errors\.ChildFailedError|"
         r"failed \(exitcode: -?\d+\) local_rank", F.UNKNOWN, 0.3, "nobody",
         "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
         "multiprocessing started",
         "torchrun: the summary, not the cause", literals=(") local_rank", "torch.distributed."), echo=True),
    Rule("elastic-sigterm", r"(?:Sending process \d+ closing signal SIGTERM|Received (?:Signals\.)?SIGTERM)", F.UNKNOWN, 0.2, "nobody",
         "W0301 10:00:01 torch/distributed/elastic/multiprocessing/api.py:897] Sending process 4121 closing "
         "signal SIGTERM",
         "SIGTERM handler installed",
         "torchrun", literals=("process", "received"), echo=True),
    Rule("slurm-step-terminated", r"(?:slurmstepd: error: \*\*\* STEP \S+ ON \S+ CANCELLED|srun: (?:Job step aborted|Force Terminated (?:job|StepId)|Terminating (?:job step|StepId))|"
         r"srun: error: \S+: tasks? [\d,\-]+: (?:Exited|Terminated|Killed))", F.UNKNOWN, 0.25, "nobody",
         "srun: error: gpu-17: tasks 8-15: Terminated",
         "srun: job 4711 started",
         "Slurm", literals=("lurmstepd: error:", "run: error:", "run: job step abor", "run: force termin", "run: terminating"), echo=True),
    Rule("mpi-abort", r"(?:MPI_ABORT was invoked on rank|mpirun noticed that process rank \d+)", F.UNKNOWN, 0.25,
         "nobody",
         "mpirun noticed that process rank 3 with PID 0 on node gpu-3 exited on signal 9 (Killed).",
         "mpirun started",
         "Open MPI", literals=("mpi_abort was invo", "mpirun noticed tha"), echo=True),
    Rule("nccl-mismatch", r"(?:Mismatched (?:collective|NCCL version)|NCCL WARN .{0,40}version mismatch|"
         r"Detected mismatch between collectives on ranks)", F.USER_CODE, 0.8, "code",
         "RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running collective: "
         "CollectiveFingerPrint",
         "mismatch repaired",
         "PyTorch TORCH_DISTRIBUTED_DEBUG", literals=("mismatch",)),
    Rule("jax-barrier", r"(?:DEADLINE_EXCEEDED: )?Barrier timed out\. (?!(?:Barrier_)?[Ii]d: PjRT_Client_Connect)(?:.{0,400}timed out task names:\s*"
         r"(?P<peer>/job:\S{1,60}/task:\d{1,6}))?", F.COLLECTIVE_TIMEOUT, 0.7,
         "peer",
         "jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Id: 0_async_write_complete.0.1. This "
         "usually happens because a task triggered the barrier too early or too slowly.",
         "barrier passed",
         "JAX coordination service", literals=("barrier timed out",), echo=True),
    Rule("hccl-timeout", r"\bEI000[26]: |\bHccl\w{2,40}.{0,80}(?:[Tt]imed? ?out|times out)", F.COLLECTIVE_TIMEOUT, 0.72, "nobody",
         "RuntimeError: HCCL function error: HcclCommInitRootInfo, error code is 4. EI0006: Getting socket times out.",
         "HCCL version 7.0",
         "Ascend's collectives", literals=("ei0002: ", "ei0006: ", "hccl"), supersedes=("python-exception", "logged-exception"), echo=True),
    Rule("jax-heartbeat", r"(?:UNAVAILABLE: )?The following tasks are unhealthy .{0,60}: ?(?P<peer>/job:[\w/:, ]{1,800})|"
         r"UNAVAILABLE: The following tasks are unhealthy|(?P<task>/job:\S{1,40}/task:\d{1,6}) (?:has )?(?:heartbeat|Heartbeat) timed? ?out|"
         r"Terminating process because the (?:JAX distributed service|coordinator) detected fatal errors",
         F.COLLECTIVE_TIMEOUT, 0.5, "peer",
         "UNAVAILABLE: The following tasks are unhealthy (stopped sending heartbeats): "
         "/job:jax_worker/replica:0/task:5",
         "all tasks healthy",
         "JAX coordination service", literals=("terminating proces", "the following tasks", "/task:"), echo=True),
    Rule("ray-actor-died", r"ray\.exceptions\.(?:ActorDiedError|RayActorError|WorkerCrashedError|ObjectLostError)",
         F.UNKNOWN, 0.3, "nobody",
         "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.",
         "ray.exceptions.RayTaskError(ValueError): ray::train()",
         "Ray", literals=("ray.exceptions.",), supersedes=("python-exception",), echo=True),
    Rule("horovod-shut-down",
         r"Horovod has been shut down\.|\bHorovodInternalError\b|gloo::IoException|Horovod (?:background loop|operation) .{0,40}(?:fail|error)",
         F.COLLECTIVE_TIMEOUT, 0.35, "nobody",
         "horovod.common.exceptions.HorovodInternalError: Horovod has been shut down. This was caused by an exception on one "
         "of the ranks or an attempt to allreduce, allgather or broadcast a tensor after one of the ranks finished execution.",
         "Horovod started",
         "Horovod: another rank ended", literals=("horovod has been sh", "horovodinternalerr", "gloo::ioexception", "horovod background", "horovod operation "),
         supersedes=("python-exception",), echo=True),
    Rule("collective-timed-out",
         r"(?i)\b(?:all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast|barrier|collective)\b[^|]{0,60}\b(?:timed out|time-?out) "
         r"(?:after|waiting|on|in|at|:)|\bEI000[26]\b|hccl .{0,60}(?:notify|connection) .{0,30}time ?out|"
         r"Collective ops is aborted by|torch\.distributed\.TimeoutError|NCCL (?:all|reduce|broad)\w{0,12} (?:timed out|timeout)",
         F.COLLECTIVE_TIMEOUT, 0.55, "nobody",
         "RuntimeError: all_reduce timed out after 1800 s on rank 4",
         "all_reduce took 12 ms",
         "common wording; Ascend's HCCL, TensorFlow",
         literals=("timed out", "timeout", "time-out", "time out", "ei0002", "ei0006", "collective ops is ", "torch.distributed."),
         supersedes=("python-exception",), echo=True, fallback=True),
    Rule("slurm-preempted", r"CANCELLED AT \S{1,32} DUE TO (?:PREEMPTION|TIME LIMIT|JOB REQUEUE)", F.PREEMPTED,
         0.93, "nobody",
         "slurmstepd: error: *** JOB 4711 ON gpu-17 CANCELLED AT 2025-03-01T10:00:00 DUE TO PREEMPTION ***",
         "slurmstepd: error: *** STEP 4711.0 ON gpu-17 CANCELLED AT 2025-03-01T10:00:00 DUE TO NODE FAILURE",
         "Slurm", literals=("cancelled at ",),
         supersedes=("slurm-step-terminated", "process_killed", "collective_timeout")),
)  # fmt: skip
