"""The SAM family in Hugging Face's Trainer, which calls `optimizer.step()` without a closure."""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import Trainer

from toosure.batches.reader import predicts_next_token
from toosure.optim import CSAM, SAM
from toosure.optim.wrapper import innermost


class SAMTrainer(Trainer):
    """A Trainer for the SAM family, at two passes per step: `optimizers=(SAM(...), None)`.

    The gradients that the Trainer computes serve as the first pass, and the micro-batches of an
    accumulated batch are run again for the second. `max_grad_norm` clips the gradient that the base
    receives, unless the optimizer has a `clip_norm`. CSAM's criterion is the loss, a mean over each
    micro-batch. Use bf16 or float32: fp16's scaler cannot call the second pass. As a mixin:
    `class Mine(SAMTrainer, Seq2SeqTrainer)`.
    """

    def training_step(
        self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None
    ) -> Tensor:
        optimizer = innermost(self.optimizer)
        if isinstance(optimizer, SAM):
            if optimizer.second_pass is None:
                self._prepare_sam(optimizer)
            self.micro_batches.append((model, dict(inputs), num_items_in_batch))
        return super().training_step(model, inputs, num_items_in_batch)

    def _prepare_sam(self, optimizer: SAM) -> None:
        if self.args.fp16:
            raise ValueError("SAM needs two passes per step, which fp16 cannot scale: use bf16")
        self.micro_batches: list[tuple[nn.Module, dict[str, Any], Any]] = []
        if optimizer.clip_norm is None and self.args.max_grad_norm > 0:
            optimizer.clip_norm = self.args.max_grad_norm
        if isinstance(optimizer, CSAM):
            self.loss_is_scaled_for_ga = False
            self.criterion = optimizer.criterion()

        optimizer.second_pass = self._second_pass
        optimizer.register_step_post_hook(lambda *arguments: self.micro_batches.clear())

    def _second_pass(self) -> Tensor:
        losses = [super(SAMTrainer, self).training_step(*batch) for batch in self.micro_batches]
        return torch.stack(losses).sum()

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        if not (model.training and isinstance(innermost(self.optimizer), CSAM)):
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)

        named = {key: value for key, value in inputs.items() if key != "labels"}
        outputs = model(**named)
        logits = outputs.logits
        labels = inputs["labels"]
        if predicts_next_token(self.accelerator.unwrap_model(model)):
            logits = logits[:, :-1]
            labels = labels[:, 1:]
        loss = self.criterion(logits.flatten(0, -2), labels.flatten())
        return (loss, outputs) if return_outputs else loss
