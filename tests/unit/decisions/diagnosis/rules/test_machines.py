"""Lines that machines print about themselves: what class a single line of a log makes, and whom it blames."""

# ruff: noqa: E501 - lines that programs print stay whole
from __future__ import annotations

import pytest

from flows.decisions.diagnosis.diagnose import Diagnosis, diagnose
from flows.decisions.diagnosis.selection import evidence_of


def read(text: str, name: str = "run.log") -> Diagnosis:
    return diagnose(evidence_of([(name, text.split("\n"))]))


GPU_HARDWARE = """
[ 4254.197860] NVRM: Xid (PCI:0000:5d:00): 79, pid=1234, GPU has fallen off the bus.
NVRM: Xid (0000:02:00): 79, GPU has fallen off the bus.
NVRM: Xid (PCI:0000:10:1c): 63, pid=1850, Row Remapper: New row marked for remapping, reset gpu to activate
NVRM: Xid (PCI:0000:c5:00): 145, RLW_SRC_TRACK Fatal XC1 i0 Link 17 (0x04084507 0x00000004)
NVRM: Xid (PCI:0000:dc:00): 45, pid=1818990, name=python3, Ch 00000001 caused by previous Xid 149
I0810 15:36:05.551834 1 health.go:169] XidCriticalError: Xid=48 on Device=GPU-455e672a; marking device as unhealthy.
{"checkName":"SysLogsXIDError","isFatal":true,"message":"x","errorCode":["79"],"nodeName":"gpu-7"}
ErrorCode:95 PCI:0002:00:00 GPU_UUID:GPU-222 kernel: NVRM: Xid (PCI:0002:00:00): 95, pid=1, Uncontained ECC error.
[gpu-health] [CRITICAL] GPU-1b2c: XID: NVRM: Xid (PCI:0000:c5:00): 95, pid=1, name=python, Uncontained: FBHUB
Detected XID 79 for GPU 3 Please consult the documentation for details of this XID.
DCGM_FI_DEV_XID_ERRORS{gpu="2",UUID="GPU-1",device="nvidia2",Hostname="gpu-03"} 79
DCGM_FI_DEV_ROW_REMAP_FAILURE{gpu="3",UUID="GPU-d",device="nvidia3",Hostname="gpu-07"} 1
nvidia-smi: Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost.  Reboot the system to recover it
slurmstepd: error: NVML: Failed to get usage(15): GPU is lost
NCCL WARN Cuda failure 'uncorrectable ECC error encountered'
CUDA_ERROR_ECC_UNCORRECTABLE: uncorrectable ECC error encountered
OSError: (External) CUDA error(214), uncorrectable ECC error encountered.
|ERR!   ERR! ERR!    ERR! / 250W |      8MiB / 81559MiB |    ERR!      Default |
        Remapping Failure Occurred        : Yes
        Pending                           : Yes
            SRAM Uncorrectable            : 12
nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 22013, Fatal, Link 12 nvlink
nvidia-nvswitch0: SXid (PCI:0000:06:00.0): 23001, Link 30 ingress
GPU 3's NvLink link 5 is currently down
[126748.505383] amdgpu 0000:e6:00.0: {1}uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!
amdgpu 0000:c6:00.0: amdgpu: socket: 1, die: 0, 3 new uncorrectable hardware errors detected in umc block
[500967.587615] amdgpu 0000:4e:00.0: {1}[Hardware Error]: aca entry[00].STATUS=0xfaa00000000d080b
RuntimeError: HIP error: uncorrectable ECC error encountered
error: gres/gpu count reported lower than configured (7 < 8)
ERROR:  nhc:  Health check failed:  check_gpu_count: Unexpected number of GPUs detected (expected 8)
GPU 2 had uncorrectable memory errors and 3 rows were remapped
nvidia 0000:b3:00.0: Unable to change power state from D3cold to D0, device inaccessible
pcieport 0000:60:01.0: pciehp: Slot(33): Link Down
WARNING: infoROM is corrupted at gpu 0000:65:00.0
"""
GPU_DRIVER = """
NVRM: Xid (PCI:0000:18:00): 119, pid=2512, name=nvidia-smi, Timeout after 6s of waiting for RPC response from GPU0 GSP!
NVRM: Xid (PCI:0000:c1:00): 109, pid=1797828, name=pt_main_thread, Ch 00000008, errorString CTX SWITCH TIMEOUT
NVRM: Xid (PCI:0000:3b:00): 32, pid=2178, name=python, Channel ID 00000008 intr0 00040000
NVRM: API mismatch: the client has the version 550.54.15, but
Failed to initialize NVML: Driver/library version mismatch
No devices were found
RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized
RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 804: forward compatibility was attempted on non supported HW
/t/cuda/__init__.py:80: UserWarning: CUDA initialization: Unexpected error from cudaGetDeviceCount(). Error 802: system n
OSError: (External) CUDA error(719), unspecified launch failure.
RuntimeError: The NVIDIA driver on your system is too old (found version 11040).
docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].
failed call to cuInit: CUDA_ERROR_UNKNOWN: unknown error
amdgpu 0000:03:00.0: amdgpu: ring comp_1.1.1 timeout, signaled seq=7091, emitted seq=7093
HW Exception by GPU node-3 (Agent handle: 0x55c1) reason :GPU Hang
ROCk module is NOT loaded, possibly no GPU devices
modprobe: ERROR: could not insert 'nvidia': No such device
nvidia-fabricmanager.service: Failed with result 'exit-code'.
RuntimeError: cuda runtime error (30) : unknown error at /pytorch/aten/src/THC/THCGeneral.cpp:50
"""
USER_CODE = """
RuntimeError: CUDA error: an illegal memory access was encountered
HPL ERROR: CUDART Error: cudaMemcpyAsync() = 700 (an illegal memory access was encountered) on gpu46
Indexing.cu:1290: indexSelectLargeIndex: block: [12,0,0], thread: [64,0,0] Assertion `src < dim` failed.
RuntimeError: cuda runtime error (59) : device-side assert triggered at /pytorch/aten/src/THC/generic/THCTensorMath.cu:26
RuntimeError: HIP error: an illegal memory access was encountered
NVRM: Xid (PCI:0000:cb:00): 31, pid=12345, name=python, Ch 00000010, intr 00000000. MMU Fault: ENGINE GRAPHICS
"""
GPU_OOM = """
RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 10.76 GiB total capacity; 9.76 GiB already allocated)
RuntimeError: cuda runtime error (2) : out of memory at /pytorch/aten/src/THC/THCCachingHostAllocator.cpp:278
NCCL WARN Cuda failure 2 'out of memory'
ResourceExhaustedError: OOM when allocating tensor with shape[8,509] and type float on /device:GPU:0 by allocator GPU_0_bfc
XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating 4294967296 bytes.
XlaRuntimeError: RESOURCE_EXHAUSTED: Attempting to reserve 10.50G at the bottom of memory. That was not possible.
RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm. Used 17.16G of 15.48G hbm.
RuntimeError: HIP out of memory. Tried to allocate 256.00 MiB (GPU 0; 15.98 GiB total capacity)
ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing.
RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`
Out of memory error on GPU 0. Cannot allocate 1.562500GB memory on GPU 0, 31.5GB memory has been allocated
mxnet.base.MXNetError: src/storage/./pooled_storage_manager.h:157: cudaMalloc failed: out of memory
MemoryError: std::bad_alloc: out_of_memory: CUDA error at: /include/rmm/mr/device/cuda_memory_resource.hpp
failed to allocate 15.78G (16945512448 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory
"""
HOST_OOM = """
Out of memory: Killed process 7899 (python) total-vm:26184840kB, anon-rss:15370088kB
[2612362.2] python invoked oom-killer: gfp_mask=0x14000c0(GFP_KERNEL), nodemask=(null), order=0, oom_score_adj=829
slurmstepd: error: Detected 1 oom-kill event(s) in StepId=191.batch cgroup. Some of your processes may have been killed
srun: error: gpu001: task 0: Out Of Memory
slurmstepd: error: Job 52 exceeded memory limit (10485760 > 4194304), being killed
(raylet) 2 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers crashed due to other reasons
RuntimeError: DataLoader worker (pid 12847) is killed by signal: Killed.
RuntimeError: unable to mmap 4096 bytes from file </torch_1_2>: Cannot allocate memory (12)
terminate called after throwing an instance of 'std::bad_alloc'
RuntimeError: [enforce fail at CPUAllocator.cpp:64] . DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes.
ResourceExhaustedError: OOM when allocating tensor with shape[1000,1000] on /job:localhost/device:CPU:0 by allocator cpu
systemd[1]: train.service: Failed with result 'oom-kill'.
earlyoom: sending SIGTERM to process 2344 uid 1000 "python": badness 905, VmRSS 47012 MiB
misc/shmutils.cc:72 NCCL WARN Error: failed to extend /dev/shm/nccl-8YJ2Yf to 9637892 bytes
OSError: [Errno 28] No space left on device: '/dev/shm/torch_123'
Container [pid=4121,containerID=c_1] is running beyond physical memory limits. Killing container.
The replica workerpool0-0 ran out-of-memory and exited with a non-zero status of 9(SIGKILL).
OOMKilled (exit code 137)
"""
PROCESS_KILLED = """
command terminated with exit code 137
      Exit Code:    137
time="2024-02-21T09:31:59Z" level=info msg="Pod: train.llama-worker-3 exited with code 137"
Process finished with exit code 137 (interrupted by signal 9: SIGKILL)
/var/spool/slurmd/job00191/slurm_script: line 28:  8156 Killed                  python3 main.py
[1]    12345 killed     python train.py
systemd[1]: train.service: Main process exited, code=killed, status=9/KILL
A worker died or was killed while executing a task by an unexpected system error.
mpirun noticed that process rank 0 with PID 12345 on node gpu-1 exited on signal 9 (Killed).
=   KILLED BY SIGNAL: 9 (Killed)
ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: -11) local_rank: 0 (pid: 2410412) of binary: python
Segmentation fault (core dumped)
BrokenProcessPool: A process in the process pool was terminated abruptly while the future was running or pending.
"""
NODE_LOST = """
slurmctld: error: Nodes gpu-[03-04] not responding, setting DOWN
error: Node gpu-07 unexpectedly rebooted boot_time=1746086400 last response=1746086000
The node with node id: 75b2eec8a61c and ip: 10.4.4.107 has been marked dead because the detector has missed heartbeats
ray.exceptions.ActorDiedError: The actor is dead because its node has died. Node Id: 75b2
ssh: connect to host gpu-07 port 22: No route to host
Kernel panic - not syncing: Fatal exception in interrupt
Instance gpu-3 terminated due to compute.instances.hostError
Container released on a *lost* node
JobId=4711 JobState=NODE_FAIL Reason=NodeDown
EC2 has detected degradation of the underlying hardware hosting your Amazon EC2 instance
Taints:             node.kubernetes.io/unreachable:NoExecute
"""
THERMAL_POWER = """
            HW Power Brake Slowdown           : Active
            GPU T.Limit Temp                  : -6 C
Detected clock throttling due to power violation in GPU 3.
amdgpu 0000:83:00.0: amdgpu: WARN: GPU thermal throttling temperature reached, expect performance decrease. HOTSPOT.
NVRM: Xid (PCI:0000:17:00): 54, pid='<unknown>', name=<unknown>, Auxiliary power is not connected
NVRM: GPU 0000:01:00.0: GPU does not have the necessary power cables connected.
thermal thermal_zone0: critical temperature reached, shutting down
GPU[0]          : Temperature (Sensor junction) (C): 108.0
 1 | 03/14/2025 | 02:13:02 | Temperature GPU3 Temp | Upper Non-recoverable going high | Asserted
 2 | 03/14/2025 | 02:13:05 | Power Supply PSU2 Status | Power Supply AC lost | Asserted
"""
NONE = """
            HW Thermal Slowdown           : Not Active
            SW Power Cap                  : Active
| N/A   34C    P0    61W / 300W |      0MiB / 32510MiB |      0%      Default |
            DRAM Uncorrectable            : 0
        Remapping Failure Occurred        : No
Ignoring the following XIDs for health checks: map[13:true 31:true 43:true 45:true 68:true]
DCGM_FI_DEV_XID_ERRORS{gpu="2",UUID="GPU-1",device="nvidia2",Hostname="gpu-03"} 0
  MemoryPressure   False   Tue, 04 Mar 2025 10:00:00 +0000   KubeletHasSufficientMemory   sufficient memory available
             node.kubernetes.io/unreachable:NoExecute op=Exists for 300s
PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid out of memory
bfc_allocator.cc:245] Allocator (GPU_0_bfc) ran out of memory trying to allocate 2.0GiB. The caller indicates that this is not a failure
amdgpu 0000:c6:00.0: amdgpu: 3 correctable hardware errors detected in total in umc block
nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20009, Non-fatal, Link 32 RX Short Error Rate
NVRM: Xid (PCI:0000:3b:00): 93, pid='<unknown>', name=<unknown>, Non-fatal violation of provisioned InfoROM wear limit
mce: CPU12: Package temperature/speed normal
GPU Recovery Action                    : None
epoch 006:   1000 / 2934 loss=4.144, nll_loss=2.493, oom=0.000, wall=2661
tcmalloc: large alloc 3221225472 bytes == 0x55d0c0000 @
Node gpu-7 status is now: NodeReady
the process exited with code 0
[    0.000000] Linux version 5.15.0-1042-nvidia (buildd@lcy02) (gcc) #42
"""
TABLE = [
    (name.lower(), line)
    for name, lines in sorted(globals().items())
    if name.isupper() and isinstance(lines, str)
    for line in lines.strip("\n").split("\n")
]


