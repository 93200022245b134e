"""Training data: damaged, malformed, missing or empty."""

from __future__ import annotations

from flows.decisions.rules import Rule
from profiles.vocabulary import FaultClass

F = FaultClass
EXCEPTIONS = ("python-exception",)

RULES: tuple[Rule, ...] = (
    Rule("image-decoder-warning",
         r"^(?:Premature end of JPEG (?:file|data)|Invalid SOS parameters for sequential JPEG|Warning: unknown JFIF revision|"
         r"Corrupt JPEG data: (?:premature end|bad Huffman|found marker))|EXIF data will be (?:ignored|dropped)",
         F.NONE, 1.0, "nobody",
         "Premature end of JPEG file",
         "Corrupted JPEG cannot be decoded",
         "libjpeg: the image is decoded all the same",
         literals=("jpeg", "jfif revision", "exif data")),
    Rule("data-corrupt",
         r"(?:Corrupt(?:ed)? (?:data|record|shard|TFRecord|image file|sample)|(?:corrupted|truncated) record at \d+|"
         r"(?:pyarrow|parquet|Parquet).{0,80}(?:Couldn't deserialize|Corrupt|magic bytes not found)|DataLossError|"
         r"Data loss: (?:corrupted|truncated|inflate))(?!.{0,120}(?:sstable|table file|ckpt|checkpoint|Checksum does not match))",
         F.DATA, 0.85, "code",
         "tensorflow.python.framework.errors_impl.DataLossError: corrupted record at 1234",
         "data loss prevention enabled",
         "TFRecord, parquet, image readers",
         literals=("corrupt", "truncated record", "datalosserror", "parquet", "pyarrow", "data loss: "),
         supersedes=EXCEPTIONS),
    Rule("data-empty",
         r"(?:IndexError|ValueError|RuntimeError|StopIteration|AssertionError|Exception).{0,60}(?:[Dd]ataset is empty|"
         r"not enough (?:data|samples|documents)|[Ee]mpty dataset|no (?:valid )?(?:samples|examples|images|labels) (?:were )?"
         r"found|No (?:valid )?(?:samples|examples|images|labels) (?:were )?found)", F.DATA, 0.75, "code",
         "ValueError: dataset is empty after filtering",
         "ValueError: dataset path missing",
         "data loaders", literals=("ataset is empty", "not enough", "mpty dataset", " found")),
    Rule("dataset-generation", r"(?:datasets\.exceptions\.DatasetGeneration(?:Cast)?Error|pyarrow\.lib\.Arrow(?:Invalid|TypeError)|"
         r"datasets\.(?:table|exceptions)\.\w{0,10}CastError|NonMatching(?:Splits\w{1,12}|Checksum)Error)", F.DATA, 0.78, "code",
         "datasets.exceptions.DatasetGenerationError: An error occurred while generating the dataset",
         "dataset generated",
         "Hugging Face datasets, Arrow",
         literals=("datasets.", "pyarrow.lib.arrow", "nonmatching"), supersedes=EXCEPTIONS),
    Rule("dataset-record",
         r"Failed to read file '[^']{1,400}' with error|JSON parse error: (?:Column|Invalid|Missing|The document)|"
         r"CSV parse error: Expected \d+ columns|Not able to read records in the JSON file", F.DATA, 0.78, "code",
         "JSON parse error: Column(/conversations/[]/value) changed from string to array in row 0",
         "Failed to read file system table",
         "Hugging Face datasets", literals=("failed to read file '", "parse error: ", "not able to read rec")),
    Rule("image-broken",
         r"(?:cannot identify image file|image file is truncated|broken data stream when reading image|"
         r"unrecognized data stream contents when reading image|(?:OpenCV|cv2).{0,200}(?:!_?src\.empty\(\)|!ssize\.empty\(\)|"
         r"!buf\.empty\(\))|Invalid (?:PNG|JPEG) data|Expected image \(JPEG, PNG, or GIF\)|Unable to decode bytes as (?:JPEG|PNG)|"
         r"Unsupported image file\. Only)", F.DATA, 0.85, "code",
         "OSError: image file is truncated (12 bytes not processed)",
         "image file read",
         "Pillow, OpenCV, torchvision, TensorFlow", literals=("image", "opencv", "cv2", "jpeg data", "png data", "decode bytes as"),
         supersedes=EXCEPTIONS),
    Rule("sound-broken",
         r"soundfile\.LibsndfileError|\bError opening '[^']{1,300}': (?:Format not recognised|File contains data in an unknown|"
         r"Unspecified internal)|audioread\.exceptions\.NoBackendError|Failed to (?:load|decode) audio|"
         r"Error loading audio file: failed to open file", F.DATA, 0.82, "code",
         "soundfile.LibsndfileError: Error opening '/data/a.flac': Format not recognised.",
         "soundfile 0.12 loaded",
         "libsndfile, audioread, torchaudio", literals=("libsndfileerror", "error opening '", "nobackenderror", "audio"),
         supersedes=EXCEPTIONS),
    Rule("video-broken",
         r"moov atom not found|DECORDError|Invalid data found when processing input|av\.error\.InvalidDataError|"
         r"cannot find (?:video|audio) stream", F.DATA, 0.7, "code",
         "[mov,mp4,m4a,3gp,3g2,mj2 @ 0x55d0c0] moov atom not found",
         "atoms of the molecule found",
         "FFmpeg, decord, PyAV", literals=("moov atom", "decorderror", "invalid data", "invaliddata", "cannot find"), supersedes=EXCEPTIONS),
    Rule("tar-broken",
         r"tarfile\.(?:Read|Stream|Truncated|Invalid|Empty)\w{0,10}Error|gzip\.BadGzipFile|"
         r"Compressed file ended before the end-of-stream marker|zlib\.error: Error -\d|_?lzma\.LZMAError|"
         r"zst\w{0,20}Error: .{0,40}(?:corrupt|Corrupt|Unknown frame)", F.DATA, 0.82, "code",
         "tarfile.ReadError: unexpected end of data",
         "tarfile opened",
         "WebDataset shards, compressed files",
         literals=("tarfile.", "badgzipfile", "compressed file", "zlib.error", "lzma.lzmaerror", "zst"), supersedes=EXCEPTIONS),
    Rule("sampler-empty", r"num_samples should be a positive integer value, but got num_samples=0", F.DATA, 0.85,
         "code",
         "ValueError: num_samples should be a positive integer value, but got num_samples=0",
         "num_samples=100",
         "PyTorch samplers: the data set is empty", literals=("num_samples should",)),
    Rule("megatron-index",
         r"(?:Index file doesn't match expected format|\[index\] cannot (?:properly )?read|bin and idx files? (?:do not|don't) match|"
         r"mmap length is greater than file ?size|cannot mmap an empty file|buffer is smaller than requested size|"
         r"Could not find index map files)", F.DATA, 0.82, "code",
         "AssertionError: Index file doesn't match expected format. Make sure that --dataset-impl is "
         "configured properly.",
         "index file built",
         "Megatron-LM and fairseq indexed datasets, numpy.memmap",
         literals=("[index] cannot", "t match", "mmap", "smaller than requested", "index map files"), supersedes=EXCEPTIONS),
    Rule("example-parse",
         r"Could not parse example input|Can't parse serialized Example|Feature: \S{1,80} \(data type: \w+\) is required but could not",
         F.DATA, 0.85, "code",
         "tensorflow.python.framework.errors_impl.InvalidArgumentError: Key: image.  Can't parse serialized Example.",
         "Example parsed",
         "TensorFlow example parser", literals=("parse example input", "parse serialized ex", "is required but could"),
         supersedes=EXCEPTIONS),
    Rule("streaming-shard",
         r"Relative sample index \d+ is not present in|Checksum failure: \S|\.mds\b.{0,80}(?:corrupt|truncated|not present)",
         F.DATA, 0.85, "code",
         "IndexError: Relative sample index 512 is not present in the /data/shard.00003.mds file.",
         "Checksum verified: 12 files",
         "MosaicML streaming", literals=("relative sample index", "checksum failure", ".mds"), supersedes=EXCEPTIONS),
    Rule("lmdb-corrupt", r"MDB_(?:CORRUPTED|PAGE_NOTFOUND|INVALID|PANIC)\b", F.DATA, 0.85, "code",
         "lmdb.CorruptedError: mdb_get: MDB_CORRUPTED: Located page was wrong type",
         "MDB_NOTFOUND: No matching key",
         "LMDB", literals=("mdb_",), supersedes=EXCEPTIONS),
    Rule("array-file",
         r"Failed to interpret file .{1,300} as a pickle|No data left in file|the magic string is not correct; expected",
         F.DATA, 0.7, "code",
         "OSError: Failed to interpret file '/data/x.npy' as a pickle",
         "file interpreted as text",
         "numpy.load", literals=("failed to interpret", "no data left in", "magic string is not"), supersedes=EXCEPTIONS),
    Rule("table-parse", r"Error tokenizing data\. C error|EmptyDataError: No columns to parse", F.DATA, 0.82, "code",
         "pandas.errors.ParserError: Error tokenizing data. C error: Expected 5 fields in line 3, saw 6",
         "tokenizing data: done",
         "pandas", literals=("error tokenizing", "no columns to parse"), supersedes=EXCEPTIONS),
    Rule("decoder-pipeline",
         r"nvJPEG (?:error|decode failed)|nvImageCodec .{0,60}(?:error|fail)|DALI.{0,120}(?:[Ee]rror when executing|Critical error)|"
         r"[Ee]rror when executing (?:Mixed|CPU|GPU) operator|Invalid RecordIO|RecordIO .{0,60}(?:corrupt|bad magic)", F.DATA, 0.72,
         "code",
         "Critical error in pipeline: Error when executing Mixed operator decoders__Image encountered: nvJPEG error (2)",
         "nvJPEG 12.3 loaded, DALI pipeline built",
         "DALI, MXNet", literals=("nvjpeg", "nvimagecodec", "dali", "when executing", "recordio"), supersedes=EXCEPTIONS),
    Rule("labels-missing", r"\bNo labels (?:found )?in \S{1,300} ?.{0,60}(?i:can ?not|can't|unable to) train",
         F.DATA, 0.75, "code",
         "AssertionError: train: No labels in /data/train2017.cache. Can not train without labels. See https://docs",
         "WARNING No labels found in /data/val.cache, skipping",
         "YOLO", literals=("no labels",), supersedes=EXCEPTIONS),
    Rule("worker-data", r"^webdataset.{0,80}Error", F.DATA, 0.6, "code",
         "webdataset.handlers.PipelineError: sample without a key",
         "loaded webdataset without Error",
         "WebDataset", literals=("webdataset",)),
)  # fmt: skip
