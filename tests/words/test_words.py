"""Words are typed by signatures, spelled in one way, and wrong ones say what was meant."""

import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn

from toosure import losses
from toosure.words import TABLES, Word, expand, find, methods, parse, spell
from toosure.words.values import describe, read, write

FLOATS = st.floats(allow_nan=False)
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = [
    (int, st.integers()),
    (float, FLOATS),
    (bool, st.booleans()),
    (str, TEXT),
    (int | None, st.none() | st.integers()),
    (float | torch.Tensor | None, st.none() | FLOATS),
    (str | None, st.none() | TEXT),
    (int | str, st.integers() | TEXT),
    (bool | str, st.booleans() | TEXT),
    (float | bool, st.booleans()),
    (Path, TEXT.filter(lambda t: t and "\0" not in t).map(Path)),
    (tuple[float, float], st.tuples(FLOATS, FLOATS)),
    (tuple[int, ...], st.lists(st.integers()).map(tuple)),
    (float | tuple[float, ...], FLOATS | st.lists(FLOATS).map(tuple)),
    (Literal["a", "none", 3, 0], st.sampled_from(["a", "none", 3, 0])),
    (Literal["a", "none"] | None, st.sampled_from(["a", "none"])),
]


@pytest.mark.parametrize(("kind", "values"), VALUES, ids=[str(k) for k, _ in VALUES])
@settings(deadline=None)
@given(st.data())
def test_values_round_trip(kind, values, data):
    value = data.draw(values)
    text = write(value, kind)
    again = read(text, kind)
    assert again == value and isinstance(again, bool) == isinstance(value, bool)
    assert write(again, kind) == text


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("2/30", float, 2 / 30),
        ("8/255", float | None, 8 / 255),
        ("1e-3", float, 0.001),
        ("inf", float, float("inf")),
        ("0.9|0.99", tuple[float, float], (0.9, 0.99)),
        ("150:250", tuple[int, ...], (150, 250)),
        ("none", int | None, None),
        ('"none"', str | None, "none"),
        *((text, bool, False) for text in ("false", "False", "no", "0", "off")),
        *((text, bool, True) for text in ("true", "TRUE", "yes", "1", "on")),
    ],
)
def test_values_are_read_as_people_write_them(text, kind, value):
    assert read(text, kind) == value and type(read(text, kind)) is type(value)


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("0.5", int, "must be int; got '0.5'"),
        ("1/0", float, "must be float"),
        ("nan", float, "must be float"),
        ("maybe", bool, "must be bool"),
        ("1", tuple[float, float], "must be float:float"),
        ("c", Literal["a", "b"], r"must be a\|b"),
        ("x", int | None, "must be int or none"),
    ],
)
def test_wrong_values_name_the_type(text, kind, message):
    with pytest.raises(ValueError, match=message):
        read(text, kind)


def test_types_are_described():
    assert describe(tuple[int, ...] | None) == "int:... or none"
    assert describe(float | torch.Tensor) == "float" and describe(Path) == "path"


def test_expand():
    assert expand("0..2") == [0, 1, 2] and expand("-1..1,7") == [-1, 0, 1, 7]
    for text in ("2..0", "a", "", "0...2", "0..999999999"):
        with pytest.raises(ValueError):
            expand(text)


# The tables


@pytest.mark.parametrize("kind", TABLES)
def test_every_listed_method_can_be_loaded_and_says_what_it_does(kind):
    for method in methods(kind):
        assert callable(method.target) and method.summary, method.name
        required = {n: "1" for n, s in method.settings.items() if "=" not in str(s)}
        text = ",".join(f"{n}={v}" for n, v in required.items())
        assert parse(kind, f"{method.name}:{text}").name == method.name


def test_importing_words_loads_no_torch():
    code = "import sys, toosure.words; print('torch' in sys.modules, 'numpy' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split() == ["False", "False"]


def test_methods_show_settings_and_paper():
    sgd, adamw = find("optimizer", "sgd"), find("optimizer", "adamw")
    assert str(adamw.settings["betas"]) == "betas=0.9:0.999" and "1711.05101" in adamw.reference
    assert list(sgd.settings) == ["lr", "momentum", "dampening", "weight_decay", "nesterov"]
    mlp = find("model", "mlp")
    assert "2604.20614" in mlp.reference
    assert list(mlp.settings) == ["width", "depth", "activation", "dropout"]


# Words


def test_equal_settings_are_spelled_alike():
    spellings = ["sgd:lr=0.1,momentum=0.9", "sgd: momentum=9e-1 ,lr=1/10", "sgd:lr=.1,momentum=.9,"]
    assert {str(parse("optimizer", text)) for text in spellings} == {spellings[0]}
    assert str(parse("optimizer", "sgd:lr=0.001,nesterov=no")) == "sgd"
    assert parse("optimizer", spellings[0]) == parse("optimizer", spellings[1])
    assert spell("optimizer", "sgd", {"momentum": 0.9, "lr": 0.1}) == spellings[0]


