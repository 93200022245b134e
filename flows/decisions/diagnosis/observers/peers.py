"""Listings of peers: times or rates of ranks, devices or hosts in rows of the same words; one far off.

Any report may print them: a table with a head, `key=value`, JSON a line, a sentence. Rows belong together where nothing
but the member and the numbers differ. What a number means is known by its unit, its key, the head of its column or the
heading above it; a number without a meaning (memory, a loss, a temperature) says nothing. Rates between two peers blame
the one with which every pair is slow; some reports name the slow ones below a heading.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from flows.decisions.diagnosis.clues import Clue
from flows.decisions.diagnosis.observers.outliers import counts, in_turn, laggard, settings, slow, sparse
from flows.decisions.diagnosis.prefilter import Cue
from workflows.model.attempt import LogLine

PEERS_WEIGHT = 0.78
"""Rows of at least `FEWEST` peers, one of them far off."""
FEWEST = 4
"""With fewer peers nobody knows which of them is the usual one."""
RATE_RATIO = 1.25
"""A rate that a test measured is steadier than a time: so many times below the median is far off."""
TIME_RATIO = 1.5
MOST_ROWS = 6_000
"""Rows that are kept; a log may have millions of lines."""
MOST_MEMBERS = 100_000
ROW_CHARACTERS = 400
HEADS = 3
"""Lines above the first row in which a heading may stand."""

_UNIT = (
    r"(?P<rate>(?i:[kmgt]i?b(?:ytes)?/s(?:ec)?|[kmgt]bps|[kmgtp]?flop/?s|[tg]f/s|(?:tok(?:en)?s?|samples?|"
    r"images?|img|"
    r"seqs?|steps?|it|iters?)/s(?:ec(?:ond)?)?))|(?P<time>(?:ms|msec|us|usec|s|sec|secs|seconds|s/it|ms/step|s/step))"
)
_NUMBER = re.compile(
    rf"(?<![\w.#/])(?P<value>\d{{1,12}}(?:\.\d{{1,18}})?)(?: ?(?:{_UNIT})(?![\w/]))?(?![\w.]*[A-Za-z:]\d)"
)
_KEY = re.compile(r"(?P<key>[A-Za-z][\w/.-]{1,40})(?: ?\([\w/ ]{1,20}\))?['\"]?\s{0,3}[:=]\s{0,4}['\"]?$")
_KIND = r"rank|gpu|gcd|device|node|host|hostname|worker|card|machine|server|trainer|instance|pod|replica|adapter"
_MEMBER = re.compile(
    rf"(?i)(?:(?<![a-z/])|(?<=_))(?P<kind>{_KIND})(?:_?(?:id|name|index|idx))?['\"]?[ #:=_\[('\"-]{{0,4}}"
    r"(?P<id>\d{1,6}(?![\w.])|(?:\d{1,3}\.){3}\d{1,3}|[a-z][a-z_.-]{0,30}\d[\w.-]{0,60})"
)
_HOST = re.compile(
    r"^[\s|*\[('\"-]{0,12}(?P<id>(?:\d{1,3}\.){3}\d{1,3}|(?=[\w.-]{0,40}\d)[a-z][\w-]{1,40}(?:\.[\w.-]{1,60})?)"
    r"(?=['\"\])]?(?:[\s|:,=]|$))"
)
HOSTLY = re.compile(
    r"(?i)node|gpu|host|dgx|hgx|worker|compute|ip-\d|\bnid|vmss|vm-?\d|srv|server|[gc]n-?\d|mi\d{3}|[hab][12]00|rack|"
    r"machine|instance|^(?:\d{1,3}\.){3}"
)
_DEVICE = re.compile(r"(?i)^(?:rank|gpu|gcd|device|card|worker|trainer)[-_]?(?:0|[1-9]\d{0,5})$")
_FIRST = re.compile(r"^[\s|]{0,8}(?P<id>\d{1,6})(?=[\s|,])")
_RANK_HEAD = re.compile(r"(?i)^[\s|#]{0,8}(?:global_?rank|rank|gpu|gcd|device|worker)(?:_?id)?s?\s{0,12}(?:[|,\s]|$)")
_BESIDE = re.compile(
    r"(?i)(?:\b(?:on|@|host|node|hostname)[ =:]{1,2}|[\s(|,])(?P<id>(?:\d{1,3}\.){3}\d{1,3}|(?=[\w.-]{0,40}\d)"
    r"[a-z]{1,20}[\w-]{1,40})(?=[\s)|,:]|$)"
)
_HOST_HEAD = re.compile(r"(?i)\b(?:nodes?|hosts?|hostnames?|machines?|servers?|workers?)\b")
_SIZED = re.compile(r"(?i)^(?:[kmg]i?)?(?:b|bytes)$")
"""A size before a time: so long a message took."""
_LOCAL = re.compile(r"(?i)(?<![a-z])local_?rank['\"]?[ #:=]{1,3}(?P<local>\d{1,3})(?![\w.])")
"""A rank of the node that stands before it."""
NO_MEMBER = re.compile(
    r"(?i)^(?:epoch|step|iter|batch|layer|stage|fold|trial|run|bs|seq|size|test|exp|bert|resnet|conv|block|head|token|bucket|fc\d|gpt|llama|vgg|fp\d|bf\d|int\d)"
)
_RATES = re.compile(
    r"(?i)throughput|bandwidth|\b(?:bus|alg)_?bw\b|(?<![a-z])bw(?![a-z])|flops|(?:tokens|samples|images|seqs|tok|img|"
    r"steps|iters|it)(?:_per_|/| per )s|\bgb/s|\bgbps|relative.?(?:perf|speed)|perf(?:ormance)?[_ ]score|"
    r"\btgs\b|\bgemm\b"
)
_TIMES = re.compile(
    r"(?i)(?<!last_)(?:step|iter(?:ation)?|fwd|forward|bwd|backward|compute|kernel|batch|train|gemm|matmul|gpu|"
    r"mini_?batch)"
    r"[\w ]{0,12}[_ -]?(?:time|ms|sec(?:onds)?|s|latency|duration)\b|\b(?:avg|mean|median|p50|p90|p95|p99)[_ ]"
    r"(?:step|iter|latency|time|ms)|\blatency\b|\bs/(?:it|step)\b|\bms/step|\b(?:step|iteration|compute) times?\b|"
    r"\belapsed\b"
)
_OTHER = re.compile(
    r"(?i)\bmem|alloc|reserved|\bgi?b\b|loss|temp|power|watt|util|\bstep[=: ]*$|epoch|\bload|init|compil|\bsav|"
    r"checkp|"
    r"ckpt|eval|valid|wait|barrier|all_?reduce[_ ]?(?:time|ms)|comm(?![a-z])|comm_time|sync|idle|download|"
    r"start-?up|uptime|"
    r"\beta\b|remain|timeout|timed out|heartbeat|ago\b|interval|size|params|count|batch$|total|seed|port|"
    r"\bpid\b|import|"
    r"recover|restart|connect|joined|finished in|warm-?up|building|tokeniz|limit|threshold|broadcast|gather|bubble"
)
_CELL = re.compile(r"[^|,\t\s](?:[^|,\t\s]| (?! ))*")
_WORD = re.compile(r"\S+")
_ALONE = re.compile(
    r"(?i)^(?:fwd|forward|bwd|backward|compute|step|iter|iteration|kernel|gemm|matmul)(?:[_ ]?(?:ms|s|sec|us))?$"
)
"""Names of columns that mean a time where the heading says so."""
_MAPPING = re.compile(
    r"(?P<head>[A-Za-z][\w ./-]{2,60})(?: ?\([\w/ ]{1,12}\))?['\"]?\s?[:=]?\s?"
    r"\{(?P<items>['\"]?[A-Za-z][^{}]{20,60000})\}"
)
_ITEM = re.compile(
    r"['\"]?(?P<id>[A-Za-z][\w.-]{0,60}\d[\w.-]{0,40}|"
    r"(?:\d{1,3}\.){3}\d{1,3})['\"]?\s?[:=]\s?(?P<value>\d{1,12}(?:\.\d{1,9})?)\b"
)
_SAYS = Cue("/s", "bps", "flop", "throughput", "bandwidth", "bw", "perf", "speed", "ms", "sec", "time", "latency",
            "elapsed", "tgs", "gemm", "p50", "s/it")  # fmt: skip
_NAMES = Cue(*_KIND.split("|"), "dgx", "hgx", "compute", "ip-", "nid", "vmss", "srv")
"""Rows and heads that name peers; another row is looked at only where its first word is a host's."""
_CHATTER = Cue("nccl info", "nccl trace", "userwarning", "futurewarning")
"""Lines of libraries that begin with a host or a rank and hold many numbers, none of which a report of peers."""
_COUNTED = re.compile(r"(?i)(?:num(?:ber)?(?: of)?|\bn|total|per|#|max|each|multi|single)[ _-]{0,2}$")
"""Words before a kind after which its number counts them: `num_gpu=8`."""
MODEL = re.compile(
    r"(?i)^(?:(?:nvidia|tesla|amd|instinct|geforce|radeon|rtx|gtx|quadro)[-_]?)*(?:[abhvlpkt]\d{1,3}[sx]?|gb?[hb]?\d{3}|"
    r"mi\d{2,3}[xa]?|(?:rtx|gtx)?\d{4}(?:ti|d)?|tpu[-_]?v?\d\w{0,2})(?:[-_](?:sxm\d?|pcie|nvl|hbm\d?\w?|\d{1,3}gb?))*$"
)
"""Names of kinds of devices, as rows of benchmarks have them."""


