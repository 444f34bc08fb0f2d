"""Ray placement of a model: the cluster, the resources and the limits of its actor. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RayPlace:
    """Place of an actor, and its needs, as the settings of these names say.

    Attributes:
        engine: the name of the engine that it is for.
        version: of the model.
        index: of the worker that drives it.
        loader: the runtime that loads the model in it.
        threads: that one run may use there.
        load_timeout_s: what the worker may take to have it opened, and again to have it loaded.
    """

    engine: str
    version: str
    index: int
    loader: str
    threads: int
    address: str
    namespace: str
    cpus: float
    gpus: float
    resources: tuple[str, ...]
    scheduling: str
    placement_group: str
    keep_s: float
    load_timeout_s: float

    @property
    def needs(self) -> dict[str, float]:
        """Resources that one node must have for it."""
        counts = dict(item.rsplit("=", 1) for item in self.resources)
        wanted = {"CPU": self.cpus, "GPU": self.gpus}
        wanted |= {name: float(count) for name, count in counts.items()}
        return {name: count for name, count in wanted.items() if count}
