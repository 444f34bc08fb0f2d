"""Triton's shared memory extensions over gRPC: regions registered, shown and unregistered."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NoReturn

from ringbatch.frontend.codec.outcome import NotSupported
from ringbatch.frontend.grpc.messages import Message
from ringbatch.frontend.v2.regions import Regions, patiently
from ringbatch.frontend.v2.shared_memory import region_document
from ringbatch.shm.errors import MemoryNotFound

Fields = dict[str, Any]


class MemoryControl:
    """The methods of both extensions, for system memory and for CUDA's.

    Args:
        regions: clients' memory.
    """

    def __init__(self, regions: Regions) -> None:
        self._regions = regions

    def methods(self) -> dict[str, Callable[[Message], Fields | Awaitable[Fields]]]:
        """Return handlers by name, which take a request and return the response's fields.

        They raise `RequestError`.
        """
        return {
            "SystemSharedMemoryStatus": self._status,
            "SystemSharedMemoryRegister": self._register,
            "SystemSharedMemoryUnregister": self._unregister,
            "CudaSharedMemoryStatus": _cuda_status,
            "CudaSharedMemoryRegister": _cuda_register,
            "CudaSharedMemoryUnregister": lambda _: {},
        }

    def _status(self, request: Message) -> Fields:
        found = self._regions.status(request.name or None)
        return {"regions": {region.name: region_document(region) for region in found}}

    async def _register(self, request: Message) -> Fields:
        stretch = request.name, request.key, request.offset, request.byte_size
        await patiently(partial(self._regions.register, *stretch))
        return {}

    async def _unregister(self, request: Message) -> Fields:
        await patiently(partial(self._regions.unregister, request.name or None))
        return {}


def _cuda_status(request: Message) -> Fields:
    if request.name:
        raise MemoryNotFound(f'no CUDA shared memory region "{request.name[:128]}" is registered')
    return {}


def _cuda_register(_request: Message) -> NoReturn:
    raise NotSupported("CUDA shared memory is not supported; use system shared memory")
