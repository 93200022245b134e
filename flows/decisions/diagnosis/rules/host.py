"""The host: processor, kernel, limits of processes; memory that ran out; processes that were killed; lost nodes.

Launchers that name a rank are read by `flows.decisions.diagnosis.exits`; these rules see the rest. Where a line names
the node (group `peer`), that one is blamed and not the one that printed it.
"""

from __future__ import annotations

from flows.decisions.diagnosis.clues import Rule
from profiles.vocabulary import FaultClass

F = FaultClass

HOST_RULES: tuple[Rule, ...] = (
    Rule("segfault-python",
         r"Fatal Python error: (?:Segmentation fault|Illegal instruction)|!!!!!!! Segfault encountered|"
         r"\*\*\* SIGSEGV .{0,80}received by PID|Caught signal 11 \(Segmentation fault", F.USER_CODE, 0.45, "code",
         "Fatal Python error: Segmentation fault",
         "no segmentation faults",
         "faulthandler, PyTorch, UCX: with the stack that says where", supersedes=("signal-11",)),
    Rule("kernel-segfault", r"\w[\w.\-]*\[\d+\]: segfault at [0-9a-f]+ ip|traps: \S{1,40}\[\d+\] (?:general protection|trap)",
         F.USER_CODE, 0.45, "code",
         "python3[4121]: segfault at 7f1c00000000 ip 00007f1c8a12 sp 00007ffd error 4 in libtorch_cuda.so",
         "segfault counter: 0",
         "Linux x86 fault handler", supersedes=("signal-11", "segfault-shell")),
    Rule("illegal-instruction", r"^Illegal instruction(?: \(core dumped\))?$", F.CONFIG, 0.7, "code",
         "Illegal instruction (core dumped)",
         "CUDA error: an illegal instruction was encountered",
         "shells: an image built for another processor", supersedes=("signal-4",),
         advice="use an image built for this processor"),
    Rule("no-file-descriptors", r"(?:\[Errno 24\] )?Too many open files", F.CONFIG, 0.7, "code",
         "OSError: [Errno 24] Too many open files: '/data/shard-00017.bin'",
         "opened many files",
         "errno EMFILE", advice="raise the open files limit or use the file_system sharing strategy"),
    Rule("no-threads", r"(?:can't start new thread|pthread_create failed|"
         r"fork: (?:retry: )?Resource temporarily unavailable|BlockingIOError: \[Errno 11\] Resource temporarily unavailable)",
         F.CONFIG, 0.65, "code",
         "RuntimeError: can't start new thread",
         "new thread started",
         "limit of processes", advice="raise the process limit or lower the number of threads"),
    Rule("heap-corruption", r"(?:double free or corruption|malloc\(\): |free\(\): invalid (?:pointer|size)|"
         r"corrupted (?:size vs\. prev_size|double-linked list)|munmap_chunk\(\): invalid pointer|\*\*\* stack smashing detected)",
         F.USER_CODE, 0.5, "code",
         "double free or corruption (!prev)",
         "memory is free",
         "glibc", supersedes=("signal-6",)),
    Rule("hung-task", r"INFO: task \S{1,40}:\d+ blocked for more than \d+ seconds", F.STORAGE, 0.5, "node",
         "INFO: task python:4121 blocked for more than 120 seconds.",
         "INFO: task scheduled",
         "Linux hung task detector: mostly storage"),
    Rule("cpu-time-limit", r"^CPU time limit exceeded|Cputime limit exceeded", F.CONFIG, 0.8, "code",
         "CPU time limit exceeded (core dumped)",
         "time limit: none",
         "RLIMIT_CPU", supersedes=("signal-24",)),
)  # fmt: skip


KILLS = ("process_killed", "signal-9", "unknown")
MORE = "give the pod more memory, use fewer data loader workers, or pin less"
SHM = "raise resources.shared_memory of the role"

