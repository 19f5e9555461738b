"""How the members of an ensemble differ, and how each of them does alone."""

import torch
from torch import Tensor

from toosure.metrics import accuracy, ece, nll
from toosure.metrics.inputs import at_least_float32


def member_numbers(logits: Tensor, labels: Tensor) -> dict[str, float]:
    """Return the numbers of a row about members: logits (M, N, C), labels (N,).

    Accuracy, NLL and ECE are means over the members, each judged alone.
    """
    logits = at_least_float32(logits).cpu()
    labels = labels.cpu()
    numbers = {"disagreement": disagreement(logits), "member_kl": mean_pairwise_kl(logits)}

    for name, metric in (("accuracy", accuracy), ("nll", nll)):
        values = [float(metric(member, labels)) for member in logits]
        numbers[f"member_{name}"] = sum(values) / len(values)
    errors = [float(ece(member, labels)) for member in logits]
    numbers["member_ece"] = sum(errors) / len(errors)
    return numbers


def disagreement(logits: Tensor) -> float:
    """Return the share of pairs of members, over all examples, that predict different classes.

    >>> logits = torch.eye(3)[torch.tensor([[0, 1], [0, 2], [0, 1]])]  # three members, two examples
    >>> round(disagreement(logits), 4)
    0.3333
    """
    members, examples, classes = logits.shape
    if members == 1 or examples == 0:
        return 0.0

    votes = torch.zeros(examples, classes, dtype=torch.float64)
    for member in logits.argmax(-1).cpu():
        votes[torch.arange(examples), member] += 1
    agreeing = (votes * (votes - 1)).sum(1) / (members * (members - 1))
    return float(1 - agreeing.mean())


def mean_pairwise_kl(logits: Tensor) -> float:
    """Return the mean of KL(p_a || p_b) over ordered pairs of different members and examples.

    Over all M^2 pairs the mean is mean_a sum_c p_a log p_a - sum_c mean(p) mean(log p); the M
    pairs of a member with itself add nothing, hence the factor M / (M - 1). A class that no member
    thinks possible adds nothing; one that some do and others do not makes it infinite.
    """
    members = len(logits)
    if members == 1:
        return 0.0

    log_p = logits.double().log_softmax(-1)
    p = log_p.exp()
    mean_p = p.mean(0)
    own = -torch.special.entr(p).sum(-1).mean(0)
    crossed = torch.where(mean_p > 0, mean_p * log_p.mean(0), 0).sum(-1)
    return float((own - crossed).mean()) * members / (members - 1)
