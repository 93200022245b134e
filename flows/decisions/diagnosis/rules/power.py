"""Heat and power: drivers' throttling, DCGM's clock events, sensors of the machine."""

from __future__ import annotations

from flows.decisions.diagnosis.clues import Rule
from profiles.vocabulary import FaultClass

F = FaultClass
COOLING = "look at fans, air flow, thermal paste and the power supply of the node"

RULES: tuple[Rule, ...] = (
    Rule("nvidia-thermal",
         r"(?:HW Thermal Slowdown|HW Power Brake Slowdown|HW Slowdown|SW Thermal Slowdown)\s{0,30}: Active|"
         r"GPU has reached its (?:slowdown|shutdown) temperature|GPU T\.Limit Temp\s{0,30}: -\d|"
         r"(?i:gpu .{0,60}\b(?:hw|hardware|thermal) (?:thermal )?(?:slowdown|throttl(?:e|ed|ing)) (?:is )?(?:active|detected|engaged))|"
         r"hw_(?:thermal_|power_brake_)?slowdown[\"']?[ :=]{1,3}(?:Active|true|1\b)", F.THERMAL_POWER, 0.8,
         "node",
         "GPU 00000000:3B:00.0: HW Thermal Slowdown : Active",
         "            HW Thermal Slowdown           : Not Active",
         "nvidia-smi -q clocks event reasons", supersedes=("straggler", "hang"), vendor="nvidia", advice=COOLING),
    Rule("gpu-temperature",
         r"GPU Current Temp\s{0,30}: (?:9[2-9]|1[0-3]\d) C|Memory Current Temp\s{0,30}: (?:10[5-9]|1[1-3]\d) C|"
         r"^\|\s{1,5}(?:\d{1,3}%|N/A|ERR!)\s{1,6}(?:9[1-9]|1[0-2]\d)C\s{1,6}P\d{1,2}\s{1,8}\d{1,4}W / |"
         r"Temperature \(Sensor (?:junction|edge|memory|hotspot)\) \(C\): (?:10[5-9]|1[1-3]\d)|"
         r"DCGM_FI_DEV_GPU_TEMP\{[^}]{0,900}\} (?:9[2-9]|1[0-3]\d)\b", F.THERMAL_POWER, 0.6, "node",
         "| 87%   94C    P2   148W / 250W |  11021MiB / 12288MiB |     97%      Default |",
         "| 30%   74C    P2   248W / 250W |  11021MiB / 12288MiB |     97%      Default |",
         "nvidia-smi, rocm-smi, DCGM exporter: beyond where cards begin to slow down", advice=COOLING),
    Rule("dcgm-thermal",
         r"(?i:due to thermal violation in GPU)|\bThermal violations totaling|DCGM_FR_(?:CLOCKS?_(?:EVENT|THROTTLE)_THERMAL|THERMAL_VIOLATIONS|"
         r"TEMP_VIOLATION)|Temperature \d+ of GPU \d+ exceeded user-specified maximum|in health system Thermal\b|"
         r"NvidiaThermal(?:Error|Warning)|GpuThermal(?:Margin)?Watch(?!.{0,200}\"isHealthy\": ?true)", F.THERMAL_POWER, 0.88, "node",
         "Detected a WARNING in health system Thermal: 'Detected clocks event due to thermal violation in GPU 2.",
         "health system Power: ok",
         "DCGM health watches and diagnostics", supersedes=("dcgm-diag-failed", "dcgm-diag-row", "straggler"),
         vendor="nvidia", advice=COOLING),
    Rule("dcgm-power",
         r"(?i:due to power violation in GPU)|DCGM_FR_(?:CLOCKS?_(?:EVENT|THROTTLE)_POWER|POWER_UNREADABLE|TARGET_POWER)|in health system Power\b(?!: ok)|"
         r"NvidiaPower(?:Error|Warning)|GpuPowerWatchIsNotHealthy|[Pp]ower brake (?:event|asserted|engaged|is active)|GPU does not have the necessary power cables|"
         r"(?i:auxiliary power (?:is )?not connected)|Clocks are being throttled for GPU \d", F.THERMAL_POWER, 0.8, "node",
         "NVRM: GPU 0000:01:00.0: GPU does not have the necessary power cables connected.",
         "power limit 700 W",
         "DCGM health watches, NVIDIA kernel driver", supersedes=("nvrm-init-failed", "gpu_driver"), vendor="nvidia",
         advice="look at the power cables and supplies of the node"),
    Rule("amdgpu-thermal",
         r"amdgpu.{0,60}(?:over[- ]temperature|thermal throttl|Temperature over limit|CTF shutdown|HW thermal CTF|GPU over temperature|"
         r"shutdown due to GPU (?:SW|HW) CTF|under temperature range)|gpu_violation_(?:hbm|socket|vr)_?thermal\w{0,40}\{[^}]{0,900}\} [1-9]",
         F.THERMAL_POWER, 0.88, "node",
         "amdgpu 0000:63:00.0: amdgpu: ERROR: GPU over temperature range(SW CTF) detected!",
         "amdgpu 0000:63:00.0: amdgpu: temperature 55",
         "amdgpu swsmu", supersedes=("reboot", "node_lost", "straggler"), vendor="amd", advice=COOLING),
    Rule("amdgpu-throttled", r"amdgpu.{0,40}WARN: GPU is throttled", F.THERMAL_POWER, 0.55, "node",
         "amdgpu 0000:63:00.0: amdgpu: WARN: GPU is throttled, expect performance decrease. hbm thermal.",
         "amdgpu 0000:63:00.0: amdgpu: GPU is not throttled",
         "amdgpu swsmu: heat, power or current", vendor="amd", advice=COOLING),
    Rule("critical-temperature",
         r"(?i)critical temp(?:erature)? reached|HARDWARE PROTECTION shutdown|(?:thermal|temperature).{0,60}shutting down|temperature .{0,60}upper (?:critical|non-recoverable)|"
         r"\bthermal trip\b(?!.{0,20}(?:not|disabled))|inlet temperature is (?:greater|above)|temperature.{0,40}\bgoing high\b.{0,20}assert|upper (?:critical|non-recoverable) going high \| asserted|"
         r"overheat(?:ed|ing)?\b.{0,60}(?:shut|power|emergency|protect|detected)", F.THERMAL_POWER, 0.85, "node",
         "thermal thermal_zone0: critical temperature reached, shutting down",
         "critical temperature is 105 C",
         "Linux thermal core, ACPI, baseboard controllers",
         supersedes=("reboot", "node_lost", "process_killed", "collective_timeout"), advice=COOLING),
    Rule("power-supply",
         r"(?i)power supply\W.{0,80}(?:failure detected|ac lost|input lost|predictive failure|redundancy lost)|\bPSU ?\d?.{0,40}(?:fail(?:ed|ure)|AC lost|input lost)|"
         r"power unit.{0,60}(?:power off|ac lost|failure)|\bVRM? over ?(?:temperature|current)|"
         r"(?:unexpected|sudden|emergency) power (?:loss|off)|power failure on (?:rack|pdu|feed)", F.THERMAL_POWER, 0.78, "node",
         "Power Supply PS2 Status | Failure detected | Asserted",
         "Power Supply PS2 Status | Presence detected | Asserted",
         "baseboard controllers", supersedes=("node_lost", "process_killed", "collective_timeout"),
         advice="look at the power cables and supplies of the node"),
    Rule("cpu-thermal", r"(?:CPU\d+: (?:Package|Core) temperature(?: is)? above threshold, cpu clock (?:is )?throttled|"
         r"mce: CPU\d+: (?:Package|Core) temperature(?: is)? above)", F.THERMAL_POWER, 0.45, "node",
         "mce: CPU12: Package temperature above threshold, cpu clock throttled (total events = 3)",
         "mce: CPU12: Package temperature/speed normal",
         "Linux therm_throt", advice=COOLING),
    Rule("throttling-said",
         r"(?i)\bGPU\b.{0,30}temperature\b.{0,30}(?:exceed\w{0,3}|above) .{0,20}(?:slowdown|limit|threshold)|"
         r"temperature .{0,20}throttling (?:detected|active)|\bGPU\b.{0,20}power[- ]capped at \d|\bthermal(?:ly)? throttl(?:ed|ing) (?:detected|active|on gpu)",
         F.THERMAL_POWER, 0.7, "node",
         "WARNING: GPU 5 temperature 95C, throttling detected",
         "GPU 5 temperature 61C, slowdown threshold 92C",
         "monitors beside trainers", fallback=True, advice=COOLING),
    Rule("slot-underpowered", r"Detected insufficient power on the PCIe slot", F.THERMAL_POWER, 0.45, "node",
         "mlx5_core 0000:5c:00.0: mlx5_pcie_event:299:(pid 268269): Detected insufficient power on the PCIe slot (27W).",
         "mlx5_core 0000:5c:00.0: PCIe slot advertised sufficient power (75W).",
         "Linux mlx5_core", advice="look at the slot, the riser and the power limit in the firmware"),
)  # fmt: skip
