"""Storage: space, mounts, servers, devices. Object stores have their own table."""

from __future__ import annotations

from flows.decisions.rules import Rule
from profiles.vocabulary import FaultClass

F = FaultClass
EXCEPTIONS = ("python-exception", "connection-error")

RULES: tuple[Rule, ...] = (
    Rule("disk-full",
         r"(?i:No space left on device|\bENOSPC\b|disk quota exceeded|database or disk is full|not enough space on the disk)|"
         r"\[Errno 28\]|\[Errno 122\]|\berrno = (?:28|122)\b", F.STORAGE, 0.93, "nobody",
         "OSError: [Errno 28] No space left on device: '/data/checkpoints/step-40.tmp/shard-0.bin'",
         "space left on device: 3 GB",
         "errno ENOSPC, EDQUOT",
         literals=("[errno 28]", "[errno 122]", "disk quota exceede", "enospc", "no space left on d", "disk is full",
                   "space on the disk", "errno = "), supersedes=EXCEPTIONS,
         advice="free space where the run's folder lies, or keep fewer checkpoints"),
    Rule("file-write-failed",
         r"PytorchStreamWriter failed writing|\bfile write failed\b|unexpected pos \d+ vs \d+|\bwrite error: (?!Broken pipe)|"
         r"Unable to (?:synchronously )?(?:write|flush|extend) (?:to )?(?:file|dataset)", F.STORAGE, 0.88, "nobody",
         "RuntimeError: [enforce fail at inline_container.cc:471] . PytorchStreamWriter failed writing file data/228: file write "
         "failed",
         "file written",
         "torch.save, HDF5, shells: the disk is full, or the file system failed",
         literals=("failed writing", "write failed", "unexpected pos", "write error: ", "unable to"), supersedes=EXCEPTIONS),
    Rule("input-output-error",
         r"(?:\[Errno 5\]|(?<![\w/])(?i:Input/output error|Remote I/O error)|\bEIO\b|\[Errno 121\]|"
         r"\b(?:disk I/O error|Structure needs cleaning)|\[Errno 117\]|\[Errno 74\])", F.STORAGE, 0.85, "node",
         "OSError: [Errno 5] Input/output error: '/mnt/weka/data/part-3.bin'",
         "input/output statistics",
         "errno EIO, EREMOTEIO, EUCLEAN, EBADMSG",
         literals=("[errno 5]", "eio", "i/o error", "input/output error", "[errno 121]", "needs cleaning", "[errno 117]",
                   "[errno 74]"), supersedes=EXCEPTIONS),
    Rule("stale-handle", r"(?i:Stale (?:NFS )?file handle)|\[Errno 116\]|\bESTALE\b", F.STORAGE, 0.9, "nobody",
         "OSError: [Errno 116] Stale file handle: '/shared/runs/a/checkpoints'",
         "handle closed",
         "errno ESTALE", literals=("[errno 116]", "file handle", "estale"), supersedes=EXCEPTIONS),
    Rule("transport-endpoint",
         r"(?:Transport endpoint is not connected|Cannot send after transport endpoint shutdown|Host is down|\[Errno 107\]|"
         r"\[Errno 108\]|\[Errno 112\]|\[Errno 70\]|Communication error on send)", F.STORAGE, 0.85, "node",
         "OSError: [Errno 107] Transport endpoint is not connected: '/mnt/gcs'",
         "endpoint connected",
         "FUSE, CIFS, Lustre and BeeGFS mounts", literals=("[errno 1", "[errno 70]", "host is down", "transport endpoint",
                                                            "communication error"), supersedes=EXCEPTIONS),
    Rule("read-only", r"(?:Read-only file system|\[Errno 30\]|Remounting filesystem read-only)", F.STORAGE, 0.85,
         "node",
         "OSError: [Errno 30] Read-only file system: '/data/checkpoints/step-5'",
         "opened read-only",
         "errno EROFS", literals=("[errno 30]", "read-only"), supersedes=EXCEPTIONS),
    Rule("file-timed-out", r"\[Errno 110\] Connection timed out: '/|\[Errno 37\]|No locks available|\[Errno 14\] Bad address", F.STORAGE,
         0.8, "nobody",
         "TimeoutError: [Errno 110] Connection timed out: '/shared/ckpt/step-5/rank-3.pt'",
         "TimeoutError: [Errno 110] Connection timed out",
         "errno of network file systems: ETIMEDOUT of a path, ENOLCK, EFAULT",
         literals=("[errno 110]", "[errno 37]", "no locks available", "[errno 14]"), supersedes=EXCEPTIONS),
    Rule("nfs-not-responding", r"nfs: server \S{1,120} not responding, timed out|NFS: .{0,80}error -(?:5|110|116|121)\b|"
         r"nfs4_reclaim_open_state|NFS: state manager: .{0,80}failed", F.STORAGE, 0.8, "nobody",
         "nfs: server nfs-3.cluster not responding, timed out",
         "nfs: server nfs-3.cluster OK",
         "Linux NFS client; servers that answer again are observed", literals=("nfs",)),
    Rule("lustre-evicted",
         r"Lustre(?:Error)?: .{0,200}(?:This client was evicted|was evicted by)|LustreError: .{0,200}(?:failed with -(?:5|28|30|107|108|122)"
         r"\b|rc = -(?:5|28|30|107|108|122)\b|timed out for slow reply)|LustreError: .{0,200}(?:operation \w+ .{0,80}failed)",
         F.STORAGE, 0.8, "node",
         "LustreError: 167-0: scratch-MDT0000-mdc-ffff8: This client was evicted by scratch-MDT0000; in "
         "progress operations using this service will fail.",
         "Lustre: Mounted scratch-client",
         "Lustre client", literals=("lustre",)),
    Rule("cluster-filesystem",
         r"mmfs(?:d|d64)?\b.{0,120}(?:\[E\]|\[X\]|unmounted by the system|SGPanic|Disk lease|expelled)|"
         r"\b6027-\d{3,4}\b.{0,120}(?:\[E\]|\[X\]|panic|unmount|expel|failed)|"
         r"(?i:\b(?:beegfs|wekafs|weka|juicefs|gpfs|cephfs|glusterfs|alluxio|3fs|vastnfs)\b.{0,120}(?:communication error|i/o error|hung|"
         r"not responding|timed out|unable to proceed|disconnected|panic|slow operation|no quorum))", F.STORAGE, 0.8, "nobody",
         "mmfs: [X] File System fs1 unmounted by the system with return code 217 reason code 0",
         "mmfs: [N] mounted fs1",
         "GPFS, BeeGFS, WekaFS, JuiceFS and others",
         literals=("mmfs", "6027-", "beegfs", "weka", "juicefs", "gpfs", "cephfs", "glusterfs", "alluxio", "3fs", "vastnfs")),
    Rule("block-device-error",
         r"(?:blk_update_request: )?(?:critical (?:medium|target|space allocation)|I/O) error, dev \w+, sector \d+|"
         r"nvme\d*(?:n\d+)?: .{0,60}(?:controller is down|I/O .{0,20}timeout|Removing after probe failure|Device not ready|"
         r"I/O Cmd.{0,60}Error)|Buffer I/O error on dev|Sense Key : (?:Medium|Hardware) Error|"
         r"ata\d+\.\d\d: failed command: ", F.STORAGE, 0.85, "node",
         "blk_update_request: I/O error, dev nvme0n1, sector 123456 op 0x0:(READ)",
         "nvme nvme0: 64/0/0 default/read/poll queues",
         "Linux block layer",
         literals=("error, dev", "nvme", "buffer i/o error", "sense key", "failed command")),
    Rule("mount-failed",
         r"(?:Mount(?:Volume|Device)\.\w{1,20} failed for volume|AttachVolume\.\w{1,20} failed|Unable to attach or mount volumes|"
         r"mount\.(?:nfs|lustre|cifs|ceph|gcsfuse|s3fs)\w{0,4}: |Multi-Attach error for volume|"
         r"not found in the list of registered CSI drivers|FailedAttachVolume|FailedMount\b)"
         r"(?!.{0,200}(?:(?:configmap|secret) \"[^\"]{1,100}\" not found|failed to sync|not registered))", F.STORAGE,
         0.8, "node",
         "MountVolume.SetUp failed for volume \"data\" : mount failed: exit status 32",
         "MountVolume.SetUp succeeded for volume",
         "kubelet events", literals=("mount", "attachvolume", "multi-attach", "csi drivers")),
    Rule("filesystem-error",
         r"(?:EXT4-fs error|XFS \(\w[\w-]*\): .{0,80}(?:Shutting down filesystem|metadata I/O error|log I/O error|Corruption)|"
         r"BTRFS (?:error|critical)|JBD2: .{0,60}[Ee]rror|Aborting journal on device|"
         r"ZFS: .{0,80}(?:suspended|uncorrectable)|Pool '\S{1,60}' has encountered an uncorrectable I/O failure)", F.STORAGE, 0.88,
         "node",
         "EXT4-fs error (device nvme0n1p2): ext4_find_entry:1455: inode #524288: comm python: reading "
         "directory lblock 0",
         "EXT4-fs (md127p3): re-mounted r/w. Quota mode: none.",
         "Linux file systems",
         literals=("btrfs critical", "btrfs error", "ext4-fs error", "xfs (", "jbd2: ", "aborting journal", "zfs: ", "pool '")),
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
    Rule("save-failed",
         r"(?i)\b(?:failed to|unable to|error|error when|error while|could not|cannot) (?:sav(?:e|ing)|writ(?:e|ing)|upload(?:ing)?|"
         r"persist(?:ing)?) .{0,40}(?:checkpoint|snapshot|model state)|(?:checkpoint|snapshot)\w{0,3} (?:save|write|upload) "
         r"(?:has )?failed", F.STORAGE, 0.5, "nobody",
         "ERROR Failed to save checkpoint at step 5000",
         "checkpoint saved; 0 failed",
         "trainers; the reason often stands beside it", literals=("checkpoint", "snapshot", "model state")),
)  # fmt: skip
