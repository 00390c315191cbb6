"""Saved networks of every version of the format, as tests/data has them: what was written once can be read."""

import json
import os
import threading
from pathlib import Path

import numpy as np
import pytest

import fusedops as fo
from fusedops.graph.frontends import native

DATA = Path(__file__).parents[1] / "data"
FILES = sorted(DATA.glob("saved_*.fo"))


def header(path):
    with np.load(path) as archive:
        return json.loads(bytes(archive["header"]))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_of_an_older_version(isa, path):
    with np.load(path.with_suffix(".npz")) as stored:
        *inputs, expected = (stored[name] for name in ("x", "flag", "y") if name in stored)
    np.testing.assert_allclose(fo.load(path)(*inputs), expected, rtol=1e-5, atol=1e-6)


def test_every_version_has_a_file():
    assert {header(path)["version"] for path in FILES} == set(range(1, native.VERSION + 1))


def test_files_have_what_the_format_gained():
    """The oldest has none of it, so that reading stays possible without."""
    old, new = (json.dumps(header(DATA / f"{name}.fo")) for name in ("saved_1_first", "saved_1"))
    for key in '"captures"', '"as"', '"graph"':
        assert key not in old and key in new


def test_a_newer_version_is_refused_with_both_numbers(tmp_path):
    path = tmp_path / "newer.fo"
    with np.load(DATA / "saved_1.fo") as archive:
        arrays = dict(archive)
    arrays["header"] = np.frombuffer(json.dumps(header(DATA / "saved_1.fo") | {"version": 99}).encode(), np.uint8)
    with path.open("wb") as f:
        np.savez(f, **arrays)
    with pytest.raises(ValueError, match=f"version 99 of the format; this fusedops reads version {native.VERSION}"):
        fo.load(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_a_pipe(tmp_path):
    pipe, content = tmp_path / "pipe.fo", (DATA / "saved_1.fo").read_bytes()
    os.mkfifo(pipe)
    threading.Thread(target=pipe.write_bytes, args=[content], daemon=True).start()
    assert str(fo.load(pipe)) == str(fo.load(DATA / "saved_1.fo"))
