"""Every line of docs/what_you_have.md is run, on data such as its reader has."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from typer.testing import CliRunner

from toosure import Watch
from toosure.cli import app
from toosure.evaluate import evaluate

PAGE = Path(__file__).parents[1] / "docs" / "what_you_have.md"
N = 60


def lines_of(title):
    """Return the lines of code of one section, by what one has."""
    part = PAGE.read_text().split(f"\n## {title}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \| `(.+?)`(?:, then .*)? \|$", part, re.M)
    assert len(rows) == part.count("\n| ") - 1, "a row of the table could not be read"
    return dict(rows)


def generator():
    return torch.Generator().manual_seed(0)


class Segmenter(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Conv2d(1, 3, 1)

    def forward(self, images):
        return self.layer(images)


def transformer(kind):
    transformers = pytest.importorskip("transformers")
    small = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 20}
    if kind == "bert":
        config = transformers.BertConfig(
            **small, intermediate_size=8, num_labels=3, attn_implementation="eager"
        )
        return transformers.BertForSequenceClassification(config)
    config = transformers.GPT2Config(
        **{"vocab_size": 20, "n_embd": 8, "n_layer": 1, "n_head": 2, "n_positions": 8},
        **{"bos_token_id": 0, "eos_token_id": 0, "attn_implementation": "eager"},
    )
    return transformers.GPT2LMHeadModel(config)


def dict_loader(**columns):
    """Return a loader whose batches are dicts."""
    count = len(next(iter(columns.values())))
    examples = [{name: column[i] for name, column in columns.items()} for i in range(count)]
    return DataLoader(examples, 4)


def loop_names(code):
    """Return what a loop has, as far as a line of code names it."""
    x, y = torch.randn(N, 4, generator=generator()), torch.arange(N) % 3
    images = torch.randn(8, 1, 4, 4, generator=generator())
    tokens = torch.randint(1, 20, (12, 6), generator=generator())
    pixels = torch.randint(0, 3, (8, 4, 4), generator=generator())
    names = {
        "Watch": Watch,
        "nn": nn,
        "model": nn.Linear(4, 3),
        "x": x,
        "y": y,
        "x_val": x,
        "y_val": y,
        "train_loader": DataLoader(TensorDataset(x, y), 16, shuffle=True),
        "val_loader": DataLoader(TensorDataset(x, y), 16),
        "dict_loader": dict_loader(image=x, kind=y, id=torch.arange(N)),
        "binary_model": nn.Linear(4, 1),
        "binary_loader": DataLoader(TensorDataset(x, (y > 0).float()), 16),
        "bert_loader": dict_loader(input_ids=tokens, labels=torch.arange(12) % 3),
        "token_loader": dict_loader(input_ids=tokens),
        "segmenter": Segmenter(),
        "pixel_loader": DataLoader(TensorDataset(images, pixels), 4),
    }
    for kind in ("bert", "gpt2"):
        if f"({kind}," in code:
            names[kind] = transformer(kind)
    return names


@pytest.mark.parametrize("have", lines_of("While it trains"))
def test_while_it_trains(have, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = lines_of("While it trains")[have]
    names = loop_names(code)
    exec(code, names)

    watch = names["watch"]
    watch.step()
    last = watch.finish()
    watch.close()
    assert last["step"] == 1
    assert 0 <= last["train/ece"] <= 1 and last["train/gn_sharpness"] > 0


def prediction_names(code):
    random = np.random.default_rng(0)
    logits = 2 * random.normal(size=(N, 3))
    probs = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    labels = random.integers(0, 3, N)
    names = {
        "evaluate": evaluate,
        "logits": logits,
        "probs": probs,
        "labels": labels,
        "p_of_one": probs[:, 1],
        "zeros_and_ones": (labels == 1).astype(int),
        "label_logits": logits,
        "label_targets": random.integers(0, 2, (N, 3)),
        "token_logits": random.normal(size=(12, 5, 4)),
        "token_labels": np.where(random.random((12, 5)) < 0.2, -100, 1),
        "pixel_logits": random.normal(size=(6, 3, 4, 4)),
        "pixel_labels": random.integers(0, 3, (6, 4, 4)),
    }
    if "lassifier" in code:
        sklearn = pytest.importorskip("sklearn.naive_bayes")
        from toosure.sklearn import CalibratedClassifier

        classifier = sklearn.GaussianNB().fit(logits, labels)
        names |= {"classifier": classifier, "CalibratedClassifier": CalibratedClassifier}
        names |= {"X_test": logits, "y_test": labels, "X_val": logits, "y_val": labels}
    if "frame" in code:
        pandas = pytest.importorskip("pandas")
        names["frame"] = pandas.DataFrame(probs, columns=["p_0", "p_1", "p_2"]).assign(y=labels)
    return names


@pytest.mark.parametrize("have", lines_of("Predictions in Python"))
def test_predictions_in_python(have):
    code = lines_of("Predictions in Python")[have]
    names = prediction_names(code)
    if "calibrated" in code:
        exec(code, names)
        found = names["calibrated"].predict_proba(names["X_test"])
        assert found.shape == (N, 3) and np.allclose(found.sum(1), 1)
        return

    result = eval(code, names)
    ece = result.pooled["ece"] if "multilabel" in code else result.metrics["ece"]
    assert ece.low <= ece.value <= ece.high


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with the files that the commands name."""
    folder = tmp_path_factory.mktemp("files")
    random = np.random.default_rng(0)
    logits = 2 * random.normal(size=(300, 3))
    probs = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    labels = np.array([random.choice(3, p=row) for row in probs])
    sites = np.where(random.random(300) < 0.5, "north", "south")
    for name, power in (("predictions", 2.0), ("second", 1.0)):
        sharper = probs**power / (probs**power).sum(1, keepdims=True)
        rows = [
            ",".join([*map(str, row), site, str(number // 5), str(label)])
            for number, (row, site, label) in enumerate(zip(sharper, sites, labels, strict=True))
        ]
        (folder / f"{name}.csv").write_text("\n".join(["p_0,p_1,p_2,site,patient,target", *rows]))

    yes = [f"{p},{1 - p},{int(label != 1)}" for p, label in zip(probs[:, 1], labels, strict=True)]
    (folder / "odd.csv").write_text("\n".join(["yes,no,answer", *yes]))
    one = [f"{p},{int(label == 1)}" for p, label in zip(probs[:, 1], labels, strict=True)]
    (folder / "binary.csv").write_text("\n".join(["y_prob,y_true", *one]))
    np.save(folder / "logits.npy", logits)
    np.save(folder / "labels.npy", labels)
    return folder


def test_predictions_in_a_file(folder, monkeypatch):
    monkeypatch.chdir(folder)
    for have, command in lines_of("Predictions in a file").items():
        words = shlex.split(command)
        assert words[0] == "toosure"
        done = CliRunner().invoke(app, words[1:])
        assert done.exit_code == 0, f"{have}: {done.output}"
        assert "Traceback" not in done.output
    assert (folder / "calibrated.npz").is_file()
