"""Exceptions by their form alone. What they are is judged by `flows.decisions.raised`, where no other rule knows them."""

from __future__ import annotations

from flows.decisions.rules import Rule
from profiles.vocabulary import FaultClass

F = FaultClass

RULES: tuple[Rule, ...] = (
    Rule("user-interrupt", r"^KeyboardInterrupt\b", F.UNKNOWN, 0.2, "nobody",
         "KeyboardInterrupt",
         "press Ctrl-C for KeyboardInterrupt",
         "CPython: somebody sent SIGINT", literals=("keyboardinterrupt",), echo=True),
    Rule("nccl-python-wrapper", r"^torch\.distributed\.Dist(?:Backend|Network)Error: ", F.COLLECTIVE_TIMEOUT, 0.45,
         "nobody",
         "torch.distributed.DistBackendError: NCCL communicator was aborted on rank 3.",
         "torch.distributed.DistStoreError: Timed out",
         "PyTorch", literals=("torch.distributed.",), supersedes=("python-exception",), echo=True, fallback=True),
    Rule("connection-error",
         r"^(?:[A-Za-z_][\w.]{0,100}\.)?(?:Connection\w{0,20}Error|EOFError|TimeoutError|socket\.timeout|"
         r"IncompleteReadError)\b(?!.{0,40}refused)(?!: Ran out of input)(?!: Compressed file)", F.COLLECTIVE_TIMEOUT, 0.4, "nobody",
         "EOFError: the stream ended inside of a message",
         "no connection errors",
         "CPython: what survivors raise when a peer dies", literals=("connection", "error", "socket.timeout"),
         supersedes=("python-exception",), echo=True, fallback=True),
    Rule("python-exception",
         r"^(?:[A-Za-z_][\w.]{0,100}\.)?[A-Z]\w{0,60}(?:Error|Exception|Interrupt|Exit|Iteration)(?:: |:$|$)|"
         r"^[a-z_][\w.]{0,80}(?:\.|_)(?:errors?|exceptions?|exc|errorfactory)\.[A-Z]\w{2,60}(?:: |:?$)",
         F.USER_CODE, 0.8, "code",
         "IndexError: list index out of range",
         "note: Error handling is on",
         "CPython: an exception nobody caught", literals=("error", "exception", "exit", "interrupt", "iteration", ".exc.", "_exc."),
         fallback=True),
    Rule("logged-exception",
         r"^(?!.{0,1500}(?i:\bretry|\bretrying|ignor|skipp|fall(?:ing)?[ -]?back|will try|continu|WARN))"
         r"(?:.{0,120}\b(?:ERROR|CRITICAL|FATAL|[Ff]atal|[Ff]ailed)\b.{0,160}?[\s:'\"(\[<]|\s{0,40}\"message\": \")"
         r"(?:[A-Za-z_][\w.]{0,100}\.)?[A-Z]\w{0,60}(?:Error|Exception)(?:'>)?[:,(]", F.USER_CODE, 0.5, "code",
         "2025-03-01 10:00:00,123 - trainer - ERROR - step 7 failed: KeyError: 'labels'",
         "2025-03-01 10:00:00,123 - trainer - ERROR - KeyError: 'labels', falling back to the default",
         "logging, torchelastic's error file: an exception that was caught and told of", literals=("error", "exception"),
         fallback=True),
    Rule("native-exception",
         r"terminate called after throwing an instance of 'std::(?:out_of_range|logic_error|length_error|bad_function_call|"
         r"bad_optional_access|bad_variant_access|bad_cast|domain_error)'|^thread '.{1,80}' (?:\(\d{1,9}\) )?panicked at ", F.USER_CODE, 0.55, "code",
         "terminate called after throwing an instance of 'std::out_of_range'",
         "terminate called after throwing an instance of 'c10::Error'",
         "C++ and Rust runtimes: what the program's own code threw",
         literals=("terminate called after", "panicked at"), supersedes=("dumped-core", "signal-6")),
    Rule("syntax-error", r"^(?:SyntaxError|IndentationError|TabError): ", F.USER_CODE, 0.95, "code",
         "SyntaxError: invalid syntax",
         "no SyntaxError here",
         "CPython", literals=("error:",)),
)  # fmt: skip
