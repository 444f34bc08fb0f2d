"""How large the segment of an engine is, with the places that live changes need. Pure."""

from typing import Final

from ringbatch.engine.entries import Entries
from ringbatch.engine.settings import ServerConfig
from ringbatch.shm import manifest
from ringbatch.shm.layout import MAX_MODELS, PAGE, Layout, aligned

_SPARE_MODELS: Final = 16
"""Places for models beyond twice those that are configured; they are small."""
_SPARE_MANIFEST_BYTES: Final = 1 << 16
"""Of the table of models, beyond four times what it takes at the start."""


def layout_of(server: ServerConfig, entries: Entries, frontend_lanes: int) -> Layout:
    """The layout for a configuration.

    Args:
        server: what is configured.
        entries: of the models that are served from the start.
        frontend_lanes: how many lanes the frontends need.
    """
    workers = sum(len(spec.workers) for spec in entries)
    table_bytes = 4 * len(manifest.dumps(entries)) + _SPARE_MANIFEST_BYTES
    return Layout(
        lanes=frontend_lanes + server.client_lanes,
        slots=server.max_in_flight,
        lane_bytes=server.lane_payload_bytes,
        workers=server.worker_places(workers),
        models=min(2 * len(entries) + _SPARE_MODELS, MAX_MODELS),
        manifest_bytes=aligned(table_bytes, PAGE),
        client_lanes=server.client_lanes,
    )
