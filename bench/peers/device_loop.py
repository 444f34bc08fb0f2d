"""Bare loops of one thread over a program of torch on a device.

`python -m peers.device_loop NAME DEVICE FILE SECONDS` writes the program and prints its figures as
JSON. It is a process of its own: load generators import no torch, and the device's memory is free
again when it has ended.
"""

import json
import mmap
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from peers.device_programs import PROGRAMS, written

BATCH: Final = 32
ROUNDS_BEFORE: Final = 3
COPIED: Final = 64 << 20
"""Bytes of a copy that shows the limit of the bus."""


def rate(step: Callable[[], object], seconds: float, wait: Callable[[], object]) -> float:
    """Return the rows of a batch in each step, in rows a second."""
    for _ in range(ROUNDS_BEFORE):
        step()
    wait()
    began, steps = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        step()
        steps += 1
    wait()
    return steps * BATCH / (time.perf_counter() - began)


def eager(module: Any, rows: Any, device: str, seconds: float) -> float:
    """Return rows/s of a loop that gathers, copies, runs and copies back, as a server may."""
    gathered = np.empty((BATCH, *rows.shape[1:]), rows.dtype)

    def step() -> None:
        for number in range(BATCH):
            gathered[number] = rows[number]
        with torch.inference_mode(), torch.autocast(device[:4].rstrip(":"), torch.float16):
            module(torch.from_numpy(gathered).to(device)).float().cpu()

    return rate(step, seconds, lambda: None)


def pipelined(module: Any, rows: Any, seconds: float) -> dict[str, float]:
    """Return rows/s from registered memory through graphs with two buffers, and a lone row's ms."""
    address = rows.ctypes.data
    status = int(torch.cuda.cudart().cudaHostRegister(address, rows.nbytes, 0))
    if status:
        raise SystemExit(f"cudaHostRegister failed with {status}")
    sources = [torch.from_numpy(row) for row in rows]
    copies, runs = torch.cuda.Stream(), torch.cuda.Stream()
    graphs = [captured(module, sources[0], BATCH, runs) for _ in range(2)]
    host = torch.empty(graphs[0][2].shape, pin_memory=True)
    copied, done = ([torch.cuda.Event() for _ in range(2)] for _ in range(2))
    turn = 0

    def put() -> None:
        with torch.cuda.stream(copies):
            copies.wait_event(done[turn % 2])
            for place, source in zip(graphs[turn % 2][1], sources[:BATCH], strict=True):
                place.copy_(source, non_blocking=True)
            copied[turn % 2].record(copies)

    def step() -> None:
        nonlocal turn
        graph, _, output = graphs[turn % 2]
        with torch.cuda.stream(runs):
            runs.wait_event(copied[turn % 2])
            graph.replay()
            host.copy_(output, non_blocking=True)
            done[turn % 2].record(runs)
        ended = done[turn % 2]
        turn += 1
        put()
        ended.synchronize()

    put()
    whole = rate(step, seconds, torch.cuda.synchronize)
    graph, _, _ = captured(module, sources[0], 1, runs)

    def lone() -> None:
        with torch.cuda.stream(runs):
            graph.replay()
        runs.synchronize()

    lone_ms = 1e3 * BATCH / rate(lone, seconds / 2, lone)
    return {"pipelined": whole, "lone_ms": lone_ms, **way_out(graphs[0][2], seconds / 2)}


def way_out(results: Any, seconds: float) -> dict[str, float]:
    """Return the ms in which a batch's results come to the host, each to a place of its own.

    They come as one block, as a block that the CPU scatters, or by a copy of the device for each.
    """
    size = results[0].numel() * results.element_size()
    memory = np.frombuffer(mmap.mmap(-1, BATCH * size), np.float32)
    status = int(torch.cuda.cudart().cudaHostRegister(memory.ctypes.data, memory.nbytes, 0))
    if status:
        raise SystemExit(f"cudaHostRegister failed with {status}")
    places = memory.reshape(results.shape)
    tensors = [torch.from_numpy(place) for place in places]
    block = torch.empty(results.shape, pin_memory=True)
    rows = block.numpy()
    wait = torch.cuda.synchronize

    def whole() -> None:
        block.copy_(results, non_blocking=True)
        wait()

    def scattered() -> None:
        whole()
        for place, row in zip(places, rows, strict=True):
            place[...] = row

    def straight() -> None:
        for tensor, result in zip(tensors, results, strict=True):
            tensor.copy_(result, non_blocking=True)
        wait()

    ways = {"block_ms": whole, "scattered_ms": scattered, "straight_ms": straight}
    return {name: 1e3 * BATCH / rate(step, seconds, wait) for name, step in ways.items()}


def bus(seconds: float) -> float:
    """Return bytes a second of large copies from page-locked memory to the device."""
    source = torch.empty(COPIED, dtype=torch.uint8, pin_memory=True)
    place = torch.empty(COPIED, dtype=torch.uint8, device="cuda")
    copies = rate(lambda: place.copy_(source, non_blocking=True), seconds, torch.cuda.synchronize)
    return copies / BATCH * COPIED


def captured(module: Any, row: Any, count: int, stream: Any) -> tuple[Any, Any, Any]:
    """Return a graph, its input and its output."""
    given = torch.zeros((count, *row.shape), dtype=row.dtype, device="cuda")

    def run() -> Any:
        with torch.inference_mode(), torch.autocast("cuda", torch.float16, cache_enabled=False):
            return module(given).float()

    with torch.cuda.stream(stream):
        for _ in range(ROUNDS_BEFORE):
            run()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        output = run()
    return graph, given, output


def main() -> int:
    """Write a program, and print its figures."""
    name, device, file, seconds = sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4])
    shape, dtype, _ = PROGRAMS[name]
    module = written(name, Path(file))
    size = np.dtype(dtype).itemsize
    memory = mmap.mmap(-1, BATCH * int(np.prod(shape)) * size)
    rows = np.frombuffer(memory, dtype).reshape(BATCH, *shape)
    most = 255 if dtype == "uint8" else 1
    rows[:] = np.random.default_rng(0).uniform(0, most, rows.shape).astype(dtype)
    module.to(device)
    figures = {"eager": eager(module, rows, device, seconds)}
    if device != "cpu":
        figures |= pipelined(module, rows, seconds)
        figures["bus"] = bus(seconds / 2)
    print(json.dumps({**figures, "shape": shape, "dtype": dtype}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
