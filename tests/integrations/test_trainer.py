"""The callback and the SAM family in the Trainer of transformers."""

import gc

import pytest
import torch
from torch import nn

from toosure import Run
from toosure.optim import BSAM, CSAM, SAM

transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from accelerate.data_loader import BatchSamplerShard  # noqa: E402
from loops import CE, Net, loader, own_loop, problem, rows_of, same_weights, steps_of  # noqa: E402
from torch.utils.data import BatchSampler, DataLoader, SubsetRandomSampler  # noqa: E402

from toosure.integrations.transformers import (  # noqa: E402
    SAMTrainer,
    WatchCallback,
    of_all_processes,
    with_collator,
)

pytestmark = pytest.mark.filterwarnings("ignore")  # of transformers: no pinned memory, and others


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.2, momentum=0.9)


def sam(parameters):
    return SAM(parameters, rho=0.1, lr=0.2)


def examples():
    return [{"x": x, "labels": y} for x, y in zip(*problem(), strict=True)]


class InOrder(SAMTrainer):
    """Batches in the order of the data, and an error where a test wants one."""

    fail_at = None

    def _get_train_sampler(self, train_dataset=None):
        return torch.utils.data.SequentialSampler(self.train_dataset)

    def training_step(self, *arguments):
        if self.state.global_step == self.fail_at:
            raise ZeroDivisionError("on purpose")
        return super().training_step(*arguments)


def trainer_of(folder, net, make_optimizer, callbacks, **options):
    options = {"num_train_epochs": 2, "save_strategy": "no", "max_grad_norm": 0.0, **options}
    arguments = transformers.TrainingArguments(
        output_dir=str(folder / "trainer"),
        per_device_train_batch_size=8,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        lr_scheduler_type="constant",
        logging_strategy="no",
        **options,
    )
    optimizer = make_optimizer(net.parameters())
    return InOrder(
        net, arguments, train_dataset=examples(), optimizers=(optimizer, None), callbacks=callbacks
    )


def callback(folder, **options):
    return WatchCallback(val=problem(), run=folder, every=3, measure="none", **options)


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("make_optimizer", [sgd, sam])
def test_weights_and_rows_are_those_of_our_own_loop(make_optimizer, accumulate, tmp_path):
    net = Net()
    trainer = trainer_of(
        tmp_path,
        net,
        make_optimizer,
        [callback(tmp_path / "a")],
        gradient_accumulation_steps=accumulate,
    )
    trainer.train()
    assert net.calls == (32 if make_optimizer is sam else 16)  # two passes per micro-batch
    own = own_loop(tmp_path / "b", make_optimizer, accumulate=accumulate)
    if accumulate == 1 or make_optimizer is sgd:
        # Batch statistics move in each micro-batch here, and once per step in our closure.
        assert same_weights(net, own)
        assert rows_of(tmp_path / "a") == rows_of(tmp_path / "b")
    steps = trainer.state.global_step
    assert steps == 16 // accumulate
    assert steps_of(tmp_path / "a") == sorted({*range(0, steps + 1, 3), steps})
    assert Run(tmp_path / "a").status == "ended"


def test_accumulated_sam_is_sam_on_the_whole_batch(tmp_path):
    class NoStatistics(Net):
        def __init__(self):
            super().__init__()
            self.layers[1] = nn.Identity()

    net, own = NoStatistics(), NoStatistics()
    trainer_of(tmp_path, net, sam, [], gradient_accumulation_steps=2, num_train_epochs=1).train()
    optimizer = sam(own.parameters())
    for x, y in zip(*(part.split(16) for part in problem()), strict=True):

        def closure(x=x, y=y):
            CE(own(x), y).backward()

        optimizer.step(closure)
    for a, b in zip(net.parameters(), own.parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-6)


def test_the_trainers_clipping_reaches_the_descent(tmp_path):
    net = Net()
    trainer = trainer_of(tmp_path, net, sam, [], max_grad_norm=0.05, num_train_epochs=1)
    trainer.train()
    own = Net()
    optimizer = SAM(own.parameters(), rho=0.1, lr=0.2, clip_norm=0.05)
    for x, y in loader():
        own.train()

        def closure(x=x, y=y):
            CE(own(x), y).backward()

        optimizer.step(closure)
    for a, b in zip(net.parameters(), own.parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-5)


