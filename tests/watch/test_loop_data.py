"""What a loop has: loaders, data sets, arrays and dicts become a fixed sample of examples."""

import json
import random

import numpy as np
import pytest
import torch
from test_watch import CE, data, model
from torch import nn
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from toosure import Watch
from toosure.processes import Processes
from toosure.runs import RunError
from toosure.watch.drawn_indices import chosen_rows
from toosure.watch.same_watch import check_same_everywhere
from toosure.watch.sample import ExampleSource

ROWS = 60


class Pictures(Dataset):
    """A map-style data set with known targets, which notes what is read."""

    def __init__(self, n=ROWS):
        self.x, self.targets = data(n)
        self.read = []

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        self.read.append(i)
        return self.x[i], int(self.targets[i])


class Endless(IterableDataset):
    def __init__(self, rows=8):
        self.rows = rows

    def __iter__(self):
        while True:
            yield data(self.rows)


def numbers(row):
    return {k: v for k, v in row.items() if "seconds" not in k}


def as_dicts(n=ROWS):
    return [{"image": x, "label": y} for x, y in zip(*data(n), strict=True)]


WAYS = {
    "numpy": lambda: tuple(part.numpy() for part in data()),
    "TensorDataset": lambda: TensorDataset(*data()),
    "Dataset": Pictures,
    "DataLoader": lambda: DataLoader(TensorDataset(*data()), batch_size=7, shuffle=True),
    "dict of tensors": lambda: dict(zip(("x", "labels"), data(), strict=True)),
    "batches of dicts": lambda: DataLoader(as_dicts(), batch_size=7),
    "examples in a list": as_dicts,
    "batches in a list": lambda: list(DataLoader(TensorDataset(*data()), batch_size=7)),
    "batches of dicts in a tuple": lambda: tuple(DataLoader(as_dicts(), batch_size=7)),
    "batches in an order of their own": lambda: DataLoader(
        TensorDataset(*data()), batch_sampler=[range(0, 40), range(40, 60)]
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_give_all_examples_gives_the_same_row(way):
    expected = numbers(Watch(model(), CE, data(), measure=()).last)
    row = numbers(Watch(model(), CE, WAYS[way](), measure=()).last)
    assert row == pytest.approx(expected, abs=1e-6)


def test_token_sequences_in_a_list_are_examples_and_rows_of_them_batches():
    tokens = torch.arange(40).view(10, 4) % 7
    net = torch.nn.Sequential(torch.nn.Embedding(7, 5), torch.nn.Linear(5, 7))
    expected = numbers(Watch.of(net, (tokens, tokens), measure=()).last)
    sequences = [(row, row) for row in tokens]
    batches = [(rows, rows) for rows in tokens.split(5)]
    for way in (sequences, batches):
        assert numbers(Watch.of(net, way, measure=()).last) == pytest.approx(expected, abs=1e-6)


class Older(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = model()

    def forward(self, image, age):
        return self.body(image) + age[:, None]


class Tagger(nn.Module):
    """A label for every vector of a sequence; torch's LSTM also takes one sequence alone."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(5, 4, batch_first=True)

    def forward(self, x):
        return self.lstm(x)[0]


@pytest.mark.parametrize("kind", ["sequences of vectors", "three labels of colour images"])
def test_what_the_model_takes_as_one_example_is_no_batch(kind):
    """Their first axis is as long as their labels: shapes alone do not tell."""
    torch.manual_seed(0)
    if kind == "sequences of vectors":
        network, loss = Tagger(), CE
        x, y = torch.randn(20, 7, 5), torch.randint(4, (20, 7))
    else:
        network, loss = nn.Sequential(nn.Flatten(), nn.Linear(75, 3)), nn.BCEWithLogitsLoss()
        x, y = torch.randn(20, 3, 5, 5), torch.randint(2, (20, 3)).float()

    options = {"loss": loss, "measure": ()}
    expected = Watch.of(network, (x, y), **options)
    examples = Watch.of(network, list(zip(x, y, strict=True)), **options)
    batches = Watch.of(network, list(zip(x.split(6), y.split(6), strict=True)), **options)
    for watch in (examples, batches):
        assert watch.measurer.notes["train"]["examples"] == 20
        assert watch.last["train/loss"] == pytest.approx(expected.last["train/loss"])


def test_an_input_may_be_one_number_per_example_in_batches_and_in_examples():
    (x, y), net = data(), Older()
    together = {"image": x, "age": torch.rand(ROWS), "labels": y}
    expected = numbers(Watch.of(net, together, measure=()).last)
    examples = [{key: part[i] for key, part in together.items()} for i in range(ROWS)]
    batches = list(DataLoader(examples, batch_size=7))
    for way in (examples, batches):
        assert numbers(Watch.of(net, way, measure=()).last) == pytest.approx(expected, abs=1e-6)


def test_a_function_of_a_batch_need_not_take_an_example():
    examples = [{**each, "label": int(each["label"])} for each in as_dicts()]
    row = Watch.of(model(), examples, measure=(), labels=lambda batch: batch["label"].long()).last
    assert numbers(row) == pytest.approx(
        numbers(Watch.of(model(), data(), measure=()).last), abs=1e-6
    )


def test_one_line_for_the_common_case():
    loader = DataLoader(TensorDataset(*data()), batch_size=16)
    watch = Watch.of(model(), loader, DataLoader(TensorDataset(*data(40, seed=1))), measure=())
    expected = Watch(model(), CE, data(), data(40, seed=1), measure=()).last
    assert numbers(watch.last) == pytest.approx(numbers(expected), abs=1e-6)


def test_a_sample_is_drawn_once_by_its_seed_and_class_and_reads_no_more():
    pictures = Pictures()
    watch = Watch.of(model(), DataLoader(pictures, batch_size=4), examples=20, measure=())
    assert len(pictures.read) == len(set(pictures.read)) == 20
    watch.step()
    watch.measure()
    assert len(pictures.read) == 20

    drawn = watch.splits["train"].y
    share = pictures.targets.bincount() * 20 / ROWS
    assert (drawn.bincount() - share).abs().max() < 1
    note = watch.measurer.notes["train"]
    assert (note["examples"], note["of"], note["stratified"]) == (20, ROWS, True)

    again = Watch.of(model(), pictures, examples=20, measure=())
    other = Watch.of(model(), pictures, examples=20, seed=1, measure=())
    hashes = [w.measurer.notes["train"]["sha256"] for w in (watch, again, other)]
    assert hashes[0] == hashes[1] != hashes[2]


def test_rows_are_drawn_in_proportion_to_the_hundredth():
    labels = torch.tensor([0] * 70 + [1] * 25 + [2] * 5)
    rows, stratified = chosen_rows(100, 20, labels, seed=3)
    assert stratified and labels[rows].bincount().tolist() == [14, 5, 1]
    assert len(rows.unique()) == 20 and rows.tolist() != sorted(rows.tolist())
    assert chosen_rows(100, 20, None, seed=3)[1] is False


@pytest.mark.parametrize("part", ["Subset", "sampler"])
def test_only_examples_that_the_loader_gives_are_drawn(part):
    pictures, own = Pictures(), list(range(10, 40))
    loader = DataLoader(Subset(pictures, own))
    if part == "sampler":
        loader = DataLoader(pictures, sampler=SubsetRandomSampler(own))
    watch = Watch.of(model(), loader, examples=12, measure=())
    assert len(pictures.read) == 12 and set(pictures.read) <= set(own)
    assert watch.measurer.notes["train"]["of"] == 30


def test_a_loader_that_weighs_its_examples_is_asked_itself():
    weights = [0.0] * 50 + [1.0] * 10
    pictures = Pictures()
    loader = DataLoader(pictures, sampler=WeightedRandomSampler(weights, 40))
    Watch.of(model(), loader, examples=30, measure=())
    assert set(pictures.read) <= set(range(50, 60))


def test_an_endless_loader_gives_as_many_as_asked():
    watch = Watch.of(model(), DataLoader(Endless(), batch_size=None), examples=20, measure=())
    assert len(watch.splits["train"].y) == 20


def test_drawing_leaves_the_random_state_of_the_loop():
    class Noisy(Pictures):
        def __getitem__(self, i):
            x, y = super().__getitem__(i)
            return x + torch.randn(6) + np.random.randn() + random.random(), y  # noqa: NPY002

    def states():
        arrays = np.random.get_state()[1].tolist()  # noqa: NPY002
        return torch.get_rng_state().tolist(), arrays, random.getstate(), own.get_state().tolist()

    own = torch.Generator().manual_seed(4)
    loader = DataLoader(Noisy(), batch_size=5, shuffle=True, generator=own)
    net = model()
    before = states()
    first = Watch.of(net, loader, examples=10, measure=())
    second = Watch.of(net, loader, examples=10, measure=())
    assert states() == before
    assert first.measurer.notes == second.measurer.notes  # the same noise


# -- which part is which --------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"inputs": "image", "labels": "kind"},
        {"inputs": lambda b: b["image"], "labels": lambda b: b["kind"]},
        {"labels": "kind", "inputs": ["image"]},
    ],
)
def test_keys_and_functions_choose(options):
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = model()

        def forward(self, image):
            return self.net(image)

    batches = [{"image": x, "kind": y, "id": 7} for x, y in zip(*data(), strict=True)]
    row = Watch.of(Named(), DataLoader(batches, batch_size=8), measure=(), **options).last
    expected = Watch(model(), CE, data(), measure=()).last
    assert numbers(row) == pytest.approx(numbers(expected), abs=1e-6)


def test_places_choose_where_a_batch_has_more_parts():
    x, y = data()
    loader = DataLoader(TensorDataset(x, torch.arange(ROWS), y), batch_size=8)
    row = Watch.of(model(), loader, inputs=0, labels=2, measure=()).last
    assert row["train/loss"] == pytest.approx(
        Watch.of(model(), data(), measure=()).last["train/loss"]
    )
    with pytest.raises(
        ValueError, match=r"got list of 3 parts: say which part is which, as in inp"
    ):
        Watch.of(model(), loader, measure=())


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 4), nn.Linear(3, 4)

    def forward(self, left, right):
        return {"logits": self.a(left).tanh() + self.b(right)}


class Joined(nn.Module):
    """The same network of one tensor."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        return self.net(x[:, :3], x[:, 3:])["logits"]


@pytest.mark.parametrize("measure", ["gn_sharpness", "hessian_sharpness", "jacobian_norm", "trace"])
def test_curvature_of_dict_inputs_is_that_of_one_tensor(measure):
    torch.manual_seed(1)
    net, (x, y) = TwoInputs(), data()
    batch = {"left": x[:, :3], "right": x[:, 3:], "labels": y, "names": ["a"] * len(y)}
    row = Watch.of(net, batch, measure=measure).last
    expected = Watch.of(Joined(net), (x, y), measure=measure).last
    rtol = 0.05 if measure == "trace" else 2e-3
    assert row[f"train/{measure}"] == pytest.approx(expected[f"train/{measure}"], rel=rtol)

    parts = DataLoader(TensorDataset(batch["left"], y, batch["right"]), batch_size=ROWS)
    for inputs in ([0, 2], lambda parts: (parts[0], parts[2])):  # called in this order
        in_order = Watch.of(net, parts, measure=measure, inputs=inputs, labels=1).last
        assert numbers(in_order) == pytest.approx(numbers(row), rel=1e-5)

    some = Watch.of(net, batch, measure="gn_sharpness", parameters=["a.*"]).last
    of_joined = Watch.of(Joined(net), (x, y), measure="gn_sharpness", parameters=["net.a.*"]).last
    own = Watch.of(net, batch, measure="gn_sharpness", parameters=net.a.parameters()).last
    key = "train/gn_sharpness"
    assert some[key] == own[key] == pytest.approx(of_joined[key], rel=2e-3)


# -- mistakes -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "options", "message"),
    [
        (lambda: DataLoader(TensorDataset(*data(0))), {}, "train is empty: give it examples"),
        (lambda: DataLoader(Endless(0), batch_size=None), {}, "train gave 101 empty batches"),
        (
            lambda: iter([data()]),
            {},
            "is an iterator; reading it would consume your training batches: pass the loader",
        ),
        (lambda: 7, {}, "must be .inputs, labels., a DataLoader, .*; got int"),
        (lambda: DataLoader(as_dicts()), {"labels": "kind"}, r"labels='kind' is not in a batch"),
        (lambda: {"image": data()[0]}, {}, r"has the keys \['image'\] and none of \['labels'"),
        (
            lambda: {"a": data()[0], "b": data()[0], "labels": data()[1]},
            {},
            r"keys \['a', 'b', 'labels'\], and the model takes \['x'\]: say which are its inputs",
        ),
        (lambda: (data()[0], data()[1] + 1), {}, "labels start at 1; subtract 1"),
        (lambda: (data()[0], data(50)[1]), {}, "got 60 examples and 50 labels"),
        (lambda: {"x": data()[0], "labels": "cat"}, {}, "labels of train must be a tensor"),
        (lambda: data(), {"examples": 0}, "examples must be"),
        (lambda: data(), {"inputs": 5}, r"inputs=5 is not in a batch of train, which has tuple of"),
    ],
)
def test_data_that_cannot_be_read_say_what_to_do(wrong, options, message):
    with pytest.raises(ValueError, match=message):
        Watch.of(model(), wrong(), measure=(), **options)


def test_a_model_that_gives_no_logits():
    class Gives(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = model()

        def forward(self, x):
            return {"scores": self.net(x)}

    with pytest.raises(ValueError, match=r"gives dict with the keys \['scores'\].*return a tensor"):
        Watch.of(Gives(), data(), measure=())


def test_inputs_of_different_shape_cannot_be_joined():
    with pytest.raises(ValueError, match=r"inputs of train differ in shape, \(5,\) and \(6,\)"):
        Watch.of(model(), Uneven())


class Uneven:
    def __iter__(self):
        return iter([(torch.zeros(1, n), torch.zeros(1).long()) for n in (6, 5)])


# -- the run --------------------------------------------------------------------------------


def test_the_hash_of_the_examples_is_in_the_run_and_checked_when_it_goes_on(tmp_path):
    def watch(**options):
        return Watch.of(model(), Pictures(), run=tmp_path, measure=(), **options)

    with watch(examples=20) as first:
        first.step()
        state = first.state_dict()
    noted = json.loads((tmp_path / "examples.json").read_text())
    assert noted["train"]["sha256"] == state["examples"]["train"]
    with pytest.raises(ValueError, match=r"measured on other examples of train \(hash"):
        watch(examples=20, seed=1, resume=state)
    watch(examples=20, resume=state).close()


@pytest.mark.parametrize("damage", ["shorter", "other"])
def test_rows_that_a_state_needs_and_that_are_gone(damage, tmp_path):
    with Watch(model(), CE, data(), run=tmp_path, every=1, measure=()) as watch:
        watch.step()
        watch.step()
        state = watch.state_dict()
    file = tmp_path / "metrics.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    if damage == "other":
        lines[1] = lines[1].replace(b'"step": 1', b'"step": 1, "lr": 3')
    file.write_bytes(b"".join(lines if damage == "other" else lines[:1]))
    before = file.read_bytes()
    with pytest.raises(RunError, match=r"no longer has the rows up to step 2.*earlier checkpoint"):
        Watch(model(), CE, data(), run=tmp_path, every=1, measure=(), resume=state)
    assert file.read_bytes() == before


def test_our_own_loop_takes_no_hash():
    source = ExampleSource(hashes=False)
    assert "sha256" not in source.sample("train", data()).note


def test_processes_must_hold_the_same_examples():
    class Two(Processes):
        def largest(self, *numbers):
            return [number + self.other for number in numbers]

    same, different = Two(count=2), Two(count=2)
    object.__setattr__(same, "other", 0)
    object.__setattr__(different, "other", 1)
    notes = {"train": {"sha256": "ffffffffffffffff"}}
    check_same_everywhere(notes, same)
    with pytest.raises(ValueError, match="hold different examples of train"):
        check_same_everywhere(notes, different)