HOST_MEMORY_RULES: tuple[Rule, ...] = (
    Rule("large-alloc", r"^tcmalloc: large alloc|Allocation of \d+ exceeds \d+% of (?:free )?system memory", F.NONE, 1.0,
         "nobody",
         "tcmalloc: large alloc 3221225472 bytes == 0x55d0c0000 @",
         "tcmalloc: allocation failed",
         "tcmalloc, TensorFlow: notes only"),
    Rule("kernel-oom",
         r"(?:Memory cgroup out of memory|Out of memory)(?: \(oom_kill_allocating_task\))?: Kill(?:ed)? process \d+|"
         r"^Killed process \d+,? ?.{0,60}total-vm:|oom-kill:constraint=|Task in /\S{1,300} killed as a result of limit of",
         F.HOST_OOM, 0.97, "rank",
         "Memory cgroup out of memory: Killed process 63214 (python) total-vm:3149468kB, anon-rss:164992kB, "
         "file-rss:52176kB, shmem-rss:92kB, UID:0 pgtables:1372kB oom_score_adj:986",
         "oom_reaper: reaped process 63214 (python), now anon-rss:0kB",
         "Linux mm/oom_kill.c", supersedes=KILLS, advice=MORE),
    Rule("oom-invoked", r"invoked oom-killer: gfp_mask=|oom_reaper: reaped process \d+|\boom_kill_process\+0x|"
         r"Out of memory and no killable processes", F.HOST_OOM, 0.85, "rank",
         "python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=986",
         "oom-killer: disabled",
         "Linux mm/oom_kill.c", supersedes=KILLS, advice=MORE),
    Rule("slurm-oom",
         r"Detected \d+ oom[_-]kill event|(?i:\bexceeded (?:job|step|virtual)? ?memory limit)|"
         r"srun: error: \S{1,200}: tasks? [\d,-]{1,200}: Out Of Memory|killed by the cgroup out-of-memory handler|"
         r"step tasks have been OOM Killed|Job \d+ exceeded .{0,40}memory limit", F.HOST_OOM, 0.95,
         "rank",
         "slurmstepd: error: Detected 1 oom_kill event in StepId=4711.0. Some of the step tasks have been "
         "OOM Killed.",
         "slurmstepd: error: execve(): python: No such file or directory",
         "Slurm", supersedes=(*KILLS, "slurm-step-terminated"), advice=MORE),
    Rule("slurm-state-oom", r"\bJobState=OUT_OF_MEMORY\b|^State: OUT_OF_MEMORY|"
         r"^ {0,12}\d{2,12}\S{0,24}\s.{0,160}\sOUT_OF_ME", F.HOST_OOM, 0.92, "nobody",
         "4711.0            train                research         64 OUT_OF_ME+      0:125",
         "4711.0            train                research         64  COMPLETED      0:0",
         "sacct, scontrol, seff", supersedes=KILLS, advice=MORE),
    Rule("batch-memory-limit", r"PBS: job killed: (?:mem|vmem|pmem)\b|TERM_MEMLIMIT|job killed after reaching LSF memory",
         F.HOST_OOM, 0.93, "nobody",
         "TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.",
         "TERM_OWNER: job killed by owner.",
         "PBS, LSF", supersedes=KILLS, advice=MORE),
    Rule("service-memory-limit",
         r"beyond (?:the ')?(?:physical|virtual|"
         r"PHYSICAL|VIRTUAL)'? memory limits?|Container killed by YARN for exceeding|memory usage exceeded request_memory|"
         r"(?i:\bran out[- ]of[- ]memory and exited)|crashed after using all available RAM|"
         r"(?i:container (?:was )?killed due to (?:memory|oom))", F.HOST_OOM, 0.93, "rank",
         "Container [pid=4121,containerID=container_01] is running beyond physical memory limits. Killing container.",
         "memory limits: 200Gi",
         "YARN, HTCondor, managed services", supersedes=KILLS, advice=MORE),
    Rule("kubelet-oom",
         r"\bSystemOOM\b|System OOM encountered|\bTaskOOM\b|\bOOM ?Killed \(exit code|node had condition: \[?MemoryPressure|"
         r"memory cgroup.{0,40}oom.?kill|\bcontainer .{0,80}was OOM[- ]?killed|\bContainerOOM\b", F.HOST_OOM, 0.94, "rank",
         "Warning  SystemOOM  3m  kubelet  System OOM encountered, victim process: python, pid: 41021",
         "MemoryPressure   False   KubeletHasSufficientMemory",
         "kubelet, containerd, Argo", supersedes=(*KILLS, "oom-killed"), advice="give the pod more memory"),
    Rule("ray-oom",
         r"ray\.exceptions\.OutOfMemoryError|More than \d+% of the memory on node|"
         r"[Tt]ask was killed due to the node running low on memory|Memory on the node \(IP: (?P<peer>[\w.:-]{3,60})|"
         r"[1-9]\d{0,4} Workers \(tasks / actors\) killed due to memory pressure|exceeds the memory usage threshold|"
         r"worker.{0,60}killed by the (?:memory monitor|raylet).{0,40}memory|ObjectStoreFullError|how to address the out of memory issue: ", F.HOST_OOM, 0.92, "node",
         "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.",
         "ray.exceptions.GetTimeoutError: Get timed out",
         "Ray memory monitor", supersedes=("python-exception", "process_killed")),
    Rule("systemd-oomd",
         r"systemd-oomd(?:\[\d+\])?: Killed \S{1,200}|Killed \S{1,200} due to memory (?:pressure|used)|"
         r"Failed with result 'oom-kill'|A process of this unit has been killed by the OOM killer|"
         r"earlyoom.{0,40}sending SIG(?:TERM|KILL) to process|low memory! at or below SIG(?:TERM|KILL) limits", F.HOST_OOM,
         0.93, "rank",
         "systemd-oomd[612]: Killed /kubepods.slice/kubepods-burstable.slice due to memory pressure for "
         "/kubepods.slice being 71.27% > 60.00%",
         "systemd-oomd[612]: Started",
         "systemd, earlyoom", supersedes=KILLS),
    Rule("python-memory-error",
         r"^(?:numpy\.(?:_?core\._?exceptions\.)?)?(?:_Array)?MemoryError\b|\bArrowMemoryError\b|"
         r"java\.lang\.OutOfMemoryError|\bUnable to allocate [\d.]{1,10} [KMGT]iB for an array|fatal error: runtime: out of memory",
         F.HOST_OOM, 0.93, "rank",
         "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 7.45 TiB for an array with shape "
         "(1000000, 1000000) and data type float64",
         "The MemoryError class is documented",
         "CPython, numpy, Arrow, Java, Go", supersedes=("python-exception",), advice=MORE),
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
         "errno ENOMEM, C++, PyTorch and TensorFlow on the CPU", supersedes=("python-exception",), advice=MORE),
    Rule("windows-paging", r"\[WinError 1455\]|paging file is too small", F.HOST_OOM, 0.85, "rank",
         "OSError: [WinError 1455] The paging file is too small for this operation to complete.",
         "paging file: 64 GB",
         "Windows: ERROR_COMMITMENT_LIMIT", supersedes=("python-exception",),
         advice="enlarge the paging file, or use fewer data loader workers"),
    Rule("shared-memory",
         r"(?:DataLoader worker .{0,40}killed by signal: Bus error|insufficient shared memory \(shm\)|"
         r"unable to (?:open|write to|resize|allocate|mmap \d+ bytes from) (?:shared memory object|file </torch_)|"
         r"Shared memory manager connection has timed out|unable to allocate shared memory)", F.HOST_OOM, 0.9, "rank",
         "RuntimeError: DataLoader worker (pid 4121) is killed by signal: Bus error. It is possible that "
         "dataloader's workers are out of shared memory. Please try to raise your shared memory limit.",
         "DataLoader worker (pid 4121) started",
         "PyTorch data loader",
         supersedes=("dataloader-worker-killed", "signal-7", "disk-full", "host-out-of-memory-errno", "python-exception"),
         advice=SHM),
    Rule("shm-full",
         r"(?:posix_fallocate|ftruncate|failed to extend|creating shared memory segment|open shared memory).{0,80}/dev/shm/|"
         r"/dev/shm.{0,120}(?:No space left|Cannot allocate|is full)|No space left on device.{0,200}/dev/shm|"
         r"NCCL WARN .{0,60}posix_fallocate failed|shared memory segment .{0,80}(?:nccl|No space)|"
         r"No space left on device\. {1,4}joblib will operate in serial mode", F.HOST_OOM, 0.88, "rank",
         "NCCL WARN Error: failed to extend /dev/shm/nccl-K3vPmB to 9637892 bytes",
         "mounted /dev/shm of 64 GB",
         "NCCL, Python multiprocessing: the container's shared memory is full",
         supersedes=("disk-full",), advice=SHM),
    Rule("dataloader-worker-killed",
         r"DataLoader worker \(pid(?:\(s\))? [\d, ]+\) (?:is killed by signal: (?:Killed|Unknown signal: 9)|exited unexpectedly)",
         F.HOST_OOM, 0.65, "rank",
         "RuntimeError: DataLoader worker (pid 4121) is killed by signal: Killed.",
         "DataLoader worker (pid 4121) exited normally",
         "PyTorch data loader: mostly the OOM killer", supersedes=("python-exception",), advice=MORE),
    Rule("bus-error", r"^Bus error(?: \(core dumped\))?$|Fatal Python error: Bus error", F.HOST_OOM, 0.5, "rank",
         "Fatal Python error: Bus error",
         "bus error counter: 0",
         "glibc, faulthandler: shared memory is full, or a mapped file vanished", supersedes=("signal-7",),
         advice="raise resources.shared_memory of the role; look at the storage"),
)  # fmt: skip


