"""Size of an engine's segment, with the places that live changes need. Pure."""

from dataclasses import replace
from typing import Final

from ringbatch.engine.config.serving import MIB
from ringbatch.engine.config.settings import Config, ServerConfig
from ringbatch.shm import model_spec
from ringbatch.shm.layout import MAX_MODELS, PAGE, TRACED_REQUESTS, Layout, aligned
from ringbatch.shm.model_spec import ModelSpec

REQUEST_BYTES: Final = 16 * MIB
"""The limit of requests if none is set."""
_LANE_BYTES: Final = 4 * MIB
_LEAST_REQUEST_BYTES: Final = MIB // 16
"""Least limit of requests in bytes that a small /dev/shm leads to."""
_LANES_EACH: Final = 2
"""Lanes for every frontend for HTTP: while Gunicorn replaces one, old and new run side by side."""
_SPARE_MODELS: Final = 16
"""Places for models beyond twice those that are configured; they are small."""
_SPARE_TABLE_BYTES: Final = 1 << 16
"""Room of the model table, in bytes, beyond four times its size at the start."""


def request_limit_bytes(server: ServerConfig) -> int:
    """Return `max_request_bytes`, or its default."""
    return REQUEST_BYTES if server.max_request_bytes is None else server.max_request_bytes


def lane_bytes(server: ServerConfig) -> int:
    """Return `lane_bytes`, or its default, in whole pages."""
    if server.lane_bytes is not None:
        return aligned(server.lane_bytes, PAGE)
    return aligned(max(_LANE_BYTES, 2 * request_limit_bytes(server)), PAGE)


def frontend_lanes(server: ServerConfig) -> int:
    """Return how many lanes the frontends need."""
    # A frontend for gRPC is started when the one before it has ended.
    grpc = server.grpc_frontends if server.serves_grpc else 0
    return _LANES_EACH * server.frontends + grpc


def fitted(config: Config, free_bytes: int | None) -> Config:
    """Return the configuration with lanes and a request limit that fit, if none are configured.

    Args:
        config: the configuration.
        free_bytes: of /dev/shm; None for no limit.
    """
    server = config.server
    if free_bytes is None or server.lane_bytes is not None:
        return config
    # A quarter is left for everything beside payloads, and for objects of clients.
    lanes = frontend_lanes(server) + server.client_lanes
    share = free_bytes * 3 // 4 // lanes // PAGE * PAGE
    if share >= lane_bytes(server):
        return config
    limit = server.max_request_bytes or max(share // 2, _LEAST_REQUEST_BYTES)
    lane = aligned(max(share, 2 * limit), PAGE)
    return replace(config, server=replace(server, max_request_bytes=limit, lane_bytes=lane))


def layout_of(server: ServerConfig, entries: tuple[ModelSpec, ...]) -> Layout:
    """Return the layout for a configuration.

    Args:
        server: its settings.
        entries: of the models that are served from the start.
    """
    workers = sum(max(len(spec.workers), spec.most + spec.spares) for spec in entries)
    table_bytes = 4 * len(model_spec.dumps(entries)) + _SPARE_TABLE_BYTES
    return Layout(
        lanes=frontend_lanes(server) + server.client_lanes,
        slots=server.max_in_flight,
        lane_bytes=lane_bytes(server),
        workers=server.worker_places(workers),
        models=min(2 * len(entries) + _SPARE_MODELS, MAX_MODELS),
        model_table_bytes=aligned(table_bytes, PAGE),
        client_lanes=server.client_lanes,
        traced=0 if server.trace_endpoint is None else TRACED_REQUESTS,
    )
