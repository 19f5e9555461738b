"""Ranges and choices in words: what they hold, how they are filled, what is refused."""

import pytest

from toosure.words import Choices, Range, parse, parse_search


def last(name, domain):
    return domain.examples[-1]


@pytest.mark.parametrize(
    ("kind", "text", "domains", "filled"),
    [
        (
            "optimizer",
            "csam:rho=0.02..0.5~log,gamma=0|0.5|1|2",
            {"csam.rho": Range(0.02, 0.5, log=True), "csam.gamma": Choices(("0", "0.5", "1", "2"))},
            "csam:rho=0.5,gamma=2",
        ),
        # The learning rate is the base's, whichever it is.
        (
            "optimizer",
            "sam:base=sgd|adamw,lr=1/1000..1~log,rho=0.05",
            {"sam.base": Choices(("sgd", "adamw")), "sam.lr": Range(0.001, 1, log=True)},
            "sam:base=adamw,lr=1,rho=0.05",
        ),
        (
            "optimizer",
            "sam:base=(sgd:lr=0.1..0.2)",
            {"sam.base.lr": Range(0.1, 0.2)},
            "sam:base=(sgd:lr=0.2)",
        ),
        ("model", "mlp:width=16..64~16", {"mlp.width": Range(16, 64, step=16, whole=True)}, None),
        (
            "loss",
            "mdca:base=(focal:gamma=1..3)",
            {"mdca.base.gamma": Range(1, 3)},
            "mdca:base=(focal:gamma=3)",
        ),
        (
            "optimizer",
            "adamw:betas=0.9:0.999|0.8:0.99",
            {"adamw.betas": Choices(("0.9:0.999", "0.8:0.99"))},
            "adamw:betas=0.8:0.99",
        ),
        ("data", "imagefolder:../pictures", {}, "imagefolder:root=../pictures"),
        ("optimizer", "sgd", {}, "sgd"),
    ],
)
def test_domains(kind, text, domains, filled):
    word = parse_search(kind, text)
    assert word.domains() == domains
    if filled and "imagefolder" not in text:
        assert word.fill(last) == filled
        parse(kind, filled)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sgd:lr=1..0.1", "must rise"),
        ("sgd:lr=0.1..0.1", "must rise"),
        ("sgd:lr=0..1~log", "begins above 0"),
        ("sgd:lr=0..1~lin", "LOW..HIGH~STEP; got '0..1~lin'"),
        ("sgd:lr=0..1~2", "fits into it"),
        ("sgd:lr=0..1~-0.1", "above 0"),
        ("sgd:lr=..1", "a range reads LOW..HIGH"),
        ("sgd:lr=0..inf", "finite"),
        ("sgd:lr=0.1||1", "none of them empty"),
        ("sgd:lr=0.1|0.1", "must differ"),
        ("sgd:lr=0.1..1|2", "cannot be a range"),
        ("sgd:lr=0.1|high", "lr must be float"),
        ("sgd:nesterov=0..1", "nesterov must be bool"),
        ("sgd:lr=0.1..1,lr=2", "given twice"),
        ("sgd:rate=0.1..1", "no setting 'rate'"),
        ("sgdd:lr=0.1..1", "did you mean 'sgd'"),
        ("sam:base=sgd|adamw,momentum=0.5..0.9", "no setting 'momentum'"),
    ],
)
def test_mistakes(text, said):
    with pytest.raises(ValueError, match=said.replace(".", r"\.")):
        parse_search("optimizer", text)


def test_whole_numbers_refuse_fractions():
    with pytest.raises(ValueError, match="mlp: width: a range reads"):
        parse_search("model", "mlp:width=0.5..8")


def test_numbers_are_spelled_short_and_stay_inside():
    assert Range(0.02, 0.5).spell(0.123456) == "0.1235"
    assert Range(0.0123444, 0.5).spell(0.0123445) == "0.0123444"  # rounded, it would be below
    assert Range(1, 9, whole=True).spell(3) == "3"


def test_train_says_where_ranges_belong():
    for value in ("0.1..1~log", "0.1|1"):
        with pytest.raises(ValueError, match=r"lr must be float.*`toosure tune`"):
            parse("optimizer", f"sgd:lr={value}")
    with pytest.raises(ValueError, match="lr must be float") as told:
        parse("optimizer", "sgd:lr=high")
    assert "tune" not in str(told.value)
