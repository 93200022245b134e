"""More healthy noise: what libraries, kernels and clusters print on their way, whatever alarming words stand in it."""

from __future__ import annotations

from flows.decisions.rules import Rule
from profiles.vocabulary import FaultClass

F = FaultClass

RULES: tuple[Rule, ...] = (
    Rule("factory-registered-twice", r"Unable to register cu(?:DNN|FFT|BLAS) factory", F.NONE, 1.0, "nobody",
         "2024-03-01 10:00:00.1: E external/local_xla/xla/stream_executor/cuda/cuda_dnn.cc:9261] Unable to register cuDNN "
         "factory: Attempting to register factory for plugin cuDNN when one has already been registered",
         "Could not create cudnn handle: CUDNN_STATUS_NOT_INITIALIZED",
         "TensorFlow, printed by every import", literals=("unable to register",)),
    Rule("pip-resolver", r"pip's dependency resolver does not currently take", F.NONE, 1.0, "nobody",
         "ERROR: pip's dependency resolver does not currently take into account all the packages that are installed.",
         "ERROR: Could not find a version that satisfies the requirement flash-attn==9",
         "pip: the packages are installed all the same", literals=("pip's dependency r",)),
    Rule("autotune-attempt",
         r"torch/_inductor/\S{1,60}\] .{0,60}(?:out of resource|OutOfResources|[Nn]o valid triton config)|"
         r"for benchmark choice \w|hipBLASLt error: Heuristic Fetch Failed", F.NONE, 1.0, "nobody",
         "E0301 10:00:01 4121 torch/_inductor/select_algorithm.py:1930] Exception out of resource: shared memory, "
         "Required: 278528, Hardware limit: 232448. for benchmark choice TritonTemplateCaller",
         "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 278528",
         "torch.compile, hipBLASLt: one candidate of many did not fit", literals=("for benchmark choi", "hipblaslt error: h", "torch/_inductor/")),
    Rule("optional-extension", r"Failed to load image Python extension|(?:Failed to import|Could not import|not installed).{0,120}"
         r"(?:fall(?:ing)? ?back|using .{1,40} instead|will be (?:disabled|skipped))", F.NONE, 1.0, "nobody",
         "Failed to load image Python extension: 'libpng16.so.16: cannot open shared object file: No such file or directory'",
         "ImportError: libpng16.so.16: cannot open shared object file: No such file or directory",
         "torchvision and others: an optional part is missing", literals=("could not import", "failed to import", "failed to load ima", "not installed")),
    Rule("preload-ignored", r"from LD_PRELOAD cannot be preloaded", F.NONE, 1.0, "nobody",
         "ERROR: ld.so: object '/usr/lib/libtcmalloc.so' from LD_PRELOAD cannot be preloaded (cannot open shared object "
         "file): ignored.",
         "python3: error while loading shared libraries: libtcmalloc.so: cannot open shared object file",
         "the dynamic loader", literals=("from ld_preload ca",)),
    Rule("slurm-strangers",
         r"error: (?:unpack_header|destroy_forward|slurm_unpack_received_msg|wrap_on_data|_?slurm_receive_msg\w{0,12}): .{0,160}"
         r"(?:protocol_version|no init|Incompatible versions)", F.NONE, 1.0, "nobody",
         "srun: error: unpack_header: protocol_version 65363 not supported",
         "srun: error: slurm_receive_msg: Zero Bytes were transmitted or received",
         "srun: a port scanner spoke to its port", literals=("destroy_forward", "slurm_receive_msg", "slurm_unpack_recei", "unpack_header", "wrap_on_data")),
    Rule("slurm-chatter",
         r"slurmstepd: error: (?:couldn't chdir to|spank/|task_p_post_term|common_file_write|_?(?:get|find)_\w{3,40}|"
         r".{0,60}[Ff]ailed to (?:remove|destroy|delete|rmdir) .{0,60}cgroup)|srun: warning: |srun: error: ioctl\(TIOCG", F.NONE,
         1.0, "nobody",
         "slurmstepd: error: couldn't chdir to `/home/user/x': No such file or directory: going to /tmp instead",
         "slurmstepd: error: execve(): python: No such file or directory",
         "slurmstepd: the step goes on", literals=("lurmstepd: error: ", "run: error: ioctl(", "run: warning: ")),
    Rule("kube-chatter",
         r"the object has been modified; please apply your changes|watch of \*\S{1,60} ended with|too old resource version|"
         r"due to client-side throttling|^W\d{4} .{0,60}warnings\.go:\d{1,5}\] |^Warning: (?:unknown field|resource |would violate)",
         F.NONE, 1.0, "nobody",
         "E0301 10:00:00.1 1 controller.go:321] \"Reconciler error\" err=\"Operation cannot be fulfilled on jobsets \\\"demo\\\": "
         "the object has been modified; please apply your changes to the latest version and try again\"",
         "strict decoding error: unknown field \"spec.foo\"",
         "client-go, kubectl: done again at once", literals=(" ended with", "due to client-side", "the object has bee", "too old resource v", "warning:", "warnings.go:")),
    Rule("http-try-again",
         r"\bRetrying \(Retry\(total=|thrown while requesting (?:HEAD|GET|PUT|POST)|entering retry loop|"
         r"wandb: .{0,80}(?:retrying|dropping)|Filestream rate limit exceeded", F.NONE, 1.0, "nobody",
         "Retrying (Retry(total=239, connect=239)) after connection broken by 'NewConnectionError: [Errno 111] Connection "
         "refused': /v2.23/tasks.get_all",
         "requests.exceptions.ConnectionError: HTTPSConnectionPool: Max retries exceeded with url: /v2.23/tasks.get_all",
         "urllib3, Hugging Face hub, W&B: tried again", literals=("dropping", "entering retry loo", "filestream rate li", "retrying", "wn while reque")),
    Rule("memory-tried-again",
         r"(?i)\b(?:out of memory|oom)\b.{0,120}(?:(?:reduc|decreas|halv|lower)ing (?:the )?(?:batch|micro)|retrying (?:batch|with)|"
         r"skipping (?:the )?(?:batch|sample)|trying (?:a )?smaller)|attempting to recover from OOM|If out-of-memory error occurs",
         F.NONE, 1.0, "nobody",
         "WARNING: ran out of memory, retrying batch",
         "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
         "fairseq, Lightning's batch finder, accelerate, Ultralytics, vLLM", literals=("attempting to reco", "if out-of-memory e", "ing batch", "ing micro", "ing the batch", "ing the micro", "retrying with", "skipping sample", "skipping the sampl", "trying a smaller", "trying smaller")),
    Rule("cache-preempted", r"(?:[Ss]equence group|[Rr]equest) \S{1,80} is preempted by|PreemptionMode\.|KV cache pool is full\. Retract",
         F.NONE, 1.0, "nobody",
         "WARNING 05-01 10:00:00 scheduler.py:1057] Sequence group 12 is preempted by PreemptionMode.RECOMPUTE mode because "
         "there is not enough KV cache space.",
         "worker 12 was preempted by the scheduler",
         "vLLM, SGLang: requests, not machines", literals=(" is preempted by", "kv cache pool is f", "preemptionmode.")),
    Rule("media-chatter", r"^\[\w{2,16} @ 0x[0-9a-f]{4,16}\] |MuPDF error: |Corrupt JPEG data: \d{1,9} extraneous bytes|libpng warning: |"
         r"mcelog: failed to prefill", F.NONE, 1.0, "nobody",
         "Corrupt JPEG data: 18 extraneous bytes before marker 0xd9",
         "PIL.UnidentifiedImageError: cannot identify image file",
         "libjpeg, libpng, FFmpeg, MuPDF: decoded all the same", literals=(" @ 0x", "corrupt jpeg data:", "libpng warning: ", "mcelog: failed to ", "mupdf error: ")),
    Rule("boot-chatter",
         r"\bBAR \d{1,2}: (?:no space for|failed to assign)|\bACPI (?:BIOS )?(?:Error|Warning)\b|module verification failed: signature|"
         r"mce: \[Hardware Error\]: Machine check events logged$|"
         r"pcieport \S{4,20}: {1,12}\[ ?\d{1,2}\] \w|re-?mounted .{0,80}errors=remount-ro|mounted filesystem .{0,120}errors=remount-ro|"
         r"error status/mask=0000[0-9a-f]{4}/", F.NONE, 1.0, "nobody",
         "pci 0000:c0:03.1: BAR 13: failed to assign [io  size 0x1000]",
         "NVRM: This PCI I/O region assigned to your NVIDIA device is invalid: BAR0 is 0M @ 0x0",
         "Linux at boot, corrected PCIe errors", literals=(": failed to assign", ": no space for", "acpi bios error", "acpi bios warning", "acpi error", "acpi warning", "error status/mask=", "errors=remount-ro", "mce: [hardware err", "module verificatio", "mounted filesystem", "pcieport ")),
    Rule("recovered",
         r"(?i)\bconnection (?:was |has been )?restored\b|\bnfs: server \S{1,100} OK$|successfully acquired lease|"
         r"communication with \w{1,20} restored|\bre-?connected (?:to|successfully)", F.NONE, 1.0, "nobody",
         "Lustre: scratch-OST0007-osc-ffff: Connection restored to 10.0.0.7@o2ib (at 10.0.0.7@o2ib)",
         "Lustre: scratch-OST0007-osc-ffff: Connection to scratch-OST0007 was lost; in progress operations will wait",
         "Lustre, NFS, client-go, trackers: well again", literals=("communication with", "connected", "connection", "nfs: server ", "successfully acqui")),
    Rule("shell-chatter",
         r"^(?:cat|ls|rm|rmdir|mkdir|head|tail|grep|wc|du|tput|stty): .{1,300}(?:No such file or directory|File exists|ioctl for device)$|"
         r"^fatal: (?:not a git repository|No names found|detected dubious ownership)", F.NONE, 1.0, "nobody",
         "cat: /sys/class/infiniband/mlx5_0/ports/1/counters: No such file or directory",
         "python3: can't open file '/workspace/train.py': [Errno 2] No such file or directory",
         "shells and git beside the training", literals=("fatal: detected du", "fatal: no names fo", "fatal: not a git r", "file exists", "ioctl for device", "no such file or di")),
    Rule("mpi-chatter", r"PMIX ERROR: (?:ERROR|NO-PERMISSIONS|OUT-OF-RESOURCE|NOT[- ]FOUND) in file \S{0,200}(?:gds_|psec|ptl_)|"
         r"pmix_mca_base_component_repository_open: unable to open|more processes? ha(?:s|ve) sent help message", F.NONE, 1.0, "nobody",
         "[qbd487:400139] PMIX ERROR: ERROR in file ../../../src/mca/gds/ds12/gds_ds12_lock_pthread.c at line 169",
         "[qbd487:400139] PMIX ERROR: UNREACHABLE in file server/pmix_server.c at line 2193",
         "Open MPI, PMIx: another component is taken", literals=("pmix error:", "pmix_mca_base_comp", "t help message")),
    Rule("table-legend", r"^# {1,4}Errors with asterisks indicate errors that", F.NONE, 1.0, "nobody",
         "# Errors with asterisks indicate errors that have exceeded the maximum threshold.",
         "# Errors: 3",
         "rccl-tests: what an asterisk would mean", literals=("errors with asteri",)),
)  # fmt: skip
