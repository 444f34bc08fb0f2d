"""LoadGen itself: one run of it, in a thread of its own."""

import ctypes
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlperf_loadgen

from ringbatch.bench.loadgen.handover import Handover
from ringbatch.bench.loadgen.plan import Plan


def begin(plan: Plan, folder: Path, handover: Handover) -> threading.Thread:
    """Begin a run.

    Args:
        plan: what LoadGen is told.
        folder: for its logs.
        handover: takes its queries, and its end.
    """
    thread = threading.Thread(target=_run, args=(plan, folder, handover), daemon=True)
    thread.start()
    return thread


def complete(answered: Sequence[tuple[int, bytes]]) -> None:
    """Tell LoadGen of queries, by their ids, and of what was answered; it copies what it keeps."""
    mlperf_loadgen.QuerySamplesComplete(
        [
            mlperf_loadgen.QuerySampleResponse(query, _address(data) if data else 0, len(data))
            for query, data in answered
        ]
    )


def _address(data: bytes) -> int:
    found = ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value
    assert found is not None
    return found


def _run(plan: Plan, folder: Path, handover: Handover) -> None:
    nothing = lambda _: None  # noqa: E731
    sut = mlperf_loadgen.ConstructFastSUT(handover.issue, handover.flush)
    library = mlperf_loadgen.ConstructQSL(plan.samples, plan.samples, nothing, nothing)
    try:
        # A file of this name in the working directory would have a say else.
        audit = str(folder / "no-audit.config")
        mlperf_loadgen.StartTestWithLogSettings(sut, library, _test(plan), _logs(folder), audit)
    finally:
        mlperf_loadgen.DestroyQSL(library)
        mlperf_loadgen.DestroyFastSUT(sut)
        handover.end()


def _test(plan: Plan) -> Any:
    settings = mlperf_loadgen.TestSettings()
    settings.scenario = getattr(mlperf_loadgen.TestScenario, plan.scenario)
    settings.mode = getattr(mlperf_loadgen.TestMode, plan.mode)
    for name, value in plan.settings().items():
        setattr(settings, name, value)
    return settings


def _logs(folder: Path) -> Any:
    output = mlperf_loadgen.LogOutputSettings()
    output.outdir = str(folder)
    output.copy_summary_to_stdout = False
    output.copy_detail_to_stdout = False
    logs = mlperf_loadgen.LogSettings()
    logs.log_output = output
    logs.enable_trace = False
    return logs
