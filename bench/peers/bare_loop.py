"""Runs a model in a bare loop on one CPU and prints, for each batch size, what that gives.

    cd bench && python -m peers.bare_loop FILE RUNTIME INSTANCE CPU SECONDS SIZE...

A process of its own, so that it imports what a worker imports and has the threads that one has.
INSTANCE is JSON. One line of JSON for each SIZE, with the fields of `batching.Run`.
"""

import json
import os
import sys
import time
from pathlib import Path

import numpy as np
from host.procfs import cpu_busy_s

from ringbatch.engine.models.model import Options
from ringbatch.engine.runtimes.opening import open_model


def main() -> None:
    """Measure every size for SECONDS."""
    path, runtime, instance, cpu, seconds = sys.argv[1:6]
    os.sched_setaffinity(0, {int(cpu)})
    model = open_model(runtime, Path(path), Options(max_batch_size=64, threads=1))
    model.load()
    (tensor,) = model.inputs
    value = json.loads(instance)
    for size in map(int, sys.argv[6:]):
        if tensor.datatype.fixed:
            batch = np.array([value] * size, tensor.datatype.numpy)
        else:
            batch = np.array([value.encode()] * size, object)
        for _ in range(3):
            model.predict(batch)
        runs, cpu_before = 0, cpu_busy_s(int(cpu))
        began, began_cpu = time.perf_counter(), time.process_time()
        while time.perf_counter() - began < float(seconds):
            model.predict(batch)
            runs += 1
        took, used = time.perf_counter() - began, time.process_time() - began_cpu
        foreign = max(0.0, cpu_busy_s(int(cpu)) - cpu_before - used) / took
        print(
            json.dumps(
                {
                    "per_s": runs * size / took,
                    "per_cpu_s": runs * size / used,
                    "busy": used / took,
                    "foreign": foreign,
                    "batch": size,
                }
            ),
            flush=True,
        )


if __name__ == "__main__":
    main()
