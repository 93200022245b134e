"""Kubernetes and other control planes: pods that cannot start, work without room, servers that are away.

Kubelet, scheduler, Kueue and API server speak as events or conditions. API servers, controllers, orchestrators and
trackers that are away are never the job's fault.
"""

from __future__ import annotations

from flows.decisions.diagnosis.clues import Rule
from profiles.vocabulary import FaultClass

F = FaultClass
LEFT = ("process_killed", "collective_timeout", "rendezvous", "scheduling", "unknown")
"""What others say of a pod that was told to leave."""

KUBERNETES_RULES: tuple[Rule, ...] = (
    Rule("image-pull", r"(?:ErrImagePull|ImagePullBackOff|InvalidImageName|ErrImageNeverPull|Failed to pull image|"
         r"Back-off pulling image)", F.CONFIG, 0.92, "code",
         "Failed to pull image \"registry.local/train:v9\": rpc error: code = NotFound desc = failed to pull "
         "and unpack image",
         "Successfully pulled image \"registry.local/train:v9\"",
         "kubelet events", advice="correct roles[].image or the pull secret"),
    Rule("container-config", r"(?:CreateContainerConfigError|CreateContainerError|RunContainerError|StartError|"
         r"failed to create containerd task|\breason: \"?ContainerCannotRun)", F.CONFIG, 0.85, "code",
         "Error: context deadline exceeded: CreateContainerError",
         "Created container",
         "kubelet events", advice="correct command, secret or volume of the role"),
    Rule("container-runtime",
         r"(?:unable to apply cgroup configuration|error creating systemd unit|failed to mount rootfs component|"
         r"failed to (?:create|start) (?:new )?(?:containerd )?(?:shim|task)\b.{0,200}(?:ttrpc: closed|"
         r"context deadline exceeded|resource temporarily unavailable|no space left on device|device or resource busy|"
         r"cannot allocate memory|[Dd]-?[Bb]us\b|transport is closing))", F.NODE_LOST, 0.95, "node",
         "StartError failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create "
         "failed: unable to start container process: unable to apply cgroup configuration: error creating systemd unit "
         "`cri-containerd-36d9.scope`: got `failed`: unknown",
         "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: "
         "unable to start container process: exec: \"trian\": executable file not found in $PATH: unknown",
         "containerd and runc, in kubelet events", supersedes=("config", "container-config", "container-refused"),
         advice="the node's own container runtime failed: look at `journalctl -u containerd` there"),
    Rule("no-image-mapping", r"no image mapping|no program for image|not mapped to host programs", F.CONFIG, 0.92,
         "code",
         "no image mapping for registry.local/train:v9 in cluster profile local",
         "image mapping found",
         "our embedded cluster", advice="add the image to the cluster profile"),
    Rule("preempted-kueue",
         r"(?:Preempted to accommodate|\bEvictedDueTo(?:Preempt|Maintenance|(?:Cluster|Local)QueueStopped)|"
         r"InClusterQueue.{0,20}preempt|InCohort\w{0,30}.{0,20}(?:preempt|[Rr]eclaim)|Preempted (?:by|in order to admit)|"
         r"\bevicted, because of (?:preempt|reclaim)|^.{0,40}\sPreempted\s{2,})", F.PREEMPTED, 0.95, "nobody",
         "Preempted to accommodate a workload (UID: 4a1b) due to prioritization in the ClusterQueue",
         "preemption is disabled",
         "Kueue, kube-scheduler, kubelet, Volcano", supersedes=(*LEFT, "preemption-said")),
    Rule("node-drain",
         r"(?:TerminationByKubelet|EvictionByEvictionAPI|DeletionByTaintManager|PreemptionByScheduler|"
         r"DeletionByPodGC)", F.PREEMPTED, 0.85, "nobody",
         "DisruptionTarget: EvictionByEvictionAPI: Eviction API: evicting",
         "Eviction API enabled",
         "pod condition DisruptionTarget", supersedes=LEFT),
    Rule("node-not-ready",
         r"(?:Node is not ready|NodeNotReady|Kubelet stopped posting node status|NodeStatusUnknown|"
         r"node has been unresponsive|NodeLost\b)", F.NODE_LOST, 0.9, "node",
         "Node is not ready: Kubelet stopped posting node status.",
         "node.kubernetes.io/not-ready:NoExecute op=Exists for 300s",
         "node controller",
         supersedes=("process_killed", "collective_timeout", "scheduling", "taint-eviction", "rendezvous")),
    Rule("node-not-ready-named",
         r"\bNode (?P<peer>[\w.-]{1,100}) status is now: Node(?:NotReady|StatusUnknown)", F.NODE_LOST, 0.9, "peer",
         "16m  Normal  NodeNotReady  node/gpu-b-11  Node gpu-b-11 status is now: NodeNotReady",
         "gpu-b-11   Ready   <none>   10d   v1.31.2",
         "node controller",
         supersedes=("node-not-ready", "process_killed", "collective_timeout", "scheduling", "taint-eviction", "rendezvous")),
    Rule("node-failure-said",
         r"(?i:\b(?:job|preempted) (?:\d{1,12} )?\(?node failure\b)|\bnode (?P<peer>[\w.:-]{1,100}) has been marked dead|"
         r"\bRaylet failed\. Shutting down|\b[Ll]ost connection to node\b|(?i:\binstance \S{1,40} failed (?:\w{1,10} )?status checks?)",
         F.NODE_LOST, 0.72, "peer",
         "job preempted (node failure)",
         "node failure domain: rack",
         "Torque, Slurm, Ray, EC2", supersedes=("preemption-said", "preempted", "process_killed", "collective_timeout", "unknown")),
    Rule("node-listed-not-ready", r"^(?P<peer>[\w.-]{1,100}) {2,40}NotReady(?:,SchedulingDisabled)? ", F.NODE_LOST, 0.85, "peer",
         "gpu-b-11   NotReady   <none>   10d   v1.31.2",
         "gpu-b-11   Ready   <none>   10d   v1.31.2",
         "kubectl get nodes", supersedes=("process_killed", "collective_timeout", "scheduling")),
    Rule("oom-killed", r"\bOOMKilled\b|\bOOMKilling\b", F.HOST_OOM, 0.95, "rank",
         "    Reason:       OOMKilled",
         "OOM score adjusted",
         "kubelet", supersedes=("process_killed", "signal-9", "killed-exit-code"), advice="give the pod more memory"),
    Rule("disk-pressure",
         r"(?:low on resource: ephemeral-storage|(?<!No)DiskPressure(?! +(?:False|Unknown))|exceeded its local ephemeral storage limit|"
         r"(?:local ephemeral|ephemeral local) storage usage exceeds)",
         F.STORAGE, 0.9, "node",
         "The node was low on resource: ephemeral-storage. Threshold quantity: 10Gi, available: 8Gi.",
         "DiskPressure     False   Tue, 04 Mar 2025 10:00:00 +0000   KubeletHasNoDisk   kubelet has no disk trouble",
         "kubelet eviction", supersedes=("preempted",)),
    Rule("memory-pressure", r"low on resource: memory", F.HOST_OOM, 0.9, "node",
         "The node was low on resource: memory. Threshold quantity: 100Mi, available: 20Mi.",
         "memory resource requested",
         "kubelet eviction", supersedes=("preempted",)),
    Rule("quota-refused", r"(?:is forbidden: .{0,200}(?:not allowed|cannot \w{3,12} resource)|"
         r"admission webhook \S{1,100} denied the request|violates PodSecurity)", F.CONFIG, 0.8, "code",
         "pods \"demo-a1-0\" is forbidden: unable to validate against any policy: privileged containers are not allowed",
         "the request is allowed",
         "API server"),
    Rule("manifest-refused",
         r"(?:unknown field \"|strict decoding error|Invalid value: |The \w+ \"[^\"]{1,100}\" is invalid)",
         F.CONFIG, 0.85, "code",
         "JobSet in version \"v1alpha2\" cannot be handled: strict decoding error: unknown field \"spec.foo\"",
         "all fields known",
         "API server"),
    Rule("pod-sandbox",
         r"(?:FailedCreatePodSandBox|failed to setup network for sandbox|CNI plugin not initialized)", F.FABRIC,
         0.5, "node",
         "Failed to create pod sandbox: rpc error: failed to setup network for sandbox",
         "Created pod sandbox",
         "kubelet, CNI"),
    Rule("no-gpu-runtime", r"no runtime for \"?(?:nvidia|amd|habana)\"? is configured|"
         r"(?:unknown|no such) runtime(?: specified| handler| name)?:? \"?(?:nvidia|amd)\b|RuntimeHandler \"(?:nvidia|amd)\" not supported",
         F.GPU_DRIVER, 0.75, "node",
         'Failed to create pod sandbox: unable to get OCI runtime for sandbox "a5b1": no runtime for "nvidia" is configured',
         "the runtime for nvidia is configured",
         "containerd, CRI-O, Docker: the toolkit of the GPUs is not installed on the node",
         supersedes=("pod-sandbox", "unknown")),
    Rule("device-plugin", r"(?:UnexpectedAdmissionError|Allocate failed due to .{0,100}(?:gpu|unhealthy))",
         F.GPU_DRIVER, 0.75, "node",
         "Pod was rejected: Allocate failed due to no healthy devices present; cannot allocate unhealthy "
         "devices amd.com/gpu",
         "Allocated gpu",
         "kubelet device manager"),
    Rule("deadline", r"(?:(?<!code = )DeadlineExceeded|Step exceeded its deadline|Max duration limit exceeded)", F.UNKNOWN, 0.3,
         "nobody",
         "Max duration limit exceeded",
         "deadline in 3 s",
         "Argo"),
    Rule("key-missing", r"(?:secret|configmap|serviceaccount|persistentvolumeclaim) \"[^\"]{1,100}\" not found|"
         r"couldn't find key \S{1,100} in (?:Secret|ConfigMap)", F.CONFIG, 0.88, "code",
         "persistentvolumeclaim \"data\" not found",
         "secret mounted",
         "kubelet, scheduler", supersedes=("container-config", "unschedulable"),
         advice="create the object or correct its name in the profile"),
    Rule("graceful-shutdown", r"in response to imminent node shutdown|node is shutting down|\bNodeShutdown\b|"
         r"(?:Shutdown manager|shutdown_manager).{0,80}(?:detected|new) shutdown event", F.PREEMPTED, 0.92,
         "nobody",
         "Pod was terminated in response to imminent node shutdown.",
         "node shutdown is disabled",
         "kubelet graceful shutdown", supersedes=(*LEFT, "node_lost")),
    Rule("taint-eviction", r"(?:Marking for deletion Pod|TaintManagerEviction)(?!.{0,40}Cancelling)", F.PREEMPTED, 0.6, "nobody",
         "TaintManagerEviction: Marking for deletion Pod default/demo-a1-trainer-0",
         "Cancelling deletion of Pod",
         "taint manager"),
    Rule("pod-evicted", r"\bReason: {1,12}Evicted\b|^\S{1,120} .{0,40}\sEvicted\s|The pod was evicted|\bEviction:? .{0,60}(?:node|API)",
         F.PREEMPTED, 0.5, "nobody",
         "llama-worker-3   0/1     Evicted   0          41m",
         "llama-worker-3   1/1     Running   0          41m",
         "kubectl: why, stands in the message", fallback=True),
    Rule("liveness", r"Liveness probe failed: ", F.HANG, 0.5, "rank",
         "Liveness probe failed: HTTP probe failed with statuscode: 500",
         "Readiness probe failed: timeout",
         "kubelet"),
    Rule("crash-loop", r"Back-off restarting failed container|CrashLoopBackOff|BackoffLimitExceeded|"
         r"Job has reached the specified backoff limit", F.UNKNOWN, 0.3, "nobody",
         "Back-off restarting failed container trainer in pod demo-a1-0",
         "container restarted once",
         "kubelet: the consequence, not the cause", echo=True),
)  # fmt: skip