@pytest.mark.parametrize(("wanted", "line"), TABLE)
def test_a_single_line_tells_its_class(wanted: str, line: str) -> None:
    found = read(line)
    assert found.fault_class.value == wanted, found


BLAMED = {
    "[03:20:11] error: Nodes gpu-c-07 not responding, setting DOWN\nrequeue job JobId=8 due to failure of node gpu-c-07": "gpu-c-07",
    "srun: error: Node failure on gpu-b12\nslurmstepd: error: *** STEP 7.0 ON gpu-b11 CANCELLED AT 2025-01-19T05:16:40 "
    "DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***": "gpu-b12",
    "REASON               USER      TIMESTAMP           NODELIST\n"
    "Node unexpectedly re root      2021-03-05T11:35:16 eureka": "eureka",
    "compute001      1     main*       down*   12   12:1:1  64267        0      1   (null) Not responding": "compute001",
    "5m  Warning  XidCriticalError  node/gpu-a-03  Xid=79 on Device=GPU-455e672a": "gpu-a-03",
    '{"checkName":"SysLogsXIDError","errorCode":["79"],"message":"' + "x" * 500 + '","nodeName":"ip-10-1-2-3"}': "ip-10-1-2-3",
    'DCGM_FI_DEV_ROW_REMAP_FAILURE{gpu="3",UUID="GPU-d",Hostname="gpu-07"} 1': "gpu-07",
    "sched: Allocate JobId=127441 NodeList=c014 #CPUs=2 Partition=gpu\n_job_complete: JobId=127441 WTERMSIG 9": "c014",
    "The node with node id: 75b2eec8a61c and ip: 10.4.4.107 has been marked dead because heartbeats were missed": "10.4.4.107",
}  # fmt: skip


@pytest.mark.parametrize("text", BLAMED)
def test_a_line_that_names_a_node_blames_it(text: str) -> None:
    assert read(text).culprits == ((BLAMED[text], None),)
