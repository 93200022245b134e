"""Bad inputs and numbers: damaged or foreign checkpoints, bad training data, broken losses, gradients and loss scales.

Values in the lines of steps (`loss: nan`) are read by `flows.decisions.diagnosis.observers.losses`, which sees whether
they recover.
"""

from __future__ import annotations

from flows.decisions.diagnosis.clues import Rule
from profiles.vocabulary import FaultClass

F = FaultClass
CHECKPOINT_EXCEPTIONS = ("python-exception",)
LAYOUT = "the model or its parallel layout differs from the one that was saved"

CHECKPOINT_RULES: tuple[Rule, ...] = (
    Rule("checkpoint-zip",
         r"PytorchStreamReader failed (?:reading|locating|opening)|invalid header or archive is corrupted|"
         r"[Ii]nvalid magic number; corrupt file|storage has wrong (?:byte )?size: expected", F.CHECKPOINT_CORRUPT, 0.92,
         "nobody",
         "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory",
         "PytorchStreamReader opened",
         "torch.load; newer text names a corrupt checkpoint itself", supersedes=CHECKPOINT_EXCEPTIONS),
    Rule("checkpoint-safetensors",
         r"safetensors_rust\.SafetensorError|(?:MetadataIncompleteBuffer|HeaderTooLarge|HeaderTooSmall|"
         r"InvalidHeader(?:Length|Start|Deserialization)?\b)|incomplete metadata, file not fully covered", F.CHECKPOINT_CORRUPT,
         0.9, "nobody",
         "safetensors_rust.SafetensorError: Error while deserializing header: MetadataIncompleteBuffer",
         "safetensors 0.5.2 loaded",
         "safetensors", supersedes=CHECKPOINT_EXCEPTIONS),
    Rule("checkpoint-cut", r"unexpected EOF, expected \d+ more bytes\. The file might be corrupted", F.CHECKPOINT_CORRUPT, 0.9,
         "nobody",
         "RuntimeError: unexpected EOF, expected 7302 more bytes. The file might be corrupted.",
         "EOFError: EOF when reading a line",
         "torch.load of the old format", supersedes=CHECKPOINT_EXCEPTIONS),
    Rule("checkpoint-unpickled", r"Weights only load failed\b", F.CONFIG, 0.55, "code",
         "_pickle.UnpicklingError: Weights only load failed. This file can still be loaded, to do so you have two options",
         "weights loaded",
         "torch.load since 2.6: the file needs another setting, or is older than the program",
         supersedes=CHECKPOINT_EXCEPTIONS,
         advice="load it with weights_only=False if you trust it, or allow its classes"),
    Rule("checkpoint-lfs", r"cloned a repository without having git-lfs|version https://git-lfs\.github\.com", F.CONFIG, 0.75,
         "code",
         "OSError: You seem to have cloned a repository without having git-lfs installed. Please install git-lfs",
         "git-lfs 3.4 installed",
         "Hugging Face transformers, git-lfs", supersedes=CHECKPOINT_EXCEPTIONS,
         advice="fetch the files themselves: git lfs pull"),
    Rule("checkpoint-digest",
         r"(?i)checkpoint.{0,120}(?:digest|checksum|sha256|crc32c?).{0,60}(?:mismatch|does not match|differs|"
         r"wrong)", F.CHECKPOINT_CORRUPT, 0.93, "nobody",
         "checkpoint step-40: digest of shard-1.npz does not match the manifest",
         "checkpoint step-40: digest ok",
         "ours and others"),
    Rule("checkpoint-changed",
         r"is not what was (?:saved \(size or digest differ\)|proven: .{1,250} (?:has changed|is gone))|"
         r": no usable manifest\.json: |: its manifest names no \S", F.CHECKPOINT_CORRUPT, 0.93, "nobody",
         "rank 0: /shared/runs/a/checkpoints/step-10: ballast-0.bin is not what was saved (size or digest differ)",
         "rank 0: /shared/runs/a/checkpoints/step-10: ballast-0.bin was saved",
         "ours: the program that reads it, and the launcher before it starts ranks again"),
    Rule("checkpoint-table",
         r"Checksum does not match: stored \d+|not an sstable|file is too short to be an sstable|Unable to open table file|"
         r"(?:TensorBundle|BundleReader|tensor bundle).{0,80}(?:[Cc]orrupt|[Ee]rror|truncated)", F.CHECKPOINT_CORRUPT, 0.92,
         "nobody",
         "tensorflow.python.framework.errors_impl.DataLossError: Checksum does not match: stored 1214729159 vs. calculated on "
         "the restored bytes 4050525063",
         "Checksum matches",
         "TensorFlow tensor bundles", supersedes=("python-exception", "data-corrupt")),
    Rule("checkpoint-orbax",
         r"(?:orbax|tensorstore|ocdbt|zarr).{0,200}(?:DATA_LOSS|[Cc]orrupt|NOT_FOUND|does not exist|[Ii]ncomplete)|"
         r"DATA_LOSS: .{0,120}(?:decoding|checkpoint|zarr|ocdbt)|No structure could be identified for the checkpoint|"
         r"Error opening \"(?:zarr3?|ocdbt)\" driver|[Cc]heckpoint .{0,120}(?:is incomplete|not finalized|was not committed)(?!.{0,80}(?:skip|ignor))",
         F.CHECKPOINT_CORRUPT, 0.82, "nobody",
         "ValueError: NOT_FOUND: Error opening \"zarr\" driver: Metadata at local file \"/ckpt/5/params/.zarray\" does not exist",
         "orbax checkpoint finalized in 3 s",
         "Orbax, TensorStore", supersedes=CHECKPOINT_EXCEPTIONS),
    Rule("checkpoint-dcp", r"CheckpointException ranks:|(?:FileNotFoundError|No such file).{0,200}(?:\.metadata|"
         r"__\d+_\d+\.distcp|iter_\d{7}|model_optim_rng\.pt|zero_pp_rank_\d)", F.CHECKPOINT_CORRUPT, 0.8, "nobody",
         "FileNotFoundError: [Errno 2] No such file or directory: '/ckpt/step-100/__3_0.distcp'",
         "FileNotFoundError: [Errno 2] No such file or directory: '/data/train.bin'",
         "torch.distributed.checkpoint, Megatron, DeepSpeed", supersedes=CHECKPOINT_EXCEPTIONS),
    Rule("checkpoint-no-usable",
         r"(?i)no usable checkpoint|all checkpoints (?:are )?(?:corrupt|unusable)|checkpoint \S{0,200} ?(?:is|seems|appears to be|"
         r"file is|may be|might be) (?:corrupt|truncated|damaged|incomplete|broken)", F.CHECKPOINT_CORRUPT, 0.9, "nobody",
         "no usable checkpoint among 3 (newest first: digest bad, incomplete, digest bad)",
         "1 usable checkpoint",
         "our verify step, trainers"),
    Rule("checkpoint-no-file",
         r"(?:Error no file named (?:pytorch_model|model\.safetensors)|Can't find a valid checkpoint at|"
         r"Could not find (?:any )?checkpoint(?!.{0,120}(?:scratch|start|initial|begin|random))|Unable to load weights from (?:pytorch )?checkpoint file|"
         r"(?:ZeRO|zero) checkpoint.{0,60}(?:missing|incomplete))", F.CHECKPOINT_CORRUPT, 0.65, "nobody",
         "OSError: Error no file named pytorch_model.bin, model.safetensors, tf_model.h5 found in directory "
         "/ckpt/checkpoint-500.",
         "found checkpoint-500",
         "Hugging Face transformers, DeepSpeed", supersedes=CHECKPOINT_EXCEPTIONS),
    Rule("megatron-tracker", r"Invalid metadata file \S{1,300}\. Exiting|error parsing metadata file", F.CHECKPOINT_CORRUPT, 0.8,
         "nobody",
         "ERROR: Invalid metadata file /ckpt/latest_checkpointed_iteration.txt. Exiting",
         "metadata file written",
         "Megatron-LM checkpointing"),
    Rule("state-dict-mismatch",
         r"Error\(s\) in loading state_dict for|(?:Missing|Unexpected) key\(s\) in state_dict|"
         r"size mismatch for [\w.]{1,200}: copying a param|While copying the parameter named", F.CHECKPOINT_MISMATCH, 0.93, "code",
         "RuntimeError: Error(s) in loading state_dict for GPTModel:",
         "loading state_dict",
         "torch.nn.Module", supersedes=CHECKPOINT_EXCEPTIONS, advice=LAYOUT),
    Rule("optimizer-mismatch",
         r"loaded state dict (?:contains a parameter group|has a different number of parameter groups)|"
         r"RNG state must be a torch\.ByteTensor|[Tt]rying to restore optimizer state but checkpoint contains only the model",
         F.CHECKPOINT_MISMATCH, 0.93, "code",
         "ValueError: loaded state dict contains a parameter group that doesn't match the size of "
         "optimizer's group",
         "loaded state dict in 3 s",
         "torch.optim, torch.random, Lightning", supersedes=CHECKPOINT_EXCEPTIONS),
    Rule("world-size-mismatch",
         r"(?i)(?:checkpoint|loaded).{0,80}(?:world size|tensor[- ](?:model[- ])?parallel|pipeline|\bdp\b|\btp\b|\bpp\b).{0,60}"
         r"(?:mismatch|differs|does not match|not the same|but the current)", F.CHECKPOINT_MISMATCH, 0.88, "code",
         "AssertionError: tensor-model-parallel-size mismatch: loaded tensor parallel size 8 does not match "
         "4",
         "loaded world size 8",
         "Megatron-LM, DeepSpeed ZeRO", supersedes=CHECKPOINT_EXCEPTIONS, advice=LAYOUT),
    Rule("checkpoint-arguments", r"\w+ value from checkpoint \(.{1,120}\) is not equal to the (?:input )?argument", F.CHECKPOINT_MISMATCH,
         0.93, "code",
         "AssertionError: tensor_model_parallel_size value from checkpoint (1) is not equal to the input argument value (2).",
         "value from checkpoint (1) used",
         "Megatron-LM check_checkpoint_args", supersedes=CHECKPOINT_EXCEPTIONS, advice=LAYOUT),
    Rule("checkpoint-dcp-size",
         r"Size mismatch between saved torch\.Size|(?:Shape|[Gg]lobal shape|Local shape) mismatch (?:for|between) |"
         r"Cannot find global shape metadata", F.CHECKPOINT_MISMATCH, 0.9, "code",
         "ValueError: Size mismatch between saved torch.Size([1024, 512]) and current: torch.Size([2048, "
         "512]) for model.embed.weight",
         "sizes match",
         "torch.distributed.checkpoint, Megatron", supersedes=CHECKPOINT_EXCEPTIONS, advice=LAYOUT),
    Rule("checkpoint-dcp-missing",
         r"Missing key in checkpoint state_dict: |(?:Missing|Unexpected) keys (?:\(not found in|in) (?:the )?checkpoint|(?:Missing|Unexpected) keys \(for this rank|"
         r"Some keys found in (?:the )?(?:checkpoint|sharded state dict) are (?:missing|unexpected)|"
         r"CheckpointingException: (?:Object shard|ShardedTensor|Invalid access|Unexpected keys|Missing keys)",
         F.CHECKPOINT_MISMATCH, 0.9, "code",
         "RuntimeError: Missing key in checkpoint state_dict: model.layers.31.mlp.weight.",
         "state_dict loaded",
         "torch.distributed.checkpoint, Megatron", supersedes=CHECKPOINT_EXCEPTIONS),
    Rule("checkpoint-graph",
         r"Assign requires shapes of both tensors to match|mismatch between the current graph and the graph from the checkpoint|"
         r"Key \S{1,200} not found in checkpoint|Tensor name \"[^\"]{1,200}\" not found in checkpoint|"
         r"load a weight file containing \d+ layers|Layer count mismatch when loading weights|"
         r"Received incompatible tensor with shape", F.CHECKPOINT_MISMATCH, 0.9, "code",
         "tensorflow.python.framework.errors.InvalidArgumentError: Assign requires shapes of both tensors to match. lhs shape= [4] "
         "rhs shape= [2]",
         "shapes of both tensors match",
         "TensorFlow Saver, Keras", supersedes=CHECKPOINT_EXCEPTIONS),
    Rule("checkpoint-tree",
         r"tree structures? do(?:es)? not match|Dict key mismatch; expected keys|is not compatible with the stored shape|"
         r"Cannot load model parameters from checkpoint|Model parameters do not match", F.CHECKPOINT_MISMATCH, 0.88, "code",
         "ValueError: User-provided restore item and on-disk value metadata tree structures do not match",
         "tree structures match",
         "Orbax, Flax, fairseq", supersedes=CHECKPOINT_EXCEPTIONS),
    Rule("checkpoint-format",
         r"maximum supported version for reading is \d+|checkpoint of (?:a )?newer version|Unsupported checkpoint (?:version|format)|"
         r"unknown checkpoint version", F.CHECKPOINT_MISMATCH, 0.82, "code",
         "RuntimeError: Attempted to read a PyTorch file with version 10, but the maximum supported version for reading is 6.",
         "maximum supported version: 10",
         "PyTorch, Lightning, Megatron-LM", supersedes=CHECKPOINT_EXCEPTIONS),
    Rule("resumed-started-over", r"resumed from step \d+, but the first step (?:seen )?is \d+", F.STARTED_OVER,
         0.96, "code",
         "resumed from step 40, but the first step seen is 1 (not 41)",
         "resumed from step 40, first step 41",
         "our resume proof"),
)  # fmt: skip