CRASHED = "let the program say where it crashed: PYTHONFAULTHANDLER=1, a core file; look at its native libraries"
REPORTS = ("unknown", "program-ended", "replica-failed", "called-process", "launcher-summary", "spawned-ended")
"""Reports of an end that do not even tell the signal."""
_NO_MEMORY = r"^(?!.*(?:OOM|oom|[Oo]ut[- ][Oo]f[- ][Mm]emory)).*?"
"""Lines that give the reason are the memory's."""


def by_signal(number: str, name: str, word: str, title: str) -> str:
    """The pattern of lines that say that a signal ended something.

    `word` is Go's name of it, `title` the C library's.
    """
    return (
        rf"{_NO_MEMORY}(?:(?i:\b(?:killed|terminated|ended|stopped|exited|crashed|failed|died|interrupted)(?: abruptly| unexpectedly)? "
        rf"(?:by|with|due to|from)(?: the)? (?:signal[: ]{{1,2}}-?{number}\b|(?:signal[: ]{{1,2}})?<?(?:Signals\.)?SIG{name}\b))|"
        rf"\bsignal: {word}\b|(?i:(?:received|got) (?:signal )?)SIG{name}\b|KILLED BY SIGNAL: {number} |\(SIG{name}\)|"
        rf"EXIT STRING: {title}|status={number}/{name}|WTERMSIG {number}\b)"
    )


