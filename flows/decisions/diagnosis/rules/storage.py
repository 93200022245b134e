"""Storage: space, mounts, servers, devices; and object stores and file services as their clients report them.

The object stores' table tells failures of the service from those of the user.
"""

from __future__ import annotations

from flows.decisions.diagnosis.clues import Rule
from profiles.vocabulary import FaultClass

F = FaultClass
STORAGE_EXCEPTIONS = ("python-exception", "connection-error")

STORAGE_RULES: tuple[Rule, ...] = (
    Rule("disk-full",
         r"(?i:No space left on device|\bENOSPC\b|disk quota exceeded|database or disk is full|not enough space on the disk)|"
         r"\[Errno 28\]|\[Errno 122\]|\berrno = (?:28|122)\b", F.STORAGE, 0.93, "nobody",
         "OSError: [Errno 28] No space left on device: '/data/checkpoints/step-40.tmp/shard-0.bin'",
         "space left on device: 3 GB",
         "errno ENOSPC, EDQUOT", supersedes=STORAGE_EXCEPTIONS,
         advice="free space where the run's folder lies, or keep fewer checkpoints"),
    Rule("file-write-failed",
         r"PytorchStreamWriter failed writing|\bfile write failed\b|unexpected pos \d+ vs \d+|\bwrite error: (?!Broken pipe)|"
         r"Unable to (?:synchronously )?(?:write|flush|extend) (?:to )?(?:file|dataset)", F.STORAGE, 0.88, "nobody",
         "RuntimeError: [enforce fail at inline_container.cc:471] . PytorchStreamWriter failed writing file data/228: file write "
         "failed",
         "file written",
         "torch.save, HDF5, shells: the disk is full, or the file system failed", supersedes=STORAGE_EXCEPTIONS),
    Rule("input-output-error",
         r"(?:\[Errno 5\]|(?<![\w/])(?i:Input/output error|Remote I/O error)|\bEIO\b|\[Errno 121\]|"
         r"\b(?:disk I/O error|Structure needs cleaning)|\[Errno 117\]|\[Errno 74\])", F.STORAGE, 0.85, "node",
         "OSError: [Errno 5] Input/output error: '/mnt/weka/data/part-3.bin'",
         "input/output statistics",
         "errno EIO, EREMOTEIO, EUCLEAN, EBADMSG", supersedes=STORAGE_EXCEPTIONS),
    Rule("stale-handle", r"(?i:Stale (?:NFS )?file handle)|\[Errno 116\]|\bESTALE\b", F.STORAGE, 0.9, "nobody",
         "OSError: [Errno 116] Stale file handle: '/shared/runs/a/checkpoints'",
         "handle closed",
         "errno ESTALE", supersedes=STORAGE_EXCEPTIONS),
    Rule("transport-endpoint",
         r"(?:Transport endpoint is not connected|Cannot send after transport endpoint shutdown|Host is down|\[Errno 107\]|"
         r"\[Errno 108\]|\[Errno 112\]|\[Errno 70\]|Communication error on send)", F.STORAGE, 0.85, "node",
         "OSError: [Errno 107] Transport endpoint is not connected: '/mnt/gcs'",
         "endpoint connected",
         "FUSE, CIFS, Lustre and BeeGFS mounts", supersedes=STORAGE_EXCEPTIONS),
    Rule("read-only", r"(?:Read-only file system|\[Errno 30\]|Remounting filesystem read-only)", F.STORAGE, 0.85,
         "node",
         "OSError: [Errno 30] Read-only file system: '/data/checkpoints/step-5'",
         "opened read-only",
         "errno EROFS", supersedes=STORAGE_EXCEPTIONS),
    Rule("file-timed-out", r"\[Errno 110\] Connection timed out: '/|\[Errno 37\]|No locks available|\[Errno 14\] Bad address", F.STORAGE,
         0.8, "nobody",
         "TimeoutError: [Errno 110] Connection timed out: '/shared/ckpt/step-5/rank-3.pt'",
         "TimeoutError: [Errno 110] Connection timed out",
         "errno of network file systems: ETIMEDOUT of a path, ENOLCK, EFAULT", supersedes=STORAGE_EXCEPTIONS),
    Rule("nfs-not-responding", r"nfs: server \S{1,120} not responding, timed out|NFS: .{0,80}error -(?:5|110|116|121)\b|"
         r"nfs4_reclaim_open_state|NFS: state manager: .{0,80}failed", F.STORAGE, 0.8, "nobody",
         "nfs: server nfs-3.cluster not responding, timed out",
         "nfs: server nfs-3.cluster OK",
         "Linux NFS client; servers that answer again are observed"),
    Rule("lustre-evicted",
         r"Lustre(?:Error)?: .{0,200}(?:This client was evicted|was evicted by)|LustreError: .{0,200}(?:failed with -(?:5|28|30|107|108|122)"
         r"\b|rc = -(?:5|28|30|107|108|122)\b|timed out for slow reply)|LustreError: .{0,200}(?:operation \w+ .{0,80}failed)",
         F.STORAGE, 0.8, "node",
         "LustreError: 167-0: scratch-MDT0000-mdc-ffff8: This client was evicted by scratch-MDT0000; in "
         "progress operations using this service will fail.",
         "Lustre: Mounted scratch-client",
         "Lustre client"),
    Rule("cluster-filesystem",
         r"mmfs(?:d|d64)?\b.{0,120}(?:\[E\]|\[X\]|unmounted by the system|SGPanic|Disk lease|expelled)|"
         r"\b6027-\d{3,4}\b.{0,120}(?:\[E\]|\[X\]|panic|unmount|expel|failed)|"
         r"(?i:\b(?:beegfs|wekafs|weka|juicefs|gpfs|cephfs|glusterfs|alluxio|3fs|vastnfs)\b.{0,120}(?:communication error|i/o error|hung|"
         r"not responding|timed out|unable to proceed|disconnected|panic|slow operation|no quorum))", F.STORAGE, 0.8, "nobody",
         "mmfs: [X] File System fs1 unmounted by the system with return code 217 reason code 0",
         "mmfs: [N] mounted fs1",
         "GPFS, BeeGFS, WekaFS, JuiceFS and others"),
    Rule("block-device-error",
         r"(?:blk_update_request: )?(?:critical (?:medium|target|space allocation)|I/O) error, dev \w+, sector \d+|"
         r"nvme\d*(?:n\d+)?: .{0,60}(?:controller is down|I/O .{0,20}timeout|Removing after probe failure|Device not ready|"
         r"I/O Cmd.{0,60}Error)|Buffer I/O error on dev|Sense Key : (?:Medium|Hardware) Error|"
         r"ata\d+\.\d\d: failed command: ", F.STORAGE, 0.85, "node",
         "blk_update_request: I/O error, dev nvme0n1, sector 123456 op 0x0:(READ)",
         "nvme nvme0: 64/0/0 default/read/poll queues",
         "Linux block layer"),
    Rule("mount-failed",
         r"(?:Mount(?:Volume|Device)\.\w{1,20} failed for volume|AttachVolume\.\w{1,20} failed|Unable to attach or mount volumes|"
         r"mount\.(?:nfs|lustre|cifs|ceph|gcsfuse|s3fs)\w{0,4}: |Multi-Attach error for volume|"
         r"not found in the list of registered CSI drivers|FailedAttachVolume|FailedMount\b)"
         r"(?!.{0,200}(?:(?:configmap|secret) \"[^\"]{1,100}\" not found|failed to sync|not registered))", F.STORAGE,
         0.8, "node",
         "MountVolume.SetUp failed for volume \"data\" : mount failed: exit status 32",
         "MountVolume.SetUp succeeded for volume",
         "kubelet events"),
    Rule("filesystem-error",
         r"(?:EXT4-fs error|XFS \(\w[\w-]*\): .{0,80}(?:Shutting down filesystem|metadata I/O error|log I/O error|Corruption)|"
         r"BTRFS (?:error|critical)|JBD2: .{0,60}[Ee]rror|Aborting journal on device|"
         r"ZFS: .{0,80}(?:suspended|uncorrectable)|Pool '\S{1,60}' has encountered an uncorrectable I/O failure)", F.STORAGE, 0.88,
         "node",
         "EXT4-fs error (device nvme0n1p2): ext4_find_entry:1455: inode #524288: comm python: reading "
         "directory lblock 0",
         "EXT4-fs (md127p3): re-mounted r/w. Quota mode: none.",
         "Linux file systems"),
    Rule("raid-failure", r"md/raid\d*:md\d+: Disk failure on \w+|mdadm: .{0,40}Faulty", F.STORAGE, 0.7, "node",
         "md/raid1:md0: Disk failure on nvme1n1p1, disabling device.",
         "md/raid1:md0: active with 2 out of 2 mirrors",
         "Linux md"),
    Rule("ceph", r"(?:libceph: (?:osd\d+ .{0,80}(?:down|socket closed)|mon\d+ .{0,80}session lost)|"
         r"ceph: mds\d+ (?:hung|reconnect denied))", F.STORAGE, 0.75, "nobody",
         "ceph: mds0 hung",
         "ceph: mds0 recovery completed",
         "Ceph kernel client"),
    Rule("fuse-abort", r"(?:\[Errno 103\]|Software caused connection abort: '/)", F.STORAGE, 0.8, "node",
         "OSError: [Errno 103] Software caused connection abort: '/mnt/gcs/data'",
         "connection abort handled",
         "FUSE mounts"),
    Rule("emptydir-limit", r"Usage of EmptyDir volume .{0,80}exceeds the limit", F.STORAGE, 0.9, "nobody",
         "Usage of EmptyDir volume \"shm\" exceeds the limit \"1Gi\".",
         "EmptyDir volume mounted",
         "kubelet eviction", supersedes=("preempted",), advice="raise the size of the volume"),
    Rule("file-too-large", r"(?:\[Errno 27\]|File too large)", F.STORAGE, 0.8, "nobody",
         "OSError: [Errno 27] File too large",
         "file is large enough",
         "errno EFBIG: RLIMIT_FSIZE or the file system's limit", supersedes=("signal-25",)),
    Rule("save-failed",
         r"(?i)\b(?:failed to|unable to|error|error when|error while|could not|cannot) (?:sav(?:e|ing)|writ(?:e|ing)|upload(?:ing)?|"
         r"persist(?:ing)?) .{0,40}(?:checkpoint|snapshot|model state)|(?:checkpoint|snapshot)\w{0,3} (?:save|write|upload) "
         r"(?:has )?failed", F.STORAGE, 0.5, "nobody",
         "ERROR Failed to save checkpoint at step 5000",
         "checkpoint saved; 0 failed",
         "trainers; the reason often stands beside it"),
)  # fmt: skip


