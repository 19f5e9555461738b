"""Watch a BERT classifier in Hugging Face's Trainer, trained by SAM at two passes per step."""

import torch
from transformers import BertConfig, BertForSequenceClassification, TrainingArguments

from toosure.integrations.transformers import SAMTrainer, WatchCallback
from toosure.optim import SAM

torch.manual_seed(0)
config = BertConfig(
    vocab_size=50,
    hidden_size=32,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=16,
    num_labels=2,
)
model = BertForSequenceClassification(config)  # from a config: nothing is downloaded

tokens = torch.randint(5, 50, (600, 12))
labels = (tokens[:, 0] > 27).long()  # is the first token a large one?
examples = [{"input_ids": t, "labels": y} for t, y in zip(tokens, labels, strict=True)]

arguments = TrainingArguments(
    "runs/trainer_checkpoints",
    num_train_epochs=2,
    per_device_train_batch_size=20,
    save_strategy="no",
    report_to=[],
    disable_tqdm=True,
    use_cpu=True,
)
sam = SAM(model.parameters(), base=torch.optim.AdamW, rho=0.05, lr=0.003)
watch = WatchCallback(val=examples[400:], run="runs/trainer")
trainer = SAMTrainer(
    model, arguments, train_dataset=examples[:400], optimizers=(sam, None), callbacks=[watch]
)
trainer.train()
print(f"accuracy {watch.watch.last['val/accuracy']:.3f}, ECE {watch.watch.last['val/ece']:.3f}")