def by_code(codes: str) -> str:
    """The pattern of lines that report one of these exit codes."""
    return (
        r"(?i)^(?!.*(?:oom|out[- ]of[- ]memory)).*?\b(?:exit(?:ed|s|ing)? with(?: an?)?(?: non-?zero)?(?: exit)?(?: status| code)?(?: of)?|"
        r"exit(?:ed)? ?[_-]?(?:status|code)(?: of)?|exited|return(?:ed)? ?[_-]?(?:status|code)|returned(?: non-?zero(?: exit)? status)?|"
        r"terminated with(?: exit)?(?: status| code)?|(?:died|finished|failed) with(?: exit)?(?: status| code))[\"']?[ :=(]{1,8}[\"']?"
        rf"(?:{codes})(?![\d.])"
    )


KILLED_RULES: tuple[Rule, ...] = (
    Rule("killed-by-shell",
         r"^\S{1,120}: line \d+: +\d+ Killed\b|^Killed$|^\[\d+\][+ -]{1,8}(?:\d+ )?(?:Killed|killed) {2,}\S|^\d{1,9} Killed {2,}|"
         r"^Killed {1,4}python", F.PROCESS_KILLED, 0.6, "rank",
         "/entrypoint.sh: line 12:    63 Killed                  python train.py",
         "Killed three bugs: done. More text",
         "shells; often the OOM killer"),
    Rule("segfault-shell",
         r"^Segmentation fault(?: \(core dumped\))?\.?$|^\S{1,120}: line \d+: +\d+ Segmentation fault|"
         r"\[\d+\].{0,20}segmentation fault", F.USER_CODE, 0.45, "rank",
         "Segmentation fault (core dumped)",
         "Fatal Python error: Segmentation fault",
         "shells: nothing says where", supersedes=("signal-11",), advice=CRASHED),
    Rule("ended-minus-nine", r"(?i)\b(?:error|exit|return(?:ed)?|status|ended with)(?: code| status| value)?[:= ]{1,3}-9\b(?![.,]\d)",
         F.PROCESS_KILLED, 0.6, "rank",
         "ERROR: error code -9",
         "return code: -91",
         "parents that show what Python's subprocess returns: minus the number of the signal", supersedes=REPORTS,
         fallback=True),
    Rule("killed-signal", by_signal("9", "KILL", "killed", "Killed"), F.PROCESS_KILLED, 0.7, "rank",
         "Command terminated by signal 9",
         "Sending process 4121 closing signal SIGTERM",
         "GNU time, systemd, Go programs, Intel MPI, slurmctld", supersedes=REPORTS),
    Rule("ended-by-sigterm",
         r"^(?:\S{1,120}: line \d+: +\d+ )?Terminated\b(?:\s{2,}.{0,200})?$|\bReceived SIGTERM\b(?! death)|"
         rf"(?!\s*traceback {{1,8}}: ){by_signal('15', 'TERM', 'terminated', 'Terminated')}|exited on signal 15\b|"
         rf"^(?!.*local_rank|\s*(?:exitcode|traceback) {{1,8}}: ).*?{by_code('-15|143|-SIGTERM').removeprefix('(?i)^')}", F.PROCESS_KILLED, 0.5, "rank",
         "command terminated with exit code 143",
         "Sending process 4121 closing signal SIGTERM",
         "shells, kubectl, Docker, launchers: somebody asked the program to end", supersedes=REPORTS, echo=True,
         fallback=True),
    Rule("crashed-signal", by_signal("11", "SEGV", "segmentation fault", "Segmentation fault"), F.USER_CODE, 0.5, "rank",
         "  traceback : Signal 11 (SIGSEGV) received by PID 6421",
         "Sending process 4121 closing signal SIGTERM",
         "torchrun, GNU time, systemd, Go programs, Intel MPI, slurmctld", supersedes=REPORTS, advice=CRASHED),
    Rule("dataloader-worker-crashed",
         r"DataLoader worker \(pid(?:\(s\))? [\d, ]{1,80}\) is killed by signal: (?:Segmentation fault|Aborted|Floating point "
         r"exception|Illegal instruction)|Unexpected (?:segmentation fault|floating-point exception) encountered in "
         r"worker", F.USER_CODE, 0.6, "rank",
         "RuntimeError: DataLoader worker (pid 624) is killed by signal: Segmentation fault.",
         "RuntimeError: DataLoader worker (pid 624) is killed by signal: Killed.",
         "PyTorch data loader: native code of a worker crashed, often that of a decoding library",
         supersedes=("python-exception",), advice=CRASHED),
    Rule("dataloader-worker-ended",
         r"DataLoader worker \(pid(?:\(s\))? [\d, ]{1,80}\) is killed by signal: (?:Terminated|Hangup|Interrupt)", F.PROCESS_KILLED,
         0.6, "rank",
         "RuntimeError: DataLoader worker (pid 624) is killed by signal: Terminated.",
         "RuntimeError: DataLoader worker (pid 624) is killed by signal: Segmentation fault.",
         "PyTorch data loader: somebody asked a worker to end", supersedes=("python-exception",)),
    Rule("killed-exit-code", by_code("-9|137|-SIGKILL"), F.PROCESS_KILLED, 0.68, "rank",
         "command terminated with exit code 137",
         "rank 3 finished with exit code 1",
         "kubectl, Docker, Argo, managed services: 128 + 9", supersedes=(*REPORTS, "container-config")),
    Rule("crashed-exit-code",
         rf"{by_code('-11|139|-SIGSEGV')}|^\s{{0,12}}Exit Code: {{1,10}}139$|\bexitCode[\"']?: ?139\b|\bError \(exit code 139\)",
         F.USER_CODE, 0.5, "rank",
         "command terminated with exit code 139",
         "rank 3 finished with exit code 11",
         "kubectl, Docker, Argo, managed services: 128 + 11", supersedes=(*REPORTS, "container-config"), advice=CRASHED),
    Rule("kubernetes-exit-137", r"^\s{0,12}Exit Code: {1,10}137$|\bexitCode[\"']?: ?137\b|\bError \(exit code 137\)",
         F.PROCESS_KILLED, 0.66, "rank",
         "      Exit Code:    137",
         "      Exit Code:    0",
         "kubectl describe, pod status, Argo", supersedes=(*REPORTS, "killed-exit-code")),
    Rule("pool-process-died",
         r"A process in the process pool was terminated abruptly|BrokenProcessPool|"
         r"A worker process managed by the executor was unexpectedly terminated|TerminatedWorkerError|"
         r"(?:worker|child|sub)[ -]?process(?:es)? (?:\d{1,9} |.{0,20})?(?:died unexpectedly|was killed|has died|has been killed)",
         F.PROCESS_KILLED, 0.5, "rank",
         "concurrent.futures.process.BrokenProcessPool: A process in the process pool was terminated abruptly while the "
         "future was running or pending.",
         "process pool of 8 workers started",
         "concurrent.futures, joblib", supersedes=("python-exception", "spawned-ended")),
    Rule("ray-worker-died",
         r"Worker (?:exit type: SYSTEM_ERROR|unexpectedly exits with a connection error code \d)|"
         r"The actor is dead because its worker process has died|"
         r"The worker died unexpectedly while executing this task|WorkerCrashedError: |"
         r"A worker died or was killed while executing (?:a )?task", F.PROCESS_KILLED, 0.5, "nobody",
         "Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a connection error code 2. End "
         "of file. There are some potential root causes. (1) The process is killed by SIGKILL by OOM killer",
         "Worker exit type: INTENDED_USER_EXIT",
         "Ray: what the driver learns of a worker that is gone",
         supersedes=("ray-actor-died", "killed-signal", "systemd-oomd"), echo=True),
)  # fmt: skip


