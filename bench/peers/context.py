"""What a result was measured with, and where it goes."""

import datetime
import os
import re
import subprocess
import sys
from pathlib import Path


ROOT = Path(__file__).resolve().parents[2]


def output_of(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def commit():
    """GREYHOUND_COMMIT, for a copy of the sources without its history; or else what git says."""
    return os.environ.get("GREYHOUND_COMMIT") or output_of("git", "-C", str(ROOT), "rev-parse", "HEAD") or "unknown"


def one_line(error):
    text = " ".join(re.sub(r"\x1b\[[0-9;]*m", "", str(error)).split())  # some colour their errors
    return f"{type(error).__name__}: {text[:300]}"


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


def of_torch(torch, kind):
    return device(torch) if kind == "cuda" else {**common(), "torch": torch.__version__}


if __name__ == "__main__":
    print(gpu_slug(nvidia_smi("name")))
