"""What a name says about a checkpoint: whether it is temporary, and the step that it tells. Pure, over the words of it.

A trainer writes under a temporary name and renames it at the end, or renames first what it is about to delete: such a
name is no checkpoint, whatever lies below it. A step is the number that its own word announces (`step`, `iter`, `ba`),
never just the last number of a name, which may be a loss, an epoch, a rank or a version.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import FrozenSet, List, Optional, Sequence, Tuple

MOST_DIGITS = 18
"""A longer number is a hash or a time, and would not fit into 64 bits."""


def words_in(text: str) -> FrozenSet[str]:
    """The words of a text."""
    return frozenset(text.split())


HOLDS_STATE = re.compile(
    r"\.(?:pt|pth|ckpt|bin|safetensors|npz|npy|pkl|pickle|msgpack|h5|hdf5|keras|tar|distcp|ocdbt|ubj|zip|eqx|pb|index)$"
    r"|\.data-\d+-of-\d+$",
    re.IGNORECASE,
)
"""Names of files that hold a training program's state."""
IS_NOTE = re.compile(r"\.(?:txt|log|out|err|jsonl?|ya?ml|toml|csv|md|py|cfg|html|png)$|tfevents", re.IGNORECASE)
"""Names of files for people and tools."""
_SUFFIXES = re.compile(
    r"(?:\.(?:pt|pth|ckpt|tar|bin|safetensors|npz|npy|pkl|pickle|msgpack|h5|hdf5|keras|json|ubj|model|zip|gz|index))+$",
    re.IGNORECASE,
)
_ALWAYS = words_in(
    "tmp temp tmpdir tempdir tempfile temporary incomplete unfinished uncommitted inprogress delete deleting "
    "deleted trash trashed removing removed discarded"
)
"""Words that mark a name as temporary wherever they stand in it."""
_ASIDE = words_in(
    "old bak backup orig part partial del rm stale broken corrupt corrupted failed aborted invalid saving "
    "writing pending staging wip lock swp download crdownload dirty"
)
"""Words that do so at the end, after a number, or before a word of checkpoints (`old_model`, not `partial-fc`)."""
_ENDINGS = re.compile(r"(?:^|[._-])new$|(?<![a-z])in[._-]progress(?![a-z])|~$", re.IGNORECASE)
_TEMPERATURE = re.compile(r"(?<![a-z])temp[=_-]?\d+\.\d", re.IGNORECASE)
UNFINISHED = re.compile(
    r"(?<![a-z])(?:unfinished|incomplete|uncommitted|in_?progress|saving|writing)(?![a-z])", re.IGNORECASE
)
"""Words of a file that marks a checkpoint as unfinished."""
_TOOLS = words_in("wandb __pycache__ lost+found cache")
"""Folders of tools' own copies: nothing is resumed from there. Loggers' folders (`lightning_logs`, `mlruns`) are none:
trainers put checkpoints into them."""


@lru_cache(maxsize=1 << 16)  # every look asks about every file, and checkpoints call theirs alike
def is_temporary(name: str) -> bool:
    """Whether the name of one file or folder is of an unfinished save, or of what is put or thrown away."""
    if name.startswith("."):
        return True
    bare = _TEMPERATURE.sub("", _SUFFIXES.sub("", name))
    if _ENDINGS.search(bare):
        return True
    parts = [token for token in _tokens(bare) if token.word or token.text[0].isdigit()]
    for at, part in enumerate(parts):
        if part.word in _ALWAYS or part.word.startswith("tmp"):
            return True
        later = [one.word for one in parts[at + 1 :] if one.word]
        numbered_part = part.word in ("part", "partial") and parts[at + 1 : at + 2] and not parts[at + 1].word
        if (
            part.word in _ASIDE
            and not numbered_part
            and (
                not later or (at and not parts[at - 1].word) or (not at and parts[1].word in _OF_CHECKPOINTS | _COUNTED)
            )
        ):
            return True
    return False


def is_apart(path: str) -> bool:
    """Whether any part of a relative path is temporary, or a folder of another tool."""
    return any(is_temporary(part) or part.lower() in _TOOLS for part in path.split("/"))


def says_unfinished(name: str) -> bool:
    """Whether a file of this name inside of a checkpoint says that it is unfinished, as Automodel's `.incomplete`."""
    return bool(UNFINISHED.fullmatch(name.lstrip(".")))


def marks_unfinished(name: str, checkpoint: str) -> bool:
    """Whether `name` marks the checkpoint of that name beside it as unfinished, as NeMo's `<checkpoint>-unfinished`."""
    rest = name[len(checkpoint) :] if name.startswith(checkpoint) else ""
    return rest[:1] in ("-", ".", "_") and says_unfinished(rest[1:])


@dataclass(frozen=True)
class _Token:
    """A word, a number, or what separates them."""

    text: str

    @property
    def word(self) -> str:
        """In lower case; "" for others."""
        return self.text.lower() if self.text[:1].isalpha() else ""

    @property
    def number(self) -> Optional[int]:
        """A whole number of at most `MOST_DIGITS` digits."""
        return int(self.text) if self.text.isdigit() and len(self.text) <= MOST_DIGITS else None


