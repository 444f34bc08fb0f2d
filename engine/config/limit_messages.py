"""Names of a model's limits in messages: the setting, its value and its origin. Pure."""

from ringbatch.engine.config.settings import ModelConfig


def batch_timeout(model: ModelConfig) -> str:
    """Return the limit of one run of a batch, before its worker is replaced, in words."""
    words = f"batch_timeout_s = {model.batch_limit_s:g}"
    if model.batch_timeout_s is None:
        words += f", derived from timeout_s = {model.timeout_s:g}"
    grace_s = model.hung_after_s - model.batch_limit_s
    return f"{words}, and {grace_s:g} s beyond it" if grace_s else words


def load_timeout(model: ModelConfig) -> str:
    """Return the limit of a worker to open its file, and again to load its model, in words."""
    return f"load_timeout_s = {model.load_timeout_s:g}"


def warm_up_timeout(model: ModelConfig) -> str:
    """Return the limit of a worker's warm-up, before the worker is ended, in words."""
    return f"{load_timeout(model)} and warm_up_s = {model.warm_up_s:g} together"


def warm_up_limit(model: ModelConfig, limit_s: float) -> str:
    """Return the time after which warm-up runs no more, in words.

    `limit_s` is less than `warm_up_s` if requests wait for the worker.
    """
    words = f"warm_up_s = {model.warm_up_s:g}"
    if limit_s < model.warm_up_s:
        return f"{limit_s:g} s, not {words}, as it takes another worker's place"
    return words
