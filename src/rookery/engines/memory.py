"""Ask the C allocator to keep large blocks instead of returning them to the system after every operation.

A step of a 160 000-parameter model allocates and frees several blocks of that size; glibc maps and unmaps each one, and the page
faults cost more than the arithmetic (docs/decisions/0004). Elsewhere than glibc this does nothing. ROOKERY_MALLOC=0 switches it off.
"""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_BLOCK = 1 << 30


@cache
def keep_large_blocks() -> bool:
    """Once a process; returns whether the allocator took the hint."""
    if not sys.platform.startswith("linux") or os.environ.get("ROOKERY_MALLOC") == "0":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _BLOCK)) and bool(mallopt(_M_TRIM_THRESHOLD, _BLOCK))
