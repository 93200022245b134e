"""Where lines belong: the nodes that their own words, their files' names and their neighbours tell.

Logs of other programs seldom say which machine printed them. What does say it: the host before NCCL's lines, a syslog
line quoted by a monitor, a shell prompt, an event's object, a pod's description, a launcher's report of a rank's end.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from flows.decisions.diagnosis.clues import Clue
from flows.decisions.diagnosis.prefilter import Cue
from workflows.model.attempt import LogLine

_HOST = r"[A-Za-z][\w.-]{0,100}|\d{1,3}(?:\.\d{1,3}){3}"
_STAMP = r"(?:\[?\d{4}[-/]\d\d[-/]\d\d[T ][\d:.,]{8,16}Z?\]? ?)?"
_ANY_HOST = rf"(?=[\w.-]{{0,100}}[A-Za-z])[\w.-]{{1,100}}|{_HOST}"
_NCCL = re.compile(rf"^{_STAMP}(?P<node>{_ANY_HOST}):\d{{1,8}}:\d{{1,8}} (?:\[\d{{1,2}}\]|NCCL)")
"""NCCL and RCCL put `host:process:thread [device]` before every line."""
_USER = r"[a-z_][\w.-]{0,31}"
_WHERE = r"(?:[: ][~/]\S{0,200}|:)? ?"
_IS = r"['\"]?[:=] ?['\"]?"
_HERE = r"(?! ?(?:sudo )?(?:kubectl|oc|helm|sinfo|scontrol|squeue|sacct|pdsh|clush|ansible|ray status|sky|gcloud|aws) )"
"""Commands that ask about other machines than the one they are typed on."""
_OVER = r"(?=['\"\s,;:.)\]]|$)"
_OWN = (
    _NCCL,
    re.compile(rf"\b[A-Z][a-z]{{2}} [ \d]\d \d\d:\d\d:\d\d (?P<node>{_HOST}) kernel: "),
    re.compile(rf"(?:^|[\s(]){_USER}@(?P<node>{_HOST}){_WHERE}[%$#>](?: |$){_HERE}"),
    re.compile(rf"^\[{_USER}@(?P<node>{_HOST}) [^\]]{{1,100}}\][$#]{_HERE}"),
    re.compile(rf"^Message from syslogd@(?P<node>{_HOST}) at "),
    re.compile(rf"^NodeName=(?P<node>{_HOST}) +(?:Arch|CoresPerSocket|State)="),
    re.compile(rf"^(?:Host ?name|HOSTNAME|SLURMD_NODENAME|NODE_NAME|Node)[:=] *(?P<node>{_HOST})(?:[\s/,;]|$)"),
)
"""What names the machine that the line, and with it its file, comes from."""
_DESCRIBED = (
    re.compile(rf"\bkubectl describe no(?:des?)?[ /](?P<node>{_HOST})\s*$"),
    re.compile(rf"\bSuccessfully assigned \S{{1,200}} to (?P<node>{_HOST})\s*$"),
    re.compile(rf"^(?:Labels:)?\s{{1,40}}kubernetes\.io/hostname=(?P<node>{_HOST})\s*$"),
)
"""What names the machine that a file is about, whoever printed it."""
_NAMED = (
    re.compile(rf"\bnode/(?P<node>{_HOST})\b"),
    re.compile(rf"\bNode (?P<node>{_HOST}) (?:status is now|event|has been|is not|is un|became|went|was)\b"),
    re.compile(rf"\s\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\d +(?P<node>{_HOST})\s*$"),
    re.compile(rf"\bnode \([^)]{{0,120}}\bIP: (?P<node>{_HOST})\b"),
    re.compile(rf"\bNode(?:Name|List)=(?P<node>{_HOST})(?=[\s,]|$)"),
    re.compile(rf"^(?P<node>{_HOST}) +(?:NotReady|Unknown|NotReady,SchedulingDisabled) "),
)
"""What names the machine that a line is about, whatever the name looks like."""
_SPOKEN_OF = (
    re.compile(rf"\b(?:instance|[Nn]ode(?:[ _]?[Nn]ame)?|[Hh]ost(?:[ _]?[Nn]ame)?){_IS}(?P<node>{_HOST}){_OVER}"),
    re.compile(rf"\b(?:on|from) (?:the )?(?:node|host|instance)[: ] ?['\"]?(?P<node>{_HOST}){_OVER}"),
    re.compile(rf"\b(?:node|host|machine) \((?P<node>{_HOST})\)"),
)
"""The same where any word may follow: only what looks like a name counts, see `_is_name`."""
_RECORD = re.compile(rf"['\"]node_?[nN]ame['\"]: ?['\"](?P<node>{_HOST})['\"]")
"""How agents that watch nodes name the one a record is about, however far to the right."""
_NO_NAMES = frozenset({"none", "null", "true", "false", "all", "name", "unknown", "the", "localhost", "n", "a"})
_RANK_OF_LINE = re.compile(r"\[(?:PG [^\]]{0,200}?)?Rank (\d{1,7})\]|\bcomm 0x[0-9a-f]+ rank (\d{1,7}) n[rR]anks")
_ADDRESS = re.compile(
    r"(?:\bUsing \S{0,40}?[a-z][\w.-]{0,20}:|; OOB [\w.-]{1,20}:|\blocal GID (?:\S+, )?|\blocalGid )"
    r"(?:::ffff:)?(?P<address>\d{1,3}(?:\.\d{1,3}){3})"
)
_ALIAS = re.compile(
    r"from peer (?P<peer>[\w.\-]{1,64}?)<\d{1,5}>.{0,200}remoteGids? ?(?:::ffff:)?(?P<gid>\d{1,3}(?:\.\d{1,3}){3})"
)
_SAYS_RANK = Cue("rank]", "rank nranks", of=(_RANK_OF_LINE,))
_SAYS_ALIAS = Cue(of=(_ALIAS,))
_SAYS_NODE = Cue("ccl", "@", "kernel:", "ost", "node", "describe no", "successfully assigned")
_IP = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}$")
_NODE_ROW = re.compile(rf"^Node: {{0,20}}(?P<node>{_HOST})/(?P<address>\d{{1,3}}(?:\.\d{{1,3}}){{3}})")
_WIDE_ROW = re.compile(rf" (?P<address>\d{{1,3}}(?:\.\d{{1,3}}){{3}}) {{1,20}}(?P<node>{_HOST})(?: {{1,20}}<none>| *$)")
_POD = re.compile(r"(?:^|[-_/])(?P<role>master|worker|launcher|trainer|chief)s?-(?P<index>\d{1,4})(?=[-_.]|$)")
_SAYS_ADDRESS = Cue("...", of=(_ADDRESS, _NODE_ROW, _WIDE_ROW))
"""What is left of an address without its digits."""
_POD_NAME = re.compile(r"^Name: {1,20}(?P<name>[a-z0-9.-]{1,200})$")
_POD_GPUS = re.compile(r"^ {1,12}(?:nvidia|amd)\.com/gpu: {1,20}(?P<gpus>\d{1,3})$")
_SAYS_POD = Cue(of=(_POD_NAME, _POD_GPUS))


@dataclass(frozen=True)
class NodePlaces:
    """What the lines say about nodes."""

    homes: Mapping[int, str] = field(default_factory=dict[int, str])
    """Nodes of ranks."""
    addresses: Mapping[str, str] = field(default_factory=dict[str, str])
    """Nodes of network addresses."""
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    """The node of a file that names exactly one as its own, or describes it."""
    described: frozenset[str] = frozenset()
    """Files that are about a node without being its own words."""
    pods: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    """The ranks of the pod that a file describes."""
    nodes: frozenset[str] = frozenset()
    """Every node that is known to be part of the run."""
    ranks: frozenset[int] = frozenset()
    """Every rank that printed anything."""
    pair: bool = False
    """NCCL said that the run has two nodes."""
    words: bool = False
    """Whether lines' own words count: they do in foreign logs, where nothing else names nodes."""

    def node_of(self, clue: Clue) -> str:
        """The node that a clue's line belongs to or is about; "" where nothing says so."""
        node = self.node_in_line(clue) or self.files.get(clue.file, "")
        if not node and clue.rank is None and len(self.nodes) == 1:
            node = next(iter(self.nodes))
        return node

    def node_in_line(self, clue: Clue) -> str:
        """The node that a clue itself names or its rank lives on; "" where neither is known."""
        node = clue.node or (spoken_of(clue.text) if self.words else "")
        return node or (self.homes.get(clue.rank, "") if clue.rank is not None else "")

    def author_of(self, clue: Clue) -> str:
        """The node that printed a clue's line, whichever the line is about; "" where that is not known."""
        node = clue.node or (own_node(clue.text) if self.words else "")
        if not node and clue.rank is not None:
            node = self.homes.get(clue.rank, "")
        return node or ("" if clue.file in self.described else self.files.get(clue.file, ""))

    def ranks_of(self, clue: Clue) -> tuple[int, ...]:
        """The ranks of a clue's line; empty where they are not known."""
        return (clue.rank,) if clue.rank is not None else self.pods.get(clue.file, ())

    def node_at(self, name: str, accuser: str = "") -> str:
        """The node that a name or address in a line means; the name itself where it is not known.

        Of two nodes an unknown address that one of them blames is the other one.
        """
        others = self.nodes - {accuser}
        if self.pair and name not in self.addresses and _IP.match(name) and accuser in self.nodes and len(others) == 1:
            return next(iter(others))
        return self.addresses.get(name, name)


