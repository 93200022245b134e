"""The demo trainer's model: a small byte-level language model (embeddings, a hidden layer, a bigram shortcut) and Adam.

All parameters lie in one flat float32 vector, so that an all-reduce, a digest and a shard are single slices. Every
product is a plain matrix product on one thread: the same inputs give the same bits on the same machine.
"""

from __future__ import annotations

import hashlib
from typing import Any, Dict, Tuple

from workflows.programs.demo_data import CONTEXT, VOCABULARY

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
