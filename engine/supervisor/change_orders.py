"""Orders to change the served models, and their reports to the service manager."""

from collections.abc import Callable

from ringbatch.engine.supervisor.handover import Handover
from ringbatch.engine.supervisor.model_changes import ModelChanges
from ringbatch.engine.systemd.service import Service
from ringbatch.shm.host.control_socket import Order, Report


class ChangeOrders:
    """Receiver of one engine's orders.

    Args:
        handover: refuses orders while another engine takes over.
        service: the service manager.
        changes: carries them out.
    """

    def __init__(self, handover: Handover, service: Service, changes: ModelChanges) -> None:
        self._handover = handover
        self._service = service
        self._changes = changes

    def take(self, order: Order, reply: Callable[[Report], None]) -> None:
        """Carry an order out, and pass its report to `reply`."""
        if self._handover.refuses(reply):
            return

        def answer(report: Report) -> None:
            self._service.ends_change(report.failure)
            reply(report)

        self._service.begins_change()
        self._changes.take(order, answer)
