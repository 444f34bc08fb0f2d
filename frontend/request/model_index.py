"""The repository index: every version of every model in the table, and how it is."""

from typing import Any

from ringbatch.frontend.request.service import Service
from ringbatch.frontend.v2.documents import index_entry
from ringbatch.shm.errors import ModelNotFound, ModelNotReady
from ringbatch.shm.model_spec import SERVING


def index_of(service: Service) -> list[dict[str, Any]]:
    """Return the lines of the index, as JSON objects or the fields of messages."""
    entries = []
    for spec in service.entries:
        unready = ""
        if spec.state == SERVING:
            try:
                service.check(spec.name, spec.version)
            except (ModelNotFound, ModelNotReady) as reason:
                unready = str(reason)
        entries.append(index_entry(spec, unready))
    return entries
