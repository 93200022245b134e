"""Schedulers and autoscalers of clusters: work that waits because nothing has room for it."""

from __future__ import annotations

from flows.decisions.rules import Rule
from profiles.vocabulary import FaultClass

F = FaultClass

RULES: tuple[Rule, ...] = (
    Rule("unschedulable",
         r"\b\d+/\d+ nodes are (?:un)?available: |[Nn]o nodes (?:are )?available (?:to schedule|that match)|"
         r"all nodes are unavailable: |FailedScheduling|\bPodUnschedulable\b|Cannot schedule pods", F.SCHEDULING, 0.88, "nobody",
         "0/4 nodes are available: 1 node(s) had untolerated taint {primus-flows.io/quarantine: fabric}, 3 "
         "Insufficient amd.com/gpu.",
         "all nodes are available",
         "kube-scheduler", literals=("available", "cannot schedule po", "failedscheduling", "podunschedulable"),
         supersedes=("rendezvous", "unknown")),
    Rule("batch-queued",
         r"^Estimated Rsv based start in {2,40}\S|^INFO: {1,4}cannot determine start time for job", F.SCHEDULING, 0.6, "nobody",
         "Estimated Rsv based start in              1:01:07:42 on Mon Feb 24 08:04:08",
         "Estimated Rsv based completion in         2:01:07:42 on Tue Feb 25 08:04:08",
         "Maui, Moab: jobs that wait", literals=("estimated rsv", "cannot determine start")),
    Rule("gang-unschedulable",
         r"\b\d+/\d+ tasks in gang unschedulable|[Pp]od ?group (?:\S{1,120} )?is (?:not ready, |unschedulable)|"
         r"(?:queue|namespace) .{0,60}(?:resource quota insufficient|overused|over(?:used)? capability)|"
         r"\bPodGroup\S{0,80} .{0,40}(?:Unschedulable|NotEnoughResources)|"
         r"(?:rejected by|cannot find enough) .{0,60}(?:sibling|minMember|permit)", F.SCHEDULING, 0.88, "nobody",
         "Warning  FailedSchedule  111s  volcano  10/16 tasks in gang unschedulable: job is not ready, 10 minAvailable",
         "Normal   Scheduled  12s  volcano  pod group is ready",
         "Volcano, scheduler-plugins' coscheduling", literals=(" tasks in gang uns", "cannot find enough", "is not ready, ", "is unschedulable", "over capability", "overused", "podgroup", "rejected by ", "resource quota ins"),
         supersedes=("unschedulable", "rendezvous", "unknown")),
    Rule("kueue-pending",
         r"(?:couldn't assign flavors to pod set|insufficient (?:unused )?quota|"
         r"[Ww]orkload .{0,80}exceeds? (?:the )?maximum capacity|request > maximum capacity|borrowing limit for \S{1,60} .{0,80}exceeded|"
         r"topology \"[^\"]{1,80}\" (?:doesn't allow|allows) to fit|(?:Cluster|Local)Queue \S{1,80} is (?:inactive|stopped)|"
         r"[Ww]orkload (?:didn't|no longer) fit)", F.SCHEDULING, 0.88, "nobody",
         "couldn't assign flavors to pod set main: insufficient unused quota for amd.com/gpu in flavor "
         "mi300x, 8 more needed",
         "Workload admitted",
         "Kueue conditions", literals=(" is inactive", " is stopped", "borrowing limit fo", "couldn't assign fl", "insufficient quota", "insufficient unuse", "topology \"", "workload didn't fi", "workload no longer", "ximum capacity"),
         supersedes=("rendezvous", "unknown")),
    Rule("pods-ready-timeout", r"(?:PodsReadyTimeout|Exceeded the PodsReady timeout|RequeuingLimitExceeded)",
         F.SCHEDULING, 0.85, "nobody",
         "Exceeded the PodsReady timeout default/jobset-demo-a1",
         "PodsReady is true",
         "Kueue", literals=("exceeded the podsr", "podsreadytimeout", "requeuinglimitexce")),
    Rule("over-queue-quota",
         r"(?:NonPreemptibleOverQuota|[Ww]orkload is over (?:the )?(?:quota|limit)|quota has reached the allowable limit|"
         r"OverLimit: |Workload requested \S{1,20} \S{1,20}, but \S{1,80} (?:quota|limit) is|"
         r"[Rr]esources were not found for \d+ pods|(?:Node-?[Pp]ool|[Cc]luster) does not have (?:enough|sufficient) resources|"
         r"no nodes with enough resources were found)", F.SCHEDULING, 0.9, "nobody",
         "NonPreemptibleOverQuota: Non-preemptible workload is over quota. Workload requested 8 GPUs, but research quota "
         "is 4 GPUs, while 4 GPUs are already allocated for non-preemptible pods.",
         "Pod research/train-0 is over the wall",
         "KAI scheduler, Run:ai", literals=("nonpreemptibleover", "overlimit: ", "quota has reached ", "resources", "workload"),
         supersedes=("unschedulable", "rendezvous", "unknown")),
    Rule("yunikorn-pending",
         r"does not fit in queue '|is pending for the requested resources become available|"
         r"Application \S{1,120} (?:was )?rejected|exceed(?:s|ed) (?:max|configured) (?:queue|application|user) (?:resource|quota)",
         F.SCHEDULING, 0.87, "nobody",
         "Request 'alloc-0' does not fit in queue 'root.research' (requested map[nvidia.com/gpu:8], available map[nvidia.com/gpu:0])",
         "Application app-1 accepted in queue root.research",
         "Apache YuniKorn", literals=("application ", "configured", "does not fit in qu", "exceeded max", "exceeds max", "resource"),
         supersedes=("unschedulable", "unknown")),
    Rule("quota-exceeded", r"exceeded quota\b|[Ff]orbidden: .{0,120}maximum \w{2,20} usage per|QuotaExceeded\b|"
         r"[Qq]uota .{0,60}(?:would be|has been|was) exceeded|^(?:.{0,80}[Ee]rror: .{0,60})?(?<!isk )Quota exceeded\.?(?: for |$)", F.SCHEDULING, 0.82, "nobody",
         "pods \"demo-a1-0\" is forbidden: exceeded quota: team, requested: requests.nvidia.com/gpu=8, used: 64, limited: 64",
         "quota is fine: used 8 of 64",
         "API server's ResourceQuota, clouds", literals=("exceeded", "forbidden: "), supersedes=("config", "quota-refused"),
         advice="wait until others give back what they use, or ask for a larger quota"),
    Rule("autoscaler-no-room",
         r"pod didn't trigger scale-up|NotTriggerScaleUp|max node group size reached|in backoff after failed scale-up|"
         r"at risk of not being scheduled|\bFailedScaleUp\b|\bScaleUpTimedOut\b|[Ff]ailed to (?:increase|scale up) node ?group|"
         r"Node scale up in zones .{0,200} failed", F.SCHEDULING, 0.8, "nobody",
         "cluster-autoscaler  pod didn't trigger scale-up: 2 max node group size reached",
         "cluster-autoscaler  pod triggered scale-up: [{gpu-pool 1->2 (max: 2)}]",
         "Kubernetes cluster autoscaler",
         literals=("at risk of not bei", "failed to", "failedscaleup", "in backoff after f", "max node group siz", "node scale up in z", "nottriggerscaleup", "pod didn't trigger", "scaleuptimedout"), supersedes=("rendezvous", "unknown")),
    Rule("karpenter-no-room",
         r"(?:Failed to|Could not) schedule pod, |incompatible with (?:nodepool|provisioner)|"
         r"no instance type (?:satisfied|met|which met)|all available instance types exceed limits|"
         r"InsufficientCapacityError|creating (?:instance|nodeclaim).{0,40}insufficient capacity", F.SCHEDULING, 0.88, "nobody",
         "Failed to schedule pod, incompatible with nodepool \"gpu\", daemonset overhead={\"cpu\":\"210m\"}, no instance type "
         "satisfied resources {\"nvidia.com/gpu\":\"8\"}",
         "Pod should schedule on: nodeclaim/gpu-m6c45",
         "Karpenter", literals=("could not schedule", "failed to schedule", "incompatible with ", "instance type", "insufficient capac", "insufficientcapaci"),
         supersedes=("unschedulable", "rendezvous", "unknown")),
    Rule("no-such-gpu-free",
         r"\b\d+ Insufficient (?:nvidia\.com|amd\.com|cpu|memory|ephemeral-storage|rdma|vpc\.amazonaws|hugepages)\S{0,40}|"
         r"node\(s\) (?:didn't match|had (?:un\w{3,12} )?taint|were unschedulable|had volume node affinity)", F.SCHEDULING, 0.8,
         "nobody",
         "Pending: 3 node(s) didn't match Pod's node affinity/selector, 5 Insufficient nvidia.com/gpu",
         "Sufficient nvidia.com/gpu: 8",
         "kube-scheduler's reasons, wherever they are quoted", literals=("insufficient", "node(s) "), fallback=True),
    Rule("pod-pending", r"^\s{0,12}PodScheduled {1,40}False\b|^Status: {1,40}Pending$|^\S{1,120} {1,60}0/\d{1,4} {1,20}Pending {1,20}\d",
         F.SCHEDULING, 0.5, "nobody",
         "llama-worker-3   0/1     Pending   0          41m",
         "llama-worker-3   1/1     Running   0          41m",
         "kubectl: waits for a node, why stands in the events", literals=("pending", "podscheduled"), supersedes=("unknown",), fallback=True),
    Rule("accelerator-quota",
         r"Quota failure for project|The request for \d{1,6} \S{1,40} accelerators? exceeds the allowed maximum|"
         r"type\.googleapis\.com/google\.rpc\.QuotaFailure|ResourceLimitExceeded\b.{0,200}(?:instances?|limit)", F.SCHEDULING, 0.85, "nobody",
         "The request for 2 K80 accelerators exceeds the allowed maximum of 0 A100, 0 K80, 0 P100.",
         "The request for 2 K80 accelerators was granted",
         "managed training services", literals=("quota", "accelerator", "resourcelimitexceeded"), supersedes=("python-exception", "config"),
         advice="ask for a larger quota, or for another kind of device"),
)  # fmt: skip
