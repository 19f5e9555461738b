"""The callback in skorch, which gives its optimizer a closure."""

import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone
from torch import nn

from toosure import Run
from toosure.optim import CSAM, SAM
from toosure.optim.csam import CSAMCriterion

skorch = pytest.importorskip("skorch")

from loops import Net, own_loop, problem, rows_of, same_weights, steps_of  # noqa: E402

from toosure.integrations.skorch import WatchCallback  # noqa: E402


def callback(folder, **options):
    return WatchCallback(run=folder, every=3, measure="none", **options)


def net_with(watch, optimizer=torch.optim.SGD, kind=None, module=Net, **options):
    options = {"max_epochs": 2, "lr": 0.2, "train_split": None, **options}
    return (kind or skorch.NeuralNet)(
        module,
        optimizer=optimizer,
        batch_size=8,
        verbose=0,
        callbacks=[("watch", watch)],
        callbacks__print_log=None,
        **{"criterion": nn.CrossEntropyLoss, **options},
    )


def arrays():
    x, y = problem()
    return x.numpy(), y.numpy()


@pytest.mark.parametrize("name", ["sgd", "sam"])
def test_weights_and_rows_are_those_of_our_own_loop(name, tmp_path):
    net = net_with(callback(tmp_path / "a", val=problem()))
    if name == "sam":
        net = net_with(callback(tmp_path / "a", val=problem()), SAM, optimizer__rho=0.1)
    net.fit(*arrays())
    made = {"sgd": lambda p: torch.optim.SGD(p, lr=0.2), "sam": lambda p: SAM(p, rho=0.1, lr=0.2)}
    own = own_loop(tmp_path / "b", made[name])
    assert same_weights(net.module_, own)
    assert rows_of(tmp_path / "a") == rows_of(tmp_path / "b")
    assert steps_of(tmp_path / "a") == [0, 3, 6, 9, 12, 15, 16]
    assert net.module_.calls == (32 if name == "sam" else 16)


def test_csam_a_split_of_its_own_and_a_clone(tmp_path):
    net = net_with(
        callback(tmp_path / "a"),
        CSAM,
        kind=skorch.NeuralNetClassifier,
        train_split=skorch.dataset.ValidSplit(4),
        max_epochs=1,
    )
    net = clone(net).fit(*arrays())
    assert isinstance(net.criterion_, CSAMCriterion)
    notes = dict(net.callbacks_)["watch"].watch.measurer.notes
    assert (notes["train"]["examples"], notes["val"]["examples"]) == (48, 16)
    assert "val/ece" in Run(tmp_path / "a").rows[-1]


def test_partial_fit_goes_on_also_after_a_pickle(tmp_path):
    net = net_with(callback(tmp_path / "a"), max_epochs=1).fit(*arrays())
    net = pickle.loads(pickle.dumps(net))
    net.partial_fit(*arrays())
    net.partial_fit(*arrays())
    assert steps_of(tmp_path / "a") == [0, 3, 6, 8, 9, 12, 15, 16, 18, 21, 24]
    net_with(callback(tmp_path / "b"), max_epochs=3).fit(*arrays())
    whole = {row["step"]: row for row in rows_of(tmp_path / "b")}
    for row in rows_of(tmp_path / "a"):
        assert row["step"] not in whole or row == whole[row["step"]]


def test_a_binary_net(tmp_path):
    class Binary(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 1)

        def forward(self, x):
            return self.layer(x)[:, 0]

    x, y = arrays()
    net = net_with(
        callback(tmp_path / "a"),
        kind=skorch.NeuralNetBinaryClassifier,
        module=Binary,
        criterion=nn.BCEWithLogitsLoss,
    ).fit(x, (y > 0).astype(np.float32))
    row = Run(tmp_path / "a").rows[-1]
    logits = torch.tensor(x) @ net.module_.layer.weight.T + net.module_.layer.bias
    loss = nn.functional.binary_cross_entropy_with_logits(
        logits.detach()[:, 0], torch.tensor(y > 0).float()
    )
    assert row["train/loss"] == pytest.approx(float(loss), rel=1e-5)


class WithSoftmax(Net):
    def forward(self, x):
        return super().forward(x).softmax(1)


def test_the_softmax_of_a_classifier_with_its_default_loss(tmp_path):
    """As in the first lines of skorch's README: NLLLoss, of the logarithm that skorch takes."""
    default = {"kind": skorch.NeuralNetClassifier, "module": WithSoftmax, "criterion": nn.NLLLoss}
    net = net_with(callback(tmp_path / "a"), **default).fit(*arrays())
    row = Run(tmp_path / "a").rows[-1]
    x, y = arrays()
    p = net.predict_proba(x)[np.arange(len(y)), y]
    assert row["train/nll"] == pytest.approx(-np.log(p).mean(), rel=1e-5)
    assert row["train/accuracy"] == (net.predict(x) == y).mean()
    with pytest.raises(ValueError, match=r"CSAM needs logits.*criterion=nn.CrossEntropyLoss"):
        net_with(callback(tmp_path / "b"), CSAM, **default).fit(*arrays())


class WithLogSoftmax(Net):
    def forward(self, x):
        return super().forward(x).log_softmax(1)


class WithLogits(Net):
    def forward(self, x):
        return 9 + super().forward(x)  # all above 0


class SoftmaxInLoss(skorch.NeuralNetClassifier):
    def get_loss(self, y_pred, y_true, *args, **kwargs):
        return super().get_loss(y_pred.softmax(1), y_true, *args, **kwargs)


class OwnLoss(skorch.NeuralNetClassifier):
    """A net that takes no logarithm, for a module that gives it."""

    def get_loss(self, y_pred, y_true, *args, **kwargs):
        return self.criterion_(y_pred, y_true)


@pytest.mark.parametrize(
    ("optimizer", "kind", "module"),
    [
        (torch.optim.SGD, OwnLoss, WithLogSoftmax),
        (CSAM, OwnLoss, WithLogSoftmax),
        (torch.optim.SGD, SoftmaxInLoss, WithLogits),
    ],
)
def test_logits_of_a_classifier_with_a_loss_of_its_own(optimizer, kind, module, tmp_path):
    own = {"kind": kind, "module": module, "criterion": nn.NLLLoss}
    torch.manual_seed(0)
    net_with(callback(tmp_path / "a"), optimizer, **own).fit(*arrays())
    torch.manual_seed(0)
    net_with(callback(tmp_path / "b"), optimizer).fit(*arrays())  # Net, with cross-entropy
    one, other = (Run(tmp_path / name).rows[-1]["train/nll"] for name in "ab")
    assert one == pytest.approx(other, rel=1e-4)
