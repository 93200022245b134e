"""What a node is made of: one value per GPU model, with the source of each figure."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from profiles.values import Count, EnvironmentName, ObjectName, PositiveCount, Quantity, Text, Value, wrong

Vendor = Literal["amd", "nvidia", "none"]


class Peak(Value):
    """A figure no healthy device can exceed."""

    quantity: Text
    """What is measured, e.g. `bf16_dense`, `hbm_bandwidth`, `gpu_to_gpu_bandwidth`."""
    value: float = Field(gt=0)
    """The figure, in `unit`."""
    unit: Literal["TFLOP/s", "TB/s", "GB/s", "Gb/s", "W"]
    """Unit of `value`."""
    source: Text
    """Where the figure comes from: a data sheet's title or a measurement."""


class HardwareProfile(Value):
    """One kind of node."""

    name: ObjectName
    """Name used in cluster and run profiles, e.g. `mi300x`."""
    vendor: Vendor
    """`none` for nodes without GPUs. One gang never spans vendors."""
    description: str = ""
    """One sentence for people."""
    gpus_per_node: Count
    """GPUs the scheduler sees on one node (MI250X: 8 packages = 16 devices)."""
    gpu_memory_gib: float = Field(default=0.0, ge=0)
    """Memory of one GPU in GiB; 0 without GPUs."""
    resource_name: Literal["amd.com/gpu", "nvidia.com/gpu", ""] = ""
    """Extended resource that counts GPUs; empty without GPUs."""
    nics_per_node: Count = 0
    """Fabric NICs of one node (without the management network); 0: no check looks for one."""
    nic_gbit_per_second: Count = 0
    """Rate of one fabric NIC in Gb/s."""
    nic_resource_name: str = ""
    """Extended resource that counts fabric NICs; empty: none is requested."""
    cpus_per_node: PositiveCount = 1
    """Logical CPUs of one node as shipped by common servers; the cluster profile may say otherwise."""
    memory_per_node: Quantity = "1Gi"
    """Host memory of one node; the cluster profile may say otherwise."""
    peaks: tuple[Peak, ...] = ()
    """Figures nobody can exceed; a limit above a peak is refused."""
    fabric_environment: dict[EnvironmentName, str] = {}
    """Environment variables that the fabric of this hardware needs by default."""
    verified: bool = False
    """True where somebody ran this project on such hardware; shown as "unverified" otherwise."""

    @model_validator(mode="after")
    def _gpus_and_resource_agree(self) -> HardwareProfile:
        expected = {"amd": "amd.com/gpu", "nvidia": "nvidia.com/gpu", "none": ""}[self.vendor]
        if self.resource_name != expected:
            raise wrong("resource_name", f"must be {expected!r} for vendor {self.vendor!r}, got {self.resource_name!r}")
        if (self.gpus_per_node > 0) != (self.vendor != "none"):
            raise wrong("gpus_per_node", f"must be 0 exactly where vendor is none, got {self.gpus_per_node}")
        quantities = [peak.quantity for peak in self.peaks]
        if len(set(quantities)) != len(quantities):
            raise wrong("peaks", "must name each quantity once")
        return self
