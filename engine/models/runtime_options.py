"""Options of a runtime as the supervisor sends them to a worker. Pure."""

from dataclasses import dataclass

from ringbatch.engine.models.ray_place import RayPlace


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeOptions:
    """Options of a runtime that the configuration gives.

    Attributes:
        max_batch_size: the cap on instances in one batch; 0 for a model whose tensors have no batch
            dimension.
        device: ``cpu``, or ``cuda:N``.
        inputs: of a file that does not declare them, as `config.declared_tensors` reads them.
        outputs: likewise.
        autocast: ``off``, or the datatype that is used if a calculation bears it.
        channels_last: True if images and weights are laid out so.
        cuda_graphs: whether runs on a device are captured: ``auto``, ``off`` or ``required``.
        columns: how it takes the columns of a table: ``auto``, ``named`` or ``matrix``.
        answers: names of the results of a model of trees; none for the usual ones.
        iterations: rounds of boosting that answers are made of; 0 for the usual ones.
        class_names: names of labels; none for those of the file.
        truncate: True to cut texts that are too long.
        trusted_types: full names of types that a file may hold beyond those known to be safe.
        trust_pickle: True if a file may run code while it is read.
        protocol: of a model server: ``v1``, ``v2`` or ``v2-json``.
        timeout_s: how long it may take to answer a batch.
        isolate_errors: True to ask for the halves of a batch that it answers with 500.
        ray: the place of the model for the runtime ray.
        retry: which batches without an answer another server gets, ``safe`` or ``always``.
        upstream_ca: authorities of model servers over TLS; None for those of the system.
        upstream_certificate, upstream_key: for model servers; None for none.
        headers: that a model gets with the rest of the request context.
    """

    max_batch_size: int
    device: str = "cpu"
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    autocast: str = "off"
    channels_last: bool = False
    cuda_graphs: str = "auto"
    columns: str = "auto"
    answers: tuple[str, ...] = ()
    iterations: int = 0
    class_names: tuple[str, ...] = ()
    truncate: bool = True
    trusted_types: tuple[str, ...] = ()
    trust_pickle: bool = False
    protocol: str = "v1"
    timeout_s: float = 60.0
    isolate_errors: bool = False
    ray: RayPlace | None = None
    retry: str = "safe"
    upstream_ca: str | None = None
    upstream_certificate: str | None = None
    upstream_key: str | None = None
    headers: tuple[str, ...] = ()
