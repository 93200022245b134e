"""What programs say when their numbers break: losses, gradients, loss scales.

Values in the lines of steps (`loss: nan`) are read by `flows.decisions.observers.losses`, which sees whether they recover.
"""

from __future__ import annotations

from flows.decisions.rules import Rule
from profiles.vocabulary import FaultClass

F = FaultClass

RULES: tuple[Rule, ...] = (
    Rule("loss-nan",
         r"(?i)(?:\bloss(?:es)?(?: value)? (?:is|was|are|has|became|becomes|went|turned|diverged|contains?|exploded to) "
         r"(?:[\w ]{1,24} )?(?:nan|inf(?:inite|inity)?)\b|found (?:nan|inf) in (?:local )?(?:forward )?(?:loss|grad)|"
         r"non-?finite (?:loss|grad)|loss (?:is )?not finite|\bnan (?:loss|grad\w{0,6}) (?:during|detected|found|encountered|at)|"
         r"invalid loss, terminating training|loss returned in `\w{1,40}` is (?:nan|inf))"
         r"(?!.{0,80}(?:skip|ignor))", F.NUMERIC, 0.88, "nobody",
         "ValueError: Rank 3: found NaN in local forward loss calculation. Device: 3, node: gpu-17",
         "loss: 2.31 nan_skips: 0",
         "Megatron-LM rerun machine, Keras, Lightning, detectron2, trainers",
         literals=("loss", "non-finite", "nonfinite", "found nan", "found inf", "grad"),
         supersedes=("python-exception", "cuda-device-assert")),
    Rule("floating-point-error", r"^FloatingPointError: ", F.NUMERIC, 0.9, "nobody",
         "FloatingPointError: loss at step 55 has no value",
         "floating point format bf16",
         "numpy, JAX, fairseq, trainers", literals=("floatingpointerror",)),
    Rule("loss-scale-minimum",
         r"(?i)(?:current loss scale already at minimum|minimum loss scale reached|loss scale (?:has )?(?:reached|hit|fell to|"
         r"dropped to|underflow)\w{0,4} (?:the |its )?(?:minimum|zero|0\b)|loss[_ ]scale .{0,20}(?:is too small|underflow))",
         F.NUMERIC, 0.85, "nobody",
         "Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.",
         "loss scale 65536",
         "DeepSpeed, fairseq, Megatron-LM", literals=("loss scale", "loss_scale"), supersedes=("python-exception",)),
    Rule("autograd-anomaly", r"returned nan values in its \d+th output", F.NUMERIC, 0.92, "nobody",
         "RuntimeError: Function 'MulBackward0' returned nan values in its 0th output.",
         "nan values removed",
         "PyTorch anomaly mode", literals=("returned nan value",), supersedes=("python-exception",)),
    Rule("grad-norm-nan",
         r"(?i)(?:\bgrad(?:ient)?s?[_ ](?:norm )?(?:was|is|are|became|contains?|has|have) (?:[\w ]{1,24} )?(?:nan|inf)\b|"
         r"\b(?:nan|inf)s? (?:or (?:nan|inf)s? )?(?:values? )?(?:in|found in|detected in) (?:the )?grad|"
         r"for gradients from `parameters` is non-finite)(?!.{0,80}(?:skip|overflow|scal))", F.NUMERIC, 0.75, "nobody",
         "{| Epoch: 13/1250 (3/8) | Loss: 2.610 | 0.68 steps/s | Step: 0k | }grad_norm was NaN!",
         "grad_norm: 0.93 | nan skipped 0",
         "trainers, torch.nn.utils.clip_grad_norm_", literals=("grad",), supersedes=("python-exception",)),
    Rule("diverged",
         r"(?i)\b(?:model|training|loss|run) (?:has )?diverged\b|\bloss (?:has )?explod(?:ed|ing)\b|NanLossDuringTrainingError", F.NUMERIC, 0.85, "nobody",
         "RuntimeError: training diverged at step 1200, stopping",
         "the two branches diverged; loss 2.31",
         "TensorFlow NanTensorHook, trainers", literals=("diverged", "loss"), supersedes=("python-exception",)),
    Rule("values-nan",
         r"(?i)(?:detected nan (?:and/or|or) inf values in|nan detected in output of|there are nan or inf \(num_nan|"
         r"invalid value \(nan\) encountered in|\bcontains? (?:a )?nan\b.{0,40}(?:tensor|weight|parameter|activation|logit)|"
         r"tensor .{0,60}contains? (?:nan|inf)\b)", F.NUMERIC, 0.75, "nobody",
         "ValueError: Detected nan and/or inf values in `layer.weight`. Look at your forward pass.",
         "nan_to_num applied to tensor",
         "Lightning, fairseq's detector, Paddle, JAX", literals=("nan", "contain"),
         supersedes=("python-exception", "floating-point-error")),
    Rule("tensor-nan",
         r"\bLossTensor is inf or nan|\bTensor had (?:NaN|Inf|NaN and Inf)\b|\bNan in summary histogram for|"
         r"Detected Infinity or NaN in (?:\d{1,6} of \d{1,6} elements? in )?(?:the )?output|"
         r"input matrix contained non-finite values|found invalid values:\s{0,3}(?:tensor|Parameter).{0,40}\bnan\b",
         F.NUMERIC, 0.85, "nobody",
         "tensorflow.python.framework.errors_impl.InvalidArgumentError: LossTensor is inf or nan. : Tensor had NaN values",
         "summary histogram for conv1/weights: no Nan",
         "TensorFlow check_numerics and summaries, torch.linalg, torch.distributions",
         literals=("losstensor", "tensor had ", "nan in summary", "infinity or nan", "non-finite", "invalid values"),
         supersedes=("python-exception",)),
    Rule("asserted-finite",
         r"^\s{2,12}(?:assert|raise) .{0,80}(?:\b(?:isnan|isinf|isfinite|is_nan)\(|(?i:\bloss\b.{0,30}\bnan\b))", F.NUMERIC, 0.8, "nobody",
         "    assert not torch.isnan(loss).any()",
         "torch.isnan(loss) is checked",
         "CPython: the source line in a traceback of a program that checks its loss",
         literals=("assert ", "raise "), supersedes=("python-exception",)),
    Rule("table-nan", r"^\s{0,12}\d{1,6}/\d{1,6}\s{1,9}[\d.]{1,9}[GM]\s[\d.\s]{0,60}\bnan\b", F.NUMERIC, 0.8, "nobody",
         "      3/300      4.2G        nan        nan        nan         12        640: 100%",
         "      3/300      4.2G        1.2        0.9        1.1         12        640: 100%",
         "YOLO: losses in the columns of a table", literals=("nan",)),
    Rule("loss-spike", r"(?i)(?:loss spike detected|Unexpected result \S{1,40} on rank|Spiky loss)",
         F.NUMERIC, 0.6, "nobody",
         "WARNING: Spiky loss detected, rerunning iteration 1207",
         "loss went down",
         "Megatron-LM rerun machine", literals=("loss spike det", "unexpected resu", "spiky loss")),
)  # fmt: skip
