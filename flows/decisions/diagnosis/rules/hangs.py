"""No progress and uneven progress, in the words of watchers and of those who wait.

Watchers are heartbeats, stall inspectors, detectors and schedulers; runtimes of accelerators and people say it, too.
Reports call slow members behind the others, below the fleet, or suspected of being slow.
"""

from __future__ import annotations

from flows.decisions.diagnosis.clues import Rule
from profiles.vocabulary import FaultClass

F = FaultClass
ENDED = ("process_killed", "collective_timeout", "signal-9", "signal-15")
"""What follows when a watcher ends the processes that hang."""

HANG_RULES: tuple[Rule, ...] = (
    Rule("nvrx-hang",
         r"Did not get (?:subsequent|initial) heartbeat\. Waited|RankMonitor\w{0,10}.{0,60}(?:hang|hung|timed? ?out)|"
         r"(?:section|Section) .{1,60}(?:has been open|out-of-section).{0,60}(?:time ?out|exceed)", F.HANG, 0.85, "rank",
         "[WARNING] [RankMonitorServer:34] Did not get subsequent heartbeat. Waited 171.92 seconds.",
         "heartbeat received",
         "NVIDIA resiliency extension", supersedes=ENDED),
    Rule("nvrx-straggler", r"STRAGGLER DETECTION WARNING: Some (?:GPUs|sections|ranks)|Some GPUs have worse (?:relative|individual) perf",
         F.STRAGGLER, 0.7, "nobody",
         "STRAGGLER DETECTION WARNING: Some GPUs have worse relative performance.",
         "Straggler report processing time: 0.042 sec.",
         "NVIDIA resiliency extension"),
    Rule("straggler-said",
         r"(?i)\b(?:detected|found|identified) (?:a |the )?slow (?:rank|node|gpu|worker|machine)|"
         r"\bslow (?:rank|node|gpu|worker)s? (?:was |were |is |are )?(?:detected|found|identified)\b|"
         r"\b(?:detected|found|identified) (?:a |the )?straggl\w{2,4} (?:rank|node|gpu|worker|machine)|"
         r"(?<!no )(?<!0 )\bstragglers? (?:was |were |is |are )?(?:detected|found|identified)\b(?!\s?[:=]? ?(?:\[\]|none|0\b|false|in \d))|"
         r"\b(?:is|as) (?:a |the )?straggler\b(?! (?:if|when))", F.STRAGGLER, 0.65, "nobody",
         "WARNING node check: node 5 is a straggler, its elapsed time is 3.1 times the median",
         "INFO enable_straggler_detection=True, straggler_threshold=1.5",
         "DLRover and others", fallback=True),
    Rule("training-hung",
         r"(?i)\b(?:no step|no progress|training|job|worker\w{0,2}|rank \d{1,7}) .{0,40}(?:for \d+(?:\.\d+)? ?s.{0,20}hung|hang detected|"
         r"appears (?:to be )?(?:hung|stuck|hanging)|(?:is|are) (?:hung|hanging|stuck)\b|hanged\b)|\b(?:hang|deadlock|stall) (?:was )?detected\b|"
         r"\bdetected (?:a |an )?(?:\w{1,12} )?(?:hang|deadlock|stalled (?:job|rank|training))\b|\ball workers (?:are )?h[au]ng", F.HANG, 0.75,
         "nobody",
         "coordinator: no step for 61.0 s: hung",
         "training finished, nothing hung",
         "ours, DLRover and others", supersedes=("collective_timeout",)),
    Rule("dump-timer", r"^Timeout \(\d{1,3}:\d\d:\d\d(?:\.\d{1,6})?\)!$", F.HANG, 0.75, "nobody",
         "Timeout (0:30:00)!",
         "Timeout (30 s) set",
         "faulthandler.dump_traceback_later", supersedes=("collective_timeout",)),
    Rule("lightning-deadlock", r"DeadLock detected from rank: (?P<peer>\d{1,7})", F.USER_CODE, 0.5, "peer",
         "lightning.fabric.utilities.exceptions.DeadlockDetectedException: DeadLock detected from rank: 1",
         "deadlock detector started on rank: 1",
         "Lightning: one rank raised, the others wait", supersedes=("python-exception", "training-hung"), echo=True),
    Rule("elastic-timer-expired", r"Reaping worker_id=\[?\d{1,9}|Expired timers: \[.{3,120}(?:expiration|scope_id)", F.HANG, 0.75, "nobody",
         "INFO torch.distributed.elastic.timer.api: Reaping worker_id=[4121]. Expired timers: ['acquire']",
         "timer started for worker_id=[4121]",
         "torchelastic's timers", supersedes=ENDED),
    Rule("xla-stuck",
         r"This thread has been waiting for .{1,120} seconds and may be stuck|threads to join the rendezvous, but (?:not all|only \d+) of them "
         r"arrived|Termination timeout for .{1,160} exceeded", F.HANG, 0.65, "nobody",
         "E0320 20:56:05 rendezvous.cc:104] [id=0] This thread has been waiting for `first call to collective operation 190; "
         "run_id=-851342065` for 20 seconds and may be stuck. Expected 2 threads to join the rendezvous, but not all of them "
         "arrived on time.",
         "Thread is unstuck! Warning above was a false-positive.",
         "XLA rendezvous.cc"),
    Rule("xla-unstuck", r"Thread is unstuck! Warning above was a false-positive", F.NONE, 1.0, "nobody",
         "E0320 20:56:15 rendezvous.cc:110] Thread is unstuck! Warning above was a false-positive. Perhaps the timeout is too short.",
         "This thread may be stuck.",
         "XLA rendezvous.cc"),
    Rule("recorder-report", r"Not all ranks joining collective|lagging/dead/mismatched ranks that caused the desync", F.HANG, 0.75, "nobody",
         "Not all ranks joining collective: sequence number: 31117",
         "all ranks joined the collective",
         "PyTorch flight recorder, TORCH_NCCL_DESYNC_DEBUG: where they name ranks the observers read them",
         supersedes=("nccl-watchdog-timeout",)),
    Rule("ras-peer-dead",
         r"PEER_DEAD: Process \d{1,9} on node (?P<peer>\S{1,100}) managing GPU|job process(?:es)? (?:is|are) considered dead \(unreachable", F.HANG,
         0.6, "peer",
         "[2025-12-19 13:07:07] PEER_DEAD: Process 1524345 on node 172.16.64.245 managing GPU 1",
         "[2025-12-19 13:07:07] PEER_NEW: Process 1524345 on node 172.16.64.245 managing GPU 1",
         "NCCL RAS"),
    Rule("began-anew",
         r"(?i)\b(?:training|run|job|it) (?:was )?(?:re)?start(?:ed|ing|s) (?:over |again )(?:from (?:scratch|step 0|iteration 0|epoch 0|the beginning)|at step 0)|"
         r"\bstarted over (?:from|at) (?:scratch|step|iteration|epoch)|instead of resuming", F.STARTED_OVER, 0.8, "nobody",
         "coordinator: the training started over at step 1 although a checkpoint of step 240 was there",
         "starting training at step 241",
         "ours and others"),
)  # fmt: skip