SCHEDULER_RULES: tuple[Rule, ...] = (
    Rule("unschedulable",
         r"\b\d+/\d+ nodes are (?:un)?available: |[Nn]o nodes (?:are )?available (?:to schedule|that match)|"
         r"all nodes are unavailable: |FailedScheduling|\bPodUnschedulable\b|Cannot schedule pods", F.SCHEDULING, 0.88, "nobody",
         "0/4 nodes are available: 1 node(s) had untolerated taint {primus-flows.io/quarantine: fabric}, 3 "
         "Insufficient amd.com/gpu.",
         "all nodes are available",
         "kube-scheduler", supersedes=("rendezvous", "unknown")),
    Rule("batch-queued",
         r"^Estimated Rsv based start in {2,40}\S|^INFO: {1,4}cannot determine start time for job", F.SCHEDULING, 0.6, "nobody",
         "Estimated Rsv based start in              1:01:07:42 on Mon Feb 24 08:04:08",
         "Estimated Rsv based completion in         2:01:07:42 on Tue Feb 25 08:04:08",
         "Maui, Moab: jobs that wait"),
    Rule("gang-unschedulable",
         r"\b\d+/\d+ tasks in gang unschedulable|[Pp]od ?group (?:\S{1,120} )?is (?:not ready, |unschedulable)|"
         r"(?:queue|namespace) .{0,60}(?:resource quota insufficient|overused|over(?:used)? capability)|"
         r"\bPodGroup\S{0,80} .{0,40}(?:Unschedulable|NotEnoughResources)|"
         r"(?:rejected by|cannot find enough) .{0,60}(?:sibling|minMember|permit)", F.SCHEDULING, 0.88, "nobody",
         "Warning  FailedSchedule  111s  volcano  10/16 tasks in gang unschedulable: job is not ready, 10 minAvailable",
         "Normal   Scheduled  12s  volcano  pod group is ready",
         "Volcano, scheduler-plugins' coscheduling", supersedes=("unschedulable", "rendezvous", "unknown")),
    Rule("kueue-pending",
         r"(?:couldn't assign flavors to pod set|insufficient (?:unused )?quota|"
         r"[Ww]orkload .{0,80}exceeds? (?:the )?maximum capacity|request > maximum capacity|borrowing limit for \S{1,60} .{0,80}exceeded|"
         r"topology \"[^\"]{1,80}\" (?:doesn't allow|allows) to fit|(?:Cluster|Local)Queue \S{1,80} is (?:inactive|stopped)|"
         r"[Ww]orkload (?:didn't|no longer) fit)", F.SCHEDULING, 0.88, "nobody",
         "couldn't assign flavors to pod set main: insufficient unused quota for amd.com/gpu in flavor "
         "mi300x, 8 more needed",
         "Workload admitted",
         "Kueue conditions", supersedes=("rendezvous", "unknown")),
    Rule("pods-ready-timeout", r"(?:PodsReadyTimeout|Exceeded the PodsReady timeout|RequeuingLimitExceeded)",
         F.SCHEDULING, 0.85, "nobody",
         "Exceeded the PodsReady timeout default/jobset-demo-a1",
         "PodsReady is true",
         "Kueue"),
    Rule("over-queue-quota",
         r"(?:NonPreemptibleOverQuota|[Ww]orkload is over (?:the )?(?:quota|limit)|quota has reached the allowable limit|"
         r"OverLimit: |Workload requested \S{1,20} \S{1,20}, but \S{1,80} (?:quota|limit) is|"
         r"[Rr]esources were not found for \d+ pods|(?:Node-?[Pp]ool|[Cc]luster) does not have (?:enough|sufficient) resources|"
         r"no nodes with enough resources were found)", F.SCHEDULING, 0.9, "nobody",
         "NonPreemptibleOverQuota: Non-preemptible workload is over quota. Workload requested 8 GPUs, but research quota "
         "is 4 GPUs, while 4 GPUs are already allocated for non-preemptible pods.",
         "Pod research/train-0 is over the wall",
         "KAI scheduler, Run:ai", supersedes=("unschedulable", "rendezvous", "unknown")),
    Rule("yunikorn-pending",
         r"does not fit in queue '|is pending for the requested resources become available|"
         r"Application \S{1,120} (?:was )?rejected|exceed(?:s|ed) (?:max|configured) (?:queue|application|user) (?:resource|quota)",
         F.SCHEDULING, 0.87, "nobody",
         "Request 'alloc-0' does not fit in queue 'root.research' (requested map[nvidia.com/gpu:8], available map[nvidia.com/gpu:0])",
         "Application app-1 accepted in queue root.research",
         "Apache YuniKorn", supersedes=("unschedulable", "unknown")),
    Rule("quota-exceeded", r"exceeded quota\b|[Ff]orbidden: .{0,120}maximum \w{2,20} usage per|QuotaExceeded\b|"
         r"[Qq]uota .{0,60}(?:would be|has been|was) exceeded|^(?:.{0,80}[Ee]rror: .{0,60})?(?<!isk )Quota exceeded\.?(?: for |$)", F.SCHEDULING, 0.82, "nobody",
         "pods \"demo-a1-0\" is forbidden: exceeded quota: team, requested: requests.nvidia.com/gpu=8, used: 64, limited: 64",
         "quota is fine: used 8 of 64",
         "API server's ResourceQuota, clouds", supersedes=("config", "quota-refused"),
         advice="wait until others give back what they use, or ask for a larger quota"),
    Rule("autoscaler-no-room",
         r"pod didn't trigger scale-up|NotTriggerScaleUp|max node group size reached|in backoff after failed scale-up|"
         r"at risk of not being scheduled|\bFailedScaleUp\b|\bScaleUpTimedOut\b|[Ff]ailed to (?:increase|scale up) node ?group|"
         r"Node scale up in zones .{0,200} failed", F.SCHEDULING, 0.8, "nobody",
         "cluster-autoscaler  pod didn't trigger scale-up: 2 max node group size reached",
         "cluster-autoscaler  pod triggered scale-up: [{gpu-pool 1->2 (max: 2)}]",
         "Kubernetes cluster autoscaler", supersedes=("rendezvous", "unknown")),
    Rule("karpenter-no-room",
         r"(?:Failed to|Could not) schedule pod, |incompatible with (?:nodepool|provisioner)|"
         r"no instance type (?:satisfied|met|which met)|all available instance types exceed limits|"
         r"InsufficientCapacityError|creating (?:instance|nodeclaim).{0,40}insufficient capacity", F.SCHEDULING, 0.88, "nobody",
         "Failed to schedule pod, incompatible with nodepool \"gpu\", daemonset overhead={\"cpu\":\"210m\"}, no instance type "
         "satisfied resources {\"nvidia.com/gpu\":\"8\"}",
         "Pod should schedule on: nodeclaim/gpu-m6c45",
         "Karpenter", supersedes=("unschedulable", "rendezvous", "unknown")),
    Rule("no-such-gpu-free",
         r"\b\d+ Insufficient (?:nvidia\.com|amd\.com|cpu|memory|ephemeral-storage|rdma|vpc\.amazonaws|hugepages)\S{0,40}|"
         r"node\(s\) (?:didn't match|had (?:un\w{3,12} )?taint|were unschedulable|had volume node affinity)", F.SCHEDULING, 0.8,
         "nobody",
         "Pending: 3 node(s) didn't match Pod's node affinity/selector, 5 Insufficient nvidia.com/gpu",
         "Sufficient nvidia.com/gpu: 8",
         "kube-scheduler's reasons, wherever they are quoted", fallback=True),
    Rule("pod-pending", r"^\s{0,12}PodScheduled {1,40}False\b|^Status: {1,40}Pending$|^\S{1,120} {1,60}0/\d{1,4} {1,20}Pending {1,20}\d",
         F.SCHEDULING, 0.5, "nobody",
         "llama-worker-3   0/1     Pending   0          41m",
         "llama-worker-3   1/1     Running   0          41m",
         "kubectl: waits for a node, why stands in the events", supersedes=("unknown",), fallback=True),
    Rule("accelerator-quota",
         r"Quota failure for project|The request for \d{1,6} \S{1,40} accelerators? exceeds the allowed maximum|"
         r"type\.googleapis\.com/google\.rpc\.QuotaFailure|ResourceLimitExceeded\b.{0,200}(?:instances?|limit)", F.SCHEDULING, 0.85, "nobody",
         "The request for 2 K80 accelerators exceeds the allowed maximum of 0 A100, 0 K80, 0 P100.",
         "The request for 2 K80 accelerators was granted",
         "managed training services", supersedes=("python-exception", "config"),
         advice="ask for a larger quota, or for another kind of device"),
)  # fmt: skip


