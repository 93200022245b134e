"""Whoever steers: API servers, controllers, orchestrators and trackers that are away. Never the job's fault."""

from __future__ import annotations

from flows.decisions.rules import Rule
from profiles.vocabulary import FaultClass

F = FaultClass
NET = (r"(?:connection refused|i/o timeout|no route to host|TLS handshake timeout|connection reset by peer|context deadline "
       r"exceeded|client connection lost|\bEOF\b|Client\.Timeout|connection timed out|request canceled|network is unreachable)")  # fmt: skip
ECHOES = ("rendezvous", "collective_timeout", "storage", "unknown")
"""What the same broken connection is called by programs that know nothing of the server."""

RULES: tuple[Rule, ...] = (
    Rule("controller-crashes",
         r"(?<![\w-])(?!\S{0,120}(?:device-plugin|driver|dcgm|gpu-operator|fabric))\S{0,80}(?:operator|controller|webhook|scheduler|apiserver|etcd|coredns|kueue|volcano)[\w-]{0,60} {1,20}"
         r"\d{1,2}/\d{1,2} {1,20}CrashLoopBackOff\b", F.CONTROL_PLANE, 0.75, "nobody",
         "training-operator-6bfc7b8d86-czlnz   0/1     CrashLoopBackOff   11 (82s ago)   26m",
         "llama-worker-3   0/1     CrashLoopBackOff   11 (82s ago)   26m",
         "kubectl get pods: who steers the jobs does not run", literals=("crashloopbackoff",), supersedes=("crash-loop", *ECHOES)),
    Rule("control-plane", r"(?:etcdserver: (?:request timed out|leader changed|no leader|too many requests|mvcc: |not enough)|"
         r"mvcc: database space exceeded|the server is currently unable to handle the request|net/http: TLS handshake timeout|"
         r"apiserver .{0,60}(?:unavailable|timed out|not ready)|the server was unable to return a response in the time allotted|"
         r"the server has received too many requests|server rejected our request for an unknown reason)", F.CONTROL_PLANE, 0.88,
         "nobody",
         "Error from server: etcdserver: request timed out",
         "apiserver ready",
         "API server", literals=("apiserver ", "etcdserver:", "mvcc: database spa", "net/http: tls hand", "server rejected ou", "the server"), supersedes=ECHOES),
    Rule("kube-api-away",
         rf"(?:https://[^\s\"]{{1,160}}(?:/api/v1|/apis/|:6443|/version\b|/readyz|/livez)|kubernetes\.default|dial tcp "
         rf"(?:10\.96\.0\.1|10\.43\.0\.1|10\.100\.0\.1|172\.20\.0\.1|10\.0\.0\.1|\S{{1,60}}:6443)).{{0,500}}{NET}|"
         r"host='(?:10\.96\.0\.1|10\.43\.0\.1|10\.100\.0\.1|172\.20\.0\.1|kubernetes\.default\S{0,40})', port=\d{2,5}\): |"
         r"Max retries exceeded with url: /(?:api/v1|apis)/", F.CONTROL_PLANE,
         0.88, "nobody",
         "E0711 02:40:12.518120 1 leader.go:332] Get \"https://10.96.0.1:443/apis/coordination.k8s.io/v1/leases/x\": dial tcp "
         "10.96.0.1:443: connect: connection refused",
         "Get \"https://10.96.0.1:443/apis/batch/v1\": 200 OK",
         "client-go", literals=("', port=", "dial tcp ", "https://", "kubernetes.default", "max retries exceed"), supersedes=("leader-lost", "informer-failed", *ECHOES)),
    Rule("api-refused", r"(?:The connection to the server \S{1,120} was refused|Unable to connect to the server: |"
         r"client rate limiter Wait returned an error|couldn't get current server API group list|stale GroupVersion discovery|"
         r"Unable to connect to the Kubernetes|Kubernetes cluster unreachable)", F.CONTROL_PLANE, 0.88, "nobody",
         "The connection to the server 10.0.0.1:6443 was refused - did you specify the right host or port?",
         "connected to the server",
         "kubectl, helm, client-go", literals=("client rate limite", "couldn't get curre", "kubernetes cluster", "stale groupversion", "the connection to ", "unable to connect "),
         supersedes=("kube-api-away", "control-plane", *ECHOES)),
    Rule("api-server-error",
         r"Error from server \((?:InternalError|ServiceUnavailable|Timeout|TooManyRequests|GatewayTimeout)\)|"
         r"an error on the server \(\".{0,200}\"\) has prevented the request|"
         r"Internal error occurred: .{0,200}(?:etcd|timeout|refused|dial tcp|deadline)|"
         r"ApiException: \((?:50\d|429)\)|status(?:Code)?[\"']?[:=] ?50[0234]\b.{0,80}(?:api ?server|kube)", F.CONTROL_PLANE, 0.85,
         "nobody",
         "kubernetes.client.exceptions.ApiException: (503)",
         "kubernetes.client.exceptions.ApiException: (404)",
         "API server, Kubernetes clients", literals=("\") has prevented t", "apiexception: (", "internal error occ", "rror from serv", "status\": 50", "status\":50", "status\"= 50", "status\"=50", "status': 50", "status':50", "status'= 50", "status'=50", "status: 50", "status:50", "status= 50", "status=50", "statuscode"),
         supersedes=("python-exception", "kube-api-away", "control-plane", *ECHOES)),
    Rule("leader-lost",
         r"(?i)leader ?election lost|(?:failed to|could not) renew (?:the )?(?:leader )?(?:lease|leadership)|leader lease lost|error retrieving resource lock|failed to update lock|"
         r"lost (?:the )?(?:leader(?:ship)?|master lease)\b|stopped leading", F.CONTROL_PLANE, 0.88, "nobody",
         "I0219 07:13:06.180317 1 leaderelection.go:277] failed to renew lease kubeflow/training-operator: timed out waiting",
         "successfully acquired lease kubeflow/training-operator",
         "client-go leader election", literals=("error retrieving r", "failed to", "leader election lo", "leader lea", "leaderelection los", "lost leader", "lost master lease", "lost the leader", "lost the master le", "ould not renew", "stopped leading"),
         supersedes=ECHOES),
    Rule("informer-failed", r"[Ff]ailed to (?:list|watch) \*\w|[Ff]ailed to (?:establish pod watch|get informer)|"
         r"timed out waiting for caches to sync|error in exec/wait", F.CONTROL_PLANE, 0.65, "nobody",
         "W0711 02:40:14.201993 1 reflector.go:539] factory.go:117: failed to list *v1.PyTorchJob: unexpected end",
         "watch of *v1.Pod closed after 5 m, opened again",
         "client-go", literals=("error in exec/wait", "failed to", "timed out waiting "), supersedes=ECHOES),
    Rule("webhook-down", r"failed (?:to call|calling) webhook \S{1,120}: .{0,300}(?:connection refused|timeout|deadline exceeded|"
         r"no endpoints|EOF|x509|not found|no route to host|dial tcp|tls:)|conversion webhook for .{0,200} failed", F.CONTROL_PLANE,
         0.88, "nobody",
         "failed calling webhook \"vjobset.kb.io\": failed to call webhook: Post \"https://jobset-webhook\": "
         "dial tcp 10.0.0.7:443: connect: connection refused",
         "webhook called",
         "API server", literals=("conversion webhook", "failed calling web", "failed to call web"), supersedes=("kube-api-away", "api-server-error", "control-plane", *ECHOES)),
    Rule("controller-ended",
         r"problem running manager|unable to (?:start|set up|create) manager|cannot setup manager|Observed a panic|"
         r"error received after stop sequence was engaged|failed to wait for \S{1,60} caches", F.CONTROL_PLANE, 0.75, "nobody",
         "{\"level\":\"error\",\"ts\":\"2026-07-11T02:40:27Z\",\"logger\":\"setup\",\"msg\":\"problem running manager\"}",
         "{\"level\":\"info\",\"logger\":\"setup\",\"msg\":\"starting manager\"}",
         "controller-runtime", literals=("cannot setup manag", "error received aft", "failed to wait for", "observed a panic", "problem running ma", "unable to"), supersedes=ECHOES,
         fallback=True),
    Rule("kubelet-lost-api",
         r"(?i)unable to (?:update|register) node (?:status|with api server|\")|error updating node status, will retry|"
         r"failed to (?:ensure|update) (?:node )?lease|failed to contact api server", F.CONTROL_PLANE, 0.6, "nobody",
         "E0711 02:40:12.5 kubelet_node_status.go:540] \"Error updating node status, will retry\" err=\"error getting node\"",
         "Successfully registered node gpu-7",
         "kubelet", literals=("error updating nod", "failed to", "unable to"), supersedes=ECHOES, fallback=True),
    Rule("certificate", r"x509: certificate (?:has expired|is not yet valid|signed by unknown)|certificate has expired or is not yet",
         F.CONTROL_PLANE, 0.55, "nobody",
         "Unable to verify: x509: certificate has expired or is not yet valid: current time 2025-03-01T10:00:00Z",
         "x509: loaded 140 certificates",
         "Go's TLS, kubelet, API server", literals=("certificate",), fallback=True,
         advice="renew the certificate; look at the clock"),
    Rule("orchestrator-error",
         r"PrefectHTTPStatusError: Server error|(?<!/)Server error '50\d .{0,60}' for url '(?!https://(?:huggingface|hf|cdn))|"
         r"Failed to reach API at |(?:prefect|airflow|flyte|dagster|zenml|metaflow|determined|clearml|polyaxon)\S{0,80} .{0,160}"
         r"(?:status(?: code)?:? 50\d|50[0234][ :](?:Server|Internal|Bad Gateway|Service|Gateway)|[Cc]onnection (?:refused|attempts failed))|"
         r"(?:API|master) (?:is )?unreachable|Could not connect (?:with|to) (?:the )?API server", F.CONTROL_PLANE, 0.85,
         "nobody",
         "prefect.exceptions.PrefectHTTPStatusError: Server error '500 Internal Server Error' for url 'https://api.prefect.cloud/api/x'",
         "prefect.exceptions.PrefectHTTPStatusError: Client error '404 Not Found' for url 'https://api.prefect.cloud/api/x'",
         "Prefect, ClearML, Determined and the like",
         literals=("500 gateway", "500 server", "500 service", "500:server", "502 gateway", "502 server", "502 service", "502:server", "503 gateway", "503 server", "503 service", "503:server", "504 gateway", "504 server", "504 service", "504:server", ":gateway", ":service", "bad gateway", "connection attempt", "connection refused", "failed to reach ap", "internal", "prefecthttpstatuse", "server error '50", "status 50", "status code 50", "status code: 50", "status: 50", "uld not connec", "unreachable"), supersedes=("python-exception", *ECHOES)),
    Rule("http-client-lost", r"\b(?:httpx|httpcore|aiohttp)\S{0,40}\.(?:Connect(?:Error|Timeout)|ReadTimeout|ReadError|PoolTimeout|"
         r"RemoteProtocolError|ServerDisconnectedError|ClientConnectorError)\b", F.CONTROL_PLANE, 0.5, "nobody",
         "httpx.ConnectError: All connection attempts failed",
         "httpx.HTTPStatusError: Client error '404 Not Found'",
         "httpx, aiohttp: what clients of orchestrators raise", literals=(".clientconnectorer", ".connecterror", ".connecttimeout", ".pooltimeout", ".readerror", ".readtimeout", ".remoteprotocolerr", ".serverdisconnecte"),
         supersedes=("python-exception",)),
    Rule("tracker-away",
         r"Run initialization has timed out after|wandb\S{0,40}\.(?:CommError|MailboxError|ServiceStart\w{3,20}Error)\b"
         r"(?!.{0,200}(?:permission|40[134]|not found|does not exist))|wandb: ERROR .{0,120}(?:timed out|HTTP 5\d\d|50[0234] |"
         r"[Nn]etwork|connect)|(?:Mlflow|Rest)Exception: .{0,300}(?:error code (?:50\d|429)|failed with exception|[Mm]ax retries|"
         r"[Tt]imed out|TEMPORARILY_UNAVAILABLE|INTERNAL_ERROR)|NeptuneConnectionLostException|"
         r"COMET ERROR: .{0,80}(?:communicat|connect|reach)", F.CONTROL_PLANE, 0.8, "nobody",
         "wandb.errors.errors.CommError: Run initialization has timed out after 90.0 sec.",
         "wandb: Currently logged in as: user. Use `wandb login --relogin` to force relogin",
         "W&B, MLflow, Neptune, Comet clients: the tracker cannot be reached",
         literals=("comet error: ", "commerror", "exception", "mailboxerror", "run initialization", "servicestart", "wandb: error "), supersedes=("python-exception", *ECHOES),
         advice="let the trainer run without its tracker: offline mode, or a longer time-out"),
    Rule("platform-internal-error",
         r"InternalServerError: We encountered an internal error|Internal error (?:encountered|occurred for the current attempt)|"
         r"AlgorithmError: InternalServerError|\bThrottlingException\b|RequestLimitExceeded|"
         r"(?:SageMaker|Vertex|AzureML|Databricks)\S{0,30} .{0,80}internal (?:server |service )?error", F.CONTROL_PLANE, 0.78, "nobody",
         "Training job failed. InternalServerError: We encountered an internal error.  Please try again.",
         "internal error counters: 0",
         "managed training services", literals=("internal", "requestlimitexceed", "throttlingexceptio"),
         supersedes=("python-exception",)),
    Rule("executor-error", r"executor error: |failed to (?:patch|update) (?:workflow|pod|job|task ?run) .{0,120}(?:time|refused|unavail|"
         r"error on the server)|wait container (?:is not running|failed)|[Ff]ailed to save outputs: .{0,120}(?:time|refused|unavail)",
         F.CONTROL_PLANE, 0.6, "nobody",
         "time=\"2020-09-25T14:34:34Z\" level=error msg=\"executor error: could not update the node\"",
         "executor finished",
         "Argo Workflows, Tekton", literals=("executor error: ", "failed to", "wait container fai", "wait container is "), fallback=True),
    Rule("observer-lost", r"(?:lost|losing) (?:connection|contact) (?:to|with) (?:the )?(?:api ?server|control plane|scheduler|controller|"
         r"orchestrator|master\b)|error dialing backend: |(?:scheduler|controller|orchestrator|control plane) (?:is )?(?:unreachable|unavailable|not responding)",
         F.CONTROL_PLANE, 0.8, "nobody",
         "agent: lost connection to the control plane, will try again in 30 s",
         "connection to the control plane established",
         "agents of any platform", literals=("error dialing back", "losing con", "lost con", "not responding", "unavailable", "unreachable"),
         supersedes=ECHOES),
    Rule("workflow-deadline",
         r"level=(?:error|warning) msg=\"(?:error in entry template execution\" error=\")?Deadline exceeded\"|"
         r"(?:reconcil\w{1,6}|operat\w{1,6}|list\w{0,3}|watch\w{0,3}) .{0,80}: context deadline exceeded", F.CONTROL_PLANE, 0.6, "nobody",
         "time=\"2020-10-21T15:37:25Z\" level=warning msg=\"Deadline exceeded\" namespace=v1-0 workflow=alignment-vp4ch",
         "time=\"2020-10-21T15:37:25Z\" level=info msg=\"Processing workflow\" namespace=v1-0 workflow=alignment-vp4ch",
         "Argo Workflows' controller: the API server answers too slowly", literals=("deadline exceeded",), fallback=True),
)  # fmt: skip
