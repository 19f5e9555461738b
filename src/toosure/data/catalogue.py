"""The catalogue of data sets: where each comes from, its files, its size and its licence."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Download:
    """A published file: its address, where it goes, and how to verify it."""

    url: str
    target: str  # below the data root
    digest: str  # md5:... or sha256:..., as published
    size: int  # bytes
    folder: str = ""  # what it unpacks to, below the data root; empty if it is read as it is


@dataclass(frozen=True)
class Source:
    """Describe a data set: what it is, which files it needs, and how to get them."""

    about: str
    shape: tuple[int, ...]  # of an image; at the default `size`, if images differ
    classes: int
    needs: tuple[tuple[str, ...], ...]  # files or folders, each with its alternative places
    licence: str
    page: str
    downloads: tuple[Download, ...] = ()  # one for each of `needs`, or none
    manual: str = ""  # what to do by hand, if nothing can be downloaded
    size: int = 0  # bytes; 0 if the downloads give it
    also_needs: tuple[str, ...] = ()  # other data sets that are read together with it
    contents: tuple[str, ...] = ()  # glob patterns that a folder among `needs` must match

    @property
    def bytes(self) -> int:
        return self.size or sum(download.size for download in self.downloads)

    def missing(self, root: Path) -> list[str]:
        """Name what is missing below the data root, each by its first place."""
        absent = [places[0] for places in self.needs if self.find_place(root, places) is None]
        return [path for place in absent for path in self.missing_at(root, place)]

    def find_place(self, root: Path, places: tuple[str, ...]) -> str | None:
        """Return the first place that is complete, or None."""
        return next((place for place in places if not self.missing_at(root, place)), None)

    def missing_at(self, root: Path, place: str) -> list[str]:
        """Name what is missing at one place: the place itself, or parts of its contents."""
        path = root / place
        if not path.exists():
            return [place]
        patterns = self.contents if path.is_dir() else ()
        return [f"{place}/{pattern}" for pattern in patterns if not any(path.glob(pattern))]


def idx_source(
    about: str,
    classes: int,
    folders: tuple[str, ...],
    base_url: str,
    files: dict[str, tuple[str, int]],
    licence: str,
    page: str,
) -> Source:
    """Describe a data set of four idx files (name: md5 and size of its .gz), plain or as .gz."""
    needs = tuple(
        tuple(f"{folder}/{name}{end}" for folder in folders for end in (".gz", ""))
        for name in files
    )
    downloads = tuple(
        Download(f"{base_url}{name}.gz", f"{folders[0]}/{name}.gz", f"md5:{md5}", size)
        for name, (md5, size) in files.items()
    )
    return Source(about, (1, 28, 28), classes, needs, licence, page, downloads)


def cifar_source(
    classes: int, folder: str, contents: tuple[str, ...], digest: str, size: int
) -> Source:
    """Return CIFAR-10 or CIFAR-100: one archive with a folder of pickles."""
    archive = f"cifar-{classes}-python.tar.gz"
    url = f"https://www.cs.toronto.edu/~kriz/{archive}"
    return Source(
        about=f"50,000 + 10,000 colour images of 32 x 32, {classes} classes",
        shape=(3, 32, 32),
        classes=classes,
        needs=((folder, archive),),
        licence="none stated",
        page="https://www.cs.toronto.edu/~kriz/cifar.html",
        downloads=(Download(url, archive, digest, size),),
        contents=contents,
    )


def cifar_c_source(classes: int, record: int, digest: str, size: int) -> Source:
    """Return CIFAR-10-C or CIFAR-100-C, a record of Zenodo."""
    name = f"CIFAR-{classes}-C"
    page = f"https://zenodo.org/records/{record}"
    url = f"{page}/files/{name}.tar?download=1"
    return Source(
        about=f"the {classes}-class test set under 15 corruptions (and 4 more), 5 severities",
        shape=(3, 32, 32),
        classes=classes,
        needs=((name,),),
        licence="CC BY 4.0",
        page=page,
        downloads=(Download(url, f"{name}.tar", digest, size, folder=name),),
        also_needs=(f"cifar{classes}",),
        contents=("labels.npy",),
    )


SVHN_URL = "http://ufldl.stanford.edu/housenumbers/"
IMAGENET_TERMS = "ImageNet's terms: non-commercial research, education"
SOURCES: dict[str, Source] = {
    "digits": Source(
        about="1,797 grey images of 8 x 8, 10 classes; comes with scikit-learn",
        shape=(1, 8, 8),
        classes=10,
        needs=(),
        licence="CC BY 4.0",
        page="https://archive.ics.uci.edu/dataset/80",
    ),
    "mnist": idx_source(
        about="60,000 + 10,000 grey images of 28 x 28, 10 digits",
        classes=10,
        folders=("mnist", "MNIST/raw"),
        base_url="https://ossci-datasets.s3.amazonaws.com/mnist/",
        files={
            "train-images-idx3-ubyte": ("f68b3c2dcbeaaa9fbdd348bbdeb94873", 9_912_422),
            "train-labels-idx1-ubyte": ("d53e105ee54ea40749a09fcbcd1e9432", 28_881),
            "t10k-images-idx3-ubyte": ("9fb629c4189551a2d022fa330f9573f3", 1_648_877),
            "t10k-labels-idx1-ubyte": ("ec29112dd5afa0611ce80d1b7f02629c", 4_542),
        },
        licence="CC BY-SA 3.0",
        page="http://yann.lecun.com/exdb/mnist/",
    ),
    "fashion_mnist": idx_source(
        about="60,000 + 10,000 grey images of 28 x 28, 10 kinds of clothing",
        classes=10,
        folders=("fashion_mnist", "FashionMNIST/raw"),
        base_url="http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        files={
            "train-images-idx3-ubyte": ("8d4fb7e6c68d591d4c3dfef9ec88bf0d", 26_421_880),
            "train-labels-idx1-ubyte": ("25c81989df183df01b3e8a0aad5dffbe", 29_515),
            "t10k-images-idx3-ubyte": ("bef4ecab320f06d8554ea6380940ec79", 4_422_102),
            "t10k-labels-idx1-ubyte": ("bb300cfdad3c16e7a12a480ee83cd310", 5_148),
        },
        licence="MIT",
        page="https://github.com/zalandoresearch/fashion-mnist",
    ),
    "svhn": Source(
        about="73,257 + 26,032 colour images of 32 x 32, 10 digits",
        shape=(3, 32, 32),
        classes=10,
        needs=(
            ("svhn/train_32x32.mat", "train_32x32.mat"),
            ("svhn/test_32x32.mat", "test_32x32.mat"),
        ),
        licence="non-commercial use only",
        page=SVHN_URL,
        downloads=(
            Download(
                url=f"{SVHN_URL}train_32x32.mat",
                target="svhn/train_32x32.mat",
                digest="md5:e26dedcc434d2e4c54c9b2d4a06d8373",
                size=182_040_794,
            ),
            Download(
                url=f"{SVHN_URL}test_32x32.mat",
                target="svhn/test_32x32.mat",
                digest="md5:eb5a983be6a315427106f1b164d9cef3",
                size=64_275_384,
            ),
        ),
    ),
    "cifar10": cifar_source(
        classes=10,
        folder="cifar-10-batches-py",
        contents=(*(f"data_batch_{i}" for i in range(1, 6)), "test_batch", "batches.meta"),
        digest="sha256:6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
        size=170_498_071,
    ),
    "cifar100": cifar_source(
        classes=100,
        folder="cifar-100-python",
        contents=("train", "test", "meta"),
        digest="sha256:85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
        size=169_001_437,
    ),
    "cifar10_c": cifar_c_source(
        classes=10,
        record=2535967,
        digest="md5:56bf5dcef84df0e2308c6dcbcbbd8499",
        size=2_918_471_680,
    ),
    "cifar100_c": cifar_c_source(
        classes=100,
        record=3555552,
        digest="md5:11f0ed0f1191edbf9fa23466ae6021d3",
        size=2_918_473_216,
    ),
    "tiny_imagenet": Source(
        about="100,000 + 10,000 colour images of 64 x 64, 200 classes",
        shape=(3, 64, 64),
        classes=200,
        needs=(("tiny-imagenet-200",),),
        licence=IMAGENET_TERMS,
        page="http://cs231n.stanford.edu/",
        downloads=(
            Download(
                url="http://cs231n.stanford.edu/tiny-imagenet-200.zip",
                target="tiny-imagenet-200.zip",
                digest="md5:90528d7ca1a48142e341f4ef8d21d0de",
                size=248_100_043,
                folder="tiny-imagenet-200",
            ),
        ),
        contents=("train/*", "val/*"),
    ),
    "imagenet": Source(
        about="1,281,167 + 50,000 colour photographs, 1,000 classes",
        shape=(3, 224, 224),
        classes=1000,
        needs=(("imagenet/train",), ("imagenet/val",)),
        licence=IMAGENET_TERMS,
        page="https://www.image-net.org/download.php",
        manual="sign in there, fetch ILSVRC2012, and lay it out as imagenet/train/WNID/*.JPEG and "
        "imagenet/val/WNID/*.JPEG",
        size=155_000_000_000,
        contents=("*/*",),
    ),
    "imagenet_c": Source(
        about="ImageNet's validation set under 15 corruptions (and 4 more), 5 severities",
        shape=(3, 224, 224),
        classes=1000,
        needs=(("imagenet-c",),),
        licence="CC BY 4.0",
        page="https://zenodo.org/records/2235448",
        manual="fetch the archives there and unpack them as "
        "imagenet-c/CORRUPTION/SEVERITY/WNID/*.JPEG",
        size=75_000_000_000,
        also_needs=("imagenet",),
        contents=("*/*",),
    ),
}