NET = (r"(?:connection refused|i/o timeout|no route to host|TLS handshake timeout|connection reset by peer|context deadline "
       r"exceeded|client connection lost|\bEOF\b|Client\.Timeout|connection timed out|request canceled|network is unreachable)")  # fmt: skip
ECHOES = ("rendezvous", "collective_timeout", "storage", "unknown")
"""What the same broken connection is called by programs that know nothing of the server."""

CONTROL_PLANE_RULES: tuple[Rule, ...] = (
    Rule("controller-crashes",
         r"(?<![\w-])(?!\S{0,120}(?:device-plugin|driver|dcgm|gpu-operator|fabric))\S{0,80}(?:operator|controller|webhook|scheduler|apiserver|etcd|coredns|kueue|volcano)[\w-]{0,60} {1,20}"
         r"\d{1,2}/\d{1,2} {1,20}CrashLoopBackOff\b", F.CONTROL_PLANE, 0.75, "nobody",
         "training-operator-6bfc7b8d86-czlnz   0/1     CrashLoopBackOff   11 (82s ago)   26m",
         "llama-worker-3   0/1     CrashLoopBackOff   11 (82s ago)   26m",
         "kubectl get pods: who steers the jobs does not run", supersedes=("crash-loop", *ECHOES)),
    Rule("control-plane", r"(?:etcdserver: (?:request timed out|leader changed|no leader|too many requests|mvcc: |not enough)|"
         r"mvcc: database space exceeded|the server is currently unable to handle the request|net/http: TLS handshake timeout|"
         r"apiserver .{0,60}(?:unavailable|timed out|not ready)|the server was unable to return a response in the time allotted|"
         r"the server has received too many requests|server rejected our request for an unknown reason)", F.CONTROL_PLANE, 0.88,
         "nobody",
         "Error from server: etcdserver: request timed out",
         "apiserver ready",
         "API server", supersedes=ECHOES),
    Rule("kube-api-away",
         rf"(?:https://[^\s\"]{{1,160}}(?:/api/v1|/apis/|:6443|/version\b|/readyz|/livez)|kubernetes\.default|dial tcp "
         rf"(?:10\.96\.0\.1|10\.43\.0\.1|10\.100\.0\.1|172\.20\.0\.1|10\.0\.0\.1|\S{{1,60}}:6443)).{{0,500}}{NET}|"
         r"host='(?:10\.96\.0\.1|10\.43\.0\.1|10\.100\.0\.1|172\.20\.0\.1|kubernetes\.default\S{0,40})', port=\d{2,5}\): |"
         r"Max retries exceeded with url: /(?:api/v1|apis)/", F.CONTROL_PLANE,
         0.88, "nobody",
         "E0711 02:40:12.518120 1 leader.go:332] Get \"https://10.96.0.1:443/apis/coordination.k8s.io/v1/leases/x\": dial tcp "
         "10.96.0.1:443: connect: connection refused",
         "Get \"https://10.96.0.1:443/apis/batch/v1\": 200 OK",
         "client-go", supersedes=("leader-lost", "informer-failed", *ECHOES)),
    Rule("api-refused", r"(?:The connection to the server \S{1,120} was refused|Unable to connect to the server: |"
         r"client rate limiter Wait returned an error|couldn't get current server API group list|stale GroupVersion discovery|"
         r"Unable to connect to the Kubernetes|Kubernetes cluster unreachable)", F.CONTROL_PLANE, 0.88, "nobody",
         "The connection to the server 10.0.0.1:6443 was refused - did you specify the right host or port?",
         "connected to the server",
         "kubectl, helm, client-go", supersedes=("kube-api-away", "control-plane", *ECHOES)),
    Rule("api-server-error",
         r"Error from server \((?:InternalError|ServiceUnavailable|Timeout|TooManyRequests|GatewayTimeout)\)|"
         r"an error on the server \(\".{0,200}\"\) has prevented the request|"
         r"Internal error occurred: .{0,200}(?:etcd|timeout|refused|dial tcp|deadline)|"
         r"ApiException: \((?:50\d|429)\)|status(?:Code)?[\"']?[:=] ?50[0234]\b.{0,80}(?:api ?server|kube)", F.CONTROL_PLANE, 0.85,
         "nobody",
         "kubernetes.client.exceptions.ApiException: (503)",
         "kubernetes.client.exceptions.ApiException: (404)",
         "API server, Kubernetes clients", supersedes=("python-exception", "kube-api-away", "control-plane", *ECHOES)),
    Rule("leader-lost",
         r"(?i)leader ?election lost|(?:failed to|could not) renew (?:the )?(?:leader )?(?:lease|leadership)|leader lease lost|error retrieving resource lock|failed to update lock|"
         r"lost (?:the )?(?:leader(?:ship)?|master lease)\b|stopped leading", F.CONTROL_PLANE, 0.88, "nobody",
         "I0219 07:13:06.180317 1 leaderelection.go:277] failed to renew lease kubeflow/training-operator: timed out waiting",
         "successfully acquired lease kubeflow/training-operator",
         "client-go leader election", supersedes=ECHOES),
    Rule("informer-failed", r"[Ff]ailed to (?:list|watch) \*\w|[Ff]ailed to (?:establish pod watch|get informer)|"
         r"timed out waiting for caches to sync|error in exec/wait", F.CONTROL_PLANE, 0.65, "nobody",
         "W0711 02:40:14.201993 1 reflector.go:539] factory.go:117: failed to list *v1.PyTorchJob: unexpected end",
         "watch of *v1.Pod closed after 5 m, opened again",
         "client-go", supersedes=ECHOES),
    Rule("webhook-down", r"failed (?:to call|calling) webhook \S{1,120}: .{0,300}(?:connection refused|timeout|deadline exceeded|"
         r"no endpoints|EOF|x509|not found|no route to host|dial tcp|tls:)|conversion webhook for .{0,200} failed", F.CONTROL_PLANE,
         0.88, "nobody",
         "failed calling webhook \"vjobset.kb.io\": failed to call webhook: Post \"https://jobset-webhook\": "
         "dial tcp 10.0.0.7:443: connect: connection refused",
         "webhook called",
         "API server", supersedes=("kube-api-away", "api-server-error", "control-plane", *ECHOES)),
    Rule("controller-ended",
         r"problem running manager|unable to (?:start|set up|create) manager|cannot setup manager|Observed a panic|"
         r"error received after stop sequence was engaged|failed to wait for \S{1,60} caches", F.CONTROL_PLANE, 0.75, "nobody",
         "{\"level\":\"error\",\"ts\":\"2026-07-11T02:40:27Z\",\"logger\":\"setup\",\"msg\":\"problem running manager\"}",
         "{\"level\":\"info\",\"logger\":\"setup\",\"msg\":\"starting manager\"}",
         "controller-runtime", supersedes=ECHOES, fallback=True),
    Rule("kubelet-lost-api",
         r"(?i)unable to (?:update|register) node (?:status|with api server|\")|error updating node status, will retry|"
         r"failed to (?:ensure|update) (?:node )?lease|failed to contact api server", F.CONTROL_PLANE, 0.6, "nobody",
         "E0711 02:40:12.5 kubelet_node_status.go:540] \"Error updating node status, will retry\" err=\"error getting node\"",
         "Successfully registered node gpu-7",
         "kubelet", supersedes=ECHOES, fallback=True),
    Rule("certificate", r"x509: certificate (?:has expired|is not yet valid|signed by unknown)|certificate has expired or is not yet",
         F.CONTROL_PLANE, 0.55, "nobody",
         "Unable to verify: x509: certificate has expired or is not yet valid: current time 2025-03-01T10:00:00Z",
         "x509: loaded 140 certificates",
         "Go's TLS, kubelet, API server", fallback=True, advice="renew the certificate; look at the clock"),
    Rule("orchestrator-error",
         r"PrefectHTTPStatusError: Server error|(?<!/)Server error '50\d .{0,60}' for url '(?!https://(?:huggingface|hf|cdn))|"
         r"Failed to reach API at |(?:prefect|airflow|flyte|dagster|zenml|metaflow|determined|clearml|polyaxon)\S{0,80} .{0,160}"
         r"(?:status(?: code)?:? 50\d|50[0234][ :](?:Server|Internal|Bad Gateway|Service|Gateway)|[Cc]onnection (?:refused|attempts failed))|"
         r"(?:API|master) (?:is )?unreachable|Could not connect (?:with|to) (?:the )?API server", F.CONTROL_PLANE, 0.85,
         "nobody",
         "prefect.exceptions.PrefectHTTPStatusError: Server error '500 Internal Server Error' for url 'https://api.prefect.cloud/api/x'",
         "prefect.exceptions.PrefectHTTPStatusError: Client error '404 Not Found' for url 'https://api.prefect.cloud/api/x'",
         "Prefect, ClearML, Determined and the like", supersedes=("python-exception", *ECHOES)),
    Rule("http-client-lost", r"\b(?:httpx|httpcore|aiohttp)\S{0,40}\.(?:Connect(?:Error|Timeout)|ReadTimeout|ReadError|PoolTimeout|"
         r"RemoteProtocolError|ServerDisconnectedError|ClientConnectorError)\b", F.CONTROL_PLANE, 0.5, "nobody",
         "httpx.ConnectError: All connection attempts failed",
         "httpx.HTTPStatusError: Client error '404 Not Found'",
         "httpx, aiohttp: what clients of orchestrators raise", supersedes=("python-exception",)),
    Rule("tracker-away",
         r"Run initialization has timed out after|wandb\S{0,40}\.(?:CommError|MailboxError|ServiceStart\w{3,20}Error)\b"
         r"(?!.{0,200}(?:permission|40[134]|not found|does not exist))|wandb: ERROR .{0,120}(?:timed out|HTTP 5\d\d|50[0234] |"
         r"[Nn]etwork|connect)|(?:Mlflow|Rest)Exception: .{0,300}(?:error code (?:50\d|429)|failed with exception|[Mm]ax retries|"
         r"[Tt]imed out|TEMPORARILY_UNAVAILABLE|INTERNAL_ERROR)|NeptuneConnectionLostException|"
         r"COMET ERROR: .{0,80}(?:communicat|connect|reach)", F.CONTROL_PLANE, 0.8, "nobody",
         "wandb.errors.errors.CommError: Run initialization has timed out after 90.0 sec.",
         "wandb: Currently logged in as: user. Use `wandb login --relogin` to force relogin",
         "W&B, MLflow, Neptune, Comet clients: the tracker cannot be reached", supersedes=("python-exception", *ECHOES),
         advice="let the trainer run without its tracker: offline mode, or a longer time-out"),
    Rule("platform-internal-error",
         r"InternalServerError: We encountered an internal error|Internal error (?:encountered|occurred for the current attempt)|"
         r"AlgorithmError: InternalServerError|\bThrottlingException\b|RequestLimitExceeded|"
         r"(?:SageMaker|Vertex|AzureML|Databricks)\S{0,30} .{0,80}internal (?:server |service )?error", F.CONTROL_PLANE, 0.78, "nobody",
         "Training job failed. InternalServerError: We encountered an internal error.  Please try again.",
         "internal error counters: 0",
         "managed training services", supersedes=("python-exception",)),
    Rule("executor-error", r"executor error: |failed to (?:patch|update) (?:workflow|pod|job|task ?run) .{0,120}(?:time|refused|unavail|"
         r"error on the server)|wait container (?:is not running|failed)|[Ff]ailed to save outputs: .{0,120}(?:time|refused|unavail)",
         F.CONTROL_PLANE, 0.6, "nobody",
         "time=\"2020-09-25T14:34:34Z\" level=error msg=\"executor error: could not update the node\"",
         "executor finished",
         "Argo Workflows, Tekton", fallback=True),
    Rule("observer-lost", r"(?:lost|losing) (?:connection|contact) (?:to|with) (?:the )?(?:api ?server|control plane|scheduler|controller|"
         r"orchestrator|master\b)|error dialing backend: |(?:scheduler|controller|orchestrator|control plane) (?:is )?(?:unreachable|unavailable|not responding)",
         F.CONTROL_PLANE, 0.8, "nobody",
         "agent: lost connection to the control plane, will try again in 30 s",
         "connection to the control plane established",
         "agents of any platform", supersedes=ECHOES),
    Rule("workflow-deadline",
         r"level=(?:error|warning) msg=\"(?:error in entry template execution\" error=\")?Deadline exceeded\"|"
         r"(?:reconcil\w{1,6}|operat\w{1,6}|list\w{0,3}|watch\w{0,3}) .{0,80}: context deadline exceeded", F.CONTROL_PLANE, 0.6, "nobody",
         "time=\"2020-10-21T15:37:25Z\" level=warning msg=\"Deadline exceeded\" namespace=v1-0 workflow=alignment-vp4ch",
         "time=\"2020-10-21T15:37:25Z\" level=info msg=\"Processing workflow\" namespace=v1-0 workflow=alignment-vp4ch",
         "Argo Workflows' controller: the API server answers too slowly", fallback=True),
)  # fmt: skip
