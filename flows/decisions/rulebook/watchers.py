"""Hangs in the words of those who wait: watchers, schedulers, runtimes of accelerators, and people."""

from __future__ import annotations

from flows.decisions.rules import Rule
from profiles.vocabulary import FaultClass

F = FaultClass
LATER = ("collective_timeout", "process_killed", "python-exception")

RULES: tuple[Rule, ...] = (
    Rule("stuck-for",
         r"(?i)^(?!.{0,300}\b(?:if|when|unless|would|until|considered|threshold)\b).{0,200}?\b(?:training|steps?|iterations?|batch|job|process(?:es)?|ranks?|workers?|trainers?|run|loop|collective|all_?reduce|barrier)\b.{0,60}"
         r"\b(?:stuck|hung|hanging|frozen|stalled|wedged|unchanged)\b(?!.{0,40}(?:pending|terminating|creating|queue))(?<!not stuck).{0,40}?"
         r"\b(?:for|since|over)\b (?:more than |over |about |the last |> ?)?\d", F.HANG, 0.7, "nobody",
         "Training has been stuck at step 1200 for 45 minutes",
         "job is stuck in pending for 45 minutes",
         "watchers and people", fallback=True,
         literals=("stuck", "hung", "hanging", "frozen", "stalled", "wedged", "unchanged"), supersedes=LATER),
    Rule("step-unfinished",
         r"(?i)\b(?:step|iteration|batch)[ =#]\d{1,9} (?:has not|hasn't|did not|didn't|never) (?:finish|complete|advance|return|end)\w{0,2}\b|"
         r"\bstep has not (?:been )?(?:incremented|advanced|changed) in\b|"
         r"\b(?:did not|has not|hasn't|didn't) (?:make|made) (?:any )?progress\b.{0,30}\d|\bseems? (?:to )?(?:hang|be hanging|be stuck)\b", F.HANG, 0.7,
         "nobody",
         "[watchdog] step 1200 has not finished after 1800s; dumping stacks",
         "[watchdog] step 1200 has finished after 18s",
         "watchers of steps", fallback=True, literals=("step", "iteration", "batch", "progress", "seem"), supersedes=LATER),
    Rule("no-output-for",
         r"(?i)\bno (?:log |std(?:out|err) |new )?(?:output|activity|logs?|log lines?|results?)\b.{0,50}\b(?:for|in|within|since)\b.{0,12}\b(?:\d{3,6} ?"
         r"(?:s|secs?|seconds)|\d{1,4} ?(?:m|mins?|minutes|h|hours?))\b|\b(?:no gpu activity\b|gpu util\w{0,8}\b.{0,60}\b0(?:\.0{1,2})? ?%).{0,40}\bfor \d",
         F.HANG, 0.62, "nobody",
         "No output has been received in the last 60 minutes",
         "no log output configured for rank 3",
         "CI runners, schedulers that end idle jobs, log watchers", fallback=True,
         literals=("no log", "no std", "no new", "no output", "no activity", "no result", "no gpu activity", "gpu util"), supersedes=LATER),
    Rule("hang-named",
         r"(?<![\w.=])(?:TRAINING_HANG|JobHang|TrainingHang\w{0,10}|JOB_HANG(?:ED)?)\b(?!\s?=)|(?i:\bpossible hang\b|\bprogram hung\b|\blaunch group hung\b|"
         r"\bmight be (?:hung|stuck|hanging)\b|"
         r"\bstuck collective\b|\bcollective_stuck\b|\bkilling (?:the )?(?:hung|stuck|hanging)\b|\bdeclaring (?:it )?hung\b|\bstep timer expired\b)", F.HANG, 0.72, "nobody",
         "E  Program hung! Status: core halted waiting for DMA",
         "E  Program hangs up the modem",
         "DLRover, TPU runtime, Ray Train", fallback=True,
         literals=("training_hang", "jobhang", "traininghang", "job_hang", "possible hang", "program hung", "group hung", "might be ",
                   "stuck collective", "collective_stuck", "killing ", "declaring ", "step timer"), supersedes=LATER),
    Rule("section-overdue",
         r"\brank[ =](?P<peer>\d{1,7})\b.{0,20}\bsection ['\"]?\w{1,40}['\"]? (?:exceeded|has exceeded|is over)|"
         r"\brank[ =](?P<who>\d{1,7})\b.{0,40}\blast heartbeat(?: was)? \d", F.HANG, 0.75, "peer",
         "rank 9 section 'step' exceeded timeout 600.0 s",
         "rank 9 section 'step' took 6.0 s",
         "watchers of sections and heartbeats", fallback=True, literals=("section", "last heartbeat"), supersedes=LATER),
    Rule("ras-incomplete", r"Missing communicator data from \d{1,6} job process", F.HANG, 0.65, "nobody",
         "  Missing communicator data from 1 job process",
         "  Communicator data from 8 job processes",
         "NCCL RAS: some processes answer no more", literals=("missing communicator",)),
    Rule("rank-never-came",
         r"(?i)\brank[ =](?P<peer>\d{1,7}) (?:has )?(?:never|did not|didn't|has not) (?:enter|join|reach|arrive)\w{0,2}\b", F.HANG, 0.7, "peer",
         "[Flight Recorder] collective sequence 221: ranks [0,1,2] entered ALLREDUCE, rank 3 never entered",
         "rank 3 entered ALLREDUCE",
         "reports on collectives", fallback=True, literals=("rank",), supersedes=("collective_timeout",)),
    Rule("person-says-it-hangs",
         r"(?i)\b(?:it|training|the job|script|program|process|everything|code|run) (?:just |then |simply |always |still )?(?:hangs|freezes|gets stuck|"
         r"is frozen|got stuck|froze|is stuck|stalls)(?: (?:here|there|at|forever|indefinitely|on|after|in|without)\b|[.!,])", F.HANG, 0.6, "nobody",
         "Training just freezes here, no error, GPU util 100% on all.",
         "the script hangs up its coat",
         "people, beside the log they show", fallback=True, literals=("hangs", "freezes", "stuck", "frozen", "froze", "stalls"),
         supersedes=("collective_timeout",)),
    Rule("ranks-silent",
         r"\b[Rr]anks? \[?(?P<peer>\d[\d, ]{0,200})\]?:? (?:(?:has|have) not reported (?:any )?progress|heartbeat (?:is |was )?(?:stale|expired|overdue))",
         F.HANG, 0.75, "peer",
         "ranks [3, 7] have not reported progress for 600 seconds",
         "ranks [3, 7] have reported progress",
         "watchers of ranks", fallback=True, literals=("not reported", "heartbeat"), supersedes=LATER),
)  # fmt: skip