LATER = ("collective_timeout", "process_killed", "python-exception")

STALL_RULES: tuple[Rule, ...] = (
    Rule("hang-detected", r"\b(?:[Hh]ang|HANG|[Hh]ung|[Dd]eadlock|DEADLOCK)\b.{0,50}\b(?:detected|suspected|confirmed|DETECTED|"
         r"SUSPECTED)\b|\b(?:[Dd]etected|DETECTED|[Ss]uspected)(?: a| an)?(?: possible| potential)? (?:training |job |node |rank )?"
         r"(?:[Hh]ang|HANG|deadlock)\b", F.HANG, 0.8, "nobody",
         "HANG SUSPECTED on 3 of 64 ranks",
         "hang detection enabled, timeout 1800 s",
         "DLRover, NVRx and others' watchers", fallback=True, supersedes=LATER),
    Rule("no-progress", r"(?i)\bno (?:training )?(?:progress(?! bar)|step (?:update|progress)|new steps?|iterations?)\b.{0,30}"
         r"\b(?:for|in|within|since)\b.{0,16}\d|\b(?:has|have) not (?:changed|advanced|progressed|increased|made (?:any )?progress)\b"
         r".{0,40}\b(?:for|in|since)\b.{0,12}\d|\bappears? to be (?:stuck|hung|hanging)\b|\btraining (?:is|seems) (?:stuck|hung|hanging)\b",
         F.HANG, 0.75, "nobody",
         "No step update in 30 minutes on job 4711",
         "no progress bar in 3 columns",
         "watchers of steps", fallback=True, supersedes=LATER),
    Rule("heartbeat-of-a-rank", r"did not get (?:initial|subsequent) heartbeat from rank[ =](?P<peer>\d{1,7})\b|"
         r"[Hh]eartbeat (?:of|from) rank[ =](?P<rank>\d{1,7}) (?:timed out|is missing|was lost)|no heartbeat from rank[ =]\d{1,7}\b",
         F.HANG, 0.82, "peer",
         "FT: did not get subsequent heartbeat from rank=3. Waited 0:10:00.",
         "heartbeat from rank 3 received",
         "nvidia-resiliency-ext fault tolerance", fallback=True, supersedes=LATER),
    Rule("stuck-in-call", r"\brank[ =]\d{1,7} (?:is |was )?(?:stuck|hung|blocked) (?:in|at|on) \w", F.HANG, 0.72, "nobody",
         "rank 4 stuck in ncclGroupEnd; all other ranks in all_gather",
         "rank 4 stuck to its schedule",
         "watchers that read stacks", fallback=True, supersedes=LATER),
    Rule("slower-than-others", r"(?i)\b(?:rank|gpu|node|worker|host)s?[ =#:]{1,2}(?P<peer>[\w.-]{1,60}) (?:is|was|runs) "
         r"(?:consistently |significantly |persistently |much |about )?(?:\d[\d.]{0,8} ?[x%] )?slower than", F.STRAGGLER, 0.75, "peer",
         "Worker 7 is consistently slower than others (forward 812 ms vs 304 ms)",
         "step 7 was slower than step 6",
         "watchers of step times"),
    Rule("slow-member", r"(?i)\bslow (?:node|host|rank|gpu|worker)s?(?: detected)?[ :=]{1,2}(?P<peer>[\w.-]{0,50}\d[\w.-]{0,20})\b|"
         r"\bperformance\b.{0,100}\bSTRAGGLER\b", F.STRAGGLER, 0.72, "peer",
         "slow node gpu-17: GEMM 410 TFLOPS vs fleet median 690 TFLOPS",
         "slow nodes are avoided",
         "node tests and reports of relative performance"),
)  # fmt: skip


