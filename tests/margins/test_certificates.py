"""No counter-example to any statement, and a broken bound is caught by the same search."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from margins.networks import NETWORKS, data, make
from toosure.margins import (
    Statement,
    attacked_margin,
    certify,
    linearised_margin,
)
from toosure.margins import clean_pass as clean_module
from toosure.margins.clean_pass import CleanPass, clean_pass, log_logit_curvature
from toosure.margins.measurements import Curvature, Measurements
from toosure.margins.robust import RobustMargin
from toosure.margins.statements import judge, side_problem
from toosure.margins.theorems import all_statements
from toosure.metrics import ece
from toosure.models import load_published, resnet20

SCALES = [0.0, 1e-3, 1.0, 5.0, 40.0, 1e3]


def measure(logits, labels, chunk=5):
    """What a certificate knows of an affine model that returns its input, at radius 0."""
    seen = CleanPass()
    for part, own in zip(logits.split(chunk), labels.split(chunk), strict=True):
        seen.update(part, own)
    margins = torch.cat(seen.true_margins)
    exact = RobustMargin(margins, "attacked", "linf", 0.0, "exact")
    return Measurements(seen, exact, exact, margins, curvature=Curvature(1.0))


def random_case(seed):
    """Logits of all sizes, with ties, all-equal rivals, and labels right or random."""
    generator = torch.Generator().manual_seed(seed)
    draw = lambda n: int(torch.randint(n, (1,), generator=generator))  # noqa: E731
    n, classes, scale = 1 + draw(8), 2 + draw(6), SCALES[draw(len(SCALES))]
    logits = torch.randn(n, classes, generator=generator, dtype=torch.float64) * scale
    if draw(2):
        logits = logits.round()
    if draw(3) == 0:
        logits[:, 1:] = logits[:, 1:2]
    labels = logits.argmax(1) if draw(2) else torch.randint(classes, (n,), generator=generator)
    return logits, labels


def failures(seeds):
    """Names of statements that fail on some random case."""
    found = set()
    for seed in seeds:
        statements = all_statements(measure(*random_case(seed)))
        found |= {s.name for s in statements if s.holds is False}
    return found


def test_no_statement_about_logits_has_a_counter_example():
    assert failures(range(1000)) == set()


@pytest.mark.parametrize("seed", [6956, 9439, 10355])
def test_what_underflows_is_no_counter_example(seed):
    """Margins of 700 and more: one side is a subnormal number, the other zero."""
    assert failures([seed]) == set()


@pytest.mark.slow
def test_no_statement_about_logits_has_a_counter_example_in_many_more_cases():
    assert failures(range(1000, 20_000)) == set()


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(st.floats(-1e4, 1e4), min_size=4, max_size=4), min_size=1, max_size=5),
       st.integers(0, 3))  # fmt: skip
def test_hypothesis_finds_none_either(rows, label):
    labels = torch.full((len(rows),), label)
    statements = all_statements(measure(torch.tensor(rows, dtype=torch.float64), labels))
    assert [s.name for s in statements if s.holds is False] == []


BROKEN = {
    "one class too few": lambda patch: patch.setattr(
        Measurements, "classes", property(lambda measured: max(2, measured.clean.classes - 1))
    ),
    "margins a little too large": lambda patch: patch.setattr(
        clean_module, "both_margins",
        lambda z, c, honest=clean_module.both_margins: tuple((1 + 1e-8) * m for m in honest(z, c)),
    ),
    "twice the logit curvature": lambda patch: patch.setattr(
        clean_module, "log_logit_curvature",
        lambda *a, honest=log_logit_curvature: honest(*a) + math.log(2.0),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_bound_is_caught(name, monkeypatch):
    BROKEN[name](monkeypatch)
    assert failures(range(100))


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("name", NETWORKS)
def test_no_statement_about_small_networks_fails(name, norm):
    for seed, right in itertools.product(range(2), (True, False)):
        model, shape = make(name, seed, scale=2.0)
        x, y = data(shape, 12, seed)
        y = model(x).argmax(1) if right else y
        certificate = certify(model, (x, y), eps=0.05, norm=norm, test=(x + 0.01, y), steps=5)
        assert certificate.holds, str(certificate)
        assert (certificate["4.2 (i) lower"].holds is None) == (not right)
        assert certificate["B.8"].holds is True
        assert certificate.log_moments["Q-"] <= certificate.log_moments["Q_D"] + 1e-9
        assert certificate.log_moments["Q_eps certified"] <= certificate.log_moments["Q+"] + 1e-9


def dense(model, x, y):
    """C_J and lambda_max from full Jacobians."""
    parameters = dict(model.named_parameters())
    own = torch.func.jacrev(lambda p: torch.func.functional_call(model, p, (x,)))(parameters)
    jacobian = torch.cat([j.flatten(2) for j in own.values()], 2).detach()  # (N, K, P)
    p = model(x).softmax(1).detach()
    middle = torch.diag_embed(p) - p.unsqueeze(2) * p.unsqueeze(1)
    matrix = torch.einsum("nkp,nkl,nlq->pq", jacobian, middle, jacobian) / len(x)
    return torch.linalg.matrix_norm(jacobian, 2).max(), torch.linalg.eigvalsh(matrix)[-1]


def test_sides_are_those_of_dense_matrices():
    model, shape = make("tanh", 0)
    x, _ = data(shape, 15, 0)
    y = model(x).argmax(1)
    certificate = certify(model, (x, y), eps=0.02)
    c_j, sharpness = dense(model, x, y)
    statement = certificate["4.2 (iii)"]
    assert statement.left == pytest.approx(float(sharpness / (2 * c_j**2 * 6)), rel=3e-3)
    assert statement.right == pytest.approx(float(ece(model(x), y)), rel=1e-9)
    q = math.exp(certificate.log_moments["Q_D"])
    full, most = float(2 * c_j**2 * 2 * q), float(c_j**2 / 2)
    assert full > most and certificate["4.2 (ii) ECE"].vacuous
    assert certificate["4.2 (ii) ECE"].left == pytest.approx(most, rel=1e-6)
    bound = certificate["4.1 (ii)"]
    assert bound.vacuous and bound.right == pytest.approx(most, rel=1e-6)
    head = model[-1].weight.data
    head *= 20  # larger margins: nothing is clamped
    certificate, (c_j, _) = certify(model, (x, y), eps=0.0), dense(model, x, model(x).argmax(1))
    q = math.exp(certificate.log_moments["Q_D"])
    assert certificate["4.1 (ii)"].right == pytest.approx(float(4 * c_j**2 * q), rel=1e-6)
    assert not certificate["4.1 (ii)"].vacuous


def test_numbers_of_fixture_f(fixture_f):
    logits, labels = fixture_f
    measured = measure(logits, labels)
    by_name = {s.name: s for s in all_statements(measured)}
    bound = by_name["4.1 (i)"]
    assert bound.left == pytest.approx(0.32925889, abs=1e-8)
    assert bound.vacuous and bound.right == 1.0 and bound.holds
    assert math.exp(measured.clean.true.compute()) * 2 == pytest.approx(1.97696155, abs=1e-8)
    assert "2 of 4 points have margin <= 0" in by_name["4.2 (i) lower"].reason
    by_name = {s.name: s for s in all_statements(measure(logits, logits.argmax(1)))}
    lower, upper = by_name["4.2 (i) lower"], by_name["4.2 (i) upper"]
    assert lower.left == pytest.approx(0.12841475, abs=1e-8)
    assert lower.right == pytest.approx(0.31497296, abs=1e-8)
    assert upper.right == pytest.approx(0.77048847, abs=1e-8) and not upper.vacuous
    first = {s.name: s for s in all_statements(measure(logits[:1], labels[:1]))}["B.4"]
    assert first.left == pytest.approx(0.29599012, abs=1e-8)
    assert first.right == pytest.approx(0.42880593, abs=1e-8)


def test_streamed_ece_is_the_metric():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(400, 10, generator=generator, dtype=torch.float64) * 3
    labels = torch.randint(10, (400,), generator=generator)
    assert measure(logits, labels).ece == pytest.approx(float(ece(logits, labels)), rel=1e-12)


@pytest.mark.parametrize("margin", [30.0, 80.0, 600.0])
def test_large_margins_in_float32_do_not_fail_by_rounding(margin):
    logits = torch.zeros(50, 10)
    logits[:, 0] = margin
    statements = all_statements(measure(logits, torch.zeros(50, dtype=torch.long)))
    assert [s.name for s in statements if s.holds is False] == []
    lower = next(s for s in statements if s.name == "4.2 (i) lower")
    assert 0 < lower.left <= lower.right


@settings(max_examples=200, deadline=None)
@given(st.integers(2, 7), st.integers(0, 10**6), st.sampled_from([0.0, 0.1, 1.0, 10.0, 30.0]))
def test_logit_curvature_is_the_dense_eigenvalue(classes, seed, scale):
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(6, classes, generator=generator, dtype=torch.float64) * scale
    log_p = z.log_softmax(1)
    others = z.scatter(1, z.argmax(1, keepdim=True), -torch.inf).logsumexp(1)
    log_rest = nn.functional.logsigmoid(others - z.amax(1))
    p = log_p.exp()
    exact = torch.linalg.eigvalsh(torch.diag_embed(p) - p.unsqueeze(2) * p.unsqueeze(1))[:, -1]
    found = log_logit_curvature(log_p, log_rest).exp()
    torch.testing.assert_close(found, exact, rtol=1e-9, atol=1e-15)


def test_which_kind_may_stand_on_which_side():
    values = torch.zeros(1)
    sides = {
        ("attacked", "above"): (True, False),
        ("certified", "below"): (False, True),
        ("certified", "exact"): (True, True),
        ("linearised", "neither"): (False, False),
    }
    for (kind, bound), (left, right) in sides.items():
        margin = RobustMargin(values, kind, "linf", 0.1, bound)
        assert (side_problem(margin, "left") == "") == left
        assert (side_problem(margin, "right") == "") == right
        assert left or side_problem(margin, "left").startswith("estimate")


def test_it_prints_as_a_table_and_knows_its_statements():
    model, shape = make("relu", 3)
    certificate = certify(model, data(shape, 10, 3), eps=0.1, curvature=False)
    text = str(certificate)
    assert "not separated" in text and "rounding allowed" in text
    assert len(text.splitlines()) >= len(certificate.statements) + 4
    for statement in certificate.statements:
        assert statement.name in text
        assert statement.holds is not None or statement.reason
    with pytest.raises(KeyError, match="there are"):
        certificate["4.3"]
    assert certificate.margins["true"].n == 10


def test_judge_allows_rounding_and_no_more():
    assert judge("a", "", 1.0 + 1e-9, 1.0, rounding=1e-8).holds is True
    assert judge("a", "", 1.0 + 1e-7, 1.0, rounding=1e-8).holds is False
    clamped = judge("a", "", 0.5, math.inf, rounding=0.0, cap=1.0)
    assert clamped == Statement("a", "", 0.5, 1.0, True, True)
    assert judge("a", "", math.nan, 1.0, rounding=0.0).holds is None


def test_published_logits(real_data):
    arrays = np.load(real_data / "logits" / "logits_resnet110_c10.npz")
    measured = measure(*(torch.from_numpy(arrays[f"test_{k}"]) for k in ("logits", "labels")), 2000)
    assert measured.ece == pytest.approx(0.047503519, abs=1e-6)
    statements = all_statements(measured)
    assert [s.name for s in statements if s.holds is False] == []
    reasons = {s.name: s.reason for s in statements}
    assert reasons["4.2 (i) lower"] == "not separated: 644 of 10,000 points have margin <= 0"


def test_the_published_resnet(real_data):
    path = real_data / "logits" / "weights_resnet20_c10_akamaster.npz"
    model = load_published(resnet20(), path)
    x = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    y = model.eval()(x).argmax(1)
    certificate = certify(model, (x, y), eps=1e-6, curvature=False, steps=3, restarts=1)
    assert certificate.holds, str(certificate)
    assert certificate["4.2 (iv) upper"].vacuous  # a trained network this deep proves nothing


def test_passes_and_samples_at_once_are_counted():
    model, shape = make("tanh", 0)
    x, y = data(shape, 25, 0)
    sizes = []

    class Counted(nn.Module):
        def forward(self, inputs):
            sizes.append(len(inputs))
            return model(inputs)

    clean_pass(Counted(), x, y, 15, 10)
    assert sizes == [10, 10, 5]  # the clean part is one forward pass
    sizes.clear()
    attacked_margin(Counted(), x, y, 0.1, steps=4, restarts=2, chunk=10)
    assert max(sizes) == 10 and len(sizes) == 3 * (2 * 5 + 2)  # and two passes in float64
    sizes.clear()
    linearised_margin(Counted(), x, y, 0.1, chunk=10)
    assert sizes == [10, 10, 5]
