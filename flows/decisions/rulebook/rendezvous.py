"""Finding each other: stores, names, ports, and what is needed for it."""

from __future__ import annotations

from flows.decisions.rules import Rule
from profiles.vocabulary import FaultClass

F = FaultClass

RULES: tuple[Rule, ...] = (
    Rule("store-timeout",
         r"(?:wait timeout after \d+ms, keys:|\bSocket Timeout\b|"
         r"The client socket has timed out after \d+|client socket has failed to connect to any network address|"
         r"connect\(\) timed out\. Original timeout was \d+ ms)",
         F.RENDEZVOUS, 0.72, "nobody",
         "torch.distributed.DistStoreError: wait timeout after 300000ms, keys: /default_pg/0//worker/attempt_0",
         "store ready",
         "PyTorch TCPStore", literals=("t timeout", "timed out after ", "has failed to conn", "timed out. original"), supersedes=("connection-refused",)),
    Rule("store-waits",
         r"Timed out after \d+ seconds waiting for clients|Timed out initializing process group in store based barrier|"
         r"Timed out waiting for \d+ (?:clients|workers|nodes|processes)|\d+/\d+ (?:clients|workers|nodes) joined", F.RENDEZVOUS,
         0.75, "nobody",
         "torch.distributed.DistStoreError: Timed out after 901 seconds waiting for clients. 15/16 clients "
         "joined.",
         "store ready: 16 clients",
         "PyTorch: this one waited, another one did not come",
         literals=("seconds waiting for", "timed out initiali", "timed out waiting ", "joined"), supersedes=("python-exception",), echo=True),
    Rule("store-error", r"\bDistStoreError\b", F.RENDEZVOUS, 0.6, "nobody",
         "torch.distributed.DistStoreError: Could not create the store",
         "store without an error",
         "PyTorch", literals=("diststoreerror",), fallback=True, supersedes=("python-exception",)),
    Rule("rendezvous-failed", r"\bRendezvous(?:Timeout|Closed|Connection|State|Graceful\w{0,10})?(?:Error|Exit)\b|"
         r"(?i:\brendezvous\b.{0,40}(?:failed|timed? ?out))|(?i:time[d ]{0,2}out .{0,60}\b(?:to (?:complete|join)|waiting for) .{0,40}rendezvous)|"
         r"has failed to send a keep-alive heartbeat to the rendezvous", F.RENDEZVOUS, 0.8, "nobody",
         "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d "
         "store has failed. See inner exception for details.",
         "rendezvous complete",
         "torchrun, DLRover", literals=("rendezvous",)),
    Rule("address-in-use", r"(?:EADDRINUSE|(?i:address already in use)|[Pp]ort \d{2,5} is (?:already )?(?:in use|occupied)|"
         r"failed to listen on any local network address|Only one usage of each socket address|but another process is utilizing it)", F.RENDEZVOUS, 0.85, "nobody",
         "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network "
         "address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
         "the address is in usage statistics",
         "errno EADDRINUSE",
         literals=("address already in", "eaddrinuse", "in use", "occupied", "failed to listen o", "only one usage of ", "another process is ")),
    Rule("connection-refused", r"(?:Connection refused|ECONNREFUSED)", F.RENDEZVOUS, 0.45, "nobody",
         "ConnectionRefusedError: [Errno 111] Connection refused",
         "request refused by policy",
         "errno ECONNREFUSED", literals=("connection refused", "econnrefused"), echo=True),
    Rule("nccl-refused",
         r"(?:[Cc]onnect(?:ion)? to (?P<peer>[\w.\-:%]{1,64}?)<\d{1,5}>|NCCL WARN .{0,100}connect) (?:returned|failed ?:) Connection refused(?!, retrying)",
         F.RENDEZVOUS, 0.5, "peer",
         "gpu-3:2387398:2387398 [3] os/linux.cc:200 NCCL WARN ncclOsSocketPollConnect: connect to 10.82.101.249<37857> returned "
         "Connection refused, exceeded error retry count after 35 attempts",
         "gpu-3:2387398:2387398 [3] NCCL INFO connect to 10.82.101.249<37857> returned Connection refused, retrying",
         "NCCL's bootstrap: nobody listens at the peer, mostly because it ended", literals=("connection refused",),
         supersedes=("connection-refused",), echo=True),
    Rule("store-unreached", r"client socket has failed to connect to (?!any)\S{1,120} \(errno: (?:101|110|113)\b", F.RENDEZVOUS, 0.6,
         "nobody",
         "[W socket.cpp:601] [c10d] The client socket has failed to connect to [node-0]:29500 (errno: 110 - Connection timed out).",
         "[W socket.cpp:601] [c10d] The client socket has failed to connect to [node-0]:29500 (errno: 111 - Connection refused).",
         "PyTorch TCPStore: tried again until the time is up", literals=("client socket has ",), supersedes=("no-route",)),
    Rule("name-resolution",
         r"(?:[Tt]emporary failure in name resolution|Name or service not known|nodename nor servname provided|"
         r"[Cc]ould not resolve host|No address associated with hostname|getaddrinfo .{0,60}(?:failed|ENOTFOUND|EAI_AGAIN)|"
         r"cannot be retrieved \(gai error|nslookup: can't resolve|server can't find \S{1,120}: NXDOMAIN|Name does not resolve)", F.RENDEZVOUS, 0.75, "nobody",
         "socket.gaierror: [Errno -3] Temporary failure in name resolution",
         "resolved host in 3 ms",
         "getaddrinfo", literals=("servname", "service not known", "resolution", "resolve host", "no address associat", "getaddrinfo", "(gai error",
                                 "nslookup: can't re", "server can't find ", "does not resolve"),
         supersedes=("store-timeout", "store-error")),
    Rule("nccl-unique-id", r"(?:retrieving ncclUniqueId from|ncclInvalidUsage)", F.RENDEZVOUS, 0.55, "nobody",
         "RuntimeError: [1] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d "
         "key-value store by key '0', but store->get('0') got error: Connection was closed",
         "ncclUniqueId was sent",
         "PyTorch: rank 0 did not come to it, or went away",
         literals=("retrieving nccluniq", "ncclinvalidusage"), supersedes=("store-lost", "peer-reset", "python-exception"), echo=True),
    Rule("jax-connect",
         r"Barrier timed out\. (?:Barrier_)?[Ii]d: PjRT_Client_Connect|RPC: /tensorflow\.CoordinationService/RegisterTask|"
         r"[Ff]ailed to connect to (?:the )?(?:JAX |distributed )?coordinat(?:or|ion service)|jax\.distributed\.initialize.{0,80}(?:timed? ?out|fail)",
         F.RENDEZVOUS, 0.75, "nobody",
         "jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Id: PjRT_Client_Connect. This usually "
         "happens because a task triggered the barrier too early or too slowly.",
         "Connected to the JAX coordinator",
         "JAX coordination service: before the first step",
         literals=("pjrt_client_connect", "registertask", "failed to connect t", "jax.distributed.ini"), supersedes=("jax-barrier", "python-exception")),
    Rule("horovod-start-timeout", r"Timed out waiting for (?:tasks to start|[Ss]park tasks|hosts|(?:the )?mpirun)|"
         r"TimeoutException: Timed out waiting for", F.RENDEZVOUS, 0.7, "nobody",
         "horovod.runner.common.util.timeout.TimeoutException: Timed out waiting for tasks to start. Please check connectivity "
         "between servers. You may need to increase the --start-timeout parameter if you have too many servers.",
         "all tasks started",
         "Horovod's launcher", literals=("timed out waiting ",), supersedes=("python-exception",)),
    Rule("bootstrap-mismatch",
         r"Bootstrap Root : (?:mismatch in rank count|rank \d+ of \d+ ranks has already checked in)|"
         r"bootstrap.{0,60}mismatch in (?:rank|nranks|magic)", F.CONFIG, 0.75, "code",
         "gpu-3:1958:1958 [3] bootstrap.cc:151 NCCL WARN Bootstrap Root : mismatch in rank count from procs 16 : 8",
         "gpu-3:1958:1958 [3] NCCL INFO Bootstrap Root : all ranks checked in",
         "NCCL's bootstrap", literals=("bootstrap",), supersedes=("nccl-unhandled",), advice="start all ranks with one world size"),
    Rule("nccl-duplicate-gpu", r"Duplicate GPU detected : rank \d+ and rank \d+", F.CONFIG, 0.9, "code",
         "NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 3b000",
         "GPU detected : 8",
         "NCCL init", literals=("duplicate gpu dete",), supersedes=("rendezvous",), advice="set the device from LOCAL_RANK"),
    Rule("env-missing", r"environment variable (?:MASTER_ADDR|MASTER_PORT|RANK|WORLD_SIZE) expected, but not set",
         F.CONFIG, 0.9, "code",
         "ValueError: Error initializing torch.distributed using env:// rendezvous: environment variable "
         "MASTER_ADDR expected, but not set",
         "environment variable RANK is 3",
         "PyTorch", literals=("environment variab",), advice="start the program by its launcher"),
    Rule("address-family", r"\(errno: 97 - Address family not supported by protocol\)", F.NONE, 1.0, "nobody",
         "[W304 12:17:18.228653728 socket.cpp:767] [c10d] The client socket cannot be initialized to connect to "
         "[::ffff:10.99.91.59]:29500 (errno: 97 - Address family not supported by protocol).",
         "OSError: [Errno 97] Address family not supported by protocol",
         "PyTorch tries IPv6 first and then IPv4", literals=("(errno: 97 - addres",)),
    Rule("jax-not-registered",
         r"coordination service as cluster registration failed|Barrier timed out\. Id: \[Init\]Wait_for_all_tasks_to_register",
         F.RENDEZVOUS, 0.88, "nobody",
         "Stopping coordination service as cluster registration failed. This may be due to 1) some tasks crashed earlier "
         "before connecting, 2) some tasks were never scheduled, or 3) scheduling delays.",
         "Barrier timed out. Id: 0_async_write_complete.0.1.",
         "JAX coordination service", literals=("cluster registratio", "wait_for_all_tasks_"), supersedes=("jax-barrier", "python-exception")),
    Rule("store-silent", r"\[c10d\] waitForInput: (?:poll for socket .{0,200} returned 0, likely a timeout|socket .{0,200} timed out after \d)",
         F.RENDEZVOUS, 0.4, "nobody",
         "[W228 18:45:15.741177013 socket.cpp:487] [c10d] waitForInput: socket SocketImpl(fd=11, addr=[a.com]:38674, "
         "remote=[::ffff:33.148.62.162]:23456) timed out after 900000ms",
         "[c10d] waitForInput: socket ready",
         "PyTorch TCPStore", literals=("waitforinput: ",), echo=True, fallback=True),
)  # fmt: skip
