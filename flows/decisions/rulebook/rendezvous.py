"""Finding each other: stores, names, ports, and what is needed for it."""

from __future__ import annotations

from flows.decisions.rules import Rule
from profiles.vocabulary import FaultClass

F = FaultClass

RULES: tuple[Rule, ...] = (
    Rule("store-timeout",
         r"(?:wait timeout after \d+ms, keys:|Timed out after \d+ seconds waiting for clients|Socket Timeout|"
         r"DistStoreError|The client socket has timed out after \d+)", F.RENDEZVOUS, 0.7, "nobody",
         "torch.distributed.DistStoreError: Timed out after 901 seconds waiting for clients. 15/16 clients "
         "joined.",
         "store ready",
         "PyTorch TCPStore", literals=("diststoreerror", "t timeout", "timed out after ")),
    Rule("rendezvous-failed", r"\bRendezvous(?:Timeout|Closed|Connection|State|Graceful\w{0,10})?(?:Error|Exit)\b|"
         r"rendezvous .{0,40}(?:failed|timed out)", F.RENDEZVOUS, 0.8, "nobody",
         "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d "
         "store has failed. See inner exception for details.",
         "rendezvous complete",
         "torchrun", literals=("rendezvous",)),
    Rule("address-in-use", r"(?:EADDRINUSE|Address already in use)", F.RENDEZVOUS, 0.85, "nobody",
         "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network "
         "address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
         "the address is in usage statistics",
         "errno EADDRINUSE", literals=("address already in", "eaddrinuse")),
    Rule("connection-refused", r"(?:Connection refused|ECONNREFUSED)", F.RENDEZVOUS, 0.45, "nobody",
         "ConnectionRefusedError: [Errno 111] Connection refused",
         "request refused by policy",
         "errno ECONNREFUSED", literals=("refused",), echo=True),
    Rule("name-resolution",
         r"(?:Temporary failure in name resolution|Name or service not known|nodename nor servname provided|"
         r"Could not resolve host)", F.RENDEZVOUS, 0.75, "nobody",
         "socket.gaierror: [Errno -3] Temporary failure in name resolution",
         "resolved host in 3 ms",
         "getaddrinfo", literals=("or serv", "resol")),
    Rule("nccl-unique-id", r"(?:failed to recv, got 0 bytes|Failed to recv, got \d+ bytes|ncclInvalidUsage)",
         F.RENDEZVOUS, 0.5, "nobody",
         "RuntimeError: [1] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d "
         "key-value store by key '0', but store->get('0') got error: failed to recv, got 0 bytes",
         "recv got 128 bytes",
         "PyTorch: the store's host went away", literals=("failed to recv, go", "ncclinvalidusage"), echo=True),
    Rule("nccl-duplicate-gpu", r"Duplicate GPU detected : rank \d+ and rank \d+", F.CONFIG, 0.9, "code",
         "NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 3b000",
         "GPU detected : 8",
         "NCCL init", literals=("duplicate gpu dete",), advice="set the device from LOCAL_RANK"),
    Rule("env-missing", r"environment variable (?:MASTER_ADDR|MASTER_PORT|RANK|WORLD_SIZE) expected, but not set",
         F.CONFIG, 0.9, "code",
         "ValueError: Error initializing torch.distributed using env:// rendezvous: environment variable "
         "MASTER_ADDR expected, but not set",
         "environment variable RANK is 3",
         "PyTorch", literals=("environment variab",), advice="start the program by its launcher"),
)  # fmt: skip