DATA_EXCEPTIONS = ("python-exception",)

DATA_RULES: tuple[Rule, ...] = (
    Rule("image-decoder-warning",
         r"^(?:Premature end of JPEG (?:file|data)|Invalid SOS parameters for sequential JPEG|Warning: unknown JFIF revision|"
         r"Corrupt JPEG data: (?:premature end|bad Huffman|found marker))|EXIF data will be (?:ignored|dropped)",
         F.NONE, 1.0, "nobody",
         "Premature end of JPEG file",
         "Corrupted JPEG cannot be decoded",
         "libjpeg: the image is decoded all the same"),
    Rule("data-corrupt",
         r"(?:Corrupt(?:ed)? (?:data|record|shard|TFRecord|image file|sample)|(?:corrupted|truncated) record at \d+|"
         r"(?:pyarrow|parquet|Parquet).{0,80}(?:Couldn't deserialize|Corrupt|magic bytes not found)|DataLossError|"
         r"Data loss: (?:corrupted|truncated|inflate))(?!.{0,120}(?:sstable|table file|ckpt|checkpoint|Checksum does not match))",
         F.DATA, 0.85, "code",
         "tensorflow.python.framework.errors_impl.DataLossError: corrupted record at 1234",
         "data loss prevention enabled",
         "TFRecord, parquet, image readers", supersedes=DATA_EXCEPTIONS),
    Rule("data-empty",
         r"(?:IndexError|ValueError|RuntimeError|StopIteration|AssertionError|Exception).{0,60}(?:[Dd]ataset is empty|"
         r"not enough (?:data|samples|documents)|[Ee]mpty dataset|no (?:valid )?(?:samples|examples|images|labels) (?:were )?"
         r"found|No (?:valid )?(?:samples|examples|images|labels) (?:were )?found)", F.DATA, 0.75, "code",
         "ValueError: dataset is empty after filtering",
         "ValueError: dataset path missing",
         "data loaders"),
    Rule("dataset-generation", r"(?:datasets\.exceptions\.DatasetGeneration(?:Cast)?Error|pyarrow\.lib\.Arrow(?:Invalid|TypeError)|"
         r"datasets\.(?:table|exceptions)\.\w{0,10}CastError|NonMatching(?:Splits\w{1,12}|Checksum)Error)", F.DATA, 0.78, "code",
         "datasets.exceptions.DatasetGenerationError: An error occurred while generating the dataset",
         "dataset generated",
         "Hugging Face datasets, Arrow", supersedes=DATA_EXCEPTIONS),
    Rule("dataset-record",
         r"Failed to read file '[^']{1,400}' with error|JSON parse error: (?:Column|Invalid|Missing|The document)|"
         r"CSV parse error: Expected \d+ columns|Not able to read records in the JSON file", F.DATA, 0.78, "code",
         "JSON parse error: Column(/conversations/[]/value) changed from string to array in row 0",
         "Failed to read file system table",
         "Hugging Face datasets"),
    Rule("image-broken",
         r"(?:cannot identify image file|image file is truncated|broken data stream when reading image|"
         r"unrecognized data stream contents when reading image|(?:OpenCV|cv2).{0,200}(?:!_?src\.empty\(\)|!ssize\.empty\(\)|"
         r"!buf\.empty\(\))|Invalid (?:PNG|JPEG) data|Expected image \(JPEG, PNG, or GIF\)|Unable to decode bytes as (?:JPEG|PNG)|"
         r"Unsupported image file\. Only)", F.DATA, 0.85, "code",
         "OSError: image file is truncated (12 bytes not processed)",
         "image file read",
         "Pillow, OpenCV, torchvision, TensorFlow", supersedes=DATA_EXCEPTIONS),
    Rule("sound-broken",
         r"soundfile\.LibsndfileError|\bError opening '[^']{1,300}': (?:Format not recognised|File contains data in an unknown|"
         r"Unspecified internal)|audioread\.exceptions\.NoBackendError|Failed to (?:load|decode) audio|"
         r"Error loading audio file: failed to open file", F.DATA, 0.82, "code",
         "soundfile.LibsndfileError: Error opening '/data/a.flac': Format not recognised.",
         "soundfile 0.12 loaded",
         "libsndfile, audioread, torchaudio", supersedes=DATA_EXCEPTIONS),
    Rule("video-broken",
         r"moov atom not found|DECORDError|Invalid data found when processing input|av\.error\.InvalidDataError|"
         r"cannot find (?:video|audio) stream", F.DATA, 0.7, "code",
         "[mov,mp4,m4a,3gp,3g2,mj2 @ 0x55d0c0] moov atom not found",
         "atoms of the molecule found",
         "FFmpeg, decord, PyAV", supersedes=DATA_EXCEPTIONS),
    Rule("tar-broken",
         r"tarfile\.(?:Read|Stream|Truncated|Invalid|Empty)\w{0,10}Error|gzip\.BadGzipFile|"
         r"Compressed file ended before the end-of-stream marker|zlib\.error: Error -\d|_?lzma\.LZMAError|"
         r"zst\w{0,20}Error: .{0,40}(?:corrupt|Corrupt|Unknown frame)", F.DATA, 0.82, "code",
         "tarfile.ReadError: unexpected end of data",
         "tarfile opened",
         "WebDataset shards, compressed files", supersedes=DATA_EXCEPTIONS),
    Rule("sampler-empty", r"num_samples should be a positive integer value, but got num_samples=0", F.DATA, 0.85,
         "code",
         "ValueError: num_samples should be a positive integer value, but got num_samples=0",
         "num_samples=100",
         "PyTorch samplers: the data set is empty"),
    Rule("megatron-index",
         r"(?:Index file doesn't match expected format|\[index\] cannot (?:properly )?read|bin and idx files? (?:do not|don't) match|"
         r"mmap length is greater than file ?size|cannot mmap an empty file|buffer is smaller than requested size|"
         r"Could not find index map files)", F.DATA, 0.82, "code",
         "AssertionError: Index file doesn't match expected format. Make sure that --dataset-impl is "
         "configured properly.",
         "index file built",
         "Megatron-LM and fairseq indexed datasets, numpy.memmap", supersedes=DATA_EXCEPTIONS),
    Rule("example-parse",
         r"Could not parse example input|Can't parse serialized Example|Feature: \S{1,80} \(data type: \w+\) is required but could not",
         F.DATA, 0.85, "code",
         "tensorflow.python.framework.errors_impl.InvalidArgumentError: Key: image.  Can't parse serialized Example.",
         "Example parsed",
         "TensorFlow example parser", supersedes=DATA_EXCEPTIONS),
    Rule("streaming-shard",
         r"Relative sample index \d+ is not present in|Checksum failure: \S|\.mds\b.{0,80}(?:corrupt|truncated|not present)",
         F.DATA, 0.85, "code",
         "IndexError: Relative sample index 512 is not present in the /data/shard.00003.mds file.",
         "Checksum verified: 12 files",
         "MosaicML streaming", supersedes=DATA_EXCEPTIONS),
    Rule("lmdb-corrupt", r"MDB_(?:CORRUPTED|PAGE_NOTFOUND|INVALID|PANIC)\b", F.DATA, 0.85, "code",
         "lmdb.CorruptedError: mdb_get: MDB_CORRUPTED: Located page was wrong type",
         "MDB_NOTFOUND: No matching key",
         "LMDB", supersedes=DATA_EXCEPTIONS),
    Rule("array-file",
         r"Failed to interpret file .{1,300} as a pickle|No data left in file|the magic string is not correct; expected",
         F.DATA, 0.7, "code",
         "OSError: Failed to interpret file '/data/x.npy' as a pickle",
         "file interpreted as text",
         "numpy.load", supersedes=DATA_EXCEPTIONS),
    Rule("table-parse", r"Error tokenizing data\. C error|EmptyDataError: No columns to parse", F.DATA, 0.82, "code",
         "pandas.errors.ParserError: Error tokenizing data. C error: Expected 5 fields in line 3, saw 6",
         "tokenizing data: done",
         "pandas", supersedes=DATA_EXCEPTIONS),
    Rule("decoder-pipeline",
         r"nvJPEG (?:error|decode failed)|nvImageCodec .{0,60}(?:error|fail)|DALI.{0,120}(?:[Ee]rror when executing|Critical error)|"
         r"[Ee]rror when executing (?:Mixed|CPU|GPU) operator|Invalid RecordIO|RecordIO .{0,60}(?:corrupt|bad magic)", F.DATA, 0.72,
         "code",
         "Critical error in pipeline: Error when executing Mixed operator decoders__Image encountered: nvJPEG error (2)",
         "nvJPEG 12.3 loaded, DALI pipeline built",
         "DALI, MXNet", supersedes=DATA_EXCEPTIONS),
    Rule("labels-missing", r"\bNo labels (?:found )?in \S{1,300} ?.{0,60}(?i:can ?not|can't|unable to) train",
         F.DATA, 0.75, "code",
         "AssertionError: train: No labels in /data/train2017.cache. Can not train without labels. See https://docs",
         "WARNING No labels found in /data/val.cache, skipping",
         "YOLO", supersedes=DATA_EXCEPTIONS),
    Rule("worker-data", r"^webdataset.{0,80}Error", F.DATA, 0.6, "code",
         "webdataset.handlers.PipelineError: sample without a key",
         "loaded webdataset without Error",
         "WebDataset"),
)  # fmt: skip


