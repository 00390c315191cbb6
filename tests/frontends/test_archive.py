"""Arrays of saved networks, read without zipfile."""

import io
import zipfile

import numpy as np
import pytest

from fusedops.graph.frontends.archive import Archive, _array

ARRAYS = {
    "header": np.frombuffer(b"{}", np.uint8),
    "matrix": np.arange(12, dtype=np.float32).reshape(3, 4),
    "columns": np.asfortranarray(np.arange(12, dtype=np.int64).reshape(3, 4)),
    "number": np.float64(1.5),
    "empty": np.zeros((3, 0), np.float16),
    "flags": np.array([True, False]),
    "large": np.arange(3000, dtype=np.uint16),
}


def written(save=np.savez):
    file = io.BytesIO()
    save(file, **ARRAYS)
    return file.getvalue()


def written_array(a):
    file = io.BytesIO()
    np.save(file, a)
    return file.getvalue()


def same(archive):
    for name, a in ARRAYS.items():
        found = archive[name]
        assert found.dtype == a.dtype and found.shape == np.shape(a) and found.flags.aligned and found.flags.writeable
        np.testing.assert_array_equal(found, a)


def test_arrays_are_those_that_were_written():
    same(Archive(written()))


def test_archives_of_64_bits(monkeypatch):
    """As those of more than 4 GB, or of more than 65,535 arrays, are written."""
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 100)
    monkeypatch.setattr(zipfile, "ZIP_FILECOUNT_LIMIT", 3)
    data = written()
    assert b"PK\6\7" in data
    same(Archive(data))


def test_what_save_does_not_write_is_refused():
    with pytest.raises(ValueError, match="compressed"):
        Archive(written(np.savez_compressed))
    with pytest.raises(ValueError, match="no array other"):
        Archive(written())["other"]
    with pytest.raises(ValueError, match="type '<z4'"):
        _array(memoryview(written_array(np.ones(2, np.float32)).replace(b"'<f4'", b"'<z4'")))
    file = io.BytesIO()
    np.savez(file, a=np.array(["text"]))
    with pytest.raises(ValueError, match="another header"):
        Archive(file.getvalue())["a"]


def test_arrays_that_share_their_bytes_are_refused():
    """Many rows of the directory for one array."""
    data = written()
    start = data.index(b"PK\1\2")
    end = data.index(b"PK\5\6")
    row = data[data.rindex(b"PK\1\2", 0, end) : end]
    rows = b"".join(row.replace(b"large", b"lar%02d" % i) for i in range(90))
    record = bytearray(data[end:])
    record[10:12] = (90).to_bytes(2, "little")
    with pytest.raises(ValueError, match="overlap"):
        Archive(data[:start] + rows + record)


def test_archives_that_end_early():
    data = written()
    for end in range(0, len(data) - 1, 7):
        with pytest.raises(ValueError, match="ends early|damaged"):
            same(Archive(data[:end]))


@pytest.mark.parametrize("seed", range(4))
def test_damaged_archives_are_refused_or_read_as_they_were(seed):
    rng, data = np.random.default_rng(seed), written()
    refused = 0
    for _ in range(300):
        broken = bytearray(data)
        broken[rng.integers(len(data))] ^= rng.integers(1, 256)
        try:
            same(Archive(bytes(broken)))
        except (UnicodeDecodeError, ValueError):
            refused += 1
    assert refused > 200
