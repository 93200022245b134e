"""Object stores and distributed file services as their clients report them: the service's failures, and the user's."""

from __future__ import annotations

from flows.decisions.rules import Rule
from profiles.vocabulary import FaultClass

F = FaultClass
EXCEPTIONS = ("python-exception", "connection-error")

RULES: tuple[Rule, ...] = (
    Rule("client-retries",
         r"\bRequest failed, now waiting \d+ ms before attempting again|\bWill retry in \d|"
         r"(?i:\bretrying\b.{0,40}\b(?:in|after) \d)", F.NONE, 1.0, "nobody",
         "tensorflow/core/platform/s3/aws_logging.cc:57] Request failed, now waiting 6400 ms before attempting again.",
         "Request failed after 5 attempts",
         "TensorFlow's S3 client and others: what they survive",
         literals=("retrying", "request failed, now", "will retry in")),
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
         "AWS clients",
         literals=("botocore.exceptions", "boto3.exceptions", "slowdown", "slow_down", "educe your request", "endpoint"),
         supersedes=EXCEPTIONS),
    Rule("object-store-answer",
         r"An error occurred \((?:InternalError|ServiceUnavailable|Service ?Unavailable|RequestTimeout|50[0234]|Throttling\w{0,20}|"
         r"OperationAborted|XMinio\w{1,40}|QuotaExceeded|TooManyRequests|429)\) when calling", F.STORAGE, 0.9, "nobody",
         "botocore.exceptions.ClientError: An error occurred (503) when calling the PutObject operation (reached max retries: 4): "
         "Service Unavailable",
         "An error occurred (403) when calling the HeadObject operation: Forbidden",
         "botocore: the service's own failures", literals=("an error occurred (",), supersedes=EXCEPTIONS),
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
         "clients of AWS, Google, Azure and HDFS: names and rights",
         literals=("an error occurred (", "unable to locate", "credentials", "authenticationfailed", "authorizationperm",
                   "containernotfound", "does not have", "specified bucket", "accesscontrol", "gss initiate", "kerberos tgt"),
         supersedes=EXCEPTIONS, advice="give the run rights and names of its bucket or folder"),
    Rule("google-store",
         r"google\.api_core\.exceptions\.(?:ServiceUnavailable|TooManyRequests|InternalServerError|GatewayTimeout|BadGateway|"
         r"DeadlineExceeded|RetryError|Aborted)|google\.resumable_media\.common\.\w{1,40}|gcsfs\.retry\.HttpError|"
         r"exceeded the rate limit for object mutation|"
         r"(?:gs://|storage\.googleapis).{0,200}(?:HTTP response code 5\d\d|Backend Error|backendError)", F.STORAGE, 0.85, "nobody",
         "google.api_core.exceptions.ServiceUnavailable: 503 GET https://storage.googleapis.com/storage/v1/b/x: Backend Error",
         "google.api_core.exceptions.Forbidden: 403",
         "Google clients, gcsfs, TensorFlow",
         literals=("google.api_core", "google.resumable", "gcsfs.retry", "exceeded the rate", "gs://", "storage.googleapis"),
         supersedes=EXCEPTIONS),
    Rule("azure-store",
         r"azure\.core\.exceptions\.Service(?:Response|Request)(?:Timeout)?Error|ErrorCode:(?:ServerBusy|OperationTimedOut|"
         r"InternalError)|The server is busy\.|(?:abfss?|wasbs?)://.{0,200}(?:503|500|timed out)", F.STORAGE, 0.85, "nobody",
         "azure.core.exceptions.HttpResponseError: The server is busy. ErrorCode:ServerBusy",
         "azure.core.exceptions.ResourceNotFoundError: The specified blob does not exist. ErrorCode:BlobNotFound",
         "Azure storage clients",
         literals=("azure.core.exceptions", "errorcode:", "server is busy", "abfs://", "abfss://", "wasb://", "wasbs://"),
         supersedes=EXCEPTIONS),
    Rule("hdfs",
         r"Could not obtain block: BP-|BlockMissingException|could only be (?:written|replicated) to \d+ (?:of the \d+ )?"
         r"(?:minReplication )?nodes|Name node is in safe mode|SafeModeException|StandbyException|All datanodes .{0,200}are bad|"
         r"\b(?:NS|DS)QuotaExceeded|HDFS (?:read|write|list|open) failed|hdfs\w{2,30}\(.{0,120}\): .{0,40}error:|"
         r"LeaseExpiredException|DFSClient: .{0,80}(?:DataStreamer Exception|Failed to connect)",
         F.STORAGE, 0.85, "nobody",
         "org.apache.hadoop.hdfs.BlockMissingException: Could not obtain block: BP-1-10.0.0.1-1:blk_1073741825_1001 file=/data/x",
         "hdfs dfs -ls /data",
         "Hadoop clients, libhdfs, pyarrow",
         literals=("could not obtain block", "blockmissing", "could only be", "safe mode", "safemode", "standbyexception",
                   "all datanodes", "quotaexceeded", "hdfs", "leaseexpired", "dfsclient: "), supersedes=EXCEPTIONS),
    Rule("remote-filesystem",
         r"fsspec\.exceptions\.FSTimeoutError|AWS Error (?:NETWORK_CONNECTION|SLOW_DOWN|UNKNOWN|INTERNAL_FAILURE|"
         r"SERVICE_UNAVAILABLE|ACCESS_DENIED during ListObjects failing)|curlCode: \d+|libcurl code \d+ meaning|"
         r"HTTP Error 50[0234]: |HTTP response code 50[0234]", F.STORAGE, 0.82, "nobody",
         "OSError: AWS Error NETWORK_CONNECTION during GetObject operation: curlCode: 28, Timeout was reached",
         "AWS Error ACCESS_DENIED during HeadObject operation",
         "fsspec, Arrow, TensorFlow, urllib",
         literals=("fstimeouterror", "aws error ", "curlcode: ", "libcurl code", "http error 50", "http response code"),
         supersedes=EXCEPTIONS),
    Rule("object-store-upload",
         r"(?i)\bfailed to (?:upload|download|write|read|put|get|sync|save) .{0,160}(?:s3|gs|oss|cos|abfss?|hdfs|tos|obs)://|"
         r"\bupload failed: |[Uu]pload (?:of \S{1,80} ?\S{0,20} )?(?:to \S{1,200} )?failed", F.STORAGE, 0.6, "nobody",
         "ERROR upload of shard 3 failed",
         "upload finished: 3 shards, none failed",
         "trainers, aws and gsutil", literals=("failed",)),
    Rule("http-retries", r"(?:Max retries exceeded with url|HTTPSConnectionPool\(host=|"
         r"requests\.exceptions\.(?:ConnectionError|ReadTimeout|ConnectTimeout|ChunkedEncodingError)|"
         r"We couldn't connect to 'https)", F.STORAGE, 0.6, "nobody",
         "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='hub.example', port=443): Max "
         "retries exceeded with url: /api/models",
         "requests 2.32 installed",
         "an outside service of the program does not answer",
         literals=("connect", "max retries exceed", "requests.exception"),
         supersedes=("python-exception", "connection-error", "name-resolution"),
         advice="keep models and data inside the cluster"),
)  # fmt: skip
