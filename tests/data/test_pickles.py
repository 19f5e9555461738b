"""Pickles give numbers or an error that names the file; they never run anything."""

import codecs
import os
import pickle
import struct
import tracemalloc
from collections import OrderedDict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toosure.data.pickles import read_pickle

ARRAYS = [
    np.arange(12, dtype=np.uint8).reshape(3, 4),
    np.asfortranarray(np.arange(12, dtype=np.int64).reshape(3, 4)),
    np.arange(3, dtype=">i4"),
    np.array([0.5, -2.0]),
    np.array([True, False]),
]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("array", ARRAYS, ids=str)
def test_arrays_come_back(array, protocol):
    content = pickle.dumps({"data": array, "labels": [3, np.int64(7)], "name": "é"}, protocol)
    loaded = read_pickle(content, "file")
    assert loaded["data"].dtype == array.dtype
    np.testing.assert_array_equal(loaded["data"], array)
    assert loaded["labels"] == [3, 7] and loaded["name"] == "é"


def test_numpy_1_and_python_2_spellings_are_read():
    # As Python 2 with numpy 1 wrote CIFAR: byte strings for keys, dtypes and the raw content.
    raw = b"\x01\x80\xff"
    content = (
        b"\x80\x02}U\x04datacnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b"
        b"\x87R(K\x01K\x01K\x03\x86cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R"
        b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89U\x03" + raw + b"tbs."
    )
    expected = pickle.loads(content, encoding="latin-1")["data"]
    loaded = read_pickle(content, "file")["data"]
    np.testing.assert_array_equal(loaded, expected)
    np.testing.assert_array_equal(loaded, [[1, 128, 255]])


class Calls:
    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_malicious_pickle_runs_nothing(tmp_path, protocol):
    victim = tmp_path / "victim"
    attacks = [
        Calls(os.system, f"touch {victim}"),
        Calls(eval, f"open({str(victim)!r}, 'w')"),
        Calls(getattr, "text", "upper"),
        Calls(np.fromfile, str(victim)),
        Calls(codecs.decode, b"abc", "rot13"),
        OrderedDict(a=1),
    ]
    for attack in attacks:
        with pytest.raises(ValueError, match=r"evil cannot be read.*refused"):
            read_pickle(pickle.dumps({"data": attack}, protocol), "evil")
    assert not victim.exists()


@pytest.mark.parametrize(
    "array",
    [
        np.array([{}, "text"], object),
        np.zeros(2, "u1,f8"),
        np.array(["a"]),
        np.array(["2020"], "M8"),
    ],
)
def test_arrays_of_other_things_are_refused(array):
    with pytest.raises(ValueError, match="refused"):
        read_pickle(pickle.dumps({"data": array}), "file")


def test_a_dotted_name_is_no_way_around():
    content = b"\x80\x04\x8c\x05numpy\x8c\x0endarray.tofile\x93."
    with pytest.raises(ValueError, match=r"numpy\.ndarray\.tofile"):
        read_pickle(content, "file")


@pytest.mark.parametrize(
    "name", ["_codecs\nencode", "numpy.core.multiarray\nscalar", "numpy.core.numeric\n_frombuffer"]
)
def test_a_pickle_cannot_change_the_reader(name):
    """BUILD with (None, attributes) sets attributes of what was named, for good."""
    content = f"(dS'data'\nc{name}\n(N(dS'__defaults__'\n(I1\ntstbs.".encode()
    with pytest.raises(ValueError, match="refused: it sets what is not its own"):
        read_pickle(content, "evil")


def test_a_large_number_in_a_small_pickle_fills_no_memory():
    """LONG_BINPUT stores a value under a number; the reader in C makes a list that long."""
    content = b"\x80\x02}r" + struct.pack("<I", 1 << 24) + b"."  # 2^32 - 1 would take 64 GB
    tracemalloc.start()
    try:
        assert read_pickle(content, "file") == {}
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 1_000_000


def refused_cheaply(content, message):
    """The file is refused, in few words, within a hundred times its size."""
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=message) as caught:
            read_pickle(content, "bomb")
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(str(caught.value)) < 500 and most < 200_000 + 10 * len(content)


TEXT = b"X" + struct.pack("<I", 100_000) + b"a" * 100_000 + b"q\x01"  # memoised as 1
SHAPE = b"J\xa0\x86\x01\x00\x85"  # (100_000,)
TYPE = b"cnumpy\ndtype\nU\x02u1\x85Rq\x02"