@settings(deadline=None)
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "lr": st.floats(0, 10),
            "betas": st.tuples(st.floats(0, 1), st.floats(0, 1)),
            "amsgrad": st.booleans(),
            "rho": st.floats(0, 1) | st.integers(0, 3),
            "base": st.just("adamw"),
        },
    ),
    st.randoms(),
)
def test_words_round_trip(said, random):
    method = "sam" if "rho" in said or "base" in said else "adamw"
    assume(method == "adamw" or "base" in said or not {"betas", "amsgrad"} & said.keys())
    text = spell("optimizer", method, said)
    word = parse("optimizer", text)
    assert str(word) == text
    shuffled = list(said.items())
    random.shuffle(shuffled)
    assert spell("optimizer", method, dict(shuffled)) == text
    for name, value in said.items():
        default = {"lr": 0.001, "betas": (0.9, 0.999), "amsgrad": False, "rho": 0.05}.get(name)
        got = word.settings.get(name, default)
        assert (got.name if isinstance(got, Word) else got) == value


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        ("optimizer", "sdg:lr=1", r"no optimizer is called 'sdg'; did you mean 'sgd'\?"),
        ("optimizer", "zzz", "Known: adamw"),
        ("optimizer", "sgd,lr=0.1", "settings follow a colon: write sgd:lr=0.1; got"),
        ("optimizer", "sgd:momentun=1", r"did you mean 'momentum'\? Its settings: lr=0\.001, mom"),
        ("optimizer", "sgd:lr=fast", "sgd: lr must be float; got 'fast'"),
        ("optimizer", "sgd:lr=1,lr=2", "lr is given twice"),
        ("optimizer", "sgd:0.1", r"expected setting=value; got '0.1'\. Its settings"),
        ("optimizer", "sgd:lr=0.1,0.2", "got '0.2'; each of several values is a word of its own"),
        ("optimizer", "sgd:maximize=true", "no setting 'maximize'"),
        ("optimizer", "sam:roh=1", r"sam has no setting 'roh'; did you mean 'rho'\?.*lr=0\.001"),
        (
            "optimizer",
            "sam:base=adamv",
            "base: no optimizer is .*; did you mean 'adamw'",
        ),
        ("optimizer", "sam:base=sgd,betas=0.9:0.9", "sam has no setting 'betas'"),
        ("optimizer", "sam:lr=1,base=(sgd:lr=2)", "lr is given twice"),
        ("optimizer", "bulksgd:k=1", "bulksgd needs lr"),
        ("optimizer", "SGD", "did you mean 'sgd'"),
        ("data", "CIFAR10", "did you mean 'cifar10'"),
        ("model", "resnet21", "did you mean 'resnet20'"),
        ("model", "mlp:classes=3", "no setting 'classes'"),
        ("model", "nowhere.nets:make", r"cannot load the model nowhere\.nets:make"),
        ("model", "math:pi", "not a class or function"),
        ("model", "math:sqr", "no attribute 'sqr'; did you mean 'sqrt'"),
        ("model", "math:sqrt:x=1", "follow a comma: write math:sqrt,x=1"),
        ("data", "some/x.npz", "write arrays:some/x.npz"),
        ("data", ".", "write imagefolder:."),
        ("data", "cifar10:standardise=pixel", r"standardise must be channel\|global\|none"),
        ("data", "cifar10:train=many", "train must be int or none; got 'many'"),
        ("data", "imagefolder", "imagefolder needs path"),
        ("optimiser", "sgd", "did you mean 'optimizer'"),
    ],
)
def test_wrong_words_say_what_was_meant(kind, text, message):
    with pytest.raises(ValueError, match=message):
        parse(kind, text)


def test_a_path_leads():
    word = parse("data", "imagefolder:/data/my=pets (1),size=64")
    assert word.settings == {"path": Path("/data/my=pets (1)"), "size": 64}
    assert str(word) == 'imagefolder:"/data/my=pets (1)",size=64'
    assert str(parse("data", "imagefolder:C:/pets")) == "imagefolder:C:/pets"


@settings(deadline=None)
@given(TEXT.filter(lambda t: t and "\0" not in t).map(Path), st.integers(1, 100))
def test_any_path_survives(path, size):
    text = spell("data", "imagefolder", {"path": path, "size": size})
    assert parse("data", text).settings["path"] == path and str(parse("data", text)) == text


# What words build


