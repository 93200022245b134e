"""Healthy noise: a line that matches one of these says nothing, whatever alarming words stand in it.

Libraries, kernels and clusters print such lines while all is well.
"""

from __future__ import annotations

from flows.decisions.diagnosis.clues import Rule
from profiles.vocabulary import FaultClass

F = FaultClass

NOISE_RULES: tuple[Rule, ...] = (
    Rule("warning-deprecation", r"\b(?:Deprecation|Future|PendingDeprecation|User|Runtime|Resource)Warning\b(?!: CUDA initialization)",
         F.NONE, 1.0, "nobody",
         "/usr/lib/python3/site-packages/torch/cuda/__init__.py:61: FutureWarning: The pynvml package is "
         "deprecated.",
         "RuntimeError: a warning became an error",
         "Python warnings module"),
    Rule("nccl-info", r"\b(?:NCCL|RCCL) (?:INFO|TRACE|VERSION)\b", F.NONE, 1.0, "nobody",
         "kp-ddp-worker-0:3468:3905 [4] NCCL INFO transport/net.cc:1302 -> 6",
         "NCCL WARN Cuda failure 'out of memory'",
         "NCCL debug output"),
    Rule("process-group-reminder", r"destroy_process_group\(\) was not called before program exit", F.NONE, 1.0,
         "nobody",
         "[rank0]:[W1206 18:44:12.715 ProcessGroupNCCL.cpp:1250] Warning: WARNING: destroy_process_group() "
         "was not called before program exit, which can leak resources.",
         "RuntimeError: call destroy_process_group() first",
         "PyTorch ProcessGroupNCCL.cpp"),
    Rule("xid-recorded",
         r"NVRM: Xid \([^)]{1,40}\): (?:14|37|44|93|106|107|108|121|137|141|157|162)\b|"
         r"GPU recovery action changed from \S{3,6} \(\w{1,30}\) to 0x0 \(None\)", F.NONE,
         1.0, "nobody",
         "NVRM: Xid (PCI:0000:3b:00): 93, pid='<unknown>', name=<unknown>, Non-fatal violation of InfoROM wear limit",
         "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
         "NVIDIA Xid catalog, bucket ignore", vendor="nvidia"),
    Rule("sxid-warning", r"SXid \([^)]{1,40}\): (?:20001|20009|20012|22013|12030|1000\d)\b(?!, (?:Fatal|Severity 1))", F.NONE, 1.0, "nobody",
         "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20009, Non-fatal, Link 32 RX Short Error Rate",
         "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 22011, Fatal, Link 32 ingress response",
         "gpud table, warnings", vendor="nvidia"),
    Rule("hardware-error-corrected",
         r"\b(?:corrected by h/w|event severity: corrected|correctable hardware errors? detected)", F.NONE, 1.0,
         "nobody",
         "{359}[Hardware Error]: It has been corrected by h/w and requires no further action",
         "{1}uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!",
         "Linux APEI, amdgpu RAS"),
    Rule("retry-succeeded",
         r"\b(?:succeeded|recovered|reconnected|connected|ok)\b.{0,40}\bafter \d{1,4} (?:retr|attempt|tr[iy])",
         F.NONE, 1.0, "nobody",
         "storage: reconnected to nfs-3 after 2 retries",
         "gave up after 5 retries",
         "common wording of clients"),
    Rule("omp-threads", r"Setting OMP_NUM_THREADS environment variable for each process", F.NONE, 1.0, "nobody",
         "W1206 18:40:01 torch/distributed/run.py:793] Setting OMP_NUM_THREADS environment variable for "
         "each process to be 1 in default, to avoid your system being overloaded",
         "OMP_NUM_THREADS must be positive",
         "torchrun"),
    Rule("nan-skipped-step", r"(?:gradient overflow|Gradient overflow)\.? +(?:Skipping step|skipping step)", F.NONE,
         1.0, "nobody",
         "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 32768.0",
         "Gradient overflow. Loss scale reached minimum",
         "apex, DeepSpeed loss scaling"),
    Rule("our-launcher", r"(?:^|Z )launcher: (?:rank-failed|done|told-to-stop|told to stop|holding|joining|restarting|ending|saving|signalled|"
         r"completed|started ranks|rank \d+ (?:was killed|exited))\b", F.NONE, 1.0, "nobody",
         "2026-11-21T12:41:49.242118Z launcher: rank 0 was killed by signal 9 after step 15, as it was asked to",
         "launcher: cannot read the programs",
         "our own launcher: the ends themselves come as records"),
    Rule("our-structured-line", r"^@primus \{", F.NONE, 1.0, "nobody",
         "@primus {\"report\":\"StepSeen\",\"step\":3,\"at\":1.0}",
         "primus: error",
         "our launcher"),
    Rule("nccl-warn-harmless", r"[NR]CCL WARN (?:NET/OFI (?:pciPath|Error opening file|Could not find ncclGetVersion)|"
         r".{0,40}(?:MaxP2P|NUMA|cpuset|Using internal network plugin|HSA_FORCE_FINE_GRAIN_PCIE)|"
         r".{0,40}is deprecated)", F.NONE, 1.0, "nobody",
         "NCCL WARN NET/OFI Could not find ncclGetVersion symbol",
         "NCCL WARN NET/OFI Request completed with error",
         "NCCL, RCCL, aws-ofi-nccl: other paths are taken"),
    Rule("ras-all-clear", r"amdgpu.{0,80}\b(?:no|0) (?:un)?correctable hardware errors", F.NONE, 1.0, "nobody",
         "amdgpu 0000:c3:00.0: amdgpu: no uncorrectable hardware errors detected in umc block",
         "amdgpu 0000:c3:00.0: amdgpu: 2 uncorrectable hardware errors detected in umc block",
         "amdgpu RAS: the all-clear has the same words", vendor="amd"),
    Rule("count-is-zero",
         r"(?i)\b(?:errors?|failures?|nans?|(?<!max )retries|skipped iterations|nan iterations):? {1,4}0(?:\b|$)(?!\.)",
         F.NONE, 1.0, "nobody",
         "iteration 100/ 500 | lm loss: 2.31E+00 | number of skipped iterations: 0 | number of nan "
         "iterations: 0 |",
         "errors: 3",
         "Megatron-LM and others: counters that stand at zero"),
    Rule("checkpoint-chatter",
         r"(?i)^(?!.{0,300}(?:error|fail|corrupt|mismatch|preempt|sigterm|signal|evict|exit|unable|not found|missing|time limit|"
         r"no space|refused|invalid|\bnan\b)).{0,200}\b(?:saving|saved|successfully (?:saved|loaded)|loading|loaded) (?:a )?checkpoint\b",
         F.NONE, 1.0, "nobody",
         "successfully saved checkpoint from iteration 500 to /ckpt [ t 1/8, p 1/1 ]",
         "saving checkpoint failed: [Errno 28] No space left on device",
         "trainers"),
    Rule("loader-finaliser", r"\bcan only (?:test|join) a child process|_MultiProcessingDataLoaderIter\.__del__|DataLoader\w{0,20}\.__del__ at 0x", F.NONE, 1.0,
         "nobody",
         "AssertionError: can only test a child process",
         "AssertionError: can only join a child",
         "torch's loaders in forked workers: raised in finalisers, where nothing ends"),
    Rule("readiness", r"\b(?:Readiness|Startup) probe (?:failed|errored)", F.NONE, 1.0, "nobody",
         "Warning  Unhealthy  2m37s (x3 over 2m39s)  kubelet  Readiness probe failed: connect: connection refused",
         "Warning  Unhealthy  2m37s (x3 over 2m39s)  kubelet  Liveness probe failed: connect: connection refused",
         "kubelet: the container is not ready yet"),
    Rule("signal-handlers", r"(?i)\b(?:signal handlers?|SIGTERM handler) (?:installed|registered|set)", F.NONE, 1.0,
         "nobody",
         "SIGTERM handler installed",
         "Received SIGTERM",
         "trainers"),
    Rule("aer-corrected", r"AER: (?:Multiple )?Correct(?:ed|able) error|PCIe Bus Error: severity=Correct", F.NONE,
         1.0, "nobody",
         "pcieport 0000:00:01.1: AER: Corrected error received: 0000:02:00.0",
         "pcieport 0000:00:01.1: AER: Uncorrected (Fatal) error received: 0000:02:00.0",
         "Linux PCIe AER"),
    Rule("mlx5-link-up", r"mlx5_core.{0,60}(?:Link (?:INIT|ACTIVE|[Uu]p)\b|firmware version)", F.NONE, 1.0,
         "nobody",
         "mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link ACTIVE",
         "mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link DOWN",
         "mlx5 driver"),
    Rule("torch-compile-chatter",
         r"torch\._(?:dynamo|inductor).{0,120}(?:\[WARNING\]|WARNING|hit config\.\w+_limit)", F.NONE, 1.0, "nobody",
         "W0301 10:00:01 torch/_dynamo/convert_frame.py:861] torch._dynamo hit config.cache_size_limit (8)",
         "torch._dynamo.exc.InternalTorchDynamoError: boom",
         "torch.compile"),
)  # fmt: skip


