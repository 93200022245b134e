"""Machines and jobs taken back: Slurm and its like (PBS, LSF, HTCondor), clouds, and platforms that run trainings.

Time limits, preemption, queues and daemons that do not answer; machines serviced or not to be had; Ray, SkyPilot,
Determined. What a step prints when it is told to end (`slurm-preempted`, `slurm-node-fail`, `slurm-step-terminated`)
stands with the launchers in `collectives`.
"""

from __future__ import annotations

from flows.decisions.diagnosis.clues import Rule
from profiles.vocabulary import FaultClass

F = FaultClass
LONGER = "ask for a longer time limit, or go on from the newest checkpoint in the next job"
ENDED = ("process_killed", "collective_timeout", "rendezvous", "unknown", "slurm-step-terminated")
"""What the ranks of a job print that was told to leave."""

SLURM_RULES: tuple[Rule, ...] = (
    Rule("job-requeued", r"(?i)\breque(?:ue|u)?(?:ing|ed)\b (?:slurm )?job|auto-requeue signal|"
         r"\bjob (?:was |has been |is being )?requeued\b", F.PREEMPTED, 0.85, "nobody",
         "submitit INFO (2022-07-12 04:18:45,912) - Requeued job 4711 (3 remaining timeouts)",
         "SLURM auto-requeueing enabled. Setting signal handlers for SIGUSR1.",
         "submitit, Lightning's signal connector, slurmctld", supersedes=ENDED),
    Rule("submitit-signal", r"Caught signal SIG[A-Z0-9]{3,6} on \S{1,80}: this job is (?:preempted|timed-out)|"
         r"Exiting gracefully after preemption/timeout", F.PREEMPTED, 0.95, "nobody",
         "submitit WARNING (2022-08-12 02:06:11,453) - Caught signal SIGUSR2 on gpu-7: this job is timed-out.",
         "submitit WARNING (2022-08-12 02:06:12,299) - Bypassing signal SIGCONT",
         "submitit job_environment.py", supersedes=ENDED),
    Rule("slurm-job-cancelled", r"error: \*\*\* JOB \S{1,40} ON \S{1,120} CANCELLED AT \S{1,32} \*\*\*", F.PREEMPTED,
         0.45, "nobody",
         "slurmstepd: error: *** JOB 4711 ON gpu-17 CANCELLED AT 2025-03-01T10:00:00 ***",
         "slurmstepd: error: *** STEP 4711.0 ON gpu-17 CANCELLED AT 2025-03-01T10:00:00 ***",
         "slurmstepd: told to end (scancel, drain), without saying by whom", echo=True),
    Rule("slurm-step-signalled", r"CANCELLED AT \S{1,32} D(?:ue|UE) (?:to|TO) (?:SIGNAL|signal) (?:Killed|9|KILL)\b", F.PROCESS_KILLED, 0.7,
         "nobody",
         "[2025-03-01T10:00:00.645] error: *** STEP 4711.6 ON gpu-17 CANCELLED AT 2025-03-01T10:00:00 DUE to SIGNAL Killed ***",
         "slurmstepd: error: *** STEP 4711.6 ON gpu-17 CANCELLED AT 2025-03-01T10:00:00 DUE to SIGNAL Terminated ***",
         "slurmstepd: the whole step was sent the signal (scancel), no task fell of its own"),
    Rule("slurm-cancelled-due", r"CANCELLED DUE TO (?:PREEMPTION|TIME LIMIT|JOB REQUEUE)", F.PREEMPTED, 0.93, "nobody",
         "srun: error: *** Job step 4711.0 CANCELLED DUE TO PREEMPTION ***",
         "srun: error: *** Job step 4711.0 CANCELLED DUE TO NODE FAILURE ***",
         "srun, older slurmd", supersedes=ENDED),
    Rule("slurm-state-preempted", r"\bJobState=PREEMPTED\b|^State: PREEMPTED\b|"
         r"^ {0,12}\d{2,12}\S{0,24}\s.{0,160}\sPREEMPTED(?:\s|$)", F.PREEMPTED, 0.88, "nobody",
         "4711.batch        batch                research         64  PREEMPTED      0:15",
         "4711.batch        batch                research         64  COMPLETED      0:0",
         "sacct, scontrol, seff", supersedes=ENDED),
    Rule("slurm-time-limit", r"\bJobState=(?:TIMEOUT|DEADLINE)\b|^State: TIMEOUT\b|CANCELLED AT \S{1,32} DUE TO TIME LIMIT|"
         r"^ {0,12}\d{2,12}\S{0,24}\s.{0,160}\sTIMEOUT(?:\s|$)|Slurm (?:Job_id|Array Summary Job_id)=.{1,200}, TIMEOUT", F.CONFIG, 0.92,
         "nobody",
         "slurmstepd: error: *** STEP 4711.0 ON gpu-17 CANCELLED AT 2025-03-01T10:00:00 DUE TO TIME LIMIT ***",
         "4711.batch        batch                research         64  COMPLETED      0:0",
         "Slurm: the limit is the one that the job was given", supersedes=(*ENDED, "preempted"), advice=LONGER),
    Rule("batch-time-limit", r"PBS: job killed: (?:walltime|cput|ncpus)|TERM_(?:RUNLIMIT|DEADLINE)\b|"
         r"job killed after reaching LSF run ?time limit|"
         r"(?i:(?<!cpu )(?<!cpu)\b(?:wall ?(?:clock ?)?)?time ?limit (?:was |is |has been )?(?:reached|exceeded)|"
         r"exceeded (?:its |the )?(?:hard )?(?:wall ?(?:clock )?|h_rt ?)time ?limit|exceeded (?:its )?(?:requested )?wall ?time)",
         F.CONFIG, 0.92, "nobody",
         "=>> PBS: job killed: walltime 86417 exceeded limit 86400",
         "PBS: job started, walltime 24:00:00",
         "PBS, LSF, HTCondor, Grid Engine", supersedes=(*ENDED, "preempted"), advice=LONGER),
    Rule("batch-preempted", r"TERM_(?:PREEMPT|REQUEUE_ADMIN)\b|;Job deleted at request of root@|\bJob was (?:evicted|preempted)\.?(?:\s|$)", F.PREEMPTED, 0.92, "nobody",
         "TERM_PREEMPT: job killed after preemption.",
         "TERM_OWNER: job killed by owner.",
         "LSF, HTCondor", supersedes=(*ENDED, "preemption-said")),
    Rule("slurm-pending",
         r"(?:\bPD\b|\bPENDING\b).{0,160}\((?:Resources|Priority|QOS\w{2,50}|Assoc\w{2,50}|ReqNodeNotAvail|Nodes required|"
         r"Partition\w{2,40}|MaxGRES\w{2,40}|Reserv\w{2,40}|Licenses|BadConstraints|NodeDown|JobArrayTaskLimit|Max\w{4,40})|"
         r"\bJobState=PENDING Reason=(?!None|Dependency|BeginTime|JobHeld)\w{3,60}", F.SCHEDULING, 0.88, "nobody",
         "             11575724     gpu-a100 pretrain     user PD       0:00      8 (QOSMaxGRESPerUser)",
         "        11575725_[0-7]     gpu-a100 pretrain     user PD       0:00      1 (Dependency)",
         "squeue, scontrol show job; Slurm's table of pending reasons", supersedes=("unknown",)),
    Rule("slurm-reason",
         r"\b(?:QOS(?:Max|Grp|Min)(?:GRES|CPU|Node|Jobs|Submit|Wall|TRES|Memory|Billing)\w{0,40}|"
         r"Assoc(?:Grp|Max)(?:GRES|CPU|Node|Jobs|Submit|Wall|TRES|Mem|Billing)\w{0,40}|ReqNodeNotAvail|"
         r"Nodes required for job are DOWN, DRAINED)\b", F.SCHEDULING, 0.8, "nobody",
         "(ReqNodeNotAvail, UnavailableNodes:gpu-q-[2-47])",
         "ReqNodeList=gpu-q-[2-47] ExcNodeList=(null)",
         "Slurm's table of pending reasons", fallback=True),
    Rule("slurm-cannot-place",
         r"(?:Requested node configuration is not available|(?<!retrying \()Requested nodes are busy|violates accounting/QOS policy|"
         r"Requested partition configuration not available|Required (?:partition|node) not available|"
         r"Nodes required for job|Job dependency can never be satisfied|Requested reservation)", F.SCHEDULING, 0.82,
         "nobody",
         "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's size "
         "and/or time limits)",
         "sbatch: Submitted batch job 4711",
         "Slurm slurm_errno.c", fallback=True, advice="ask for what the partition and the account's limits allow"),
    Rule("slurm-wrong-request",
         r"(?:[Ii]nvalid (?:account or account/partition|partition (?:name )?specified|generic resource|qos spec|"
         r"feature spec|job array spec|wckey spec|license spec|cpu count|node count|-n|--)|User's group not permitted|"
         r"More processors requested than permitted|Requested time limit is invalid|Unable to open file \S{1,200}\.(?:sh|"
         r"sbatch|slurm)|[Nn]ode count specification invalid|No partition specified)", F.CONFIG, 0.9, "code",
         "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified",
         "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
         "Slurm slurm_errno.c", advice="correct account, partition, time or resources of the job"),
    Rule("slurm-revoked", r"(?:Job allocation \d{1,12} has been revoked|"
         r"allocation \d{1,12} (?:was )?revoked)", F.PREEMPTED, 0.5, "nobody",
         "salloc: Job allocation 4711 has been revoked.",
         "salloc: Granted job allocation 4711",
         "salloc, srun: taken away, without saying why", echo=True),
    Rule("slurm-controller-away",
         r"(?:Unable to contact slurm controller|Unable to confirm allocation|Socket timed out on send/recv operation|"
         r"Zero Bytes were transmitted or received|Slurm temporarily unable to accept job|"
         r"Slurm backup controller in standby|[Uu]nable to establish (?:control(?:ler)? machine|configuration source)|"
         r"slurm_\w{3,40}(?: error)?: (?:Connection (?:refused|timed out)|Unexpected message|Message (?:send|receive) fail|"
         r"Protocol authentication))", F.CONTROL_PLANE, 0.9, "nobody",
         "srun: error: Unable to confirm allocation for job 4711: Unable to contact slurm controller (connect failure)",
         "slurmctld: slurmctld version 23.11.4 started on cluster gpu",
         "Slurm slurm_errno.c", supersedes=("unknown", "rendezvous", "storage", "config"),
         advice="wait until slurmctld answers, submit again"),
    Rule("slurm-database-away",
         r"(?:failed to open persistent connection to|Sending PersistInit msg: |Problem talking to the database|"
         r"slurmdbd: (?:error: )?.{0,80}(?:refused|[Uu]nable to|fail)|\bDBD_[A-Z_]{3,40} fail|"
         r"accounting_storage/\w{3,20}: .{0,120}(?:refused|fail|gone away)|slurm(?:ctld|dbd)(?:\[\d{1,8}\])?: fatal: )", F.CONTROL_PLANE, 0.85, "nobody",
         "sacct: error: _open_persist_conn: failed to open persistent connection to host:slurmdbd:6819: Connection refused",
         "slurmdbd: slurmdbd version 23.11.4 started",
         "Slurm persist_conn.c, slurmdbd", supersedes=("unknown", "rendezvous", "config", "connection-refused")),
    Rule("munge",
         r"(?i)\bmunged?\b.{0,30}(?:encode|decode|credential|auth\w{0,12}) (?:failed|error|failure)|"
         r"(?:expired|invalid|rewound|replayed|unauthorized) credential|munge\.socket\.2|protocol authentication error|"
         r"if munged is up, restart", F.CONTROL_PLANE, 0.82, "nobody",
         "slurmctld: error: Munge decode failed: Expired credential",
         "munged: Starting munge-0.5.15 daemon (pid 612)",
         "munge and Slurm's auth/munge: keys or clocks of nodes differ, or munged is away",
         supersedes=("unknown", "rendezvous", "config"), advice="look at munged, its key and the clocks of the nodes"),
    Rule("slurm-launch-failed",
         r"Task launch for \S{1,60} failed on node (?P<peer>[\w.-]{1,80}): (?!Communication|.{0,40}(?:Host is down|[Tt]imed out))|Application launch failed: |"
         r"(?:launch_)?p_step_launch: \S{1,60} aborted before step completely launched|"
         r"slurmd could not connect IO|Job credential (?:expired|revoked)", F.CONTROL_PLANE, 0.55, "peer",
         "srun: error: Task launch for StepId=4711.0 failed on node gpu-17: Invalid job credential",
         "srun: launching StepId=4711.0 on host gpu-17, 8 tasks: [0-7]",
         "srun: slurmd did not take the step"),
    Rule("batch-server-away",
         r"(?:qsub|qstat|qdel|pbs_iff|pbsnodes): (?:cannot connect to (?:server|host)|.{0,80}errno=111)|"
         r"LSF is down\. Please wait|Cannot connect to LSF|[Bb]atch (?:system|daemon|service).{0,20}not responding|"
         r"error: unable to send message to qmaster|[Cc]ommlib (?:error|returns)|"
         r"Failed to connect to (?:the )?(?:schedd|condor_\w{3,20}|collector)", F.CONTROL_PLANE, 0.88, "nobody",
         "qsub: cannot connect to server pbs-1 (errno=111) Connection refused",
         "qsub: submitted 4711.pbs-1",
         "PBS, LSF, Grid Engine, HTCondor", supersedes=("unknown", "rendezvous", "connection-refused")),
)  # fmt: skip


