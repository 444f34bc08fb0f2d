"""Programs of torch for a device, and bare loops of one thread over them there.

`python device_loop.py NAME DEVICE FILE SECONDS` writes the program and prints its figures as JSON.
It is a process of its own: load generators import no torch, and the device's memory is free again
when it has ended.
"""

import json
import mmap
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import nn

BATCH: Final = 32
ROUNDS_BEFORE: Final = 3


class Bottleneck(nn.Module):  # type: ignore[misc]
    """Block of ResNet50."""

    def __init__(self, taken: int, width: int, stride: int) -> None:
        super().__init__()
        given = 4 * width
        self.way = nn.Sequential(
            *(nn.Conv2d(taken, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()),
            nn.Conv2d(width, width, 3, stride, 1, bias=False),
            *(nn.BatchNorm2d(width), nn.ReLU()),
            *(nn.Conv2d(width, given, 1, bias=False), nn.BatchNorm2d(given)),
        )
        same = taken == given and stride == 1
        self.past = nn.Identity() if same else nn.Conv2d(taken, given, 1, stride, bias=False)

    def forward(self, x: Any) -> Any:
        return torch.relu(self.way(x) + self.past(x))


def residual(width: int, blocks: Sequence[int]) -> Any:
    """Return a network like ResNet50, which has the width 64 and 3, 4, 6 and 3 blocks."""
    layers: list[Any] = [nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width)]
    layers += [nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    taken = width
    for stage, count in enumerate(blocks):
        for block in range(count):
            own = width << stage
            layers.append(Bottleneck(taken, own, 2 if stage and not block else 1))
            taken = 4 * own
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(taken, 1000))


class Encoder(nn.Module):  # type: ignore[misc]
    """Transformer over 32 tokens that one vector becomes."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.first = nn.Linear(256, width)
        layer = nn.TransformerEncoderLayer(width, width // 32, 4 * width, 0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

    def forward(self, x: Any) -> Any:
        return self.layers(self.first(x).unsqueeze(1).expand(-1, 32, -1)).mean(1)


PROGRAMS: Final[dict[str, tuple[tuple[int, ...], Callable[[], Any]]]] = {
    "resnet50": ((3, 224, 224), lambda: residual(64, (3, 4, 6, 3))),
    "encoder": ((256,), lambda: Encoder(384, 6)),
    "small": ((3, 32, 32), lambda: residual(8, (1, 1))),
}
"""By name the shape of a row, and what makes the module."""


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
    gathered = np.empty((BATCH, *rows.shape[1:]), np.float32)

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
    graphs = [captured(module, rows.shape[1:], BATCH, runs) for _ in range(2)]
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
    graph, _, _ = captured(module, rows.shape[1:], 1, runs)

    def lone() -> None:
        with torch.cuda.stream(runs):
            graph.replay()
        runs.synchronize()

    return {"pipelined": whole, "lone_ms": 1e3 * BATCH / rate(lone, seconds / 2, lone)}


def captured(module: Any, shape: Sequence[int], count: int, stream: Any) -> tuple[Any, Any, Any]:
    """Return a graph, its input and its output."""
    given = torch.zeros((count, *shape), device="cuda")

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
    shape, make = PROGRAMS[name]
    torch.manual_seed(0)
    module = make().eval()
    batch = torch.export.Dim("batch", max=4096)
    example = (torch.zeros((4, *shape)),)
    torch.export.save(torch.export.export(module, example, dynamic_shapes=({0: batch},)), file)
    memory = mmap.mmap(-1, BATCH * int(np.prod(shape)) * 4)
    rows = np.frombuffer(memory, np.float32).reshape(BATCH, *shape)
    rows[:] = np.random.default_rng(0).standard_normal(rows.shape, dtype=np.float32)
    module.to(device)
    figures = {"eager": eager(module, rows, device, seconds)}
    if device != "cpu":
        figures |= pipelined(module, rows, seconds)
    print(json.dumps({**figures, "shape": shape, "bytes": Path(file).stat().st_size}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
