"""Falcon application of the control address: metrics, the state of models, and the page."""

import time
from functools import partial
from typing import Any

import falcon
import falcon.asgi
import orjson
from falcon.asgi import Request, Response

from ringbatch.frontend.codec.model_address import address
from ringbatch.frontend.http.router import Router
from ringbatch.frontend.metrics.control_keys import KeysFromAfar
from ringbatch.frontend.metrics.deliveries import DeliveryCounts
from ringbatch.frontend.metrics.exposition import EngineMetrics
from ringbatch.frontend.metrics.families import encoded
from ringbatch.frontend.metrics.processes import usage
from ringbatch.frontend.page.resources import add_routes
from ringbatch.frontend.page.subscribers import Subscribers
from ringbatch.frontend.security.api_keys import ApiKeys
from ringbatch.frontend.security.handshakes import FailedHandshakes
from ringbatch.shm.descriptors import ModelWords
from ringbatch.shm.host.background_tasks import in_thread
from ringbatch.shm.model_readiness import unready_reason
from ringbatch.shm.model_spec import FIRST_VERSION, SERVING, ModelSpec
from ringbatch.shm.segment import Segment
from ringbatch.shm.snapshot.gpus import Look, unseen


def create_control_app(
    segment: Segment,
    version: str,
    subscribers: Subscribers,
    keys: ApiKeys | None = None,
    traces: DeliveryCounts | None = None,
    failed_handshakes: FailedHandshakes | None = None,
    payloads: DeliveryCounts | None = None,
    look: Look = unseen,
) -> falcon.asgi.App[Request, Response]:
    """Return the ASGI application.

    Args:
        segment: attached.
        version: of ringbatch.
        subscribers: of the page.
        keys: those of which a client from another host must send one; None to serve every client.
        traces: counts of them; None if nothing is traced.
        failed_handshakes: counter of this process's failed TLS hand-shakes.
        payloads: counts of the payload log's events; None without one.
        look: at GPUs.
    """
    app = falcon.asgi.App(media_type=falcon.MEDIA_JSON, router=Router())
    if keys is not None:
        app.add_middleware(KeysFromAfar(keys))
    app.set_error_serializer(_serialize)
    metrics = EngineMetrics(segment, version, traces, failed_handshakes, payloads, look)
    app.add_route("/metrics", Metrics(metrics, segment.pid))
    app.add_route("/v2/health/live", ControlLiveness())
    app.add_route("/v2/health/ready", ControlReadiness(segment))
    add_routes(app, subscribers, segment)
    return app


class Metrics:
    """Every counter and gauge of the engine."""

    def __init__(self, metrics: EngineMetrics, pid: int) -> None:
        self._metrics = metrics
        self._pid = pid

    async def on_get(self, req: Request, resp: Response) -> None:
        """Answer in Prometheus' text format, or in OpenMetrics if the client accepts that."""
        accepted = req.get_header("Accept") or ""
        # The kernel may take its time to say so, and others are served meanwhile.
        used = await in_thread(partial(usage, self._pid))
        resp.data, resp.content_type = encoded(self._metrics.collect(used), accepted)

    on_head = on_get


class ControlLiveness:
    """Liveness of this process."""

    async def on_get(self, _req: Request, resp: Response) -> None:
        """Answer in the Open Inference Protocol's form."""
        _send(resp, {"live": True})

    on_head = on_get


class ControlReadiness:
    """Readiness of all models, with those that are not ready."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment

    async def on_get(self, _req: Request, resp: Response) -> None:
        """Answer 200 or 503, with the workers of every model and the reason if it is not ready."""
        segment = self._segment
        segment.read_models()
        serving = (spec for spec in segment.models if spec.state == SERVING)
        models = {_address(spec): self._of(spec) for spec in serving}
        ready = not any("why" in model for model in models.values())
        resp.status = falcon.HTTP_200 if ready else falcon.HTTP_503
        _send(resp, {"ready": ready, "draining": segment.stopping, "models": models})

    on_head = on_get

    def _of(self, spec: ModelSpec) -> dict[str, Any]:
        words, first = self._segment.words, self._segment.layout.model(spec.index)
        found = {"ready_workers": words[first + ModelWords.READY]}
        found["workers"] = spec.running
        why = unready_reason(words, self._segment.layout, spec, time.monotonic_ns())
        return found | ({"why": why} if why else {})


def _address(spec: ModelSpec) -> str:
    return address(spec.name, spec.version if spec.version != FIRST_VERSION else "")


def _serialize(_req: Request, resp: Response, error: falcon.HTTPError) -> None:
    _send(resp, {"error": error.description or error.title})


def _send(resp: Response, value: dict[str, Any]) -> None:
    resp.data = orjson.dumps(value)
    resp.content_type = falcon.MEDIA_JSON