def test_csam_has_its_criterion(tmp_path):
    net = Net()

    def csam(parameters):
        return CSAM(parameters, rho=0.1, gamma=2.0, lr=0.2)

    class Logits(Net):
        def forward(self, x, labels=None):
            outputs = super().forward(x, labels)
            logits = outputs if labels is None else outputs["logits"]
            loss = None if labels is None else outputs["loss"]
            return transformers.modeling_outputs.SequenceClassifierOutput(loss, logits)

    net = Logits()
    trainer_of(tmp_path, net, csam, [callback(tmp_path / "a")], num_train_epochs=1).train()
    own = Net()
    optimizer = csam(own.parameters())
    criterion = optimizer.criterion(CE)
    for x, y in loader():
        own.train()

        def closure(x=x, y=y):
            criterion(own(x), y).backward()

        optimizer.step(closure)
    for a, b in zip(net.parameters(), own.parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-6)
    assert net.calls == 16 and steps_of(tmp_path / "a") == [0, 3, 6, 8]


def test_a_run_that_goes_on_from_a_checkpoint_has_no_row_twice(tmp_path):
    saving = {"save_strategy": "steps", "save_steps": 5, "num_train_epochs": 3}
    whole = Net()
    trainer_of(tmp_path / "w", whole, sgd, [callback(tmp_path / "whole")], **saving).train()

    def fail():
        trainer = trainer_of(tmp_path, Net(), sgd, [callback(tmp_path / "a")], **saving)
        trainer.fail_at = 13
        with pytest.raises(ZeroDivisionError):
            trainer.train()

    fail()
    gc.collect()
    run = Run(tmp_path / "a")
    assert (run.status, run.outcome["message"]) == ("failed", "training did not come to its end")
    assert steps_of(tmp_path / "a") == [0, 3, 6, 9, 12]

    net = Net()
    again = trainer_of(tmp_path, net, sgd, [callback(tmp_path / "a")], **saving)
    again.train(resume_from_checkpoint=str(tmp_path / "trainer" / "checkpoint-10"))
    assert same_weights(net, whole)
    assert rows_of(tmp_path / "a") == rows_of(tmp_path / "whole")


def test_the_same_trainer_goes_on_after_a_failure(tmp_path):
    saving = {"save_strategy": "steps", "save_steps": 4, "num_train_epochs": 1}
    trainer = trainer_of(tmp_path, Net(), sgd, [callback(tmp_path / "a")], **saving)
    trainer.fail_at = 7
    with pytest.raises(ZeroDivisionError):
        trainer.train()
    trainer.fail_at = None
    trainer.train(resume_from_checkpoint=True)
    assert steps_of(tmp_path / "a") == [0, 3, 6, 8] and Run(tmp_path / "a").status == "ended"


def test_what_cannot_be_done_says_what_to_do(tmp_path):
    bsam = trainer_of(tmp_path, Net(), lambda p: BSAM(p, lr=0.1, data_size=64), [])
    with pytest.raises(ValueError, match="BSAM takes its first gradient at another point than w"):
        bsam.train()
    plain = trainer_of(tmp_path, Net(), sam, [])
    plain.__class__ = transformers.Trainer  # which gives no closure
    with pytest.raises(ValueError, match=r"toosure.integrations.transformers.SAMTrainer$"):
        plain.train()


def test_a_gpt2_in_the_trainer_with_sharpness(tmp_path):
    sizes = {"n_embd": 8, "n_layer": 1, "n_head": 2, "vocab_size": 12, "n_positions": 6}
    torch.manual_seed(0)
    net = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(**sizes, bos_token_id=1, eos_token_id=1)
    )
    ids = torch.randint(1, 12, (16, 6))
    trainer = trainer_of(tmp_path, net, sam, [], num_train_epochs=1)
    trainer.train_dataset = [{"input_ids": row, "labels": row} for row in ids]
    watch = WatchCallback(run=tmp_path / "a", every=1, val=trainer.train_dataset)
    trainer.add_callback(watch)
    trainer.train()
    rows = Run(tmp_path / "a").rows
    assert [row["step"] for row in rows] == [0, 1, 2]
    assert rows[0]["train/loss"] == rows[0]["val/loss"] and rows[0]["train/gn_sharpness"] > 0
    assert rows[-1]["train/loss"] < rows[0]["train/loss"]


