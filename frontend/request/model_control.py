"""Loading and unloading models on behalf of a client: the supervisor is asked, and awaited."""

import asyncio
import contextlib
import re
from collections.abc import Mapping
from typing import Any, Final

from ringbatch.frontend.codec.json_to_tensor import shown
from ringbatch.frontend.codec.outcome import NotSupported
from ringbatch.frontend.request.load_override import largest_batch
from ringbatch.frontend.request.service import Service
from ringbatch.frontend.v2.model_configuration import model_configuration
from ringbatch.shm.errors import Draining, LoadFailed, ModelNotFound
from ringbatch.shm.host.control_socket import (
    MAX_LINE_BYTES,
    Action,
    Order,
    order_line,
    read_report,
    socket_path,
)

OFF: Final = (
    "loading and unloading models is not supported here; set [server] model_control to true, "
    "or use ringbatch reload on the server's host"
)
_FOLDERS: Final = re.compile(r"(?<![^\s\"'(])(?:/[^\s/:\"']+)*/(?=[^\s/:\"']+)")
"""Folders in the reasons that a model file gives, which are written for the operator."""


async def control_model(
    service: Service, action: Action, name: str, parameters: Mapping[str, Any]
) -> None:
    """Have a model loaded, again if it serves already, or unloaded; return once that is done.

    Args:
        service: of the engine.
        action: ``load`` or ``unload``.
        name: the model's.
        parameters: of the request.

    Raises:
        NotSupported: the operator has not allowed it.
        InvalidRequest: the parameters ask for what is not to be had.
        ModelNotFound: it is not in the configuration, or does not serve.
        LoadFailed: what served before serves on.
        Draining: the engine stops, or has stopped.
    """
    if not service.model_control:
        raise NotSupported(OFF)
    held = (
        model_configuration(service.models[name].spec) if name in service.models else {"name": name}
    )
    size = largest_batch(name, parameters, held) if action == "load" else None
    report = read_report(await _asked(service.segment_name, Order(action, name, size)))
    if report is None:
        raise Draining
    if report.end == "unknown":
        raise ModelNotFound(f"failed to {action} {shown(name)}: there is no such model")
    if report.end == "failed":
        # The text names the model itself.
        lines = (line.removeprefix(f"{name}: ") for line in report.lines)
        why = _FOLDERS.sub("", "; ".join(lines))
        raise LoadFailed(f"failed to {action} {shown(name)}: {why}")


async def _asked(segment_name: str, order: Order) -> bytes:
    try:
        reader, writer = await asyncio.open_unix_connection(
            socket_path(segment_name), limit=MAX_LINE_BYTES
        )
    except OSError:
        return b""
    try:
        writer.write(order_line(order))
        return await reader.readline()
    except (OSError, ValueError):
        return b""
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
