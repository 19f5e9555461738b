"""Judge a scikit-learn classifier by its P(class 1), calibrate it, and write the page."""

import sys
from pathlib import Path

from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB

from toosure.evaluate import evaluate
from toosure.evaluate.verdict import verdict
from toosure.metrics import binary_brier
from toosure.page.evaluation import evaluation_page
from toosure.posthoc import Isotonic, Platt


def main(page: Path) -> None:
    """Fit naive Bayes, which is far too sure, on a third of the rows; calibrate; judge."""
    x, y = load_breast_cancer(return_X_y=True)
    x_train, x_rest, y_train, y_rest = train_test_split(x, y, train_size=150, random_state=0)
    x_val, x_test, y_val, y_test = train_test_split(x_rest, y_rest, test_size=0.5, random_state=0)
    model = GaussianNB().fit(x_train, y_train)
    val, test = (model.predict_proba(rows)[:, 1] for rows in (x_val, x_test))

    result = evaluate(probs=test, labels=y_test)
    print(verdict(result).sentence)
    page.write_text(evaluation_page(result), encoding="utf-8")

    print(f"before: Brier score {binary_brier(probs=test, labels=y_test):.4f}")
    for calibrator in (Platt(), Isotonic()):
        p = calibrator.fit(probs=val, labels=y_val).transform(probs=test)
        name = type(calibrator).__name__
        print(f"{name}: Brier score {binary_brier(probs=p, labels=y_test):.4f}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "binary.html"))
