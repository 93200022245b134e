"""A run profile from a command: what `primus run -- COMMAND` trains, and what `primus init` writes down.

Only what can be read is taken: of the command its launcher and its options, of the program's own text which framework
it is. Pure: whoever calls brings the text, and says where it is started and which programs are there.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, get_args

from profiles.cluster import ClusterProfile
from profiles.errors import ProfileError
from profiles.loading.document import write
from profiles.run import CheckpointPolicy, Framework, RunProfile
from profiles.values import did_you_mean

Data = dict[str, Any]
COMMAND = "COMMAND"
"""How the help of the commands calls it."""
_NUMBER = r"(?P<{}>\d+)"


@dataclass(frozen=True)
class Program:
    """A program that has no profile, as somebody would start it, and what he says of it beside."""

    command: tuple[str, ...]
    ranks: int | None = None
    """In all; None: as the command says, else 1."""
    nodes: int | None = None
    steps: int = 0
    checkpoints: str = ""
    """A folder, or `folder/file-{step}.pt`."""
    resume: str = ""
    """Words that are added to the command when there is something to resume."""
    progress: str = ""
    """A framework's word, or a regular expression."""
    image: str = ""


@dataclass(frozen=True)
class Here:
    """The machine on which the command was typed: on an embedded cluster the program runs on it."""

    folder: str
    """Where it was typed."""
    find: Callable[[str], str | None]
    """The file that a word would start; None: there is none."""
    own_programs: str
    """The folder of the Python that runs us, which an image with `python` in its name stands for."""


@dataclass(frozen=True)
class Launch:
    """A command without its launcher: ranks are started by us."""

    command: tuple[str, ...]
    per_node: int | None = None
    nodes: int | None = None
    left_out: tuple[str, ...] = ()
    """Options of the launcher that have no meaning any more."""


_OURS = frozenset({
    "node-rank", "rdzv-backend", "rdzv-endpoint", "rdzv-id", "rdzv-conf", "max-restarts", "monitor-interval",
    "start-method", "role", "log-dir", "redirects", "tee", "local-ranks-filter", "master-addr", "master-port",
    "local-addr", "logs-specs", "event-log-handler", "r", "t",
})  # fmt: skip
"""Options of torchrun with a value about what is done here in another way: rendezvous, restarts, logs."""
_FLAGS = frozenset({"standalone", "module", "m", "no-python", "use-env"})
_PYTHON = re.compile(r"python(\d+(\.\d+)?)?$")
_TORCHRUN = ("torch.distributed.run", "torch.distributed.launch")


def without_launcher(command: tuple[str, ...]) -> Launch:
    """The program that `torchrun` or `python -m torch.distributed.run` would start, and on how many ranks; else itself.

    Raises:
        ProfileError: what it says has no meaning here.
    """
    first = posixpath.basename(command[0])
    if first == "torchrun":
        python = posixpath.join(posixpath.dirname(command[0]), "python3")
        return _torchrun(python, command[1:])
    if _PYTHON.match(first) and command[1:2] == ("-m",) and command[2:3] and command[2] in _TORCHRUN:
        return _torchrun(command[0], command[3:])
    return Launch(command)


def _torchrun(python: str, words: tuple[str, ...]) -> Launch:
    found: dict[str, str] = {}
    rest = list(words)
    left_out: list[str] = []
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        option = name.lstrip("-").replace("_", "-")
        if option in _FLAGS:
            found[{"m": "module"}.get(option, option)] = word
        elif option in _OURS or option in ("nproc-per-node", "nnodes"):
            if not equals and not rest:
                raise ProfileError(COMMAND, f"torchrun's {name} has no value")
            found[option] = value if equals else rest.pop(0)
        else:
            raise ProfileError(
                COMMAND, f"torchrun's {name} is not known here: leave it out, or write the program alone"
            )
        left_out += [name] if option in _OURS or option == "standalone" else []
    if not rest:
        raise ProfileError(COMMAND, "torchrun is given no program")
    start = () if "no-python" in found else (python, "-m") if "module" in found else (python,)
    per_node, nodes = _count(found, "nproc-per-node", "--ranks"), _count(found, "nnodes", "--nodes")
    return Launch((*start, *rest), per_node or 1, nodes, tuple(left_out))


