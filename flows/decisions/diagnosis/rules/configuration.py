"""What the user set wrongly, Python exceptions by their form alone, and messages without their exceptions.

Settings are commands, images, versions, names, interfaces. An exception that no other rule knows is judged by
`flows.decisions.diagnosis.exceptions`. Messages are what loggers print of an error, what kernels print of a driver, and
what readers skip.
"""

from __future__ import annotations

from flows.decisions.diagnosis.clues import Rule
from profiles.vocabulary import FaultClass

F = FaultClass
EXCEPTIONS = ("python-exception",)

SETTING_RULES: tuple[Rule, ...] = (
    Rule("argparse-error",
         r"^[\w.\-/]{1,120}: error: (?:unrecognized arguments|argument |the following arguments are required|"
         r"ambiguous option|invalid choice|expected |one of the arguments|too few arguments|Parser key|Validation failed|"
         r"Configuration check failed|Problem with given)", F.CONFIG, 0.95, "code",
         "train.py: error: unrecognized arguments: --lerning-rate 0.1",
         "train.py: error rate 0.1",
         "argparse, jsonargparse", advice="correct the command of the role"),
    Rule("click-error", r"^(?:Error: |│ )(?:No such option|Missing option|Missing argument|Invalid value for|"
         r"Got unexpected extra argument|No such command)", F.CONFIG, 0.9, "code",
         "Error: No such option: --stpes Did you mean --steps?",
         "Error: something else",
         "click, typer"),
    Rule("flag-error",
         r"FATAL Flags parsing error|Unknown command line flag '|ERROR: Could not consume arg: |unrecognized command line option|"
         r"(?:[Uu]nknown|[Uu]nrecognized|[Ii]nvalid|[Ii]llegal) option(?:: ?| -- ?| '|s: )-{0,2}\w|error: unexpected argument '|"
         r"flag provided but not defined: |unknown (?:shorthand )?flag: |Error: unknown command \"", F.CONFIG, 0.9, "code",
         "FATAL Flags parsing error: Unknown command line flag 'stpes'. Did you mean: steps ?",
         "parsing flags: done",
         "absl, fire, shells"),
    Rule("hydra-error", r"(?:hydra\.errors\.\w+|omegaconf\.errors\.\w+|Could not override '[^']{1,200}'|"
         r"Cannot find primary config '|Key '[^']{1,100}' (?:is not in struct|not in '\w)|In '[^']{1,100}': Could not find '[^']{1,100}')",
         F.CONFIG, 0.9, "code",
         "Could not override 'trainer.max_stepz'.",
         "hydra initialised",
         "hydra, omegaconf", supersedes=EXCEPTIONS),
    Rule("validation-error",
         r"^(?:pydantic(?:_core)?\.[\w.]{0,60})?ValidationError: |^\d+ validation errors? for \w+", F.CONFIG, 0.85,
         "code",
         "2 validation errors for TrainConfig",
         "validation error 2.31 at step 5",
         "pydantic"),
    Rule("script-missing", r"can't open file '[^']{1,400}': \[Errno 2\]|"
         r"^(?:\S{1,80}: )?(?:line \d+: )?\S{1,200}: (?:command not found|No such file or directory)$|"
         r"^(?:\S{1,80}: )?(?:\S{1,12} \d+: ?)?\S{1,200}[:\uff1a] ?(?:未找到命令|找不到命令|コマンドが見つかりません|[Cc]ommand introuvable|"
         r"[Cc]ommande introuvable|(?:Befehl|Kommando) nicht gefunden|orden no encontrada|no se encontró la orden|"
         r"[Cc]omando (?:não encontrado|non trovato)|команда не найдена)\b|"
         r"^\S{0,40}sh: (?:\d+|line \d+): \S{1,200}: not found$|/usr/bin/env: .{1,80}: No such file or directory|"
         r"(?:exec|FATAL): {1,6}\"[^\"]{1,200}\": (?:executable file not found|stat )|execve?\(\)?:? .{1,300}: (?:No such file|Permission denied)|"
         r"[Nn]o such file or directory: unknown$", F.CONFIG, 0.92, "code",
         "python3: can't open file '/workspace/train.py': [Errno 2] No such file or directory",
         "file opened",
         "CPython, shells, container runtimes", advice="correct the command, its path or the image"),
    Rule("python-missing", r"exec: \"python3\": (?:executable file not found|stat )", F.CONFIG, 0.95, "code",
         "runc create failed: unable to start container process: exec: \"python3\": executable file not found in $PATH: unknown",
         "exec: \"python3.12\": executable file not found in $PATH: unknown",
         "containerd, runc and our embedded cluster: the launcher is started by the image's own python3",
         supersedes=("script-missing", "container-config", "container-refused"),
         advice="the image has no python3 on its PATH: take one that has Python 3.9 or later"),
    Rule("python-old", r"needs Python 3\.9 or later, this image has \d", F.CONFIG, 0.97, "code",
         "programs: needs Python 3.9 or later, this image has 3.6 (/usr/bin/python3)",
         "our tools need Python 3.9 or later, and this image has it",
         "our program archive", advice="take an image with Python 3.9 or later as its python3"),
    Rule("shell-error",
         r"syntax error near unexpected token|unexpected EOF while looking for matching|: unbound variable$|bad interpreter: |"
         r"cannot execute binary file|\$'\\r': command not found|: cannot execute: required file not found", F.CONFIG, 0.85, "code",
         "/entrypoint.sh: line 12: MASTER_ADDR: unbound variable",
         "bound variable x",
         "shells", supersedes=("script-missing", "exec-format")),
    Rule("container-refused",
         r"^(?!.{0,1500}(?:nvidia-container-cli|no space left|timeout|connection refused|toomanyrequests)).{0,400}"
         r"(?:docker: Error response from daemon: |could not select device driver|pull access denied for|"
         r"manifest (?:for \S{1,200} )?(?:unknown|not found)|OCI runtime (?:create|exec|start) failed|pyxis: (?:couldn't start|"
         r"failed to import|child \d+ failed|container start failed)|enroot-\w{1,20}: \[ERROR\]|"
         r"FATAL: {1,6}.{0,60}(?:could not open image|container creation failed|Unable to (?:handle|build|pull))|"
         r"unknown or invalid runtime name|invalid reference format)", F.CONFIG, 0.85, "code",
         "docker: Error response from daemon: pull access denied for team/train, repository does not exist.",
         "docker: daemon started",
         "Docker, containerd, pyxis and enroot, Apptainer",
         advice="correct the image, its name or the container's options"),
    Rule("exec-format", r"(?i)\bexec format error\b", F.CONFIG, 0.92, "code",
         "exec /usr/bin/python3: exec format error",
         "output format ok",
         "an image of another processor architecture", advice="use an image for this processor"),
    Rule("shared-library",
         r"error while loading shared libraries: |version `[A-Z]+_[\d.]+' not found|undefined symbol: |"
         r"lib[\w.+-]{1,80}: cannot open shared object|Could not load library \S{1,80}|"
         r"Flag '\w{1,80}' was defined more than once|File already exists in database: \S|"
         r"Descriptors cannot (?:not )?be created directly", F.CONFIG,
         0.88, "code",
         "python3: error while loading shared libraries: libnccl.so.2: cannot open shared object file: No "
         "such file or directory",
         "shared libraries loaded",
         "the dynamic loader", supersedes=("python-exception", "module-missing"),
         advice="the image's libraries do not fit each other"),
    Rule("module-missing", r"(?:^|(?<=\s))(?:ModuleNotFoundError: No module named|ImportError: (?:cannot import name|DLL load failed|"
         r"lib\S{1,80}: cannot open shared object|/\S{1,200}: (?:undefined symbol|cannot open)))|"
         r"^\S{1,80}: No module named '?\w|^\S{1,80}: Error while finding module specification for", F.CONFIG, 0.93, "code",
         "ModuleNotFoundError: No module named 'flash_attn'",
         "optional module not found, using fallback",
         "CPython", supersedes=EXCEPTIONS, advice="use an image that has it"),
    Rule("extension-build",
         r"CUDA_HOME (?:environment variable is not set|does not exist)|mismatches the version that was used to compile|"
         r"Error building extension '|ninja: build stopped|Ninja is required to load|nvcc fatal|"
         r"Installed CUDA version \S{1,20} does not match|fatal error: \S{1,120}\.(?:h|cuh|hpp): No such file|"
         r"Extension horovod\.\w{1,20} has not been built|Unable to JIT load the \S{1,40} op", F.CONFIG, 0.85, "code",
         "OSError: CUDA_HOME environment variable is not set. Please set it to your CUDA install root.",
         "CUDA_HOME=/usr/local/cuda",
         "torch.utils.cpp_extension, DeepSpeed, Horovod", supersedes=EXCEPTIONS,
         advice="use an image whose compiler, CUDA and framework fit each other"),
    Rule("batch-sizes",
         r"Check batch related parameters\. train_batch_size is not equal|DeepSpeedConfigError|MisconfigurationException",
         F.CONFIG, 0.9, "code",
         "AssertionError: Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * "
         "gradient_acc_step * world_size 16 != 2 * 1 * 4",
         "train_batch_size 16",
         "DeepSpeed, Lightning", supersedes=EXCEPTIONS),
    Rule("divisible",
         r"^(?:AssertionError|ValueError|RuntimeError): .{0,160}(?:must be (?:evenly )?divisible by|is not divisible by|"
         r"not divisible|should be divisible by|must be a multiple of)", F.CONFIG, 0.85, "code",
         "AssertionError: global batch size (100) is not divisible by micro batch size (8) times data "
         "parallel size (4)",
         "divisible by 8",
         "Megatron-LM and others: sizes that do not fit"),
    Rule("torchrun-mismatch",
         r"(?:WORLD_SIZE .{0,40}(?:not match|mismatch)|world size \(\d+\) (?:is not|not) (?:divisible|equal))",
         F.CONFIG, 0.85, "code",
         "AssertionError: world size (6) is not divisible by tensor_model_parallel_size (4) x "
         "pipeline_model_parallel_size (1)",
         "world size 8",
         "Megatron-LM arguments", supersedes=("divisible",)),
    Rule("interface-missing",
         r"[Nn]o (?:usable )?socket interface found|Unable to find address for: |is neither AF_INET\(\d+\) nor AF_INET6|"
         r"NCCL_SOCKET_IFNAME .{0,80}(?:not found|no such|invalid)|No IP interface matching|ifa != nullptr|"
         r"Network interface \S{1,40} (?:not found|does not exist)", F.CONFIG, 0.72, "code",
         "ncclSocketInit: connecting to address  with family 59936 is neither AF_INET(2) nor AF_INET6(10)",
         "NCCL_SOCKET_IFNAME set by environment to eth0",
         "NCCL, Gloo: the interface that was named does not exist",
         supersedes=("nccl-python-wrapper", "python-exception"),
         advice="name an interface that every node has"),
    Rule("install-failed",
         r"ERROR: (?:Could not find a version that satisfies|No matching distribution found|Failed building wheel|"
         r"Could not build wheels|Cannot install )|error: externally-managed-environment|ResolutionImpossible|"
         r"PackagesNotFoundError|subprocess-exited-with-error|fatal: (?:repository '|could not read Username|Authentication failed)|"
         r"curl: \(22\) The requested URL returned error: 4\d\d", F.CONFIG, 0.8, "code",
         "ERROR: Could not find a version that satisfies the requirement flash-attn==9.9.9 (from versions: 2.5.8)",
         "found a version that satisfies the requirement",
         "pip, conda, git, curl: what the start of a pod installs", advice="put what the program needs into the image"),
    Rule("login-refused",
         r"Permission denied \((?:publickey|password|gssapi)|Host key verification failed", F.CONFIG, 0.8, "code",
         "user@gpu-7: Permission denied (publickey,password).",
         "publickey accepted",
         "ssh, as mpirun, DeepSpeed and pdsh use it", advice="let the nodes log in to each other without a password"),
    Rule("layout-impossible", r"Unable to layout tasks on given cpus|failed to distribute tasks \(bind_type", F.CONFIG, 0.9, "code",
         "srun: error: Task launch for StepId=125452.4 failed on node n7: Unable to layout tasks on given cpus",
         "srun: error: Task launch for StepId=125452.4 failed on node n7: Communication connection failure",
         "Slurm: what was asked for fits no node", supersedes=("control_plane", "scheduling", "slurm-launch-failed"),
         advice="ask for what the nodes of the partition have"),
    Rule("resource-unknown",
         r"no matches for kind \"|the server doesn't have a resource type|"
         r"Error from server \(NotFound\): (?:namespaces|queues|clusterqueues|localqueues|priorityclasses)", F.CONFIG, 0.82, "code",
         "error: resource mapping not found: no matches for kind \"JobSet\" in version \"jobset.x-k8s.io/v1alpha2\"",
         "matches for kind JobSet: 3",
         "kubectl: a definition or a name that the cluster has not",
         advice="install what is missing in the cluster, or correct the name"),
    Rule("executable-missing",
         r"mpirun was unable to (?:launch|find) the specified|"
         r"mpiexec was unable to (?:launch|find)|could not find an executable", F.CONFIG, 0.8, "code",
         "mpirun was unable to launch the specified application as it could not find an executable:",
         "mpirun launched 16 processes",
         "Open MPI"),
    Rule("gated-model", r"(?:GatedRepoError|RepositoryNotFoundError|401 Client Error|Cannot access gated repo|"
         r"403 Client Error: Forbidden|Invalid (?:username|credentials) |Invalid user token|LocalTokenNotFoundError)", F.CONFIG, 0.8,
         "code",
         "huggingface_hub.errors.GatedRepoError: 401 Client Error.",
         "200 OK",
         "Hugging Face hub", supersedes=EXCEPTIONS, advice="give the run the token it needs as a secret"),
    Rule("tokenizer-missing",
         r"OSError: (?:Can't load (?:tokenizer|the configuration|the model|image processor|feature extractor) (?:for|of)|\S{1,200} is not a local "
         r"folder and is not a valid model identifier|Incorrect path_or_model_id|\S{1,200} does not appear to have a file named)|"
         r"Repo id must (?:be in the form|use alphanumeric)|does not recognize this architecture|Unrecognized (?:configuration class|"
         r"model in)|requires you to execute the (?:configuration|modeling|tokenizer) file|did not match any variant of untagged enum",
         F.CONFIG, 0.85, "code",
         "OSError: Can't load tokenizer for 'my/model'. If you were trying to load it from the hub, make "
         "sure you don't have a local directory with the same name.",
         "tokenizer loaded",
         "Hugging Face transformers", supersedes=EXCEPTIONS),
    Rule("dataset-unknown",
         r"BuilderConfig '[^']{1,100}' not found|Couldn't find (?:a dataset script|any data file|file at)|"
         r"Unknown split \"|DatasetNotFoundError|DataFilesNotFoundError|Undefined dataset \S|Dataset not found: ", F.CONFIG, 0.8,
         "code",
         "ValueError: BuilderConfig 'foo' not found. Available: ['default']",
         "dataset found: 3 splits",
         "Hugging Face datasets, LLaMA-Factory, fairseq", supersedes=EXCEPTIONS),
    Rule("wandb-key",
         r"wandb\.errors\.(?:\w+\.)?(?:UsageError|AuthenticationError)|wandb: ERROR (?:api_key not configured|"
         r".{0,60}permission denied|.{0,60}API key)", F.CONFIG, 0.85, "code",
         "wandb.errors.errors.UsageError: api_key not configured (no-tty). call "
         "wandb.login(key=[your_api_key])",
         "wandb: Currently logged in",
         "Weights & Biases client", supersedes=EXCEPTIONS,
         advice="give the run its key as a secret, or switch the logger off"),
    Rule("yaml-error", r"yaml\.(?:scanner\.ScannerError|parser\.ParserError|constructor\.ConstructorError)|"
         r"tomllib\.TOMLDecodeError|toml\.decoder\.TomlDecodeError|configparser\.\w{1,40}Error|"
         r"error converting YAML to JSON|\byaml: line \d+: |error parsing \S{1,200}\.ya?ml", F.CONFIG, 0.9, "code",
         "yaml.scanner.ScannerError: mapping values are not allowed here",
         "yaml loaded",
         "PyYAML, toml, kubectl", supersedes=EXCEPTIONS, advice="correct the configuration file"),
    Rule("invalid-device", r"invalid device ordinal", F.CONFIG, 0.75, "code",
         "RuntimeError: CUDA error: invalid device ordinal",
         "device ordinal 3",
         "more ranks than GPUs in the pod", supersedes=EXCEPTIONS,
         advice="processes_per_node must not exceed the pod's GPUs"),
    Rule("permission-denied", r"(?<!Error): Permission denied$|^bash: \S{1,200}: Permission denied", F.CONFIG, 0.75, "code",
         "cp: cannot create regular file '/data/checkpoints/x': Permission denied",
         "permission granted",
         "errno EACCES", advice="check user, group and mode of the folder"),
)  # fmt: skip


