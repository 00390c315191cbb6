"""The programs of examples/ run and print what they promise."""

import os
import re
import subprocess
import sys
import wave
from pathlib import Path

import numpy as np
import pytest

import fusedops as fo

EXAMPLES = Path(__file__).parents[2] / "examples"
TESTED_ELSEWHERE = {
    "dask_batch.py",
    "decoder.py",
    "make_networks.py",
    "wake_word.py",
}  # test_dask.py, below; makes what two others read
PROGRAMS = {  # arguments, what they need, and what they print
    "classify.py": ([], [], r"(?P<right>[\d.]+)% of 200 images right"),
    "voice_stream.py": (["--seconds", "4"], [], r"(?P<right>[\d.]+)% of 200 frames right"),
    "conv_lstm_stream.py": (["--seconds", "4"], [], r"(?P<right>[\d.]+)% of 200 frames right.*\(p99\)"),
    "service.py": (["--port", "0", "--check", "40"], [], r"(?P<right>[\d.]+)% of 40 answers right.*\(p99\)"),
    "dask_larger.py": (
        ["--gigabytes", "0.02"],
        ["dask.array"],
        r"\d+ images a second; at most \d+ MB of memory",
    ),
    "resnet.py": (["--images", "2", "--size", "64"], [], r"image 1: class \d+ .*%\n[\d.]+ ms for an image of 64 x 64"),
    "unet.py": (["--size", "32", "--depth", "2"], [], r"[.:oO#%@\n]+\n[\d.]+ ms for 32 x 32 pixels"),
    "keyword_spotter.py": (["--seconds", "2"], [], r"second 1: [\w ]+ \(\d+%\)\n[\d.]+ ms for a second of sound"),
    "score_table.py": (["--rows", "5000"], [], r"5000 rows: fused [\d.]+ ms, plain NumPy [\d.]+ ms"),
    "gpt.py": (["--tokens", "12", "--layers", "2"], [], r"12 tokens, [\d.]+ ms each; .* the same tokens and bits"),
    "compare_torch.py": (
        ["--shape", "1,3,32,32"],
        ["torch", "onnx"],
        r"(?s)11 fusions.*folded only.*PyTorch: [\d.]+ "
        r"ms.*differ by (\de-\d+|0e\+00)",
    ),
}


