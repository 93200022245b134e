"""What an exception speaks for, by its type, its frames and the words of its message: the table of the second tier.

A hint adds points to classes. Points are natural logarithms of odds: 1 makes a class about three times as probable, 2
seven times, 3 twenty times. No hint decides alone; `flows.decisions.diagnosis.exceptions` adds them up.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from profiles.vocabulary import FaultClass

F = FaultClass
USER, CONFIG, DATA, STORAGE, NUMERIC = F.USER_CODE, F.CONFIG, F.DATA, F.STORAGE, F.NUMERIC
CORRUPT, MISMATCH, JOIN, PEERS = (
    F.CHECKPOINT_CORRUPT,
    F.CHECKPOINT_MISMATCH,
    F.RENDEZVOUS,
    F.COLLECTIVE_TIMEOUT,
)
OTHER = F.UNKNOWN
Part = Literal["type", "message", "frames", "inner", "code"]
"""Name of the exception; its message; the last frames, one a line; the innermost frame."""
Points = tuple[FaultClass, float]


@dataclass(frozen=True)
class Hint:
    """One sign and what it speaks for."""

    where: tuple[tuple[Part, str], ...]
    """Parts and regular expressions searched in them, case ignored; all must be found."""
    points: tuple[Points, ...]

    @cached_property
    def regexes(self) -> tuple[tuple[Part, re.Pattern[str]], ...]:
        """The compiled patterns (compiled at first use)."""
        return tuple((part, re.compile(pattern, re.IGNORECASE | re.MULTILINE)) for part, pattern in self.where)


def typed(pattern: str, *points: Points) -> Hint:
    """The exception's name without its module is one of these."""
    return Hint((("type", rf"(?:^|\.)(?:{pattern})$"),), points)


def says(pattern: str, *points: Points) -> Hint:
    """The message holds this."""
    return Hint((("message", pattern),), points)


def passes(pattern: str, *points: Points) -> Hint:
    """One of the last frames holds this."""
    return Hint((("frames", pattern),), points)


def ends(pattern: str, *points: Points) -> Hint:
    """The innermost frame holds this."""
    return Hint((("inner", pattern),), points)


def reads(pattern: str, *points: Points) -> Hint:
    """A source line of the innermost frames holds this."""
    return Hint((("code", pattern),), points)


def both(first: tuple[Part, str], second: tuple[Part, str], *points: Points) -> Hint:
    """Two parts hold these."""
    return Hint((first, second), points)


