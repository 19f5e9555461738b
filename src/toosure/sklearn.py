"""A scikit-learn estimator that calibrates the probabilities of any classifier."""

from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.utils import get_tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from toosure.posthoc import Calibrator, choose
from toosure.posthoc.calibrator_inputs import without_log_zero
from toosure.recalibration import makers

# The classifier inside knows which rows it takes: numbers, missing values, sparse matrices.
ANY_ROWS: dict[str, Any] = {"accept_sparse": True, "dtype": None, "ensure_all_finite": False}
# Texts have one axis and images four: they have no columns that scikit-learn could count.
NOT_A_TABLE: dict[str, Any] = {"allow_nd": True, "ensure_2d": False}


class CalibratedClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # sklearn is untyped
    """Calibrate the probabilities of a classifier by any calibrator of `toosure.posthoc`.

    A classifier that is already fitted stays as it is, and `fit(X, y)` takes rows it never saw to
    fit the calibrator on. One that is not fitted is cloned: the calibrator is fitted on what it
    predicts for held-out rows, in `cv` folds, and the classifier then on all rows.

    `method` is "auto", the lowest NLL on held-out rows among all calibrators and none, or one by
    its word, as "temperature" or "platt". Sample weights are not taken.

    >>> from sklearn.naive_bayes import GaussianNB
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(300, 2)), rng.integers(0, 2, 300)
    >>> model = CalibratedClassifier(GaussianNB().fit(X[:100], y[:100])).fit(X[100:200], y[100:200])
    >>> model.predict_proba(X[200:]).shape
    (100, 2)
    """

    def __init__(
        self, estimator: Any = None, method: str = "temperature", cv: int = 5, seed: int = 0
    ) -> None:
        self.estimator = estimator
        self.method = method
        self.cv = cv
        self.seed = seed

    def fit(self, X: Any, y: Any) -> Self:
        """Fit the calibrator, and the classifier if it is not fitted yet."""
        tried = makers(self.method)
        y = self.checked_targets(X, y)
        estimator = self.estimator_or_default()
        check_has_probabilities(estimator)

        if is_fitted(estimator):
            self.estimator_ = estimator
            self.classes_ = np.asarray(estimator.classes_)
            scores = log_scores(self.estimator_, X)
        else:
            self.classes_ = np.unique(y)
            self.estimator_ = clone(estimator)
            scores = self.held_out_scores(X, y)
            self.estimator_.fit(X, y)

        numbers = class_numbers(y, self.classes_)
        self.calibrator_ = self.fitted_calibrator(tried, scores, numbers)
        return self

    def estimator_or_default(self) -> Any:
        """Return the classifier inside. An ensemble without members is false, so ask for None."""
        return LogisticRegression() if self.estimator is None else self.estimator

    def checked_targets(self, X: Any, y: Any) -> np.ndarray:
        """Check the rows as scikit-learn does, and return the targets."""
        _, targets = validate_data(self, X, y, **checks_of(X))
        check_classification_targets(targets)
        if len(np.unique(targets)) < 2:
            raise ValueError(
                f"y holds one class only ({targets[0]!r}): a calibrator needs rows of at least two"
            )
        return np.asarray(targets)

    def held_out_scores(self, X: Any, y: np.ndarray) -> torch.Tensor:
        """Return the scores of every row by a classifier that was not fitted on it."""
        fewest = int(np.unique(y, return_counts=True)[1].min())
        if fewest < 2:
            raise ValueError(
                "y has a class with a single row: give more rows of it, or a fitted classifier"
            )
        folds = StratifiedKFold(min(self.cv, fewest), shuffle=True, random_state=self.seed)
        probs = cross_val_predict(self.estimator_, X, y, cv=folds, method="predict_proba")
        return torch.from_numpy(np.asarray(probs, dtype=np.float64)).log()

    def fitted_calibrator(
        self, tried: dict[str, Any], scores: torch.Tensor, numbers: torch.Tensor
    ) -> Calibrator:
        """Return the calibrator that was asked for, fitted on scores and class numbers."""
        scores = without_log_zero(scores)
        if self.method == "auto":
            return choose(scores, numbers, tried, self.cv, self.seed).calibrator
        calibrator: Calibrator = next(iter(tried.values()))()
        return calibrator.fit_quietly(scores, numbers)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return calibrated probabilities, a column per class of `classes_`."""
        check_is_fitted(self, "calibrator_")
        validate_data(self, X, reset=False, **checks_of(X))
        probs = self.calibrator_.predict_proba(log_scores(self.estimator_, X))
        return np.asarray(probs.numpy())

    def predict(self, X: Any) -> np.ndarray:
        """Return the most probable class of each row."""
        predicted = self.predict_proba(X).argmax(1)
        return np.asarray(self.classes_[predicted])

    def __sklearn_tags__(self) -> Any:
        """Take what the classifier takes: sparse rows, missing values."""
        tags = super().__sklearn_tags__()
        own = get_tags(self.estimator_or_default()).input_tags
        tags.input_tags.sparse = own.sparse
        tags.input_tags.allow_nan = own.allow_nan
        return tags


def is_fitted(estimator: Any) -> bool:
    """Whether a classifier was fitted before."""
    try:
        check_is_fitted(estimator)
    except NotFittedError:
        return False
    return True


def checks_of(X: Any) -> dict[str, Any]:
    """Return options of scikit-learn's check: a table has columns, texts and images have none."""
    axes = np.ndim(X) if isinstance(X, list | tuple) else getattr(X, "ndim", 2)
    return ANY_ROWS if axes == 2 else ANY_ROWS | NOT_A_TABLE


def check_has_probabilities(estimator: Any) -> None:
    """Raise where a classifier gives no probabilities."""
    if not hasattr(estimator, "predict_proba"):
        name = type(estimator).__name__
        remedy = "give a classifier that has it"
        if hasattr(estimator, "decision_function"):
            remedy = "give CalibratedClassifierCV(..., ensemble=False) of scikit-learn around it"
        raise ValueError(
            f"{name} has no predict_proba, and there is nothing to calibrate: {remedy}"
        )


def log_scores(estimator: Any, X: Any) -> torch.Tensor:
    """Return the logarithm of a classifier's probabilities, float64 (N, C)."""
    probs = np.asarray(estimator.predict_proba(X), dtype=np.float64)
    return without_log_zero(torch.from_numpy(probs).log())


def class_numbers(y: np.ndarray, classes: np.ndarray) -> torch.Tensor:
    """Return the class index of each target; raise on a target that is not a class."""
    number = {label: k for k, label in enumerate(classes.tolist())}
    unknown = [label for label in np.unique(y).tolist() if label not in number]
    if unknown:
        raise ValueError(f"y holds {unknown[0]!r}, which the classifier never saw")
    return torch.tensor([number[label] for label in y.tolist()])
