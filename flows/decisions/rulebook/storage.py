"""Storage: space, mounts, servers, devices, object stores."""

from __future__ import annotations

from flows.decisions.rules import Rule
from profiles.vocabulary import FaultClass

F = FaultClass

RULES: tuple[Rule, ...] = (
    Rule("disk-full", r"(?:No space left on device|\[Errno 28\]|ENOSPC|Disk quota exceeded|\[Errno 122\])",
         F.STORAGE, 0.93, "nobody",
         "OSError: [Errno 28] No space left on device: '/data/checkpoints/step-40.tmp/shard-0.bin'",
         "space left on device: 3 GB",
         "errno ENOSPC, EDQUOT", literals=("[errno", "disk quota exceede", "enospc", "no space left on d"),
         supersedes=("python-exception",),
         advice="free space where the run's folder lies, or keep fewer checkpoints"),
    Rule("input-output-error", r"(?:\[Errno 5\]|(?<![\w/])Input/output error|\bEIO\b)", F.STORAGE, 0.85, "node",
         "OSError: [Errno 5] Input/output error: '/mnt/weka/data/part-3.bin'",
         "input/output statistics",
         "errno EIO", literals=("[errno 5]", "eio", "input/output error")),
    Rule("stale-handle", r"(?:Stale (?:NFS )?file handle|\[Errno 116\])", F.STORAGE, 0.9, "nobody",
         "OSError: [Errno 116] Stale file handle: '/shared/runs/a/checkpoints'",
         "handle closed",
         "errno ESTALE", literals=("[errno 116]", "file handle")),
    Rule("transport-endpoint", r"(?:Transport endpoint is not connected|Host is down|\[Errno 107\]|\[Errno 112\])",
         F.STORAGE, 0.85, "node",
         "OSError: [Errno 107] Transport endpoint is not connected: '/mnt/gcs'",
         "endpoint connected",
         "FUSE, CIFS mounts", literals=("[errno 1", "host is down", "transport endpoint")),
    Rule("read-only", r"(?:Read-only file system|\[Errno 30\]|Remounting filesystem read-only)", F.STORAGE, 0.85,
         "node",
         "OSError: [Errno 30] Read-only file system: '/data/checkpoints/step-5'",
         "opened read-only",
         "errno EROFS", literals=("[errno 30]", "read-only")),
    Rule("nfs-not-responding", r"nfs: server \S{1,120} not responding", F.STORAGE, 0.8, "nobody",
         "nfs: server nfs-3.cluster not responding, still trying",
         "nfs: server nfs-3.cluster OK",
         "Linux NFS client", literals=("nfs: server ",)),
    Rule("lustre-evicted", r"LustreError: .{0,200}(?:evicted|timed out|was lost)|Lustre: .{0,120}was evicted",
         F.STORAGE, 0.8, "nobody",
         "LustreError: 167-0: scratch-MDT0000-mdc-ffff8: This client was evicted by scratch-MDT0000; in "
         "progress operations using this service will fail.",
         "Lustre: Mounted scratch-client",
         "Lustre client", literals=("error: ", "was evicted")),
    Rule("block-device-error", r"(?:blk_update_request: )?(?:critical medium|I/O) error, dev \w+, sector \d+|"
         r"nvme\d*: .{0,40}(?:controller is down|I/O .{0,20}timeout)", F.STORAGE, 0.85, "node",
         "blk_update_request: I/O error, dev nvme0n1, sector 123456 op 0x0:(READ)",
         "nvme nvme0: 64/0/0 default/read/poll queues",
         "Linux block layer", literals=("controller is down", "error, dev", "timeout")),
    Rule("object-store",
         r"(?:botocore\.exceptions\.(?:EndpointConnectionError|ReadTimeoutError|ConnectTimeoutError)|"
         r"SlowDown\b.{0,60}(?:reduce|request rate)|google\.api_core\.exceptions\.(?:ServiceUnavailable|"
         r"TooManyRequests))", F.STORAGE, 0.85, "nobody",
         "botocore.exceptions.ReadTimeoutError: Read timeout on endpoint URL: "
         "\"https://bucket.s3.amazonaws.com/x\"",
         "botocore.exceptions.ParamValidationError: Parameter validation failed",
         "AWS and Google clients", literals=("core.exceptions.", "slowdown")),
    Rule("mount-failed",
         r"(?:MountVolume\.\w{1,20} failed for volume|Unable to attach or mount volumes|mount\.nfs: )", F.STORAGE,
         0.8, "node",
         "MountVolume.SetUp failed for volume \"data\" : mount failed: exit status 32",
         "MountVolume.SetUp succeeded for volume",
         "kubelet events", literals=("mount",)),
    Rule("filesystem-error",
         r"(?:EXT4-fs error|XFS \(\w+\): .{0,60}(?:Shutting down filesystem|metadata I/O error|Corruption)|"
         r"BTRFS (?:error|critical))", F.STORAGE, 0.88, "node",
         "EXT4-fs error (device nvme0n1p2): ext4_find_entry:1455: inode #524288: comm python: reading "
         "directory lblock 0",
         "EXT4-fs (md127p3): re-mounted r/w. Quota mode: none.",
         "Linux file systems", literals=("btrfs critical", "corruption", "error", "shutting down file")),
    Rule("raid-failure", r"md/raid\d*:md\d+: Disk failure on \w+|mdadm: .{0,40}Faulty", F.STORAGE, 0.7, "node",
         "md/raid1:md0: Disk failure on nvme1n1p1, disabling device.",
         "md/raid1:md0: active with 2 out of 2 mirrors",
         "Linux md", literals=(": disk failure on ", "faulty")),
    Rule("ceph", r"(?:libceph: (?:osd\d+ .{0,80}(?:down|socket closed)|mon\d+ .{0,80}session lost)|"
         r"ceph: mds\d+ (?:hung|reconnect denied))", F.STORAGE, 0.75, "nobody",
         "ceph: mds0 hung",
         "ceph: mds0 recovery completed",
         "Ceph kernel client", literals=("ceph:",)),
    Rule("fuse-abort", r"(?:\[Errno 103\]|Software caused connection abort: '/)", F.STORAGE, 0.8, "node",
         "OSError: [Errno 103] Software caused connection abort: '/mnt/gcs/data'",
         "connection abort handled",
         "FUSE mounts", literals=("[errno 103]", "software caused co")),
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
    Rule("emptydir-limit", r"Usage of EmptyDir volume .{0,80}exceeds the limit", F.STORAGE, 0.9, "nobody",
         "Usage of EmptyDir volume \"shm\" exceeds the limit \"1Gi\".",
         "EmptyDir volume mounted",
         "kubelet eviction", literals=("sage of emptydir v",), supersedes=("preempted",),
         advice="raise the size of the volume"),
    Rule("file-too-large", r"(?:\[Errno 27\]|File too large)", F.STORAGE, 0.8, "nobody",
         "OSError: [Errno 27] File too large",
         "file is large enough",
         "errno EFBIG: RLIMIT_FSIZE or the file system's limit", literals=("[errno 27]", "file too large"),
         supersedes=("signal-25",)),
)  # fmt: skip
