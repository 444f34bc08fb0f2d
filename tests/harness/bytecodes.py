"""Counts of executed bytecodes: every loop takes more of them, on any machine."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from ringbatch.shm.host.platform import is_compiled

SLACK = 1.15
"""Factor by which heaps and the like may take more bytecodes with many items than with few."""
no_bytecodes = pytest.mark.skipif(is_compiled(), reason="machine code has no bytecodes")


def bytecodes(call: Callable[[], object]) -> int:
    """Return how many bytecodes a call executes."""
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        # Since 3.13 a frame that has no tracer yet cannot ask for its bytecodes.
        frame.f_trace, frame.f_trace_opcodes, frame.f_trace_lines = trace, True, False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    # 3.12 tells a tracer of bytecodes only if a frame had asked for them when it was set.
    sys._getframe().f_trace_opcodes = True
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count