def test_models_are_built_with_what_the_data_give():
    model = parse("model", "mlp:width=7,activation=relu").build(
        inputs=(1, 8, 8), classes=3, spare=1
    )
    assert model.hidden[0].in_features == 64 and model.head.out_features == 3
    assert isinstance(model.hidden[1], nn.ReLU)


def test_settings_unknown_to_sam_go_to_its_base():
    parameter = nn.Parameter(torch.ones(2))
    word = parse("optimizer", "sam:base=adamw,rho=0.1,lr=0.01,betas=0.8:0.9")
    assert word.settings["betas"] == (0.8, 0.9) and word.settings["base"].name == "adamw"
    optimizer = word.build([parameter], model=None)
    group = optimizer.param_groups[0]
    assert (group["lr"], group["rho"], group["betas"]) == (0.01, 0.1, (0.8, 0.9))
    nested = parse("optimizer", "sam:base=(adamw:lr=0.01,betas=0.8:0.9),rho=0.1")
    assert str(nested) == str(word) == "sam:base=adamw,rho=0.1,lr=0.01,betas=0.8:0.9"


def test_settings_unknown_to_bulksgd_go_to_sgd():
    word = parse("optimizer", "bulksgd:momentum=0.9,lr=2/30,k=0")
    assert str(word) == f"bulksgd:lr={2 / 30},k=0,momentum=0.9"
    group = word.build([nn.Parameter(torch.ones(2))]).param_groups[0]
    assert (group["lr"], group["momentum"]) == (2 / 30, 0.9)


def test_digits_from_words():
    data = parse("data", "digits:train=50,noise=0.1").build(root="unused", download=False)
    assert len(data.train) == 50 and data.train.flipped.sum() == 5


OWN_MODULE = """
from __future__ import annotations
from typing import TYPE_CHECKING
from torch import nn
if TYPE_CHECKING:
    from somewhere import Strange

def make(inputs, classes, width: int = 3, scale=1, strange: Strange = None):
    return nn.Linear(width, int(classes * scale))

class Penalty(nn.Module):
    def __init__(self, loss: nn.Module = nn.CrossEntropyLoss(), weight: float = 1.0):
        super().__init__()
        self.loss, self.weight = loss, weight
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "their_nets.py").write_text(OWN_MODULE)
    (tmp_path / "typed_nets.py").write_text(OWN_MODULE.replace("Strange = None", "int = 0"))
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in ("their_nets", "typed_nets"):
        sys.modules.pop(name, None)


def test_a_factory_of_ones_own(own):
    word = parse("model", "their_nets:make,scale=0.5")
    assert str(word) == "their_nets:make,scale=0.5" and parse("model", str(word)) == word
    assert word.build(inputs=(3,), classes=10).out_features == 5
    assert str(parse("model", "typed_nets:make,width=4")) == "typed_nets:make,width=4"
    with pytest.raises(ValueError, match="did you mean 'width'"):
        parse("model", "typed_nets:make,widht=3")
    with pytest.raises(ValueError, match="width must be int"):
        parse("model", "typed_nets:make,width=wide")


def test_a_word_among_the_settings_is_built(own):
    assert str(find("loss", "typed_nets:Penalty").settings["loss"]) == "loss=ce"
    word = parse("loss", "typed_nets:Penalty,weight=2,loss=(ce:label_smoothing=0.1)")
    assert str(word) == "typed_nets:Penalty,loss=(ce:label_smoothing=0.1),weight=2"
    built = word.build()
    assert built.loss.label_smoothing == 0.1 and built.weight == 2.0
    assert str(parse("loss", "typed_nets:Penalty,loss=ce")) == "typed_nets:Penalty"


def test_a_method_says_where_unknown_settings_go():
    class Declared:
        passes_arguments_to = "adamw"

        def __init__(self, params, rho: float = 0.1, **others):
            self.others = others

    class Suffixed(Declared):
        passes_arguments_to = None

        def __init__(self, params, rho: float = 0.1, **adamw_arguments): ...

    class Silent(Suffixed):
        def __init__(self, params, rho: float = 0.1, **others): ...

    def receiver(target):
        method = find("optimizer", "somewhere:name")
        vars(method)["target"] = target
        return method.passes_to

    assert [receiver(each) for each in (Declared, Suffixed, Silent)] == ["adamw", "adamw", ""]


def test_a_method_added_to_the_table_of_its_package_is_a_word(monkeypatch):
    class MadeUpLoss(nn.Module):
        """Take the mean. Reference: nobody."""

        def __init__(self, scale: float = 1.0):
            super().__init__()
            self.scale = scale

    monkeypatch.setitem(losses.LOSSES, "made_up", MadeUpLoss)
    monkeypatch.setattr(losses, "MadeUpLoss", MadeUpLoss, raising=False)
    assert parse("loss", "made_up:scale=2").build().scale == 2
    assert "made_up" in [method.name for method in methods("loss")]
