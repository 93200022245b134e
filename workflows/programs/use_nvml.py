"""NVIDIA's management library, asked through ctypes: no process is started, no context is opened on a GPU.

Names, types and constants are those of NVML's public header (API version 2 of what has one).
"""

from __future__ import annotations

import contextlib
import ctypes
from typing import Any, Dict, Optional

LIBRARY = "libnvidia-ml.so.1"
SUCCESS = 0
TEMPERATURE_GPU = 0
UNCORRECTED, SINCE_BOOT = 1, 0
"""Kinds of memory errors and of their counters."""
MILLIWATT = 1e-3
MOST_GPUS = 64


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class Library:
    """The library, started.

    Args:
        functions: of the loaded library; each answers 0 where it succeeded.
    """

    def __init__(self, functions: Any) -> None:
        self._functions = functions

    def gpus(self) -> Dict[str, Dict[str, Any]]:
        """Of each GPU, by its number: what it tells; what it refuses is absent."""
        count = ctypes.c_uint(0)
        if not self._did("nvmlDeviceGetCount_v2", ctypes.byref(count)):
            return {}
        found: Dict[str, Dict[str, Any]] = {}
        for index in range(min(count.value, MOST_GPUS)):
            gpu = ctypes.c_void_p()
            if self._did("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(gpu)):
                found[str(index)] = self._gpu(gpu)
        return found

    def _gpu(self, gpu: ctypes.c_void_p) -> Dict[str, Any]:
        told: Dict[str, Any] = {}
        memory, load = _Memory(), _Utilization()
        number, errors = ctypes.c_uint(0), ctypes.c_ulonglong(0)
        if self._did("nvmlDeviceGetMemoryInfo", gpu, ctypes.byref(memory)):
            told.update(memory_bytes=memory.used, memory_limit_bytes=memory.total)
        if self._did("nvmlDeviceGetUtilizationRates", gpu, ctypes.byref(load)):
            told["busy_percent"] = load.gpu
        if self._did("nvmlDeviceGetTemperature", gpu, ctypes.c_uint(TEMPERATURE_GPU), ctypes.byref(number)):
            told["temperature_celsius"] = number.value
        if self._did("nvmlDeviceGetPowerUsage", gpu, ctypes.byref(number)):
            told["power_watts"] = number.value * MILLIWATT
        kinds = (ctypes.c_uint(UNCORRECTED), ctypes.c_uint(SINCE_BOOT))
        if self._did("nvmlDeviceGetTotalEccErrors", gpu, *kinds, ctypes.byref(errors)):
            told["uncorrected_errors"] = errors.value
        return told

    def _did(self, name: str, *arguments: Any) -> bool:
        function = getattr(self._functions, name, None)
        return function is not None and bool(function(*arguments) == SUCCESS)


def opened(path: str = LIBRARY) -> Optional[Library]:
    """The library; None: there is none here, or it does not start (no driver)."""
    with contextlib.suppress(OSError, AttributeError):
        functions = ctypes.CDLL(path)
        if functions.nvmlInit_v2() == SUCCESS:
            return Library(functions)
    return None