@pytest.mark.parametrize(
    "again",
    [
        b"c_codecs\nencode\nh\x01X\x06\x00\x00\x00latin1\x86R",
        b"cnumpy.core.numeric\n_frombuffer\n(h\x01h\x02" + SHAPE + b"U\x01CtR",
        b"cnumpy.core.multiarray\n_reconstruct\nNNN\x87R(K\x01" + SHAPE + b"h\x02\x89h\x01tb",
    ],
    ids=["encode", "frombuffer", "reconstruct"],
)
def test_one_text_does_not_become_many_arrays(again):
    start = b"\x80\x02}" + TEXT + b"0" + TYPE + b"0U\x01k"
    assert len(read_pickle(start + again + b"s.", "file")["k"]) == 100_000  # once is no bomb
    refused_cheaply(start + b"](" + again * 3000 + b"es.", "far more bytes than the file")


def nested(levels):
    """(t, t) of (t, t) of ..., by five bytes a level: 2^levels ones."""
    return b"K\x01" + b"".join(b"q%ch%c\x86" % (i, i) for i in range(levels))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"cnumpy\ndtype\n" + nested(60) + b"\x85R.", "a tuple is not a type of plain numbers"),
        (b"c_codecs\nencode\nU\x01a" + nested(60) + b"\x86R.", "refused: text in a tuple"),
        (b"c_codecs\nencode\n" + nested(60) + b"U\x06latin1\x86R.", "refused: text in"),
        (b"}" + nested(60) + b"K\x01s.", "a key that is not text"),
        (b"}(" + nested(60) + b"K\x01u.", "a key that is not text"),
        (b"(" + nested(60) + b"K\x01d.", "a key that is not text"),
        (b"}(U\x01aK\x01K\x01K\x02u.", "a key that is not text"),
        (b"\x8f(" + nested(60) + b"\x90.", "refused: a set"),
        (b"(" + nested(60) + b"\x91.", "refused: a set"),
        (nested(60) + b".", "a dict was expected, not tuple"),
        (b"cos\n" + b"x" * 5000 + b"\n.", r"asks for 'os\.x+'; only"),
        (b"I" + b"x" * 5000 + b"\n.", "invalid literal"),
    ],
)
def test_tuples_in_tuples_are_neither_hashed_nor_printed(content, message):
    refused_cheaply(b"\x80\x04" + content, message)


@pytest.mark.parametrize("code", ["u1,f8", "u1,(9,9)u1", "O", "V9", "S3", "M8", "u", "", "u1 "])
def test_only_types_of_plain_numbers_are_known(code):
    content = f"(dS'data'\ncnumpy\ndtype\n(S'{code}'\ntRs.".encode()
    with pytest.raises(ValueError, match="is not a type of plain numbers"):
        read_pickle(content, "evil")


def test_keys_of_bytes_are_read_as_text():
    assert read_pickle(pickle.dumps({b"data": 3, "labels": [1]}), "file") == {
        "data": 3,
        "labels": [1],
    }


@pytest.mark.parametrize("opcode", [b"\x8e", b"\x96", b"\x8d"], ids=["bytes", "bytearray", "text"])
def test_a_length_that_lies_is_named(opcode):
    content = b"\x80\x05}\x8c\x04data" + opcode + struct.pack("<Q", 1 << 50) + b"xs."
    with pytest.raises(ValueError, match="file cannot be read"):
        read_pickle(content, "file")


@pytest.mark.parametrize("encoding", ["utf-8", "rot13", "zip"])
def test_only_latin_1_is_encoded(encoding):
    content = f"(dS'data'\nc_codecs\nencode\n(S'x'\nS'{encoding}'\ntRs.".encode()
    with pytest.raises(ValueError, match="refused: text in"):
        read_pickle(content, "evil")


def test_a_plain_type_does_not_become_a_record():
    content = b"(dS'data'\ncnumpy\ndtype\n(S'u1'\ntR(I3\nS'|'\nN(S'a'\nt(dI-1\nI-1\nI0\ntbs."
    with pytest.raises(ValueError, match="refused: an array of records"):
        read_pickle(content, "evil")


def test_the_content_of_an_array_is_bytes():
    for raw, order in (("I7", "C"), ("N", "C"), ("S'abc'", "K")):
        content = (
            f"(dS'data'\ncnumpy.core.numeric\n_frombuffer\n({raw}{'' if raw == 'N' else chr(10)}"
            f"cnumpy\ndtype\n(S'u1'\ntR(I3\ntS'{order}'\ntRs."
        )
        with pytest.raises(ValueError, match="refused: an array whose content is not bytes"):
            read_pickle(content.encode(), "evil")


WHOLE = pickle.dumps({"data": ARRAYS[0], "labels": [1, 2, 3]})


@settings(deadline=None)
@given(st.integers(0, len(WHOLE) - 1))
def test_a_truncated_file_is_named(length):
    with pytest.raises(ValueError, match="data_batch_1 cannot be read"):
        read_pickle(WHOLE[:length], "data_batch_1")


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_noise_is_named_or_read(content):
    try:
        read_pickle(content, "data_batch_1")
    except ValueError as error:
        assert "data_batch_1 cannot be read" in str(error)  # noqa: PT017
