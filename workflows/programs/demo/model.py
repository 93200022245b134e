"""The demo trainer's model and data: a small byte-level language model (embeddings, a hidden layer, a bigram shortcut).

All parameters are one flat float32 vector, so that an all-reduce, a digest and a shard are single slices. Every product
is a plain matrix product on one thread: the same inputs give the same bits on the same machine. The text is the Python
standard library's own source. Bytes are the tokens (everything above ASCII is one token), so there is no tokenizer to
ship and no file to fetch.
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


class BatchReader:
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


EMBEDDING = 24
HIDDEN = 192
SHAPES: Dict[str, Tuple[int, ...]] = {
    "embedding": (VOCABULARY, EMBEDDING),
    "hidden": (CONTEXT * EMBEDDING, HIDDEN),
    "hidden_bias": (HIDDEN,),
    "output": (HIDDEN, VOCABULARY),
    "output_bias": (VOCABULARY,),
    "bigram": (VOCABULARY, VOCABULARY),
}
LEARNING_RATE = 6e-3
WARM_UP_STEPS = 20
DECAY_FROM_STEP = 100
BETA_1, BETA_2, EPSILON = 0.9, 0.99, 1e-8


def size() -> int:
    """Number of parameters."""
    total = 0
    for shape in SHAPES.values():
        total += shape[0] * (shape[1] if len(shape) > 1 else 1)
    return total


def views(flat: Any) -> Dict[str, Any]:
    """Named views into a flat vector of `size()` values."""
    named: Dict[str, Any] = {}
    at = 0
    for name, shape in SHAPES.items():
        length = shape[0] * (shape[1] if len(shape) > 1 else 1)
        named[name] = flat[at : at + length].reshape(shape)
        at += length
    return named


def initial(seed: int) -> Any:
    """Flat float32 vector of fresh weights, the same on every rank."""
    import numpy as np

    generator = np.random.Generator(np.random.PCG64(seed))
    flat = np.zeros(size(), dtype=np.float32)
    named = views(flat)
    for name, scale in (("embedding", 0.3), ("hidden", (2.0 / (CONTEXT * EMBEDDING)) ** 0.5), ("output", 0.02)):
        named[name][...] = generator.standard_normal(SHAPES[name], dtype=np.float32) * np.float32(scale)
    return flat


def loss_and_gradient(flat: Any, contexts: Any, targets: Any, gradient: Any) -> float:
    """Mean cross-entropy in nats per byte; writes its gradient into the flat vector `gradient`."""
    import numpy as np

    weight, grad = views(flat), views(gradient)
    rows = np.arange(len(targets))
    embedded, hidden, probabilities = _forward(weight, contexts)
    loss = float(-np.log(np.maximum(probabilities[rows, targets], 1e-30)).mean())
    error = probabilities
    error[rows, targets] -= 1.0
    error /= np.float32(len(targets))
    np.matmul(hidden.T, error, out=grad["output"])
    error.sum(0, out=grad["output_bias"])
    np.matmul(_one_hot(contexts[:, -1]).T, error, out=grad["bigram"])
    back = error @ weight["output"].T
    back *= hidden > 0
    np.matmul(embedded.T, back, out=grad["hidden"])
    back.sum(0, out=grad["hidden_bias"])
    below = (back @ weight["hidden"].T).reshape(-1, EMBEDDING)
    np.matmul(_one_hot(contexts.reshape(-1)).T, below, out=grad["embedding"])
    return loss


def loss(flat: Any, contexts: Any, targets: Any) -> float:
    """Mean cross-entropy in nats per byte."""
    import numpy as np

    _, _, probabilities = _forward(views(flat), contexts)
    return float(-np.log(np.maximum(probabilities[np.arange(len(targets)), targets], 1e-30)).mean())


def _forward(weight: Dict[str, Any], contexts: Any) -> Tuple[Any, Any, Any]:
    import numpy as np

    embedded = weight["embedding"][contexts].reshape(len(contexts), CONTEXT * EMBEDDING)
    hidden = embedded @ weight["hidden"]
    hidden += weight["hidden_bias"]
    np.maximum(hidden, 0, out=hidden)
    logits = hidden @ weight["output"]
    logits += weight["output_bias"]
    logits += weight["bigram"][contexts[:, -1]]
    logits -= logits.max(1, keepdims=True)
    np.exp(logits, out=logits)
    logits /= logits.sum(1, keepdims=True)
    return embedded, hidden, logits


def _one_hot(tokens: Any) -> Any:
    import numpy as np

    hot = np.zeros((len(tokens), VOCABULARY), dtype=np.float32)
    hot[np.arange(len(tokens)), tokens] = 1.0
    return hot


class Adam:
    """Adam in place on a flat vector; `mean` and `square` are its whole state beside the step."""

    def __init__(self) -> None:
        import numpy as np

        self.mean: Any = np.zeros(size(), dtype=np.float32)
        self.square: Any = np.zeros(size(), dtype=np.float32)

    def update(self, flat: Any, gradient: Any, step: int) -> None:
        """Apply step number `step` (from 1). The rate depends on the step alone, so a longer run starts alike."""
        import numpy as np

        rate = LEARNING_RATE * min(1.0, step / WARM_UP_STEPS) / max(1.0, step / DECAY_FROM_STEP) ** 0.5
        self.mean += np.float32(1 - BETA_1) * (gradient - self.mean)
        self.square += np.float32(1 - BETA_2) * (gradient * gradient - self.square)
        scale = np.float32(rate * (1 - BETA_2**step) ** 0.5 / (1 - BETA_1**step))
        flat -= scale * self.mean / (np.sqrt(self.square) + np.float32(EPSILON))


def digest(flat: Any) -> str:
    """SHA-256 of the weights' bytes."""
    return hashlib.sha256(flat.tobytes()).hexdigest()