OBJECT_STORE_EXCEPTIONS = ("python-exception", "connection-error")

OBJECT_STORE_RULES: tuple[Rule, ...] = (
    Rule("client-retries",
         r"\bRequest failed, now waiting \d+ ms before attempting again|\bWill retry in \d|"
         r"(?i:\bretrying\b.{0,40}\b(?:in|after) \d)", F.NONE, 1.0, "nobody",
         "tensorflow/core/platform/s3/aws_logging.cc:57] Request failed, now waiting 6400 ms before attempting again.",
         "Request failed after 5 attempts",
         "TensorFlow's S3 client and others: what they survive"),
    Rule("object-store",
         r"(?:botocore\.exceptions\.(?:EndpointConnection|ReadTimeout|ConnectTimeout|ConnectionClosed|HTTPClient|ResponseStreaming|"
         r"IncompleteRead|SSL|ProxyConnection)Error|boto3\.exceptions\.(?:RetriesExceeded|S3\w{1,10}Failed)Error|"
         r"\bSlowDown\b|SLOW_DOWN|[Rr]educe your request rate|"
         r"Connection was closed before we received a valid response from endpoint|Could not connect to the endpoint URL|"
         r"Read timeout on endpoint URL|Connect timeout on endpoint URL)"
         r"(?!.{0,300}(?:AccessDenied|NoSuchBucket|InvalidAccessKeyId|SignatureDoesNotMatch|ExpiredToken|Forbidden))",
         F.STORAGE, 0.87, "nobody",
         "botocore.exceptions.ReadTimeoutError: Read timeout on endpoint URL: "
         "\"https://bucket.s3.amazonaws.com/x\"",
         "botocore.exceptions.ParamValidationError: Parameter validation failed",
         "AWS clients", supersedes=OBJECT_STORE_EXCEPTIONS),
    Rule("object-store-answer",
         r"An error occurred \((?:InternalError|ServiceUnavailable|Service ?Unavailable|RequestTimeout|50[0234]|Throttling\w{0,20}|"
         r"OperationAborted|XMinio\w{1,40}|QuotaExceeded|TooManyRequests|429)\) when calling", F.STORAGE, 0.9, "nobody",
         "botocore.exceptions.ClientError: An error occurred (503) when calling the PutObject operation (reached max retries: 4): "
         "Service Unavailable",
         "An error occurred (403) when calling the HeadObject operation: Forbidden",
         "botocore: the service's own failures", supersedes=OBJECT_STORE_EXCEPTIONS),
    Rule("object-store-refused",
         r"An error occurred \((?:403|404|400|301|AccessDenied|NoSuchBucket|NoSuchKey|InvalidAccessKeyId|SignatureDoesNotMatch|"
         r"ExpiredToken\w{0,12}|InvalidToken|AuthorizationHeaderMalformed|PermanentRedirect|AllAccessDisabled|"
         r"InvalidBucketName|UnrecognizedClientException|RequestTimeTooSkewed)\) when calling|Unable to locate credentials|"
         r"DefaultCredentialsError|AuthenticationFailed|AuthorizationPermissionMismatch|ContainerNotFound|"
         r"does not have storage\.\w{2,12}\.\w{2,12} (?:access|permission)|Anonymous caller does not have|"
         r"The specified bucket does not exist|AccessControlException: Permission denied|GSS initiate failed|"
         r"Failed to find any Kerberos tgt", F.CONFIG, 0.82, "code",
         "botocore.exceptions.ClientError: An error occurred (AccessDenied) when calling the PutObject operation: Access Denied",
         "An error occurred (SlowDown) when calling the PutObject operation",
         "clients of AWS, Google, Azure and HDFS: names and rights", supersedes=OBJECT_STORE_EXCEPTIONS,
         advice="give the run rights and names of its bucket or folder"),
    Rule("google-store",
         r"google\.api_core\.exceptions\.(?:ServiceUnavailable|TooManyRequests|InternalServerError|GatewayTimeout|BadGateway|"
         r"DeadlineExceeded|RetryError|Aborted)|google\.resumable_media\.common\.\w{1,40}|gcsfs\.retry\.HttpError|"
         r"exceeded the rate limit for object mutation|"
         r"(?:gs://|storage\.googleapis).{0,200}(?:HTTP response code 5\d\d|Backend Error|backendError)", F.STORAGE, 0.85, "nobody",
         "google.api_core.exceptions.ServiceUnavailable: 503 GET https://storage.googleapis.com/storage/v1/b/x: Backend Error",
         "google.api_core.exceptions.Forbidden: 403",
         "Google clients, gcsfs, TensorFlow", supersedes=OBJECT_STORE_EXCEPTIONS),
    Rule("azure-store",
         r"azure\.core\.exceptions\.Service(?:Response|Request)(?:Timeout)?Error|ErrorCode:(?:ServerBusy|OperationTimedOut|"
         r"InternalError)|The server is busy\.|(?:abfss?|wasbs?)://.{0,200}(?:503|500|timed out)", F.STORAGE, 0.85, "nobody",
         "azure.core.exceptions.HttpResponseError: The server is busy. ErrorCode:ServerBusy",
         "azure.core.exceptions.ResourceNotFoundError: The specified blob does not exist. ErrorCode:BlobNotFound",
         "Azure storage clients", supersedes=OBJECT_STORE_EXCEPTIONS),
    Rule("hdfs",
         r"Could not obtain block: BP-|BlockMissingException|could only be (?:written|replicated) to \d+ (?:of the \d+ )?"
         r"(?:minReplication )?nodes|Name node is in safe mode|SafeModeException|StandbyException|All datanodes .{0,200}are bad|"
         r"\b(?:NS|DS)QuotaExceeded|HDFS (?:read|write|list|open) failed|hdfs\w{2,30}\(.{0,120}\): .{0,40}error:|"
         r"LeaseExpiredException|DFSClient: .{0,80}(?:DataStreamer Exception|Failed to connect)",
         F.STORAGE, 0.85, "nobody",
         "org.apache.hadoop.hdfs.BlockMissingException: Could not obtain block: BP-1-10.0.0.1-1:blk_1073741825_1001 file=/data/x",
         "hdfs dfs -ls /data",
         "Hadoop clients, libhdfs, pyarrow", supersedes=OBJECT_STORE_EXCEPTIONS),
    Rule("remote-filesystem",
         r"fsspec\.exceptions\.FSTimeoutError|AWS Error (?:NETWORK_CONNECTION|SLOW_DOWN|UNKNOWN|INTERNAL_FAILURE|"
         r"SERVICE_UNAVAILABLE|ACCESS_DENIED during ListObjects failing)|curlCode: \d+|libcurl code \d+ meaning|"
         r"HTTP Error 50[0234]: |HTTP response code 50[0234]", F.STORAGE, 0.82, "nobody",
         "OSError: AWS Error NETWORK_CONNECTION during GetObject operation: curlCode: 28, Timeout was reached",
         "AWS Error ACCESS_DENIED during HeadObject operation",
         "fsspec, Arrow, TensorFlow, urllib", supersedes=OBJECT_STORE_EXCEPTIONS),
    Rule("object-store-upload",
         r"(?i)\bfailed to (?:upload|download|write|read|put|get|sync|save) .{0,160}(?:s3|gs|oss|cos|abfss?|hdfs|tos|obs)://|"
         r"\bupload failed: |[Uu]pload (?:of \S{1,80} ?\S{0,20} )?(?:to \S{1,200} )?failed", F.STORAGE, 0.6, "nobody",
         "ERROR upload of shard 3 failed",
         "upload finished: 3 shards, none failed",
         "trainers, aws and gsutil"),
    Rule("http-retries", r"(?:Max retries exceeded with url|HTTPSConnectionPool\(host=|"
         r"requests\.exceptions\.(?:ConnectionError|ReadTimeout|ConnectTimeout|ChunkedEncodingError)|"
         r"We couldn't connect to 'https)", F.STORAGE, 0.6, "nobody",
         "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='hub.example', port=443): Max "
         "retries exceeded with url: /api/models",
         "requests 2.32 installed",
         "an outside service of the program does not answer",
         supersedes=("python-exception", "connection-error", "name-resolution"),
         advice="keep models and data inside the cluster"),
)  # fmt: skip
