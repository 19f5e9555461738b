"""Train a small classifier on a few digits, see that it is too sure, and write the page."""

import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

from toosure.cli import app


def main(folder: str = ".") -> None:
    """Save predictions for 1,697 digits as an .npz, then evaluate it as anyone would."""
    images, labels = load_digits(return_X_y=True)
    train, test, train_labels, test_labels = train_test_split(
        images / 16, labels, train_size=100, random_state=0, stratify=labels
    )
    # A hundred digits are soon learnt by heart; hardly regularised, the model is then too sure.
    model = LogisticRegression(C=1e4, max_iter=3000).fit(train, train_labels)
    file, page = Path(folder, "runs", "digits.npz"), Path(folder, "demo_report.html")
    file.parent.mkdir(parents=True, exist_ok=True)
    np.savez(file, logits=model.decision_function(test), labels=test_labels)
    print(f"$ toosure evaluate {file} --html {page}\n", flush=True)
    app(["evaluate", str(file), "--html", str(page)], prog_name="toosure")


if __name__ == "__main__":
    main(*sys.argv[1:])
