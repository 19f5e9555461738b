"""What every calibrator in the table must do; a new one is tested the moment it is listed."""

import copy
import io
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from toosure import metrics
from toosure.posthoc import CALIBRATORS, Calibrator, load_calibrator, save_calibrator
from toosure.words.tables import TABLES

PARAMETRIC = (
    *("temperature", "ensemble_temperature", "vector", "matrix"),
    *("dirichlet", "platt", "beta"),
)
EACH = pytest.mark.parametrize("name", CALIBRATORS)


def rows(n=400, classes=4, seed=0, dtype=torch.float64, temperature=2.5):
    """Over-confident logits, and labels drawn from their softened probabilities."""
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(n, classes, generator=generator, dtype=torch.float64)
    bias = torch.linspace(-1, 1, classes, dtype=torch.float64)
    probs = (logits / temperature + bias).softmax(1)
    labels = torch.multinomial(probs, 1, generator=generator).squeeze(1)
    labels[:classes] = torch.arange(classes)
    return logits.to(dtype), labels


def fitted(name, logits, labels):
    return CALIBRATORS[name]().fit_quietly(logits, labels)


def test_the_table_and_the_words_agree():
    places = {name: f"toosure.posthoc:{kind.__name__}" for name, kind in CALIBRATORS.items()}
    assert places == TABLES["calibrator"]


@EACH
def test_fit_returns_itself_and_improves_the_likelihood(name):
    logits, labels = rows()
    calibrator = CALIBRATORS[name]()
    assert calibrator.fit(logits, labels) is calibrator and calibrator.note == ""
    before, after = metrics.nll(logits, labels), metrics.nll(calibrator(logits), labels)
    assert after < before - 0.05


@EACH
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_logits_to_logits(name, dtype):
    logits, labels = rows(dtype=dtype)
    calibrator = fitted(name, logits, labels)
    outputs = calibrator(logits)
    assert outputs.shape == logits.shape
    assert outputs.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    probs = calibrator.predict_proba(logits)
    torch.testing.assert_close(probs.sum(1), torch.ones_like(probs[:, 0]))
    torch.testing.assert_close(probs, outputs.softmax(1))
    alone = torch.cat([calibrator(row[None]) for row in logits[:5]])
    torch.testing.assert_close(alone, outputs[:5])


@EACH
def test_float32_is_fitted_like_float64(name):
    logits, labels = rows(dtype=torch.float32)
    precise = logits.double()
    ours, wanted = fitted(name, logits, labels), fitted(name, precise, labels)
    for key, value in wanted.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[key], value, rtol=1e-6, atol=1e-8)


@EACH
def test_autocast_around_it_changes_nothing(name):
    """A server may run all it serves under autocast, which rounded W x to three digits."""
    logits, labels = rows(dtype=torch.float32)
    calibrator = fitted(name, logits, labels)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(calibrator(logits), fitted(name, logits, labels)(logits))
        outputs = calibrator(logits)
    assert torch.equal(outputs, calibrator(logits))


@EACH
def test_state_travels_alone_and_inside_a_model(name):
    logits, labels = rows()
    calibrator = fitted(name, logits, labels)
    file = io.BytesIO()
    torch.save(calibrator.state_dict(), file)
    file.seek(0)
    fresh = CALIBRATORS[name]()
    fresh.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(fresh(logits), calibrator(logits))
    model = nn.Sequential(nn.Linear(4, 4).double(), calibrator)
    other = nn.Sequential(nn.Linear(4, 4).double(), CALIBRATORS[name]())
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(logits), model(logits))
    assert torch.equal(copy.deepcopy(model)(logits), model(logits))


@EACH
def test_rows_of_another_number_of_classes_are_refused(name, tmp_path):
    logits, labels = rows()
    save_calibrator(fitted(name, logits, labels), tmp_path / "a.pt")
    for calibrator in (fitted(name, logits, labels), load_calibrator(tmp_path / "a.pt")):
        for shape in ((5, 2), (5, 7), (2, 5, 7)):
            with pytest.raises(ValueError, match=r"fitted on 4 classes, and these rows have [27]"):
                calibrator(torch.randn(*shape))
        for shape in ((5,), (5, 1)):
            for use in (calibrator, calibrator.predict_proba):
                with pytest.raises(ValueError, match=r"have one output each, for two classes"):
                    use(torch.randn(*shape))


@EACH
def test_an_unfitted_one_says_so(name):
    with pytest.raises(ValueError, match=r"not fitted: call fit"):
        CALIBRATORS[name]()(torch.zeros(1, 3))