def run(name, *arguments):
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(Path(fo.__file__).parent.parent), os.environ.get("PYTHONPATH", "")])
    }
    done = subprocess.run(
        [sys.executable, EXAMPLES / name, *arguments], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.thorough
@pytest.mark.parametrize("name", PROGRAMS)
def test_runs(name):
    arguments, needs, expected = PROGRAMS[name]
    for module in needs:
        pytest.importorskip(module, reason=f"{module} is not installed")
    found = re.search(expected, run(name, *arguments))
    assert found
    assert float(found.groupdict().get("right", 100)) > 90


@pytest.fixture(scope="module")
def writer(tmp_path_factory):
    """Files of a small decoder with random weights and of a tokenizer with as many words; these, and what tells the
    likeliest tokens after a list of them, each from the whole text before it."""
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    decoder_net = pytest.importorskip("decoder_net")  # which needs onnx
    folder = tmp_path_factory.mktemp("writer")
    words = [f"{a}{b}" for a in "bdgklmnrst" for b in "aeiou"]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="ba"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    onnx.save(decoder_net.decoder(), folder / "model.onnx")
    model = fo.load_onnx(folder / "model.onnx")

    def likeliest(prompt, count):
        ids = list(prompt)
        for _ in range(count):
            given = decoder_net.step(decoder_net.no_past(), np.array([ids]))
            ids.append(int(model.run(given)["logits"][0, -1].argmax()))
        return ids[len(prompt) :]

    return folder / "model.onnx", folder / "tokenizer.json", words, likeliest


def test_text_of_a_decoder(writer):
    path, tokenizer, words, likeliest = writer
    expected = likeliest([3, 7, 1], 12)
    text = run("decoder.py", path, tokenizer, " ".join(words[i] for i in (3, 7, 1)), "--tokens", "12")
    assert text.split() == [words[i] for i in (3, 7, 1, *expected)]
    fo.load_onnx(path).save(path.with_suffix(".fo"))
    assert (
        run("decoder.py", path.with_suffix(".fo"), tokenizer, f"{words[3]} {words[7]} {words[1]}", "--tokens", "12")
        == text
    )
    small = run("decoder.py", path, tokenizer, words[3], "--tokens", "5", "--weights", "int8")
    assert len(small.split()) == 6


@pytest.mark.thorough
def test_drawn_text(writer):
    path, tokenizer, words, _ = writer
    given = "decoder.py", path, tokenizer, words[0], "--tokens", "20", "--seed", "1"
    hot = run(*given, "--temperature", "5")
    assert hot == run(*given, "--temperature", "5")
    assert hot != run(*given[:-1], "2", "--temperature", "5")
    greedy = run(*given)
    assert run(*given, "--temperature", "5", "--top-p", "1e-6") == greedy != hot
    assert run(*given, "--temperature", "1e-4") == greedy


def test_probabilities_and_ends(writer, monkeypatch):
    """Of what the program draws; it stops at an end."""
    pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    monkeypatch.syspath_prepend(EXAMPLES)
    import decoder

    p, draws = np.float32([0.5, 0.1, 0.3, 0.1]), 4000
    drawn = [
        np.bincount([draw(np.log(p)) for _ in range(draws)], minlength=4) / draws
        for draw in (decoder.sampler(1.0, 1.0, 0), decoder.sampler(1.0, 0.7, 0), decoder.sampler(0.5, 1.0, 0))
    ]
    for found, exact in zip(drawn, (p, [0.625, 0, 0.375, 0], p**2 / (p**2).sum()), strict=True):
        np.testing.assert_allclose(found, exact, atol=0.03)
    model = fo.load_onnx(writer[0])
    tokens = list(decoder.write(model, [3, 7, 1], np.argmax, 12))
    assert tokens == writer[3]([3, 7, 1], 12)
    assert list(decoder.write(model, [3, 7, 1], np.argmax, 12, ends={tokens[4]})) == tokens[: tokens.index(tokens[4])]


@pytest.mark.thorough
def test_a_module_of_ones_own(tmp_path):
    for module in ("torch", "onnx"):
        pytest.importorskip(module, reason=f"{module} is not installed")
    (tmp_path / "mine.py").write_text(
        "from torch import nn\ndef net():\n    return nn.Sequential(nn.Linear(8, 4), nn.ReLU())\n"
    )
    assert "1 fusion saves" in run("compare_torch.py", f"{tmp_path / 'mine.py'}:net", "--shape", "2,8")


def test_each_is_tested_and_described():
    programs = {path.name for path in EXAMPLES.glob("*.py")}
    assert programs == PROGRAMS.keys() | TESTED_ELSEWHERE
    described = (EXAMPLES / "README.md").read_text()
    assert all(name in described for name in programs)


@pytest.mark.parametrize("model", ["okay_nabu", "hey_mycroft"])
def test_wake_word(model, tmp_path):
    """The probabilities are those of the package that has the networks, to its kernels' rounding."""
    pytest.importorskip("tflite")
    theirs = pytest.importorskip("pymicro_wakeword", reason="pymicro-wakeword is not installed")
    rng, path = np.random.default_rng(3), tmp_path / "sound.wav"
    sound = (4000 * np.repeat(rng.uniform(0, 1, 100), 320) * rng.standard_normal(32_000)).astype("<i2")
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, 16000, len(sound), "NONE", None))
        file.writeframes(sound.tobytes())
    found = re.search(
        r"(\d+) calls, highest probability ([\d.]+);.*\(p99\)", run("wake_word.py", path, "--model", model)
    )
    detector = theirs.MicroWakeWord.from_builtin(theirs.Model(model))
    frames = theirs.MicroWakeWordFeatures().process_streaming(sound.tobytes())
    expected = [detector.process_streaming_prob(frame) for frame in frames]
    assert int(found[1]) == len(expected) // 3
    assert abs(float(found[2]) - max(expected)) < 0.02
