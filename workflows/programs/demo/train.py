"""A small language model trained on the Python standard library's own source, by several processes together.

It behaves as a good trainer should: deterministic by its seed, bit-equal after a resume, checkpoints written completely
or not at all. SIGTERM sets a flag that travels with the next gradient, so that all ranks save the same step before a
deadline. Started as torchrun starts a script: `RANK`, `WORLD_SIZE`, `MASTER_ADDR` and `MASTER_PORT` in the environment.
Ends with 0 when all steps are done, 143 after SIGTERM, 2 for wrong flags, else 1.

    python3 programs.pyz demo-train --steps=300 --checkpoint-dir=/tmp/demo
"""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import dataclass
from types import FrameType
from typing import Any, Dict, List, Mapping, Optional

from workflows.programs.demo import checkpoint, model
from workflows.programs.demo.collective import Collective, MismatchError, RankLostError, connect
from workflows.programs.runtime import flags


class GraceOverError(Exception):
    """The other ranks stayed silent for the whole grace after SIGTERM."""


class StoppedEarlyError(Exception):
    """SIGTERM before the first step: there is nothing to save."""


class StopRequest:
    """SIGTERM as a flag; from then on a blocked exchange ends after the grace instead of never."""

    def __init__(self, grace_seconds: float) -> None:
        self.asked = False
        self.training = False
        """Set with the first step: until then SIGTERM ends the process at once."""
        self._grace_seconds = grace_seconds

    def install(self) -> None:
        """Handle SIGTERM from now on."""
        signal.signal(signal.SIGTERM, self._on_term)
        signal.signal(signal.SIGALRM, self._on_alarm)

    def _on_term(self, _number: int, _frame: Optional[FrameType]) -> None:
        if not self.training:
            raise StoppedEarlyError
        if not self.asked:
            self.asked = True
            signal.setitimer(signal.ITIMER_REAL, self._grace_seconds)

    def _on_alarm(self, _number: int, _frame: Optional[FrameType]) -> None:
        raise GraceOverError


THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
EXIT_TERMINATED = 128 + int(signal.SIGTERM)
WORK_SLICE_SECONDS = 0.005
REAL_SHARE = 0.5
"""Of a step at most: a model this small computes for longer only where it is stopped meanwhile."""
LONGEST_SLICE_SECONDS = 0.0075
"""More than this in one slice is a stop, not work."""
EXPECTED = (model.CorpusError, checkpoint.RestoreError, MismatchError, RankLostError, OSError)
"""What ends a run with one clear line; anything else is a fault of the program and shows its stack."""


@dataclass(frozen=True)
class Options(flags.Flags):
    """Flags of the demo trainer."""

    steps: int = 300
    """Steps over all attempts."""
    seed: int = 0
    checkpoint_dir: str = ""
    """Folder for `step-<n>`; empty: nothing is saved."""
    resume: str = ""
    """Path of the checkpoint to continue from."""
    save_every: int = 20
    """Steps between checkpoints; the last step is always saved."""
    step_seconds: float = 0.0
    """A step takes at least so long; 0: as long as it needs."""
    fault_file: str = ""
    """The fault file, see `checkpoint.due`."""
    corpus: str = ""
    """File or folder of text; empty: the standard library of this Python."""
    corpus_bytes: int = 2097152
    """At most so much of it."""
    batch_windows: int = 16
    """Windows of 32 bytes that a rank learns from in one step."""
    checkpoint_mib: int = 0
    """Padding in a checkpoint, over all ranks."""
    import_seconds: float = 0.0
    """Time that a simulated heavy import takes."""
    rendezvous_seconds: float = 120.0
    """Longest wait for the other ranks."""
    save_grace_seconds: float = 20.0
    """After SIGTERM: longest wait for the other ranks before giving up saving."""


def parse(argv: List[str]) -> Options:
    """The options in `argv`.

    Raises:
        UsageError: an unknown flag or a value out of range.
    """
    options = flags.from_argv(Options, argv)
    for name in ("steps", "save_every", "batch_windows", "corpus_bytes"):
        if getattr(options, name) < 1:
            raise flags.UsageError(f"{flags.flag(name)}: must be at least 1, got {getattr(options, name)}")
    for name in ("seed", "step_seconds", "checkpoint_mib", "import_seconds"):
        if getattr(options, name) < 0:
            raise flags.UsageError(f"{flags.flag(name)}: must not be negative, got {getattr(options, name)}")
    return options


