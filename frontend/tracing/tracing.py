"""Tracing: reads traced requests from the segment, again and again, and has their spans sent."""

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable, Sequence
from typing import Final

from ringbatch.frontend.tracing.messages import Encoder
from ringbatch.frontend.tracing.open_batches import Members, OpenBatches
from ringbatch.frontend.tracing.sending import (
    HEADERS_VARIABLE,
    RESOURCE_VARIABLE,
    Sender,
    pairs,
)
from ringbatch.frontend.tracing.spans import ModelName, Span, batch_span, request_spans
from ringbatch.shm.batch_ids import BatchIds
from ringbatch.shm.host.delivering import Delivering
from ringbatch.shm.segment import Segment
from ringbatch.shm.traced_requests import TracedReader

logger = logging.getLogger("ringbatch.control")

MOST_WAITING: Final = 4096
"""Traces."""
MOST_AT_ONCE: Final = 256
"""Traces in one message."""
LOOK_EVERY_S: Final = 0.2
_MOST_NAMES: Final = 1 << 12
_UNKNOWN: Final = ModelName()

Trace = Sequence[Span]
"""The spans of one request, or that of one batch."""


class Tracing:
    """Tracing in the control process: reads traced requests, and has their spans sent.

    Args:
        segment: attached; its layout has room for traced requests.
        exporter: takes the spans.
        clock: monotonic nanoseconds.
    """

    def __init__(
        self, segment: Segment, exporter: Delivering[Trace], clock: Callable[[], int]
    ) -> None:
        self._segment = segment
        self._exporter = exporter
        self._clock = clock
        self._reader = TracedReader(segment)
        self._batches = OpenBatches()
        self._batch_ids = BatchIds(segment.identity)
        self._names: dict[int, ModelName] = {}
        """Names by the account of a model, of removed models too."""

    @property
    def delivered(self) -> int:
        """Traces that were sent."""
        return self._exporter.delivered

    @property
    def dropped(self) -> dict[str, int]:
        """Traced requests that were not sent, by the reason."""
        exporter = self._exporter
        return {
            "overwritten": self._reader.lost,
            "queue_full": exporter.full,
            "failed": exporter.failed,
        }

    def look(self) -> None:
        """Take what has come since the last time."""
        now_ns = self._clock()
        for request in self._reader.read():
            model = self._model(request.account)
            self._exporter.put(request_spans(request, model, self._batch_ids))
            if request.found.batch_rows:
                self._batches.add(request, now_ns)
        self._put_batches(self._batches.take(now_ns))

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(LOOK_EVERY_S)

    async def finish(self) -> None:
        """Take the last requests until the frontends have ended, and send the last spans."""
        while self._segment.draining and self._segment.serving_lanes():
            self.look()
            await asyncio.sleep(LOOK_EVERY_S)
        self.look()
        self._put_batches(self._batches.take_all())
        self._exporter.close()

    def _put_batches(self, batches: list[Members]) -> None:
        for members in batches:
            name = self._model(members[0].account).name
            self._exporter.put([batch_span(members, name, self._batch_ids)])

    def _model(self, account: int) -> ModelName:
        if account not in self._names and account != self._segment.layout.models:
            if len(self._names) >= _MOST_NAMES:
                self._names.clear()
            self._segment.read_models()
            self._names |= {
                spec.account: ModelName(
                    spec.name,
                    spec.version,
                    texts=spec.tokens is not None or spec.generator is not None,
                )
                for spec in self._segment.models
            }
        return self._names.setdefault(account, _UNKNOWN)


def tracing_to(endpoint: str, segment: Segment, version: str) -> Tracing:
    """Return the sender of an engine's traces, with its thread.

    Args:
        endpoint: of an OpenTelemetry collector, without OTLP's path.
        segment: attached.
        version: of ringbatch.
    """
    resource = {
        "service.name": segment.engine,
        "service.version": version,
        "service.instance.id": f"{segment.identity:016x}",
        "host.name": socket.gethostname(),
        **pairs(os.environ.get(RESOURCE_VARIABLE, "")),
    }
    encoder = Encoder(resource, version)
    sender = Sender(endpoint, pairs(os.environ.get(HEADERS_VARIABLE, "")))

    def export(traces: Sequence[Trace]) -> str:
        spans = [span for trace in traces for span in trace]
        return sender.send(encoder.encode(spans, time.time_ns() - time.monotonic_ns()))

    exporter = Delivering(
        "traces",
        f"trace_endpoint, {endpoint}",
        export,
        MOST_AT_ONCE,
        MOST_WAITING,
        time.monotonic_ns,
        logger,
    )
    exporter.start()
    return Tracing(segment, exporter, time.monotonic_ns)
