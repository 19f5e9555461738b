"""The plan of `--shifts`: corruptions, severities, other data sets, number of images."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from toosure.sentences import did_you_mean

FIFTEEN = (
    *("gaussian_noise", "shot_noise", "impulse_noise"),
    *("defocus_blur", "glass_blur", "motion_blur", "zoom_blur"),
    *("snow", "frost", "fog", "brightness"),
    *("contrast", "elastic_transform", "pixelate", "jpeg_compression"),
)
SEVERITIES = (1, 2, 3, 4, 5)
CORRUPTED = "corrupted"  # the name of the test images under all corruptions, as unknown data
FILE_ENDINGS = (".npz", ".npy", ".pt")


@dataclass(frozen=True)
class ShiftPlan:
    """The images that a run is judged on besides its clean test set.

    `ood` names other data sets: a word of `--data` such as cifar100, the same with -c for its
    corrupted images (cifar100-c), `noise`, or a file of images, NAME=FILE.npz. NAME= may stand
    before any of them, where two would be called the same. `images` is how many images of each set
    are drawn by `seed`; None takes all of them. None of it changes the run.
    """

    corruptions: tuple[str, ...] = FIFTEEN
    severities: tuple[int, ...] = SEVERITIES
    ood: tuple[str, ...] = ()
    images: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("corruptions", "severities", "ood"):
            object.__setattr__(self, name, tuple(dict.fromkeys(getattr(self, name))))

        for severity in self.severities:
            if severity not in SEVERITIES:
                raise ValueError(f"severities are whole numbers from 1 to 5; got {severity!r}")
        if not self.corruptions or not self.severities:
            raise ValueError("shifts need at least one corruption and one severity")
        if self.images is not None and self.images < 2:
            raise ValueError(f"images must be at least 2; got {self.images}")
        check_names(self.ood)

    def without(self, data: str) -> "ShiftPlan":
        """Leave a run's own data set out of those that it does not know."""
        own = data.partition(":")[0]
        names = (own, f"{own}-c")  # its own corrupted images are judged anyway
        return replace(self, ood=tuple(w for w in self.ood if data_set_of(w) not in names))


def named_place(word: str) -> tuple[str, str]:
    """Return the name that a word of `--ood` gives its images, and the file or data set.

    >>> named_place("svhn=images.npz"), named_place("cifar100:test=500")
    (('svhn', 'images.npz'), ('cifar100', 'cifar100:test=500'))
    """
    name, equals, place = word.partition("=")
    if equals and ":" not in name:
        return name, place
    if is_file_name(word):
        return Path(word).stem, word
    return data_set_of(word), word


def is_file_name(place: str) -> bool:
    """Whether a place is a file of images, and not the word of a data set."""
    return Path(place).suffix in FILE_ENDINGS


def data_set_of(word: str) -> str:
    """Return the data set that a word names, without settings; or the file.

    >>> data_set_of("mine=cifar100-c:test=500")
    'cifar100-c'
    """
    name, equals, place = word.partition("=")
    return (place if equals and ":" not in name else word).partition(":")[0]


def check_names(words: Sequence[str]) -> None:
    """Raise if a record could not tell the sets of these words apart."""
    names: set[str] = set()
    for word in words:
        name, place = named_place(word)
        if not name or name == CORRUPTED or name in names:
            why = "given twice" if name in names else "taken by the test images themselves"
            raise ValueError(
                f"--ood {word}: the name {name!r} is {why if name else 'empty'}; write NAME={place}"
            )
        names.add(name)


def plan_of(text: str, ood: Sequence[str] = ()) -> ShiftPlan:
    """Read the settings of `--shift all`.

    >>> plan_of("all:images=2000", ["cifar100"]).images
    2000
    """
    name, _, rest = text.partition(":")
    if name != "all":
        raise ValueError(f"--shift all judges every corruption; got {text!r}")

    numbers: dict[str, int] = {}
    for item in filter(None, rest.split(",")):
        key, _, value = item.partition("=")
        if key not in ("images", "seed"):
            hint = did_you_mean(key, ("images", "seed"))
            raise ValueError(f"--shift all takes images=N and seed=N; got {item!r}{hint}")
        if not re.fullmatch(r"\d+", value):
            raise ValueError(f"--shift all: {key} must be a whole number; got {value!r}")
        numbers[key] = int(value)
    return ShiftPlan(ood=tuple(ood), images=numbers.get("images"), seed=numbers.get("seed", 0))


def wants_all(texts: Sequence[str]) -> bool:
    """Whether `--shift` asks for every corruption of one run, not for one run per corruption."""
    asks = [text.partition(":")[0] == "all" for text in texts]
    if any(asks) and len(asks) > 1:
        raise ValueError("--shift all judges every corruption already: give it alone")
    return any(asks)
