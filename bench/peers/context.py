"""What a result was measured with, and where it goes."""

import datetime
import os
import re
import subprocess
import sys
from pathlib import Path


def output_of(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def commit():
    """GREYHOUND_COMMIT, for a copy of the sources without its history; or else what git says."""
    here = Path(__file__).resolve().parent
    return os.environ.get("GREYHOUND_COMMIT") or output_of("git", "-C", str(here), "rev-parse", "HEAD") or "unknown"


def nvidia_smi(fields):
    return output_of("nvidia-smi", "--format=csv,noheader", "--query-gpu=" + fields).split("\n")[0]


def gpu_slug(name):
    """NVIDIA H200 -> h200: the folder under bench/results."""
    name = re.sub(r"^nvidia\s+", "", name.lower())
    return re.sub(r"[^a-z0-9]+", "-", name).strip("-") or "no-gpu"


def processor():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "unknown"


def common():
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "commit": commit(),
        "python": sys.version.split()[0],
        "processor": processor(),
        "cpus": os.cpu_count(),
    }


def device(torch):
    return {
        **common(),
        "gpu": torch.cuda.get_device_name(),
        "driver": nvidia_smi("driver_version") or "unknown",
        "cuda": torch.version.cuda,
        "torch": torch.__version__,
    }


if __name__ == "__main__":
    print(gpu_slug(nvidia_smi("name")))