WATCHER_LATER = ("collective_timeout", "process_killed", "python-exception")

WATCHER_RULES: tuple[Rule, ...] = (
    Rule("stuck-for",
         r"(?i)^(?!.{0,300}\b(?:if|when|unless|would|until|considered|threshold)\b).{0,200}?\b(?:training|steps?|iterations?|batch|job|process(?:es)?|ranks?|workers?|trainers?|run|loop|collective|all_?reduce|barrier)\b.{0,60}"
         r"\b(?:stuck|hung|hanging|frozen|stalled|wedged|unchanged)\b(?!.{0,40}(?:pending|terminating|creating|queue))(?<!not stuck).{0,40}?"
         r"\b(?:for|since|over)\b (?:more than |over |about |the last |> ?)?\d", F.HANG, 0.7, "nobody",
         "Training has been stuck at step 1200 for 45 minutes",
         "job is stuck in pending for 45 minutes",
         "watchers and people", fallback=True, supersedes=WATCHER_LATER),
    Rule("step-unfinished",
         r"(?i)\b(?:step|iteration|batch)[ =#]\d{1,9} (?:has not|hasn't|did not|didn't|never) (?:finish|complete|advance|return|end)\w{0,2}\b|"
         r"\bstep has not (?:been )?(?:incremented|advanced|changed) in\b|"
         r"\b(?:did not|has not|hasn't|didn't) (?:make|made) (?:any )?progress\b.{0,30}\d|\bseems? (?:to )?(?:hang|be hanging|be stuck)\b", F.HANG, 0.7,
         "nobody",
         "[watchdog] step 1200 has not finished after 1800s; dumping stacks",
         "[watchdog] step 1200 has finished after 18s",
         "watchers of steps", fallback=True, supersedes=WATCHER_LATER),
    Rule("no-output-for",
         r"(?i)\bno (?:log |std(?:out|err) |new )?(?:output|activity|logs?|log lines?|results?)\b.{0,50}\b(?:for|in|within|since)\b.{0,12}\b(?:\d{3,6} ?"
         r"(?:s|secs?|seconds)|\d{1,4} ?(?:m|mins?|minutes|h|hours?))\b|\b(?:no gpu activity\b|gpu util\w{0,8}\b.{0,60}\b0(?:\.0{1,2})? ?%).{0,40}\bfor \d",
         F.HANG, 0.62, "nobody",
         "No output has been received in the last 60 minutes",
         "no log output configured for rank 3",
         "CI runners, schedulers that end idle jobs, log watchers", fallback=True, supersedes=WATCHER_LATER),
    Rule("hang-named",
         r"(?<![\w.=])(?:TRAINING_HANG|JobHang|TrainingHang\w{0,10}|JOB_HANG(?:ED)?)\b(?!\s?=)|(?i:\bpossible hang\b|\bprogram hung\b|\blaunch group hung\b|"
         r"\bmight be (?:hung|stuck|hanging)\b|"
         r"\bstuck collective\b|\bcollective_stuck\b|\bkilling (?:the )?(?:hung|stuck|hanging)\b|\bdeclaring (?:it )?hung\b|\bstep timer expired\b)", F.HANG, 0.72, "nobody",
         "E  Program hung! Status: core halted waiting for DMA",
         "E  Program hangs up the modem",
         "DLRover, TPU runtime, Ray Train", fallback=True, supersedes=WATCHER_LATER),
    Rule("section-overdue",
         r"\brank[ =](?P<peer>\d{1,7})\b.{0,20}\bsection ['\"]?\w{1,40}['\"]? (?:exceeded|has exceeded|is over)|"
         r"\brank[ =](?P<who>\d{1,7})\b.{0,40}\blast heartbeat(?: was)? \d", F.HANG, 0.75, "peer",
         "rank 9 section 'step' exceeded timeout 600.0 s",
         "rank 9 section 'step' took 6.0 s",
         "watchers of sections and heartbeats", fallback=True, supersedes=WATCHER_LATER),
    Rule("ras-incomplete", r"Missing communicator data from \d{1,6} job process", F.HANG, 0.65, "nobody",
         "  Missing communicator data from 1 job process",
         "  Communicator data from 8 job processes",
         "NCCL RAS: some processes answer no more"),
    Rule("rank-never-came",
         r"(?i)\brank[ =](?P<peer>\d{1,7}) (?:has )?(?:never|did not|didn't|has not) (?:enter|join|reach|arrive)\w{0,2}\b", F.HANG, 0.7, "peer",
         "[Flight Recorder] collective sequence 221: ranks [0,1,2] entered ALLREDUCE, rank 3 never entered",
         "rank 3 entered ALLREDUCE",
         "reports on collectives", fallback=True, supersedes=("collective_timeout",)),
    Rule("person-says-it-hangs",
         r"(?i)\b(?:it|training|the job|script|program|process|everything|code|run) (?:just |then |simply |always |still )?(?:hangs|freezes|gets stuck|"
         r"is frozen|got stuck|froze|is stuck|stalls)(?: (?:here|there|at|forever|indefinitely|on|after|in|without)\b|[.!,])", F.HANG, 0.6, "nobody",
         "Training just freezes here, no error, GPU util 100% on all.",
         "the script hangs up its coat",
         "people, beside the log they show", fallback=True, supersedes=("collective_timeout",)),
    Rule("ranks-silent",
         r"\b[Rr]anks? \[?(?P<peer>\d[\d, ]{0,200})\]?:? (?:(?:has|have) not reported (?:any )?progress|heartbeat (?:is |was )?(?:stale|expired|overdue))",
         F.HANG, 0.75, "peer",
         "ranks [3, 7] have not reported progress for 600 seconds",
         "ranks [3, 7] have reported progress",
         "watchers of ranks", fallback=True, supersedes=WATCHER_LATER),
)  # fmt: skip