@EACH
def test_the_identity_it_falls_back_to_is_one(name):
    logits, labels = rows()
    calibrator = fitted(name, logits, labels)
    calibrator.become_identity(4, logits.device)
    torch.testing.assert_close(calibrator.predict_proba(logits), logits.softmax(1))
    fresh = CALIBRATORS[name]()
    fresh.load_state_dict(calibrator.state_dict())
    torch.testing.assert_close(fresh.predict_proba(logits), logits.softmax(1))


@EACH
def test_a_worse_fit_is_refused_aloud(name, monkeypatch):
    logits, labels = rows()
    kind = CALIBRATORS[name]
    solve = kind.solve

    def spoiled(self, logits, labels):
        solve(self, logits, labels.roll(7))

    monkeypatch.setattr(kind, "solve", spoiled)
    monkeypatch.setattr(kind, "keep_if_better", Calibrator.keep_if_better)
    softened = (logits / 2.5 + torch.linspace(-1, 1, 4)).log_softmax(1)
    calibrator = kind()
    with pytest.warns(UserWarning, match="left the probabilities as they are"):
        calibrator.fit(softened, labels)
    torch.testing.assert_close(calibrator.predict_proba(softened), softened.softmax(1))


@EACH
def test_the_order_of_rows_does_not_matter(name):
    logits, labels = rows(n=300)
    order = torch.randperm(300, generator=torch.Generator().manual_seed(3))
    one, two = fitted(name, logits, labels), fitted(name, logits[order], labels[order])
    torch.testing.assert_close(one(logits), two(logits), rtol=1e-5, atol=1e-5)


@EACH
def test_a_constant_added_to_a_row_changes_nothing(name):
    if name == "vector":
        pytest.skip("w * z sees the constant: vector scaling is defined on the logits as they are")
    logits, labels = rows(n=300)
    moved = logits + torch.linspace(-5, 5, 300, dtype=torch.float64)[:, None]
    one = fitted(name, logits, labels).predict_proba(logits)
    two = fitted(name, moved, labels).predict_proba(moved)
    torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-6)


@EACH
@settings(deadline=None, max_examples=15)
@given(st.data())
def test_any_rows(name, data):
    """Shapes, types and label sets: an error that says what to do, or an honest calibrator."""
    n, classes = data.draw(st.integers(1, 40)), data.draw(st.integers(2, 6))
    dtype = data.draw(st.sampled_from([torch.float16, torch.float32, torch.float64]))
    scale = data.draw(st.sampled_from([1e-3, 1.0, 30.0]))
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 2**31)))
    logits = (scale * torch.randn(n, classes, generator=generator)).to(dtype)
    seen = data.draw(st.integers(1, classes))
    labels = torch.randint(seen, (n,), generator=generator)
    calibrator = CALIBRATORS[name]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        missing = calibrator.needs_every_class and len(labels.unique()) < classes
        if n < calibrator.least_rows(classes) or missing:
            with pytest.raises(ValueError, match=r"needs at least|never among"):
                calibrator.fit(logits, labels)
            return
        calibrator.fit(logits, labels)
    outputs = calibrator(logits.double())
    assert outputs.isfinite().all()
    assert metrics.nll(outputs, labels) <= metrics.nll(logits.double(), labels) + 1e-6
    if calibrator.keeps_top:
        other = scale * torch.randn(50, classes, generator=generator)
        assert torch.equal(calibrator(other).argmax(1), other.argmax(1))


@EACH
def test_accuracy_is_kept_where_promised(name, real_data):
    import numpy as np

    arrays = np.load(real_data / "logits" / "logits_resnet110_c10.npz")
    logits, test = (torch.from_numpy(arrays[f"{part}_logits"]) for part in ("val", "test"))
    labels = torch.from_numpy(arrays["val_labels"]).long().flatten()
    calibrator = fitted(name, logits, labels)
    same = torch.equal(calibrator(test).argmax(1), test.argmax(1))
    assert same if calibrator.keeps_top else not same


# Bad input


@EACH
@pytest.mark.parametrize("bad", [torch.inf, torch.nan])
def test_infinite_logits_are_refused_by_row(name, bad):
    logits, labels = rows(n=100)
    logits[17, 2] = bad
    with pytest.raises(ValueError, match="row 17 of 100 holds NaN or infinity"):
        CALIBRATORS[name]().fit(logits, labels)


@EACH
def test_log_of_zero_is_read_as_nearly_zero(name):
    logits, labels = rows(n=200)
    logits = logits.log_softmax(1)
    logits[5, (labels[5] + 1) % 4] = logits[6, labels[6]] = -torch.inf
    calibrator = fitted(name, logits, labels)
    assert calibrator(logits).isfinite().all()
    assert metrics.nll(calibrator(logits), labels) < 87.3365 / 200 + 2


@EACH
def test_a_row_without_any_class_is_refused(name):
    logits, labels = rows(n=100)
    logits[3] = -torch.inf
    with pytest.raises(ValueError, match="row 3 of 100"):
        CALIBRATORS[name]().fit(logits, labels)


