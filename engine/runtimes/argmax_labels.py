"""Labels from a classifier's probabilities, so that the model runs once for both.

scikit-learn's `predict` and `predict_proba` each run the whole model. For some classifiers the
label is the class with the highest score, and probabilities rank the classes as scores do. Only
where two of them are nearly the same may rounding tell them apart otherwise.
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
"""Not `SVC`, for one: its probabilities are fitted apart from its labels."""
_NEARLY_THE_SAME: Final = 1e-6


def is_ranked(estimator: Any) -> bool:
    """Whether the probabilities of a classifier, or of a pipeline's last step, rank its labels."""
    steps = getattr(estimator, "steps", None)
    kind = type(steps[-1][1] if steps else estimator)
    # Somebody's own class of the same name, or derived from one of these, may do as it likes.
    return kind.__name__ in RANKED and kind.__module__.startswith("sklearn.")


def labels(classes: Array, probabilities: Array) -> Array | None:
    """The label of each row.

    Args:
        classes: [classes] of any dtype, in the order of the columns of `probabilities`.
        probabilities: [rows, classes], of floats.

    Returns:
        [rows]; or None where two classes of a row are too near to tell which one is its label.
    """
    if probabilities.shape[1] > 1:
        second, first = np.partition(probabilities, -2, axis=1)[:, -2:].T
        # Not true of a NaN either.
        if not bool((first - second > _NEARLY_THE_SAME).all()):
            return None
    found: Array = classes[probabilities.argmax(axis=1)]
    return found
