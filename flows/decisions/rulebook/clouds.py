"""Clouds: machines taken back or serviced, and machines that cannot be had."""

from __future__ import annotations

from flows.decisions.rules import Rule
from profiles.vocabulary import FaultClass

F = FaultClass
TAKEN = ("process_killed", "collective_timeout", "rendezvous", "unknown", "node_lost", "scheduling", "control_plane")
"""What the ranks, the cluster and its scheduler say once a machine was taken back."""

RULES: tuple[Rule, ...] = (
    Rule("spot-notice",
         r"(?i)(?:spot instance (?:interruption|termination)|spot (?:interruption|termination|preemption|reclaim\w{0,4}) "
         r"(?:warning|notice|event|detected|received|was triggered)|spot ITN\b|preemptible .{0,40}terminat|"
         r"(?:interrupted|stopped|terminated|evicted)\b.{0,40}\bspot (?:interruption|reclaim|preemption)|(?:node|instance|vm|pod) .{0,60}due to (?:a )?spot (?:interruption|reclaim|eviction)|"
         r"scheduled maintenance event|termination notice|interruption notice)", F.PREEMPTED, 0.92, "nobody",
         "Spot instance interruption notice received, terminating at 10:02:00Z",
         "spot price updated",
         "cloud notices", literals=("interruption", "preemptible ", "scheduled maintena", "spot ", "termination notice"), supersedes=TAKEN),
    Rule("spot-event",
         r"\b(?:SpotInterrupted|InstanceSpotInterrupted|TerminatingOnInterruption|SPOT_ITN|SpotInstanceInterrupted)\b|"
         r"Server\.SpotInstance(?:Termination|Shutdown)|instance-terminated-(?:by-price|no-capacity|by-service)|"
         r"\"?instance-action\"?\W{1,6}(?:terminate|stop|hibernate)|\"action\": ?\"(?:terminate|stop|hibernate)\", ?\"time\"|"
         r"BID_EVICTED|\bVMEvicted\b|Instance (?:was )?outbid", F.PREEMPTED, 0.95, "nobody",
         "49m  Warning  SpotInterrupted  node/ip-10-1-3-41.ec2.internal  Karpenter takes the node away",
         "SpotToSpotConsolidation is disabled, can't replace a spot node with a spot node",
         "EC2, Karpenter, AWS node termination handler, Azure",
         literals=("\"action\":", "bid_evicted", "instance", "spot_itn", "spotinterrupted", "terminatingoninter", "vmevicted"),
         supersedes=("spot-notice", *TAKEN)),
    Rule("gcp-preempted",
         r"(?i)termination is imminent|compute\.instances\.preempted|Instance was (?:preempted|terminated)|"
         r"instance/preempted\W{1,6}TRUE|TERMINATE_ON_HOST_MAINTENANCE|\b(?:tpu|vm|instance|machine)s? .{0,80}"
         r"(?:was|were|is|has been|have been|got) preempted\b|\"state\": ?\"PREEMPTED\"|state: PREEMPTED\b", F.PREEMPTED, 0.94,
         "nobody",
         "start-worker 2024/12/17 16:03:58 GCP Metadata Service says termination is imminent",
         "instance/preempted: FALSE",
         "Google Compute Engine's metadata server, audit log and TPU states",
         literals=("preempted", "terminat"), supersedes=TAKEN),
    Rule("azure-scheduled-event",
         r"\"?EventType\"?\s{0,2}[:=]\s{0,2}\"?(?:Preempt|Terminate|Redeploy|Reboot|Freeze)\b|"
         r"\b(?:Freeze|Reboot|Redeploy|Terminate|Preempt|VMEvent)Scheduled\s{1,12}True\b|"
         r"^(?:.{0,60}\s)?(?:Reboot|Redeploy|Terminate|Preempt)Scheduled\s{1,12}(?!False|Unknown)|"
         r"(?i:(?:low.priority|spot) (?:node|vm|virtual machine)s?\b.{0,60}(?:evicted|preempted|reclaimed)|"
         r"(?:virtual machine|vm|instance) .{0,60}(?:was|has been|is being) evicted)", F.PREEMPTED, 0.9,
         "nobody",
         "{\"EventId\": \"A1\", \"EventType\": \"Preempt\", \"ResourceType\": \"VirtualMachine\", \"Resources\": [\"gpu_7\"]}",
         "FreezeScheduled   False   Tue, 04 Mar 2025 10:00:00 +0000   NoFreezeScheduled   VM has no scheduled Freeze event",
         "Azure scheduled events, node problem detector of AKS", literals=("eventtype", "has been evicted", "is being evicted", "priority", "scheduled", "spot", "was evicted"),
         supersedes=TAKEN),
    Rule("power-key", r"systemd-logind.{0,20}Power key pressed|systemd-logind.{0,30}System is powering down|"
         r"\bPower key pressed(?: short)?\.?$", F.PREEMPTED, 0.6, "nobody",
         "systemd-logind[612]: Power key pressed.",
         "systemd-logind[612]: New session 12 of user root.",
         "ACPI: how a hypervisor tells a machine to shut down", literals=("power key pressed", "system is powering"),
         supersedes=("process_killed", "collective_timeout")),
    Rule("host-maintenance",
         r"(?:instance-stop|instance-reboot|system-reboot|system-maintenance|SCHEDULED_EVENT)\b|"
         r"(?i:(?:host|node|vm|hardware|impactful|upcoming|planned) maintenance .{0,60}(?:start|begin|notice|scheduled|window|will)|"
         r"draining .{0,60}for maintenance|(?:node|instance) (?:is )?scheduled for (?:retirement|maintenance|termination))",
         F.PREEMPTED, 0.8, "nobody",
         "Added interruption event: Kind:SCHEDULED_EVENT Description: system-reboot will occur between 10:00 and 12:00",
         "no maintenance planned",
         "EC2 scheduled events, GKE and AKS maintenance",
         literals=("instance-reboot", "instance-stop", "maintenance", "scheduled", "system-reboot"), supersedes=TAKEN),
    Rule("node-drained",
         r"Node successfully cordoned and drained|^node/\S{1,100} (?:cordoned|drained|evicted)$|"
         r"^evicting pod \S{1,200}$|^pod/\S{1,200} evicted$|\bDraining node\b|"
         r"(?:Cordoned and drained|Draining and cordoning|Failed to drain) node|"
         r"\bEvicted\w{0,12}\s.{0,160}(?:[Dd]rain|Underutilized|Drifted|Consolidat|Expired)|"
         r"Disrupting \w{4,12}: (?:Drifted|Underutilized|Expired|Empty)|DisruptionTerminating", F.PREEMPTED, 0.75, "nobody",
         "INF Node successfully cordoned and drained node_name=gpu-7 reason=\"rebalance\"",
         "node/gpu-7 uncordoned",
         "kubectl drain, AWS node termination handler, Karpenter",
         literals=(" drained", "cordoned", "disrupting ", "disruptionterminat", "draining and cordo", "draining node", "evicted", "evicting pod ", "failed to drain no"),
         supersedes=("process_killed", "collective_timeout", "scheduling")),
    Rule("no-capacity-aws",
         r"\bInsufficient(?:Instance|Host|Reserved\w{0,20}|Spot\w{0,12})Capacity\b|(?:Max\w{0,12}|Vcpu|Instance)LimitExceeded\b|"
         r"MaxSpotInstanceCountExceeded|SpotMaxPriceTooLow|UnfulfillableCapacity|ResourceLimitExceeded|"
         r"do not have sufficient \S{1,40} capacity|INSUFFICIENT_INSTANCE_CAPACITY|\bCapacityError\b|"
         r"(?:Unable|unable|[Ff]ailed) to provision requested (?:ML )?compute capacity|capacity-not-available", F.SCHEDULING, 0.94,
         "nobody",
         "An error occurred (InsufficientInstanceCapacity) when calling the RunInstances operation (reached max retries: 0)",
         "Instance capacity: 8 GPUs",
         "EC2, SageMaker error codes",
         literals=("capacity", "do not have suffic", "insufficient", "spotmaxpricetoolow", "texceeded"), supersedes=("config", "unknown", "user_code")),
    Rule("no-capacity-gcp",
         r"\b(?:ZONE_|REGION_)?RESOURCE_POOL_EXHAUSTED|does not have enough resources available to fulfill|GPU_STOCKOUT|"
         r"\bstockout\b|\bQUOTA_EXCEEDED\b|Quota '[A-Z0-9_a-z-]{3,80}' exceeded|VM_MIN_COUNT_NOT_REACHED|"
         r"Resources are insufficient in region|GCE (?:out of resources|quota exceeded)|There is no more capacity in the zone|"
         r"Insufficient capacity.{0,60}(?:zone|reservation|accelerator)", F.SCHEDULING, 0.94, "nobody",
         "Code: ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS, Message: The zone us-central1-a does not have enough resources",
         "ThreadPool exhausted its queue",
         "Google Compute Engine, Vertex AI, Cloud TPU",
         literals=("exceeded", "insufficient capac", "resource", "stockout", "there is no more c", "vm_min_count_not_r"),
         supersedes=("config", "unknown", "user_code")),
    Rule("no-capacity-azure",
         r"\b(?:Zonal)?AllocationFailed\b|Overconstrained(?:Zonal)?AllocationRequest|\bSkuNotAvailable\b|"
         r"Out of (?:host )?capacity\b|OperationNotAllowed.{0,200}[Qq]uota|"
         r"(?i:no (?:longer any )?(?:instances?|machines?|gpus?) (?:currently )?available (?:with|matching|in|that))|"
         r"There are no (?:longer any )?instances available", F.SCHEDULING, 0.9, "nobody",
         "Code=\"AllocationFailed\" Message=\"Allocation failed. We do not have sufficient capacity for the requested VM size\"",
         "allocation of the buffers succeeded",
         "Azure, Oracle Cloud, smaller GPU clouds",
         literals=("allocation", "available", "operationnotallowe", "out of capacity", "out of host capaci"),
         supersedes=("config", "unknown", "user_code")),
    Rule("provision-failed",
         r"Failed to (?:acquire|provision|get) (?:all )?(?:possible )?(?:launchable )?resources|ResourcesUnavailableError|"
         r"(?:Provision failed for|Failed to provision) .{0,80}(?:Trying other|all possible)|NoClusterLaunchedError|"
         r"Maximum number of (?:retries|launch attempts) .{0,40}(?:cluster|resources)|"
         r"Cluster provisioning failed|No (?:launchable )?resource(?:s)? (?:satisfying|that satisf)", F.SCHEDULING, 0.85, "nobody",
         "sky.exceptions.ResourcesUnavailableError: Failed to acquire resources in all zones in eastus",
         "Successfully provisioned or found existing instances.",
         "SkyPilot", literals=("maximum number of ", "noclusterlaunchede", "provision", "resource"),
         supersedes=("config", "unknown", "user_code")),
)  # fmt: skip
