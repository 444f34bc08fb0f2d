"""Names of a model's limits in messages: the setting, its value and its origin. Pure."""

from ringbatch.engine.config.settings import ModelConfig


def batch_timeout(model: ModelConfig) -> str:
    """What one run of a batch may take before its worker is replaced."""
    words = f"batch_timeout_s = {model.batch_limit_s:g}"
    if model.batch_timeout_s is None:
        words += f", derived from timeout_s = {model.timeout_s:g}"
    grace_s = model.hung_after_s - model.batch_limit_s
    return f"{words}, and {grace_s:g} s beyond it" if grace_s else words


def load_timeout(model: ModelConfig) -> str:
    """What a worker may take to open its file, and again to load its model."""
    return f"load_timeout_s = {model.load_timeout_s:g}"


def warm_up_timeout(model: ModelConfig) -> str:
    """What a worker may take for its warm-up before it is ended."""
    return f"{load_timeout(model)} and warm_up_s = {model.warm_up_s:g} together"


def warm_up_limit(model: ModelConfig, limit_s: float) -> str:
    """After how long no more is run in warm-up; `limit_s` is less than `warm_up_s` where requests
    wait for the worker."""
    words = f"warm_up_s = {model.warm_up_s:g}"
    if limit_s < model.warm_up_s:
        return f"{limit_s:g} s, not {words}, as it takes another worker's place"
    return words
