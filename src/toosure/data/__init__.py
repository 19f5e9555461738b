"""Readers of data sets in their official layouts, splits by seed, augmentation on the device."""

from toosure.data.augment import crop_and_flip
from toosure.data.cifar import cifar10, cifar100, load_cifar10, load_cifar100
from toosure.data.dataset import Dataset, Images, Split, make_dataset
from toosure.data.digits import digits, load_digits
from toosure.data.imagefolder import imagefolder

__all__ = [
    "Dataset",
    "Images",
    "Split",
    "cifar10",
    "cifar100",
    "crop_and_flip",
    "digits",
    "imagefolder",
    "load_cifar10",
    "load_cifar100",
    "load_digits",
    "make_dataset",
]