def test_a_trainer_in_bf16_is_watched_in_float32(tmp_path):
    """Accelerate puts an autocast into the model's forward, in which curvature failed."""
    net = Net()
    watch = WatchCallback(run=tmp_path / "a", every=8, val=problem(), measure="gn_sharpness")
    trainer = trainer_of(tmp_path, net, sgd, [watch], bf16=True, num_train_epochs=1)
    trainer.train()
    row = Run(tmp_path / "a").last

    x, y = problem()
    net.eval()
    exact = net.layers(x)
    assert row["val/nll"] == pytest.approx(float(CE(exact, y)), rel=1e-6)
    assert not torch.equal(net(x), exact)  # the Trainer's own forward rounds
    assert row["val/gn_sharpness"] > 0 and "val/gn_sharpness_unconverged" not in row


def test_without_ddp_only_the_first_process_measures(tmp_path):
    class State:
        is_world_process_zero = False
        global_step = 0

    class Arguments:
        output_dir = str(tmp_path)
        world_size = 2
        fsdp = ("full_shard",)
        deepspeed = None

    watch = WatchCallback(measure="none")
    for event in (watch.on_train_begin, watch.on_save, watch.on_train_end):
        event(Arguments(), State(), None, model=Net())  # no part of it is sharded by FSDP2
    assert watch.watch is None and not list(tmp_path.iterdir())


def test_a_share_of_one_process_becomes_what_all_of_them_see():
    batches = BatchSampler(SubsetRandomSampler(range(40)), 8, drop_last=False)
    share = DataLoader(examples(), batch_sampler=BatchSamplerShard(batches, 2, 0))
    whole = of_all_processes(share, batch_size=8)
    assert sum(len(batch["labels"]) for batch in share) == 24  # three of five batches
    assert sum(len(batch["labels"]) for batch in whole) == 40
    assert sorted(whole.sampler.indices) == list(range(40))
    plain = loader()
    assert of_all_processes(plain, batch_size=8) is plain


class TokenNet(nn.Module):
    """The mean embedding of the tokens that a mask keeps."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(20, 3)

    def forward(self, input_ids, attention_mask, labels=None):
        kept = attention_mask.unsqueeze(2)
        logits = (self.embedding(input_ids) * kept).sum(1) / kept.sum(1)
        return logits if labels is None else {"loss": CE(logits, labels), "logits": logits}


def padded(rows):
    """Join rows of tokens as a tokenizer's collator does; it cannot read text."""
    assert all(set(row) == {"input_ids", "labels"} for row in rows)
    tokens = [torch.tensor(row["input_ids"]) for row in rows]
    ids = nn.utils.rnn.pad_sequence(tokens, batch_first=True)
    labels = torch.tensor([row["labels"] for row in rows])
    return {"input_ids": ids, "attention_mask": (ids > 0).long(), "labels": labels}


def test_rows_of_a_tokenizer_are_joined_by_the_trainers_collator(tmp_path):
    rows = [
        {"input_ids": list(range(1, 2 + k % 5)), "labels": k % 3, "text": "..."} for k in range(24)
    ]
    net = TokenNet()
    watch = WatchCallback(val=rows, run=tmp_path / "a", measure="none")
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path / "trainer"),
        max_steps=2,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
    )
    transformers.Trainer(
        net, arguments, train_dataset=rows, data_collator=padded, callbacks=[watch]
    ).train()

    batch = padded([{key: row[key] for key in ("input_ids", "labels")} for row in rows])
    loss = CE(net(batch["input_ids"], batch["attention_mask"]), batch["labels"]).item()
    assert watch.watch.last["val/loss"] == pytest.approx(loss, abs=1e-6)


def test_what_needs_no_collator_stays_as_it_is():
    own = loader()
    for data in (own, problem(), own.dataset, {"x": torch.zeros(2, 6)}, [], None):
        assert with_collator(data, own, Net()) is data
    kept = with_collator(examples(), own, Net(), remove_columns=False)
    assert kept.collate_fn is own.collate_fn
