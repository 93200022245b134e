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
)  # fmt: skip
