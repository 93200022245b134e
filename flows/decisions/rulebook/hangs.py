"""No progress and uneven progress, as those say it who watch: heartbeats, stall inspectors, detectors."""

from __future__ import annotations

from flows.decisions.rules import Rule
from profiles.vocabulary import FaultClass

F = FaultClass
ENDED = ("process_killed", "collective_timeout", "signal-9", "signal-15")
"""What follows when a watcher ends the processes that hang."""

RULES: tuple[Rule, ...] = (
    Rule("nvrx-hang",
         r"Did not get (?:subsequent|initial) heartbeat\. Waited|RankMonitor\w{0,10}.{0,60}(?:hang|hung|timed? ?out)|"
         r"(?:section|Section) .{1,60}(?:has been open|out-of-section).{0,60}(?:time ?out|exceed)", F.HANG, 0.85, "rank",
         "[WARNING] [RankMonitorServer:34] Did not get subsequent heartbeat. Waited 171.92 seconds.",
         "heartbeat received",
         "NVIDIA resiliency extension", literals=("heartbeat. waited", "rankmonitor", "has been open", "out-of-section"),
         supersedes=ENDED),
    Rule("nvrx-straggler", r"STRAGGLER DETECTION WARNING: Some (?:GPUs|sections|ranks)|Some GPUs have worse (?:relative|individual) perf",
         F.STRAGGLER, 0.7, "nobody",
         "STRAGGLER DETECTION WARNING: Some GPUs have worse relative performance.",
         "Straggler report processing time: 0.042 sec.",
         "NVIDIA resiliency extension", literals=("straggler detectio", "some gpus have wor")),
    Rule("straggler-said",
         r"(?i)\b(?:detected|found|identified) (?:a |the )?slow (?:rank|node|gpu|worker|machine)|"
         r"\bslow (?:rank|node|gpu|worker)s? (?:was |were |is |are )?(?:detected|found|identified)\b|"
         r"\b(?:detected|found|identified) (?:a |the )?straggl\w{2,4} (?:rank|node|gpu|worker|machine)|"
         r"(?<!no )(?<!0 )\bstragglers? (?:was |were |is |are )?(?:detected|found|identified)\b(?!\s?[:=]? ?(?:\[\]|none|0\b|false|in \d))|"
         r"\b(?:is|as) (?:a |the )?straggler\b(?! (?:if|when))", F.STRAGGLER, 0.65, "nobody",
         "WARNING node check: node 5 is a straggler, its elapsed time is 3.1 times the median",
         "INFO enable_straggler_detection=True, straggler_threshold=1.5",
         "DLRover and others", literals=("straggl", "slow "), fallback=True),
    Rule("training-hung",
         r"(?i)\b(?:no step|no progress|training|job|worker\w{0,2}|rank \d{1,7}) .{0,40}(?:for \d+(?:\.\d+)? ?s.{0,20}hung|hang detected|"
         r"appears (?:to be )?(?:hung|stuck|hanging)|(?:is|are) (?:hung|hanging|stuck)\b|hanged\b)|\b(?:hang|deadlock|stall) (?:was )?detected\b|"
         r"\bdetected (?:a |an )?(?:\w{1,12} )?(?:hang|deadlock|stalled (?:job|rank|training))\b|\ball workers (?:are )?h[au]ng", F.HANG, 0.75,
         "nobody",
         "coordinator: no step for 61.0 s: hung",
         "training finished, nothing hung",
         "ours, DLRover and others",
         literals=("no progress ", "no step ", "hung", "hang", "stuck", "deadlock", "stall"), supersedes=("collective_timeout",)),
    Rule("dump-timer", r"^Timeout \(\d{1,3}:\d\d:\d\d(?:\.\d{1,6})?\)!$", F.HANG, 0.75, "nobody",
         "Timeout (0:30:00)!",
         "Timeout (30 s) set",
         "faulthandler.dump_traceback_later", literals=("timeout (",), supersedes=("collective_timeout",)),
    Rule("lightning-deadlock", r"DeadLock detected from rank: (?P<peer>\d{1,7})", F.USER_CODE, 0.5, "peer",
         "lightning.fabric.utilities.exceptions.DeadlockDetectedException: DeadLock detected from rank: 1",
         "deadlock detector started on rank: 1",
         "Lightning: one rank raised, the others wait", literals=("deadlock detected ",), supersedes=("python-exception", "training-hung"),
         echo=True),
    Rule("elastic-timer-expired", r"Reaping worker_id=\[?\d{1,9}|Expired timers: \[.{3,120}(?:expiration|scope_id)", F.HANG, 0.75, "nobody",
         "INFO torch.distributed.elastic.timer.api: Reaping worker_id=[4121]. Expired timers: ['acquire']",
         "timer started for worker_id=[4121]",
         "torchelastic's timers", literals=("reaping worker_id", "expired timers: ["), supersedes=ENDED),
    Rule("xla-stuck",
         r"This thread has been waiting for .{1,120} seconds and may be stuck|threads to join the rendezvous, but (?:not all|only \d+) of them "
         r"arrived|Termination timeout for .{1,160} exceeded", F.HANG, 0.65, "nobody",
         "E0320 20:56:05 rendezvous.cc:104] [id=0] This thread has been waiting for `first call to collective operation 190; "
         "run_id=-851342065` for 20 seconds and may be stuck. Expected 2 threads to join the rendezvous, but not all of them "
         "arrived on time.",
         "Thread is unstuck! Warning above was a false-positive.",
         "XLA rendezvous.cc", literals=("this thread has be", "threads to join th", "termination timeou")),
    Rule("xla-unstuck", r"Thread is unstuck! Warning above was a false-positive", F.NONE, 1.0, "nobody",
         "E0320 20:56:15 rendezvous.cc:110] Thread is unstuck! Warning above was a false-positive. Perhaps the timeout is too short.",
         "This thread may be stuck.",
         "XLA rendezvous.cc", literals=("thread is unstuck!",)),
    Rule("recorder-report", r"Not all ranks joining collective|lagging/dead/mismatched ranks that caused the desync", F.HANG, 0.75, "nobody",
         "Not all ranks joining collective: sequence number: 31117",
         "all ranks joined the collective",
         "PyTorch flight recorder, TORCH_NCCL_DESYNC_DEBUG: where they name ranks the observers read them",
         literals=("not all ranks join", "lagging/dead/misma"), supersedes=("nccl-watchdog-timeout",)),
    Rule("ras-peer-dead",
         r"PEER_DEAD: Process \d{1,9} on node (?P<peer>\S{1,100}) managing GPU|job process(?:es)? (?:is|are) considered dead \(unreachable", F.HANG,
         0.6, "peer",
         "[2025-12-19 13:07:07] PEER_DEAD: Process 1524345 on node 172.16.64.245 managing GPU 1",
         "[2025-12-19 13:07:07] PEER_NEW: Process 1524345 on node 172.16.64.245 managing GPU 1",
         "NCCL RAS", literals=("peer_dead: ", "considered dead (u")),
    Rule("began-anew",
         r"(?i)\b(?:training|run|job|it) (?:was )?(?:re)?start(?:ed|ing|s) (?:over |again )(?:from (?:scratch|step 0|iteration 0|epoch 0|the beginning)|at step 0)|"
         r"\bstarted over (?:from|at) (?:scratch|step|iteration|epoch)|instead of resuming", F.STARTED_OVER, 0.8, "nobody",
         "coordinator: the training started over at step 1 although a checkpoint of step 240 was there",
         "starting training at step 241",
         "ours and others", literals=("start", "instead of resumin")),
)  # fmt: skip
