"""Compilation of the hot path, with mypyc and in C, if RINGBATCH_COMPILE=1 is set.

    RINGBATCH_COMPILE=1 pip install .

setup.cfg lists the modules; they are the same plain Python either way. A C compiler and Python's
headers are needed.
"""

import os
import sys
from configparser import ConfigParser
from pathlib import Path

from setuptools import Extension, setup

COMPILER = ["mypy ~= 2.4.1", "numpy ~= 2.4.0"]
"""Build requirements. numpy is for its types, which a later release may change; any numpy runs with
the compiled modules."""
MEMORY_ORDER = Extension("ringbatch.shm._memory_order", ["shm/_memory_order.c"])
"""C11's atomic operations; see shm/memory_order.py."""
PREPARATIONS = {"dist_info", "egg_info"}
"""Commands that build nothing; `egg_info` is how pip learns what building takes."""


def extensions() -> list[Extension]:
    """Return the modules to compile, as extensions."""
    import numpy
    from mypyc.build import mypycify

    config = ConfigParser(interpolation=None)
    config.read("setup.cfg")
    # Linked as the packages are installed; of engine/ mypyc would make a package of that name.
    root = Path("build", "compiled")
    links = root / "ringbatch"
    links.mkdir(parents=True, exist_ok=True)
    link(root / "numpy", Path(numpy.__file__).parent)
    files = []
    for package, modules in config["compiled"].items():
        link(links / package, Path(package).resolve())
        files += [str(links / package / f"{module}.py") for module in modules.split()]
    os.environ["MYPYPATH"] = str(root)
    # What else is installed must not decide what is compiled: neither a ringbatch of before, nor
    # packages whose types are known where they are there. numpy's are wanted, whatever mypy thinks
    # of them.
    settings = root / "mypy.ini"
    settings.write_text("[mypy]\n[mypy-numpy.*]\nignore_errors = True\n")
    flags = [f"--config-file={settings}", "--no-site-packages", "--ignore-missing-imports"]
    flags.append("--explicit-package-bases")
    # All in one library, which lies in a package of ringbatch's.
    found: list[Extension] = mypycify(
        [*flags, *files], debug_level="0", separate=[(files, "ringbatch.shm.compiled")]
    )
    for extension in found:
        # What nobody outside calls is called without a detour through the dynamic linker's table.
        extension.extra_compile_args.append("-fvisibility=hidden")
    return found


def link(place: Path, target: Path) -> None:
    """Have a link stand there, wherever one of before led."""
    place.unlink(missing_ok=True)
    place.symlink_to(target)


if "sdist" in sys.argv:
    # With its source.
    setup(ext_modules=[MEMORY_ORDER])
elif os.environ.get("RINGBATCH_COMPILE") != "1":
    setup()
elif PREPARATIONS & {*sys.argv}:
    setup(setup_requires=COMPILER)
else:
    setup(ext_modules=[MEMORY_ORDER, *extensions()])
