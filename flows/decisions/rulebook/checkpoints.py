"""Checkpoints and training data."""

from __future__ import annotations

from flows.decisions.rules import Rule
from profiles.vocabulary import FaultClass

F = FaultClass

RULES: tuple[Rule, ...] = (
    Rule("checkpoint-zip",
         r"PytorchStreamReader failed (?:reading|locating)|invalid header or archive is corrupted|"
         r"zipfile\.BadZipFile", F.CHECKPOINT_CORRUPT, 0.92, "nobody",
         "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory",
         "PytorchStreamReader opened",
         "torch.load; newer text names a corrupt checkpoint itself", literals=("eader", "zipfile.badzipfile")),
    Rule("checkpoint-safetensors", r"safetensors_rust\.SafetensorError|(?:MetadataIncompleteBuffer|HeaderTooLarge|"
         r"InvalidHeaderDeserialization)", F.CHECKPOINT_CORRUPT, 0.9, "nobody",
         "safetensors_rust.SafetensorError: Error while deserializing header: MetadataIncompleteBuffer",
         "safetensors 0.5.2 loaded",
         "safetensors", literals=("header", "metadataincomplete", "safetensors_rust.s")),
    Rule("checkpoint-pickle", r"(?:_pickle|pickle)\.UnpicklingError|EOFError: Ran out of input|"
         r"unexpected EOF, expected \d+ more bytes\. The file might be corrupted", F.CHECKPOINT_CORRUPT, 0.85,
         "nobody",
         "RuntimeError: unexpected EOF, expected 7302 more bytes. The file might be corrupted.",
         "EOFError: EOF when reading a line",
         "pickle, torch.load", literals=("error", "unexpected eof, ex")),
    Rule("checkpoint-digest",
         r"(?i)checkpoint.{0,120}(?:digest|checksum|sha256|crc32c?).{0,60}(?:mismatch|does not match|differs|"
         r"wrong)", F.CHECKPOINT_CORRUPT, 0.93, "nobody",
         "checkpoint step-40: digest of shard-1.npz does not match the manifest",
         "checkpoint step-40: digest ok",
         "ours and others", literals=("checkpoint",)),
    Rule("checkpoint-dcp", r"CheckpointException ranks:|(?:FileNotFoundError|No such file).{0,200}(?:\.metadata|"
         r"__\d+_\d+\.distcp|iter_\d{7})", F.CHECKPOINT_CORRUPT, 0.8, "nobody",
         "FileNotFoundError: [Errno 2] No such file or directory: '/ckpt/step-100/__3_0.distcp'",
         "FileNotFoundError: [Errno 2] No such file or directory: '/data/train.bin'",
         "torch.distributed.checkpoint, Megatron",
         literals=("checkpointexceptio", "filenotfounderror", "no such file"), supersedes=("file-missing",)),
    Rule("checkpoint-no-usable", r"(?i)no usable checkpoint|all checkpoints (?:are )?(?:corrupt|unusable)",
         F.CHECKPOINT_CORRUPT, 0.9, "nobody",
         "no usable checkpoint among 3 (newest first: digest bad, incomplete, digest bad)",
         "1 usable checkpoint",
         "our verify step", literals=("checkpoint",)),
    Rule("state-dict-mismatch",
         r"Error\(s\) in loading state_dict for|(?:Missing|Unexpected) key\(s\) in state_dict|"
         r"size mismatch for [\w.]{1,200}: copying a param", F.CHECKPOINT_MISMATCH, 0.93, "code",
         "RuntimeError: Error(s) in loading state_dict for GPTModel:",
         "loading state_dict",
         "torch.nn.Module", literals=("size mismatch for ", "state_dict"),
         advice="the model or its parallel layout differs from the one that was saved"),
    Rule("optimizer-mismatch",
         r"loaded state dict (?:contains a parameter group|has a different number of parameter groups)",
         F.CHECKPOINT_MISMATCH, 0.93, "code",
         "ValueError: loaded state dict contains a parameter group that doesn't match the size of "
         "optimizer's group",
         "loaded state dict in 3 s",
         "torch.optim", literals=("loaded state dict",)),
    Rule("world-size-mismatch", r"(?i)(?:checkpoint|loaded).{0,80}(?:world size|tensor[- ](?:model[- ])?parallel|"
         r"pipeline).{0,60}(?:mismatch|differs|does not match|not the same)", F.CHECKPOINT_MISMATCH, 0.85, "code",
         "AssertionError: tensor-model-parallel-size mismatch: loaded tensor parallel size 8 does not match "
         "4",
         "loaded world size 8",
         "Megatron-LM check_checkpoint_args", literals=("parallel", "pipeline", "world size")),
    Rule("data-corrupt", r"(?:Corrupt(?:ed)? (?:JPEG|data|record|shard|TFRecord)|(?:pyarrow|"
         r"parquet).{0,80}(?:Couldn't deserialize|Corrupt|magic bytes not found)|DataLossError)", F.DATA, 0.85,
         "code",
         "tensorflow.python.framework.errors_impl.DataLossError: corrupted record at 1234",
         "data loss prevention enabled",
         "TFRecord, parquet, image readers", literals=("corrupt", "datalosserror", "parquet", "pyarrow")),
    Rule("data-decode", r"^(?:json\.decoder\.)?JSONDecodeError: |^UnicodeDecodeError: |^webdataset.{0,80}Error",
         F.DATA, 0.6, "code",
         "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
         "JSONDecodeError is a subclass",
         "Python readers of training data", literals=("decodeerror:", "webdataset")),
    Rule("data-empty",
         r"(?:IndexError|ValueError|RuntimeError|StopIteration).{0,40}(?:dataset is empty|Dataset is empty|"
         r"not enough (?:data|samples|documents))", F.DATA, 0.75, "code",
         "ValueError: dataset is empty after filtering",
         "ValueError: dataset path missing",
         "data loaders", literals=("dataset is empty", "not enough")),
    Rule("checkpoint-no-file",
         r"(?:Error no file named (?:pytorch_model|model\.safetensors)|Can't find a valid checkpoint at|"
         r"Could not find (?:any )?checkpoint)", F.CHECKPOINT_CORRUPT, 0.65, "nobody",
         "OSError: Error no file named pytorch_model.bin, model.safetensors, tf_model.h5 found in directory "
         "/ckpt/checkpoint-500.",
         "found checkpoint-500",
         "Hugging Face transformers", literals=("checkpoint", "error no file name")),
    Rule("checkpoint-dcp-size",
         r"Size mismatch between saved torch\.Size|(?:Shape|Global shape) mismatch (?:for|between) ",
         F.CHECKPOINT_MISMATCH, 0.9, "code",
         "ValueError: Size mismatch between saved torch.Size([1024, 512]) and current: torch.Size([2048, "
         "512]) for model.embed.weight",
         "sizes match",
         "torch.distributed.checkpoint, Megatron", literals=("e mismatch",)),
    Rule("checkpoint-dcp-missing", r"Missing key in checkpoint state_dict: ", F.CHECKPOINT_MISMATCH, 0.9, "code",
         "RuntimeError: Missing key in checkpoint state_dict: model.layers.31.mlp.weight.",
         "state_dict loaded",
         "torch.distributed.checkpoint", literals=("missing key in che",)),
    Rule("resumed-started-over", r"resumed from step \d+, but the first step (?:seen )?is \d+", F.STARTED_OVER,
         0.96, "code",
         "resumed from step 40, but the first step seen is 1 (not 41)",
         "resumed from step 40, first step 41",
         "our resume proof", literals=("resumed from step ",)),
    Rule("dataset-generation", r"(?:datasets\.exceptions\.DatasetGenerationError|pyarrow\.lib\.ArrowInvalid)",
         F.DATA, 0.78, "code",
         "datasets.exceptions.DatasetGenerationError: An error occurred while generating the dataset",
         "dataset generated",
         "Hugging Face datasets, Arrow", literals=("datasets.exception", "pyarrow.lib.arrowi"),
         supersedes=("python-exception",)),
    Rule("image-broken", r"(?:UnidentifiedImageError: cannot identify image file|image file is truncated)", F.DATA,
         0.85, "code",
         "OSError: image file is truncated (12 bytes not processed)",
         "image file read",
         "Pillow", literals=("image file",)),
    Rule("tar-broken", r"tarfile\.ReadError: (?:unexpected end of data|empty header|invalid header)", F.DATA, 0.85,
         "code",
         "tarfile.ReadError: unexpected end of data",
         "tarfile opened",
         "WebDataset shards", literals=("tarfile.readerror:",)),
    Rule("sampler-empty", r"num_samples should be a positive integer value, but got num_samples=0", F.DATA, 0.85,
         "code",
         "ValueError: num_samples should be a positive integer value, but got num_samples=0",
         "num_samples=100",
         "PyTorch samplers: the data set is empty", literals=("num_samples should",)),
    Rule("megatron-index", r"(?:Index file doesn't match expected format|\[index\] cannot (?:properly )?read|"
         r"bin and idx files? (?:do not|don't) match)", F.DATA, 0.85, "code",
         "AssertionError: Index file doesn't match expected format. Make sure that --dataset-impl is "
         "configured properly.",
         "index file built",
         "Megatron-LM indexed datasets", literals=("[index] cannot", "t match")),
)  # fmt: skip
