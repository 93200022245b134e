"""Platforms that run trainings: Ray, SkyPilot, Determined, trainers that were told to leave."""

from __future__ import annotations

from flows.decisions.rules import Rule
from profiles.vocabulary import FaultClass

F = FaultClass
TAKEN = ("process_killed", "collective_timeout", "rendezvous", "unknown", "node_lost", "scheduling")

RULES: tuple[Rule, ...] = (
    Rule("preemption-said",
         r"(?i)\b(?:received|caught|got|detected|handling|after|due to|because of)\b (?:an? |the )?(?:[\w-]{1,20} )?preemption\b"
         r"(?! (?:is |was )?(?:disabled|enabled|policy|handler)| \*\*\*)|\bpreemption (?:was |is |has been )?(?:detected|received|imminent|requested)\b|"
         r"\bpreemption (?:signal|notice|notification|warning|event|request)s? "
         r"(?:was |were |is |has been )?(?:received|detected|caught|arrived|sent)|"
         r"\b(?:job|worker|node|cluster|run|trial|task|pod|replica|allocation|experiment|workload|actor|container)s?\b "
         r".{0,50}\b(?:is|was|were|has been|have been|got|being) (?:forcibly )?preempted\b(?!,? or )|"
         r"\b(?:job|worker|node|vm|instance|spot|tpu|task|pod|replica|allocation)s?\b preempted\b|"
         r"\bpreempted[,:;] ?(?:recover|requeu|restart|reschedul|retry|sav|exit)", F.PREEMPTED, 0.92, "nobody",
         "(bert-qa pid=920210) I 05-04 00:52:46 controller.py:100] The cluster is preempted.",
         "preemption: 0/12 nodes are available: 12 No preemption victims found for incoming pod.",
         "SkyPilot, Determined, Ray, NeMo, Modal and others", literals=("preempted", "preemption"), supersedes=TAKEN),
    Rule("ray-preempted", r"\bforcibly preempted\b|terminated (?:un)?expectedly: .{0,80}preempt|NodePreempted|Actor died by preemption|preempted_node_ids|"
         r"AUTOSCALER_DRAIN_PREEMPTED|DRAIN_NODE_REASON_PREEMPTION", F.PREEMPTED, 0.95, "nobody",
         "(gcs_server) gcs_node_manager.cc:333: Node 12ab was forcibly preempted",
         "(gcs_server) gcs_node_manager.cc:333: Node 12ab was drained because it was idle",
         "Ray's reasons of a node's death", literals=("actor died by pree", "drain_node_reason_", "preempted", "terminated expecte", "terminated unexpec"), supersedes=("preemption-said", "ray-node-dead", "python-exception", *TAKEN)),
    Rule("recovering-spot", r"Cluster is preempted|\bRECOVERING\b.{0,60}(?:spot|preempt)|=== Recovering\.{3} ===|"
         r"Runner interrupted due to worker preemption", F.PREEMPTED, 0.85, "nobody",
         "(bert-qa pid=920210) I 05-04 00:52:46 spot_state.py:99] === Recovering... ===",
         "Recovering from checkpoint step 200",
         "SkyPilot managed jobs, Modal", literals=("cluster is preempt", "recovering", "runner interrupted"),
         supersedes=("preemption-said", *TAKEN)),
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
         literals=("caught ", "checkpoint", "exiting program af", "got ", "handling ", "received ", "time limit"),
         supersedes=("process_killed", "collective_timeout", "elastic-sigterm", "launcher-told-to-end")),
    Rule("asked-to-stop",
         r"Trial \d{1,9} .{0,60}was requested to terminate|[Aa]llocation .{0,60}(?:preempted|asked to (?:stop|release))|"
         r"(?:run|job|training) was (?:stopped|cancell?ed|killed|terminated) by (?:the )?(?:scheduler|platform|administrator|system)|"
         r"workflow shutdown with strategy: +(?:Stop|Terminate)|\bpod deleted\b|"
         r"(?:Job|Pod) was active (?:on the node )?longer than (?:the )?specified (?:active )?deadline|"
         r"MaxRuntimeExceeded|MaxWaitTimeExceeded|exceeded the maximum (?:run ?time|running time|duration)", F.PREEMPTED, 0.72,
         "nobody",
         "<info> [2022-05-09 22:53:22] Trial 1311 (Experiment 1192) was requested to terminate",
         "<info> [2022-05-09 22:53:22] Trial 1311 (Experiment 1192) was assigned to an agent",
         "Determined, Argo Workflows, Kubernetes deadlines, SageMaker",
         literals=("allocation ", "e longer than", "exceeded", "pod deleted", "terminate", "was cancel", "was killed by", "was stopped by", "workflow shutdown "),
         supersedes=("process_killed", "collective_timeout")),
    Rule("ray-no-room",
         r"No available node types can fulfill|cannot be scheduled right now|Infeasible (?:resource|task|actor|placement)|"
         r"(?:cannot|can't|can not) (?:be satisfied|be scheduled|fulfill).{0,80}(?:resource|node|placement|demand)|"
         r"[Pp]lacement group .{0,80}(?:infeasible|timed out|cannot be (?:created|placed))|PlacementGroupSchedulingError|"
         r"(?:resource )?demands? (?:cannot|can't) be|Insufficient cluster resources|pending placement groups|"
         r"cluster does not have enough resources|Resource request .{0,80}infeasible", F.SCHEDULING, 0.88, "nobody",
         "(autoscaler +34s) Error: No available node types can fulfill resource request defaultdict(<class 'float'>, "
         "{'CPU': 8.0, 'GPU': 8.0}). Add suitable node types to this cluster to resolve this issue.",
         "(autoscaler +5s) Resized to 16 CPUs, 8 GPUs.",
         "Ray's autoscaler and placement groups",
         literals=("can not be satisfi", "can not be schedul", "can't be", "cannot be", "infeasible", "no available node ", "placement", "resource", "t fulfill"), supersedes=("python-exception", "unknown", "user_code")),
    Rule("ray-too-few-gpus",
         r"Total available GPUs [\d.]{1,9} is less than total desired GPUs|"
         r"[Nn]umber of required GPUs exceeds the total number of available GPUs|"
         r"Current node has no GPU available\.|(?:not|aren't) enough (?:free )?(?:GPUs|slots|nodes|devices) (?:available|in the)|"
         r"[Ii]nsufficient (?:number of )?(?:GPUs|slots) (?:available|in)", F.SCHEDULING, 0.6, "nobody",
         "ValueError: Total available GPUs 1.0 is less than total desired GPUs 8",
         "Total available GPUs 8.0, desired 8",
         "verl, vLLM, Open MPI: fewer GPUs than were asked for",
         literals=(" is less than tota", "current node has n", "insufficient", "number of required", "t enough"), supersedes=("python-exception",)),
    Rule("determined-no-slots",
         r"(?:resource pool|cluster) .{0,80}(?:cannot|can't|does not|doesn't) (?:fulfill|have enough|satisfy)|"
         r"request unfulfillable|slots requested exceeds (?:cluster )?capacity", F.SCHEDULING, 0.85, "nobody",
         "launching a job with 64 slots: request unfulfillable, slots requested exceeds cluster capacity",
         "resource pool default has 64 slots",
         "Determined", literals=("cluster ", "request unfulfilla", "resource pool ", "slots requested ex")),
    Rule("ray-gcs-away",
         r"Failed to connect to GCS|Unable to connect to (?:the )?GCS|GCS may have been killed|"
         r"Timed out (?:while )?waiting for GCS|gcs_(?:server|rpc_client|client)\S{0,40} .{0,120}(?:GCS (?:server )?is (?:down|not)|"
         r"[Ff]ailed to (?:reconnect|check_gcs_alive|connect))|Could not (?:connect to|find any running) [Rr]ay", F.CONTROL_PLANE,
         0.55, "nobody",
         "[2025-12-19 15:55:39,521 E 3044 30260] rpc_client.h:203: Failed to connect to GCS within 60 seconds. GCS may have been killed.",
         "Connected to Ray cluster. View the dashboard at 127.0.0.1:8265",
         "Ray: the head's control store; mostly gone after the job's own end", literals=("connect to", "could not find any", "gcs may have been ", "gcs_client", "gcs_rpc_client", "gcs_server", "timed out waiting ", "timed out while wa"),
         supersedes=("python-exception",), echo=True),
)  # fmt: skip
