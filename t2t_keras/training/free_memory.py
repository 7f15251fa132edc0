"""The memory that a process may still take, in a container or outside."""

import math
import re
from collections.abc import Iterator
from pathlib import Path


def free_memory() -> float:
    """Returns the bytes that this process may still take, as Linux counts them.

    Infinity where the system does not say.
    """
    try:
        text = Path("/proc/meminfo").read_text()
        groups = Path("/proc/self/cgroup").read_text()
    except OSError:
        return math.inf
    available = re.search(r"MemAvailable:\s+(\d+) kB", text)
    free = int(available[1]) * 1024 if available else math.inf
    return min([free, *_free_in_groups(groups, Path("/sys/fs/cgroup"))])


def _free_in_groups(groups: str, root: Path) -> Iterator[float]:
    """Yields what is left of the limits of control groups, as containers have them.

    Args:
        groups: this process's, the text of /proc/self/cgroup.
        root: where they are mounted.
    """
    for line in groups.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":  # version 2
            base, limit, used, total = root, "memory.max", "memory.current", ""
        elif controllers == "memory":
            base, total = root / "memory", "total_"
            limit, used = "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            continue
        group = base / path.lstrip("/")
        # Inside a container the path may be the host's, and its group the mount point.
        for folder in (group, *group.parents) if group.exists() else (base,):
            if base not in (folder, *folder.parents):
                break
            try:
                most, taken = ((folder / n).read_text().strip() for n in (limit, used))
                stat = (folder / "memory.stat").read_text()
            except OSError:
                continue
            if most != "max":
                # The page cache is given back.
                cache = re.findall(rf"^{total}(?:in)?active_file (\d+)$", stat, re.M)
                yield int(most) - int(taken) + sum(map(int, cache))