def _count(found: Mapping[str, str], option: str, ours: str) -> int | None:
    text = found.get(option)
    if text is None:
        return None
    if not re.fullmatch(r"[1-9][0-9]{0,5}", text):
        reason = f"torchrun's --{option} {text} is no number of a fixed gang: write one, or leave it out and say {ours}"
        raise ProfileError(COMMAND, reason)
    return int(text)


RECIPES: Mapping[str, str] = {
    "megatron-lm": r"\b(?:from|import) megatron\b",
    "torchtitan-llama3-8b": r"\btorchtitan\.",
    "nanogpt": r"iter \{iter_num\}: loss",
    "lightning-cli": r"\b(?:from|import) (?:pytorch_)?lightning\b",
    "huggingface-trainer": r"\b(?:from|import) trl\b|\bfrom transformers\b[^#]{0,4000}?\b\w*Trainer\b",
}
"""By shipped profile, what stands in a program of its kind and in no other."""


def recipe_for(command: tuple[str, ...], script: str) -> str:
    """The shipped profile whose kind of program this is; "": none is known."""
    text = f"{' '.join(command)}\n{script}"
    return next((name for name, pattern in RECIPES.items() if re.search(pattern, text)), "")


def script_of(command: tuple[str, ...]) -> str:
    """The first word that names a Python file; "": none does."""
    return next((word for word in command if word.endswith(".py")), "")


def started_file(command: Sequence[str]) -> str:
    """The Python file that is started as the program; "": it is none."""
    second = "".join(command[1:2])
    return second if second.endswith(".py") and _PYTHON.match(posixpath.basename(command[0])) else ""


def slug(command: tuple[str, ...]) -> str:
    """A name for the program, as profiles and runs may have."""
    module = command[command.index("-m") + 1 :][:1] if "-m" in command else ()
    word = script_of(command) or next(iter(module), command[0])
    name = re.sub(r"[^a-z0-9]+", "-", posixpath.basename(word).removesuffix(".py").lower()).strip("-")
    return name[:24].strip("-") or "run"


_STEPS = re.compile(r"--(?:\w+\.)?(?:steps|max[-_]steps|num[-_]steps|train[-_](?:iters|steps))$")
_FOLDER = re.compile(r"--(?:\w+\.)?(?:(?:out|output|save|ckpt|checkpoints?)[-_](?:dir|path|folder)|save|out)$")


def profile_of(
    program: Program, cluster: ClusterProfile, here: Here, name: str, like: RunProfile | None, script: str
) -> tuple[Data, tuple[str, ...]]:
    """The profile of a program on this cluster, and what is told of it to somebody who did not write it.

    `like`: the shipped profile of its kind, which lends how steps and saves look. `script`: the program's own text.

    Raises:
        ProfileError: names the flag, or `COMMAND`.
    """
    if not program.command:
        raise ProfileError(COMMAND, "is missing: write the program behind --, as in `primus run -- python3 train.py`")
    embedded = cluster.engine == "embedded"
    launch = without_launcher(_found(program.command, here) if embedded else program.command)
    ranks, nodes = _gang(program, launch)
    words = _python_of_image(launch.command, here) if embedded else launch.command
    steps, words = _steps(program, words)
    role = {
        "name": "trainer",
        "replicas": nodes,
        "processes_per_node": ranks // nodes,
        "image": _image(program, cluster),
        "command": list(words),
        "working_directory": here.folder if embedded else "",
        "torchrun_variables": None if ranks > 1 or launch.per_node else False,
    }
    data: Data = {
        "name": name,
        "hardware": list(dict.fromkeys(pool.hardware for pool in cluster.pools)),
        "steps": steps,
        "roles": [{key: value for key, value in role.items() if value not in ("", None)}],
        "checkpoint": _checkpoint(program, words, here.folder if embedded else "{run_dir}/work", like, script),
        "progress": _progress(program, like),
        "recovery": "laptop" if embedded else "default",
    }
    return {key: value for key, value in data.items() if value not in ({}, 0)}, _notes(launch, ranks, nodes)


