"""Listing of the actors that a Ray cluster holds for engines; ends them on request."""

from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from ringbatch.engine.models.extras import required
from ringbatch.engine.runtimes.ray.runtime import connect
from ringbatch.engine.runtimes.ray.terms import ActorName, actor_name

_ANSWERS_WITHIN_S: Final = 2.0


class Listed(NamedTuple):
    """Actor of a Ray cluster, as a command lists it.

    Attributes:
        name: its name.
        about: its own description; empty if it does not answer now.
    """

    name: ActorName
    about: dict[str, Any]

    @property
    def line(self) -> str:
        """Line of text about it."""
        if not self.about:
            return f"{self.name.title}: busy, or waits for its place"
        about = self.about
        state = "loaded" if about["loaded"] else "without a model"
        return (
            f"{self.name.title}: {state}, on {about['node']}, process {about['pid']}; driven from "
            f"{about['host'] or 'nowhere yet'}, last {about['idle_s']:.0f} s ago"
        )


def actors(address: str, namespace: str, engine: str | None, *, end: bool) -> list[Listed]:
    """Return the actors in a namespace of a cluster.

    Args:
        address: of the cluster.
        namespace: of the actors.
        engine: that they are for; None for any.
        end: True to end them.

    Raises:
        StartupError: there is no such cluster.
    """
    title = "ringbatch actors"
    ray = required("ray", "ray", Path(title))
    connect(ray, address, namespace, title)
    try:
        names = filter(None, map(actor_name, ray.util.list_named_actors()))
        wanted = sorted(name for name in names if engine in (None, name.engine))
        return [_listed(ray, name, end=end) for name in wanted]
    finally:
        ray.shutdown()


def _listed(ray: Any, name: ActorName, *, end: bool) -> Listed:
    about: dict[str, Any] = {}
    # The actor may be gone by now.
    with suppress(ValueError, ray.exceptions.RayError):
        actor = ray.get_actor(name.text)
        with suppress(ray.exceptions.RayError):
            about = ray.get(actor.about.remote(), timeout=_ANSWERS_WITHIN_S)
        if end:
            ray.kill(actor, no_restart=True)
    return Listed(name, about)