@dataclass
class _Group:
    """Rows of the same words."""

    rate: bool
    values: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    lines: dict[str, LogLine] = field(default_factory=dict[str, LogLine])


@dataclass(frozen=True)
class _Row:
    member: str
    words: str
    line: LogLine
    text: str
    rest: str
    """The row without its member."""
    node: str
    """A host named beside a rank; ""."""


def peers(lines: Sequence[LogLine]) -> Iterator[Clue]:
    """One peer far off the others, in any form of rows."""
    if not _SAYS.anywhere(lines):
        return
    groups: dict[tuple[str, str, str], _Group] = {}
    heads: list[str] = []
    kept = 0
    inside = False
    for line in lines:
        if kept >= MOST_ROWS:
            break
        if _CHATTER.holds(line.text):
            continue
        text, may_measure = line.text[:ROW_CHARACTERS], _SAYS.holds(line.text)
        if may_measure and "{" in text:
            _mapped(line, groups)
        row = _row(line, text, heads) if may_measure or inside else None
        if row is not None:
            inside = True
            kept += 1
            _keep(row, heads, groups)
            continue
        heads = [*heads[1 - HEADS :], text] if text.strip(" -=+|") else heads
        inside = may_measure or (inside and not text.strip(" -=+|*"))
    yield from _far_off(groups)


