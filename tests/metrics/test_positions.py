"""Tokens and pixels as rows: the classes are found, and ignored positions are left out."""

import pytest
import torch

from toosure.metrics import flatten_positions

generator = torch.Generator().manual_seed(0)


def test_tokens():
    logits = torch.randn(2, 3, 5, generator=generator)
    labels = torch.tensor([[0, 1, -100], [4, 2, 0]])
    rows = flatten_positions(logits, labels)
    assert torch.equal(rows.outputs, torch.cat([logits[0, :2], logits[1]]))
    assert rows.labels.tolist() == [0, 1, 4, 2, 0] and rows.groups.tolist() == [0, 0, 1, 1, 1]
    assert rows.group_name == "sequence"
    assert len(flatten_positions(logits, labels, ignore_index=None).labels) == 6
    assert len(flatten_positions(logits, labels, ignore_index=0).labels) == 4

    # torch's order of classes, and as many tokens as classes: then the last is taken.
    assert torch.equal(flatten_positions(logits.movedim(2, 1), labels).outputs, rows.outputs)
    square = torch.randn(2, 3, 3, generator=generator)
    assert torch.equal(flatten_positions(square, labels).outputs[0], square[0, 0])


def test_pixels():
    logits = torch.randn(2, 5, 3, 4, generator=generator)
    labels = torch.randint(5, (2, 3, 4), generator=generator)
    labels[1, 2, 3] = 255
    rows = flatten_positions(logits, labels, ignore_index=255)
    assert rows.outputs.shape == (23, 5) and rows.group_name == "image"
    assert torch.equal(rows.outputs[7], logits[0, :, 1, 3])
    assert rows.groups.bincount().tolist() == [12, 11]
    assert torch.equal(flatten_positions(logits.movedim(1, -1), labels, 255).outputs, rows.outputs)


@pytest.mark.parametrize("shape", [(2, 3, 4), (2, 1, 3, 4)])
def test_pixels_of_a_binary_classifier(shape):
    logits = torch.randn(shape, generator=generator)
    labels = torch.randint(2, (2, 3, 4), generator=generator)
    rows = flatten_positions(logits, labels)
    assert torch.equal(rows.outputs.reshape(-1), logits.reshape(-1))


def test_what_is_wrong_is_named():
    with pytest.raises(ValueError, match=r"got \(2, 3, 5\) and \(2, 4\)"):
        flatten_positions(torch.zeros(2, 3, 5), torch.zeros(2, 4))
    with pytest.raises(ValueError, match="every label is ignore_index, -100"):
        flatten_positions(torch.zeros(2, 3, 5), torch.full((2, 3), -100))


@pytest.mark.parametrize("mark", [255, -1])
def test_a_usual_mark_of_what_has_no_label_is_recognised(mark):
    outputs, labels = torch.zeros(2, 3, 2, 2), torch.tensor([[[0, 1], [2, mark]]] * 2)
    with pytest.raises(ValueError, match=rf"got {mark}: if .* --ignore-index {mark}$"):
        flatten_positions(outputs, labels)
    assert len(flatten_positions(outputs, labels, mark).labels) == 6

    # Other labels that are no class are left to what measures the rows.
    assert len(flatten_positions(outputs, labels.where(labels != mark, 7)).labels) == 8
    assert len(flatten_positions(torch.zeros(2, 256, 2, 2), labels.abs()).labels) == 8

    labels = labels.where(labels != 2, 1)
    for binary in (torch.zeros(2, 2, 2), torch.zeros(2, 1, 2, 2)):
        with pytest.raises(ValueError, match=rf"in \[0, 2\); got {mark}: if"):
            flatten_positions(binary, labels)
