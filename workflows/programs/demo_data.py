"""Text for the demo trainer: the Python standard library's own source, and the order in which a rank reads it.

Bytes are the tokens (everything above ASCII is one token), so there is no tokenizer to ship and no file to fetch.
"""

from __future__ import annotations

import hashlib
import math
import os
from dataclasses import dataclass
from typing import Any, Dict, List, Tuple

VOCABULARY = 128
"""Tokens: ASCII; any byte above counts as the last one."""
CONTEXT = 8
"""Bytes the model sees before the one it predicts."""
WINDOW = 32
"""Neighbouring bytes predicted together; the unit of shuffling."""
HELD_OUT_SHARE = 32
"""One part in so many, at the end of the text, is never trained on."""


class CorpusError(ValueError):
    """The text cannot be used; the message says why and what to give instead."""


@dataclass(frozen=True)
class Corpus:
    """A text as tokens."""

    tokens: Any
    """uint8 array of all tokens, training part first."""
    train_tokens: int
    """Length of the training part; the rest is held out."""
    sha256: str
    """Digest of the text: a checkpoint is only continued on the same text."""

    def unigram_entropy(self) -> float:
        """Entropy of single bytes in nats per byte: the loss of a model that ignores all context."""
        import numpy as np

        counts = np.bincount(self.tokens, minlength=VOCABULARY)
        shares = [count / len(self.tokens) for count in counts.tolist() if count]
        return -sum(share * math.log(share) for share in shares)


def load(path: str, limit_bytes: int) -> Corpus:
    """At most `limit_bytes` of the text under `path` (file or folder; "" is the standard library of this Python).

    Raises:
        CorpusError: nothing readable there, or too little text for one batch.
    """
    import numpy as np

    text = _read(path or os.path.dirname(os.__file__), limit_bytes)
    train = len(text) - len(text) // HELD_OUT_SHARE
    if train < CONTEXT + 4 * WINDOW:
        raise CorpusError(f"--corpus: only {len(text)} bytes of text in {path or 'the standard library'}")
    tokens = np.minimum(np.frombuffer(text, dtype=np.uint8), VOCABULARY - 1)
    return Corpus(tokens, train, hashlib.sha256(text).hexdigest())


def _read(path: str, limit_bytes: int) -> bytes:
    parts: List[bytes] = []
    left = limit_bytes
    try:
        names = [path] if os.path.isfile(path) else _sources(path)
        for name in names:
            with open(name, "rb") as file:
                parts.append(file.read(left))
            left -= len(parts[-1])
            if left <= 0:
                break
    except OSError as error:
        raise CorpusError(f"--corpus: cannot read {path}: {error.strerror}") from error
    return b"".join(parts)


def _sources(folder: str) -> List[str]:
    names = sorted(os.listdir(folder))
    python = [name for name in names if name.endswith(".py")] or names
    return [path for path in (os.path.join(folder, name) for name in python) if os.path.isfile(path)]


class Reader:
    """The endless, shuffled sequence of one rank's batches; its position is saved with every checkpoint.

    Each epoch is a new permutation of all windows of the rank (every `world_size`-th one), drawn from the rank's own
    generator. The generator's state *before* the permutation is kept, so that it can be drawn again after a resume.
    """

    def __init__(self, corpus: Corpus, seed: int, rank: int, world_size: int) -> None:
        import numpy as np

        self._tokens = corpus.tokens
        windows = (corpus.train_tokens - CONTEXT) // WINDOW
        self._mine = np.arange(rank % windows, windows, world_size)
        self._generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, rank])))
        self._start_epoch()

    def batch(self, windows: int) -> Tuple[Any, Any]:
        """Contexts (`windows * WINDOW`, `CONTEXT`) and the tokens that follow them."""
        import numpy as np

        chosen: List[int] = []
        while len(chosen) < windows:
            if self._position >= len(self._order):
                self._start_epoch()
            take = self._order[self._position : self._position + windows - len(chosen)]
            self._position += len(take)
            chosen.extend(take.tolist())
        starts = np.asarray(chosen) * WINDOW + CONTEXT
        positions = (starts[:, None] + np.arange(WINDOW)).reshape(-1)
        return self._tokens[positions[:, None] + np.arange(-CONTEXT, 0)], self._tokens[positions]

    def state(self) -> Dict[str, Any]:
        """Position and generator state as plain JSON values."""
        return {"position": self._position, "generator": self._epoch_state}

    def restore(self, state: Dict[str, Any]) -> None:
        """Go on exactly where `state` was taken."""
        self._generator.bit_generator.state = state["generator"]
        self._start_epoch()
        self._position = int(state["position"])

    def _start_epoch(self) -> None:
        self._epoch_state: Any = self._generator.bit_generator.state
        self._order: Any = self._generator.permutation(self._mine)
        self._position = 0


def held_out(corpus: Corpus, limit: int = 8192) -> Tuple[Any, Any]:
    """Contexts and tokens of the part that is never trained on."""
    import numpy as np

    stop = min(len(corpus.tokens), corpus.train_tokens + CONTEXT + limit)
    positions = np.arange(corpus.train_tokens + CONTEXT, stop)
    return corpus.tokens[positions[:, None] + np.arange(-CONTEXT, 0)], corpus.tokens[positions]