def _keep(row: _Row, heads: Sequence[str], groups: dict[tuple[str, str, str], _Group]) -> None:
    """The readings of a row beside those of its peers."""
    for name, value, rate in _readings(row, heads):
        group = groups.setdefault((row.line.file, row.words, name), _Group(rate))
        group.values.setdefault(row.member, []).append(value)
        group.lines[row.member] = replace(row.line, node=row.node) if row.node else row.line


def _mapped(line: LogLine, groups: dict[tuple[str, str, str], _Group]) -> None:
    """`{"node10": 1.21, "node11": 1.2}` after a word of time or rate."""
    for hit in _MAPPING.finditer(line.text[:8000]):
        rate = _RATES.search(hit["head"]) is not None
        if not rate and (_OTHER.search(hit["head"]) or not _TIMES.search(hit["head"].replace("_by_", " "))):
            continue
        for item in _ITEM.finditer(hit["items"]):
            group = groups.setdefault((line.file, hit["head"], "{}"), _Group(rate))
            member = re.sub(r"(?i)^(rank|gpu|worker)[-_ ]?(?=(?:0|[1-9]\d{0,5})$)", r"\1 ", item["id"])
            group.values.setdefault(member, []).append(float(item["value"]))
            group.lines[member] = line


def _row(line: LogLine, text: str, heads: Sequence[str]) -> _Row | None:
    host = _HOST.match(text)
    if host is not None and not _a_host(host["id"], heads):
        host = None
    hit = host or (_MEMBER.search(text) if _NAMES.holds(line.text) else None)
    hit = hit or (_FIRST.match(text) if any(_RANK_HEAD.match(head) for head in heads) else None)
    if hit is None or NO_MEMBER.match(hit["id"]) or _COUNTED.search(text[: hit.start()]):
        return None
    kind = hit.groupdict().get("kind") or "rank"
    member = f"{kind.lower()} {hit['id']}" if hit["id"].isdigit() else hit["id"]
    rest = text[: hit.start("id")] + " " * len(hit["id"]) + text[hit.end() :]
    local = _LOCAL.search(rest) if kind.lower() in ("node", "host") else None
    if local is not None:
        member = f"{hit['id']}/{local['local']}"
        rest = rest[: local.start("local")] + " " * len(local["local"]) + rest[local.end() :]
    beside = _BESIDE.search(rest) if hit["id"].isdigit() else None
    words = re.sub(r"[\d.,]+|\s+|(?<=[\d\s])[KMG](?![a-z])", "", _without_hosts(rest))
    return _Row(member, f"{words[:120]} {settings(rest)}", line, text, rest, beside["id"] if beside else "")


