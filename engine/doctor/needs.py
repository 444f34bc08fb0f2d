"""Needs of a configuration, by the arithmetic of the start."""

from collections.abc import Iterator, Mapping
from typing import Final

from ringbatch.engine.config.dimensions import fitted, layout_of, request_limit_bytes
from ringbatch.engine.config.settings import Config
from ringbatch.engine.doctor.case import PROCESS_BYTES, Needs, Worker
from ringbatch.engine.ipc.instructions import placed
from ringbatch.engine.process.cpu_plan import Host, Plan
from ringbatch.engine.process.placement import THREAD_VARIABLES, thread_environment
from ringbatch.engine.process.role_events import Signature
from ringbatch.engine.supervisor.listener import BACKLOG
from ringbatch.engine.supervisor.model_versions import Forwarding, first_entries
from ringbatch.shm.errors import StartupError
from ringbatch.shm.host.descriptors import OTHERS

_TASKS: Final = 4
"""Threads of one process, beside those of a worker's math library."""
_FILES_OF_ONE_ENGINE: Final = 4
"""The segment, the life pipe, the collector's semaphore and the control socket."""
_HEARTBEATS: Final = 2
"""Gunicorn's heartbeat files for each frontend for HTTP while another replaces it."""


def needs(
    config: Config, host: Host, free_bytes: int | None, environment: Mapping[str, str]
) -> Needs:
    """Return the needs of a configuration's engine.

    Args:
        config: the configuration.
        host: the CPUs that there are.
        free_bytes: of /dev/shm; None for no limit.
        environment: of the supervisor.
    """
    fit = fitted(config, free_bytes)
    server, holders = fit.server, sum(model.most_processes for model in fit.models)
    unknown = dict.fromkeys(range(holders), Signature((), ()))
    layout = layout_of(server, first_entries(fit.models, unknown, Forwarding()))
    try:
        plan, misplaced = placed(fit, host)[0], ""
    except StartupError as error:
        plan, misplaced = None, str(error)
    workers = tuple(_workers(fit, plan, host, environment))
    grpc = server.grpc_frontends if server.serves_grpc else 0
    # The supervisor, Gunicorn's arbiter, the collector and its standby.
    processes = 4 + server.frontends + grpc + server.has_control_process + holders
    threads = sum(worker.threads for worker in workers)
    return Needs(
        segment_bytes=layout.size,
        request_bytes=request_limit_bytes(server),
        lowered=fit != config,
        files=(
            _FILES_OF_ONE_ENGINE + layout.workers + layout.lanes + _HEARTBEATS * server.frontends
        ),
        processes=processes,
        tasks=processes * _TASKS + threads,
        memory_bytes=layout.size + processes * PROCESS_BYTES,
        workers=workers,
        open_files=server.max_connections + OTHERS,
        other_files=OTHERS,
        backlog=BACKLOG,
        plan=plan,
        misplaced=misplaced,
    )


def _workers(
    config: Config, plan: Plan | None, host: Host, environment: Mapping[str, str]
) -> Iterator[Worker]:
    """Yield the workers that compute; spares mostly wait."""
    number = 0
    for model in config.models:
        for index in range(model.most_workers):
            share = plan.workers[number].threads if plan is not None else host.quota
            number += 1
            if model.waits(index):
                continue
            given = thread_environment(model.threads, share, environment)
            threads, variable = _most_threads(environment, given)
            yield Worker(title=f"{model.name}/{index}", threads=threads, variable=variable)


def _most_threads(environment: Mapping[str, str], given: Mapping[str, str]) -> tuple[int, str]:
    """Return the threads of a math library that starts the most, and the operator's variable.

    The variable is empty if the operator has not set one.
    """
    merged = dict(environment) | dict(given)
    counts = {
        name: int(first)
        for name in THREAD_VARIABLES
        if (first := merged.get(name, "").partition(",")[0].strip()).isdecimal() and int(first)
    }
    name = max(counts, key=lambda name: counts[name], default="")
    return counts.get(name, 1), "" if name in given else name
