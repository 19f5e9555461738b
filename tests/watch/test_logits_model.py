"""Models as they come: one output, many places per example, outputs in an object."""

import copy

import numpy as np
import pytest
import torch
from sklearn.metrics import brier_score_loss, log_loss
from test_watch import CE
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F
from torch.utils.data import DataLoader

from toosure import Watch, metrics
from toosure.evaluate import evaluate
from toosure.losses import FocalLoss
from toosure.page.replicas import example_scores, replicas_in, replicas_of
from toosure.predictions import read_predictions

BCE = nn.BCEWithLogitsLoss()
EVERYTHING = ("gn_sharpness", "hessian_sharpness", "kappa_min")


def net(outputs=1, width=5):
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, outputs)).double()


def binary_data(n=30):
    torch.manual_seed(5)
    return torch.randn(n, 4).double(), torch.arange(n) % 3 // 2


class Squeezed(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = net()

    def forward(self, x):
        return self.net(x)[:, 0]


def dense(model, scalar):
    """The Hessian of a function of the parameters, by autograd, (P, P)."""
    names = [name for name, _ in model.named_parameters()]
    shapes = [p.shape for p in model.parameters()]
    flat = torch.cat([p.detach().flatten() for p in model.parameters()])

    def of(vector):
        parts = vector.split([s.numel() for s in shapes])
        return scalar({n: p.view(s) for n, p, s in zip(names, parts, shapes, strict=True)})

    return torch.autograd.functional.hessian(of, flat)


# -- binary ---------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [net, Squeezed])
@pytest.mark.parametrize("kind", ["long", "bool", "float", "column"])
def test_a_binary_model_is_watched_as_scikit_learn_judges_it(model, kind):
    model, (x, y) = model(), binary_data()
    given = {"long": y, "bool": y.bool(), "float": y.double(), "column": y[:, None]}[kind]
    row = Watch(model, BCE, (x, given), measure=()).last
    z = model(x).detach().reshape(-1)
    p = z.sigmoid().numpy()
    assert row["train/loss"] == pytest.approx(log_loss(y.numpy(), p), abs=1e-12)
    assert row["train/nll"] == pytest.approx(log_loss(y.numpy(), p), abs=1e-12)
    assert row["train/brier"] == pytest.approx(2 * brier_score_loss(y.numpy(), p), abs=1e-12)
    assert row["train/accuracy"] == pytest.approx(float(((z > 0) == y.bool()).double().mean()))
    margin = torch.where(y.bool(), z, -z).mean()
    assert row["train/margin_mean"] == pytest.approx(float(margin), abs=1e-12)


@pytest.mark.parametrize(
    "loss",
    [
        BCE,
        nn.BCEWithLogitsLoss(pos_weight=torch.tensor(3.0).double()),
        nn.BCEWithLogitsLoss(reduction="sum"),
        lambda z, y: nn.functional.binary_cross_entropy_with_logits(z, y),
    ],
)
@pytest.mark.parametrize("model", [net, Squeezed])
def test_sharpness_of_a_binary_model_is_that_of_the_dense_matrices(model, loss):
    model, (x, y) = model(), binary_data()
    row = Watch(model, loss, (x, y), measure=EVERYTHING, rtol=1e-7).last
    scale = len(x) if getattr(loss, "reduction", "") == "sum" else 1

    def mean_loss(z):
        return loss(z, y.double().reshape(z.shape)) / scale

    hessian = dense(model, lambda p: mean_loss(functional_call(model, p, (x,))))
    values = torch.linalg.eigvalsh(hessian)
    assert row["train/hessian_sharpness"] == pytest.approx(float(values[-1]), rel=1e-6)
    assert row["train/kappa_min"] == pytest.approx(float(values[0]), rel=1e-5)

    # Gauss-Newton: J^T H_z J, of the single logit.
    shapes = dict(model.named_parameters())
    flat = torch.cat([p.detach().flatten() for p in model.parameters()])

    def outputs(vector):
        parts = vector.split([p.numel() for p in shapes.values()])
        named = {n: v.view_as(p) for (n, p), v in zip(shapes.items(), parts, strict=True)}
        return functional_call(model, named, (x,)).reshape(-1)

    jacobian = torch.autograd.functional.jacobian(outputs, flat)
    z = outputs(flat)
    curvature = torch.autograd.functional.hessian(
        lambda z: mean_loss(z[:, None] if model(x).ndim == 2 else z), z
    )
    gauss_newton = jacobian.T @ curvature @ jacobian
    largest = float(torch.linalg.eigvalsh(gauss_newton)[-1])
    assert row["train/gn_sharpness"] == pytest.approx(largest, rel=1e-6)


def test_a_binary_model_is_the_two_class_model_with_a_zero_in_its_first_column():
    model, (x, y) = net().float(), binary_data()
    x = x.float()
    two = nn.Sequential(*copy.deepcopy(model)[:-1], nn.Linear(5, 2))
    with torch.no_grad():
        two[-1].weight.copy_(torch.cat([torch.zeros(1, 5), model[-1].weight]))
        two[-1].bias.copy_(torch.cat([torch.zeros(1), model[-1].bias]))
    measure = ("gn_sharpness", "certificate", "best", "temperature")
    row = Watch(model, BCE, (x, y), (x, y), measure=measure).last
    of_two = Watch(two, CE, (x, y), (x, y), measure=measure).last
    assert row["train/certificate_failed"] == 0
    slacks = {k for k in of_two if "slack" in k}
    assert slacks == {k for k in row if "slack" in k} and "train/slack 4.1 (i)" in slacks
    parameters_differ = {k for k in row if "sharpness" in k or "slack" in k or "seconds" in k}
    for key in row.keys() - parameters_differ:
        assert row[key] == pytest.approx(of_two[key], rel=1e-5, abs=1e-5), key
    # The two-class network has a second row of free weights, which only adds curvature.
    assert row["train/gn_sharpness"] <= of_two["train/gn_sharpness"] * 1.001


def test_our_own_losses_take_a_binary_model():
    model, (x, y) = net(), binary_data()
    row = Watch(model, FocalLoss(gamma=2.0), (x, y), measure=()).last
    p = model(x).detach().sigmoid()[:, 0]
    right = torch.where(y.bool(), p, 1 - p)
    assert row["train/loss"] == pytest.approx(float((-((1 - right) ** 2) * right.log()).mean()))


def test_a_binary_run_leaves_two_columns_and_goes_on(tmp_path):
    model, (x, y) = net(), binary_data()
    with Watch(model, BCE, (x, y), (x, y), run=tmp_path, every=1, measure=()) as watch:
        watch.step()
        state = watch.state_dict()
    arrays = np.load(tmp_path / "predictions.npz")
    assert arrays["val_logits"].shape == (30, 2) and (arrays["val_logits"][:, 0] == 0).all()
    Watch(model, BCE, (x, y), (x, y), run=tmp_path, every=1, measure=(), resume=state).close()
    assert [name for name, _ in model.named_parameters()] == [
        "0.weight",
        "0.bias",
        "2.weight",
        "2.bias",
    ]


@pytest.mark.parametrize(
    ("model", "loss", "y", "message"),
    [
        (nn.Sequential(net(), nn.Sigmoid()), nn.BCELoss(), binary_data()[1], "last Sigmoid"),
        (
            net(),
            CE,
            binary_data()[1],
            "CrossEntropyLoss needs one output per class; .*: use BCEWith",
        ),
        (net(), BCE, torch.full((30,), 2), "are 0 and 1, or booleans; got 2 in row 0"),
        (net(), BCE, torch.full((30,), 0.3), "are 0 and 1, or booleans; got 0.3"),
    ],
)
def test_binary_models_that_cannot_be_watched(model, loss, y, message):
    with pytest.raises(ValueError, match=message):
        Watch(model, loss, (binary_data()[0], y), measure=())


# -- tokens and pixels ----------------------------------------------------------------------


class Tagger(nn.Module):
    """A label for each token, which sees its neighbours through their mean."""

    def __init__(self, classes_first=False):
        super().__init__()
        torch.manual_seed(2)
        self.embedding = nn.Embedding(9, 4)
        self.head = nn.Linear(4, 3)
        self.classes_first = classes_first

    def forward(self, x):
        h = self.embedding(x)
        logits = self.head((h + h.mean(1, keepdim=True)).tanh())
        return logits.movedim(-1, 1) if self.classes_first else logits


def tokens(n=6, length=5):
    torch.manual_seed(4)
    x, y = torch.randint(9, (n, length)), torch.randint(3, (n, length))
    y[torch.rand(n, length) < 0.3] = -100
    return x, y


@pytest.mark.parametrize("classes_first", [False, True])
def test_tokens_are_rows_without_those_that_are_ignored(classes_first):
    model, (x, y) = Tagger(classes_first).double(), tokens()
    measure = ("gn_sharpness", "hessian_sharpness", "batch_sharpness")
    row = Watch(model, CE, (x, y), measure=measure, rtol=1e-7).last
    plain = Tagger().double()
    keep = (y != -100).flatten()

    def rows(p):
        return functional_call(plain, p, (x,)).flatten(0, 1)[keep]

    logits = rows({}).detach()
    labels = y.flatten()[keep]
    assert row["train/loss"] == pytest.approx(float(CE(logits, labels)))
    assert row["train/accuracy"] == pytest.approx(
        float((logits.argmax(1) == labels).double().mean())
    )
    hessian = dense(plain, lambda p: CE(rows(p), labels))
    largest = float(torch.linalg.eigvalsh(hessian)[-1])
    assert row["train/hessian_sharpness"] == pytest.approx(largest, rel=1e-6)
    assert "train/batch_sharpness" in row and row["train/gn_sharpness"] > 0


def test_a_label_to_ignore_may_be_any():
    model, (x, y) = Tagger(), tokens()
    other = nn.CrossEntropyLoss(ignore_index=0)
    y = torch.where(y == -100, 0, y)
    row = Watch(model, other, (x, y)).last
    kept = y.flatten() != 0
    logits = model(x).detach().flatten(0, 1)[kept]
    assert row["train/loss"] == pytest.approx(float(CE(logits, y.flatten()[kept])))
    ignored = torch.where(y == 0, -100, y)
    expected = Watch(model, CE, (x, ignored)).last["train/gn_sharpness"]
    assert row["train/gn_sharpness"] == pytest.approx(expected, rel=1e-3)


def test_pixels_are_rows_too():
    torch.manual_seed(0)
    model = nn.Conv2d(2, 3, 3, padding=1)
    x, y = torch.randn(4, 2, 5, 6), torch.randint(3, (4, 5, 6))
    row = Watch(model, CE, (x, y)).last
    assert row["train/loss"] == pytest.approx(float(CE(model(x).detach(), y)), rel=1e-5)
    assert row["train/gn_sharpness"] > 0


@pytest.mark.parametrize(("file", "split"), [("predictions", "val"), ("best", "test")])
def test_predictions_keep_which_rows_are_of_one_sequence(file, split, tmp_path):
    model, (x, y) = Tagger(), tokens()
    kept = y != -100
    with Watch(model, CE, (x, y), (x, y), test=(x, y), run=tmp_path / "run", measure="best"):
        pass
    read = read_predictions(tmp_path / "run" / f"{file}.npz", split=split)
    assert read.group_name == "sequence"
    assert read.note == f"{len(y)} groups from 'sequence_of_row'"
    assert torch.equal(read.groups, torch.arange(len(y))[:, None].expand_as(y)[kept])

    path = tmp_path / "raw.npz"
    np.savez(path, logits=model(x).detach().numpy(), labels=y.numpy())
    raw = evaluate(read_predictions(path), samples=50, metrics=["ece"])
    assert evaluate(read, samples=50, metrics=["ece"]).metrics["ece"] == raw.metrics["ece"]

    groups = kept.nonzero()[:, 0].numpy()
    scores = example_scores(read.logits.numpy(), read.labels.numpy())
    alone, together = replicas_of(scores)[1], replicas_of(scores, groups)[1]
    assert replicas_in(path.parent / "run" / f"{file}.npz", None, True, split).samples == (
        pytest.approx(together)
    )
    assert not np.allclose(alone.std(0), together.std(0))

    damaged = {"val_logits": read.logits, "val_labels": read.labels, "val_sequence_of_row": [0, 1]}
    np.savez(path, **damaged)
    assert replicas_in(path, None, True, "val").samples == pytest.approx(alone)


def test_no_more_logits_than_can_be_kept(monkeypatch):
    monkeypatch.setattr("toosure.watch.logits_model.MAX_LOGITS", 3 * 12)
    x, y = tokens()
    y = y.clamp(0)
    watch = Watch(Tagger(), CE, (x, y), measure=())
    assert len(watch.splits["train"].y) == 10 and watch.measurer.notes["train"]["rows"] == 10


@pytest.mark.parametrize(
    ("measure", "y", "message"),
    [
        ("jacobian_norm", tokens()[1], "norm per example, and an example of train has many rows"),
        ("certificate", tokens()[1], "inputs that are one floating-point tensor, .*: leave it out"),
        ((), torch.full((6, 5), -100), "every label of train is ignored"),
        ((), torch.zeros(6, 4).long(), r"logits \(2, 5, 3\) and the labels .* shape \(4,\)"),
    ],
)
def test_tokens_that_cannot_be_watched(measure, y, message):
    with pytest.raises(ValueError, match=message):
        Watch(Tagger(), CE, (tokens()[0], y), measure=measure)


def test_inputs_of_another_type_than_the_weights():
    x, y = binary_data()
    row = Watch(net(3), CE, (x.float(), y)).last
    expected = Watch(net(3), CE, (x, y)).last
    assert row["train/gn_sharpness"] == pytest.approx(expected["train/gn_sharpness"], rel=1e-3)


# -- several labels per example -------------------------------------------------------------


def label_data(n=24, labels=3):
    torch.manual_seed(7)
    return torch.randn(n, 4).double(), (torch.rand(n, labels) < 0.4).double()


def test_several_labels_are_pooled_and_sharpness_is_that_of_their_loss():
    model = net(3)
    x, y = label_data()
    row = Watch(model, BCE, (x, y), (x, y.bool()), measure=("hessian_sharpness",)).last
    with torch.no_grad():
        logits = model(x)

    p = logits.sigmoid().flatten().numpy()
    given = y.flatten().numpy()
    assert row["train/loss"] == pytest.approx(float(BCE(logits, y)))
    assert row["val/nll"] == pytest.approx(log_loss(given, p))
    assert row["val/brier"] == pytest.approx(2 * brier_score_loss(given, p))
    assert row["val/accuracy"] == pytest.approx(float(((p > 0.5) == given).mean()))
    pooled = metrics.multilabel_calibration(logits, y).pooled["ece"]
    assert row["val/classwise_ece"] == pytest.approx(float(pooled.value), abs=0.02)

    hessian = dense(model, lambda values: BCE(functional_call(model, values, x), y))
    top = torch.linalg.eigvalsh(hessian)[-1]
    assert row["train/hessian_sharpness"] == pytest.approx(float(top), rel=1e-3)


def test_several_labels_come_from_a_loader_of_dicts_too():
    x, y = label_data()
    examples = [{"pixels": a, "tags": b} for a, b in zip(x, y, strict=True)]
    loader = DataLoader(examples, batch_size=8)
    watch = Watch(net(3), BCE, loader, loader, inputs="pixels", labels="tags", measure=())
    plain = Watch(net(3), BCE, (x, y), (x, y), measure=())
    assert watch.last["val/nll"] == pytest.approx(plain.last["val/nll"])


@pytest.mark.parametrize(
    ("loss", "labels", "message"),
    [
        (nn.BCEWithLogitsLoss(pos_weight=torch.ones(3)), 0.0, "without weights"),
        (BCE, 0.5, "0 and 1"),
        (CE, 0.0, r"train has several labels.*give the watch loss=nn\.BCEWithLogitsLoss"),
    ],
)
def test_several_labels_that_cannot_be_watched_are_refused(loss, labels, message):
    x, y = label_data()
    y[0, 0] = labels
    y[1] = 1
    with pytest.raises(ValueError, match=message):
        Watch(net(3), loss, (x, y), (x, y), measure=())


def frozen(model):
    return model.requires_grad_(False)


def compiled(model):
    return torch.compile(model, backend="aot_eager")


class SigmoidAtTheEnd(nn.Module):
    """As people write it: a function, not a layer."""

    def __init__(self):
        super().__init__()
        self.net = net()

    def forward(self, x):
        return torch.sigmoid(self.net(x)).squeeze(1)


@pytest.mark.parametrize("change", [nn.Module.half, nn.Module.double, frozen, compiled])
def test_a_last_sigmoid_is_seen_in_other_types_and_where_autograd_shows_nothing(change):
    model = change(nn.Sequential(nn.Linear(4, 1), nn.Sigmoid()))
    with pytest.raises(ValueError, match="last Sigmoid"):
        Watch(model, None, binary_data(), measure=())


@pytest.mark.parametrize("loss", [None, F.binary_cross_entropy, nn.BCEWithLogitsLoss()])
def test_a_sigmoid_at_the_end_is_refused_however_it_is_written(loss):
    with pytest.raises(ValueError, match="last Sigmoid"):
        Watch(SigmoidAtTheEnd(), loss, binary_data())


@pytest.mark.parametrize(
    ("loss", "remedy"),
    [
        (nn.BCEWithLogitsLoss(), r"give CrossEntropyLoss\(\), or labels \(N, 3\)"),
        (nn.MSELoss(), r"give toosure\.losses\.MSELoss"),
    ],
)
def test_a_loss_that_does_not_take_classes_is_refused(loss, remedy):
    data = torch.randn(30, 4), torch.arange(30) % 3
    with pytest.raises(ValueError, match=remedy):
        Watch(nn.Linear(4, 3), loss, data)