def _notes(launch: Launch, ranks: int, nodes: int) -> tuple[str, ...]:
    if not launch.per_node:
        return ()
    text = f"torchrun's work is done here: {ranks} ranks on {nodes} node{'s' if nodes > 1 else ''}, each runs "
    without = f" (without {', '.join(launch.left_out)})" if launch.left_out else ""
    return (text + shlex.join(launch.command) + without,)


def _gang(program: Program, launch: Launch) -> tuple[int, int]:
    """Ranks in all, and nodes."""
    nodes = program.nodes or launch.nodes or 1
    ranks = program.ranks or nodes * (launch.per_node or 1)
    if ranks % nodes:
        raise ProfileError("--ranks", f"{ranks} ranks cannot be spread evenly over {nodes} nodes")
    return ranks, nodes


def _found(command: tuple[str, ...], here: Here) -> tuple[str, ...]:
    """The command with the file that its first word means in the shell in which it was typed."""
    first = command[0]
    path = here.find(first if "/" not in first else posixpath.join(here.folder, first))
    if path is None and not _PYTHON.match(first) and first != "torchrun":
        raise ProfileError(COMMAND, f"there is no program {first} here: is its environment active?")
    return (path or first, *command[1:])


def _python_of_image(command: tuple[str, ...], here: Here) -> tuple[str, ...]:
    """Our own Python is called `python3`, which the image has; another one by its path."""
    folder, name = posixpath.split(command[0])
    own = folder in ("", here.own_programs) and _PYTHON.match(name)
    return ("python3", *command[1:]) if own else command


def _image(program: Program, cluster: ClusterProfile) -> str:
    if program.image:
        return program.image
    if cluster.engine != "embedded":
        raise ProfileError(
            "--image", f"is missing: pods of cluster {cluster.name} run the program in an image of yours"
        )
    kinds = [image.pattern for image in cluster.images if image.host_path and "python3" in image.programs]
    if not kinds:
        raise ProfileError("--image", f"is missing: cluster {cluster.name} has no image that stands for this machine")
    return kinds[0].replace("*", "")


def _options(words: tuple[str, ...]) -> Iterator[tuple[int, str, str, str]]:
    """Place, what stands before the value, and the value of each option, written in one word or in two."""
    for place, word in enumerate(words):
        name, equals, value = word.partition("=")
        if equals:
            yield place, name, f"{name}=", value
        elif place + 1 < len(words):
            yield place + 1, name, "", words[place + 1]


def _steps(program: Program, words: tuple[str, ...]) -> tuple[int, tuple[str, ...]]:
    """The planned steps, and the command in which they are a placeholder where it names them."""
    for place, name, before, value in _options(words):
        if _STEPS.match(name) and re.fullmatch(r"[1-9]\d{0,11}", value) and program.steps in (0, int(value)):
            return int(value), (*words[:place], before + "{steps}", *words[place + 1 :])
    return program.steps, words


def _checkpoint(
    program: Program, words: tuple[str, ...], started_in: str, like: RunProfile | None, script: str
) -> Data:
    lent = like.checkpoint if like else CheckpointPolicy()
    asked = program.checkpoints or next((value for _, name, _, value in _options(words) if _FOLDER.match(name)), "")
    data: Data = {"format": lent.format, "pattern": lent.pattern}
    if asked:
        folder, _, last = asked.rpartition("/")
        if program.checkpoints and re.search(r"\{step\}|\{index\}|\(\?P<|\*|.\.", last):
            data = {"format": "pattern", "pattern": _pattern(last)}
        else:
            folder = asked
        data = {"directory": _folder(folder, started_in), **data}
    told = _resume(program, lent, script) if like or program.resume else []
    judged = {} if told else {"first_step_after_resume": "any"}
    data |= {"resume_argument": told, "counter_restarts": lent.counter_restarts, **judged}
    return {key: value for key, value in data.items() if value and value != "auto"}


