"""What watchers of progress say: nothing moves any more, or one is slower than all others."""

from __future__ import annotations

from flows.decisions.rules import Rule
from profiles.vocabulary import FaultClass

F = FaultClass
LATER = ("collective_timeout", "process_killed", "python-exception")

RULES: tuple[Rule, ...] = (
    Rule("hang-detected", r"\b(?:[Hh]ang|HANG|[Hh]ung|[Dd]eadlock|DEADLOCK)\b.{0,50}\b(?:detected|suspected|confirmed|DETECTED|"
         r"SUSPECTED)\b|\b(?:[Dd]etected|DETECTED|[Ss]uspected)(?: a| an)?(?: possible| potential)? (?:training |job |node |rank )?"
         r"(?:[Hh]ang|HANG|deadlock)\b", F.HANG, 0.8, "nobody",
         "HANG SUSPECTED on 3 of 64 ranks",
         "hang detection enabled, timeout 1800 s",
         "DLRover, NVRx and others' watchers", fallback=True, literals=("hang", "hung", "deadlock"), supersedes=LATER),
    Rule("no-progress", r"(?i)\bno (?:training )?(?:progress(?! bar)|step (?:update|progress)|new steps?|iterations?)\b.{0,30}"
         r"\b(?:for|in|within|since)\b.{0,16}\d|\b(?:has|have) not (?:changed|advanced|progressed|increased|made (?:any )?progress)\b"
         r".{0,40}\b(?:for|in|since)\b.{0,12}\d|\bappears? to be (?:stuck|hung|hanging)\b|\btraining (?:is|seems) (?:stuck|hung|hanging)\b",
         F.HANG, 0.75, "nobody",
         "No step update in 30 minutes on job 4711",
         "no progress bar in 3 columns",
         "watchers of steps", fallback=True, literals=("progress", "step", "iteration", "not changed", "not advanced", "not increased", "not made ",
                   "stuck", "hung", "hanging"), supersedes=LATER),
    Rule("heartbeat-of-a-rank", r"did not get (?:initial|subsequent) heartbeat from rank[ =](?P<peer>\d{1,7})\b|"
         r"[Hh]eartbeat (?:of|from) rank[ =](?P<rank>\d{1,7}) (?:timed out|is missing|was lost)|no heartbeat from rank[ =]\d{1,7}\b",
         F.HANG, 0.82, "peer",
         "FT: did not get subsequent heartbeat from rank=3. Waited 0:10:00.",
         "heartbeat from rank 3 received",
         "nvidia-resiliency-ext fault tolerance", fallback=True, literals=("heartbeat",), supersedes=LATER),
    Rule("stuck-in-call", r"\brank[ =]\d{1,7} (?:is |was )?(?:stuck|hung|blocked) (?:in|at|on) \w", F.HANG, 0.72, "nobody",
         "rank 4 stuck in ncclGroupEnd; all other ranks in all_gather",
         "rank 4 stuck to its schedule",
         "watchers that read stacks", fallback=True, literals=("rank",), supersedes=LATER),
    Rule("slower-than-others", r"(?i)\b(?:rank|gpu|node|worker|host)s?[ =#:]{1,2}(?P<peer>[\w.-]{1,60}) (?:is|was|runs) "
         r"(?:consistently |significantly |persistently |much |about )?(?:\d[\d.]{0,8} ?[x%] )?slower than", F.STRAGGLER, 0.75, "peer",
         "Worker 7 is consistently slower than others (forward 812 ms vs 304 ms)",
         "step 7 was slower than step 6",
         "watchers of step times", literals=("slower than",)),
    Rule("slow-member", r"(?i)\bslow (?:node|host|rank|gpu|worker)s?(?: detected)?[ :=]{1,2}(?P<peer>[\w.-]{0,50}\d[\w.-]{0,20})\b|"
         r"\bperformance\b.{0,100}\bSTRAGGLER\b", F.STRAGGLER, 0.72, "peer",
         "slow node gpu-17: GEMM 410 TFLOPS vs fleet median 690 TFLOPS",
         "slow nodes are avoided",
         "node tests and reports of relative performance", literals=("slow ", "straggler")),
)  # fmt: skip
