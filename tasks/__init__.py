"""Every touch of the outside world, as Prefect tasks behind one seam."""
