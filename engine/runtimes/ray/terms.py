"""Names of Ray actors, and messages about Ray's cluster and its errors. Pure.

Nothing here needs Ray. Its errors are recognized by the names of their classes.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote

_PREFIX: Final = "ringbatch"
_DIGEST_CHARACTERS: Final = 16
_SAID: Final = 200
_LOST: Final = {
    "ActorUnavailableError": "its actor cannot be reached",
    "ActorDiedError": "its actor has died",
    "RayActorError": "its actor has died",
    "WorkerCrashedError": "its actor has died",
    "NodeDiedError": "the node of its actor has died",
    "ObjectStoreFullError": "the object store is full",
    "OutOfDiskError": "the object store is full, and so is its disk",
    "OutOfMemoryError": "Ray has ended its actor, because the node is short of memory",
    "ObjectLostError": "an object of the batch is lost",
    "LocalRayletDiedError": "the cluster's process on this host has died",
    "RaySystemError": "the cluster has failed",
    "RpcError": "the cluster cannot be reached",
}
"""Messages by the class of Ray's error, or its nearest ancestor among these."""
_NODE_DIED: Final = ("node has died", "node died", "its node")
_NOT_INSTALLED: Final = ("No module named 'ringbatch", "failed to import")


class ActorName(NamedTuple):
    """Name of an actor in its namespace.

    Attributes:
        engine: that it is for.
        model: that it holds.
        version: of the model.
        worker: the index of its worker within that version.
        digest: of all that distinguishes one loaded model from another.
    """

    engine: str
    model: str
    version: str
    worker: int
    digest: str

    @property
    def text(self) -> str:
        """Name as Ray has it."""
        parts = (self.engine, self.model, self.version, str(self.worker), self.digest)
        return "/".join((_PREFIX, *(quote(part, safe="") for part in parts)))

    @property
    def title(self) -> str:
        """Name in messages."""
        return f"{self.model}:{self.version}/{self.worker} of engine {self.engine}"


def actor_name(text: str) -> ActorName | None:
    """Return the parts of a name; None if it is not one of ringbatch's."""
    prefix, *parts = text.split("/")
    if prefix != _PREFIX or len(parts) != len(ActorName._fields) or not parts[3].isdecimal():
        return None
    engine, model, version, worker, digest = map(unquote, parts)
    return ActorName(engine, model, version, int(worker), digest)


def digest(content: Any, description: Mapping[str, object]) -> str:
    """Return a digest that distinguishes one loaded model from another.

    Args:
        content: of the model file, as a buffer.
        description: everything else that makes a difference.
    """
    found = hashlib.sha256(content)
    for key in sorted(description):
        found.update(f"\0{key}={description[key]!r}".encode())
    return found.hexdigest()[:_DIGEST_CHARACTERS]


def lost(error: BaseException) -> str:
    """Return why there is no answer, if the cluster is the cause; else empty."""
    for kind in type(error).__mro__:
        words = _LOST.get(kind.__name__, "")
        if not words:
            continue
        text = str(error)
        if "Actor" in kind.__name__ and any(said in text for said in _NODE_DIED):
            words = _LOST["NodeDiedError"]
        return f"{words}: {_last_line(text)}"
    return ""


def refused(error: BaseException, version: str) -> str:
    """Return why no usable actor can be made; empty if another try may succeed.

    Args:
        error: Ray's.
        version: of ringbatch, here.
    """
    text = str(error)
    if any(said in text for said in _NOT_INSTALLED):
        return (
            f"ringbatch is not installed on a node of the cluster; install ringbatch {version} and "
            f"what the model needs in the Python of every node: {_last_line(text)}"
        )
    if "error raised in its creation task" in text or "RuntimeEnvSetup" in type(error).__name__:
        return f"its actor cannot be made: {_last_line(text)}"
    return ""


def another_version(theirs: object, ours: str) -> str:
    """Return a message about an actor with another ringbatch; empty if it is the same."""
    if theirs == ours:
        return ""
    return (
        f"the node of its actor has ringbatch {theirs}, and this host has {ours}; install the same "
        "in the Python of every node"
    )


_SETTINGS: Final = {"CPU": "ray_cpus", "GPU": "ray_gpus"}


def waiting(needs: Mapping[str, float], nodes: Iterable[Mapping[str, Any]]) -> str:
    """Return why an actor has no place yet, as text.

    Args:
        needs: the resources that one node must have for it.
        nodes: as `ray.nodes` has them.
    """
    alive = [node.get("Resources", {}) for node in nodes if node.get("Alive")]
    wanted = ", ".join(f"{name} {count:g}" for name, count in needs.items()) or "nothing"
    if not alive:
        return "the cluster has no node that lives"
    if not any(all(have.get(name, 0) >= n for name, n in needs.items()) for have in alive):
        most = {name: max(have.get(name, 0) for have in alive) for name in needs}
        found = ", ".join(f"{name} {count:g}" for name, count in most.items())
        scarce = [name for name, count in needs.items() if most[name] < count] or needs
        settings = dict.fromkeys(_SETTINGS.get(name, "ray_resources") for name in scarce)
        return (
            f"no node of {len(alive)} has {wanted}; the most that one has: {found}; "
            f"set a smaller {' or '.join(settings)}, or add such a node"
        )
    return f"its actor waits for {wanted} on one node, or is starting there"


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:_SAID] if lines else "it says no more"
