"""Installed Python and packages, and the versions that ringbatch needs."""

import platform
import re
import sys
from importlib import metadata

from ringbatch.engine.doctor.facts import Package, Software
from ringbatch.shm.host.distribution import installed_version
from ringbatch.shm.host.platform import is_compiled

_REQUIREMENT = re.compile(
    r"""([\w.-]+)\s*(?:\[[^]]*\])?\s*\(?([^;)]*)\)?(?:;.*\bextra\s*==\s*["'](\w+))?"""
)
_STAND_INS = {"onnxruntime": ("onnxruntime-gpu",), "xgboost": ("xgboost-cpu",)}
"""Distributions of another name that hold the same modules."""
_OF_DEVELOPERS = ("test", "lint")


def software() -> Software:
    """Return the software installed for this interpreter."""
    version = installed_version()
    asked = metadata.requires("ringbatch") or [] if version else []
    return Software(
        ringbatch=version,
        compiled=is_compiled(),
        python=sys.version_info[:3],
        implementation=platform.python_implementation(),
        packages=tuple(packages(asked)),
    )


def packages(requirements: list[str]) -> list[Package]:
    """Return the packages of requirements as wheels have them: ``hpack>=4.1; extra == "grpc"``.

    Packages for developing ringbatch are left out.
    """
    found = []
    for text in requirements:
        if (known := _REQUIREMENT.match(text)) and known[3] not in _OF_DEVELOPERS:
            name, bounds, extra = known[1], known[2].replace(" ", ""), known[3] or ""
            found.append(Package(name=name, version=_installed(name), bounds=bounds, extra=extra))
    return found


def _installed(name: str) -> str | None:
    for one in (name, *_STAND_INS.get(name, ())):
        try:
            return metadata.version(one)
        except metadata.PackageNotFoundError:
            continue
    return None
