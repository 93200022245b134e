"""Slurm and its like (PBS, LSF, HTCondor): time limits, preemption, queues, daemons that do not answer.

What a step prints when it is told to end (`slurm-preempted`, `slurm-node-fail`, `slurm-step-terminated`) stands with the
launchers in `collectives`.
"""

from __future__ import annotations

from flows.decisions.rules import Rule
from profiles.vocabulary import FaultClass

F = FaultClass
ENDED = ("process_killed", "collective_timeout", "rendezvous", "unknown", "slurm-step-terminated")
"""What the ranks of a job print that was told to leave."""

RULES: tuple[Rule, ...] = (
    Rule("job-requeued", r"(?i)\breque(?:ue|u)?(?:ing|ed)\b (?:slurm )?job|auto-requeue signal|"
         r"\bjob (?:was |has been |is being )?requeued\b", F.PREEMPTED, 0.85, "nobody",
         "submitit INFO (2022-07-12 04:18:45,912) - Requeued job 4711 (3 remaining timeouts)",
         "SLURM auto-requeueing enabled. Setting signal handlers for SIGUSR1.",
         "submitit, Lightning's signal connector, slurmctld", literals=("auto-requeue signa", "requeed job", "requeing job", "requeued", "requeueed job", "requeueing job", "requeuing job", "slurm job"), supersedes=ENDED),
    Rule("submitit-signal", r"Caught signal SIG[A-Z0-9]{3,6} on \S{1,80}: this job is (?:preempted|timed-out)|"
         r"Exiting gracefully after preemption/timeout", F.PREEMPTED, 0.95, "nobody",
         "submitit WARNING (2022-08-12 02:06:11,453) - Caught signal SIGUSR2 on gpu-7: this job is timed-out.",
         "submitit WARNING (2022-08-12 02:06:12,299) - Bypassing signal SIGCONT",
         "submitit job_environment.py", literals=("caught signal sig", "exiting gracefully"), supersedes=ENDED),
    Rule("slurm-job-cancelled", r"error: \*\*\* JOB \S{1,40} ON \S{1,120} CANCELLED AT \S{1,32} \*\*\*", F.PREEMPTED,
         0.45, "nobody",
         "slurmstepd: error: *** JOB 4711 ON gpu-17 CANCELLED AT 2025-03-01T10:00:00 ***",
         "slurmstepd: error: *** STEP 4711.0 ON gpu-17 CANCELLED AT 2025-03-01T10:00:00 ***",
         "slurmstepd: told to end (scancel, drain), without saying by whom", literals=("error: *** job ",), echo=True),
    Rule("slurm-step-signalled", r"CANCELLED AT \S{1,32} D(?:ue|UE) (?:to|TO) (?:SIGNAL|signal) (?:Killed|9|KILL)\b", F.PROCESS_KILLED, 0.7,
         "nobody",
         "[2025-03-01T10:00:00.645] error: *** STEP 4711.6 ON gpu-17 CANCELLED AT 2025-03-01T10:00:00 DUE to SIGNAL Killed ***",
         "slurmstepd: error: *** STEP 4711.6 ON gpu-17 CANCELLED AT 2025-03-01T10:00:00 DUE to SIGNAL Terminated ***",
         "slurmstepd: the whole step was sent the signal (scancel), no task fell of its own", literals=("to signal",)),
    Rule("slurm-cancelled-due", r"CANCELLED DUE TO (?:PREEMPTION|TIME LIMIT|JOB REQUEUE)", F.PREEMPTED, 0.93, "nobody",
         "srun: error: *** Job step 4711.0 CANCELLED DUE TO PREEMPTION ***",
         "srun: error: *** Job step 4711.0 CANCELLED DUE TO NODE FAILURE ***",
         "srun, older slurmd", literals=("cancelled due to j", "cancelled due to p", "cancelled due to t"), supersedes=ENDED),
    Rule("slurm-state-preempted", r"\bJobState=(?:PREEMPTED|TIMEOUT|DEADLINE)\b|^State: (?:PREEMPTED|TIMEOUT)\b|"
         r"^ {0,12}\d{2,12}\S{0,24}\s.{0,160}\s(?:PREEMPTED|TIMEOUT)(?:\s|$)", F.PREEMPTED, 0.88, "nobody",
         "4711.batch        batch                research         64    TIMEOUT      0:15",
         "4711.batch        batch                research         64  COMPLETED      0:0",
         "sacct, scontrol, seff", literals=("jobstate=deadline", "preempted", "timeout"), supersedes=ENDED),
    Rule("batch-time-limit", r"PBS: job killed: (?:walltime|cput|ncpus)|TERM_(?:RUNLIMIT|PREEMPT|DEADLINE|REQUEUE_ADMIN)\b|"
         r"job killed after reaching LSF run ?time limit|\bJob was (?:evicted|preempted)\.?(?:\s|$)|"
         r"(?i:(?<!cpu )(?<!cpu)\b(?:wall ?(?:clock ?)?)?time ?limit (?:was |is |has been )?(?:reached|exceeded)|"
         r"exceeded (?:its |the )?(?:hard )?(?:wall ?(?:clock )?|h_rt ?)time ?limit|exceeded (?:its )?(?:requested )?wall ?time)",
         F.PREEMPTED, 0.92, "nobody",
         "=>> PBS: job killed: walltime 86417 exceeded limit 86400",
         "PBS: job started, walltime 24:00:00",
         "PBS, LSF, HTCondor, Grid Engine", literals=("exceeded", "job killed", "job was evicted", "job was preempted", "term_deadline", "term_preempt", "term_requeue_admin", "term_runlimit", "time limit ", "timelimit "),
         supersedes=ENDED),
    Rule("slurm-pending",
         r"(?:\bPD\b|\bPENDING\b).{0,160}\((?:Resources|Priority|QOS\w{2,50}|Assoc\w{2,50}|ReqNodeNotAvail|Nodes required|"
         r"Partition\w{2,40}|MaxGRES\w{2,40}|Reserv\w{2,40}|Licenses|BadConstraints|NodeDown|JobArrayTaskLimit|Max\w{4,40})|"
         r"\bJobState=PENDING Reason=(?!None|Dependency|BeginTime|JobHeld)\w{3,60}", F.SCHEDULING, 0.88, "nobody",
         "             11575724     gpu-a100 pretrain     user PD       0:00      8 (QOSMaxGRESPerUser)",
         "        11575725_[0-7]     gpu-a100 pretrain     user PD       0:00      1 (Dependency)",
         "squeue, scontrol show job; Slurm's table of pending reasons", literals=("assoc", "badconstraints", "jobarraytasklimit", "jobstate=pending r", "licenses", "max", "nodedown", "nodes required", "partition", "priority", "qos", "reqnodenotavail", "reserv", "resources"),
         supersedes=("unknown",)),
    Rule("slurm-reason",
         r"\b(?:QOS(?:Max|Grp|Min)(?:GRES|CPU|Node|Jobs|Submit|Wall|TRES|Memory|Billing)\w{0,40}|"
         r"Assoc(?:Grp|Max)(?:GRES|CPU|Node|Jobs|Submit|Wall|TRES|Mem|Billing)\w{0,40}|ReqNodeNotAvail|"
         r"Nodes required for job are DOWN, DRAINED)\b", F.SCHEDULING, 0.8, "nobody",
         "(ReqNodeNotAvail, UnavailableNodes:gpu-q-[2-47])",
         "ReqNodeList=gpu-q-[2-47] ExcNodeList=(null)",
         "Slurm's table of pending reasons", literals=("assocgrp", "assocmax", "nodes required for", "qosgrpbilling", "qosgrpcpu", "qosgrpgres", "qosgrpjobs", "qosgrpmemory", "qosgrpnode", "qosgrpsubmit", "qosgrptres", "qosgrpwall", "qosmaxbilling", "qosmaxcpu", "qosmaxgres", "qosmaxjobs", "qosmaxmemory", "qosmaxnode", "qosmaxsubmit", "qosmaxtres", "qosmaxwall", "qosminbilling", "qosmincpu", "qosmingres", "qosminjobs", "qosminmemory", "qosminnode", "qosminsubmit", "qosmintres", "qosminwall", "reqnodenotavail"),
         fallback=True),
    Rule("slurm-cannot-place",
         r"(?:Requested node configuration is not available|(?<!retrying \()Requested nodes are busy|violates accounting/QOS policy|"
         r"Requested partition configuration not available|Required (?:partition|node) not available|"
         r"Nodes required for job|Job dependency can never be satisfied|Requested reservation)", F.SCHEDULING, 0.82,
         "nobody",
         "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's size "
         "and/or time limits)",
         "sbatch: Submitted batch job 4711",
         "Slurm slurm_errno.c", literals=("job dependency can", "nodes required for", "not available", "requested nodes ar", "requested reservat", "violates accountin"),
         fallback=True, advice="ask for what the partition and the account's limits allow"),
    Rule("slurm-wrong-request",
         r"(?:[Ii]nvalid (?:account or account/partition|partition (?:name )?specified|generic resource|qos spec|"
         r"feature spec|job array spec|wckey spec|license spec|cpu count|node count|-n|--)|User's group not permitted|"
         r"More processors requested than permitted|Requested time limit is invalid|Unable to open file \S{1,200}\.(?:sh|"
         r"sbatch|slurm)|[Nn]ode count specification invalid|No partition specified)", F.CONFIG, 0.9, "code",
         "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified",
         "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
         "Slurm slurm_errno.c",
         literals=("invalid --", "invalid -n", "invalid cpu count", "invalid feature sp", "invalid generic re", "invalid job array ", "invalid license sp", "invalid node count", "invalid qos spec", "invalid wckey spec", "more processors re", "node count specifi", "partition", "requested time lim", "unable to open fil", "user's group not p"),
         advice="correct account, partition, time or resources of the job"),
    Rule("slurm-revoked", r"(?:Job allocation \d{1,12} has been revoked|"
         r"allocation \d{1,12} (?:was )?revoked)", F.PREEMPTED, 0.5, "nobody",
         "salloc: Job allocation 4711 has been revoked.",
         "salloc: Granted job allocation 4711",
         "salloc, srun: taken away, without saying why", literals=(" has been revoked", "allocation "), echo=True),
    Rule("slurm-controller-away",
         r"(?:Unable to contact slurm controller|Unable to confirm allocation|Socket timed out on send/recv operation|"
         r"Zero Bytes were transmitted or received|Slurm temporarily unable to accept job|"
         r"Slurm backup controller in standby|[Uu]nable to establish (?:control(?:ler)? machine|configuration source)|"
         r"slurm_\w{3,40}(?: error)?: (?:Connection (?:refused|timed out)|Unexpected message|Message (?:send|receive) fail|"
         r"Protocol authentication))", F.CONTROL_PLANE, 0.9, "nobody",
         "srun: error: Unable to confirm allocation for job 4711: Unable to contact slurm controller (connect failure)",
         "slurmctld: slurmctld version 23.11.4 started on cluster gpu",
         "Slurm slurm_errno.c", literals=(": connection refus", ": connection timed", ": message receive ", ": message send fai", ": protocol authent", ": unexpected messa", "slurm backup contr", "socket timed out o", "unable to", "zero bytes were tr"),
         supersedes=("unknown", "rendezvous", "storage", "config"), advice="wait until slurmctld answers, submit again"),
    Rule("slurm-database-away",
         r"(?:failed to open persistent connection to|Sending PersistInit msg: |Problem talking to the database|"
         r"slurmdbd: (?:error: )?.{0,80}(?:refused|[Uu]nable to|fail)|\bDBD_[A-Z_]{3,40} fail|"
         r"accounting_storage/\w{3,20}: .{0,120}(?:refused|fail|gone away)|slurm(?:ctld|dbd)(?:\[\d{1,8}\])?: fatal: )", F.CONTROL_PLANE, 0.85, "nobody",
         "sacct: error: _open_persist_conn: failed to open persistent connection to host:slurmdbd:6819: Connection refused",
         "slurmdbd: slurmdbd version 23.11.4 started",
         "Slurm persist_conn.c, slurmdbd", literals=(" fail", ": fatal: ", "accounting_storage", "failed to open per", "problem talking to", "sending persistini", "slurmdbd: "),
         supersedes=("unknown", "rendezvous", "config", "connection-refused")),
    Rule("munge",
         r"(?i)\bmunged?\b.{0,30}(?:encode|decode|credential|auth\w{0,12}) (?:failed|error|failure)|"
         r"(?:expired|invalid|rewound|replayed|unauthorized) credential|munge\.socket\.2|protocol authentication error|"
         r"if munged is up, restart", F.CONTROL_PLANE, 0.82, "nobody",
         "slurmctld: error: Munge decode failed: Expired credential",
         "munged: Starting munge-0.5.15 daemon (pid 612)",
         "munge and Slurm's auth/munge: keys or clocks of nodes differ, or munged is away",
         literals=("d credential", "munge", "protocol authentic"), supersedes=("unknown", "rendezvous", "config"),
         advice="look at munged, its key and the clocks of the nodes"),
    Rule("slurm-launch-failed",
         r"Task launch for \S{1,60} failed on node (?P<peer>[\w.-]{1,80}): (?!Communication|.{0,40}(?:Host is down|[Tt]imed out))|Application launch failed: |"
         r"(?:launch_)?p_step_launch: \S{1,60} aborted before step completely launched|"
         r"slurmd could not connect IO|Job credential (?:expired|revoked)", F.CONTROL_PLANE, 0.55, "peer",
         "srun: error: Task launch for StepId=4711.0 failed on node gpu-17: Invalid job credential",
         "srun: launching StepId=4711.0 on host gpu-17, 8 tasks: [0-7]",
         "srun: slurmd did not take the step", literals=(" aborted before st", " failed on node ", "application launch", "job credential exp", "job credential rev", "slurmd could not c")),
    Rule("batch-server-away",
         r"(?:qsub|qstat|qdel|pbs_iff|pbsnodes): (?:cannot connect to (?:server|host)|.{0,80}errno=111)|"
         r"LSF is down\. Please wait|Cannot connect to LSF|[Bb]atch (?:system|daemon|service).{0,20}not responding|"
         r"error: unable to send message to qmaster|[Cc]ommlib (?:error|returns)|"
         r"Failed to connect to (?:the )?(?:schedd|condor_\w{3,20}|collector)", F.CONTROL_PLANE, 0.88, "nobody",
         "qsub: cannot connect to server pbs-1 (errno=111) Connection refused",
         "qsub: submitted 4711.pbs-1",
         "PBS, LSF, Grid Engine, HTCondor",
         literals=("commlib error", "commlib returns", "connect to", "errno=111", "error: unable to s", "lsf is down. pleas", "not responding"),
         supersedes=("unknown", "rendezvous", "connection-refused")),
)  # fmt: skip