def _a_host(name: str, heads: Sequence[str]) -> bool:
    """Is the first word of a row a host's name?"""
    if NO_MEMBER.match(name) or MODEL.match(name):
        return False
    if any(_HOST_HEAD.search(head) for head in heads):
        return True
    return HOSTLY.search(name) is not None and _DEVICE.match(name) is None


def _without_hosts(text: str) -> str:
    """Other names with numbers that stand beside (a rank and its host) are not the row's words."""
    return re.sub(r"(?<![\w/])(?=[\w.-]{0,60}\d)[A-Za-z][\w.-]{2,60}(?![\w/=:])", "", text)


def _readings(row: _Row, heads: Sequence[str]) -> Iterator[tuple[str, float, bool]]:
    """(name, value, is it a rate) of every number of a row that means a time or a rate."""
    hits = list(_NUMBER.finditer(row.rest))
    columns = _columns(heads, row.text) if hits and len(heads) > 0 else []
    heading = " ".join(heads)
    last = 0
    for number, hit in enumerate(hits):
        before = row.rest[last : hit.start()]
        last = hit.end()
        key = _KEY.search(before)
        named = key["key"] if key else next((name for begin, name in reversed(columns) if begin <= hit.start()), "")
        about = named or (before.strip() if re.search("[A-Za-z]{2}", before) else "")
        alone = heading if not about and len(hits) == 1 else ""
        meaning = _meaning(hit["rate"] is not None, hit["time"] is not None, about, alone)
        if meaning is not None:
            yield f"{named}#{number}", float(hit["value"]), meaning


@lru_cache(maxsize=2048)  # rows of a listing hold the same words
def _meaning(rated: bool, timed: bool, about: str, heading: str) -> bool | None:
    """True: a rate; False: a time; None: something else. `rated` and `timed`: by the unit behind the number."""
    if rated:
        return None if re.search(r"(?i)\b(?:rx|tx|read|write|disk|download|min|max)\b", about) else True
    if _RATES.search(about):
        return True
    if timed and _SIZED.match(about):
        return False
    if _OTHER.search(about) or (heading and _OTHER.search(heading)):
        return None
    if timed and (not about or _TIMES.search(about) or len(about) < 3):
        return False if about or not heading or _TIMES.search(heading) else None
    if _TIMES.search(about) or _ALONE.match(about):
        return False
    if heading and not about:
        return True if _RATES.search(heading) else (False if _TIMES.search(heading) else None)
    return None


