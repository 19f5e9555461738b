"""Where each data set comes from, how large it is, its licence, and whether it is here."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from toosure.data.archives import taken, unpack
from toosure.data.download import Tell, check, fetch


@dataclass(frozen=True)
class Download:
    """A published file: where it is, where it goes, and how to know that it is the one."""

    url: str
    target: str  # below the data root
    digest: str  # md5:... or sha256:..., as published
    size: int  # bytes
    folder: str = ""  # what it unpacks to, below the data root; nothing where it is read as it is


@dataclass(frozen=True)
class Source:
    """What there is to know of a data set before it is read."""

    about: str
    needs: tuple[tuple[str, ...], ...]  # each must be there, in one of its places below the root
    licence: str
    page: str
    downloads: tuple[Download, ...] = ()
    manual: str = ""  # what to do by hand, where nothing can be fetched
    size: int = 0  # bytes; 0 where the downloads say it
    also: tuple[str, ...] = ()  # data sets it reads besides
    inside: tuple[str, ...] = ()  # what a folder among its places must hold, as patterns

    @property
    def bytes(self) -> int:
        return self.size or sum(download.size for download in self.downloads)

    def missing(self, root: Path) -> list[str]:
        """Name what is not there, each by its first place."""
        absent = [places[0] for places in self.needs if self.found(root, places) is None]
        return [lack for place in absent for lack in self.lacks(root, place)]

    def found(self, root: Path, places: tuple[str, ...]) -> str | None:
        """Return the first place where all is there."""
        return next((place for place in places if not self.lacks(root, place)), None)

    def lacks(self, root: Path, place: str) -> list[str]:
        if not (root / place).exists():
            return [place]
        inside = self.inside if (root / place).is_dir() else ()
        return [f"{place}/{each}" for each in inside if not any((root / place).glob(each))]


def idx_source(about: str, folders: tuple[str, ...], base: str, files: dict, **rest: str) -> Source:
    """Describe a data set of four idx files, each of them plain or as .gz."""
    return Source(
        about,
        tuple(
            tuple(f"{folder}/{name}{end}" for folder in folders for end in (".gz", ""))
            for name in files
        ),
        downloads=tuple(
            Download(f"{base}{name}.gz", f"{folders[0]}/{name}.gz", f"md5:{md5}", size)
            for name, (md5, size) in files.items()
        ),
        **rest,  # type: ignore[arg-type]
    )


def cifar_c_source(classes: int, record: int, digest: str, size: int) -> Source:
    name = f"CIFAR-{classes}-C"
    url = f"https://zenodo.org/records/{record}/files/{name}.tar?download=1"
    return Source(
        f"the {classes}-class test set under 15 corruptions (and 4 more), 5 severities",
        ((name,),),
        "CC BY 4.0",
        f"https://zenodo.org/records/{record}",
        (Download(url, f"{name}.tar", digest, size, name),),
        also=(f"cifar{classes}",),
        inside=("labels.npy",),
    )


def cifar_source(
    classes: int, folder: str, inside: tuple[str, ...], digest: str, size: int
) -> Source:
    archive = f"cifar-{classes}-python.tar.gz"
    url = f"https://www.cs.toronto.edu/~kriz/{archive}"
    return Source(
        f"50,000 + 10,000 colour images of 32 x 32, {classes} classes",
        ((folder, archive),),
        "none stated",
        "https://www.cs.toronto.edu/~kriz/cifar.html",
        (Download(url, archive, digest, size),),
        inside=inside,
    )


SWELL = 4  # times its size is the most an archive may unpack to
HOUSES = "http://ufldl.stanford.edu/housenumbers/"
IMAGENET_TERMS = "ImageNet's terms: non-commercial research, education"
SOURCES: dict[str, Source] = {
    "digits": Source(
        "1,797 grey images of 8 x 8, 10 classes; comes with scikit-learn",
        (),
        "CC BY 4.0",
        "https://archive.ics.uci.edu/dataset/80",
    ),
    "mnist": idx_source(
        "60,000 + 10,000 grey images of 28 x 28, 10 digits",
        ("mnist", "MNIST/raw"),
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        {
            "train-images-idx3-ubyte": ("f68b3c2dcbeaaa9fbdd348bbdeb94873", 9_912_422),
            "train-labels-idx1-ubyte": ("d53e105ee54ea40749a09fcbcd1e9432", 28_881),
            "t10k-images-idx3-ubyte": ("9fb629c4189551a2d022fa330f9573f3", 1_648_877),
            "t10k-labels-idx1-ubyte": ("ec29112dd5afa0611ce80d1b7f02629c", 4_542),
        },
        licence="CC BY-SA 3.0",
        page="http://yann.lecun.com/exdb/mnist/",
    ),
    "fashion_mnist": idx_source(
        "60,000 + 10,000 grey images of 28 x 28, 10 kinds of clothing",
        ("fashion_mnist", "FashionMNIST/raw"),
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        {
            "train-images-idx3-ubyte": ("8d4fb7e6c68d591d4c3dfef9ec88bf0d", 26_421_880),
            "train-labels-idx1-ubyte": ("25c81989df183df01b3e8a0aad5dffbe", 29_515),
            "t10k-images-idx3-ubyte": ("bef4ecab320f06d8554ea6380940ec79", 4_422_102),
            "t10k-labels-idx1-ubyte": ("bb300cfdad3c16e7a12a480ee83cd310", 5_148),
        },
        licence="MIT",
        page="https://github.com/zalandoresearch/fashion-mnist",
    ),
    "svhn": Source(
        "73,257 + 26,032 colour images of 32 x 32, 10 digits",
        (("svhn/train_32x32.mat", "train_32x32.mat"), ("svhn/test_32x32.mat", "test_32x32.mat")),
        "non-commercial use only",
        HOUSES,
        tuple(
            Download(f"{HOUSES}{name}", f"svhn/{name}", f"md5:{md5}", size)
            for name, md5, size in (
                ("train_32x32.mat", "e26dedcc434d2e4c54c9b2d4a06d8373", 182_040_794),
                ("test_32x32.mat", "eb5a983be6a315427106f1b164d9cef3", 64_275_384),
            )
        ),
    ),
    "cifar10": cifar_source(
        10,
        "cifar-10-batches-py",
        (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch", "batches.meta"),
        "sha256:6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
        170_498_071,
    ),
    "cifar100": cifar_source(
        100,
        "cifar-100-python",
        ("train", "test", "meta"),
        "sha256:85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
        169_001_437,
    ),
    "cifar10_c": cifar_c_source(
        10, 2535967, "md5:56bf5dcef84df0e2308c6dcbcbbd8499", 2_918_471_680
    ),
    "cifar100_c": cifar_c_source(
        100, 3555552, "md5:11f0ed0f1191edbf9fa23466ae6021d3", 2_918_473_216
    ),
    "tiny_imagenet": Source(
        "100,000 + 10,000 colour images of 64 x 64, 200 classes",
        (("tiny-imagenet-200",),),
        IMAGENET_TERMS,
        "http://cs231n.stanford.edu/",
        (
            Download(
                "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
                "tiny-imagenet-200.zip",
                "md5:90528d7ca1a48142e341f4ef8d21d0de",
                248_100_043,
                "tiny-imagenet-200",
            ),
        ),
        inside=("train/*", "val/*"),
    ),
    "imagenet": Source(
        "1,281,167 + 50,000 colour photographs, 1,000 classes",
        (("imagenet/train",), ("imagenet/val",)),
        IMAGENET_TERMS,
        "https://www.image-net.org/download.php",
        manual="sign in there, fetch ILSVRC2012, and lay it out as imagenet/train/WNID/*.JPEG and "
        "imagenet/val/WNID/*.JPEG",
        size=155_000_000_000,
        inside=("*/*",),
    ),
    "imagenet_c": Source(
        "ImageNet's validation set under 15 corruptions (and 4 more), 5 severities",
        (("imagenet-c",),),
        "CC BY 4.0",
        "https://zenodo.org/records/2235448",
        manual="fetch the archives there and unpack them as "
        "imagenet-c/CORRUPTION/SEVERITY/WNID/*.JPEG",
        size=75_000_000_000,
        also=("imagenet",),
        inside=("*/*",),
    ),
}  # fmt: skip


def locate(name: str, root: Path, download: bool = False) -> list[Path]:
    """Return where each file or folder of a data set lies, fetching what is missing if asked."""
    source, root = SOURCES[name], Path(root).expanduser()
    if download and source.missing(root):
        obtain(name, root)
    if missing := source.missing(root):
        raise ValueError(f"{root} holds no {', '.join(missing)}: {way(name)}")
    found = [source.found(root, places) for places in source.needs]
    return [root / place for place in found if place is not None]


def way(name: str) -> str:
    """Say how to come by a data set."""
    source = SOURCES[name]
    if not source.downloads:
        return f"{name} is not downloaded for you. From {source.page}: {source.manual}"
    return (
        "name another data root, or ask for the download (--download, download=True, or "
        f"`toosure data {name} --download`) of {source.bytes / 1e6:,.0f} MB from "
        f"{source.downloads[0].url}"
    )


def obtain(name: str, root: Path, tell: Callable[[str], Tell] | None = None) -> None:
    """Fetch what is missing of a data set, check it, and unpack what is to be unpacked.

    An archive that lies there already is checked and used, and kept; one fetched here is deleted
    when its folder stands. `tell(name)` gives what is told of the bytes as they come.
    """
    source, root = SOURCES[name], Path(root).expanduser()
    if source.missing(root) and not source.downloads:
        raise ValueError(way(name))
    for places, each in zip(source.needs, source.downloads, strict=False):  # one each, or none
        here = source.found(root, places)
        if here is None or here == each.target:  # there as it was published: checked again
            install(each, root, tell and tell(each.target))


def install(each: Download, root: Path, tell: Tell | None) -> None:
    """Fetch one file unless it is there, check it, and unpack it where it is to be unpacked."""
    target, folder = root / each.target, root / each.folder
    if each.folder and taken(folder):
        raise ValueError(f"{folder} is there, but not all of it: move it away and ask again")
    fresh = not target.exists()
    try:
        if not fresh:
            check(target, each.digest, each.size)
    except (ValueError, OSError) as error:
        raise ValueError(f"{error}; move it away and ask again") from error
    if fresh:
        fetch(each.url, target, each.digest, each.size, tell)
    if each.folder:
        room(root, 2 * each.size)
        unpack(target, folder, limit=SWELL * each.size)
        if fresh:
            target.unlink()


def room(root: Path, need: int) -> None:
    if (free := shutil.disk_usage(root).free) < need:
        raise ValueError(
            f"{root} has {free / 1e9:.1f} GB free, and unpacking needs {need / 1e9:.1f}"
        )