def own_node(text: str) -> str:
    """The machine that printed the line, by the line itself; "" where it does not say."""
    return next((hit["node"].rstrip(".-:") for pattern in _OWN if (hit := pattern.search(text))), "")


def _described(text: str) -> str:
    """The machine that the lines from here on describe; "" where none is."""
    return next((hit["node"].rstrip(".-:") for pattern in _DESCRIBED if (hit := pattern.search(text))), "")


def spoken_of(text: str) -> str:
    """The machine that a line comes from or is about."""
    node = own_node(text) or _described(text)
    if node:
        return node
    named = next((hit["node"].rstrip(".-:") for pattern in _NAMED if (hit := pattern.search(text))), "")
    if named and named.lower() not in _NO_NAMES:
        return named
    hits = (hit["node"].rstrip(".-:") for pattern in _SPOKEN_OF if (hit := pattern.search(text)))
    return next((name for name in hits if _is_name(name)), "")


def agent_node(text: str) -> str:
    """The machine that an agent's JSON record is about; "" where it names none."""
    hit = _RECORD.search(text) if "ode" in text else None
    return hit["node"] if hit is not None else ""


def rank_of(line: LogLine) -> int | None:
    """The rank that printed a line, by its launcher, or by its own words where it has none."""
    if (
        line.rank is not None
        or not _SAYS_RANK.holds(line.text)
        or not ("Rank " in line.text or ("comm " in line.text and " rank " in line.text))
    ):
        return line.rank
    hit = _RANK_OF_LINE.search(line.text[:400])
    return int(hit[1] or hit[2]) if hit is not None else None