LAGGARD_RULES: tuple[Rule, ...] = (
    Rule("lags-behind",
         r"(?i)\b(?:rank|gpu|node|worker|host)s?[ =#:]{1,2}(?P<peer>[\w.-]{0,50}\d[\w.-]{0,20})\b.{0,40}\b(?:(?:is|was) )?(?:lagging behind|lags (?:\d{1,3} ?% )?behind|"
         r"falling behind|underperform(?:s|ing)|performance degraded)\b", F.STRAGGLER, 0.7, "peer",
         "WARNING rank 6 is lagging behind: the mean over the last 50 steps is 2.1 times that of the others",
         "rank 6 is behind a proxy",
         "watchers of step times", fallback=True),
    Rule("marked-slow",
         r"(?i)\b(?:rank|gpu|node|worker|host)s?[ =#:]{1,2}(?P<peer>[\w.-]{0,50}\d[\w.-]{0,20})\b (?:is |was |has been )?(?:marked|flagged|reported) (?:as )?"
         r"(?:too )?slow\b|\b(?:possible|suspected|likely|suspect) slow (?:gpu|node|rank|host|worker)\b", F.STRAGGLER, 0.68, "peer",
         "NodeSlow: node worker-8 marked slow (z-score 6.1)",
         "node worker-8 marked schedulable",
         "watchers of step times", fallback=True),
    Rule("outlier-ranks",
         r"(?i)\b(?:(?:outlier|slow|lagging) ranks? (?:by|in|over) [\w ]{2,40}|slow_ranks?['\"]?)[:=] ?\[?(?P<peer>\d[\d, ]{0,200})(?=[\];]|$)", F.STRAGGLER, 0.7, "peer",
         "Outlier ranks by step time: [12]; p50=1.01s, rank 12=2.20s",
         "Outlier ranks by step time: []",
         "reports of step times", fallback=True),
    Rule("slower-than-median",
         r"(?i)\brank[ =]r?(?P<peer>\d{1,7})\b.{0,60}\b(?:vs\.?|versus|against|compared (?:to|with)) (?:the )?(?:fleet |group |world )?"
         r"(?:median|average|mean)\b", F.STRAGGLER, 0.68, "peer",
         "Rank r2 input wait was 199.7ms vs median rank r0 at 10.4ms.",
         "rank 2 loss was 1.9 at the median step",
         "profilers of steps that compare ranks", fallback=True),
    Rule("named-slow", r"(?i)(?:^|[\s\[])slow[ _-](?:node|host|gpu|worker)s?\]?[:=]? ?\[?(?P<peer>(?=[\w.-]{0,60}\d)[\w.-]{1,60})",
         F.STRAGGLER, 0.62, "peer",
         "[slow node] gpu-node-11: matmul 512 TFLOPS (fleet median 780)",
         "[slow node] detector is on",
         "benchmarks of fleets", fallback=True),
    Rule("score-below",
         r"(?i)\brank[ =](?P<peer>\d{1,7})\b.{0,60}\bperf(?:ormance)? score\b.{0,30}\bbelow\b", F.STRAGGLER, 0.72, "peer",
         "Rank 5 individual GPU perf score 0.51 is below threshold 0.7",
         "Rank 5 individual GPU perf score 0.98",
         "reports in the manner of NVIDIA's resiliency extension", fallback=True),
)  # fmt: skip