TYPES: tuple[Hint, ...] = (
    typed(r"(?:Type|Attribute|Index|Name|UnboundLocal|ZeroDivision|Recursion)Error", (USER, 1.5)),
    typed(r"(?:NotImplemented|Assertion|Runtime|Value|Key)Error|Exception", (USER, 0.0)),
    typed(r"StopIteration|GeneratorExit|PicklingError|TracerBoolConversionError|ConcretizationTypeError"
          r"|UnexpectedTracerError|CompilationError|Unsupported|TorchRuntimeError|BackendCompilerFailed"
          r"|InductorError|InvalidArgumentError|UserError|InternalTorchDynamoError", (USER, 2.0)),
    typed(r"ModuleNotFoundError|ImportError|DistributionNotFound|VersionConflict|PackageNotFoundError"
          r"|ContextualVersionConflict|InvalidRequirement|\w*DependencyError", (CONFIG, 5.0)),
    typed(r"\w*Config\w{0,20}(?:Error|Exception)|ValidationError|\w*ArgumentError|UsageError|BadParameter"
          r"|Missing(?:Mandatory|Conditional)\w*|Misconfiguration\w*|Interpolation\w*Error|InstantiationException"
          r"|OverrideParseException|HydraException|Omegaconf\w*|UnsupportedInterpolationType|UnrecognizedFlagError"
          r"|IllegalFlagValueError|UnparsedFlagAccessError|ScannerError|ParserConfigError|MissingEnvironmentError"
          r"|CUDAMismatchException|MissingCUDAException|OpBuilder\w*|SystemCompatibilityError|WandbConfigError",
          (CONFIG, 4.0)),
    typed(r"GatedRepoError|RepositoryNotFoundError|RevisionNotFoundError|\w*EntryNotFoundError|HFValidationError"
          r"|LocalTokenNotFoundError|OfflineModeIsEnabled|DatasetNotFoundError|DataFilesNotFoundError"
          r"|BucketNotFoundError|AuthenticationError", (CONFIG, 4.5)),
    typed(r"(?:No|Partial)CredentialsError|ProfileNotFound|NoRegionError|\w*TokenLoadError|TokenRetrievalError"
          r"|DefaultCredentialsError|RefreshError|ParamValidationError|ClientAuthenticationError|Forbidden"
          r"|Unauthorized|NoSuchBucket|InvalidAccessKeyId|AccessDenied|AccessControlException", (CONFIG, 4.5)),
    typed(r"FileNotFoundError", (CONFIG, 3.3), (USER, -1.0)),
    typed(r"NoSuchFileException|NotADirectoryError|IsADirectoryError|FileExistsError", (CONFIG, 2.6), (USER, -0.5)),
    typed(r"PermissionError|PermissionDeniedError", (CONFIG, 3.6), (USER, -1.0)),
    typed(r"(?:JSON|Unicode)DecodeError|ParserError|EmptyDataError", (DATA, 3.2), (USER, -0.5)),
    typed(r"\w*(?:Sndfile|SoundFile|DECORD|Decord)\w*Error|UnidentifiedImageError|DecompressionBombError"
          r"|NoBackendError|InvalidDataError|ReadError|HeaderError|BadGzipFile|BadZipFile|LZMAError|ZstdError|"
          r"DecodeError"
          r"|DataLossError|DatasetGeneration\w*|Arrow(?:Invalid|Type\w*|Key\w*|NotImplemented\w*|Serialization\w*)"
          r"|NonMatching\w+|ExpectedMoreSplits\w*|CastError|\w*DataError|\w*DatasetError|InvalidBSON"
          r"|CorruptedError|UnpackValueError|ExtraData|FormatError", (DATA, 3.4), (USER, -0.5)),
    typed(r"OutOfRangeError", (DATA, 3.0)),
    typed(r"error", (USER, -0.5)),
    typed(r"SafetensorError|UnpicklingError|PickleError|CheckpointException", (CORRUPT, 3.4), (USER, -0.5)),
    typed(r"\w*CheckpointingException|ZeRORuntimeException|CheckpointMismatch\w*", (MISMATCH, 3.4), (USER, -0.5)),
    typed(r"(?:EndpointConnection|ConnectTimeout|ReadTimeout|ConnectionClosed|HTTPClient|ResponseStreaming"
          r"|IncompleteRead|ProxyConnection|S3UploadFailed|S3DownloadFailed|RetriesExceeded|FSTimeout|ServiceRequest"
          r"|ServiceResponse|Hdfs\w{0,20}|HDFSIO\w{0,10}|RemoteIO\w{0,10}|NFS\w{0,10})Error"
          r"|ServiceUnavailable|TooManyRequests|InternalServerError|GatewayTimeout|BadGateway|RetryError"
          r"|BlockMissingException|StandbyException|SafeModeException|SlowDown|\w*QuotaExceededException",
          (STORAGE, 4.0), (USER, -0.5)),
    typed(r"ClientError|HttpError|HTTPError|HttpResponseError|HTTPStatusError|ProtocolError", (STORAGE, 1.5),
          (CONFIG, 1.5)),
    typed(r"FloatingPointError|(?-i:\w*(?:NaN|Nan(?=[A-Z])|NonFinite)\w{0,40}|Inf(?:inite)?(?:Loss|Grad)\w{0,20})",
          (NUMERIC, 4.0)),
    typed(r"CalledProcessError|SystemExit|ProcessExitedException|ProcessRaisedException|ChildFailedError"
          r"|RayTaskError|WorkerCrashedError|RemoteTraceback|TrainingFailedError|\w*JobFailed\w*|RemoteError"
          r"|CancelledError|BrokenProcessPool|Empty|NestedException|TimeoutExpired", (OTHER, 6.0), (USER, -1.0)),
    typed(r"OSError|IOError|EnvironmentError", (STORAGE, 0.8), (CONFIG, 0.8), (DATA, 0.5), (USER, -1.0)),
    typed(r"Connection\w*Error|TimeoutError|timeout|BrokenPipeError|Dist(?:Network|Store|Backend)?Error"
          r"|gaierror|RemoteDisconnected", (PEERS, 1.5), (USER, -1.0)),
    typed(r"(?:Unavailable|Aborted|DeadlineExceeded|Cancelled)Error", (PEERS, 3.5), (USER, -1.0)),
    typed(r"Rendezvous\w*|DistStoreError", (JOIN, 3.5), (USER, -1.0)),
)  # fmt: skip

_STORES = (r"boto3|botocore|s3fs|s3transfer|gcsfs|google/(?:cloud/storage|resumable_media|api_core)|adlfs|azure/|"
           r"pyarrow/_?(?:fs|hdfs|s3)|hdfs|smart_open|fsspec|ossfs|oss2|tensorflow/python/lib/io|s3torchconnector|"
           r"megfile|petrel|msrest")  # fmt: skip
_READING = r"_utils/(?:fetch|worker)\.py|dataloader\.py:(?:_next_data|_process_data|__next__)|:__getitem__$"
_MISSING = (r"no such file or directory|not found\b|cannot find|can't find|unable to find|could not find|couldn't find|"
            r"does not exist|doesn't exist|permission denied")  # fmt: skip

_LOADING = (r"torch/serialization\.py:\w*load|torch/distributed/checkpoint/|dist_checkpointing/|checkpoint_engine|"
            r"(?:check_?point\w*|ckpt\w*)\.py:\w*(?:load|restore|read|resume)|orbax/|tensorstore|flax/(?:serialization|"
            r"training/checkpoints)|(?:saver|checkpoint)\.py:\w*restore|keras/\w*/?saving|trainer_callback\.py:load|"
            r":\w*(?:load|reload|restore)_\w*(?:check_?point|state|ckpt|weights|shard|optimizer|scheduler|rng|snapshot)"
            r"\w*$|:(?:resume|restore|try_resume|auto_resume|load_model)\w*$")  # fmt: skip

