"""A transformer of one's own, for pipelines that hold one."""

from typing import Any

from sklearn.base import BaseEstimator, TransformerMixin


class Cleaner(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Makes lengths of texts."""

    def fit(self, x: Any, _: Any = None) -> "Cleaner":
        """Learn nothing."""
        self.fitted_ = True
        return self

    def transform(self, x: Any) -> Any:
        """The length of each."""
        return x.map(len)