BENIGN_RULES: tuple[Rule, ...] = (
    Rule("factory-registered-twice", r"Unable to register cu(?:DNN|FFT|BLAS) factory", F.NONE, 1.0, "nobody",
         "2024-03-01 10:00:00.1: E external/local_xla/xla/stream_executor/cuda/cuda_dnn.cc:9261] Unable to register cuDNN "
         "factory: Attempting to register factory for plugin cuDNN when one has already been registered",
         "Could not create cudnn handle: CUDNN_STATUS_NOT_INITIALIZED",
         "TensorFlow, printed by every import"),
    Rule("pip-resolver", r"pip's dependency resolver does not currently take", F.NONE, 1.0, "nobody",
         "ERROR: pip's dependency resolver does not currently take into account all the packages that are installed.",
         "ERROR: Could not find a version that satisfies the requirement flash-attn==9",
         "pip: the packages are installed all the same"),
    Rule("autotune-attempt",
         r"torch/_inductor/\S{1,60}\] .{0,60}(?:out of resource|OutOfResources|[Nn]o valid triton config)|"
         r"for benchmark choice \w|hipBLASLt error: Heuristic Fetch Failed", F.NONE, 1.0, "nobody",
         "E0301 10:00:01 4121 torch/_inductor/select_algorithm.py:1930] Exception out of resource: shared memory, "
         "Required: 278528, Hardware limit: 232448. for benchmark choice TritonTemplateCaller",
         "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 278528",
         "torch.compile, hipBLASLt: one candidate of many did not fit"),
    Rule("optional-extension", r"Failed to load image Python extension|(?:Failed to import|Could not import|not installed).{0,120}"
         r"(?:fall(?:ing)? ?back|using .{1,40} instead|will be (?:disabled|skipped))", F.NONE, 1.0, "nobody",
         "Failed to load image Python extension: 'libpng16.so.16: cannot open shared object file: No such file or directory'",
         "ImportError: libpng16.so.16: cannot open shared object file: No such file or directory",
         "torchvision and others: an optional part is missing"),
    Rule("preload-ignored", r"from LD_PRELOAD cannot be preloaded", F.NONE, 1.0, "nobody",
         "ERROR: ld.so: object '/usr/lib/libtcmalloc.so' from LD_PRELOAD cannot be preloaded (cannot open shared object "
         "file): ignored.",
         "python3: error while loading shared libraries: libtcmalloc.so: cannot open shared object file",
         "the dynamic loader"),
    Rule("slurm-strangers",
         r"error: (?:unpack_header|destroy_forward|slurm_unpack_received_msg|wrap_on_data|_?slurm_receive_msg\w{0,12}): .{0,160}"
         r"(?:protocol_version|no init|Incompatible versions)", F.NONE, 1.0, "nobody",
         "srun: error: unpack_header: protocol_version 65363 not supported",
         "srun: error: slurm_receive_msg: Zero Bytes were transmitted or received",
         "srun: a port scanner spoke to its port"),
    Rule("slurm-chatter",
         r"slurmstepd: error: (?:couldn't chdir to|spank/|task_p_post_term|common_file_write|_?(?:get|find)_\w{3,40}|"
         r".{0,60}[Ff]ailed to (?:remove|destroy|delete|rmdir) .{0,60}cgroup)|srun: warning: |srun: error: ioctl\(TIOCG", F.NONE,
         1.0, "nobody",
         "slurmstepd: error: couldn't chdir to `/home/user/x': No such file or directory: going to /tmp instead",
         "slurmstepd: error: execve(): python: No such file or directory",
         "slurmstepd: the step goes on"),
    Rule("kube-chatter",
         r"the object has been modified; please apply your changes|watch of \*\S{1,60} ended with|too old resource version|"
         r"due to client-side throttling|^W\d{4} .{0,60}warnings\.go:\d{1,5}\] |^Warning: (?:unknown field|resource |would violate)",
         F.NONE, 1.0, "nobody",
         "E0301 10:00:00.1 1 controller.go:321] \"Reconciler error\" err=\"Operation cannot be fulfilled on jobsets \\\"demo\\\": "
         "the object has been modified; please apply your changes to the latest version and try again\"",
         "strict decoding error: unknown field \"spec.foo\"",
         "client-go, kubectl: done again at once"),
    Rule("http-try-again",
         r"\bRetrying \(Retry\(total=|thrown while requesting (?:HEAD|GET|PUT|POST)|entering retry loop|"
         r"wandb: .{0,80}(?:retrying|dropping)|Filestream rate limit exceeded", F.NONE, 1.0, "nobody",
         "Retrying (Retry(total=239, connect=239)) after connection broken by 'NewConnectionError: [Errno 111] Connection "
         "refused': /v2.23/tasks.get_all",
         "requests.exceptions.ConnectionError: HTTPSConnectionPool: Max retries exceeded with url: /v2.23/tasks.get_all",
         "urllib3, Hugging Face hub, W&B: tried again"),
    Rule("memory-tried-again",
         r"(?i)\b(?:out of memory|oom)\b.{0,120}(?:(?:reduc|decreas|halv|lower)ing (?:the )?(?:batch|micro)|retrying (?:batch|with)|"
         r"skipping (?:the )?(?:batch|sample)|trying (?:a )?smaller)|attempting to recover from OOM|If out-of-memory error occurs",
         F.NONE, 1.0, "nobody",
         "WARNING: ran out of memory, retrying batch",
         "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
         "fairseq, Lightning's batch finder, accelerate, Ultralytics, vLLM"),
    Rule("cache-preempted", r"(?:[Ss]equence group|[Rr]equest) \S{1,80} is preempted by|PreemptionMode\.|KV cache pool is full\. Retract",
         F.NONE, 1.0, "nobody",
         "WARNING 05-01 10:00:00 scheduler.py:1057] Sequence group 12 is preempted by PreemptionMode.RECOMPUTE mode because "
         "there is not enough KV cache space.",
         "worker 12 was preempted by the scheduler",
         "vLLM, SGLang: requests, not machines"),
    Rule("media-chatter", r"^\[\w{2,16} @ 0x[0-9a-f]{4,16}\] |MuPDF error: |Corrupt JPEG data: \d{1,9} extraneous bytes|libpng warning: |"
         r"mcelog: failed to prefill", F.NONE, 1.0, "nobody",
         "Corrupt JPEG data: 18 extraneous bytes before marker 0xd9",
         "PIL.UnidentifiedImageError: cannot identify image file",
         "libjpeg, libpng, FFmpeg, MuPDF: decoded all the same"),
    Rule("boot-chatter",
         r"\bBAR \d{1,2}: (?:no space for|failed to assign)|\bACPI (?:BIOS )?(?:Error|Warning)\b|module verification failed: signature|"
         r"mce: \[Hardware Error\]: Machine check events logged$|"
         r"pcieport \S{4,20}: {1,12}\[ ?\d{1,2}\] \w|re-?mounted .{0,80}errors=remount-ro|mounted filesystem .{0,120}errors=remount-ro|"
         r"error status/mask=0000[0-9a-f]{4}/", F.NONE, 1.0, "nobody",
         "pci 0000:c0:03.1: BAR 13: failed to assign [io  size 0x1000]",
         "NVRM: This PCI I/O region assigned to your NVIDIA device is invalid: BAR0 is 0M @ 0x0",
         "Linux at boot, corrected PCIe errors"),
    Rule("recovered",
         r"(?i)\bconnection (?:was |has been )?restored\b|\bnfs: server \S{1,100} OK$|successfully acquired lease|"
         r"communication with \w{1,20} restored|\bre-?connected (?:to|successfully)", F.NONE, 1.0, "nobody",
         "Lustre: scratch-OST0007-osc-ffff: Connection restored to 10.0.0.7@o2ib (at 10.0.0.7@o2ib)",
         "Lustre: scratch-OST0007-osc-ffff: Connection to scratch-OST0007 was lost; in progress operations will wait",
         "Lustre, NFS, client-go, trackers: well again"),
    Rule("shell-chatter",
         r"^(?:cat|ls|rm|rmdir|mkdir|head|tail|grep|wc|du|tput|stty): .{1,300}(?:No such file or directory|File exists|ioctl for device)$|"
         r"^fatal: (?:not a git repository|No names found|detected dubious ownership)", F.NONE, 1.0, "nobody",
         "cat: /sys/class/infiniband/mlx5_0/ports/1/counters: No such file or directory",
         "python3: can't open file '/workspace/train.py': [Errno 2] No such file or directory",
         "shells and git beside the training"),
    Rule("mpi-chatter", r"PMIX ERROR: (?:ERROR|NO-PERMISSIONS|OUT-OF-RESOURCE|NOT[- ]FOUND) in file \S{0,200}(?:gds_|psec|ptl_)|"
         r"pmix_mca_base_component_repository_open: unable to open|more processes? ha(?:s|ve) sent help message", F.NONE, 1.0, "nobody",
         "[qbd487:400139] PMIX ERROR: ERROR in file ../../../src/mca/gds/ds12/gds_ds12_lock_pthread.c at line 169",
         "[qbd487:400139] PMIX ERROR: UNREACHABLE in file server/pmix_server.c at line 2193",
         "Open MPI, PMIx: another component is taken"),
    Rule("table-legend", r"^# {1,4}Errors with asterisks indicate errors that", F.NONE, 1.0, "nobody",
         "# Errors with asterisks indicate errors that have exceeded the maximum threshold.",
         "# Errors: 3",
         "rccl-tests: what an asterisk would mean"),
)  # fmt: skip