FRAMES: tuple[Hint, ...] = (
    passes(r"torch/utils/checkpoint\.py|activation_checkpoint", (USER, 2.0), (CORRUPT, -3.0), (MISMATCH, -3.0)),
    passes(_LOADING, (CORRUPT, 2.2), (MISMATCH, 2.2), (DATA, -2.0), (USER, -0.5)),
    both(("type", r"(?:JSONDecodeError|UnicodeDecodeError|BadZipFile|ExtraData|UnpackValueError|FormatError|EOFError)$|"
         r"^(?:zlib|lzma|zipfile|gzip|tarfile|msgpack)\."), ("frames", _LOADING), (CORRUPT, 4.0), (DATA, -1.5)),
    # A plan compares names and shapes of what is saved with those of the program; no data is read before it.
    passes(r"(?:planner|checkpoint)\w*\.py:\w*create_(?:default_)?(?:local|global)_(?:load_)?plan$", (MISMATCH, 2.5)),
    passes(r":\w*from_(?:pretrained|checkpoint)|:_load_pretrained_model|safetensors", (CORRUPT, 1.0), (MISMATCH, 0.7),
           (CONFIG, 1.0)),
    both(("type", r"^(?:KeyError|AssertionError|IndexError)$"),
         ("frames", _LOADING), (MISMATCH, 2.5), (USER, -0.5)),
    both(("message", r"cannot reshape array|reshape.{0,40}mesh"), ("frames", r"orbax/|tensorstore|checkpoint"),
         (MISMATCH, 4.0)),
    ends(r"set_rng_state", (MISMATCH, 7.5)),
    ends(r"torch/optim/\w+\.py:__setstate__", (MISMATCH, 4.5)),
    passes(r"torch/serialization\.py:_?(?:save|legacy_save|__exit__)|:_?(?:save_\w*(?:check_?point|ckpt|state|"
           r"model)\w*|"
           r"_?write_\w+|write_record|fsync|upload\w*|_save)$", (STORAGE, 1.5), (CORRUPT, -1.5), (MISMATCH, -1.5)),
    passes(_STORES, (STORAGE, 2.2), (USER, -0.5)),
    both(("type", r"Connection|Timeout|EOFError|IncompleteRead"), ("frames", _STORES), (STORAGE, 2.0), (PEERS, -1.0)),
    passes(r"aiohttp|urllib3|requests/|http/client|urllib/request|httpx", (STORAGE, 1.2)),
    passes(r"torch/utils/data/|torchdata/|/_?utils/(?:fetch|worker|collate)\.py|:__getitem__$|:_?collate\w*$|"
           r"data_?(?:loader|set|module|pipe|reader|source)s?\w*\.py|/data(?:sets?)?/|webdataset|streaming/base|PIL/|"
           r"cv2|"
           r"soundfile|librosa|torchaudio|torchvision/(?:io|datasets)|decord|(?:^|/)av/|pandas/|pyarrow/|json/decoder|"
           r"jsonlines|^datasets/|tf_?record|nibabel|lmdb|mmcv/(?:image|fileio)|fairseq/data|mxnet/io|/dali/|ffcv",
           (DATA, 1.6), (CORRUPT, -0.3)),
    both(("type", r"^AssertionError$"),
         ("inner", r"(?:^|[/_])(?:indexed_|merged_)?data(?:set|loader|_loader)?s?\w*\.py:|/data(?:sets?)?/\w+\.py:"),
         (DATA, 1.2)),
    ends(r"PIL/|soundfile|librosa|torchaudio|torchvision/io|tarfile|gzip|zlib|lzma|json/(?:decoder|__init__)|pyarrow|"
         r"pandas/|decord|codecs|nibabel|cv2|webdataset|h5py|numpy/lib/\w*(?:npyio|format)|csv\.py", (DATA, 1.2)),
    both(("type", r"^(?:FileNotFoundError|OSError|PermissionError|IsADirectoryError)$"), ("frames", _READING),
         (DATA, 1.0)),
    both(("type", r"^KeyError$"),
         ("code", r"\b\w*(?:state_?dict|check_?point|ckpt|snapshot|saved|metadata)\w*(?:\.\w{1,40})?\["),
         (MISMATCH, 5.5), (USER, -1.0)),
    both(("type", r"^KeyError$"), ("message", r"^['\"][\w.]{1,200}\.(?:weight|bias|exp_avg\w{0,4}|_extra_state)['\"]$"),
         (MISMATCH, 4.5)),
    both(("type", r"^KeyError$"),
         ("message", r"^['\"](?:state|(?:model_|optim\w*_)?state_dict|param_groups|lr_scheduler|rng_state\w*)['\"]$"),
         (MISMATCH, 3.0)),
    reads(r"\bassert .{0,120}% ?(?:\w{1,30}\.){0,3}\(?(?:(?:ddp_)?world_size|device_count\(|n_?gpus?|"
          r"n(?:um)?_(?:gpus?|devices|workers|processes|ranks)|[tpd]p_size|\w{1,20}_parallel_size)", (CONFIG, 4.0)),
    both(("code", r"\bload_(?:check_?point|ckpt|state_dict|model_state)\w*\("),
         ("message", r"size mismatch|must match the size of tensor"), (MISMATCH, 5.5)),
    reads(r"\.load_state_dict\(|\bload_(?:check_?point|ckpt|optimizer|model_state)\w*\(", (MISMATCH, 1.5),
          (CORRUPT, 0.5)),
    reads(r"\btorch\.load\(|\bpickle\.loads?\(", (CORRUPT, 1.5), (MISMATCH, 0.7)),
    reads(r"\b(?:Image\.open|imread|sf\.read|torchaudio\.load|json\.loads?|np\.(?:load|memmap)|pd\.read_\w+|pq\.read\w*|"
          r"decompress|decode_\w*|next\((?:self\.)?\w*(?:loader|data|iter)\w*)\(?|"
          r"\bfor .{1,60} in \w*(?:loader|dataloader)\b", (DATA, 1.0)),
    reads(r"\bos\.environ\[", (CONFIG, 3.0)),
    reads(r"\binit_process_group\(|\bTCPStore\(", (JOIN, 1.5)),
    passes(r"argparse\.py|hydra/|omegaconf|hf_argparser|training_args|arguments?\.py:|config(?:uration|s)?\w*\.py:|"
           r":(?:validate_\w+|parse_(?:args|known_args|config)|_?check_\w*(?:config|arg|batch|support|require)\w*|"
           r"__post_init__|_\w*sanity_check|_batch_assertion|_configure_train_batch_size|load_config|from_config|"
           r"build_from_cfg|_set_batch_related_parameters|_validate\w*)$|pydantic|yaml/|huggingface_hub|"
           r"transformers/utils/hub|dynamic_module_utils|click/|fire/core|typer/|absl/|jsonargparse|op_builder|"
           r"cpp_extension|importlib|ctypes/|pkg_resources|_load_global_deps|registry\.py", (CONFIG, 1.8)),
    passes(r"wandb|mlflow|comet_ml|neptune|clearml|swanlab", (CONFIG, 1.2)),
    ends(r"^(?!.*load)(?!.*data)(?!.*serialization).*(?:torch/(?:nn/|_tensor|autograd|functional|optim/|_dynamo|amp|"
         r"_inductor|fx/)|triton/|flash_attn|:forward$|:backward$|modeling_\w+\.py|:training_step$|:compute_loss$)",
         (USER, 1.2)),
    passes(r"distributed_c10d\.py:(?:init_process_group|_new_process_group_helper)|torch/distributed/rendezvous\.py|"
           r"elastic/rendezvous|:init(?:ialize)?_distributed$|:_create_c10d_store$|:init_dist\w*$", (JOIN, 1.8),
           (CONFIG, 0.5)),
    ends(r"distributed_c10d\.py:(?:\w*barrier|all_\w+|broadcast\w*|gather\w*|scatter\w*|reduce\w*|send|recv|isend|"
         r"irecv)|"
         r"horovod|mpi4py", (PEERS, 1.6)),
    both(("type", r"(?:Decode|Parser|Unpickling)Error$"), ("frames", r"config\w*\.py:|/configs?/|hydra/|yaml/|"
         r"deepspeed/__init__|AutoConfig"), (CONFIG, 4.0), (DATA, -1.5)),
    both(("type", r"(?:UnpicklingError|SafetensorError|EOFError)$"), ("frames",
         r"_utils/(?:fetch|worker)\.py|:__getitem__$|/data(?:sets?)?/\w+\.py"), (DATA, 3.5), (CORRUPT, -2.0)),
    both(("message", _MISSING), ("frames", _READING), (DATA, 4.0), (CONFIG, -1.5)),
    Hint((("type", r"^(?:jsonargparse|configargparse|argparse|configparser|typer|click|hydra|omegaconf|yaml)\b"),),
         ((CONFIG, 5.0), (DATA, -3.0))),
    both(("type", r"^KeyError$"), ("inner", r"(?:^|/)os\.py:"), (CONFIG, 4.5)),
    both(("type", r"^KeyError$"), ("message", r"^'(?-i:[A-Z][A-Z0-9_]{3,40})'$"), (CONFIG, 3.0)),
    both(("type", r"^AssertionError$"),
         ("code", r"^assert .{0,60}\b(?:config|cfg|conf|args?|opts?|options|hparams|params|flags|"
                  r"settings|hps)(?:\.|\[|\b.{0,3}$)"),
         (CONFIG, 3.0)),
    both(("type", r"^KeyError$"),
         ("code", r"\b[A-Z][A-Z0-9_]{2,40}\[\w{0,40}(?:name|type|key|arch|backbone|model|task|mode|kind)\w{0,20}\]|"
                  r"\w*(?:MAPPING|REGISTRY|FACTORY|REGISTERED)\w{0,20}\["),
         (CONFIG, 3.5)),
    both(("type", r"^KeyError$"),
         ("code", r"\b(?:conf|cfg|config\w{0,10}|hparams|yaml\w{0,10})(?:\.\w{1,30}){0,3}\[|"
                  r"\b(?:conf|cfg|config)\.(?:load|compile|get)\(|\b(?:parse|load|read)_(?:config|cfg|yaml)\w*\(.{1,80}\)\["),
         (CONFIG, 2.6)),
    both(("type", r"^AttributeError$"), ("message", r"^(?:partially initialized )?module '"), (CONFIG, 7.0)),
    passes(r"multiprocessing/(?:spawn|reduction|popen)", (USER, 1.0), (CORRUPT, -2.0)),
    both(("type", r"^(?:FileNotFoundError|OSError)$"),
         ("message", r"mp_rank_|zero_pp_rank|\.distcp|\.metadata|-of-\d{5}|optimizer\.(?:pt|bin)|scheduler\.pt|"
                     r"rng_state|trainer_state\.json|model_optim_rng|iter_\d{7}|distrib_optim|commit_success"),
         (CORRUPT, 4.0)),
)  # fmt: skip