PYTHON_RULES: tuple[Rule, ...] = (
    Rule("user-interrupt", r"^KeyboardInterrupt\b", F.UNKNOWN, 0.2, "nobody",
         "KeyboardInterrupt",
         "press Ctrl-C for KeyboardInterrupt",
         "CPython: somebody sent SIGINT", echo=True),
    Rule("nccl-python-wrapper", r"^torch\.distributed\.Dist(?:Backend|Network)Error: ", F.COLLECTIVE_TIMEOUT, 0.45,
         "nobody",
         "torch.distributed.DistBackendError: NCCL communicator was aborted on rank 3.",
         "torch.distributed.DistStoreError: Timed out",
         "PyTorch", supersedes=("python-exception",), echo=True, fallback=True, wraps=True),
    Rule("connection-error",
         r"^(?:[A-Za-z_][\w.]{0,100}\.)?(?:Connection\w{0,20}Error|EOFError|TimeoutError|socket\.timeout|"
         r"IncompleteReadError)\b(?!.{0,40}refused)(?!: Ran out of input)(?!: Compressed file)", F.COLLECTIVE_TIMEOUT, 0.4, "nobody",
         "EOFError: the stream ended inside of a message",
         "no connection errors",
         "CPython: what survivors raise when a peer dies", supersedes=("python-exception",), echo=True, fallback=True),
    Rule("python-exception",
         r"^(?:[A-Za-z_][\w.]{0,100}\.)?[A-Z]\w{0,60}(?:Error|Exception|Interrupt|Exit|Iteration)(?:: |:$|$)|"
         r"^[a-z_][\w.]{0,80}(?:\.|_)(?:errors?|exceptions?|exc|errorfactory)\.[A-Z]\w{2,60}(?:: |:?$)",
         F.USER_CODE, 0.8, "code",
         "IndexError: list index out of range",
         "note: Error handling is on",
         "CPython: an exception nobody caught", fallback=True),
    Rule("logged-exception",
         r"^(?!.{0,1500}(?i:\bretry|\bretrying|ignor|skipp|fall(?:ing)?[ -]?back|will try|continu|WARN))"
         r"(?:.{0,120}\b(?:ERROR|CRITICAL|FATAL|[Ff]atal|[Ff]ailed)\b.{0,160}?[\s:'\"(\[<]|\s{0,40}\"message\": \")"
         r"(?:[A-Za-z_][\w.]{0,100}\.)?[A-Z]\w{0,60}(?:Error|Exception)(?:'>)?[:,(]", F.USER_CODE, 0.5, "code",
         "2025-03-01 10:00:00,123 - trainer - ERROR - step 7 failed: KeyError: 'labels'",
         "2025-03-01 10:00:00,123 - trainer - ERROR - KeyError: 'labels', falling back to the default",
         "logging, torchelastic's error file: an exception that was caught and told of", fallback=True),
    Rule("native-exception",
         r"terminate called after throwing an instance of 'std::(?:out_of_range|logic_error|length_error|bad_function_call|"
         r"bad_optional_access|bad_variant_access|bad_cast|domain_error)'|^thread '.{1,80}' (?:\(\d{1,9}\) )?panicked at ", F.USER_CODE, 0.55, "code",
         "terminate called after throwing an instance of 'std::out_of_range'",
         "terminate called after throwing an instance of 'c10::Error'",
         "C++ and Rust runtimes: what the program's own code threw", supersedes=("dumped-core", "signal-6")),
    Rule("glued-exception",
         r"^\s{0,12}(?:assert|raise|return|self\.|[\w.]{1,60} = ?|[\w.]{1,60}\().{1,240}\)(?:Assertion|Attribute|Index|Key|Name|Not"
         r"Implemented|Runtime|Type|Value)Error(?:: .{0,200})?\s{0,250}$", F.USER_CODE, 0.6, "code",
         "    assert param.ds_status == ZeroParamStatus.AVAILABLE, param.ds_summary()AssertionError",
         "    except (ValueError, RuntimeError):",
         "several ranks that print their tracebacks into each other", fallback=True),
    Rule("native-assertion", r"^(?!.{0,200}(?:block|thread): \[).{1,300}: Assertion `.{1,300}' failed\.?$", F.USER_CODE, 0.55, "code",
         "train: deepspeed_py_io_handle.cpp:152: int deepspeed_io_handle_t::wait(): Assertion `_num_pending_ops > 0' failed.",
         "block: [0,0,0], thread: [3,0,0] Assertion `t >= 0 && t < n_classes` failed.",
         "glibc's assert: native code of the program or of a library met what it excludes",
         supersedes=("dumped-core", "signal-6"), fallback=True),
    Rule("syntax-error", r"^(?:SyntaxError|IndentationError|TabError): ", F.USER_CODE, 0.95, "code",
         "SyntaxError: invalid syntax",
         "no SyntaxError here",
         "CPython"),
)  # fmt: skip