@EACH
def test_constant_logits_are_refused(name):
    constant = torch.randn(100, 1).expand(100, 4)
    with pytest.raises(ValueError, match="constant: every row has the same value"):
        CALIBRATORS[name]().fit(constant, torch.arange(100) % 4)


@EACH
@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_probabilities_are_not_taken_for_logits(name, dtype):
    logits, labels = rows(n=100)
    with pytest.raises(ValueError, match="logits are probabilities"):
        CALIBRATORS[name]().fit(logits.softmax(1).to(dtype), labels)


@EACH
@pytest.mark.parametrize("bad", [torch.inf, torch.nan])
def test_what_is_no_number_stays_none(name, bad):
    logits, labels = rows(n=200)
    calibrator = fitted(name, logits, labels)
    spoiled = logits[:3].clone()
    spoiled[1, 2] = bad
    probs = calibrator.predict_proba(spoiled)
    assert probs[1].isnan().all()
    torch.testing.assert_close(probs[[0, 2]], calibrator.predict_proba(logits[[0, 2]]))


@EACH
def test_a_class_never_seen(name):
    logits, labels = rows(n=200)
    labels = labels.clamp(max=2)
    calibrator = CALIBRATORS[name]()
    if calibrator.needs_every_class:
        with pytest.raises(ValueError, match="class 3 is never among the 200 labels"):
            calibrator.fit(logits, labels)
    else:
        assert calibrator.fit(logits, labels)(logits).isfinite().all()


@EACH
def test_too_few_rows(name):
    calibrator = CALIBRATORS[name]()
    least = calibrator.least_rows(4)
    logits, labels = rows(n=max(4, least))
    with pytest.raises(ValueError, match=f"needs at least {least} rows for 4 classes; got"):
        calibrator.fit(logits[: least - 1], labels[: least - 1])


@EACH
def test_labels_and_shapes_are_checked(name):
    logits, labels = rows(n=50)
    for pair, words in (
        ((logits, labels.double()), "convert them"),
        ((logits, labels + 1), r"integers in \[0, 4\)"),
        ((logits[0], labels), "shape|one column per class"),
        ((logits[:, :1], labels), "0 and 1"),
    ):
        with pytest.raises(ValueError, match=words):
            CALIBRATORS[name]().fit(*pair)


# Use in a model


@EACH
def test_torch_exports_the_last_layer(name):
    if name not in PARAMETRIC:
        pytest.skip("a table of frequencies, not a formula")
    logits, labels = rows(dtype=torch.float32)
    model = nn.Sequential(nn.Linear(3, 4), fitted(name, logits, labels)).eval()
    inputs = torch.randn(6, 3)
    batch = torch.export.Dim("batch", min=2, max=1000)
    exported = torch.export.export(model, (inputs,), dynamic_shapes={"input": {0: batch}})
    more = torch.randn(11, 3)
    torch.testing.assert_close(exported.module()(more), model(more))


@EACH
def test_onnx_runs_the_last_layer(name, tmp_path):
    if name not in PARAMETRIC:
        pytest.skip("a table of frequencies, not a formula")
    pytest.importorskip("onnxscript", reason="no onnxscript, which torch.onnx needs")
    runtime = pytest.importorskip("onnxruntime", reason="no onnxruntime to run the file")
    logits, labels = rows(dtype=torch.float32)
    model = nn.Sequential(nn.Linear(3, 4), fitted(name, logits, labels)).eval()
    inputs = torch.randn(6, 3)
    torch.onnx.export(model, (inputs,), tmp_path / "a.onnx", dynamo=True)
    session = runtime.InferenceSession(tmp_path / "a.onnx")
    outputs = session.run(None, {session.get_inputs()[0].name: inputs.numpy()})[0]
    torch.testing.assert_close(torch.from_numpy(outputs), model(inputs), rtol=1e-4, atol=1e-5)


@EACH
def test_gradients_reach_the_model(name):
    if name not in PARAMETRIC:
        pytest.skip("steps have no slope")
    logits, _ = rows(n=60)
    calibrator = fitted(name, *rows())
    assert torch.autograd.gradcheck(calibrator, (logits[:3].clone().requires_grad_(),))


@EACH
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_gpu_gives_the_same(name):
    logits, labels = rows()
    wanted = fitted(name, logits, labels)(logits)
    calibrator = fitted(name, logits.cuda(), labels.cuda())
    assert {value.device.type for value in calibrator.state_dict().values()} == {"cuda"}
    torch.testing.assert_close(calibrator(logits.cuda()).cpu(), wanted, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(calibrator.cpu()(logits), wanted, rtol=1e-6, atol=1e-6)
