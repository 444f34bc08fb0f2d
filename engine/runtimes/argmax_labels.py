"""Labels from a classifier's probabilities, so that the model runs once for both.

scikit-learn's `predict` and `predict_proba` each run the whole model. For some classifiers the
label is the class with the highest score, and probabilities rank the classes as scores do. The two
may differ, by rounding, only if two probabilities are nearly the same.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

RANKED: Final = frozenset(
    {
        "DecisionTreeClassifier",
        "ExtraTreeClassifier",
        "ExtraTreesClassifier",
        "GaussianNB",
        "GradientBoostingClassifier",
        "HistGradientBoostingClassifier",
        "LogisticRegression",
        "RandomForestClassifier",
    }
)
"""`SVC`, for example, is not one: its probabilities are fitted apart from its labels."""
_NEARLY_THE_SAME: Final = 1e-6


def is_ranked(estimator: Any) -> bool:
    """Return whether the probabilities of a classifier, or of a pipeline, rank its labels."""
    steps = getattr(estimator, "steps", None)
    kind = type(steps[-1][1] if steps else estimator)
    # A user's class of the same name, or derived from one of these, may rank otherwise.
    return kind.__name__ in RANKED and kind.__module__.startswith("sklearn.")


def labels(classes: Array, probabilities: Array) -> Array | None:
    """Return the label of each row.

    Args:
        classes: [classes] of any dtype, in the order of the columns of `probabilities`.
        probabilities: [rows, classes], of floats.

    Returns:
        [rows]; or None if the best two classes of a row are too near to each other.
    """
    if probabilities.shape[1] > 1:
        second, first = np.partition(probabilities, -2, axis=1)[:, -2:].T
        # The comparison is False for a NaN too.
        if not bool((first - second > _NEARLY_THE_SAME).all()):
            return None
    found: Array = classes[probabilities.argmax(axis=1)]
    return found
