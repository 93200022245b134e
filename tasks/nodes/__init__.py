"""Acts on nodes: marks, holds, cordons, sweeps."""
