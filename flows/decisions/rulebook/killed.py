"""A process was killed, and the line does not say why: how launchers, schedulers and shells report it.

Launchers that name a rank are read by `flows.decisions.exits`; these rules see the rest.
"""

from __future__ import annotations

from flows.decisions.rules import Rule
from profiles.vocabulary import FaultClass

F = FaultClass
REPORTS = ("unknown", "program-ended", "replica-failed", "called-process", "launcher-summary", "spawned-ended")
"""Reports of an end that do not even tell the signal."""
_NO_MEMORY = r"^(?!.*(?:OOM|oom|[Oo]ut[- ][Oo]f[- ][Mm]emory)).*?"
"""Lines that give the reason are the memory's."""


def by_signal(number: str, name: str, word: str, title: str) -> str:
    """The pattern of lines that say that a signal ended something.

    Args:
        number: of the signal.
        name: without `SIG`.
        word: what Go's runtime calls it.
        title: what C's library calls it.
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


RULES: tuple[Rule, ...] = (
    Rule("killed-by-shell",
         r"^\S{1,120}: line \d+: +\d+ Killed\b|^Killed$|^\[\d+\][+ -]{1,8}(?:\d+ )?(?:Killed|killed) {2,}\S|^\d{1,9} Killed {2,}|"
         r"^Killed {1,4}python", F.PROCESS_KILLED, 0.6, "rank",
         "/entrypoint.sh: line 12:    63 Killed                  python train.py",
         "Killed three bugs: done. More text",
         "shells; often the OOM killer", literals=("killed",)),
    Rule("segfault-shell",
         r"^Segmentation fault(?: \(core dumped\))?\.?$|^\S{1,120}: line \d+: +\d+ Segmentation fault|"
         r"\[\d+\].{0,20}segmentation fault", F.PROCESS_KILLED, 0.45, "rank",
         "Segmentation fault (core dumped)",
         "Fatal Python error: Segmentation fault",
         "shells: nothing says where", literals=("segmentation fault",), supersedes=("signal-11",)),
    Rule("ended-minus-nine", r"(?i)\b(?:error|exit|return(?:ed)?|status|ended with)(?: code| status| value)?[:= ]{1,3}-9\b(?![.,]\d)",
         F.PROCESS_KILLED, 0.6, "rank",
         "ERROR: error code -9",
         "return code: -91",
         "parents that show what Python's subprocess returns: minus the number of the signal",
         literals=("error", "exit", "return", "status", "ended with"), supersedes=REPORTS, fallback=True),
    Rule("killed-signal", by_signal("9", "KILL", "killed", "Killed"), F.PROCESS_KILLED, 0.7, "rank",
         "Command terminated by signal 9",
         "Sending process 4121 closing signal SIGTERM",
         "GNU time, systemd, Go programs, Intel MPI, slurmctld", literals=("exit string: kille", "sigkill", "signal", "status=9/kill", "wtermsig 9"), supersedes=REPORTS),
    Rule("crashed-signal", by_signal("11", "SEGV", "segmentation fault", "Segmentation fault"), F.PROCESS_KILLED, 0.5, "rank",
         "  traceback : Signal 11 (SIGSEGV) received by PID 6421",
         "Sending process 4121 closing signal SIGTERM",
         "torchrun, GNU time, systemd, Go programs, Intel MPI, slurmctld", literals=("exit string: segme", "signal", "sigsegv", "status=11/segv", "wtermsig 11"), supersedes=REPORTS),
    Rule("dataloader-worker-crashed",
         r"DataLoader worker \(pid(?:\(s\))? [\d, ]{1,80}\) is killed by signal: (?:Segmentation fault|Aborted|Floating point "
         r"exception|Illegal instruction|Terminated)|Unexpected (?:segmentation fault|floating-point exception) encountered in "
         r"worker", F.PROCESS_KILLED, 0.6, "rank",
         "RuntimeError: DataLoader worker (pid 624) is killed by signal: Segmentation fault.",
         "RuntimeError: DataLoader worker (pid 624) is killed by signal: Killed.",
         "PyTorch data loader: native code of a worker crashed, often that of a decoding library",
         literals=("dataloader worker ", "encountered in worker"), supersedes=("python-exception",)),
    Rule("killed-exit-code", by_code("-9|137|-SIGKILL"), F.PROCESS_KILLED, 0.68, "rank",
         "command terminated with exit code 137",
         "rank 3 finished with exit code 1",
         "kubectl, Docker, Argo, managed services: 128 + 9", literals=("died with code", "died with exit cod", "died with exit sta", "died with status", "exit -code", "exit -status", "exit _code", "exit _status", "exit code", "exit status", "exit with", "exit-code", "exit-status", "exit_code", "exit_status", "exitcode", "exited", "exiting with", "exits with", "exitstatus", "failed with code", "failed with exit c", "failed with exit s", "failed with status", "finished with code", "finished with exit", "finished with stat", "return -code", "return -status", "return _code", "return _status", "return code", "return status", "return-code", "return-status", "return_code", "return_status", "returncode", "returned", "returnstatus", "terminated with"), supersedes=(*REPORTS, "container-config")),
    Rule("crashed-exit-code", by_code("-11|139|-SIGSEGV"), F.PROCESS_KILLED, 0.5, "rank",
         "command terminated with exit code 139",
         "rank 3 finished with exit code 11",
         "kubectl, Docker, Argo, managed services: 128 + 11", literals=("died with code", "died with exit cod", "died with exit sta", "died with status", "exit -code", "exit -status", "exit _code", "exit _status", "exit code", "exit status", "exit with", "exit-code", "exit-status", "exit_code", "exit_status", "exitcode", "exited", "exiting with", "exits with", "exitstatus", "failed with code", "failed with exit c", "failed with exit s", "failed with status", "finished with code", "finished with exit", "finished with stat", "return -code", "return -status", "return _code", "return _status", "return code", "return status", "return-code", "return-status", "return_code", "return_status", "returncode", "returned", "returnstatus", "terminated with"), supersedes=(*REPORTS, "container-config")),
    Rule("kubernetes-exit-137", r"^\s{0,12}Exit Code: {1,10}(?:137|139)$|\bexitCode[\"']?: ?(?:137|139)\b|\bError \(exit code 137\)",
         F.PROCESS_KILLED, 0.66, "rank",
         "      Exit Code:    137",
         "      Exit Code:    0",
         "kubectl describe, pod status, Argo", literals=("error (exit code 1", "exit code:", "exitcode\": 137", "exitcode\": 139", "exitcode\":137", "exitcode\":139", "exitcode': 137", "exitcode': 139", "exitcode':137", "exitcode':139", "exitcode: 137", "exitcode: 139", "exitcode:137", "exitcode:139"), supersedes=(*REPORTS, "killed-exit-code", "crashed-exit-code")),
    Rule("pool-process-died",
         r"A process in the process pool was terminated abruptly|BrokenProcessPool|"
         r"A worker process managed by the executor was unexpectedly terminated|TerminatedWorkerError|"
         r"(?:worker|child|sub)[ -]?process(?:es)? (?:\d{1,9} |.{0,20})?(?:died unexpectedly|was killed|has died|has been killed)",
         F.PROCESS_KILLED, 0.5, "rank",
         "concurrent.futures.process.BrokenProcessPool: A process in the process pool was terminated abruptly while the "
         "future was running or pending.",
         "process pool of 8 workers started",
         "concurrent.futures, joblib", literals=("a process in the p", "brokenprocesspool", "child process", "child-process", "childprocess", "sub process", "sub-process", "subprocess", "terminatedworkerer", "worker process", "worker-process", "workerprocess"), supersedes=("python-exception", "spawned-ended")),
    Rule("ray-worker-died",
         r"Worker (?:exit type: SYSTEM_ERROR|unexpectedly exits with a connection error code \d)|"
         r"The actor is dead because its worker process has died|"
         r"The worker died unexpectedly while executing this task|WorkerCrashedError: |"
         r"A worker died or was killed while executing (?:a )?task", F.PROCESS_KILLED, 0.5, "nobody",
         "Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a connection error code 2. End "
         "of file. There are some potential root causes. (1) The process is killed by SIGKILL by OOM killer",
         "Worker exit type: INTENDED_USER_EXIT",
         "Ray: what the driver learns of a worker that is gone", literals=("a worker died or w", "exit type: system_", "the actor is dead ", "the worker died un", "unexpectedly exits", "workercrashederror"),
         supersedes=("ray-actor-died", "killed-signal", "systemd-oomd"), echo=True),
)  # fmt: skip