def _columns(heads: Sequence[str], text: str) -> list[tuple[int, str]]:
    """(where a column of the row begins, its name), of the last head that has as many columns as the row."""
    for splitter in (_CELL, _WORD):
        cells = list(splitter.finditer(text))
        if len(cells) < 2:
            continue
        for head in reversed(heads):
            names = [cell.group().strip() for cell in splitter.finditer(head)]
            if len(names) == len(cells) > 1 and not any(re.fullmatch(r"[\d.]+", name) for name in names):
                return [(cell.start(), name) for cell, name in zip(cells, names, strict=True)]
    return []


def _far_off(groups: dict[tuple[str, str, str], _Group]) -> Iterator[Clue]:
    done: set[tuple[str, str]] = set()
    for (file, words, _), group in groups.items():
        if not FEWEST <= len(group.values) <= MOST_MEMBERS or (file, words) in done:
            continue
        names = list(group.values)
        if counts(names) or sparse(names) or in_turn([group.lines[name].text for name in names]):
            continue
        medians = {number: statistics.median(group.values[name]) for number, name in enumerate(names)}
        ratio = RATE_RATIO if group.rate else TIME_RATIO
        found = slow(medians, low_is_slow=group.rate, ratio_at_least=ratio)
        for number, times in found.items():
            done.add((file, words))
            line = group.lines[names[number]]
            text = f"{line.text.strip()[:240]}: {times:.1f} times slower than the median of {len(names)}"
            yield laggard(names[number], line, text, "straggler-peer", PEERS_WEIGHT)


PAIRS_WEIGHT = 0.75
"""Every pair with one peer is slow, pairs without it are not."""
LISTED_WEIGHT = 0.7
"""A report names the slow ones below its heading."""
FEWEST_PAIRS = 4
FEWEST_OF_ONE = 2
"""With one slow pair alone nobody knows which of the two it is."""
SLOW_SHARE = 0.75
"""Share of a usual rate, that of the fastest quarter, below which a pair is slow."""
MOST_PAIRS = 20_000
_NAME = r"(?:(?:rank|gpu|node|host)[ _]?\d{1,5}|(?=[\w.-]{0,60}\d)[A-Za-z][\w-]{1,60}|(?:\d{1,3}\.){3}\d{1,3})"
_PAIR = re.compile(
    rf"^[\s|\[('\"]{{0,8}}(?i:pair:? |between )?(?P<one>{_NAME})['\"]?\s?(?:,|<?-{{1,2}}>|<->|<=>|=>|\s(?:to|and|vs)\s|"
    rf"/|\||\s)"
    rf"\s{{0,12}}['\"]?(?P<two>{_NAME})['\"\])]{{0,2}}\s{{0,12}}[:|"
    rf",=]?\s{{0,12}}(?P<words>[A-Za-z_ ()/]{{0,24}}[:=]? ?)"
    r"(?P<value>\d{1,9}(?:\.\d{1,9})?)\s{0,4}\|?(?P<unit> ?[A-Za-z/]{0,12})?(?:\s|$)"
)
_LATENCY = re.compile(r"(?i)(?<![/\w])(?:us|ms|usec|latency|time|ping|rtt|sec|s)\b")
_POOR = re.compile(
    r"(?i)\b(?:nodes?|hosts?|gpus?|ranks?|machines?|workers?)\b.{0,60}\b(?:poor perf\w{0,12}|under-?perform\w{0,4}|"
    r"slow(?:er|est)?|lagging|stragglers?|below (?:the )?(?:average|median|expected|expectation|threshold|"
    r"baseline))\b.{0,60}|"
    r"\b(?:slow(?:est)?|straggling|straggler|under-?performing|outlier|lagging) (?:nodes?|hosts?|gpus?|ranks?|"
    r"machines?|workers?)\b"
    r".{0,40}:\s*$"
)
_LIST = re.compile(rf"^[\s*\-•]{{0,8}}(?P<names>{_NAME}(?:(?:, ?| ){_NAME}){{0,40}})(?:\s{{0,4}}[(:=].{{0,80}})?\s*$")
_ONE = re.compile(_NAME)
_SAYS_POOR = Cue(of=(_POOR,))
BELOW = 3
"""Lines below the heading in which the names stand."""