_CHECKPOINT = (r"(?<!utils\.)(?<!activation )(?<!activation_)(?<!gradient )(?<!gradient_)(?<!use_)"
               r"(?:checkpoint(?!ing\b)|ckpt)")  # fmt: skip

MESSAGES: tuple[Hint, ...] = (
    # What was saved does not fit what is being trained.
    says(r"INTERNAL ASSERT FAILED", (USER, 2.5)),
    says(r"state[_ ]dict(?:ionary)?\b", (MISMATCH, 2.8)),
    says(r"(?:checkpoint|ckpt|state_dict).{0,120}(?:mismatch|different|differs|incompatible|architecture|expected \d|"
         r"instead of)|"
         r"(?:mismatch|different|differs|incompatible|architecture|expected \d).{0,120}(?:checkpoint|"
         r"ckpt)", (MISMATCH, 2.5)),
    says(r"(?:checkpoint|ckpt).{0,120}(?:is missing|missing \w|incomplete|not complete|no such|does not exist)|"
         r"(?:missing|incomplete) .{0,40}(?:checkpoint|ckpt)", (CORRUPT, 2.0)),
    says(r"size mismatch|shape mismatch|shapes? (?:of .{0,80} )?(?:do(?:es)? not|doesn't|don't) match|"
         r"incompatible (?:tensor|shape)|(?:missing|unexpected) keys?\b|copying a param", (MISMATCH, 1.5)),
    says(r"global shape|shard(?:ed)? ?tensor|flat[_ ]?param|param(?:eter)?[_ ]groups?|optimizer(?:'s)? state",
         (MISMATCH, 1.5)),
    says(r"(?:world[_ ]size|(?:tensor|pipeline|data|expert|context|model)[- _](?:model[- _])?parallel\w*|"
         r"\b[tpd]p[_ ]size|number of (?:gpus|ranks|processes|partitions|shards)).{0,120}"
         r"(?:checkpoint|saved|loaded|load\b|resum)", (MISMATCH, 3.5)),
    says(r"(?:checkpoint|saved|loaded|load\b|resum).{0,120}(?:world[_ ]size|"
         r"(?:tensor|pipeline|data|expert|context|model)[- _](?:model[- _])?parallel|\b[tpd]p[_ ]size|"
         r"number of (?:gpus|ranks|processes|partitions|shards))", (MISMATCH, 3.5)),
    says(r"(?:value|shape|size|version) (?:from|in|of) (?:the )?(?:checkpoint|ckpt|saved)|"
         r"(?:different|other|older|newer|incompatible) (?:checkpoint|version of the checkpoint|architecture)|"
         r"(?:saved|trained|created|written) (?:with|by|using) (?:a )?(?:different|other|older|newer)|"
         r"architectures? (?:do not|don't|does not) match|not found in (?:the )?(?:checkpoint|state)|"
         r"in (?:the )?checkpoint but", (MISMATCH, 3.0)),
    says(r"restoring state from a different|fingerprint do(?:es)?(?: not|n.t) match", (MISMATCH, 3.0)),
    says(r"compatible with the (?:stored|saved) ", (MISMATCH, 5.0)),
    says(r"\bmetadataindex\(", (MISMATCH, 5.0)),
    says(r"sstable|table file|tensor ?bundle", (CORRUPT, 4.0)),
    says(r"assign requires shapes of both tensors to match|graph from the checkpoint|dict key mismatch|"
         r"tree structures? do(?:es)? not match|weight file containing \d+ layers|layer count mismatch|"
         r"cannot load model parameters|model parameters do not match", (MISMATCH, 4.0)),
    says(r"can't get attribute '", (MISMATCH, 2.5)),
    says(r"can't get attribute '|rng state must be|maximum supported version for reading", (MISMATCH, 3.5)),
    says(_CHECKPOINT, (CORRUPT, 1.2), (MISMATCH, 1.2), (CONFIG, 0.3)),
    says(r"\.(?:pt|pth|ckpt|safetensors|distcp|msgpack|pdparams|npz)\b|pytorch_model|mp_rank_\d|zero_pp_rank|"
         r"trainer_state\.json|latest_checkpointed_iteration|rng_state|orbax|zarr", (CORRUPT, 1.4), (MISMATCH, 0.8)),
    says(r"world_size_\d+_rank_\d+", (MISMATCH, 4.0)),
    # Something is damaged.
    says(r"truncated|corrupt|unexpected (?:eof|end)|ran out of input|premature|end[- ]of[- ](?:file|stream)|eof\b|"
         r"checksum|\bcrc|digest|central directory|bad magic|magic number|invalid (?:header|load key|magic|hash)|"
         r"failed (?:reading|to read|finding)|wrong (?:byte )?size|incomplete|damaged|malformed|"
         r"decompress|not a (?:zip|gzip|tar|valid zip|parquet)", (CORRUPT, 1.6), (DATA, 1.6)),
    says(r"cannot (?:read|decode|parse|identify|reshape|convert|mmap)|could not (?:read|decode|parse|convert|open)|"
         r"unable to (?:decode|parse|convert|open)|failed to (?:decode|parse|open|load (?:image|audio|video|sample))|"
         r"can't (?:decode|parse)|error (?:decoding|parsing|tokenizing|reading|opening)|not able to read|"
         r"unreadable|codec can't decode|invalid (?:data|json|image|utf|record|jpeg|start byte)", (DATA, 2.2),
         (CORRUPT, 0.5)),
    says(r"load persistent id|pickle data|storage has wrong|could not find mark|unpickling stack|"
         r"deserializ|ran out of input|invalid load key|PytorchStreamReader", (CORRUPT, 2.6)),
    says(r"\.(?:jsonl?|parquet|arrow|tar|jpe?g|png|webp|tiff?|wav|flac|mp[34]|ogg|tfrecords?|npy|csv|tsv|txt|bin|idx|"
         r"mds|zst|gz|lmdb|h5|hdf5)\b", (DATA, 1.0)),
    says(r"\b(?:data ?set|data_path|samples?|records?|shards?|images?|audio|video|annotations?|documents?|captions?|"
         r"corpus|columns?|rows?|line \d+)\b", (DATA, 0.9)),
    says(r"num_samples=0|dataset is empty|empty dataset|no (?:images|samples|labels|data|training (?:data|examples)|"
         r"annotations|documents|valid samples) (?:were |was )?(?:found|in\b|left|available)|"
         r"mmap length is greater|cannot mmap an empty|buffer is smaller than requested|not enough (?:data|samples)|"
         r"previously unseen labels|no data left in file|!_?src\.empty\(\)|!ssize\.empty\(\)|"
         r"could not convert string to|does not match (?:the )?schema|(?:serialized|parse) example|"
         r"index file doesn't match|relative sample index",
         (DATA, 3.2)),
    says(r"\bbad data\b|(?:located page was|page .{0,20}) wrong type", (DATA, 3.0)),
    says(r"unable to connect to endpoint", (STORAGE, 5.0), (PEERS, -1.0)),
    says(r"couldn't cast array", (DATA, 2.0)),
    says(r"infer the same data file format|couldn't cast|trailing data|expected object or value|unterminated string|"
         r"could not broadcast input|file (?:extension|type|format)\b|input contains nan|extra data: line", (DATA, 3.0),
         (USER, -0.5)),
    says(r"^caught \w+ in dataloader worker", (DATA, 1.5)),
    says(r"^caught (?:filenotfound|os|io)error in dataloader worker", (DATA, 3.5), (CONFIG, -1.0)),
    says(r"columns? .{1,80} not in the dataset|current columns in the dataset", (DATA, 4.5)),
    says(r"<exception str\(\) failed>", (USER, -0.5)),
    # Numbers.
    says(r"(?:\bnans?\b|\binf(?:inity|inite)?\b|non-?finite|not finite|diverg).{0,80}(?:loss|grad|norm|activation|"
         r"weight|output|logit|tensor|param)|(?:loss|grad|norm|activation|weight|output|logit|tensor|param)\w*.{0,80}"
         r"(?:\bnans?\b|\binf(?:inity|inite)?\b|non-?finite|not finite|diverg)", (NUMERIC, 4.0)),
    says(r"loss[_ ]scale.{0,60}(?:minimum|already|underflow|too (?:low|small)|zero)|minimum loss scale|"
         r"probability tensor contains|overflow in grad|"
         r"cannot convert float (?:nan|inf)", (NUMERIC, 4.0), (DATA, -1.0)),
    # Settings, versions, places.
    says(r"(?:must|should|has to|have to|needs? to|cannot|can not) be (?:set|specified|provided|given|one of|in |"
         r"divisible|a multiple|multiple|positive|greater|less|smaller|larger|at least|at most|equal|installed|used|"
         r"enabled|disabled|either|> ?|>= ?|power)|divisible by|is not divisible|multiple of|not a multiple|"
         r"train_batch_size is not equal|(?:must|should|does not|doesn't|to) (?:match|equal) ", (CONFIG, 2.6)),
    says(r"(?:unsupported|unknown|unrecogni[sz]ed|invalid|illegal|unexpected|no such|non-existent|undefined|missing) "
         r"(?:option|argument|value|choice|backend|device|dtype|data type|precision|optimizer|scheduler|model|"
         r"config\w*|key|field|setting|parameter|flag|type|mode|name|strategy|format|environment|tokenizer|"
         r"configuration class|nproc_per_node)", (CONFIG, 3.0)),
    says(r"(?:please|you (?:need|have|may want|should|must)(?: to)?|make sure|try|consider|run) .{0,60}"
         r"(?:install|upgrad|downgrad|updat|correct|chang|switch|reduc|increas|set |specify|provide|pass |enable|"
         r"disable|check |pip )|pip install|"
         r"(?:is|was|are) not (?:installed|supported|available|found|set|specified|compatible|a valid|in the list|"
         r"allowed|recognized|registered|in the .{0,40}registry)|not compiled with|is required|requires? (?:the |a |"
         r"at least )?"
         r"(?:\w+ ){0,3}(?:version|library|package|to be|python|cuda|torch|gpu|ampere|>=|==)|"
         r"(?:does not|doesn't|do not) (?:support|exist|recognize)|only supports?\b|no longer support|deprecated and",
         (CONFIG, 2.2)),
    says(r"can only be used|(?:is|are) only supported|built in\b|might not have|values that mismatch|must use|"
         r"compiled with different|no (?:valid|available|suitable|supported) \w+|expected (?:a )?world[_ ]size|"
         r"invalid literal for int|"
         r"(?:invalid|bad|wrong) .{0,40}\bconfig|has not been initialized|max(?:imum)? (?:seq\w*|context|position|"
         r"number of)|"
         r"(?:larger|smaller|greater|less|more|fewer) than the|divides? the number|hfargumentparser", (CONFIG, 2.3)),
    says(r"environment variable|\benv(?:ironment)?[_ ]var|(?-i:_HOME\b|\$\{?[A-Z_]{4,40}\}?)|--[a-z][\w-]{2,40}|"
         r"\bconfig(?:uration)?\b|\byaml\b|\bargument\b|command[- ]line", (CONFIG, 1.2)),
    says(r"\bapi[_ ]key|\btoken\b.{0,40}(?:invalid|expired|required|missing|not)|credential|unauthorized|forbidden|"
         r"access (?:is )?denied|permission denied|not authorized|gated repo|401 client|403 client|login|"
         r"operation not permitted|authenticat", (CONFIG, 3.4)),
    says(r"no such file or directory|not found\b|cannot find|can't find|unable to find|could not find|couldn't find|"
         r"does not (?:exist|appear to have)|doesn't exist|is not a (?:local folder|directory|file)", (CONFIG, 2.2),
         (DATA, -1.5), (USER, -0.5)),
    says(r"no such file.{0,300}\.(?:jpe?g|png|webp|tiff?|bmp|wav|flac|mp[34]|ogg|avi|npy|npz)\b", (DATA, 5.5),
         (CONFIG, -1.0)),
    says(r"file signature not found|truncated file", (CORRUPT, 2.0), (DATA, 2.0), (CONFIG, -2.0)),
    says(r"cannot open shared object|undefined symbol|glibc|version `|cuda version|compiled with cuda|sm_\d\d|"
         r"compute capabilit|ninja|nvcc|building extension|cuda_home|is too old|not compatible with the (?:current|"
         r"installed)", (CONFIG, 3.2)),
    says(r"\b(?:built?|compiled) without\b|without .{0,30}\bsupport\b", (CONFIG, 2.8)),
    says(r"(?:raise|increase|enlarge|lower|reduce|set|export|adjust) (?:the )?"
         r"\$?(?-i:[A-Z][A-Z0-9]{1,20}_[A-Z0-9_]{2,40})\b",
         (CONFIG, 4.0)),
    says(r"cannot split tensor evenly|not a multiple of (?:the )?"
         r"(?:world|group|parallel|data|tensor|pipeline)[ _-]?size",
         (CONFIG, 3.0)),
    says(r"(?:failed|unable|could not|cannot) (?:to )?(?:load|read|fetch) (?:the |a )?"
         r"(?:data ?set|training|data) (?:sample|item|example|record)",
         (DATA, 4.5)),
    says(r"doesn't have any device set", (USER, 4.0), (MISMATCH, -2.0)),
    says(r"check batch related parameters", (CONFIG, 5.0)),
    says(r"binary incompatib|incompatible with the installed|numpy\.dtype size", (CONFIG, 5.0)),
    says(r"device ordinal|no kernel image|invalid device|not enough (?:gpus|slots|devices)|"
         r"requires? \d+ gpus?|only \d+ (?:gpus?|devices?) ", (CONFIG, 3.0)),
    says(r"deserialize object on (?:a )?cuda", (CONFIG, 5.5), (CORRUPT, -2.5)),
    says(r"undefined dataset|builderconfig '|not found\. available|unknown split|data ?set .{0,80}(?:doesn't exist|not "
         r"defined)", (CONFIG, 4.0), (DATA, -1.0)),
    # Storage.
    says(r"file write failed|failed writing|write (?:error|failed)|unexpected pos \d+|i/o error|input/output|"
         r"disk (?:is )?full|errno = (?:5|28|122)\b|no space|quota exceed|remote i/o|stale|"
         r"unable to lock file|\.nfs[0-9a-f]{6}|requested and \d+ written|payload is not completed|"
         r"transferencodingerror|"
         r"retry policy exhausted|database or disk is full|hdfs (?:read|write|open)", (STORAGE, 4.5)),
    says(r"\b(?:50[0234]|429)\b.{0,40}(?:error|unavailable|gateway|slow|timeout|too many|server|client)|"
         r"(?:error|code|status)\W{0,3}\b(?:50[0234]|429)\b|slow_?down|reduce your request rate|service unavailable|"
         r"(?:internal|server) error|internalerror|requesttimeout|server ?busy|operation ?timed ?out|"
         r"network_connection|curlcode|exceeded the rate limit|too many requests", (STORAGE, 3.0)),
    says(r"endpoint url|\b(?:s3|gs|gcs|abfss?|wasbs?|hdfs|oss|cos|obs|tos)://|amazonaws|storage\.googleapis|"
         r"blob\.core\.windows|bucket|when calling the \w{3,40} operation|datanode|namenode|"
         r"(?:get|put|head|list)objects?\b", (STORAGE, 1.5), (CONFIG, 0.5)),
    says(r"(?:timed out|timeout|connection (?:was )?(?:closed|reset|aborted|broken)|incompleteread|read timed|"
         r"could not connect|max retries)", (STORAGE, 1.0), (PEERS, 0.7), (JOIN, 0.3), (USER, -0.5)),
    says(r"\((?:403|404|301|400)\)|nosuchbucket|nosuchkey|access_?denied|invalidaccesskeyid|signaturedoesnotmatch|"
         r"expiredtoken|bucket does not exist|specified key does not|401 unauthorized|403 forbidden|404 not found|"
         r"could not be accessed|anonymous caller|kerberos|gss initiate", (CONFIG, 3.6), (STORAGE, -1.0)),
    # The program's own doing.
    says(r"^invalid argument \d{1,2}: |sizes? do(?:es)? not match", (USER, 4.0)),
    says(r"expected all tensors to be on the same device|mat1 and mat2|must match the size of tensor|sizes of tensors|"
         r"backward through the graph a second time|modified by an inplace|does not require grad|"
         r"finished reduction in the prior|mark a variable ready|index out of range|is out of (?:bounds|range)|"
         r"expected (?:scalar type|input batch_size|object of|tensor for argument)|found dtype|input type .{0,80}"
         r"weight type|is invalid for input of size|keyword argument|positional argument|has no attribute|"
         r"not subscriptable|not (?:iterable|callable)|nonetype|is not defined|(?:can't|cannot) pickle|"
         r"re-initialize cuda in forked|stack expects each|equal size|boolean value of tensor|unsupported operand|"
         r"device-side assert|triton error|list index|recompute|(?:not enough|too many) values to unpack|"
         r"shapes? cannot be (?:multiplied|broadcast)|broadcast|inference tensor|leaf variable|referenced before|"
         r"division by zero|a tensor with \d+ elements|dimension out of range|different number of tensors|"
         r"expects same model across all ranks|inflight params|parameter fetch queue|attempting to unscale|"
         r"no inf checks",
         (USER, 2.5)),
    says(r"\btensors?\b(?![- _](?:model|parallel))|\bdimensions?\b|torch\.size|\bdtypes?\b|\bgradients?\b|"
         r"\btrac(?:er|ed)\b|existing size|view size",
         (USER, 1.0)),
    says(r"to satisfy the constraint", (USER, 2.5), (NUMERIC, 2.0)),
    says(r"of distribution (?:Normal|Categorical|MultivariateNormal|Independent).{0,160}\bReal"
         r".{0,80}found invalid values",
         (NUMERIC, 5.0)),
    says(r"mismatch between collectives|collective .{0,40}mismatch", (USER, 2.5)),
    # Peers and the store.
    says(r"\bhccl|\bEI000[26]\b|getting socket times out", (PEERS, 3.0), (JOIN, 1.0), (USER, -1.0)),
    says(r"socket closed|\bdeadline[_ ]exceeded|\bunavailable: |failed to connect to all addresses|shutdown barrier|"
         r"heartbeat timed? ?out|coordination service", (PEERS, 2.5), (JOIN, 0.5), (USER, -1.0)),
    says(r"connection (?:reset|closed|refused)|broken pipe|closed the connection|store(?:->|\.)get|tcpstore|"
         r"socket timeout|barrier|nccl|gloo|heartbeat|rank \d+ .{0,40}(?:failed|lost|dead)", (PEERS, 1.5),
         (USER, -0.5)),
)  # fmt: skip