_TOKENS = re.compile(r"[A-Za-z]+|\d+(?:\.\d+)*(?:[eE][-+]\d+)?|[^A-Za-z\d]+")
_ANNOUNCERS: Tuple[FrozenSet[str], ...] = (
    words_in("step steps globalstep globalsteps trainstep"),
    words_in("iter iters iteration iterations it itr"),
    words_in("ba update updates"),
)
"""Words before a step, the surest first: `step=5`, `global_step5`, `iter_0000010`, Composer's `ba100`."""
_COUNTED = words_in("step steps iter iters iteration iterations update updates")
"""Words after a step: `10000_steps`."""
_OTHER_COUNTS = words_in(
    "num n max total warmup accum accumulation log eval save every per decay loss acc accuracy score val"
)
"""`max_steps=1000` and `train_loss_step=1` announce no step."""
_NO_STEP = words_in(
    "epoch epochs ep e v ver version rank r node host gpu worker proc process shard part of seed fold run "
    "trial tp pp dp mp cp zero stage job attempt exp lr bs gbs batch size samples tokens loss acc accuracy "
    "score val layers heads dim hidden"
)
"""Words before a number that is no step."""
_EPOCHS = words_in("epoch epochs ep e")
_OF_CHECKPOINTS = words_in(
    "checkpoint checkpoints ckpt ckpts chkpt cp model state weights params net snapshot save resume s"
)
"""Words that a step may follow without anything between: `ckpt100`, but not `gpt2`."""
_DATE = re.compile(
    r"(?<!\d)(?:19|20)\d\d[-_.]?[01]\d[-_.]?[0-3]\d(?!\d)(?:[T_ -]?\d\d[-_.:]?\d\d(?:[-_.:]?\d\d)?(?!\d))?"
)
_FAIRSEQ = re.compile(r"^checkpoint_\d+_(?P<step>\d{1,18})$")
"""`checkpoint_<epoch>_<updates>`."""


def step_of(name: str) -> Optional[int]:
    """Step that a file's or folder's name tells; None: it tells none, or not clearly which number it is."""
    announced = announced_step(name)
    if announced is not None:
        return announced
    bare = _SUFFIXES.sub("", name)
    found = _FAIRSEQ.match(bare)
    if found is not None:
        return int(found.group("step"))
    tokens = _tokens(_DATE.sub("_", bare))
    standing = [
        token.number for at, token in enumerate(tokens) if token.number is not None and _may_be_step(tokens, at)
    ]
    return standing[0] if len(standing) == 1 else None


def announced_step(name: str) -> Optional[int]:
    """Step that a word of the name announces; None: no word does."""
    tokens = _tokens(_SUFFIXES.sub("", name))
    for words in _ANNOUNCERS:
        for at, token in enumerate(tokens):
            if token.word in words and _previous_word(tokens, at) not in _OTHER_COUNTS:
                step = _number_after(tokens, at)
                if step is not None:
                    return step
    for at, token in enumerate(tokens):
        after = [one for one in tokens[at + 1 : at + 3] if one.text not in "_-"]
        if token.number is not None and after and after[0].word in _COUNTED:
            return token.number
    return None


def is_written_again(name: str) -> bool:
    """Whether each save writes this name again: nothing in it counts steps, epochs or saves."""
    tokens = _tokens(_DATE.sub("_", _SUFFIXES.sub("", name)))
    numbers = [at for at, token in enumerate(tokens) if token.number is not None]
    counts_epochs = any(
        tokens[at - 1].word in _EPOCHS or (at >= 2 and tokens[at - 2].word in _EPOCHS) for at in numbers if at
    )
    return step_of(name) is None and not counts_epochs and not any(_may_be_step(tokens, at) for at in numbers)


def has_number(name: str) -> bool:
    """Whether any digit stands in the name before its suffix."""
    return any(letter.isdigit() for letter in _SUFFIXES.sub("", name))


def words_of(name: str) -> FrozenSet[str]:
    """The words of a name without its suffix, in lower case."""
    return frozenset(token.word for token in _tokens(_SUFFIXES.sub("", name)) if token.word)


def _tokens(bare: str) -> List[_Token]:
    return [_Token(text) for text in _TOKENS.findall(bare)]


def _previous_word(tokens: Sequence[_Token], at: int) -> str:
    """The word right before, joined by `_` or `-`."""
    return tokens[at - 2].word if at >= 2 and tokens[at - 1].text in ("_", "-") else ""


def _number_after(tokens: Sequence[_Token], at: int) -> Optional[int]:
    following = [token for token in tokens[at + 1 : at + 3] if token.word or token.text[0].isdigit()]
    if not following or following[0].number is None:
        return None
    return None if _has_unit(tokens, tokens.index(following[0], at)) else following[0].number


def _may_be_step(tokens: Sequence[_Token], at: int) -> bool:
    """Whether the whole number at `at`, which no word announces, may be a step."""
    before = tokens[at - 1] if at else _Token("")
    if before.word and before.word not in _OF_CHECKPOINTS:
        return False  # glued to a word: gpt2, epoch3, v1
    separator = "" if before.word or not at else before.text
    word = before.word or (tokens[at - 2].word if at >= 2 else "")
    if "=" in separator or word in _NO_STEP:
        return False
    following = [token.word for token in tokens[at + 1 : at + 3] if token.word]
    return not _has_unit(tokens, at) and following[:1] != ["of"]


def _has_unit(tokens: Sequence[_Token], at: int) -> bool:
    """Whether letters are glued to the number's end: 124M, 7b, 3d."""
    return at + 1 < len(tokens) and bool(tokens[at + 1].word)
