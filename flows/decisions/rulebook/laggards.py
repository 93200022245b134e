"""Slow members as reports put it: behind the others, below the fleet, suspected of being slow."""

from __future__ import annotations

from flows.decisions.rules import Rule
from profiles.vocabulary import FaultClass

F = FaultClass

RULES: tuple[Rule, ...] = (
    Rule("lags-behind",
         r"(?i)\b(?:rank|gpu|node|worker|host)s?[ =#:]{1,2}(?P<peer>[\w.-]{0,50}\d[\w.-]{0,20})\b.{0,40}\b(?:(?:is|was) )?(?:lagging behind|lags (?:\d{1,3} ?% )?behind|"
         r"falling behind|underperform(?:s|ing)|performance degraded)\b", F.STRAGGLER, 0.7, "peer",
         "WARNING rank 6 is lagging behind: the mean over the last 50 steps is 2.1 times that of the others",
         "rank 6 is behind a proxy",
         "watchers of step times", fallback=True, literals=("behind", "underperform", "performance degraded")),
    Rule("marked-slow",
         r"(?i)\b(?:rank|gpu|node|worker|host)s?[ =#:]{1,2}(?P<peer>[\w.-]{0,50}\d[\w.-]{0,20})\b (?:is |was |has been )?(?:marked|flagged|reported) (?:as )?"
         r"(?:too )?slow\b|\b(?:possible|suspected|likely|suspect) slow (?:gpu|node|rank|host|worker)\b", F.STRAGGLER, 0.68, "peer",
         "NodeSlow: node worker-8 marked slow (z-score 6.1)",
         "node worker-8 marked schedulable",
         "watchers of step times", fallback=True, literals=("slow",)),
    Rule("outlier-ranks",
         r"(?i)\b(?:(?:outlier|slow|lagging) ranks? (?:by|in|over) [\w ]{2,40}|slow_ranks?['\"]?)[:=] ?\[?(?P<peer>\d[\d, ]{0,200})(?=[\];]|$)", F.STRAGGLER, 0.7, "peer",
         "Outlier ranks by step time: [12]; p50=1.01s, rank 12=2.20s",
         "Outlier ranks by step time: []",
         "reports of step times", fallback=True, literals=("outlier rank", "slow rank", "lagging rank", "slow_rank")),
    Rule("slower-than-median",
         r"(?i)\brank[ =]r?(?P<peer>\d{1,7})\b.{0,60}\b(?:vs\.?|versus|against|compared (?:to|with)) (?:the )?(?:fleet |group |world )?"
         r"(?:median|average|mean)\b", F.STRAGGLER, 0.68, "peer",
         "Rank r2 input wait was 199.7ms vs median rank r0 at 10.4ms.",
         "rank 2 loss was 1.9 at the median step",
         "profilers of steps that compare ranks", fallback=True, literals=("rank",)),
    Rule("named-slow", r"(?i)(?:^|[\s\[])slow[ _-](?:node|host|gpu|worker)s?\]?[:=]? ?\[?(?P<peer>(?=[\w.-]{0,60}\d)[\w.-]{1,60})",
         F.STRAGGLER, 0.62, "peer",
         "[slow node] gpu-node-11: matmul 512 TFLOPS (fleet median 780)",
         "[slow node] detector is on",
         "benchmarks of fleets", fallback=True, literals=("slow",)),
    Rule("score-below",
         r"(?i)\brank[ =](?P<peer>\d{1,7})\b.{0,60}\bperf(?:ormance)? score\b.{0,30}\bbelow\b", F.STRAGGLER, 0.72, "peer",
         "Rank 5 individual GPU perf score 0.51 is below threshold 0.7",
         "Rank 5 individual GPU perf score 0.98",
         "reports in the manner of NVIDIA's resiliency extension", fallback=True, literals=("perf score", "performance score")),
)  # fmt: skip
