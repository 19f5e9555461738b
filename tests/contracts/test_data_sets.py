"""What every data set in the table must do; a new one is tested the moment it is listed."""

import inspect
import json
import subprocess
import sys

import pytest
import torch

from toosure.data.catalogue import SOURCES
from toosure.words import find, parse
from toosure.words.tables import INJECTED, TABLES

EACH = pytest.mark.parametrize("name", TABLES["data"])
SHARED = ("train", "val", "test", "noise", "standardise", "seed")
LEADS = {"imagefolder": "imagefolder:somewhere", "cifar10_c": "cifar10_c:fog"}
LEADS |= {"arrays": "arrays:somewhere.npz"}
LEADS |= {"shards": "shards:some/train-{000..146}.tar"}
LEADS |= {"cifar100_c": "cifar100_c:fog", "imagenet_c": "imagenet_c:fog"}


@EACH
def test_its_word_round_trips_and_it_has_a_summary(name):
    method = find("data", name)
    text = LEADS.get(name, name)
    assert str(parse("data", text)) == text
    assert method.summary.endswith(".")
    assert method.reference or name in ("imagefolder", "arrays")
    assert not INJECTED["data"] & method.settings.keys()
    assert [n for n in SHARED if n not in method.settings] == []
    settings = "train=10,val=5,test=7,noise=0.5,standardise=none,seed=3"
    joint = "," if ":" in text else ":"
    assert parse("data", f"{text}{joint}{settings}").settings["noise"] == 0.5


@EACH
def test_its_test_set_can_be_shifted(name):
    published = name.endswith("_c")
    assert ("shift" in find("data", name).settings) == (not published)
    assert ("corruption" in find("data", name).settings) == published


@EACH
def test_it_is_in_the_catalogue_with_size_licence_and_origin(name):
    if name in ("imagefolder", "shards", "arrays"):
        assert name not in SOURCES
        return
    source = SOURCES[name]
    assert source.about and source.licence and source.page.startswith("http")
    assert name == "digits" or source.bytes > 1e6
    assert bool(source.downloads) != bool(source.manual) or name == "digits"
    assert all(other in SOURCES for other in source.also_needs)
    for download in source.downloads:
        kind, _, digits = download.digest.partition(":")
        assert len(digits) == {"md5": 32, "sha256": 64}[kind] and int(digits, 16)
        places = [place for places in source.needs for place in places]
        assert (download.folder or download.target) in places


@EACH
def test_without_its_files_it_says_what_to_do(name, tmp_path):
    if name == "digits":
        assert len(parse("data", "digits:train=50").build().train) == 50
        return
    text = "imagefolder:absent" if name == "imagefolder" else LEADS.get(name, name)
    with pytest.raises(ValueError, match=r"download|there is no (folder|file)") as caught:
        parse("data", text).build(root=tmp_path, download=False)
    assert "\n" not in str(caught.value) and not list(tmp_path.iterdir())


@EACH
def test_defaults_are_what_the_signature_says(name):
    parameters = inspect.signature(find("data", name).target).parameters
    assert all(p.annotation is not p.empty for p in parameters.values())
    if "download" in parameters:
        assert parameters["download"].default is False


def test_reading_and_splits_are_the_same_in_another_process():
    code = (
        "import json, sys; from toosure.data import digits;"
        "d = digits(train=40, noise=0.2, seed=7);"
        "print(json.dumps([d.train.indices.tolist(), d.train.y.tolist(), d.train.x.sum().item(),"
        "'sklearn' in sys.modules]))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    data = parse("data", "digits:train=40,noise=0.2,seed=7").build()
    indices, labels, total, slow = json.loads(out.stdout)
    assert not slow  # it takes seconds to import
    assert data.train.indices.tolist() == indices and data.train.y.tolist() == labels
    assert torch.tensor(total).item() == pytest.approx(data.train.x.sum().item(), abs=1e-3)