def read_places(lines: Sequence[LogLine], reported: Iterable[tuple[int, str]] = ()) -> NodePlaces:
    """Everything that the lines say about nodes. `reported`: (rank, node) from launchers' reports."""
    homes: dict[int, str] = {}
    ranks: set[int] = set()
    addresses: dict[str, str] = {}
    own: dict[str, set[str]] = {}
    described: set[str] = set()
    aliases: dict[str, str] = {}
    for line in lines:
        node = _node_in(line, own, described)
        node, rank = node or line.node, rank_of(line)
        if rank is not None:
            ranks.add(rank)
            if node:
                homes.setdefault(rank, node)
        addresses.update(_addresses(line.text, node))
        if hit := _ALIAS.search(line.text) if _SAYS_ALIAS.holds(line.text) else None:
            aliases[hit["peer"]] = hit["gid"]
    homes.update({rank: node for rank, node in reported if node})
    for peer, gid in aliases.items():
        if gid in addresses:
            addresses.setdefault(peer, addresses[gid])
    files = {file: next(iter(names)) for file, names in own.items() if file and len(names) == 1}
    nodes = {
        *homes.values(),
        *(line.node for line in lines if line.node),
        *(n for names in own.values() for n in names),
    }
    pair = any("nNodes 2 " in line.text for line in lines)
    named, known = frozenset(described), frozenset(nodes)
    return NodePlaces(homes, addresses, files, named, _pods(lines), known, frozenset(ranks), pair, words=True)


def _node_in(line: LogLine, own: dict[str, set[str]], described: set[str]) -> str:
    """The machine that printed a line, by its words; what it says of its file is remembered."""
    if not _may_tell(line.text):
        return ""
    node = own_node(line.text)
    about = _described(line.text) if not node else ""
    if about:
        described.add(line.file)
    if node or about:
        own.setdefault(line.file, set()).add(node or about)
    return node


def _may_tell(text: str) -> bool:
    words = ("CCL", "@", "kernel:", "ost", "OST", "Node", "NODE", "describe no", "Successfully assigned")
    return _SAYS_NODE.holds(text) and any(word in text for word in words)


def _addresses(text: str, node: str) -> Iterator[tuple[str, str]]:
    if not _SAYS_ADDRESS.holds(text):
        return
    if node and ("CCL" in text) and (hit := _ADDRESS.search(text)):
        yield hit["address"], node
    for pattern in (_NODE_ROW, _WIDE_ROW):
        if hit := pattern.search(text):
            yield hit["address"], hit["node"]


def _pods(lines: Sequence[LogLine]) -> dict[str, tuple[int, ...]]:
    """Ranks of described pods: the pod's index times its GPUs, a master's before its workers'."""
    names: dict[str, str] = {}
    gpus: dict[str, int] = {}
    for line in _SAYS_POD.among(lines):
        if hit := _POD_NAME.match(line.text):
            names.setdefault(line.file, hit["name"])
        if hit := _POD_GPUS.match(line.text):
            gpus[line.file] = int(hit["gpus"])
    master = any("-master-" in line.text for line in lines) or any("-master-" in name for name in names.values())
    found: dict[str, tuple[int, ...]] = {}
    for file, name in names.items():
        hit = _POD.search(name)
        if hit is None or file not in gpus:
            continue
        index = int(hit["index"]) + (1 if master and hit["role"] == "worker" else 0)
        found[file] = tuple(range(index * gpus[file], (index + 1) * gpus[file]))[:64]
    return found


def _is_name(name: str) -> bool:
    """Does a word that follows `node` or `host` look like a name: a digit or a dash in it, or an address?"""
    return name.lower() not in _NO_NAMES and bool(re.search(r"\d", name) or "-" in name or name.count(".") >= 2)
