"""The host's memory ran out: kernel, cgroups, schedulers, daemons, allocators, shared memory."""

from __future__ import annotations

from flows.decisions.rules import Rule
from profiles.vocabulary import FaultClass

F = FaultClass
KILLS = ("process_killed", "signal-9", "unknown")
MORE = "give the pod more memory, use fewer data loader workers, or pin less"
SHM = "raise resources.shared_memory of the role"

RULES: tuple[Rule, ...] = (
    Rule("large-alloc", r"^tcmalloc: large alloc|Allocation of \d+ exceeds \d+% of (?:free )?system memory", F.NONE, 1.0,
         "nobody",
         "tcmalloc: large alloc 3221225472 bytes == 0x55d0c0000 @",
         "tcmalloc: allocation failed",
         "tcmalloc, TensorFlow: notes only", literals=("allocation of", "tcmalloc: large al")),
    Rule("kernel-oom",
         r"(?:Memory cgroup out of memory|Out of memory)(?: \(oom_kill_allocating_task\))?: Kill(?:ed)? process \d+|"
         r"^Killed process \d+,? ?.{0,60}total-vm:|oom-kill:constraint=|Task in /\S{1,300} killed as a result of limit of",
         F.HOST_OOM, 0.97, "rank",
         "Memory cgroup out of memory: Killed process 63214 (python) total-vm:3149468kB, anon-rss:164992kB, "
         "file-rss:52176kB, shmem-rss:92kB, UID:0 pgtables:1372kB oom_score_adj:986",
         "oom_reaper: reaped process 63214 (python), now anon-rss:0kB",
         "Linux mm/oom_kill.c",
         literals=("killed as a result", "killed process", "memory cgroup out ", "oom-kill:constrain", "out of memory (oom", "out of memory: kil"), supersedes=KILLS,
         advice=MORE),
    Rule("oom-invoked", r"invoked oom-killer: gfp_mask=|oom_reaper: reaped process \d+|\boom_kill_process\+0x|"
         r"Out of memory and no killable processes", F.HOST_OOM, 0.85, "rank",
         "python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=986",
         "oom-killer: disabled",
         "Linux mm/oom_kill.c", literals=("invoked oom-killer", "oom_kill_process+0", "oom_reaper: reaped", "out of memory and "),
         supersedes=KILLS, advice=MORE),
    Rule("slurm-oom",
         r"Detected \d+ oom[_-]kill event|(?i:\bexceeded (?:job|step|virtual)? ?memory limit)|"
         r"srun: error: \S{1,200}: tasks? [\d,-]{1,200}: Out Of Memory|killed by the cgroup out-of-memory handler|"
         r"step tasks have been OOM Killed|Job \d+ exceeded .{0,40}memory limit", F.HOST_OOM, 0.95,
         "rank",
         "slurmstepd: error: Detected 1 oom_kill event in StepId=4711.0. Some of the step tasks have been "
         "OOM Killed.",
         "slurmstepd: error: execve(): python: No such file or directory",
         "Slurm", literals=(": out of memory", "exceeded  memory l", "exceeded job memor", "exceeded jobmemory", "exceeded memory li", "exceeded step memo", "exceeded stepmemor", "exceeded virtual m", "exceeded virtualme", "killed by the cgro", "memory limit", "oom-kill event", "oom_kill event", "step tasks have be"),
         supersedes=(*KILLS, "slurm-step-terminated"), advice=MORE),
    Rule("slurm-state-oom", r"\bJobState=OUT_OF_MEMORY\b|^State: OUT_OF_MEMORY|"
         r"^ {0,12}\d{2,12}\S{0,24}\s.{0,160}\sOUT_OF_ME", F.HOST_OOM, 0.92, "nobody",
         "4711.0            train                research         64 OUT_OF_ME+      0:125",
         "4711.0            train                research         64  COMPLETED      0:0",
         "sacct, scontrol, seff", literals=("out_of_me",), supersedes=KILLS, advice=MORE),
    Rule("batch-memory-limit", r"PBS: job killed: (?:mem|vmem|pmem)\b|TERM_MEMLIMIT|job killed after reaching LSF memory",
         F.HOST_OOM, 0.93, "nobody",
         "TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.",
         "TERM_OWNER: job killed by owner.",
         "PBS, LSF", literals=("job killed after r", "pbs: job killed: m", "pbs: job killed: p", "pbs: job killed: v", "term_memlimit"), supersedes=KILLS, advice=MORE),
    Rule("service-memory-limit",
         r"beyond (?:the ')?(?:physical|virtual|"
         r"PHYSICAL|VIRTUAL)'? memory limits?|Container killed by YARN for exceeding|memory usage exceeded request_memory|"
         r"(?i:\bran out[- ]of[- ]memory and exited)|crashed after using all available RAM|"
         r"(?i:container (?:was )?killed due to (?:memory|oom))", F.HOST_OOM, 0.93, "rank",
         "Container [pid=4121,containerID=container_01] is running beyond physical memory limits. Killing container.",
         "memory limits: 200Gi",
         "YARN, HTCondor, managed services",
         literals=("beyond physical me", "beyond physical' m", "beyond the 'physic", "beyond the 'virtua", "beyond virtual mem", "beyond virtual' me", "container killed b", "container killed d", "container was kill", "crashed after usin", "memory usage excee", "ran out of memory ", "ran out of-memory ", "ran out-of memory ", "ran out-of-memory "), supersedes=KILLS, advice=MORE),
    Rule("kubelet-oom",
         r"\bSystemOOM\b|System OOM encountered|\bTaskOOM\b|\bOOM ?Killed \(exit code|node had condition: \[?MemoryPressure|"
         r"memory cgroup.{0,40}oom.?kill|\bcontainer .{0,80}was OOM[- ]?killed|\bContainerOOM\b", F.HOST_OOM, 0.94, "rank",
         "Warning  SystemOOM  3m  kubelet  System OOM encountered, victim process: python, pid: 41021",
         "MemoryPressure   False   KubeletHasSufficientMemory",
         "kubelet, containerd, Argo",
         literals=("container", "memory cgroup", "node had condition", "oom killed (exit c", "oomkilled (exit co", "system oom encount", "systemoom", "taskoom"),
         supersedes=(*KILLS, "oom-killed"), advice="give the pod more memory"),
    Rule("ray-oom",
         r"ray\.exceptions\.OutOfMemoryError|More than \d+% of the memory on node|"
         r"[Tt]ask was killed due to the node running low on memory|Memory on the node \(IP: (?P<peer>[\w.:-]{3,60})|"
         r"[1-9]\d{0,4} Workers \(tasks / actors\) killed due to memory pressure|exceeds the memory usage threshold|"
         r"worker.{0,60}killed by the (?:memory monitor|raylet).{0,40}memory|ObjectStoreFullError", F.HOST_OOM, 0.92, "node",
         "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.",
         "ray.exceptions.GetTimeoutError: Get timed out",
         "Ray memory monitor", literals=("% of the memory on", "exceeds the memory", "killed by the memo", "killed by the rayl", "memory on the node", "objectstorefullerr", "ray.exceptions.out", "task was killed du", "workers (tasks / a"),
         supersedes=("python-exception", "process_killed")),
    Rule("systemd-oomd",
         r"systemd-oomd(?:\[\d+\])?: Killed \S{1,200}|Killed \S{1,200} due to memory (?:pressure|used)|"
         r"Failed with result 'oom-kill'|A process of this unit has been killed by the OOM killer|"
         r"earlyoom.{0,40}sending SIG(?:TERM|KILL) to process|low memory! at or below SIG(?:TERM|KILL) limits", F.HOST_OOM,
         0.93, "rank",
         "systemd-oomd[612]: Killed /kubepods.slice/kubepods-burstable.slice due to memory pressure for "
         "/kubepods.slice being 71.27% > 60.00%",
         "systemd-oomd[612]: Started",
         "systemd, earlyoom",
         literals=("a process of this ", "due to memory pres", "due to memory used", "failed with result", "low memory! at or ", "sending sigkill to", "sending sigterm to", "systemd-oomd"),
         supersedes=KILLS),
    Rule("python-memory-error",
         r"^(?:numpy\.(?:_?core\._?exceptions\.)?)?(?:_Array)?MemoryError\b|\bArrowMemoryError\b|"
         r"java\.lang\.OutOfMemoryError|\bUnable to allocate [\d.]{1,10} [KMGT]iB for an array|fatal error: runtime: out of memory",
         F.HOST_OOM, 0.93, "rank",
         "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 7.45 TiB for an array with shape "
         "(1000000, 1000000) and data type float64",
         "The MemoryError class is documented",
         "CPython, numpy, Arrow, Java, Go", literals=("fatal error: runti", "java.lang.outofmem", "memoryerror", "numpy._arraymemory", "numpy._core._excep", "numpy._core.except", "numpy.core._except", "numpy.core.excepti", "unable to allocate"),
         supersedes=("python-exception",), advice=MORE),
    Rule("host-out-of-memory-errno",
         r"(?:\[Errno 12\]|\bENOMEM\b|std::bad_alloc|DefaultCPUAllocator: (?:can't|not enough)|"
         r"(?<![\w-])[Cc]annot allocate memory|OOM when allocating tensor with shape.{0,200}device:CPU|"
         r"\balloc_cpu\.cpp:\d+\].{0,40}(?:err == 0|fail)|cudaHostAlloc.{0,60}out of memory|[Ff]ailed to allocate pinned memory|"
         r"hipHostMalloc.{0,60}failed|page allocation failure: order:|"
         r"(?:mmap|malloc|posix_memalign|realloc|ibv_reg_mr\w{0,8})(?:\(\))? (?:failed|error).{0,40}(?:memory|ENOMEM))", F.HOST_OOM, 0.85,
         "rank",
         "RuntimeError: [enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate "
         "memory: you tried to allocate 343597383680 bytes. Error code 12 (Cannot allocate memory)",
         "DefaultCPUAllocator: allocated 12 bytes",
         "errno ENOMEM, C++, PyTorch and TensorFlow on the CPU",
         literals=("[errno 12]", "alloc_cpu.cpp:", "cannot allocate me", "cudahostalloc", "defaultcpuallocato", "enomem", "failed to allocate", "hiphostmalloc", "memory", "oom when allocatin", "page allocation fa", "std::bad_alloc"),
         supersedes=("python-exception",), advice=MORE),
    Rule("windows-paging", r"\[WinError 1455\]|paging file is too small", F.HOST_OOM, 0.85, "rank",
         "OSError: [WinError 1455] The paging file is too small for this operation to complete.",
         "paging file: 64 GB",
         "Windows: ERROR_COMMITMENT_LIMIT", literals=("[winerror 1455]", "paging file is too"), supersedes=("python-exception",),
         advice="enlarge the paging file, or use fewer data loader workers"),
    Rule("shared-memory",
         r"(?:DataLoader worker .{0,40}killed by signal: Bus error|insufficient shared memory \(shm\)|"
         r"unable to (?:open|write to|resize|allocate|mmap \d+ bytes from) (?:shared memory object|file </torch_)|"
         r"Shared memory manager connection has timed out|unable to allocate shared memory)", F.HOST_OOM, 0.9, "rank",
         "RuntimeError: DataLoader worker (pid 4121) is killed by signal: Bus error. It is possible that "
         "dataloader's workers are out of shared memory. Please try to raise your shared memory limit.",
         "DataLoader worker (pid 4121) started",
         "PyTorch data loader", literals=("dataloader worker", "file </torch_", "insufficient share", "shared memory mana", "shared memory obje", "unable to allocate"),
         supersedes=("dataloader-worker-killed", "signal-7", "disk-full", "host-out-of-memory-errno", "python-exception"), advice=SHM),
    Rule("shm-full",
         r"(?:posix_fallocate|ftruncate|failed to extend|creating shared memory segment|open shared memory).{0,80}/dev/shm/|"
         r"/dev/shm.{0,120}(?:No space left|Cannot allocate|is full)|No space left on device.{0,200}/dev/shm|"
         r"NCCL WARN .{0,60}posix_fallocate failed|shared memory segment .{0,80}(?:nccl|No space)", F.HOST_OOM, 0.88, "rank",
         "NCCL WARN Error: failed to extend /dev/shm/nccl-K3vPmB to 9637892 bytes",
         "mounted /dev/shm of 64 GB",
         "NCCL, Python multiprocessing: the container's shared memory is full",
         literals=("dev/shm", "no space left on d", "posix_fallocate fa", "shared memory segm"), supersedes=("disk-full", "nccl-unhandled"),
         advice=SHM),
    Rule("dataloader-worker-killed",
         r"DataLoader worker \(pid(?:\(s\))? [\d, ]+\) (?:is killed by signal: (?:Killed|Unknown signal: 9)|exited unexpectedly)",
         F.HOST_OOM, 0.65, "rank",
         "RuntimeError: DataLoader worker (pid 4121) is killed by signal: Killed.",
         "DataLoader worker (pid 4121) exited normally",
         "PyTorch data loader: mostly the OOM killer", literals=("dataloader worker ",), supersedes=("python-exception",),
         advice=MORE),
    Rule("bus-error", r"^Bus error(?: \(core dumped\))?$|Fatal Python error: Bus error", F.HOST_OOM, 0.5, "rank",
         "Fatal Python error: Bus error",
         "bus error counter: 0",
         "glibc, faulthandler: shared memory is full, or a mapped file vanished", literals=("bus error", "fatal python error"),
         supersedes=("signal-7",), advice="raise resources.shared_memory of the role; look at the storage"),
)  # fmt: skip