LEFT_BEHIND = ("process_killed", "collective_timeout", "slurm-step-terminated", "rendezvous", "unknown")
"""What everybody else prints when a node is gone."""
NAME = r"(?P<peer>[A-Za-z0-9][\w.\[\],-]{0,120})"

NODE_RULES: tuple[Rule, ...] = (
    Rule("node-tainted-unreachable", r"\bnode\.kubernetes\.io/(?:unreachable|out-of-service)(?:=\S{0,40})?:No(?:Execute|Schedule) *$|"
         r"had (?:untolerated )?taint.{0,4}\{node\.kubernetes\.io/unreachable", F.NODE_LOST, 0.7, "node",
         "Taints:             node.kubernetes.io/unreachable:NoExecute",
         "Tolerations:                 node.kubernetes.io/unreachable:NoExecute op=Exists for 300s",
         "kubectl describe node", supersedes=LEFT_BEHIND),
    Rule("node-rebooted",
         rf"[Nn]ode {NAME} has been rebooted|\bRebooted\b.{{0,80}}\bboot id: |^-- Reboot --$|^-- Boot [0-9a-f]{{32}} --$",
         F.NODE_LOST, 0.75, "node",
         "Warning  Rebooted  2m  kubelet  the machine came up anew, boot id: 9f1f4c3a",
         "boot id unchanged",
         "kubelet, journalctl", supersedes=LEFT_BEHIND),
    Rule("node-removed",
         rf"(?:[Dd]eleting|[Rr]emoving) [Nn]ode {NAME} (?:because it does not exist|from Controller|from NodeController)|"
         rf"event: (?:Removing|Deleting) Node {NAME.replace('peer', 'name')} |\bnode .{{0,80}}not found in the cloud provider",
         F.NODE_LOST, 0.7, "node",
         "error syncing: node not found in the cloud provider",
         "node found",
         "cloud controller manager", supersedes=LEFT_BEHIND),
    Rule("kubelet-unreachable",
         r"https://(?P<peer>[\w.-]{3,100}):10250/\S{1,200} ?:? ?.{0,40}(?:no route to host|i/o timeout|connection refused)",
         F.NODE_LOST, 0.6, "peer",
         "Error from server: Get \"https://10.0.0.7:10250/containerLogs/train/llama-worker-3/pytorch\": dial tcp 10.0.0.7:10250: connect: no route to host",
         "https://10.0.0.7:10250/metrics answered in 3 ms",
         "API server: the kubelet does not answer", supersedes=("control_plane",)),
    Rule("slurm-node-fail",
         rf"\b[Nn]ode failure on {NAME}|due to failure of node {NAME.replace('peer', 'name')}|on failed node \S|"
         r"DUE TO NODE FAILURE", F.NODE_LOST, 0.93, "peer",
         "slurmstepd: error: *** STEP 4711.0 ON gpu-17 CANCELLED AT 2025-03-01T10:00:00 DUE TO NODE "
         "FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***",
         "slurmstepd: error: *** STEP 4711.0 ON gpu-17 CANCELLED AT 2025-03-01T10:00:00 ***",
         "Slurm: the line's first node is the one that says it, not the one that failed",
         supersedes=(*LEFT_BEHIND, "preempted")),
    Rule("slurm-state-node-fail", r"\bJobState=NODE_FAIL\b|^State: NODE_FAIL|"
         r"^ {0,12}\d{2,12}\S{0,24}\s.{0,160}\sNODE_FAIL(?:\s|$)|Job_id=\d+ .{0,200}(?:Failed|Ended), .{0,80}NODE_FAIL", F.NODE_LOST, 0.92, "nobody",
         "4711              llama-70b            research        512  NODE_FAIL      1:0",
         "4711              llama-70b            research        512    RUNNING      0:0",
         "sacct, scontrol, seff, Slurm's mails", supersedes=LEFT_BEHIND),
    Rule("slurm-not-responding",
         rf"[Nn]odes {NAME} not responding|[Nn]ode {NAME.replace('peer', 'name')} not responding|"
         r"\b(?:slurmd|node) .{0,60}not responding, setting DOWN|StepId=\S{1,40} missing from batch node|"
         r"Batch JobId=\d+ missing from (?:batch )?node", F.NODE_LOST, 0.88, "peer",
         "error: Nodes gpu-[03-04] not responding, setting DOWN",
         "Node gpu-03 now responding",
         "slurmctld", supersedes=LEFT_BEHIND),
    Rule("slurm-rebooted", rf"\b[Nn]ode {NAME} unexpectedly rebooted|Reason=(?:Node unexpectedly rebooted|Not responding)|"
         r"Node unexpectedly re(?:booted)?\b", F.NODE_LOST, 0.88, "peer",
         "error: Node gpu-07 unexpectedly rebooted boot_time=1746086400 last response=1746086000",
         "Node gpu-07 rebooted as planned",
         "slurmctld, sinfo -R", supersedes=LEFT_BEHIND),
    Rule("slurm-reason-row",
         r"^(?:Node unexpectedly re\w{0,8}|Not responding|[Nn]ode (?:failure|down)\w{0,10}) {1,20}\S{1,32} {1,20}(?:\d{4}-\d\d-\d\dT[\d:]{5,8}|Unknown) {1,20}(?P<peer>\S{1,120})$",
         F.NODE_LOST, 0.92, "peer",
         "Node unexpectedly re root      2021-03-05T11:35:16 eureka",
         "REASON               USER      TIMESTAMP           NODELIST",
         "sinfo -R", supersedes=(*LEFT_BEHIND, "slurm-rebooted")),
    Rule("slurm-row-down", rf"^{NAME} .{{0,160}} (?:down|drain(?:ed|ing)?|fail|unk)\* {{1,10}}.{{0,200}}(?:Not responding|unexpectedly re)",
         F.NODE_LOST, 0.9, "peer",
         "compute001      1     main*       down*   12   12:1:1  64267        0      1   (null) Not responding",
         "compute001      1     main*       idle    12   12:1:1  64267        0      1   (null) none",
         "sinfo -lNe", supersedes=LEFT_BEHIND),
    Rule("slurm-launch-lost",
         rf"srun: error: .{{0,60}}(?:on node|failed on node|launch to) {NAME}: (?:Communication connection failure|.{{0,40}}(?:Host is down|No route to host|"
         r"Connection timed out|Socket timed out))|srun: error: (?:Timed out waiting for|slurm_receive_msgs?: \[)|"
         r"srun: error: Unable to (?:confirm|contact) slurmd", F.NODE_LOST, 0.6, "peer",
         "srun: error: Task launch for StepId=4711.0 failed on node gpu-07: Communication connection failure",
         "srun: error: Unable to allocate resources: Socket timed out",
         "srun", supersedes=("slurm-step-terminated", "slurm-launch-failed")),
    Rule("ray-node-dead",
         r"The node with (?:node id|client ID):? (?:[\w<> -]{1,80}?(?: and ip:| and address:) (?P<peer>[\w.:-]{3,60})|[\w<> -]{1,80}).{0,120}"
         r"has been marked dead|"
         r"because (?:its node has died|the node (?:it was running on )?(?:is dead|has died|failed))"
         r"(?:.{0,40}Node IP: (?P<address>[\w.:-]{3,60}\w))?|NodeDiedError|\bRAY_NODE_REMOVED\b|"
         r"mistakenly been marked as dead by the GCS|[Tt]he node (?:where|which|on which) .{0,80}(?:died|crashed|failed)|"
         r"[Oo]wner's node has crashed", F.NODE_LOST, 0.8, "peer",
         "The node with node id: 75b2eec8a61cdafd37cc8072b1caf9abdeef9c4e and ip: 10.4.4.107 has been marked dead because "
         "the detector has missed too many heartbeats from it.",
         "The node with node id: 75b2eec8a61cdafd37cc8072b1caf9abdeef9c4e joined",
         "Ray GCS", supersedes=("ray-actor-died", "ray-worker-died", "process_killed", "collective_timeout")),
    Rule("agent-lost", r"agent failed while (?:the )?container was running|lost connection to (?:the )?agent|agent .{0,60}did not reconnect",
         F.NODE_LOST, 0.6, "nobody",
         "trial 12 failed: agent failed while container was running",
         "agent gpu-7 connected with 8 slots",
         "Determined"),
    Rule("ssh-unreachable",
         rf"ssh: connect to host {NAME} port \d{{1,5}}: (?:No route to host|Connection timed out|Host is down|Operation timed out)|"
         r"pdsh@\S{1,80}: \S{1,80}: (?:mcmd: )?connect failed: |Connection to \S{1,100} closed by remote host|\bssh exited with exit code 255",
         F.NODE_LOST, 0.65, "peer",
         "ssh: connect to host gpu-07 port 22: No route to host",
         "ssh: connect to host gpu-07 port 22: Connection refused by the user",
         "OpenSSH, pdsh", supersedes=("no-route", "connection-refused")),
    Rule("daemon-lost",
         rf"Remote daemon: .{{0,60}} on node {NAME}|(?:ORTE|PRTE) daemon .{{0,40}} on node {NAME.replace('peer', 'name')}.{{0,40}}failed|"
         r"Container released on a \*?lost\*? node|"
         r"ExecutorLostFailure|\b[Nn]ode .{1,80}(?:no heartbeat|heartbeat (?:timed out|timeout))|NO_HEARTBEAT|"
         r"Lost (?:executor|worker) \S{1,40} on |node\(s\) down: ", F.NODE_LOST, 0.65, "peer",
         "Container released on a *lost* node",
         "Remote daemon started",
         "Open MPI, YARN, DLRover, PBS", supersedes=("mpi-lost-peer", "process_killed", "collective_timeout")),
    Rule("ansible-unreachable", rf"\[{NAME}\]: UNREACHABLE! =>|\bhost {NAME.replace('peer', 'name')} is unreachable\b", F.NODE_LOST, 0.7, "peer",
         'fatal: [gpu-07]: UNREACHABLE! => {"changed": false, "msg": "Failed to connect to the host via ssh"}',
         "gpu-07 : ok=7 changed=0 unreachable=0 failed=0",
         "Ansible"),
    Rule("cloud-host-error",
         r"compute\.instances\.hostError|(?i:\bhost ?error\b.{0,60}(?:instance|vm|restart|compute)|instance .{0,80}\bhost ?error\b)|"
         r"(?i:degradation of the underlying hardware|(?:instance|system|ec2) status checks? (?:has )?(?:failed|impaired)|"
         r"failed at least one (?:instance|status) check|underlying hardware.{0,40}(?:fail|fault|degrad)|"
         r"(?:VM|virtual machine|instance) .{0,60}(?:unexpectedly (?:stopped|rebooted|terminated)|crashed|became unreachable))",
         F.NODE_LOST, 0.82, "node",
         "Instance terminated by Compute Engine: compute.instances.hostError",
         "status checks passed for the instance",
         "Google, AWS, Azure", supersedes=(*LEFT_BEHIND, "preempted", "gcp-preempted")),
    Rule("kernel-panic",
         r"(?:Kernel panic - not syncing|BUG: unable to handle (?:kernel|page fault)|Oops: \d{4} \[#\d|kernel BUG at \S|"
         r"Fatal (?:machine check|hardware error)|Uhhuh\. NMI received)", F.NODE_LOST,
         0.9, "node",
         "Kernel panic - not syncing: Fatal exception in interrupt",
         "panic button pressed",
         "Linux kernel", supersedes=("process_killed", "collective_timeout")),
    Rule("soft-lockup",
         r"(?:watchdog: )?BUG: soft lockup - CPU#\d+ stuck for|rcu:? ?(?:INFO: )?rcu_(?:sched|preempt) (?:self-)?detected (?:expedited )?stalls?|"
         r"(?:NMI watchdog: )?Watchdog detected hard LOCKUP", F.NODE_LOST, 0.6, "node",
         "watchdog: BUG: soft lockup - CPU#12 stuck for 226906s! [kworker/12:1]",
         "lockup of funds",
         "Linux watchdog"),
    Rule("machine-check",
         r"mce: \[Hardware Error\]: (?:CPU \d+: Machine Check(?: Exception)?|Machine check events logged)|"
         r"Uncorrected hardware memory error|\[Hardware Error\]: .{0,40}MC\d+_STATUS\[[^\]]{0,60}\bUC\b|\[Hardware Error\]: CPU:?\d+ .{0,60}Uncorrected",
         F.NODE_LOST, 0.55, "node",
         "mce: [Hardware Error]: CPU 33: Machine Check Exception: 5 Bank 7: be00000000800400",
         "mce: CPU0: Thermal monitoring enabled",
         "Linux mce"),
    Rule("memory-uncorrected",
         r"EDAC .{0,60}\d+ UE |Uncorrected hardware memory error in user-access|Memory failure: 0x[0-9a-f]+: |"
         r"Uncorrectable (?:ECC|memory) error.{0,80}\bDIMM|DIMM.{0,60}[Uu]ncorrectable (?:ECC|memory)",
         F.NODE_LOST, 0.6, "node",
         "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0",
         "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0",
         "Linux EDAC, baseboard controllers: the host's memory is broken",
         supersedes=("process_killed", "machine-check")),
    Rule("sinfo-down", r"^\S{1,40} {1,20}up {1,20}\S{1,20} {1,20}\d{1,6} {1,20}down\*? {1,20}(?P<peer>[\w.,\[\]-]{1,200}) *$", F.NODE_LOST, 0.65, "peer",
         "gpu*         up   infinite      1  down* cn17",
         "gpu*         up   infinite      7  alloc cn[10-16]",
         "sinfo", supersedes=("process_killed", "collective_timeout")),
    Rule("reboot", r"(?:reboot: (?:Restarting system|Power down)|systemd-shutdown\[1\]|"
         r"systemd\[1\]: Reached target .{0,20}(?:Reboot|Power-Off|Shutdown)|^System is (?:powering down|rebooting)|"
         r"systemd-logind(?:\[\d+\])?: (?:System is (?:powering down|rebooting)|The system will (?:reboot|power off) now))", F.NODE_LOST, 0.8, "node",
         "reboot: Restarting system",
         "reboot required",
         "Linux, systemd", supersedes=("process_killed", "collective_timeout")),
    Rule("ray-node-told-dead", r"\b[Tt]his node has be(?:en|em) marked (?:as )?dead\b|raylet .{0,80}(?:marked|declared) (?:as )?dead by (?:the )?GCS",
         F.NODE_LOST, 0.8, "node",
         "[2022-02-16 12:46:52,789 C 149 149] node_manager.cc:170: This node has beem marked as dead.",
         "If heartbeat keeps lagging, this node can be marked as dead mistakenly.",
         "Ray's raylet, of itself", supersedes=LEFT_BEHIND),
)  # fmt: skip
