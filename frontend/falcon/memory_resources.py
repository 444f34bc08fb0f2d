"""Triton's shared memory extensions on Falcon: regions registered, shown and unregistered."""

from functools import partial
from typing import Any, NoReturn

import falcon
import falcon.asgi
import orjson
from falcon.asgi import Request, Response

from ringbatch.frontend.codec.outcome import NotSupported
from ringbatch.frontend.falcon.control_bodies import control_body
from ringbatch.frontend.v2.regions import Regions, patiently
from ringbatch.frontend.v2.shared_memory import region_document, registration
from ringbatch.shm.errors import MemoryNotFound


def add_routes(app: falcon.asgi.App[Request, Response], regions: Regions) -> None:
    """Add the endpoints of both extensions, for system memory and for CUDA's.

    Args:
        app: to which.
        regions: clients' memory.
    """
    status, unregister = RegionStatus(regions), Unregister(regions)
    app.add_route("/v2/systemsharedmemory/status", status)
    app.add_route("/v2/systemsharedmemory/unregister", unregister)
    app.add_route("/v2/systemsharedmemory/region/{name}/status", status)
    app.add_route("/v2/systemsharedmemory/region/{name}/unregister", unregister)
    app.add_route("/v2/systemsharedmemory/region/{name}/register", Register(regions))
    cuda_status, cuda_unregister = CudaStatus(), CudaUnregister()
    app.add_route("/v2/cudasharedmemory/status", cuda_status)
    app.add_route("/v2/cudasharedmemory/unregister", cuda_unregister)
    app.add_route("/v2/cudasharedmemory/region/{name}/status", cuda_status)
    app.add_route("/v2/cudasharedmemory/region/{name}/unregister", cuda_unregister)
    app.add_route("/v2/cudasharedmemory/region/{name}/register", CudaRegister())


class RegionStatus:
    """Status of the registered regions."""

    def __init__(self, regions: Regions) -> None:
        self._regions = regions

    async def on_get(self, _req: Request, resp: Response, name: str | None = None) -> None:
        """Answer with a list of all regions, or of the one of that name."""
        _send(resp, [region_document(region) for region in self._regions.status(name)])

    on_head = on_get


class Register:
    """Registration of a region."""

    def __init__(self, regions: Regions) -> None:
        self._regions = regions

    async def on_post(self, req: Request, _resp: Response, name: str) -> None:
        """Register a region. Success has no body."""
        self._regions.expect_on()
        key, offset, size = registration(await control_body(req))
        await patiently(partial(self._regions.register, name, key, offset, size))


class Unregister:
    """End of a region's registration."""

    def __init__(self, regions: Regions) -> None:
        self._regions = regions

    async def on_post(self, req: Request, _resp: Response, name: str | None = None) -> None:
        """Unregister the region of that name, if there is one, or all. Success has no body."""
        await control_body(req)
        await patiently(partial(self._regions.unregister, name))


class CudaStatus:
    """Status of CUDA regions: there are none."""

    async def on_get(self, _req: Request, resp: Response, name: str | None = None) -> None:
        """Answer with an empty list; no region has that name."""
        if name is not None:
            raise MemoryNotFound(f'no CUDA shared memory region "{name[:128]}" is registered')
        _send(resp, [])

    on_head = on_get


class CudaRegister:
    """Registration of a CUDA region, which is refused."""

    async def on_post(self, _req: Request, _resp: Response, name: str) -> NoReturn:
        """Answer 501."""
        raise NotSupported("CUDA shared memory is not supported; use system shared memory")


class CudaUnregister:
    """Removal of CUDA regions: there are none, so there is nothing to do."""

    async def on_post(self, _req: Request, _resp: Response, name: str | None = None) -> None:
        """Unregister nothing. Success has no body."""


def _send(resp: Response, value: Any) -> None:
    resp.data = orjson.dumps(value)
    resp.content_type = falcon.MEDIA_JSON