CLOUD_TAKEN = (
    "process_killed",
    "collective_timeout",
    "rendezvous",
    "unknown",
    "node_lost",
    "scheduling",
    "control_plane",
)
"""What the ranks, the cluster and its scheduler say once a machine was taken back."""

CLOUD_RULES: tuple[Rule, ...] = (
    Rule("spot-notice",
         r"(?i)(?:spot instance (?:interruption|termination)|spot (?:interruption|termination|preemption|reclaim\w{0,4}) "
         r"(?:warning|notice|event|detected|received|was triggered)|spot ITN\b|preemptible .{0,40}terminat|"
         r"(?:interrupted|stopped|terminated|evicted)\b.{0,40}\bspot (?:interruption|reclaim|preemption)|(?:node|instance|vm|pod) .{0,60}due to (?:a )?spot (?:interruption|reclaim|eviction)|"
         r"scheduled maintenance event|termination notice|interruption notice)", F.PREEMPTED, 0.92, "nobody",
         "Spot instance interruption notice received, terminating at 10:02:00Z",
         "spot price updated",
         "cloud notices", supersedes=CLOUD_TAKEN),
    Rule("spot-event",
         r"\b(?:SpotInterrupted|InstanceSpotInterrupted|TerminatingOnInterruption|SPOT_ITN|SpotInstanceInterrupted)\b|"
         r"Server\.SpotInstance(?:Termination|Shutdown)|instance-terminated-(?:by-price|no-capacity|by-service)|"
         r"\"?instance-action\"?\W{1,6}(?:terminate|stop|hibernate)|\"action\": ?\"(?:terminate|stop|hibernate)\", ?\"time\"|"
         r"BID_EVICTED|\bVMEvicted\b|Instance (?:was )?outbid", F.PREEMPTED, 0.95, "nobody",
         "49m  Warning  SpotInterrupted  node/ip-10-1-3-41.ec2.internal  Karpenter takes the node away",
         "SpotToSpotConsolidation is disabled, can't replace a spot node with a spot node",
         "EC2, Karpenter, AWS node termination handler, Azure", supersedes=("spot-notice", *CLOUD_TAKEN)),
    Rule("gcp-preempted",
         r"(?i)termination is imminent|compute\.instances\.preempted|Instance was (?:preempted|terminated)|"
         r"instance/preempted\W{1,6}TRUE|TERMINATE_ON_HOST_MAINTENANCE|\b(?:tpu|vm|instance|machine)s? .{0,80}"
         r"(?:was|were|is|has been|have been|got) preempted\b|\"state\": ?\"PREEMPTED\"|state: PREEMPTED\b", F.PREEMPTED, 0.94,
         "nobody",
         "start-worker 2024/12/17 16:03:58 GCP Metadata Service says termination is imminent",
         "instance/preempted: FALSE",
         "Google Compute Engine's metadata server, audit log and TPU states", supersedes=CLOUD_TAKEN),
    Rule("azure-scheduled-event",
         r"\"?EventType\"?\s{0,2}[:=]\s{0,2}\"?(?:Preempt|Terminate|Redeploy|Reboot|Freeze)\b|"
         r"\b(?:Freeze|Reboot|Redeploy|Terminate|Preempt|VMEvent)Scheduled\s{1,12}True\b|"
         r"^(?:.{0,60}\s)?(?:Reboot|Redeploy|Terminate|Preempt)Scheduled\s{1,12}(?!False|Unknown)|"
         r"(?i:(?:low.priority|spot) (?:node|vm|virtual machine)s?\b.{0,60}(?:evicted|preempted|reclaimed)|"
         r"(?:virtual machine|vm|instance) .{0,60}(?:was|has been|is being) evicted)", F.PREEMPTED, 0.9,
         "nobody",
         "{\"EventId\": \"A1\", \"EventType\": \"Preempt\", \"ResourceType\": \"VirtualMachine\", \"Resources\": [\"gpu_7\"]}",
         "FreezeScheduled   False   Tue, 04 Mar 2025 10:00:00 +0000   NoFreezeScheduled   VM has no scheduled Freeze event",
         "Azure scheduled events, node problem detector of AKS", supersedes=CLOUD_TAKEN),
    Rule("power-key", r"systemd-logind.{0,20}Power key pressed|systemd-logind.{0,30}System is powering down|"
         r"\bPower key pressed(?: short)?\.?$", F.PREEMPTED, 0.6, "nobody",
         "systemd-logind[612]: Power key pressed.",
         "systemd-logind[612]: New session 12 of user root.",
         "ACPI: how a hypervisor tells a machine to shut down", supersedes=("process_killed", "collective_timeout")),
    Rule("host-maintenance",
         r"(?:instance-stop|instance-reboot|system-reboot|system-maintenance|SCHEDULED_EVENT)\b|"
         r"(?i:(?:host|node|vm|hardware|impactful|upcoming|planned) maintenance .{0,60}(?:start|begin|notice|scheduled|window|will)|"
         r"draining .{0,60}for maintenance|(?:node|instance) (?:is )?scheduled for (?:retirement|maintenance|termination))",
         F.PREEMPTED, 0.8, "nobody",
         "Added interruption event: Kind:SCHEDULED_EVENT Description: system-reboot will occur between 10:00 and 12:00",
         "no maintenance planned",
         "EC2 scheduled events, GKE and AKS maintenance", supersedes=CLOUD_TAKEN),
    Rule("node-drained",
         r"Node successfully cordoned and drained|^node/\S{1,100} (?:cordoned|drained|evicted)$|"
         r"^evicting pod \S{1,200}$|^pod/\S{1,200} evicted$|\bDraining node\b|"
         r"(?:Cordoned and drained|Draining and cordoning|Failed to drain) node|"
         r"\bEvicted\w{0,12}\s.{0,160}(?:[Dd]rain|Underutilized|Drifted|Consolidat|Expired)|"
         r"Disrupting \w{4,12}: (?:Drifted|Underutilized|Expired|Empty)|DisruptionTerminating", F.PREEMPTED, 0.75, "nobody",
         "INF Node successfully cordoned and drained node_name=gpu-7 reason=\"rebalance\"",
         "node/gpu-7 uncordoned",
         "kubectl drain, AWS node termination handler, Karpenter",
         supersedes=("process_killed", "collective_timeout", "scheduling")),
    Rule("no-capacity-aws",
         r"\bInsufficient(?:Instance|Host|Reserved\w{0,20}|Spot\w{0,12})Capacity\b|(?:Max\w{0,12}|Vcpu|Instance)LimitExceeded\b|"
         r"MaxSpotInstanceCountExceeded|SpotMaxPriceTooLow|UnfulfillableCapacity|ResourceLimitExceeded|"
         r"do not have sufficient \S{1,40} capacity|INSUFFICIENT_INSTANCE_CAPACITY|\bCapacityError\b|"
         r"(?:Unable|unable|[Ff]ailed) to provision requested (?:ML )?compute capacity|capacity-not-available", F.SCHEDULING, 0.94,
         "nobody",
         "An error occurred (InsufficientInstanceCapacity) when calling the RunInstances operation (reached max retries: 0)",
         "Instance capacity: 8 GPUs",
         "EC2, SageMaker error codes", supersedes=("config", "unknown", "user_code")),
    Rule("no-capacity-gcp",
         r"\b(?:ZONE_|REGION_)?RESOURCE_POOL_EXHAUSTED|does not have enough resources available to fulfill|GPU_STOCKOUT|"
         r"\bstockout\b|\bQUOTA_EXCEEDED\b|Quota '[A-Z0-9_a-z-]{3,80}' exceeded|VM_MIN_COUNT_NOT_REACHED|"
         r"Resources are insufficient in region|GCE (?:out of resources|quota exceeded)|There is no more capacity in the zone|"
         r"Insufficient capacity.{0,60}(?:zone|reservation|accelerator)", F.SCHEDULING, 0.94, "nobody",
         "Code: ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS, Message: The zone us-central1-a does not have enough resources",
         "ThreadPool exhausted its queue",
         "Google Compute Engine, Vertex AI, Cloud TPU", supersedes=("config", "unknown", "user_code")),
    Rule("no-capacity-azure",
         r"\b(?:Zonal)?AllocationFailed\b|Overconstrained(?:Zonal)?AllocationRequest|\bSkuNotAvailable\b|"
         r"Out of (?:host )?capacity\b|OperationNotAllowed.{0,200}[Qq]uota|"
         r"(?i:no (?:longer any )?(?:instances?|machines?|gpus?) (?:currently )?available (?:with|matching|in|that))|"
         r"There are no (?:longer any )?instances available", F.SCHEDULING, 0.9, "nobody",
         "Code=\"AllocationFailed\" Message=\"Allocation failed. We do not have sufficient capacity for the requested VM size\"",
         "allocation of the buffers succeeded",
         "Azure, Oracle Cloud, smaller GPU clouds", supersedes=("config", "unknown", "user_code")),
    Rule("provision-failed",
         r"Failed to (?:acquire|provision|get) (?:all )?(?:possible )?(?:launchable )?resources|ResourcesUnavailableError|"
         r"(?:Provision failed for|Failed to provision) .{0,80}(?:Trying other|all possible)|NoClusterLaunchedError|"
         r"Maximum number of (?:retries|launch attempts) .{0,40}(?:cluster|resources)|"
         r"Cluster provisioning failed|No (?:launchable )?resource(?:s)? (?:satisfying|that satisf)", F.SCHEDULING, 0.85, "nobody",
         "sky.exceptions.ResourcesUnavailableError: Failed to acquire resources in all zones in eastus",
         "Successfully provisioned or found existing instances.",
         "SkyPilot", supersedes=("config", "unknown", "user_code")),
)  # fmt: skip


