"""A Ray cluster of processes on this host, and what is left of one afterwards."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

# Before Ray is imported, which reads them.
os.environ.setdefault("RAY_USE_UVLOOP", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import ray
from ray.cluster_utils import Cluster

STORE_BYTES: Final = 100 << 20
NAMESPACE: Final = "ringbatch"


class Nodes:
    """A head without room for actors, and nodes that have some.

    Attributes:
        address: of the cluster.

    Args:
        count: of nodes.
        cpus: of each.
    """

    def __init__(self, count: int, cpus: int = 2) -> None:
        self._cluster = Cluster(
            initialize_head=True,
            head_node_args={
                "num_cpus": 0,
                "object_store_memory": STORE_BYTES,
                "include_dashboard": False,
            },
        )
        self._cpus = cpus
        self.nodes: list[Any] = []
        self.address: str = self._cluster.address
        for _ in range(count):
            self.add()
        ray.init(
            address=self.address, namespace=NAMESPACE, log_to_driver=False, configure_logging=False
        )

    def add(self, **more: Any) -> None:
        """Start another node."""
        given = {"num_cpus": self._cpus, "object_store_memory": STORE_BYTES, **more}
        self.nodes.append(self._cluster.add_node(**given))

    def remove(self, node: Any) -> None:
        """Kill a node as if its power had failed."""
        self.nodes.remove(node)
        self._cluster.remove_node(node, allow_graceful=False)

    def node_of(self, node_id: str) -> Any:
        """The node of that name, which Ray has given it."""
        return next(node for node in self.nodes if node.node_id == node_id)

    def close(self) -> None:
        """End all nodes and the connection to them."""
        ray.shutdown()
        # Typed or not, as Ray is installed or not.
        shutdown: Any = self._cluster.shutdown
        shutdown()


@contextmanager
def nodes(count: int, cpus: int = 2) -> Iterator[Nodes]:
    """Yield a cluster, and end it afterwards."""
    cluster = Nodes(count, cpus)
    try:
        yield cluster
    finally:
        cluster.close()


def actor_names() -> list[str]:
    """Return the names of all actors in ringbatch's namespace."""
    return sorted(ray.util.list_named_actors())


def about(name: str, timeout_s: float = 30.0) -> dict[str, Any]:
    """Return an actor's description of itself."""
    actor: Any = ray.get_actor(name)
    found: dict[str, Any] = ray.get(actor.about.remote(), timeout=timeout_s)
    return found


def kill(name: str) -> None:
    """Kill an actor's process; nothing happens where it is just away."""
    with suppress(ray.exceptions.RayError, ProcessLookupError):
        os.kill(about(name)["pid"], signal.SIGKILL)
