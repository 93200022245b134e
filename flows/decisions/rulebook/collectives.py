"""Collectives, launchers and hangs. Most lines are printed by victims: whoever waits longest complains first."""

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
    Rule("gloo-timeout", r"(?:Gloo|gloo).{0,200}Timed out waiting \d+ms", F.COLLECTIVE_TIMEOUT, 0.7, "nobody",
         "RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting "
         "1800000ms for recv operation to complete",
         "gloo connected after waiting 5ms",
         "Gloo", literals=("timed out waiting ",), echo=True),
    Rule("monitored-barrier", r"(?:Rank(?:s)? (?P<peer>[\d, ]{1,80}) failed to pass monitoredBarrier|"
         r"monitoredBarrier: .{0,40}Rank \d+ failed)", F.COLLECTIVE_TIMEOUT, 0.8, "peer",
         "RuntimeError: Ranks 3 failed to pass monitoredBarrier in 1800000 ms",
         "monitoredBarrier passed",
         "PyTorch Gloo: names the missing ranks", literals=("monitoredbarrier",)),
    Rule("nccl-remote-error", r"ncclRemoteError|remote process exited or there was a network error",
         F.COLLECTIVE_TIMEOUT, 0.55, "nobody",
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
         "NCCL result codes", literals=("error",), echo=True),
    Rule("nccl-cuda-failure", r"NCCL WARN Cuda failure", F.GPU_DRIVER, 0.5, "rank",
         "dgx-17:4120:4511 [3] enqueue.cc:1025 NCCL WARN Cuda failure 'unspecified launch failure'",
         "NCCL INFO Cuda driver version",
         "NCCL", literals=("nccl warn cuda fai",)),
    Rule("peer-reset",
         r"(?:Connection reset by peer|Connection closed by (?:remote )?peer|\bBrokenPipeError\b|Broken pipe|"
         r"ConnectionAbortedError|NCCL WARN .{0,60}socketProgress\w{0,6}: Connection closed|"
         r"\b(?:peer|rank \d{1,7}) closed (?:the|its) connection)", F.COLLECTIVE_TIMEOUT, 0.4, "nobody",
         "ConnectionResetError: [Errno 104] Connection reset by peer",
         "connection to peer established",
         "what survivors see when a peer dies", literals=("broken", "connection", "socketprogress"), echo=True),
    Rule("elastic-child-failed", r"torch\.distributed\.elastic\.multiprocessing\.errors\.ChildFailedError|"
         r"failed \(exitcode: -?\d+\) local_rank", F.UNKNOWN, 0.3, "nobody",
         "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
         "multiprocessing started",
         "torchrun: the summary, not the cause", literals=(") local_rank", "torch.distributed."), echo=True),
    Rule("elastic-sigterm", r"(?:Sending process \d+ closing signal SIGTERM|Received (?:Signals\.)?SIGTERM|"
         r"Received 15 death signal|torch\.distributed\.elastic\.multiprocessing\.api\.SignalException: "
         r"Process \d+ got signal: 15)", F.UNKNOWN, 0.2, "nobody",
         "W0301 10:00:01 torch/distributed/elastic/multiprocessing/api.py:897] Sending process 4121 closing "
         "signal SIGTERM",
         "SIGTERM handler installed",
         "torchrun", literals=("process", "received"), echo=True),
    Rule("slurm-step-terminated", r"(?:slurmstepd: error: \*\*\* STEP \S+ ON \S+ CANCELLED|srun: Job step aborted|"
         r"srun: error: \S+: tasks? [\d,\-]+: (?:Exited|Terminated|Killed))", F.UNKNOWN, 0.25, "nobody",
         "srun: error: gpu-17: tasks 8-15: Terminated",
         "srun: job 4711 started",
         "Slurm", literals=(": error:", "run: job step abor"), echo=True),
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
    Rule("jax-barrier", r"(?:DEADLINE_EXCEEDED: Barrier timed out|Barrier timed out\. )", F.COLLECTIVE_TIMEOUT, 0.7,
         "nobody",
         "jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Id: "
         "PjRT_Client_Connect. Timed out task names: /job:jax_worker/replica:0/task:3",
         "barrier passed",
         "JAX coordination service", literals=("barrier timed out",), echo=True),
    Rule("jax-heartbeat", r"(?:UNAVAILABLE: The following tasks are unhealthy|"
         r"Terminating process because the (?:JAX distributed service|coordinator) detected fatal errors)",
         F.COLLECTIVE_TIMEOUT, 0.5, "nobody",
         "UNAVAILABLE: The following tasks are unhealthy (stopped sending heartbeats): "
         "/job:jax_worker/replica:0/task:5",
         "all tasks healthy",
         "JAX coordination service", literals=("terminating proces", "unavailable: the f"), echo=True),
    Rule("ray-actor-died", r"ray\.exceptions\.(?:ActorDiedError|RayActorError|WorkerCrashedError|ObjectLostError)",
         F.UNKNOWN, 0.3, "nobody",
         "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.",
         "ray.exceptions.RayTaskError(ValueError): ray::train()",
         "Ray", literals=("ray.exceptions.",), supersedes=("python-exception",), echo=True),
    Rule("mpi-lost-peer", r"(?:ORTE has lost communication with a remote daemon|PMIX ERROR: .{0,40}UNREACHABLE|"
         r"btl_tcp_endpoint.{0,120}(?:failed|Connection))", F.COLLECTIVE_TIMEOUT, 0.5, "nobody",
         "ORTE has lost communication with a remote daemon.",
         "ORTE daemon started",
         "Open MPI", literals=("btl_tcp_endpoint", "orte has lost comm", "pmix error: "), echo=True),
    Rule("nvrx-hang", r"Did not get (?:subsequent|initial) heartbeat\. Waited", F.HANG, 0.85, "rank",
         "[WARNING] [RankMonitorServer:34] Did not get subsequent heartbeat. Waited 171.92 seconds.",
         "heartbeat received",
         "NVIDIA resiliency extension", literals=("heartbeat. waited",),
         supersedes=("process_killed", "collective_timeout")),
    Rule("nvrx-straggler", r"STRAGGLER DETECTION WARNING: Some GPUs", F.STRAGGLER, 0.7, "nobody",
         "STRAGGLER DETECTION WARNING: Some GPUs have worse relative performance. Affected ranks: [76, 13, "
         "45]",
         "Straggler report processing time: 0.042 sec.",
         "NVIDIA resiliency extension", literals=("straggler detectio",)),
    Rule("training-hung",
         r"(?i)\b(?:no step|no progress|training) .{0,40}(?:for \d+(?:\.\d+)? ?s.{0,20}hung|hang detected|"
         r"appears (?:to be )?(?:hung|stuck))", F.HANG, 0.75, "nobody",
         "coordinator: no step for 61.0 s: hung",
         "training finished, nothing hung",
         "ours and others", literals=("no progress ", "no step ", "training ")),
    Rule("slurm-node-fail", r"DUE TO NODE FAILURE|Node failure on \S{1,80}", F.NODE_LOST, 0.93, "nobody",
         "slurmstepd: error: *** STEP 4711.0 ON gpu-17 CANCELLED AT 2025-03-01T10:00:00 DUE TO NODE "
         "FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***",
         "slurmstepd: error: *** STEP 4711.0 ON gpu-17 CANCELLED AT 2025-03-01T10:00:00 ***",
         "Slurm", literals=("node failure",),
         supersedes=("slurm-step-terminated", "process_killed", "collective_timeout")),
    Rule("slurm-preempted", r"CANCELLED AT \S{1,32} DUE TO (?:PREEMPTION|TIME LIMIT|JOB REQUEUE)", F.PREEMPTED,
         0.93, "nobody",
         "slurmstepd: error: *** JOB 4711 ON gpu-17 CANCELLED AT 2025-03-01T10:00:00 DUE TO PREEMPTION ***",
         "slurmstepd: error: *** STEP 4711.0 ON gpu-17 CANCELLED AT 2025-03-01T10:00:00 DUE TO NODE FAILURE",
         "Slurm", literals=("cancelled at ",),
         supersedes=("slurm-step-terminated", "process_killed", "collective_timeout")),
)  # fmt: skip