def pairs(lines: Sequence[LogLine]) -> Iterator[Clue]:
    """Hosts, devices or ranks with which every pair is slow."""
    files: dict[str, list[tuple[str, str, float, LogLine]]] = {}
    late: set[str] = set()
    kept = 0
    for line in lines:
        hit = _PAIR.match(line.text[:200]) if kept < MOST_PAIRS else None
        if hit is None or hit["one"] == hit["two"] or not _alike(hit["one"], hit["two"]):
            continue
        kept += 1
        if _LATENCY.search(f"{hit['words']} {hit['unit'] or ''}"):
            late.add(line.file)
        files.setdefault(line.file, []).append((hit["one"], hit["two"], float(hit["value"]), line))
    for file, rows in files.items():
        if len(rows) >= FEWEST_PAIRS:
            yield from _slow(rows, low_is_slow=file not in late)


def _alike(one: str, two: str) -> bool:
    """Are two names those of hosts or ranks of one gang? A model beside a batch size is no pair."""
    if NO_MEMBER.match(one) or NO_MEMBER.match(two) or MODEL.match(one) or MODEL.match(two):
        return False
    stems = {re.sub(r"\d+.*$", "", name.lower()) for name in (one, two)}
    return len(stems) == 1 or all(HOSTLY.search(name) for name in (one, two))


def _slow(rows: Sequence[tuple[str, str, float, LogLine]], *, low_is_slow: bool) -> Iterator[Clue]:
    speeds = [value if low_is_slow else 1.0 / max(value, 1e-9) for *_, value, _ in rows]
    usual = statistics.median(sorted(speeds)[-max(2, len(speeds) // 2) :])
    slow = [speed < SLOW_SHARE * usual for speed in speeds]
    names = {name for one, two, *_ in rows for name in (one, two)}
    found: list[str] = []
    for name in sorted(names):
        own = [number for number, row in enumerate(rows) if name in row[:2]]
        if len(own) >= FEWEST_OF_ONE and all(slow[number] for number in own):
            found.append(name)
    if not found or len(found) * 3 > len(names):
        return
    for name in found:
        line = next(row[3] for row in rows if name in row[:2])
        text = f"every pair with {name} is slow: {line.text.strip()[:200]}"
        yield laggard(re.sub(r"(?i)^(rank|gpu)[ _]?(?=\d)", r"\1 ", name), line, text, "straggler-pairs", PAIRS_WEIGHT)


def listed(lines: Sequence[LogLine]) -> Iterator[Clue]:
    """`Nodes with poor performance:` and the names below it."""
    below = 0
    head = ""
    for line in lines:
        if _SAYS_POOR.holds(line.text) and len(line.text) < 160 and _POOR.search(line.text):
            below, head = BELOW, line.text.strip()
            continue
        if below == 0:
            continue
        below -= 1
        row = _LIST.match(line.text[:600])
        if row is not None:
            below = BELOW if row["names"] == line.text.strip(" *-•") and "," not in row["names"] else 0
            for name in _ONE.findall(row["names"]):
                if NO_MEMBER.match(name):
                    continue
                yield laggard(re.sub(r"(?i)^(rank|gpu)[ _]?(?=\d)", r"\1 ", name), line,
                              f"{head} {line.text.strip()}", "straggler-listed", LISTED_WEIGHT)  # fmt: skip
