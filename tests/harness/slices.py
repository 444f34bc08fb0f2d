"""Time slices that the kernel gives threads."""

import ctypes
import os

from ringbatch.engine.process.placement import _ATTRIBUTES, _SCHED_SETATTR, SHORT_SLICE_NS


def slice_ns(pid: int = 0) -> int:
    """Return the slice of a process's first thread, or of this thread, in nanoseconds.

    A kernel before 6.12 says 0.
    """
    attributes = ctypes.create_string_buffer(_ATTRIBUTES.size)
    number = _SCHED_SETATTR[os.uname().machine] + 1
    failed = ctypes.CDLL(None).syscall(number, pid, attributes, _ATTRIBUTES.size, 0)
    assert not failed, "the kernel says nothing of the process"
    return int(_ATTRIBUTES.unpack(attributes.raw)[5])


def shortened_ns(usual_ns: int) -> int:
    """Return how short a slice becomes here that is usual otherwise."""
    release = tuple(map(int, os.uname().release.split("-")[0].split(".")[:2]))
    return SHORT_SLICE_NS if release >= (6, 12) else usual_ns