class Trainer:
    """One rank."""

    def __init__(self, options: Options, environment: Mapping[str, str], stop: StopRequest) -> None:
        import numpy as np

        self.options = options
        self.stop = stop
        self.rank = int(environment.get("RANK", "0"))
        self.world_size = int(environment.get("WORLD_SIZE", "1"))
        self.corpus = model.load(options.corpus, options.corpus_bytes)
        self.reader = model.BatchReader(self.corpus, options.seed, self.rank, self.world_size)
        self.state = checkpoint.Training(model.initial(options.seed), model.Adam(), step=0, loss=float("nan"))
        self.saved_step = 0
        self._update_seconds = 0.0
        # One vector travels: the gradient, then the loss, then the votes for stopping.
        self._message: Any = np.zeros(model.size() + 2, dtype=np.float32)

    def restore(self) -> None:
        """Continue from `--resume`.

        Raises:
            RestoreError: see `checkpoint.restore`; also where the checkpoint belongs to another text or seed.
        """
        began = time.monotonic()
        found, position = checkpoint.restore(self.options.resume, self.state, self.rank, self.world_size)
        for key, value in self._meta().items():
            if found.meta.get(key) != value:
                raise checkpoint.RestoreError(
                    f"{self.options.resume}: {key} is {found.meta.get(key)!r} there and {value!r} here"
                )
        self.reader.restore(position)
        self.saved_step = self.state.step
        self.say(f"restore step {self.state.step} from {self.options.resume} in {time.monotonic() - began:.3f} s")

    def identity(self, environment: Mapping[str, str]) -> Dict[str, Any]:
        """What all ranks must agree in before they train together."""
        names = ("TORCHELASTIC_RUN_ID", "PRIMUS_RUN", "PRIMUS_ATTEMPT", "PRIMUS_INCARNATION")
        return {
            **{name: environment.get(name, "") for name in names},
            "step": self.state.step,
            "steps": self.options.steps,
            **self._meta(),
        }

    def train(self, link: Collective) -> int:
        """All remaining steps; the exit code."""
        began = time.monotonic()
        self.stop.training = True
        while self.state.step < self.options.steps:
            stopping = self._step(link, began)
            due = self.state.step % self.options.save_every == 0 or self.state.step == self.options.steps
            if self.options.checkpoint_dir and (due or stopping):
                self._save(link)
            if stopping and self.state.step < self.options.steps:
                self.say(
                    f"stopped by SIGTERM after step {self.state.step}, saved: {self.saved_step == self.state.step}"
                )
                return EXIT_TERMINATED
            began = time.monotonic()
        return 0

    def report_end(self) -> None:
        """What the run came to: loss on text never trained on, entropy of single bytes, digest of the weights."""
        if self.rank == 0:
            loss = model.loss(self.state.weights, *model.held_out(self.corpus))
            entropy = self.corpus.unigram_entropy()
            self.say(
                f"final step {self.state.step} | held-out loss {loss:.4f} | unigram entropy {entropy:.4f} nats per byte"
                f" | weights sha256 {model.digest(self.state.weights)}"
            )

    def say(self, text: str, others: str = "") -> None:
        """One line of output of rank 0: the others would say the same, and say only what is their own."""
        if self.rank == 0 or others:
            print(text if self.rank == 0 else others, flush=True)

    def _step(self, link: Collective, began: float) -> bool:
        """One step; True where any rank was asked to stop."""
        import numpy as np

        gradient = self._message[:-2]
        weights = self._suffer(checkpoint.due(self.options.fault_file, self.rank, self.state.step))
        contexts, targets = self.reader.batch(self.options.batch_windows)
        with np.errstate(invalid="ignore"):
            self._message[-2] = model.loss_and_gradient(weights, contexts, targets, gradient)
            self._throttle(began)
            self._message[-1] = float(self.stop.asked)
            compute = time.monotonic() - began
            link.all_reduce(self._message)
            met = time.monotonic()
            gradient /= np.float32(self.world_size)
            self.state.optimizer.update(self.state.weights, gradient, self.state.step + 1)
            self._update_seconds = time.monotonic() - met
        self.state.loss = float(self._message[-2]) / self.world_size
        self.state.step += 1
        stopping = float(self._message[-1]) > 0
        seconds = time.monotonic() - began
        tokens = len(targets) * self.world_size / max(seconds, 1e-9)
        self.say(
            f"step {self.state.step}/{self.options.steps} | loss {self.state.loss:.4f} | tokens/s {tokens:.0f}"
            f" | step time {seconds:.4f} s | compute {compute:.4f} s",
            f"step {self.state.step}/{self.options.steps} | compute {compute:.4f} s",
        )
        return stopping

    def _suffer(self, fault: Optional[str]) -> Any:
        """The weights to use in this step: the real ones unless NaN was asked for."""
        if fault == "exception":
            raise checkpoint.DemoFaultError(f"asked for by the fault file, after step {self.state.step}")
        if fault == "oom":
            checkpoint.run_out_of_memory()
        if fault == "nan":
            weights = self.state.weights.copy()
            model.views(weights)["output_bias"][0] = float("nan")
            return weights
        return self.state.weights

    def _throttle(self, began: float) -> None:
        """Pretend to compute for the rest of a step: work that a rank does itself, before it waits for others.

        A process that is stopped does no work meanwhile, so a slice counts for little more than it was meant to take.
        """
        now = time.monotonic()
        whole = self.options.step_seconds
        left = whole - min(now - began + self._update_seconds, whole * REAL_SHARE)
        while left > 0 and not self.stop.asked:
            time.sleep(min(left, WORK_SLICE_SECONDS))
            before, now = now, time.monotonic()
            left -= min(now - before, LONGEST_SLICE_SECONDS)

    def _save(self, link: Collective) -> None:
        began = time.monotonic()
        self.say(f"checkpoint step {self.state.step} is being saved")
        ballast = (self.options.checkpoint_mib << 20) // self.world_size
        path, count = checkpoint.save(
            self.options.checkpoint_dir, self.state, self.reader.state(), link, self._meta(), ballast
        )
        self.saved_step = self.state.step
        self.say(
            f"checkpoint step {self.state.step} saved to {path} in {time.monotonic() - began:.3f} s"
            f" ({count * self.world_size / 2**20:.1f} MiB)"
        )

    def _meta(self) -> Dict[str, Any]:
        return {
            "seed": self.options.seed,
            "corpus_sha256": self.corpus.sha256,
            "batch_windows": self.options.batch_windows,
        }


