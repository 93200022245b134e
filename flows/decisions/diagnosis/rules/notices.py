"""Notices, states, and ends that say nothing of their cause.

Machines that are about to be taken, jobs at their limits, queues that say why nothing starts; exit codes, summaries of
launchers, words of failure. All speak for `unknown`: they are no evidence for any class, but a log that holds one is
not healthy.
"""

from __future__ import annotations

from flows.decisions.diagnosis.clues import Rule
from profiles.vocabulary import FaultClass

F = FaultClass
TAKEN = ("process_killed", "collective_timeout", "rendezvous", "unknown", "node_lost")

NOTICE_RULES: tuple[Rule, ...] = (
    Rule("taken-soon",
         r"(?i)\b(?:instance|vm|machine|node|host|worker|runner|container|pod|job|workload|session)\b.{0,30}\b(?:going to be|will be|is being|about to be|to be) "
         r"(?:forcibly )?(?:interrupted|reclaimed|preempted|evicted|terminated|stopped|shut down|taken)\b.{0,20}\bin \d{1,6} ?(?:s|m|h)|"
         r"\bspot (?:interruption|termination|reclaim\w{0,6}|eviction) (?:payload|action|message|alert|handler (?:triggered|called))",
         F.PREEMPTED, 0.88, "nobody",
         "msg=\"Instance is going to be interrupted in 2 minutes. Exiting...\"",
         "the pod will be started in 20 seconds",
         "watchers of EC2's, GCP's and Azure's metadata", fallback=True, supersedes=TAKEN),
    Rule("machine-goes-down",
         r"(?i)\bThe system (?:is going down for|will (?:power[- ]?off|reboot|halt|shut ?down)) ?(?:power-?off|reboot|halt|maintenance|now|at)|"
         r"\bsystem is going down for \S|received a shutdown signal\b|the hosted runner .{0,40}lost communication|"
         r"(?:Reached|Starting) target (?:Power-Off|Reboot|Shutdown)\b|\bsystemd-shutdown\b.{0,30}(?:sending SIG|Powering off|Rebooting)",
         F.PREEMPTED, 0.6, "nobody",
         "Broadcast message from root@gpu-vm-3: The system is going down for power-off NOW!",
         "the system is going well",
         "systemd's shutdown, runners of continuous integration", fallback=True,
         supersedes=("process_killed", "collective_timeout")),
    Rule("tpu-worker-lame", r"lame workers found|\bTPU (?:node |worker |vm )?(?:\S{1,60} )?(?:was |has been |got )?(?:preempted|reclaimed)|"
         r"due to a preemption in a connected worker|\bUNHEALTHY_MAINTENANCE\b|health: (?:'|\")?(?:DEPRECATED|UNHEALTHY)_?(?:TPU|TENSORFLOW|MAINTENANCE)",
         F.PREEMPTED, 0.6, "nobody",
         "INFO:tensorflow:ShutdownHook: lame workers found: HeartbeatManager(/job:worker/replica:0/task:0/device:CPU:0)",
         "ShutdownHook: no workers found",
         "TensorFlow's TPU session support: preemptible machines", fallback=True, supersedes=TAKEN),
    Rule("limit-of-the-job",
         r"(?i)\bexceed(?:s|ed) (?:the )?(?:job )?hard (?:limit|wallclock)|\b[hs]_rt\b.{0,40}(?:limit|exceed)|job attempt duration exceeded timeout|"
         r"\b(?:task|job|run|pipeline|experiment|trial)\b.{0,40}\b(?:exceeded|reached|hit) (?:its |the )?(?:maximum |max |configured |allowed )*"
         r"(?:run ?time|wall-?clock(?: time)?|duration|time ?limit|execution time)\b|\bwall ?-?clock(?: time)? (?:limit )?(?:was )?(?:exceeded|reached)|"
         r"\bkilled (?:because|due to|for|after) .{0,30}(?:wall-?time|time limit|run limit|max(?:imum)? runtime)|"
         r"reached the maximum (?:session|usage) (?:time|duration|limit)", F.CONFIG, 0.8,
         "nobody",
         "queue \"gpu.q@n7\" job 123 exceeds job hard limit \"h_rt\" of queue",
         "job 123 has no hard limit",
         "Grid Engine, AWS Batch, Azure ML, Determined, notebooks", fallback=True,
         supersedes=("process_killed", "collective_timeout", "unknown")),
    Rule("spot-training-interrupted",
         r"Host EC2 \(instance [\w-]{1,40}\) terminated|\bInterrupted - |(?i:managed spot training .{0,30}interrupted)|SecondaryStatus\W{1,6}Interrupted\b|"
         r"\b(?:Preempted|Evicted) (?:by|in favou?r of) (?:a |an )?(?:higher|pod|job|workload|other)|\bPreempting (?:job|pod|task|workload) \S{1,80}",
         F.PREEMPTED, 0.85, "nobody",
         "2024-05-01 11:00:00 Interrupted - Managed spot training interrupted.",
         "Training in progress, use of managed spot training is on",
         "AWS Batch, SageMaker, queues with priorities", fallback=True, supersedes=TAKEN),
    Rule("queue-says-why",
         r"(?i)^\s{0,12}PENDING REASONS:|\bNot enough (?:GPUs?|hosts?|processors?|slots?|resources?|job slots?)(?: (?:are |is )?available| to (?:start|run|place)|:|;)|"
         r"\bNot Running: (?:Insufficient|Not enough|Host set|Queue|Server|User|Draining)|\binsufficient amount of resource|"
         r"\brejected by your job's requirements|\b0 are willing to run your job|no machines? matched? (?:the )?(?:job's )?(?:requirements|constraints)|"
         r"cannot run in (?:queue|PE) .{0,80}because|\bNew job is waiting for scheduling|Job's requirements? for .{0,60}not satisfied|"
         r"\bload information unavailable: \d", F.SCHEDULING, 0.85, "nobody",
         "comment = Not Running: Insufficient amount of resource: ngpus",
         "Running: enough resources",
         "bjobs -p, qstat -f, condor_q -analyze, qstat -j", fallback=True, supersedes=("unknown", "rendezvous")),
    Rule("placement-state", r"\bscheduling_state['\"]?: ['\"]?(?:NO_RESOURCES|INFEASIBLE|PENDING\w{0,20})\b|"
         r"\b(?:placement group|bundle|actor|task)s?\b.{0,60}\b(?:NO_RESOURCES|INFEASIBLE|PENDING_RESOURCES|PENDING_NODE_ASSIGNMENT)\b", F.SCHEDULING, 0.8,
         "nobody",
         "scheduling_state: NO_RESOURCES",
         "scheduling_state: FINISHED",
         "Ray's list of placement groups", fallback=True, supersedes=("unknown", "rendezvous")),
    Rule("queued-for-long",
         r"(?i)\b(?:still )?(?:waiting|queued|pending)\b.{0,40}\b(?:for|until) .{0,30}\b(?:free |available |enough |idle )?(?:gpus?|nodes?|capacity|quota|resources|slots?)\b"
         r".{0,30}\b(?:to (?:become|be) (?:available|free)|for \d{1,6} ?(?:s|m|h)|to free up)", F.SCHEDULING, 0.7, "nobody",
         "still waiting for 16 free GPUs to become available",
         "waiting for the GPUs to finish",
         "launchers of clouds and queues", fallback=True, supersedes=("unknown", "rendezvous")),
)  # fmt: skip