def _folder(folder: str, started_in: str) -> str:
    if folder.startswith("{checkpoint_dir}"):
        folder = "{run_dir}/checkpoints" + folder.removeprefix("{checkpoint_dir}")
    if folder.startswith("{run_dir}"):
        return folder.rstrip("/")
    return posixpath.normpath(posixpath.join(started_in, folder))


def _pattern(name: str) -> str:
    if "(?P<" in name:
        try:
            re.compile(name)
        except re.error as error:
            raise ProfileError("--checkpoints", f"{name} is no regular expression: {error}") from error
        return name
    parts = re.split(r"(\{step\}|\{index\}|\*)", name)
    return f"^{''.join(_part(part) for part in parts)}$"


def _part(part: str) -> str:
    return _NUMBER.format(part[1:-1]) if part[:1] == "{" else ".*" if part == "*" else re.escape(part)


def _resume(program: Program, lent: CheckpointPolicy, script: str) -> list[str]:
    """How it is told to go on: as asked, else as programs of its kind are where this one has the option."""
    if program.resume:
        return shlex.split(program.resume)
    names = [word.lstrip("-").partition("=")[0] for word in lent.resume_argument]
    known = not script or "HfArgumentParser" in script or all(name in script for name in names)
    return list(lent.resume_argument) if known else []


def _progress(program: Program, like: RunProfile | None) -> Data:
    if not program.progress:
        return like.progress.model_dump(mode="json", exclude_defaults=True) if like else {}
    if program.progress in set(get_args(Framework)) - {"regex", "file"}:
        return {"framework": program.progress}
    if "(?P<step>" not in program.progress:
        known = ", ".join(sorted(set(get_args(Framework)) - {"regex", "file"}))
        reason = f"must be one of {known}, or a regular expression with a group (?P<step>\\d+); got {program.progress}"
        raise ProfileError("--progress", reason)
    return {"framework": "regex", "pattern": program.progress}


HEAD = """Written by `primus init`. Every field stands in docs/profiles.md, five questions about a program of your own
in docs/bring-your-own-trainer.md.
Check it after each change: {check}
Start it:                   {start}"""
COMMENTS: Mapping[str, str] = {
    "extends": "What is not said below is as there: primus profiles show {extends}",
    "hardware": "Kinds of nodes it may run on, best first.",
    "steps": "{steps} in the command. The run is done when the last of them was seen.",
    "replicas": "Pods, one a node; processes_per_node: ranks in each.",
    "image": "An image with the program in it and Python 3.9 or later. On an embedded cluster one with `python`\n"
    "in its name stands for the programs of this machine.",
    "command": "Words, no shell. Filled in are {run_dir}, {checkpoint_dir}, {data}, {steps}, {seed} and more.",
    "working_directory": "The folder it is started in, the same in every attempt.",
    "torchrun_variables": "false: one process, which is not told that it is one of many (RANK, WORLD_SIZE, …).",
    "data": "{data} in the command.",
    "checkpoint": "Where it saves, and which files are checkpoints: `primus checkpoints RUN` shows what is seen.",
    "resume_argument": "Added to the command where there is something to resume.",
    "first_step_after_resume": "any: resumes are not judged. next: one that begins anew is stopped at once.",
    "progress": "How its steps look. Where no line matches, no step is seen.",
    "recovery": "How it is brought back: laptop, default, patient, ask-first, observe-only.",
}
_MISSING: Mapping[str, str] = {
    "directory": "# Checkpoints are looked for in {run_dir}/checkpoints; elsewhere, inside `checkpoint`:\n"
    "#   {directory: /shared/out, format: pattern, pattern: '^model-(?P<step>\\d+)[.]pt$'}",
    "resume_argument": "# It goes on where it finds its newest checkpoint by itself, or is told, inside `checkpoint`:\n"
    '#   resume_argument: ["--resume={resume_from}"]',
    "progress": "# No step is seen without one of these:\n"
    "# progress: {framework: regex, pattern: 'step (?P<step>\\d+) loss (?P<loss>\\S+)'}\n"
    "# progress: {framework: huggingface}   # lightning, megatron, nemo, primus, torchtitan",
    "steps": "# steps: 1000   # with progress: done when step 1000 was seen",
}


