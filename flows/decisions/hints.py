"""What an exception's type and frames speak for: one half of the table of the second tier, its words are the other.

A hint adds points to classes. Points are natural logarithms of odds: 1 makes a class about three times as probable,
2 seven times, 3 twenty times. No hint decides alone; `flows.decisions.raised` adds them up.
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
