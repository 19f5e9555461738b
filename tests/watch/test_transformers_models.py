"""Models of transformers, made from a config: a BERT classifier and taggers, a GPT-2."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from toosure import Watch
from toosure.curvature import hessian_sharpness

transformers = pytest.importorskip("transformers")

SMALL = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
BERT = {**SMALL, "intermediate_size": 8, "vocab_size": 20, "max_position_embeddings": 12}
GPT = {"n_embd": 8, "n_layer": 1, "n_head": 2, "vocab_size": 20, "n_positions": 12}
ENDS = {"bos_token_id": 1, "eos_token_id": 1}
CE = nn.CrossEntropyLoss()


def bert(kind="BertForSequenceClassification", labels=3):
    torch.manual_seed(0)
    config = transformers.BertConfig(**BERT, num_labels=labels)
    return getattr(transformers, kind)(config)


def gpt2(**sizes):
    torch.manual_seed(0)
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**{**GPT, **ENDS, **sizes}))


def texts(n=12, length=7, classes=3):
    torch.manual_seed(1)
    return [
        {
            "input_ids": torch.randint(1, 20, (length,)),
            "attention_mask": torch.tensor([1] * (length - i % 3) + [0] * (i % 3)),
            "labels": torch.tensor(i % classes),
        }
        for i in range(n)
    ]


def joined(examples):
    return {key: torch.stack([e[key] for e in examples]) for key in examples[0]}


def numbers(row):
    return {k: v for k, v in row.items() if "seconds" not in k}


class OfIds(nn.Module):
    """The same model as a function of one tensor, ids and mask side by side."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        ids, mask = x.chunk(2, 1)
        return self.model(input_ids=ids, attention_mask=mask).logits


def test_a_bert_classifier_in_three_lines():
    model, loader = bert(), DataLoader(texts(), batch_size=5)
    watch = Watch.of(model, loader, loader, every=1, measure=("gn_sharpness", "hessian_sharpness"))
    row = watch.last
    batch = joined(texts())
    model.eval()
    outputs = model(**batch)
    model.train()
    assert row["val/loss"] == pytest.approx(float(outputs.loss.detach()), rel=1e-5)
    pair = torch.cat([batch["input_ids"], batch["attention_mask"]], 1), batch["labels"]
    expected = hessian_sharpness(OfIds(model), pair, rtol=1e-4).value
    assert row["train/hessian_sharpness"] == pytest.approx(expected, rel=2e-3)
    assert row["train/gn_sharpness"] > 0 and model.training


def test_batches_of_different_length_are_padded():
    examples = texts()
    parts = [joined(examples[:6]), joined(examples[6:])]
    for part in parts:  # as a collator that pads to the longest of the batch would give them
        part["input_ids"] = part["input_ids"] * part["attention_mask"]
    short = {k: v[:, :7] if v.ndim > 1 else v for k, v in parts[0].items()}
    long = {k: nn.functional.pad(v, (0, 2)) if v.ndim > 1 else v for k, v in parts[1].items()}
    row = Watch.of(bert(), Batches([short, long]), measure=()).last
    assert row["train/loss"] == pytest.approx(
        Watch.of(bert(), Batches(parts), measure=()).last["train/loss"], rel=1e-5
    )
    for part in (short, long):
        del part["attention_mask"]
    with pytest.raises(ValueError, match=r"input_ids of train differ in shape.*attention_mask"):
        Watch.of(bert(), Batches([short, long]), measure=())


class Batches:
    def __init__(self, batches):
        self.batches = batches

    def __iter__(self):
        return iter(self.batches)


def test_a_bert_with_one_output_is_binary():
    examples = texts(classes=2)
    model = bert(labels=1)
    row = Watch.of(model, DataLoader(examples, batch_size=4)).last
    batch = joined(examples)
    labels = batch.pop("labels")
    z = model.eval()(**batch).logits.detach()[:, 0]
    loss = nn.functional.binary_cross_entropy_with_logits(z, labels.float())
    assert row["train/loss"] == pytest.approx(float(loss), rel=1e-5)
    assert row["train/gn_sharpness"] > 0


def test_a_tagger_leaves_out_what_is_ignored():
    examples = texts()
    for e in examples:
        e["labels"] = torch.where(e["attention_mask"] == 1, e["input_ids"] % 3, -100)
    model = bert("BertForTokenClassification")
    row = Watch.of(model, DataLoader(examples, batch_size=4), measure=()).last
    loss = model.eval()(**joined(examples)).loss.detach()
    assert row["train/loss"] == pytest.approx(float(loss), rel=1e-5)


@pytest.mark.parametrize("has_labels", [True, False])
def test_gpt2_is_judged_on_the_next_token_as_its_own_loss_is(has_labels):
    examples = texts()
    for e in examples:
        e["labels"] = torch.where(e["attention_mask"] == 1, e["input_ids"], -100)
    model = gpt2()
    loss = float(model.eval()(**joined(examples)).loss.detach())
    if not has_labels:
        for e in examples:
            del e["labels"]
    watch = Watch.of(model, DataLoader(examples, batch_size=4), measure=("gn_sharpness",))
    assert watch.last["train/loss"] == pytest.approx(loss, rel=1e-5)
    assert watch.last["train/gn_sharpness"] > 0
    assert watch.measurer.notes["train"]["rows"] == sum(
        int(e["attention_mask"].sum()) - 1 for e in examples
    )


def test_the_hessian_of_gpt2_with_its_tied_weights_is_the_dense_one():
    examples = texts(3, length=4)
    model = gpt2(n_embd=4, n_head=1, n_inner=4, n_positions=4).double()
    batch = joined(examples)
    batch["labels"] = torch.where(batch["attention_mask"] == 1, batch["input_ids"], -100)
    key = "train/hessian_sharpness"
    row = Watch.of(model, batch, measure="hessian_sharpness", rtol=1e-6).last
    parameters = [p for p in model.parameters() if p.requires_grad]

    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        loss = model.eval()(**batch).loss
        slopes = torch.autograd.grad(loss, parameters, create_graph=True)
        flat = torch.cat([s.flatten() for s in slopes])
        columns = [
            torch.cat([g.flatten() for g in torch.autograd.grad(s, parameters, retain_graph=True)])
            for s in flat
        ]
    largest = float(torch.linalg.eigvalsh(torch.stack(columns))[-1])
    assert row[key] == pytest.approx(largest, rel=1e-4)


def test_a_list_of_keys_and_a_function_of_labels():
    model, examples = bert(), texts()
    chosen = Watch.of(model, examples, inputs=["input_ids", "attention_mask"], measure=()).last
    expected = Watch.of(model, examples, labels=lambda b: b["labels"], measure=()).last
    assert numbers(chosen) == numbers(expected)


def test_a_model_in_data_parallel_is_read_as_itself():
    model, examples = bert(), texts()
    row = Watch.of(nn.DataParallel(model), examples, measure="gn_sharpness").last
    expected = Watch.of(model, examples, measure="gn_sharpness").last
    assert numbers(row) == pytest.approx(numbers(expected), rel=1e-3)
