"""Listens for a wake word with a real int8 network: a .tflite file of microWakeWord, which the package pymicro-wakeword
brings. The network is a stream: it takes three frames of 10 ms and keeps what it heard before in variables of its own.

    pip install -e '.[tflite]' pymicro-wakeword
    python examples/wake_word.py SOUND.wav --model okay_nabu   # also alexa, hey_jarvis, hey_mycroft
    arecord -q -r 16000 -c 1 -f S16_LE -t wav - | python examples/wake_word.py - --model alexa

The sound has 16,000 samples of 16 bits a second and one channel. Prints where the word ends, and how long the calls
took: half of them, 99 of 100, and the longest.
"""

import argparse
import json
import sys
import time
import wave
from pathlib import Path

import numpy as np
import pymicro_wakeword
from pymicro_features import MicroFrontend

import fusedops as fo
from fusedops.litert import Interpreter

MODELS = Path(pymicro_wakeword.__file__).parent / "models"
CHUNK = 160  # samples, 10 ms


class WakeWord:
    """Takes frames of features and tells the mean probability of the last calls, once there are enough of them."""

    def __init__(self, name):
        about = json.loads((MODELS / f"{name}.json").read_text(encoding="utf-8"))
        self.word, self.cutoff = about["wake_word"], about["micro"]["probability_cutoff"]
        self.window = about["micro"]["sliding_window_size"]
        self.network = Interpreter(str(MODELS / about["model"]))
        self.network.allocate_tensors()
        (self.input,), (self.output,) = self.network.get_input_details(), self.network.get_output_details()
        self.frames, self.probabilities, self.seconds = [], [], []

    def __call__(self, features):
        """The probability that the word ends here; None until three frames are there."""
        self.frames.append(features)
        if len(self.frames) < self.input["shape"][1]:
            return None
        scale, zero_point = self.input["quantization"]
        q = np.clip(np.round(np.float32(self.frames) / np.float32(scale) + zero_point), -128, 127).astype(np.int8)
        self.frames.clear()
        start = time.perf_counter()
        self.network.set_tensor(self.input["index"], q[np.newaxis])
        self.network.invoke()
        y = self.network.get_tensor(self.output["index"]).item()
        self.seconds.append(time.perf_counter() - start)
        scale, zero_point = self.output["quantization"]
        self.probabilities = [*self.probabilities, (y - zero_point) * scale][-self.window :]
        return sum(self.probabilities) / self.window  # less than it is while there are too few


def frames(sound):
    """(seconds since the beginning, features) of each 10 ms of a WAV file."""
    frontend, seconds = MicroFrontend(), 0
    while len(samples := sound.readframes(CHUNK)) == 2 * CHUNK:
        seconds += CHUNK / sound.getframerate()
        if features := frontend.process_samples(samples).features:  # none until a window of 30 ms is full
            yield seconds, features


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sound", help="a WAV file, or - for one that comes through a pipe")
    parser.add_argument("--model", default="okay_nabu", choices=sorted(path.stem for path in MODELS.glob("*.tflite")))
    options = parser.parse_args()
    fo.set_num_threads(1)  # a call takes microseconds
    detector, heard, highest = WakeWord(options.model), False, 0.0
    with wave.open(sys.stdin.buffer if options.sound == "-" else options.sound, "rb") as sound:
        if (sound.getframerate(), sound.getsampwidth(), sound.getnchannels()) != (16000, 2, 1):
            parser.error(f"{options.sound} must have 16,000 samples of 16 bits a second and one channel")
        for seconds, features in frames(sound):
            probability = detector(features)
            if probability is None:
                continue
            highest = max(highest, probability)
            if probability > detector.cutoff and not heard:
                print(f"{seconds:6.2f} s: {detector.word!r}, probability {probability:.2f}", flush=True)
            heard = probability > detector.cutoff
    us = 1e6 * np.array(detector.seconds or [np.nan])
    print(
        f"{len(detector.seconds)} calls, highest probability {highest:.3f}; a call of 30 ms of sound takes "
        f"{np.percentile(us, 50):.0f} us (p50), {np.percentile(us, 99):.0f} us (p99), {us.max():.0f} us (longest)"
    )


if __name__ == "__main__":
    main()
