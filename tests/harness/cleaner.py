"""A transformer of one's own, for pipelines that hold one."""

from typing import Any

from sklearn.base import BaseEstimator, TransformerMixin


class Cleaner(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Transformer of texts into their lengths."""

    def fit(self, x: Any, _: Any = None) -> "Cleaner":
        """Learn nothing."""
        self.fitted_ = True
        return self

    def transform(self, x: Any) -> Any:
        """Return the length of each text."""
        return x.map(len)
