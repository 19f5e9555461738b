"""Zero channels, for shortcuts that have no parameters."""

from torch import Tensor, nn
from torch.nn import functional as F


class PadChannels(nn.Module):
    """Add `before` and `after` channels of zeros to images (N, C, H, W).

    Where the channels of several `members` of an ensemble lie side by side, each gets its own.
    """

    def __init__(self, before: int, after: int, members: int = 1) -> None:
        super().__init__()
        self.before = before
        self.after = after
        self.members = members

    def forward(self, x: Tensor) -> Tensor:
        pads = (0, 0, 0, 0, self.before, self.after)
        if self.members == 1:
            return F.pad(x, pads)
        by_member = x.reshape(len(x), self.members, -1, *x.shape[2:])
        return F.pad(by_member, pads).flatten(1, 2)
