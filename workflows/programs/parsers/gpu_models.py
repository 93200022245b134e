"""What models of GPUs do not have: where a tool prints N/A for that, it tells all there is, and nothing is wrong.

A row names models as the vendor's tool prints them, and the quantities that they lack. A model that no row names has
everything: its N/A is unknown. So is that of a model which has it and does not tell (memory correction switched off, a
driver without the right to ask).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Tuple

CONSUMER = r"GeForce|TITAN|\bGTX\b"
WORKSTATION = r"Quadro|\bRTX\b"
GRAPHICS_MEMORY = r"\b(?:T4G?|T10|A2|A10[GM]?|A16|A40|L2|L4|L20|L40[SG]?)\b"
"""Cards of data centres with GDDR memory."""
BEFORE_AMPERE = r"\b(?:K[0-9]{2}|M[0-9]{2}|P4|P6|P40|P100|G?V100S?|T4G?|T10)\b"
AMPERE = r"\b(?:A2|A10[GM]?|A16|A30X?|A40|A100X?|A800)\b|\bRTX A[0-9]{4}"
ON_A_CARD = r"\b[ABH][0-9]{3}\b.{0,20}\b(?:PCIe|NVL)\b"
"""Modules of NVSwitch boards that are sold as cards too."""
LINKLESS = r"\b(?:P4|P40|T4G?|T10|A2|A10[GM]?|A16|L2|L4|L20|L40[SG]?)\b|\bRTX (?:PRO|[0-9]{4} Ada)"
RADEON = r"Radeon"
BEFORE_MI300 = r"\bMI(?:25|50|60|100|2[0-9]{2}X?)\b"


@dataclass(frozen=True)
class Lack:
    """What some models do not have."""

    models: str
    """Searched for in the product's name."""
    quantities: Tuple[str, ...]
    source: str


LACKS: Tuple[Lack, ...] = (
    Lack(
        "|".join((CONSUMER, WORKSTATION, GRAPHICS_MEMORY, BEFORE_AMPERE)),
        ("row_remap_pending", "row_remap_failure", "rows_remapped_correctable", "rows_remapped_uncorrectable"),
        "NVIDIA's memory error management: row remapping is that of HBM from A100 on; nvidia-smi of A10, L4 and T4",
    ),
    Lack(
        CONSUMER,
        (
            *("ecc_correctable", "ecc_uncorrectable", "ecc_correctable_lifetime", "ecc_uncorrectable_lifetime"),
            *("ecc_mode", "sram_threshold_exceeded", "gpu_replacement_needed"),
        ),
        "NVML: cards for games correct no memory errors",
    ),
    Lack(
        "|".join((CONSUMER, WORKSTATION, GRAPHICS_MEMORY, BEFORE_AMPERE, AMPERE, ON_A_CARD)),
        ("fabric_state", "fabric_status"),
        "NVML: only GPUs behind the NVSwitch of Hopper and later register with a fabric",
    ),
    Lack(
        "|".join((CONSUMER, BEFORE_AMPERE, AMPERE, r"Quadro")),
        ("gpu_temperature_margin",),
        "nvidia-smi: the margin to the slowdown limit is told from Ada and Hopper on",
    ),
    Lack(
        "|".join(
            (CONSUMER, r"\b(?:P4|P40|T4G?|T10|A2|A10[GM]?|A16|L2|L4|L20|L40[SG]?)\b", r"\bRTX (?:PRO|\w{1,8} Ada)")
        ),
        ("nvlink_state", "nvlink_speed", "nvlink_errors"),
        "NVIDIA's data sheets: these cards have no NVLink",
    ),
    Lack(
        f"{BEFORE_MI300}|{RADEON}",
        (
            *("throttle_prochot", "throttle_processor_hot", "throttle_socket_thermal", "throttle_vr_thermal"),
            *("throttle_hbm_thermal", "throttle_ppt", "throttle_status", "ecc_deferred"),
        ),
        "amd-smi: violations and deferred errors are told from MI300 on",
    ),
    Lack(
        RADEON,
        (
            *("ecc_correctable", "ecc_uncorrectable", "bad_pages_pending", "bad_pages_retired"),
            *("bad_pages_unreservable", "xgmi_links_down", "xgmi_links_up"),
        ),
        "amd-smi: cards for desktops have neither RAS nor xGMI",
    ),
)


@lru_cache(maxsize=4096)
def lacks(model: str, quantity: str) -> bool:
    """Whether GPUs of this product name do not have what the quantity tells of."""
    return any(quantity in row.quantities and re.search(row.models, model, re.IGNORECASE) for row in LACKS)
