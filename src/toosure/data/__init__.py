"""Readers of data sets in their official layouts, splits by seed, augmentation and corruptions."""

from toosure.data.arrays import arrays
from toosure.data.augment import crop_and_flip
from toosure.data.cifar import cifar10, cifar100, load_cifar10, load_cifar100
from toosure.data.cifar_c import cifar10_c, cifar100_c, load_cifar10_c, load_cifar100_c
from toosure.data.corruptions import CORRUPTIONS, corrupt
from toosure.data.dataset import Dataset, Images, Split, make_dataset
from toosure.data.digits import digits, load_digits
from toosure.data.idx import fashion_mnist, load_fashion_mnist, load_mnist, mnist
from toosure.data.imagefolder import imagefolder
from toosure.data.imagenet import imagenet, imagenet_c, tiny_imagenet
from toosure.data.shards import shards
from toosure.data.svhn import load_svhn, svhn

__all__ = [
    "CORRUPTIONS",
    "Dataset",
    "Images",
    "Split",
    "arrays",
    "cifar10",
    "cifar10_c",
    "cifar100",
    "cifar100_c",
    "corrupt",
    "crop_and_flip",
    "digits",
    "fashion_mnist",
    "imagefolder",
    "imagenet",
    "imagenet_c",
    "load_cifar10",
    "load_cifar10_c",
    "load_cifar100",
    "load_cifar100_c",
    "load_digits",
    "load_fashion_mnist",
    "load_mnist",
    "load_svhn",
    "make_dataset",
    "mnist",
    "shards",
    "svhn",
    "tiny_imagenet",
]
