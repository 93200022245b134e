"""Messages without their exceptions: what loggers print of an error, what kernels print of a driver, what readers skip."""

from __future__ import annotations

from flows.decisions.rules import Rule
from profiles.vocabulary import FaultClass

F = FaultClass

RULES: tuple[Rule, ...] = (
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
         literals=("argument", "object ", "unsupported operand", "list index out of", "referenced before", "is not defined", "values to unpack",
                   "mat1 and mat2", "the size of tensor", "does not require", "one of the variables"), supersedes=("unknown",)),
    Rule("hang-up", r"Received (?:1|2|3) death signal|SignalException: Process \d{1,9} got signal: (?:1|2|3)\b|closing signal SIG(?:HUP|INT|QUIT)\b",
         F.PROCESS_KILLED, 0.8, "nobody",
         "torch.distributed.elastic.multiprocessing.api.SignalException: Process 1490661 got signal: 1",
         "Process 1490661 got no signal: 1",
         "torchrun that was hung up or interrupted: a closed terminal", literals=("death signal", "got signal: ", "closing signal sig"),
         supersedes=("python-exception", "user_code", "unknown", "elastic-sigterm"), advice="start it so that it outlives the terminal (nohup, tmux, a job)"),
    Rule("nvidia-not-probed", r"NVRM: (?:The NVIDIA probe routine was not called|No NVIDIA (?:graphics adapter|devices?|GPU) (?:probed|found)|"
         r"The NVIDIA (?:GPU|probe routine) .{0,80}(?:failed|not supported|is not supported)|Try unloading the conflicting)|"
         r"was loaded and obtained ownership of the NVIDIA", F.GPU_DRIVER, 0.85, "node",
         "[188549.976351] NVRM: The NVIDIA probe routine was not called for 3 device(s).",
         "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  535.104.05",
         "NVIDIA's kernel module: another driver holds the devices", fallback=True, literals=("nvrm: ", "obtained ownership"), supersedes=("unknown",)),
    Rule("driver-in-a-trace",
         r"\b_?(?:kgsp\w{1,40}|_issueRpc\w{1,30}|rpcRm\w{1,40}|os_dump_stack|nvidia_dev_\w{1,30}|rm_init_adapter|nv_open_device|"
         r"amdgpu_device_gpu_recover|amdgpu_job_timedout|amdgpu_ring_\w{1,30}|kfd_\w{1,40}|uvm_\w{1,40}fault\w{0,20})(?:\.\w{1,30})?\+0x[0-9a-f]{1,6}/0x[0-9a-f]{1,6} "
         r"\[(?:nvidia|nvidia_uvm|amdgpu)\]", F.GPU_DRIVER, 0.6, "node",
         "_kgspRpcRecvPoll+0x650/0x820 [nvidia]",
         "do_syscall_64+0x5c/0x90",
         "stacks that the kernel prints when drivers of GPUs complain", fallback=True, literals=("[nvidia", "[amdgpu]"), supersedes=("unknown",)),
    Rule("ofi-without-provider", r"NET/OFI (?:Couldn't find any optimal provider|OFI NCCL failure|No eligible providers|Unable to find a (?:tcp|efa|suitable) provider|"
         r"Failed to initialize \w{1,30} protocol)|[Nn]o (?:eligible|suitable|usable) (?:ofi|OFI|libfabric|fabric) providers? (?:was |were )?found", F.FABRIC, 0.7, "nobody",
         "WARN: Function: find_ofi_provider Line: 543: NET/OFI Couldn't find any optimal provider",
         "NET/OFI Selected Provider is efa",
         "aws-ofi-nccl", fallback=True, literals=("net/ofi ", "provider"), supersedes=("unknown",)),
    Rule("samples-corrupted", r"(?i)^(?:.{0,60}\b)?(?:corrupt(?:ed)?|broken|invalid|truncated|unreadable|damaged|bad) (?:image|sample|record|video|audio|frame|shard|example)s?"
         r"(?: file)? (?:for|at|in|found|detected|index|idx|id)?\b.{0,8}\d", F.DATA, 0.6, "nobody",
         "Corrupted image for 2970765",
         "corrupted images: none",
         "data sets that skip what they cannot read", fallback=True,
         literals=("corrupt", "broken", "invalid", "truncated", "unreadable", "damaged", "bad "), supersedes=("unknown",)),
    Rule("killed-in-other-words", r"^\s{0,4}(?:\S{1,120}: \S{1,12} \d{1,6}: {1,4}\d{1,9} )?(?:已杀死|已終止|被砍掉|Getötet|Tué|Processus arrêté|Terminado \(killed\)|Matado|Morto|Ucciso|Убито|"
         r"強制終了|죽었음|Zabity|Dödad|Gedood|Sonland\w{1,12}|Öldürüld\w)(?: {2,}.{0,200})?\s*$", F.PROCESS_KILLED, 0.6, "rank",
         "已杀死",
         "进程没有被杀死",
         "shells of other languages: often the OOM killer",
         literals=("已杀死", "已終止", "被砍掉", "getötet", "tué", "arrêté", "terminado", "matado", "morto", "ucciso", "убито", "強制終了", "죽었음", "zabity",
                   "dödad", "gedood", "sonland", "öldürüld")),
    Rule("file-not-writable", r"(?i)^(?:.{0,60}RuntimeError: )?File \S{1,300}\.(?:pth?|ckpt|bin|pkl|tar|zip|model|safetensors)\S{0,8} cannot be opened|"
         r"PytorchStreamWriter failed (?:writing|to write)|unexpected pos \d{1,20} vs \d|Could not (?:open|write) (?:\S{1,200} for writing|(?:the )?checkpoint file)",
         F.STORAGE, 0.78, "nobody",
         "RuntimeError: File my_out/checkpoints/checkpoint_0.pt cannot be opened.",
         "RuntimeError: File my_out/checkpoints/checkpoint_0.pt is not a checkpoint",
         "PyTorch's writer of archives: the disk is full or may not be written", fallback=True,
         literals=("cannot be opened", "pytorchstreamwriter", "unexpected pos", "could not "), supersedes=("python-exception", "user_code", "unknown")),
    Rule("hub-name-or-cache", r"couldn't find it in the cached files and it looks like \S{1,200} is not the path to a directory|"
         r"outgoing traffic has been disabled\. To enable .{0,40}online|Cannot find (?:the requested files|an appropriate cached snapshot) .{0,60}(?:cache|outgoing)",
         F.CONFIG, 0.72, "nobody",
         "OSError: We couldn't connect to 'https://huggingface.co' to load this model, couldn't find it in the cached files and it looks like clip-base is not the path to a directory containing a config.json file.",
         "OSError: We couldn't connect to 'https://huggingface.co' to load the files",
         "transformers on a machine without a way out: the model must lie there before",
         literals=("couldn't find it in", "outgoing traffic has", "cannot find "), supersedes=("http-retries", "python-exception", "connection-error", "name-resolution", "storage")),
    Rule("reset-required", r"NV_ERR_RESET_REQUIRED|NVRM: .{0,80}\bReset required\b|GPU (?:is )?(?:requires|needs) (?:a )?reset\b|GPU reset required|unrecoverable (?:GPU )?error.{0,40}reset",
         F.GPU_HARDWARE, 0.8, "node",
         "NVRM: nvAssertOkFailedNoLog: Assertion failed: Reset required [NV_ERR_RESET_REQUIRED] (0x00000062) returned from status @ kernel_channel.c:2874",
         "NVRM: no reset was asked for",
         "NVIDIA's kernel module and nvidia-smi: the device is in a state that only a reset ends", fallback=True,
         literals=("reset", "reset_required"), supersedes=("cuda-busy", "unknown")),
    Rule("autoscaler-without-type", r"autoscaler could not find a node type to satisfy|No available node types can fulfill resource request|"
         r"(?:no|not any) (?:instance|node|machine|worker) (?:types?|pools?|groups?) (?:can|could|that can|would) (?:satisfy|fulfil\w?|fit|match)",
         F.SCHEDULING, 0.85, "nobody",
         "WARNING resource_demand_scheduler.py:731 -- The autoscaler could not find a node type to satisfy the request: [{'GPU': 1.0}]",
         "The autoscaler found a node type to satisfy the request",
         "Ray's autoscaler, autoscalers of clouds", literals=("autoscaler could", "node types", "type", "pool", "group"), fallback=True,
         supersedes=("unknown", "rendezvous")),
    Rule("lifecycle-unresponsive", r"\bNode (?P<peer>[\w.-]{1,100}) is (?:unresponsive|unreachable|un-?healthy) (?:as of|since|for|now)\b|"
         r"\b[Nn]ode (?P<node>[\w.-]{1,100}) (?:hasn't been updated for|has not (?:been updated|reported|sent a heartbeat) (?:for|since|in))\b",
         F.NODE_LOST, 0.85, "peer",
         "node_lifecycle_controller.go:885] Node kind-worker is unresponsive as of 2022-05-13 06:11:28 +0000 UTC. Adding it to the Taint queue.",
         "node_lifecycle_controller.go:697] Node kind-control-plane was in a taint queue, but it's ready now",
         "kube-controller-manager's node lifecycle", literals=("is unre", "is unhealthy", "is un-healthy", "hasn't been upd", "has not "),
         supersedes=("process_killed", "collective_timeout", "unknown")),
    Rule("parameters-not-gathered", r"DDP expects same model across all ranks, but Rank \d{1,6} has \d{1,9} params, while rank \d{1,6} has inconsistent 0 params",
         F.UNKNOWN, 0.3, "nobody",
         "RuntimeError: DDP expects same model across all ranks, but Rank 2 has 51 params, while rank 0 has inconsistent 0 params.",
         "RuntimeError: DDP expects same model across all ranks, but Rank 2 has 51 params, while rank 0 has inconsistent 50 params.",
         "PyTorch: the first gathering failed, the numbers are what was in memory", literals=("ddp expects same ",), echo=True,
         supersedes=("python-exception",)),
    Rule("launcher-told-to-end", r"SignalException: Process \d{1,9} got signal: 15\b|Received 15 death signal", F.PROCESS_KILLED, 0.42, "nobody",
         "torch.distributed.elastic.multiprocessing.api.SignalException: Process 9724 got signal: 15",
         "torch.distributed.elastic.multiprocessing.api.SignalException: Process 9724 got signal: 1",
         "torchrun's launcher was asked to end by somebody that the log does not name", literals=("got signal: ", "death signal"), echo=True),
)  # fmt: skip
