"""Tests that need a GPU, for `.ci/gpu`. Without one they are skipped, which is no success here."""

import sys

import pytest


def missing() -> str:
    """Return what this interpreter lacks for the tests, in words; empty if it lacks nothing."""
    try:
        import torch
    except ImportError as error:
        return f"torch cannot be imported: {error}"
    if torch.version.cuda is None:
        return f"torch {torch.__version__} has no CUDA"
    if not torch.cuda.is_available():
        return "torch finds no CUDA device; nvidia-smi and ringbatch doctor say what there is"
    return ""


def main() -> int:
    """Run pytest with the arguments of the command line; 1 if there is no GPU to test on."""
    if words := missing():
        print(f"{words}: every test would be skipped, so none is run")
        return 1
    return pytest.main(sys.argv[1:])


if __name__ == "__main__":
    raise SystemExit(main())
