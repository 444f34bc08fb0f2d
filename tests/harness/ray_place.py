"""A place in a Ray cluster, for tests that name what matters to them in place of its own."""

from typing import Final

from ringbatch.engine.models.ray_place import RayPlace

ANYWHERE: Final = RayPlace(
    engine="e",
    version="1",
    index=0,
    loader="python",
    threads=1,
    address="auto",
    namespace="n",
    cpus=1.0,
    gpus=0.0,
    resources=(),
    scheduling="default",
    placement_group="",
    keep_s=0.0,
    load_timeout_s=60.0,
)