@flags.program("demo-train")
def main(argv: List[str]) -> int:
    """Train; the exit code."""
    options = parse(argv)
    for name in THREAD_VARIABLES:
        os.environ[name] = "1"
    stop = StopRequest(options.save_grace_seconds)
    try:
        stop.install()
        _import_slowly(options.import_seconds)
        return _run(options, stop)
    except StoppedEarlyError:
        return _fail("stopped by SIGTERM before the first step: nothing to save", EXIT_TERMINATED)
    except GraceOverError:
        return _fail(f"not saved: the other ranks were silent for {options.save_grace_seconds} s", EXIT_TERMINATED)
    except EXPECTED as error:
        return _fail(str(error), EXIT_TERMINATED if stop.asked else 1)


def _run(options: Options, stop: StopRequest) -> int:
    environment = os.environ
    trainer = Trainer(options, environment, stop)
    if options.resume:
        trainer.restore()
    address = (environment.get("MASTER_ADDR", "127.0.0.1"), int(environment.get("MASTER_PORT", "29500")))
    identity = trainer.identity(environment)
    link = connect(trainer.rank, trainer.world_size, address, identity, options.rendezvous_seconds)
    try:
        if trainer.state.step >= options.steps:
            trainer.say(f"nothing to do: all {options.steps} steps are done in {options.resume}")
        code = trainer.train(link)
    finally:
        link.close()
    if code == 0:
        trainer.report_end()
    return code


def _fail(text: str, code: int) -> int:
    print(f"rank {os.environ.get('RANK', '0')}: {text}", file=sys.stderr, flush=True)
    return code


def _import_slowly(seconds: float) -> None:
    """Stand in for the heavy imports of real trainers; a process that did them once does not do them again."""
    name = "workflows.programs.demo.heavy_imports"
    if seconds and name not in sys.modules:
        os.environ["PRIMUS_DEMO_IMPORT_SECONDS"] = str(seconds)
        __import__(name)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
