"""Checkpoints: damaged ones, and those of another model or layout."""

from __future__ import annotations

from flows.decisions.rules import Rule
from profiles.vocabulary import FaultClass

F = FaultClass
EXCEPTIONS = ("python-exception",)
LAYOUT = "the model or its parallel layout differs from the one that was saved"

RULES: tuple[Rule, ...] = (
    Rule("checkpoint-zip",
         r"PytorchStreamReader failed (?:reading|locating|opening)|invalid header or archive is corrupted|"
         r"[Ii]nvalid magic number; corrupt file|storage has wrong (?:byte )?size: expected", F.CHECKPOINT_CORRUPT, 0.92,
         "nobody",
         "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory",
         "PytorchStreamReader opened",
         "torch.load; newer text names a corrupt checkpoint itself",
         literals=("eader", "invalid magic number", "storage has wrong"), supersedes=EXCEPTIONS),
    Rule("checkpoint-safetensors",
         r"safetensors_rust\.SafetensorError|(?:MetadataIncompleteBuffer|HeaderTooLarge|HeaderTooSmall|"
         r"InvalidHeader(?:Length|Start|Deserialization)?\b)|incomplete metadata, file not fully covered", F.CHECKPOINT_CORRUPT,
         0.9, "nobody",
         "safetensors_rust.SafetensorError: Error while deserializing header: MetadataIncompleteBuffer",
         "safetensors 0.5.2 loaded",
         "safetensors", literals=("header", "metadataincomplete", "safetensors_rust.s", "incomplete metadata"),
         supersedes=EXCEPTIONS),
    Rule("checkpoint-cut", r"unexpected EOF, expected \d+ more bytes\. The file might be corrupted", F.CHECKPOINT_CORRUPT, 0.9,
         "nobody",
         "RuntimeError: unexpected EOF, expected 7302 more bytes. The file might be corrupted.",
         "EOFError: EOF when reading a line",
         "torch.load of the old format", literals=("unexpected eof, ex",), supersedes=EXCEPTIONS),
    Rule("checkpoint-unpickled", r"Weights only load failed\b", F.CONFIG, 0.55, "code",
         "_pickle.UnpicklingError: Weights only load failed. This file can still be loaded, to do so you have two options",
         "weights loaded",
         "torch.load since 2.6: the file needs another setting, or is older than the program", literals=("weights only load",),
         supersedes=EXCEPTIONS, advice="load it with weights_only=False if you trust it, or allow its classes"),
    Rule("checkpoint-lfs", r"cloned a repository without having git-lfs|version https://git-lfs\.github\.com", F.CONFIG, 0.75,
         "code",
         "OSError: You seem to have cloned a repository without having git-lfs installed. Please install git-lfs",
         "git-lfs 3.4 installed",
         "Hugging Face transformers, git-lfs", literals=("git-lfs",), supersedes=EXCEPTIONS,
         advice="fetch the files themselves: git lfs pull"),
    Rule("checkpoint-digest",
         r"(?i)checkpoint.{0,120}(?:digest|checksum|sha256|crc32c?).{0,60}(?:mismatch|does not match|differs|"
         r"wrong)", F.CHECKPOINT_CORRUPT, 0.93, "nobody",
         "checkpoint step-40: digest of shard-1.npz does not match the manifest",
         "checkpoint step-40: digest ok",
         "ours and others", literals=("checkpoint",)),
    Rule("checkpoint-changed",
         r"is not what was (?:saved \(size or digest differ\)|proven: .{1,250} (?:has changed|is gone))|"
         r": no usable manifest\.json: |: its manifest names no \S", F.CHECKPOINT_CORRUPT, 0.93, "nobody",
         "rank 0: /shared/runs/a/checkpoints/step-10: ballast-0.bin is not what was saved (size or digest differ)",
         "rank 0: /shared/runs/a/checkpoints/step-10: ballast-0.bin was saved",
         "ours: the program that reads it, and the launcher before it starts ranks again",
         literals=("is not what was", "no usable manifest", "its manifest names no")),
    Rule("checkpoint-table",
         r"Checksum does not match: stored \d+|not an sstable|file is too short to be an sstable|Unable to open table file|"
         r"(?:TensorBundle|BundleReader|tensor bundle).{0,80}(?:[Cc]orrupt|[Ee]rror|truncated)", F.CHECKPOINT_CORRUPT, 0.92,
         "nobody",
         "tensorflow.python.framework.errors_impl.DataLossError: Checksum does not match: stored 1214729159 vs. calculated on "
         "the restored bytes 4050525063",
         "Checksum matches",
         "TensorFlow tensor bundles",
         literals=("checksum does not match", "sstable", "table file", "tensorbundle", "bundlereader", "tensor bundle"),
         supersedes=("python-exception", "data-corrupt")),
    Rule("checkpoint-orbax",
         r"(?:orbax|tensorstore|ocdbt|zarr).{0,200}(?:DATA_LOSS|[Cc]orrupt|NOT_FOUND|does not exist|[Ii]ncomplete)|"
         r"DATA_LOSS: .{0,120}(?:decoding|checkpoint|zarr|ocdbt)|No structure could be identified for the checkpoint|"
         r"Error opening \"(?:zarr3?|ocdbt)\" driver|[Cc]heckpoint .{0,120}(?:is incomplete|not finalized|was not committed)(?!.{0,80}(?:skip|ignor))",
         F.CHECKPOINT_CORRUPT, 0.82, "nobody",
         "ValueError: NOT_FOUND: Error opening \"zarr\" driver: Metadata at local file \"/ckpt/5/params/.zarray\" does not exist",
         "orbax checkpoint finalized in 3 s",
         "Orbax, TensorStore", literals=("orbax", "tensorstore", "ocdbt", "zarr", "data_loss: ", "checkpoint"),
         supersedes=EXCEPTIONS),
    Rule("checkpoint-dcp", r"CheckpointException ranks:|(?:FileNotFoundError|No such file).{0,200}(?:\.metadata|"
         r"__\d+_\d+\.distcp|iter_\d{7}|model_optim_rng\.pt|zero_pp_rank_\d)", F.CHECKPOINT_CORRUPT, 0.8, "nobody",
         "FileNotFoundError: [Errno 2] No such file or directory: '/ckpt/step-100/__3_0.distcp'",
         "FileNotFoundError: [Errno 2] No such file or directory: '/data/train.bin'",
         "torch.distributed.checkpoint, Megatron, DeepSpeed",
         literals=("checkpointexceptio", "filenotfounderror", "no such file"), supersedes=EXCEPTIONS),
    Rule("checkpoint-no-usable",
         r"(?i)no usable checkpoint|all checkpoints (?:are )?(?:corrupt|unusable)|checkpoint \S{0,200} ?(?:is|seems|appears to be|"
         r"file is|may be|might be) (?:corrupt|truncated|damaged|incomplete|broken)", F.CHECKPOINT_CORRUPT, 0.9, "nobody",
         "no usable checkpoint among 3 (newest first: digest bad, incomplete, digest bad)",
         "1 usable checkpoint",
         "our verify step, trainers", literals=("checkpoint",)),
    Rule("checkpoint-no-file",
         r"(?:Error no file named (?:pytorch_model|model\.safetensors)|Can't find a valid checkpoint at|"
         r"Could not find (?:any )?checkpoint(?!.{0,120}(?:scratch|start|initial|begin|random))|Unable to load weights from (?:pytorch )?checkpoint file|"
         r"(?:ZeRO|zero) checkpoint.{0,60}(?:missing|incomplete))", F.CHECKPOINT_CORRUPT, 0.65, "nobody",
         "OSError: Error no file named pytorch_model.bin, model.safetensors, tf_model.h5 found in directory "
         "/ckpt/checkpoint-500.",
         "found checkpoint-500",
         "Hugging Face transformers, DeepSpeed", literals=("checkpoint", "error no file name"), supersedes=EXCEPTIONS),
    Rule("megatron-tracker", r"Invalid metadata file \S{1,300}\. Exiting|error parsing metadata file", F.CHECKPOINT_CORRUPT, 0.8,
         "nobody",
         "ERROR: Invalid metadata file /ckpt/latest_checkpointed_iteration.txt. Exiting",
         "metadata file written",
         "Megatron-LM checkpointing", literals=("metadata file",)),
    Rule("state-dict-mismatch",
         r"Error\(s\) in loading state_dict for|(?:Missing|Unexpected) key\(s\) in state_dict|"
         r"size mismatch for [\w.]{1,200}: copying a param|While copying the parameter named", F.CHECKPOINT_MISMATCH, 0.93, "code",
         "RuntimeError: Error(s) in loading state_dict for GPTModel:",
         "loading state_dict",
         "torch.nn.Module", literals=("size mismatch for ", "state_dict", "while copying the"), supersedes=EXCEPTIONS,
         advice=LAYOUT),
    Rule("optimizer-mismatch",
         r"loaded state dict (?:contains a parameter group|has a different number of parameter groups)|"
         r"RNG state must be a torch\.ByteTensor|[Tt]rying to restore optimizer state but checkpoint contains only the model",
         F.CHECKPOINT_MISMATCH, 0.93, "code",
         "ValueError: loaded state dict contains a parameter group that doesn't match the size of "
         "optimizer's group",
         "loaded state dict in 3 s",
         "torch.optim, torch.random, Lightning",
         literals=("loaded state dict", "rng state must be", "restore optimizer state"), supersedes=EXCEPTIONS),
    Rule("world-size-mismatch",
         r"(?i)(?:checkpoint|loaded).{0,80}(?:world size|tensor[- ](?:model[- ])?parallel|pipeline|\bdp\b|\btp\b|\bpp\b).{0,60}"
         r"(?:mismatch|differs|does not match|not the same|but the current)", F.CHECKPOINT_MISMATCH, 0.88, "code",
         "AssertionError: tensor-model-parallel-size mismatch: loaded tensor parallel size 8 does not match "
         "4",
         "loaded world size 8",
         "Megatron-LM, DeepSpeed ZeRO", literals=("checkpoint", "loaded"), supersedes=EXCEPTIONS, advice=LAYOUT),
    Rule("checkpoint-arguments", r"\w+ value from checkpoint \(.{1,120}\) is not equal to the (?:input )?argument", F.CHECKPOINT_MISMATCH,
         0.93, "code",
         "AssertionError: tensor_model_parallel_size value from checkpoint (1) is not equal to the input argument value (2).",
         "value from checkpoint (1) used",
         "Megatron-LM check_checkpoint_args", literals=("from checkpoint (",), supersedes=EXCEPTIONS, advice=LAYOUT),
    Rule("checkpoint-dcp-size",
         r"Size mismatch between saved torch\.Size|(?:Shape|[Gg]lobal shape|Local shape) mismatch (?:for|between) |"
         r"Cannot find global shape metadata", F.CHECKPOINT_MISMATCH, 0.9, "code",
         "ValueError: Size mismatch between saved torch.Size([1024, 512]) and current: torch.Size([2048, "
         "512]) for model.embed.weight",
         "sizes match",
         "torch.distributed.checkpoint, Megatron", literals=("e mismatch", "global shape meta"), supersedes=EXCEPTIONS,
         advice=LAYOUT),
    Rule("checkpoint-dcp-missing",
         r"Missing key in checkpoint state_dict: |(?:Missing|Unexpected) keys (?:\(not found in|in) (?:the )?checkpoint|(?:Missing|Unexpected) keys \(for this rank|"
         r"Some keys found in (?:the )?(?:checkpoint|sharded state dict) are (?:missing|unexpected)|"
         r"CheckpointingException: (?:Object shard|ShardedTensor|Invalid access|Unexpected keys|Missing keys)",
         F.CHECKPOINT_MISMATCH, 0.9, "code",
         "RuntimeError: Missing key in checkpoint state_dict: model.layers.31.mlp.weight.",
         "state_dict loaded",
         "torch.distributed.checkpoint, Megatron",
         literals=("missing key", "unexpected key", "some keys found", "checkpointingexception"), supersedes=EXCEPTIONS),
    Rule("checkpoint-graph",
         r"Assign requires shapes of both tensors to match|mismatch between the current graph and the graph from the checkpoint|"
         r"Key \S{1,200} not found in checkpoint|Tensor name \"[^\"]{1,200}\" not found in checkpoint|"
         r"load a weight file containing \d+ layers|Layer count mismatch when loading weights|"
         r"Received incompatible tensor with shape", F.CHECKPOINT_MISMATCH, 0.9, "code",
         "tensorflow.python.framework.errors.InvalidArgumentError: Assign requires shapes of both tensors to match. lhs shape= [4] "
         "rhs shape= [2]",
         "shapes of both tensors match",
         "TensorFlow Saver, Keras",
         literals=("assign requires shap", "mismatch between the", "in checkpoint", "weight file", "layer count mismatch",
                   "received incompatible"), supersedes=EXCEPTIONS),
    Rule("checkpoint-tree",
         r"tree structures? do(?:es)? not match|Dict key mismatch; expected keys|is not compatible with the stored shape|"
         r"Cannot load model parameters from checkpoint|Model parameters do not match", F.CHECKPOINT_MISMATCH, 0.88, "code",
         "ValueError: User-provided restore item and on-disk value metadata tree structures do not match",
         "tree structures match",
         "Orbax, Flax, fairseq",
         literals=("tree structure", "dict key mismatch", "the stored shape", "model parameters"), supersedes=EXCEPTIONS),
    Rule("checkpoint-format",
         r"maximum supported version for reading is \d+|checkpoint of (?:a )?newer version|Unsupported checkpoint (?:version|format)|"
         r"unknown checkpoint version", F.CHECKPOINT_MISMATCH, 0.82, "code",
         "RuntimeError: Attempted to read a PyTorch file with version 10, but the maximum supported version for reading is 6.",
         "maximum supported version: 10",
         "PyTorch, Lightning, Megatron-LM",
         literals=("supported version for", "newer version", "unsupported checkpoint", "unknown checkpoint"),
         supersedes=EXCEPTIONS),
    Rule("resumed-started-over", r"resumed from step \d+, but the first step (?:seen )?is \d+", F.STARTED_OVER,
         0.96, "code",
         "resumed from step 40, but the first step seen is 1 (not 41)",
         "resumed from step 40, first step 41",
         "our resume proof", literals=("resumed from step ",)),
)  # fmt: skip
