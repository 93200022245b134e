"""Ends that say nothing of their cause: exit codes, summaries of launchers, words of failure.

All speak for `unknown`. They are no evidence for any class, but a log that holds one is not healthy.
"""

from __future__ import annotations

from flows.decisions.rules import Rule
from profiles.vocabulary import FaultClass

F = FaultClass

RULES: tuple[Rule, ...] = (
    Rule("called-process", r"\bsubprocess\.CalledProcessError: |\bCalledProcessError\b.{0,400}returned non-zero exit status", F.UNKNOWN,
         0.3, "nobody",
         "subprocess.CalledProcessError: Command '['python', 'train.py']' returned non-zero exit status 1.",
         "subprocess.TimeoutExpired: Command timed out after 5 seconds",
         "CPython: whoever started the program says that it failed", literals=("returned non-zero ", "subprocess.calledp"), supersedes=("python-exception",),
         echo=True),
    Rule("spawned-ended", r"\bProcessExitedException: |\bProcessRaisedException\b|-- Process \d{1,6} terminated with the following error", F.UNKNOWN, 0.3, "nobody",
         "torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with exit code 1",
         "torch.multiprocessing.spawn started 8 processes",
         "torch.multiprocessing, concurrent.futures", literals=(" terminated with t", "processexitedexcep", "processraisedexcep"),
         supersedes=("python-exception",), echo=True),
    Rule("program-ended",
         r"(?i)\bexit(?:ed|s|ing)? (?:with )?(?:code|status)(?: of)?[:=]? ?[\[(]?-?(?!0\b)\d{1,3}\b|"
         r"\bexit ?code(?: of)?[\"']?[:=]? {0,6}-?(?!0\b)\d{1,3}\b|\breturn code[:=]? ?-?(?!0\b)\d{1,3}\b|"
         r"(?:non-zero|nonzero) (?:exit|return|status)|make(?:\[\d\])?: \*\*\* \[", F.UNKNOWN, 0.25, "nobody",
         "main: command terminated with exit code 1",
         "the process exited with code 0",
         "shells, containers, launchers, CI",
         literals=(": *** [", "exit code", "exit status", "exitcode", "exited code", "exited status", "exiting code", "exiting status", "exits code", "exits status", "non-zero", "nonzero exit", "nonzero return", "nonzero status", "return code", "with code", "with status"),
         fallback=True, echo=True),
    Rule("launcher-summary",
         r"Primary job +terminated normally, but|mpirun detected that one or more processes exited|"
         r"\[launch\.py:\d{1,5}:sigkill_handler\]|exits with return code = (?!0\b)|FAILED \(non-zero exit code or other failure mode\)|"
         r"ExecuteUserScriptError|AlgorithmError: |Job entrypoint command failed", F.UNKNOWN, 0.3, "nobody",
         "[2024-01-01 10:00:00,123] [ERROR] [launch.py:321:sigkill_handler] ['python', 'train.py'] exits with return code = 1",
         "[2024-01-01 10:00:00,123] [launch.py:347:main] Process 4121 exits successfully.",
         "mpirun, Horovod, DeepSpeed, SageMaker, Ray jobs, Slurm",
         literals=(":sigkill_handler]", "algorithmerror: ", "executeuserscripte", "exits with return ", "failed (non-zero e", "job entrypoint com", "mpirun detected th", "terminated normall"), supersedes=("program-ended",), echo=True),
    Rule("replica-failed",
         r"Job \S{1,120} is failed because|\breplica\(s\) failed|\bphase Failed\b|\bfailed=[1-9]\d{0,4}\b|[Ee]xited with non-zero exit code|"
         r"(?:Pod|pod|container|Container|child) .{0,120} (?:failed|terminated) .{0,40}(?:exit code|exitCode)|"
         r"Reason: {1,12}(?:Error|ContainerCannotRun|BackoffLimitExceeded)$", F.UNKNOWN, 0.3, "nobody",
         "PyTorchJob llama is failed because 1 Worker replica(s) failed.",
         "expected=1, running=1, succeeded=0, failed=0, Replicas=1",
         "operators of training jobs, Argo", literals=(" failed ", " terminated ", "exited with non-ze", "failed=", "phase failed", "reason:", "replica(s) failed"), supersedes=("program-ended",), echo=True),
    Rule("dumped-core", r"\bAborted \(core dumped\)|terminate called (?:after throwing|without an active|recursively)|"
         r"^Fatal Python error: (?!Segmentation|Bus)|\(core dumped\)$|\bcore dumped\b", F.UNKNOWN, 0.3, "nobody",
         "Aborted (core dumped)",
         "core dumps are switched off",
         "C++ runtime, shells, CPython's faulthandler", literals=("core dumped", "fatal python error", "terminate call"), fallback=True,
         echo=True),
    Rule("peer-missed-barrier",
         r"successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank (?P<peer>\d{1,7})", F.UNKNOWN,
         0.5, "peer",
         "RuntimeError: Rank 2 successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0. "
         "Please check rank 0 logs for faulty rank.",
         "RuntimeError: Ranks 3 failed to pass monitoredBarrier in 1800000 ms",
         "PyTorch Gloo: the peer has ended, why stands in its own log", literals=("successfully reach",),
         supersedes=("python-exception", "connection-error", "collective_timeout"), echo=True),
)  # fmt: skip