def as_text(data: Data, head: str, comments: Mapping[str, str] = COMMENTS) -> str:
    """The profile as YAML for people to go on from: each comment stands above the first line that has its key."""
    lines = [f"# {line}".rstrip() for line in head.splitlines()]
    left = dict(comments)
    for line in write(data).splitlines():
        found = re.match(r"( *)(?:- )?(\w+):", line)
        comment = left.pop(found[2], "") if found else ""
        comment = comment.replace("{extends}", str(data.get("extends", "")))
        lines += [f"{found[1] if found else ''}# {words}" for words in comment.splitlines()]
        lines.append(line)
    return "\n".join(lines) + "\n"


def with_hints(text: str, data: Data) -> str:
    """The text, and behind it what is worth saying and was not known."""
    there = {*data, *data.get("checkpoint", {})}
    hints = [hint for key, hint in _MISSING.items() if key not in there and "extends" not in data]
    return "\n".join([text.rstrip("\n"), *hints]) + "\n"


def data_like(recipe: RunProfile, cluster: ClusterProfile, folder: str, name: str) -> Data:
    """A profile on top of a shipped one, with what a user has to change; on an embedded cluster it starts here."""
    role = recipe.deciding_role
    fits = [pool.hardware for pool in cluster.pools if pool.hardware in recipe.hardware]
    known = any(fnmatchcase(role.image, image.pattern) for image in cluster.images)
    data: Data = {"extends": recipe.name, "name": name, "hardware": list(dict.fromkeys(fits))}
    own: Data = {"name": role.name, "image": role.image, "command": list(role.command)}
    if not fits:
        data["hardware"] = list(dict.fromkeys(pool.hardware for pool in cluster.pools))
        own |= {"replicas": 1, "processes_per_node": 1, "torchrun_variables": False}
    if cluster.engine == "embedded" and not (known and fits):
        own["image"] = "python"
    if cluster.engine == "embedded" and recipe.name != "demo":
        own["resources"] = dict.fromkeys(sorted(role.resources.model_fields_set))
        own["command"] = [posixpath.basename(word) if word.endswith(".py") else word for word in role.command]
        if not role.working_directory.startswith("{run_dir}"):
            own["working_directory"] = folder
    data |= {"steps": recipe.steps, "roles": [own]}
    data |= {"data": {"path": recipe.data.path}} if recipe.data.path else {}
    if cluster.engine == "embedded":
        data["recovery"] = "laptop"
    return data


def recipe_named(word: str, names: Collection[str]) -> str:
    """The shipped profile that somebody means by `nanogpt`, `huggingface` or `ddp`.

    Raises:
        ProfileError: none, or several.
    """
    if word in names:
        return word
    found = [name for name in sorted(names) if word.lower() in name]
    if len(found) != 1:
        known = f"; several are: {', '.join(found)}" if found else did_you_mean(word, names, "shipped")
        raise ProfileError("--like", f'"{word}" names no shipped profile{known}')
    return found[0]


def cluster_on(cluster: ClusterProfile, name: str) -> str:
    """A cluster profile on top of a shipped one, with what differs from site to site."""
    site = {} if cluster.engine == "embedded" else {
        "context": cluster.context, "namespace": cluster.namespace, "queue": cluster.queue,
        "programs_image": cluster.programs_image,
    }  # fmt: skip
    pools = [{"name": pool.name, "nodes": pool.nodes, "spares": pool.spares} for pool in cluster.pools]
    data: Data = {"extends": cluster.name, "name": name, **site, "pools": pools}
    head = f"""Written by `primus init --cluster {cluster.name}`: a cluster profile on top of a shipped one.
The whole of it: primus clusters show ./{name}.yaml
One of a living cluster is better read: primus clusters import --context CTX --namespace NS"""
    comments = {
        "context": "Of the kubeconfig.",
        "queue": "Kueue LocalQueue of the namespace.",
        "programs_image": "Our programs, in a registry that nodes can pull from.",
        "pools": "Nodes alike; spares are kept free for attempts that lost a node.",
    }
    return as_text(data, head, comments)
