"""Orders to change the served models, and their reports to the service manager."""

from collections.abc import Callable

from ringbatch.engine.supervisor.handover import Handover
from ringbatch.engine.supervisor.model_changes import ModelChanges
from ringbatch.engine.systemd.service import Service
from ringbatch.shm.host.control_socket import Order, Report


class ChangeOrders:
    """Where orders of one engine are taken.

    Args:
        succession: refuses them while another engine takes over.
        service: the service manager.
        changes: carries them out.
    """

    def __init__(self, succession: Handover, service: Service, changes: ModelChanges) -> None:
        self._succession = succession
        self._service = service
        self._changes = changes

    def take(self, order: Order, reply: Callable[[Report], None]) -> None:
        """Have an order carried out, and tell who gave it what came of it."""
        if self._succession.refuses(reply):
            return

        def answer(report: Report) -> None:
            self._service.ends_change(report.failure)
            reply(report)

        self._service.begins_change()
        self._changes.take(order, answer)