NUMERIC_RULES: tuple[Rule, ...] = (
    Rule("loss-nan",
         r"(?i)(?:\bloss(?:es)?(?: value)? (?:is|was|are|has|became|becomes|went|turned|diverged|contains?|exploded to) "
         r"(?:[\w ]{1,24} )?(?:nan|inf(?:inite|inity)?)\b|found (?:nan|inf) in (?:local )?(?:forward )?(?:loss|grad)|"
         r"non-?finite (?:loss|grad)|loss (?:is )?not finite|\bnan (?:loss|grad\w{0,6}) (?:during|detected|found|encountered|at)|"
         r"invalid loss, terminating training|loss returned in `\w{1,40}` is (?:nan|inf))"
         r"(?!.{0,80}(?:skip|ignor))", F.NUMERIC, 0.88, "nobody",
         "ValueError: Rank 3: found NaN in local forward loss calculation. Device: 3, node: gpu-17",
         "loss: 2.31 nan_skips: 0",
         "Megatron-LM rerun machine, Keras, Lightning, detectron2, trainers",
         supersedes=("python-exception", "cuda-device-assert")),
    Rule("floating-point-error", r"^FloatingPointError: ", F.NUMERIC, 0.9, "nobody",
         "FloatingPointError: loss at step 55 has no value",
         "floating point format bf16",
         "numpy, JAX, fairseq, trainers"),
    Rule("loss-scale-minimum",
         r"(?i)(?:current loss scale already at minimum|minimum loss scale reached|loss scale (?:has )?(?:reached|hit|fell to|"
         r"dropped to|underflow)\w{0,4} (?:the |its )?(?:minimum|zero|0\b)|loss[_ ]scale .{0,20}(?:is too small|underflow))",
         F.NUMERIC, 0.85, "nobody",
         "Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.",
         "loss scale 65536",
         "DeepSpeed, fairseq, Megatron-LM", supersedes=("python-exception",)),
    Rule("autograd-anomaly", r"returned nan values in its \d+th output", F.NUMERIC, 0.92, "nobody",
         "RuntimeError: Function 'MulBackward0' returned nan values in its 0th output.",
         "nan values removed",
         "PyTorch anomaly mode", supersedes=("python-exception",)),
    Rule("grad-norm-nan",
         r"(?i)(?:\bgrad(?:ient)?s?[_ ](?:norm )?(?:was|is|are|became|contains?|has|have) (?:[\w ]{1,24} )?(?:nan|inf)\b|"
         r"\b(?:nan|inf)s? (?:or (?:nan|inf)s? )?(?:values? )?(?:in|found in|detected in) (?:the )?grad|"
         r"for gradients from `parameters` is non-finite)(?!.{0,80}(?:skip|overflow|scal))", F.NUMERIC, 0.75, "nobody",
         "{| Epoch: 13/1250 (3/8) | Loss: 2.610 | 0.68 steps/s | Step: 0k | }grad_norm was NaN!",
         "grad_norm: 0.93 | nan skipped 0",
         "trainers, torch.nn.utils.clip_grad_norm_", supersedes=("python-exception",)),
    Rule("diverged",
         r"(?i)\b(?:model|training|loss|run) (?:has )?diverged\b|\bloss (?:has )?explod(?:ed|ing)\b|NanLossDuringTrainingError", F.NUMERIC, 0.85, "nobody",
         "RuntimeError: training diverged at step 1200, stopping",
         "the two branches diverged; loss 2.31",
         "TensorFlow NanTensorHook, trainers", supersedes=("python-exception",)),
    Rule("values-nan",
         r"(?i)(?:detected nan (?:and/or|or) inf values in|nan detected in output of|there are nan or inf \(num_nan|"
         r"invalid value \(nan\) encountered in|\bcontains? (?:a )?nan\b.{0,40}(?:tensor|weight|parameter|activation|logit)|"
         r"tensor .{0,60}contains? (?:nan|inf)\b)", F.NUMERIC, 0.75, "nobody",
         "ValueError: Detected nan and/or inf values in `layer.weight`. Look at your forward pass.",
         "nan_to_num applied to tensor",
         "Lightning, fairseq's detector, Paddle, JAX", supersedes=("python-exception", "floating-point-error")),
    Rule("tensor-nan",
         r"\bLossTensor is inf or nan|\bTensor had (?:NaN|Inf|NaN and Inf)\b|\bNan in summary histogram for|"
         r"Detected Infinity or NaN in (?:\d{1,6} of \d{1,6} elements? in )?(?:the )?output|"
         r"input matrix contained non-finite values|found invalid values:\s{0,3}(?:tensor|Parameter).{0,40}\bnan\b",
         F.NUMERIC, 0.85, "nobody",
         "tensorflow.python.framework.errors_impl.InvalidArgumentError: LossTensor is inf or nan. : Tensor had NaN values",
         "summary histogram for conv1/weights: no Nan",
         "TensorFlow check_numerics and summaries, torch.linalg, torch.distributions",
         supersedes=("python-exception",)),
    Rule("asserted-finite",
         r"^\s{2,12}(?:assert|raise) .{0,80}(?:\b(?:isnan|isinf|isfinite|is_nan)\(|(?i:\bloss\b.{0,30}\bnan\b))", F.NUMERIC, 0.8, "nobody",
         "    assert not torch.isnan(loss).any()",
         "torch.isnan(loss) is checked",
         "CPython: the source line in a traceback of a program that checks its loss", supersedes=("python-exception",)),
    Rule("table-nan", r"^\s{0,12}\d{1,6}/\d{1,6}\s{1,9}[\d.]{1,9}[GM]\s[\d.\s]{0,60}\bnan\b", F.NUMERIC, 0.8, "nobody",
         "      3/300      4.2G        nan        nan        nan         12        640: 100%",
         "      3/300      4.2G        1.2        0.9        1.1         12        640: 100%",
         "YOLO: losses in the columns of a table"),
    Rule("loss-spike", r"(?i)(?:loss spike detected|Unexpected result \S{1,40} on rank|Spiky loss)",
         F.NUMERIC, 0.6, "nobody",
         "WARNING: Spiky loss detected, rerunning iteration 1207",
         "loss went down",
         "Megatron-LM rerun machine"),
)  # fmt: skip