MESSAGE_RULES: tuple[Rule, ...] = (
    Rule("message-of-a-program-error",
         r"^(?!(?:[A-Za-z_][\w.]{0,100}\.)?[A-Z]\w{0,60}(?:Error|Exception|Interrupt|Exit|Iteration): ).{0,400}?(?:argument after \*{1,2} must be|missing \d{1,3} required (?:positional|keyword-only) argument|got an unexpected keyword argument '|"
         r"got multiple values for (?:keyword )?argument '|'\w{1,60}' object (?:has no attribute '|is not (?:iterable|subscriptable|callable)|does not support item)|"
         r"takes \d{1,3} positional arguments? but \d{1,3} (?:was|were) given|unsupported operand type\(s\) for|list index out of range|"
         r"referenced before assignment|\bname '\w{1,60}' is not defined|(?:not enough|too many) values to unpack|"
         r"mat1 and mat2 shapes cannot be multiplied|The size of tensor a \(\d{1,9}\) must match|does not require grad and does not have a grad_fn|"
         r"one of the variables needed for gradient computation has been modified)", F.USER_CODE, 0.72, "code",
         "ERROR | src.logger:handle_failure:32 - Failure in train: format_meter() argument after ** must be a mapping, not method",
         "an argument must be a mapping",
         "CPython's and PyTorch's messages, as loggers print them without type and traceback", fallback=True,
         supersedes=("unknown",)),
    Rule("hang-up", r"Received (?:1|2|3) death signal|SignalException: Process \d{1,9} got signal: (?:1|2|3)\b|closing signal SIG(?:HUP|INT|QUIT)\b",
         F.PROCESS_KILLED, 0.8, "nobody",
         "torch.distributed.elastic.multiprocessing.api.SignalException: Process 1490661 got signal: 1",
         "Process 1490661 got no signal: 1",
         "torchrun that was hung up or interrupted: a closed terminal",
         supersedes=("python-exception", "user_code", "unknown", "elastic-sigterm"),
         advice="start it so that it outlives the terminal (nohup, tmux, a job)"),
    Rule("nvidia-not-probed", r"NVRM: (?:The NVIDIA probe routine was not called|No NVIDIA (?:graphics adapter|devices?|GPU) (?:probed|found)|"
         r"The NVIDIA (?:GPU|probe routine) .{0,80}(?:failed|not supported|is not supported)|Try unloading the conflicting)|"
         r"was loaded and obtained ownership of the NVIDIA", F.GPU_DRIVER, 0.85, "node",
         "[188549.976351] NVRM: The NVIDIA probe routine was not called for 3 device(s).",
         "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  535.104.05",
         "NVIDIA's kernel module: another driver holds the devices", fallback=True, supersedes=("unknown",)),
    Rule("driver-in-a-trace",
         r"\b_?(?:kgsp\w{1,40}|_issueRpc\w{1,30}|rpcRm\w{1,40}|os_dump_stack|nvidia_dev_\w{1,30}|rm_init_adapter|nv_open_device|"
         r"amdgpu_device_gpu_recover|amdgpu_job_timedout|amdgpu_ring_\w{1,30}|kfd_\w{1,40}|uvm_\w{1,40}fault\w{0,20})(?:\.\w{1,30})?\+0x[0-9a-f]{1,6}/0x[0-9a-f]{1,6} "
         r"\[(?:nvidia(?:_\w{2,10})?|amdgpu|amdkfd|xe|i915)\]", F.GPU_DRIVER, 0.6, "node",
         "_kgspRpcRecvPoll+0x650/0x820 [nvidia]",
         "do_syscall_64+0x5c/0x90",
         "stacks that the kernel prints when drivers of GPUs complain", fallback=True, supersedes=("unknown",)),
    Rule("ofi-without-provider", r"NET/OFI (?:Couldn't find any optimal provider|OFI NCCL failure|No eligible providers|Unable to find a (?:tcp|efa|suitable) provider|"
         r"Failed to initialize \w{1,30} protocol)|[Nn]o (?:eligible|suitable|usable) (?:ofi|OFI|libfabric|fabric) providers? (?:was |were )?found", F.FABRIC, 0.7, "nobody",
         "WARN: Function: find_ofi_provider Line: 543: NET/OFI Couldn't find any optimal provider",
         "NET/OFI Selected Provider is efa",
         "aws-ofi-nccl", fallback=True, supersedes=("unknown",)),
    Rule("samples-corrupted", r"(?i)^(?:.{0,60}\b)?(?:corrupt(?:ed)?|broken|invalid|truncated|unreadable|damaged|bad) (?:image|sample|record|video|audio|frame|shard|example)s?"
         r"(?: file)? (?:for|at|in|found|detected|index|idx|id)?\b.{0,8}\d", F.DATA, 0.6, "nobody",
         "Corrupted image for 2970765",
         "corrupted images: none",
         "data sets that skip what they cannot read", fallback=True, supersedes=("unknown",)),
    Rule("killed-in-other-words", r"^\s{0,4}(?:\S{1,120}: \S{1,12} \d{1,6}: {1,4}\d{1,9} )?(?:已杀死|已終止|被砍掉|Getötet|Tué|Processus arrêté|Terminado \(killed\)|Matado|Morto|Ucciso|Убито|"
         r"強制終了|죽었음|Zabity|Dödad|Gedood|Sonland\w{1,12}|Öldürüld\w)(?: {2,}.{0,200})?\s*$", F.PROCESS_KILLED, 0.6, "rank",
         "已杀死",
         "进程没有被杀死",
         "shells of other languages: often the OOM killer"),
    Rule("file-not-writable", r"(?i)^(?:.{0,60}RuntimeError: )?File \S{1,300}\.(?:pth?|ckpt|bin|pkl|tar|zip|model|safetensors)\S{0,8} cannot be opened|"
         r"open file failed with strerror|PytorchStreamWriter failed (?:writing|to write)|unexpected pos \d{1,20} vs \d|Could not (?:open|write) (?:\S{1,200} for writing|(?:the )?checkpoint file)",
         F.STORAGE, 0.78, "nobody",
         "RuntimeError: File my_out/checkpoints/checkpoint_0.pt cannot be opened.",
         "RuntimeError: File my_out/checkpoints/checkpoint_0.pt is not a checkpoint",
         "PyTorch's writer of archives: the disk is full or may not be written", fallback=True,
         supersedes=("python-exception", "user_code", "unknown")),
    Rule("hub-name-or-cache", r"couldn't find it in the cached files and it looks like \S{1,200} is not the path to a directory|"
         r"outgoing traffic has been disabled\. To enable .{0,40}online|Cannot find (?:the requested files|an appropriate cached snapshot) .{0,60}(?:cache|outgoing)",
         F.CONFIG, 0.72, "nobody",
         "OSError: We couldn't connect to 'https://huggingface.co' to load this model, couldn't find it in the cached files and it looks like clip-base is not the path to a directory containing a config.json file.",
         "OSError: We couldn't connect to 'https://huggingface.co' to load the files",
         "transformers on a machine without a way out: the model must lie there before",
         supersedes=("http-retries", "python-exception", "connection-error", "name-resolution", "storage")),
    Rule("reset-required", r"NV_ERR_RESET_REQUIRED|NVRM: .{0,80}\bReset required\b|GPU (?:is )?(?:requires|needs) (?:a )?reset\b|GPU reset required|unrecoverable (?:GPU )?error.{0,40}reset",
         F.GPU_HARDWARE, 0.8, "node",
         "NVRM: nvAssertOkFailedNoLog: Assertion failed: Reset required [NV_ERR_RESET_REQUIRED] (0x00000062) returned from status @ kernel_channel.c:2874",
         "NVRM: no reset was asked for",
         "NVIDIA's kernel module and nvidia-smi: the device is in a state that only a reset ends", fallback=True,
         supersedes=("cuda-busy", "unknown")),
    Rule("autoscaler-without-type", r"autoscaler could not find a node type to satisfy|No available node types can fulfill resource request|"
         r"(?:no|not any) (?:instance|node|machine|worker) (?:types?|pools?|groups?) (?:can|could|that can|would) (?:satisfy|fulfil\w?|fit|match)",
         F.SCHEDULING, 0.85, "nobody",
         "WARNING resource_demand_scheduler.py:731 -- The autoscaler could not find a node type to satisfy the request: [{'GPU': 1.0}]",
         "The autoscaler found a node type to satisfy the request",
         "Ray's autoscaler, autoscalers of clouds", fallback=True, supersedes=("unknown", "rendezvous")),
    Rule("lifecycle-unresponsive", r"\bNode (?P<peer>[\w.-]{1,100}) is (?:unresponsive|unreachable|un-?healthy) (?:as of|since|for|now)\b|"
         r"\b[Nn]ode (?P<node>[\w.-]{1,100}) (?:hasn't been updated for|has not (?:been updated|reported|sent a heartbeat) (?:for|since|in))\b",
         F.NODE_LOST, 0.85, "peer",
         "node_lifecycle_controller.go:885] Node kind-worker is unresponsive as of 2022-05-13 06:11:28 +0000 UTC. Adding it to the Taint queue.",
         "node_lifecycle_controller.go:697] Node kind-control-plane was in a taint queue, but it's ready now",
         "kube-controller-manager's node lifecycle", supersedes=("process_killed", "collective_timeout", "unknown")),
    Rule("parameters-not-gathered", r"DDP expects same model across all ranks, but Rank \d{1,6} has \d{1,9} params, while rank \d{1,6} has inconsistent 0 params",
         F.UNKNOWN, 0.3, "nobody",
         "RuntimeError: DDP expects same model across all ranks, but Rank 2 has 51 params, while rank 0 has inconsistent 0 params.",
         "RuntimeError: DDP expects same model across all ranks, but Rank 2 has 51 params, while rank 0 has inconsistent 50 params.",
         "PyTorch: the first gathering failed, the numbers are what was in memory", echo=True,
         supersedes=("python-exception",)),
    Rule("launcher-told-to-end", r"SignalException: Process \d{1,9} got signal: 15\b|Received 15 death signal", F.PROCESS_KILLED, 0.42, "nobody",
         "torch.distributed.elastic.multiprocessing.api.SignalException: Process 9724 got signal: 15",
         "torch.distributed.elastic.multiprocessing.api.SignalException: Process 9724 got signal: 1",
         "torchrun's launcher was asked to end by somebody that the log does not name", echo=True),
)  # fmt: skip
