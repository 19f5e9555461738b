"""Independent labels in named arrays: outputs (N, K) and 0/1 labels (N, K)."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from toosure.predictions.array_names import missing_array, pick_scores, score_name
from toosure.predictions.arrays import score_array, stored_names
from toosure.predictions.options import ReadOptions
from toosure.predictions.predictions import Kind, as_tensor
from toosure.predictions.usual_names import pick_label


def multilabel_arrays(
    arrays: Mapping[str, Any], options: ReadOptions
) -> tuple[Kind, Tensor, Tensor, tuple[str, ...]]:
    """Return the kind, the outputs (N, K), the 0/1 labels (N, K) and the names of the labels."""
    prefix = f"{options.split}_" if options.split else ""
    own = {name.removeprefix(prefix): v for name, v in arrays.items() if name.startswith(prefix)}
    kind, score = pick_scores(list(own), options)
    truth = pick_label(list(own), options.label)
    if score is None or truth is None:
        missing = score_name(kind) if score is None else "labels"
        raise ValueError(missing_array(prefix + missing, arrays, options))

    scores = score_array(own[score], score)
    labels = as_tensor(own[truth], truth)
    if kind is None:
        inside = bool(((scores >= 0) & (scores <= 1)).all())
        kind = "probs" if inside else "logits"
    names = options.classes or stored_names(own, scores.shape[-1])
    return kind, scores.double(), labels, names
