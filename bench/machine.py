"""What the figures were measured on."""

import os
import platform
from pathlib import Path


def describe() -> dict[str, str]:
    """Processor, memory, kernel and Python, by name."""
    cpu = [
        line.partition(": ")[2]
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    memory = int(Path("/proc/meminfo").read_text().split()[1]) / 1024 / 1024
    return {
        "processor": cpu[0] if cpu else platform.machine(),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{memory:.0f} GiB",
        "kernel": platform.release(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "load before": f"{os.getloadavg()[0]:.2f}",
    }
