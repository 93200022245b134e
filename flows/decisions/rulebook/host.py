"""The host: processor, kernel, limits of processes. Its memory stands in `host_memory`, its loss in `nodes`."""

from __future__ import annotations

from flows.decisions.rules import Rule
from profiles.vocabulary import FaultClass

F = FaultClass

RULES: tuple[Rule, ...] = (
    Rule("segfault-python",
         r"Fatal Python error: (?:Segmentation fault|Illegal instruction)|!!!!!!! Segfault encountered|"
         r"\*\*\* SIGSEGV .{0,80}received by PID|Caught signal 11 \(Segmentation fault", F.USER_CODE, 0.45, "code",
         "Fatal Python error: Segmentation fault",
         "no segmentation faults",
         "faulthandler, PyTorch, UCX: with the stack that says where", literals=("!!!!!!! segfault e", "caught signal 11 (", "fatal python error", "received by pid"),
         supersedes=("signal-11",)),
    Rule("kernel-segfault", r"\w[\w.\-]*\[\d+\]: segfault at [0-9a-f]+ ip|traps: \S{1,40}\[\d+\] (?:general protection|trap)",
         F.USER_CODE, 0.45, "code",
         "python3[4121]: segfault at 7f1c00000000 ip 00007f1c8a12 sp 00007ffd error 4 in libtorch_cuda.so",
         "segfault counter: 0",
         "Linux x86 fault handler", literals=("]: segfault at", "traps:"), supersedes=("signal-11", "segfault-shell")),
    Rule("illegal-instruction", r"^Illegal instruction(?: \(core dumped\))?$", F.CONFIG, 0.7, "code",
         "Illegal instruction (core dumped)",
         "CUDA error: an illegal instruction was encountered",
         "shells: an image built for another processor", literals=("illegal instructio",), supersedes=("signal-4",),
         advice="use an image built for this processor"),
    Rule("no-file-descriptors", r"(?:\[Errno 24\] )?Too many open files", F.CONFIG, 0.7, "code",
         "OSError: [Errno 24] Too many open files: '/data/shard-00017.bin'",
         "opened many files",
         "errno EMFILE", literals=("[errno 24] too man", "too many open file"),
         advice="raise the open files limit or use the file_system sharing strategy"),
    Rule("no-threads", r"(?:can't start new thread|pthread_create failed|"
         r"fork: (?:retry: )?Resource temporarily unavailable|BlockingIOError: \[Errno 11\] Resource temporarily unavailable)",
         F.CONFIG, 0.65, "code",
         "RuntimeError: can't start new thread",
         "new thread started",
         "limit of processes", literals=("blockingioerror: [", "can't start new th", "fork: resource tem", "fork: retry: resou", "pthread_create fai"),
         advice="raise the process limit or lower the number of threads"),
    Rule("heap-corruption", r"(?:double free or corruption|malloc\(\): |free\(\): invalid (?:pointer|size)|"
         r"corrupted (?:size vs\. prev_size|double-linked list)|munmap_chunk\(\): invalid pointer|\*\*\* stack smashing detected)",
         F.USER_CODE, 0.5, "code",
         "double free or corruption (!prev)",
         "memory is free",
         "glibc", literals=("*** stack smashing", "corrupted double-l", "corrupted size vs.", "double free or cor", "free(): invalid po", "free(): invalid si", "malloc():", "munmap_chunk(): in"), supersedes=("signal-6",)),
    Rule("hung-task", r"INFO: task \S{1,40}:\d+ blocked for more than \d+ seconds", F.STORAGE, 0.5, "node",
         "INFO: task python:4121 blocked for more than 120 seconds.",
         "INFO: task scheduled",
         "Linux hung task detector: mostly storage", literals=("blocked for more t",)),
    Rule("cpu-time-limit", r"^CPU time limit exceeded|Cputime limit exceeded", F.CONFIG, 0.8, "code",
         "CPU time limit exceeded (core dumped)",
         "time limit: none",
         "RLIMIT_CPU", literals=("cpu time limit exc", "cputime limit exce"), supersedes=("signal-24",)),
)  # fmt: skip
