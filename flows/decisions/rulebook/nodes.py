"""A node is lost: kubelets, schedulers, clouds, Ray and launchers that no longer hear of it, and kernels that die.

Where a line names the node (group `peer`), that one is blamed and not the one that printed it.
"""

from __future__ import annotations

from flows.decisions.rules import Rule
from profiles.vocabulary import FaultClass

F = FaultClass
LEFT_BEHIND = ("process_killed", "collective_timeout", "slurm-step-terminated", "rendezvous", "unknown")
"""What everybody else prints when a node is gone."""
NAME = r"(?P<peer>[A-Za-z0-9][\w.\[\],-]{0,120})"

RULES: tuple[Rule, ...] = (
    Rule("node-tainted-unreachable", r"\bnode\.kubernetes\.io/(?:unreachable|out-of-service)(?:=\S{0,40})?:No(?:Execute|Schedule) *$|"
         r"had (?:untolerated )?taint.{0,4}\{node\.kubernetes\.io/unreachable", F.NODE_LOST, 0.7, "node",
         "Taints:             node.kubernetes.io/unreachable:NoExecute",
         "Tolerations:                 node.kubernetes.io/unreachable:NoExecute op=Exists for 300s",
         "kubectl describe node", literals=("node.kubernetes.io", "{node.kubernetes.i"), supersedes=LEFT_BEHIND),
    Rule("node-rebooted",
         rf"[Nn]ode {NAME} has been rebooted|\bRebooted\b.{{0,80}}\bboot id: |^-- Reboot --$|^-- Boot [0-9a-f]{{32}} --$",
         F.NODE_LOST, 0.75, "node",
         "Warning  Rebooted  2m  kubelet  the machine came up anew, boot id: 9f1f4c3a",
         "boot id unchanged",
         "kubelet, journalctl", literals=("-- boot", "-- reboot --", "rebooted"), supersedes=LEFT_BEHIND),
    Rule("node-removed",
         rf"(?:[Dd]eleting|[Rr]emoving) [Nn]ode {NAME} (?:because it does not exist|from Controller|from NodeController)|"
         rf"event: (?:Removing|Deleting) Node {NAME.replace('peer', 'name')} |\bnode .{{0,80}}not found in the cloud provider",
         F.NODE_LOST, 0.7, "node",
         "error syncing: node not found in the cloud provider",
         "node found",
         "cloud controller manager", literals=("deleting node", "event: deleting no", "event: removing no", "not found in the c", "removing node"), supersedes=LEFT_BEHIND),
    Rule("kubelet-unreachable",
         r"https://(?P<peer>[\w.-]{3,100}):10250/\S{1,200} ?:? ?.{0,40}(?:no route to host|i/o timeout|connection refused)",
         F.NODE_LOST, 0.6, "peer",
         "Error from server: Get \"https://10.0.0.7:10250/containerLogs/train/llama-worker-3/pytorch\": dial tcp 10.0.0.7:10250: connect: no route to host",
         "https://10.0.0.7:10250/metrics answered in 3 ms",
         "API server: the kubelet does not answer", literals=("connection refused", "i/o timeout", "no route to host"), supersedes=("control_plane",)),
    Rule("slurm-node-fail",
         rf"\b[Nn]ode failure on {NAME}|due to failure of node {NAME.replace('peer', 'name')}|on failed node \S|"
         r"DUE TO NODE FAILURE", F.NODE_LOST, 0.93, "peer",
         "slurmstepd: error: *** STEP 4711.0 ON gpu-17 CANCELLED AT 2025-03-01T10:00:00 DUE TO NODE "
         "FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***",
         "slurmstepd: error: *** STEP 4711.0 ON gpu-17 CANCELLED AT 2025-03-01T10:00:00 ***",
         "Slurm: the line's first node is the one that says it, not the one that failed",
         literals=("due to failure of ", "due to node failur", "node failure on", "on failed node"), supersedes=(*LEFT_BEHIND, "preempted")),
    Rule("slurm-state-node-fail", r"\bJobState=NODE_FAIL\b|^State: NODE_FAIL|"
         r"^ {0,12}\d{2,12}\S{0,24}\s.{0,160}\sNODE_FAIL(?:\s|$)|Job_id=\d+ .{0,200}(?:Failed|Ended), .{0,80}NODE_FAIL", F.NODE_LOST, 0.92, "nobody",
         "4711              llama-70b            research        512  NODE_FAIL      1:0",
         "4711              llama-70b            research        512    RUNNING      0:0",
         "sacct, scontrol, seff, Slurm's mails", literals=("node_fail",), supersedes=LEFT_BEHIND),
    Rule("slurm-not-responding",
         rf"[Nn]odes {NAME} not responding|[Nn]ode {NAME.replace('peer', 'name')} not responding|"
         r"\b(?:slurmd|node) .{0,60}not responding, setting DOWN|StepId=\S{1,40} missing from batch node|"
         r"Batch JobId=\d+ missing from (?:batch )?node", F.NODE_LOST, 0.88, "peer",
         "error: Nodes gpu-[03-04] not responding, setting DOWN",
         "Node gpu-03 now responding",
         "slurmctld", literals=("batch jobid=", "missing from batch", "not responding"), supersedes=LEFT_BEHIND),
    Rule("slurm-rebooted", rf"\b[Nn]ode {NAME} unexpectedly rebooted|Reason=(?:Node unexpectedly rebooted|Not responding)|"
         r"Node unexpectedly re(?:booted)?\b", F.NODE_LOST, 0.88, "peer",
         "error: Node gpu-07 unexpectedly rebooted boot_time=1746086400 last response=1746086000",
         "Node gpu-07 rebooted as planned",
         "slurmctld, sinfo -R", literals=("node unexpectedly ", "reason=node unexpe", "reason=not respond", "unexpectedly reboo"), supersedes=LEFT_BEHIND),
    Rule("slurm-reason-row",
         r"^(?:Node unexpectedly re\w{0,8}|Not responding|[Nn]ode (?:failure|down)\w{0,10}) {1,20}\S{1,32} {1,20}(?:\d{4}-\d\d-\d\dT[\d:]{5,8}|Unknown) {1,20}(?P<peer>\S{1,120})$",
         F.NODE_LOST, 0.92, "peer",
         "Node unexpectedly re root      2021-03-05T11:35:16 eureka",
         "REASON               USER      TIMESTAMP           NODELIST",
         "sinfo -R", literals=("node down", "node failure", "node unexpectedly ", "not responding"), supersedes=(*LEFT_BEHIND, "slurm-rebooted")),
    Rule("slurm-row-down", rf"^{NAME} .{{0,160}} (?:down|drain(?:ed|ing)?|fail|unk)\* {{1,10}}.{{0,200}}(?:Not responding|unexpectedly re)",
         F.NODE_LOST, 0.9, "peer",
         "compute001      1     main*       down*   12   12:1:1  64267        0      1   (null) Not responding",
         "compute001      1     main*       idle    12   12:1:1  64267        0      1   (null) none",
         "sinfo -lNe", literals=("not responding", "unexpectedly re"), supersedes=LEFT_BEHIND),
    Rule("slurm-launch-lost",
         rf"srun: error: .{{0,60}}(?:on node|failed on node|launch to) {NAME}: (?:Communication connection failure|.{{0,40}}(?:Host is down|No route to host|"
         r"Connection timed out|Socket timed out))|srun: error: (?:Timed out waiting for|slurm_receive_msgs?: \[)|"
         r"srun: error: Unable to (?:confirm|contact) slurmd", F.NODE_LOST, 0.6, "peer",
         "srun: error: Task launch for StepId=4711.0 failed on node gpu-07: Communication connection failure",
         "srun: error: Unable to allocate resources: Socket timed out",
         "srun", literals=("srun: error:",), supersedes=("slurm-step-terminated", "slurm-launch-failed")),
    Rule("ray-node-dead",
         r"The node with (?:node id|client ID):? (?:[\w<> -]{1,80}?(?: and ip:| and address:) (?P<peer>[\w.:-]{3,60})|[\w<> -]{1,80}).{0,120}"
         r"has been marked dead|"
         r"because (?:its node has died|the node (?:it was running on )?(?:is dead|has died|failed))"
         r"(?:.{0,40}Node IP: (?P<address>[\w.:-]{3,60}\w))?|NodeDiedError|\bRAY_NODE_REMOVED\b|"
         r"mistakenly been marked as dead by the GCS|[Tt]he node (?:where|which|on which) .{0,80}(?:died|crashed|failed)|"
         r"[Oo]wner's node has crashed", F.NODE_LOST, 0.8, "peer",
         "The node with node id: 75b2eec8a61cdafd37cc8072b1caf9abdeef9c4e and ip: 10.4.4.107 has been marked dead because "
         "the detector has missed too many heartbeats from it.",
         "The node with node id: 75b2eec8a61cdafd37cc8072b1caf9abdeef9c4e joined",
         "Ray GCS", literals=("because its node h", "because the node f", "because the node h", "because the node i", "has been marked de", "mistakenly been ma", "nodediederror", "owner's node has c", "ray_node_removed", "the node on which", "the node where", "the node which"), supersedes=("ray-actor-died", "ray-worker-died", "process_killed", "collective_timeout")),
    Rule("agent-lost", r"agent failed while (?:the )?container was running|lost connection to (?:the )?agent|agent .{0,60}did not reconnect",
         F.NODE_LOST, 0.6, "nobody",
         "trial 12 failed: agent failed while container was running",
         "agent gpu-7 connected with 8 slots",
         "Determined", literals=("agent failed while", "did not reconnect", "lost connection to")),
    Rule("ssh-unreachable",
         rf"ssh: connect to host {NAME} port \d{{1,5}}: (?:No route to host|Connection timed out|Host is down|Operation timed out)|"
         r"pdsh@\S{1,80}: \S{1,80}: (?:mcmd: )?connect failed: |Connection to \S{1,100} closed by remote host|\bssh exited with exit code 255",
         F.NODE_LOST, 0.65, "peer",
         "ssh: connect to host gpu-07 port 22: No route to host",
         "ssh: connect to host gpu-07 port 22: Connection refused by the user",
         "OpenSSH, pdsh", literals=(": connect failed:", ": mcmd: connect fa", "closed by remote h", "ssh exited with ex", "ssh: connect to ho"),
         supersedes=("no-route", "connection-refused")),
    Rule("daemon-lost",
         rf"Remote daemon: .{{0,60}} on node {NAME}|(?:ORTE|PRTE) daemon .{{0,40}} on node {NAME.replace('peer', 'name')}.{{0,40}}failed|"
         r"Container released on a \*?lost\*? node|"
         r"ExecutorLostFailure|\b[Nn]ode .{1,80}(?:no heartbeat|heartbeat (?:timed out|timeout))|NO_HEARTBEAT|"
         r"Lost (?:executor|worker) \S{1,40} on |node\(s\) down: ", F.NODE_LOST, 0.65, "peer",
         "Container released on a *lost* node",
         "Remote daemon started",
         "Open MPI, YARN, DLRover, PBS",
         literals=("container released", "executorlostfailur", "heartbeat timed ou", "heartbeat timeout", "lost executor", "lost worker", "no heartbeat", "no_heartbeat", "node(s) down:", "orte daemon", "prte daemon", "remote daemon:"),
         supersedes=("mpi-lost-peer", "process_killed", "collective_timeout")),
    Rule("ansible-unreachable", rf"\[{NAME}\]: UNREACHABLE! =>|\bhost {NAME.replace('peer', 'name')} is unreachable\b", F.NODE_LOST, 0.7, "peer",
         'fatal: [gpu-07]: UNREACHABLE! => {"changed": false, "msg": "Failed to connect to the host via ssh"}',
         "gpu-07 : ok=7 changed=0 unreachable=0 failed=0",
         "Ansible", literals=("]: unreachable! =>", "is unreachable")),
    Rule("cloud-host-error",
         r"compute\.instances\.hostError|(?i:\bhost ?error\b.{0,60}(?:instance|vm|restart|compute)|instance .{0,80}\bhost ?error\b)|"
         r"(?i:degradation of the underlying hardware|(?:instance|system|ec2) status checks? (?:has )?(?:failed|impaired)|"
         r"failed at least one (?:instance|status) check|underlying hardware.{0,40}(?:fail|fault|degrad)|"
         r"(?:VM|virtual machine|instance) .{0,60}(?:unexpectedly (?:stopped|rebooted|terminated)|crashed|became unreachable))",
         F.NODE_LOST, 0.82, "node",
         "Instance terminated by Compute Engine: compute.instances.hostError",
         "status checks passed for the instance",
         "Google, AWS, Azure", literals=("became unreachable", "compute.instances.", "crashed", "degradation of the", "ec2 status check f", "ec2 status check h", "ec2 status check i", "ec2 status checks ", "failed at least on", "host error", "hosterror", "instance status ch", "system status chec", "underlying hardwar", "unexpectedly reboo", "unexpectedly stopp", "unexpectedly termi"),
         supersedes=(*LEFT_BEHIND, "preempted", "gcp-preempted")),
    Rule("kernel-panic",
         r"(?:Kernel panic - not syncing|BUG: unable to handle (?:kernel|page fault)|Oops: \d{4} \[#\d|kernel BUG at \S|"
         r"Fatal (?:machine check|hardware error)|Uhhuh\. NMI received)", F.NODE_LOST,
         0.9, "node",
         "Kernel panic - not syncing: Fatal exception in interrupt",
         "panic button pressed",
         "Linux kernel", literals=("bug: unable to han", "fatal hardware err", "fatal machine chec", "kernel bug at", "kernel panic - not", "oops:", "uhhuh. nmi receive"),
         supersedes=("process_killed", "collective_timeout")),
    Rule("soft-lockup",
         r"(?:watchdog: )?BUG: soft lockup - CPU#\d+ stuck for|rcu:? ?(?:INFO: )?rcu_(?:sched|preempt) (?:self-)?detected (?:expedited )?stalls?|"
         r"(?:NMI watchdog: )?Watchdog detected hard LOCKUP", F.NODE_LOST, 0.6, "node",
         "watchdog: BUG: soft lockup - CPU#12 stuck for 226906s! [kworker/12:1]",
         "lockup of funds",
         "Linux watchdog", literals=("bug: soft lockup -", "nmi watchdog: watc", "rcu info: rcu_pree", "rcu info: rcu_sche", "rcu rcu_preempt de", "rcu rcu_preempt se", "rcu rcu_sched dete", "rcu rcu_sched self", "rcu: info: rcu_pre", "rcu: info: rcu_sch", "rcu: rcu_preempt d", "rcu: rcu_preempt s", "rcu: rcu_sched det", "rcu: rcu_sched sel", "rcu:info: rcu_pree", "rcu:info: rcu_sche", "rcu:rcu_preempt de", "rcu:rcu_preempt se", "rcu:rcu_sched dete", "rcu:rcu_sched self", "rcuinfo: rcu_preem", "rcuinfo: rcu_sched", "rcurcu_preempt det", "rcurcu_preempt sel", "rcurcu_sched detec", "rcurcu_sched self-", "watchdog detected ", "watchdog: bug: sof")),
    Rule("machine-check",
         r"mce: \[Hardware Error\]: (?:CPU \d+: Machine Check(?: Exception)?|Machine check events logged)|"
         r"Uncorrected hardware memory error|\[Hardware Error\]: .{0,40}MC\d+_STATUS\[[^\]]{0,60}\bUC\b|\[Hardware Error\]: CPU:?\d+ .{0,60}Uncorrected",
         F.NODE_LOST, 0.55, "node",
         "mce: [Hardware Error]: CPU 33: Machine Check Exception: 5 Bank 7: be00000000800400",
         "mce: CPU0: Thermal monitoring enabled",
         "Linux mce", literals=("[hardware error]:", "mce: [hardware err", "uncorrected hardwa")),
    Rule("memory-uncorrected",
         r"EDAC .{0,60}\d+ UE |Uncorrected hardware memory error in user-access|Memory failure: 0x[0-9a-f]+: |"
         r"Uncorrectable (?:ECC|memory) error.{0,80}\bDIMM|DIMM.{0,60}[Uu]ncorrectable (?:ECC|memory)",
         F.NODE_LOST, 0.6, "node",
         "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0",
         "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0",
         "Linux EDAC, baseboard controllers: the host's memory is broken", literals=("edac", "memory failure: 0x", "uncorrectable ecc", "uncorrectable memo", "uncorrected hardwa"),
         supersedes=("process_killed", "machine-check")),
    Rule("sinfo-down", r"^\S{1,40} {1,20}up {1,20}\S{1,20} {1,20}\d{1,6} {1,20}down\*? {1,20}(?P<peer>[\w.,\[\]-]{1,200}) *$", F.NODE_LOST, 0.65, "peer",
         "gpu*         up   infinite      1  down* cn17",
         "gpu*         up   infinite      7  alloc cn[10-16]",
         "sinfo", literals=("down",), supersedes=("process_killed", "collective_timeout")),
    Rule("reboot", r"(?:reboot: (?:Restarting system|Power down)|systemd-shutdown\[1\]|"
         r"systemd\[1\]: Reached target .{0,20}(?:Reboot|Power-Off|Shutdown)|^System is (?:powering down|rebooting)|"
         r"systemd-logind(?:\[\d+\])?: (?:System is (?:powering down|rebooting)|The system will (?:reboot|power off) now))", F.NODE_LOST, 0.8, "node",
         "reboot: Restarting system",
         "reboot required",
         "Linux, systemd", literals=("reboot: power down", "reboot: restarting", "system is powering", "system is rebootin", "systemd-logind", "systemd-shutdown[1", "systemd[1]: reache"),
         supersedes=("process_killed", "collective_timeout")),
    Rule("ray-node-told-dead", r"\b[Tt]his node has be(?:en|em) marked (?:as )?dead\b|raylet .{0,80}(?:marked|declared) (?:as )?dead by (?:the )?GCS",
         F.NODE_LOST, 0.8, "node",
         "[2022-02-16 12:46:52,789 C 149 149] node_manager.cc:170: This node has beem marked as dead.",
         "If heartbeat keeps lagging, this node can be marked as dead mistakenly.",
         "Ray's raylet, of itself", literals=("marked as dead", "marked dead", "declared dead", "declared as dead"), supersedes=LEFT_BEHIND),
)  # fmt: skip