PLATFORM_TAKEN = ("process_killed", "collective_timeout", "rendezvous", "unknown", "node_lost", "scheduling")

PLATFORM_RULES: tuple[Rule, ...] = (
    Rule("preemption-said",
         r"(?i)\b(?:received|caught|got|detected|handling|after|due to|because of)\b (?:an? |the )?(?:[\w-]{1,20} )?preemption\b"
         r"(?! (?:is |was )?(?:disabled|enabled|policy|handler)| \*\*\*)|\bpreemption (?:was |is |has been )?(?:detected|received|imminent|requested)\b|"
         r"\bpreemption (?:signal|notice|notification|warning|event|request)s? "
         r"(?:was |were |is |has been )?(?:received|detected|caught|arrived|sent)|"
         r"\b(?:job|worker|node|cluster|run|trial|task|pod|replica|allocation|experiment|workload|actor|container)s?\b "
         r".{0,50}\b(?:is|was|were|has been|have been|got|being) (?:forcibly )?preempted\b(?!,? or |/)|"
         r"\b(?:job|worker|node|vm|instance|spot|tpu|task|pod|replica|allocation)s?\b preempted\b|"
         r"\bpreempted[,:;] ?(?:recover|requeu|restart|reschedul|retry|sav|exit)", F.PREEMPTED, 0.92, "nobody",
         "(bert-qa pid=920210) I 05-04 00:52:46 controller.py:100] The cluster is preempted.",
         "preemption: 0/12 nodes are available: 12 No preemption victims found for incoming pod.",
         "SkyPilot, Determined, Ray, NeMo, Modal and others", supersedes=PLATFORM_TAKEN),
    Rule("ray-preempted", r"\bforcibly preempted\b|terminated (?:un)?expectedly: .{0,80}preempt|NodePreempted|Actor died by preemption|preempted_node_ids|"
         r"AUTOSCALER_DRAIN_PREEMPTED|DRAIN_NODE_REASON_PREEMPTION", F.PREEMPTED, 0.95, "nobody",
         "(gcs_server) gcs_node_manager.cc:333: Node 12ab was forcibly preempted",
         "(gcs_server) gcs_node_manager.cc:333: Node 12ab was drained because it was idle",
         "Ray's reasons of a node's death",
         supersedes=("preemption-said", "ray-node-dead", "python-exception", *PLATFORM_TAKEN)),
    Rule("asked-to-leave",
         r"(?i)\bjob \S{1,40} (?:has been|was|is being) requeued|\brequeu(?:e?ing) (?:slurm )?job\b|auto-requeue signal|"
         r"\b(?:received|caught|got|bypassing|handling) (?:signal )?(?:SIGUSR[12]|SIGTERM)\b.{0,60}(?:sav|checkpoint|requeu)|"
         r"\b(?:SIGTERM|SIGUSR[12]) (?:was )?received\b.{0,60}(?:checkpoint|sav|requeu)|bypassing sigterm|"
         r"\bspot (?:reclamation|interruption)\b(?! handler)|interrupted by (?:amazon )?(?:ec2 )?spot|\bdue to node drain\b|"
         r"\bhas state PREEMPTED\b|\bevicting pod \S|\bnode \S{1,80} is being (?:cordoned and )?drained", F.PREEMPTED, 0.7, "nobody",
         "[rank0] SIGTERM received, will checkpoint at the next step and exit",
         "SIGTERM handler installed: it will checkpoint",
         "Slurm, Lightning, submitit, kubectl drain, clouds: the place is needed or goes away",
         supersedes=("process_killed", "python-exception", "unknown"), fallback=True),
    Rule("recovering-spot", r"Cluster is preempted|\bRECOVERING\b.{0,60}(?:spot|preempt)|=== Recovering\.{3} ===|"
         r"Runner interrupted due to worker preemption", F.PREEMPTED, 0.85, "nobody",
         "(bert-qa pid=920210) I 05-04 00:52:46 spot_state.py:99] === Recovering... ===",
         "Recovering from checkpoint step 200",
         "SkyPilot managed jobs, Modal", supersedes=("preemption-said", *PLATFORM_TAKEN)),
    Rule("told-to-save-and-leave",
         r"(?i)exiting program after receiving SIGTERM|"
         r"\b(?:received|caught|got|handling)\b (?:a |signal |signals\.|stop signal )?(?:SIGTERM|SIGUSR[12]|SIGCONT|signal 15|signal 10|"
         r"termination signal|shutdown signal)\b.{0,80}(?:sav|checkpoint|graceful|requeue|will stop|stop(?:ping)? after)|"
         r"checkpoint\w{0,4} .{0,40}(?:before|due to) (?:SIGTERM|termination|eviction|time limit)|"
         r"(?:approaching|reached|near(?:ing)?|exceed(?:ed|ing)) (?:the )?(?:job |slurm |walltime |wall )?time limit.{0,60}"
         r"(?:sav|checkpoint|exit|stop)", F.PREEMPTED, 0.75, "nobody",
         "[default0]:[exiting program after receiving SIGTERM.] datetime: 2026-09-06 17:57:10",
         "SIGTERM handler installed, saving every 100 steps",
         "Megatron-LM's signal handler and others: an outside notice was obeyed",
         supersedes=("process_killed", "collective_timeout", "elastic-sigterm", "launcher-told-to-end")),
    Rule("asked-to-stop",
         r"Trial \d{1,9} .{0,60}was requested to terminate|[Aa]llocation .{0,60}(?:preempted|asked to (?:stop|release))|"
         r"(?:run|job|training) was (?:stopped|cancell?ed|killed|terminated) by (?:the )?(?:scheduler|platform|administrator|system)|"
         r"workflow shutdown with strategy: +(?:Stop|Terminate)|\bpod deleted\b|"
         r"MaxWaitTimeExceeded", F.PREEMPTED, 0.72,
         "nobody",
         "<info> [2022-05-09 22:53:22] Trial 1311 (Experiment 1192) was requested to terminate",
         "<info> [2022-05-09 22:53:22] Trial 1311 (Experiment 1192) was assigned to an agent",
         "Determined, Argo Workflows, Kubernetes deadlines, SageMaker",
         supersedes=("process_killed", "collective_timeout")),
    Rule("job-deadline",
         r"(?:Job|Pod) was active (?:on the node )?longer than (?:the )?specified (?:active )?deadline|activeDeadlineSeconds.{0,30}exceeded|"
         r"MaxRuntimeExceeded|exceeded the maximum (?:run ?time|running time|duration)", F.CONFIG, 0.8, "nobody",
         "Warning  DeadlineExceeded  1m  job-controller  Job was active longer than specified deadline",
         "activeDeadlineSeconds: 3600",
         "Kubernetes, SageMaker: a limit of the job's own", supersedes=("process_killed", "collective_timeout", "preempted", "deadline"),
         advice=LONGER),
    Rule("ray-no-room",
         r"No available node types can fulfill|cannot be scheduled right now|Infeasible (?:resource|task|actor|placement)|"
         r"(?:cannot|can't|can not) (?:be satisfied|be scheduled|fulfill).{0,80}(?:resource|node|placement|demand)|"
         r"[Pp]lacement group .{0,80}(?:infeasible|timed out|cannot be (?:created|placed))|PlacementGroupSchedulingError|"
         r"(?:resource )?demands? (?:cannot|can't) be|Insufficient cluster resources|pending placement groups|"
         r"cluster does not have enough resources|Resource request .{0,80}infeasible", F.SCHEDULING, 0.88, "nobody",
         "(autoscaler +34s) Error: No available node types can fulfill resource request defaultdict(<class 'float'>, "
         "{'CPU': 8.0, 'GPU': 8.0}). Add suitable node types to this cluster to resolve this issue.",
         "(autoscaler +5s) Resized to 16 CPUs, 8 GPUs.",
         "Ray's autoscaler and placement groups", supersedes=("python-exception", "unknown", "user_code")),
    Rule("ray-too-few-gpus",
         r"Total available GPUs [\d.]{1,9} is less than total desired GPUs|"
         r"[Nn]umber of required GPUs exceeds the total number of available GPUs|"
         r"Current node has no GPU available\.|(?:not|aren't) enough (?:free )?(?:GPUs|slots|nodes|devices) (?:available|in the)|"
         r"[Ii]nsufficient (?:number of )?(?:GPUs|slots) (?:available|in)", F.SCHEDULING, 0.6, "nobody",
         "ValueError: Total available GPUs 1.0 is less than total desired GPUs 8",
         "Total available GPUs 8.0, desired 8",
         "verl, vLLM, Open MPI: fewer GPUs than were asked for", supersedes=("python-exception",)),
    Rule("determined-no-slots",
         r"(?:resource pool|cluster) .{0,80}(?:cannot|can't|does not|doesn't) (?:fulfill|have enough|satisfy)|"
         r"request unfulfillable|slots requested exceeds (?:cluster )?capacity", F.SCHEDULING, 0.85, "nobody",
         "launching a job with 64 slots: request unfulfillable, slots requested exceeds cluster capacity",
         "resource pool default has 64 slots",
         "Determined"),
    Rule("ray-gcs-away",
         r"Failed to connect to GCS|Unable to connect to (?:the )?GCS|GCS may have been killed|"
         r"Timed out (?:while )?waiting for GCS|gcs_(?:server|rpc_client|client)\S{0,40} .{0,120}(?:GCS (?:server )?is (?:down|not)|"
         r"[Ff]ailed to (?:reconnect|check_gcs_alive|connect))|Could not (?:connect to|find any running) [Rr]ay", F.CONTROL_PLANE,
         0.55, "nobody",
         "[2025-12-19 15:55:39,521 E 3044 30260] rpc_client.h:203: Failed to connect to GCS within 60 seconds. GCS may have been killed.",
         "Connected to Ray cluster. View the dashboard at 127.0.0.1:8265",
         "Ray: the head's control store; mostly gone after the job's own end", supersedes=("python-exception",),
         echo=True),
)  # fmt: skip