ENDING_RULES: tuple[Rule, ...] = (
    Rule("called-process", r"\bsubprocess\.CalledProcessError: |\bCalledProcessError\b.{0,400}returned non-zero exit status", F.UNKNOWN,
         0.3, "nobody",
         "subprocess.CalledProcessError: Command '['python', 'train.py']' returned non-zero exit status 1.",
         "subprocess.TimeoutExpired: Command timed out after 5 seconds",
         "CPython: whoever started the program says that it failed", supersedes=("python-exception",), echo=True),
    Rule("spawned-ended", r"\bProcessExitedException: |\bProcessRaisedException\b|-- Process \d{1,6} terminated with the following error", F.UNKNOWN, 0.3, "nobody",
         "torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with exit code 1",
         "torch.multiprocessing.spawn started 8 processes",
         "torch.multiprocessing, concurrent.futures", supersedes=("python-exception",), echo=True),
    Rule("program-ended",
         r"(?i)\bexit(?:ed|s|ing)? (?:with )?(?:code|status)(?: of)?[:=]? ?[\[(]?-?(?!0\b)\d{1,3}\b|"
         r"\bexit ?code(?: of)?[\"']?[:=]? {0,6}-?(?!0\b)\d{1,3}\b|\breturn code[:=]? ?-?(?!0\b)\d{1,3}\b|"
         r"(?:non-zero|nonzero) (?:exit|return|status)|make(?:\[\d\])?: \*\*\* \[", F.UNKNOWN, 0.25, "nobody",
         "main: command terminated with exit code 1",
         "the process exited with code 0",
         "shells, containers, launchers, CI", fallback=True, echo=True),
    Rule("launcher-summary",
         r"Primary job +terminated normally, but|mpirun detected that one or more processes exited|"
         r"\[launch\.py:\d{1,5}:sigkill_handler\]|exits with return code = (?!0\b)|FAILED \(non-zero exit code or other failure mode\)|"
         r"ExecuteUserScriptError|AlgorithmError: |Job entrypoint command failed", F.UNKNOWN, 0.3, "nobody",
         "[2024-01-01 10:00:00,123] [ERROR] [launch.py:321:sigkill_handler] ['python', 'train.py'] exits with return code = 1",
         "[2024-01-01 10:00:00,123] [launch.py:347:main] Process 4121 exits successfully.",
         "mpirun, Horovod, DeepSpeed, SageMaker, Ray jobs, Slurm", supersedes=("program-ended",), echo=True),
    Rule("replica-failed",
         r"Job \S{1,120} is failed because|\breplica\(s\) failed|\bphase Failed\b|\bfailed=[1-9]\d{0,4}\b|[Ee]xited with non-zero exit code|"
         r"(?:Pod|pod|container|Container|child) .{0,120} (?:failed|terminated) .{0,40}(?:exit code|exitCode)|"
         r"Reason: {1,12}(?:Error|ContainerCannotRun|BackoffLimitExceeded)$", F.UNKNOWN, 0.3, "nobody",
         "PyTorchJob llama is failed because 1 Worker replica(s) failed.",
         "expected=1, running=1, succeeded=0, failed=0, Replicas=1",
         "operators of training jobs, Argo", supersedes=("program-ended",), echo=True),
    Rule("dumped-core", r"\bAborted \(core dumped\)|terminate called (?:after throwing|without an active|recursively)|"
         r"^Fatal Python error: (?!Segmentation|Bus)|\(core dumped\)$|\bcore dumped\b", F.UNKNOWN, 0.3, "nobody",
         "Aborted (core dumped)",
         "core dumps are switched off",
         "C++ runtime, shells, CPython's faulthandler", fallback=True, echo=True),
    Rule("peer-missed-barrier",
         r"successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank (?P<peer>\d{1,7})", F.UNKNOWN,
         0.5, "peer",
         "RuntimeError: Rank 2 successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0. "
         "Please check rank 0 logs for faulty rank.",
         "RuntimeError: Ranks 3 failed to pass monitoredBarrier in 1800000 ms",
         "PyTorch Gloo: the peer has ended, why stands in its own log",
         supersedes=("python-exception", "connection-error", "collective_timeout"), echo=True),
)  # fmt: skip
