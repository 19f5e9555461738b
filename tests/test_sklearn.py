"""The scikit-learn estimator: its own checks, calibrators on held-out rows, and what is refused."""

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB, MultinomialNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import check_estimator

from toosure.metrics import ece, nll
from toosure.posthoc import Temperature
from toosure.sklearn import CalibratedClassifier


def doubled_columns(n=900, seed=0):
    """Rows whose columns are there three times: naive Bayes takes them as new and is too sure."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, n)
    column = labels[:, None] + 1.2 * rng.normal(size=(n, 2))
    return np.concatenate([column] * 3, 1), np.array(["x", "y", "z"])[labels]


def numbers(y):
    return torch.tensor(np.searchsorted(["x", "y", "z"], y))


def test_a_fitted_classifier_is_kept_and_calibrated():
    X, y = doubled_columns()
    model = GaussianNB().fit(X[:300], y[:300])
    calibrated = CalibratedClassifier(model).fit(X[300:600], y[300:600])
    before, after = (each.predict_proba(X[600:]) for each in (model, calibrated))

    expected = Temperature().fit(np.log(model.predict_proba(X[300:600])), numbers(y[300:600]))
    np.testing.assert_allclose(after, expected.predict_proba(np.log(before)), rtol=1e-9)
    assert calibrated.estimator_ is model
    truth = numbers(y[600:])
    assert nll(probs=after, labels=truth) < nll(probs=before, labels=truth)
    assert ece(probs=after, labels=truth) < ece(probs=before, labels=truth) / 2
    assert (calibrated.predict(X[600:]) == model.predict(X[600:])).all()


@pytest.mark.parametrize("method", ["temperature", "auto", "vector"])
def test_an_unfitted_classifier_is_cross_fitted(method):
    X, y = doubled_columns(600)
    model = CalibratedClassifier(GaussianNB(), method=method, cv=3).fit(X[:400], y[:400])
    assert model.classes_.tolist() == ["x", "y", "z"] and not hasattr(model.estimator, "classes_")
    probs = model.predict_proba(X[400:])
    np.testing.assert_allclose(probs.sum(1), 1, rtol=1e-6)
    plain = GaussianNB().fit(X[:400], y[:400]).predict_proba(X[400:])
    assert nll(probs=probs, labels=numbers(y[400:])) < nll(probs=plain, labels=numbers(y[400:]))


@pytest.mark.parametrize(
    "estimator",
    [
        RandomForestClassifier(5, random_state=0),  # unfitted, it has no length
        GridSearchCV(RandomForestClassifier(5, random_state=0), {"max_depth": [2, 3]}, cv=2),
    ],
)
def test_an_ensemble_that_is_not_fitted(estimator):
    X, y = doubled_columns(300)
    probs = CalibratedClassifier(estimator, cv=3).fit(X, y).predict_proba(X)
    np.testing.assert_allclose(probs.sum(1), 1, rtol=1e-6)


@pytest.mark.parametrize("fitted", [False, True])
def test_texts_and_images_are_rows_too(fitted):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 120)
    texts = [f"{word} {rng.integers(9)}" for word in np.array(["good", "bad"])[y]]
    pipeline = make_pipeline(CountVectorizer(), MultinomialNB())
    images = rng.normal(size=(120, 1, 4, 4)) + y[:, None, None, None]
    flat = make_pipeline(FunctionTransformer(lambda x: x.reshape(len(x), -1)), GaussianNB())

    for model, rows in ((pipeline, texts), (pipeline, np.array(texts)), (flat, images)):
        inner = clone(model).fit(rows, y) if fitted else model
        calibrated = CalibratedClassifier(inner, cv=3).fit(rows, y)
        assert calibrated.score(rows, y) > 0.9


def test_what_is_refused():
    X, y = doubled_columns(60)
    around = r"LinearSVC has no predict_proba.*CalibratedClassifierCV\(..., ensemble=False\)"
    with pytest.raises(ValueError, match=around):
        CalibratedClassifier(LinearSVC()).fit(X, y)
    wrapped = CalibratedClassifierCV(LinearSVC(), ensemble=False)  # the sentence, followed
    assert CalibratedClassifier(wrapped).fit(X, y).predict_proba(X).shape == (60, 3)
    with pytest.raises(ValueError, match="LinearSVC has no predict_proba"):
        CalibratedClassifier(LinearSVC().fit(X, y)).fit(X, y)
    with pytest.raises(ValueError, match="y holds 'w', which the classifier never saw"):
        CalibratedClassifier(GaussianNB().fit(X, y)).fit(X, np.append(y[:-1], "w"))
    with pytest.raises(ValueError, match="a class with a single row"):
        CalibratedClassifier(GaussianNB()).fit(X, np.append(y[:-1], "w"))
    with pytest.raises(ValueError, match="one class"):
        CalibratedClassifier(GaussianNB()).fit(X, np.full(60, "x"))
    with pytest.raises(ValueError, match="magic"):
        CalibratedClassifier(GaussianNB(), method="magic").fit(X, y)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_checks_of_scikit_learn():
    results = check_estimator(CalibratedClassifier(LogisticRegression(), cv=2), on_fail=None)
    failed = [each["check_name"] for each in results if each["status"] == "failed"]
    assert not failed and len(results) > 40
