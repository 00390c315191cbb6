"""The program ``fusedops``."""

import argparse
import os
import signal
import sys

from . import runtime
from ._internal import install_hint
from .benchmark import report
from .layers import PRECISIONS


def _parsed(parser, argv):
    try:
        return parser.parse_args(argv)
    except SystemExit:  # after help, whose reader may have read enough
        sys.stdout.flush()
        raise


def main(argv=None):
    """Runs the program; returns its exit status."""
    parser = _parser()
    try:
        options = _parsed(parser, argv)
        if options.version:
            print(f"fusedops {runtime.version()}")
        elif options.command is None:
            parser.print_help(sys.stderr)
            return 2
        else:
            options.run(options)
        sys.stdout.flush()
    except ModuleNotFoundError as e:
        module = (e.name or "").split(".")[0]
        if module in ("", "fusedops"):
            raise
        return _fail(f"{options.command} needs {module}: {install_hint.command('bench')}")
    except BrokenPipeError:  # of `| head`, which has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains at its end
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except OSError as e:
        return _fail(f"{e.filename}: {e.strerror}" if e.filename and e.strerror else str(e))
    except (ImportError, ValueError, ArithmeticError, MemoryError) as e:
        return _fail(str(e))
    return 0


def _fail(message):
    print(f"fusedops: {message}", file=sys.stderr)
    return 1


def _parser():
    parser = argparse.ArgumentParser(
        prog="fusedops",
        description="Fused kernels for CPUs: what they are here, and the speed-up from fusion.",
        epilog="See fusedops COMMAND --help for the options and examples of a command.",
    )
    parser.add_argument("--version", action="store_true", help="show the version, with the commit of a git checkout")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")

    info = commands.add_parser("info", help="show processor, caches, instruction sets, threads and compiler")
    info.set_defaults(run=_info)

    bench = commands.add_parser(
        "bench",
        help="time fused, folded only, unfused and NumPy side by side",
        formatter_class=argparse.RawTextHelpFormatter,
        epilog=_examples(
            ("fusedops bench --quick", "all workloads on one thread"),
            (
                "fusedops bench --threads 4 --plot speeds.png --json speeds.json",
                "on four, with a picture and the figures",
            ),
            ("fusedops bench resnet50.onnx", "a network as a whole and node by node"),
            ("fusedops bench model.onnx --dim batch=8 --dim height=320", "one whose dimensions have names"),
            ("fusedops bench model.onnx --disable-pass epilogue", "the gain of a pass, by leaving it out"),
            ("FUSEDOPS_ISA=avx2 fusedops bench", "with another instruction set"),
        ),
        description="Times four shapes of the TVM paper's figure 4, WeeNet and MobileNet's blocks: fused, folded only\n"
        "(batch norm and bias in the kernel, the rest by itself), unfused, and plain NumPy or, of blocks, as one\n"
        "kernel; then the convolutions in int8, unfused and fused. The data are generated, and results are\n"
        "compared first. With a MODEL, times that network in its three forms (a saved one alone: it comes\n"
        "without the others), and each of its nodes.",
    )
    bench.add_argument(
        "model", nargs="?", metavar="MODEL", help="a network to time instead: ONNX, TFLite, or what model.save wrote"
    )
    bench.add_argument(
        "--dim",
        type=_dimension,
        action="append",
        default=[],
        metavar="NAME=N",
        help="size of a network's dimension that has a name (default: 1)",
    )
    _takes_passes(bench)
    bench.add_argument(
        "--threads", type=_count, default=1, metavar="N", help="threads of fusedops and of NumPy's BLAS (default: 1)"
    )
    bench.add_argument(
        "--quick", action="store_true", help="fewer rounds: about 15 seconds for all workloads on an idle machine"
    )
    bench.add_argument("--plot", metavar="FILE.png", help="draw the speeds as bars")
    bench.add_argument("--json", metavar="FILE", help="write the figures")
    bench.set_defaults(run=_bench)

    explain = commands.add_parser(
        "explain",
        help="show what is fused in a network, and what is not and why",
        formatter_class=argparse.RawTextHelpFormatter,
        epilog=_examples(
            ("fusedops explain resnet50.onnx", "each fusion with what it saves, each refusal with its reason")
        ),
    )
    explain.add_argument("model", metavar="MODEL", help="ONNX, TFLite, or what model.save wrote")
    _takes_passes(explain)
    explain.set_defaults(run=_explain)

    quantize = commands.add_parser(
        "quantize",
        help="make a network of int8 where that is faster here",
        formatter_class=argparse.RawTextHelpFormatter,
        epilog=_examples(
            ("fusedops quantize resnet50.onnx images.npz -o resnet50.fo", "with the bounds that are usual"),
            ("fusedops quantize net.onnx x.npy -o net.fo --snr 30 --keep fc", "closer to float32, and fc as it is"),
            (
                "fusedops quantize decoder.onnx --weights int4 -o decoder.fo",
                "weights of products in 4 bits, no samples",
            ),
        ),
        description="Calibrates a network on samples and writes it with layers in int8 where they are predicted and\n"
        "measured to be faster here and exact enough; prints each with its error, its gain, or why it stayed\n"
        "float32, and how long the network takes before and after. With --weights, rounds the weights of products\n"
        "in blocks, for networks whose time is that of reading them, and prints the error of each.",
    )
    quantize.add_argument("model", metavar="MODEL", help="ONNX, TFLite, or what model.save wrote")
    quantize.add_argument(
        "samples",
        nargs="?",
        metavar="SAMPLES",
        help="inputs such as it will see: an array for each input by "
        "its name (.npz);\nof one input the name does not matter, and it may be an .npy; samples are "
        "along the first axis",
    )
    quantize.add_argument("-o", "--output", required=True, metavar="FILE", help="what fusedops.load reads")
    quantize.add_argument(
        "--weights", choices=("int4", "int8"), help="in place of SAMPLES: the weights of products in so many bits"
    )
    quantize.add_argument(
        "--calibration",
        choices=("mse", "minmax", "percentile"),
        help="how ranges follow from samples (default: mse, the lowest error)",
    )
    quantize.add_argument("--keep", action="append", default=[], metavar="NAME", help="a layer that stays float32")
    for option, of in (("--layer-snr", "the products of each layer in int8"), ("--snr", "each output")):
        quantize.add_argument(
            option,
            type=float,
            metavar="DB",
            help=f"least signal to noise of {of}, in decibels (default: 20)",
        )
    quantize.add_argument("--threads", type=_count, default=1, metavar="N", help="threads (default: 1)")
    quantize.add_argument(
        "--no-time", action="store_false", dest="time", help="choose by predictions alone, and time nothing"
    )
    quantize.set_defaults(run=_quantize)
    return parser


def _takes_passes(command):
    command.add_argument(
        "--disable-pass",
        action="append",
        default=[],
        metavar="NAME",
        dest="disabled",
        help="leave out a pass over an ONNX or TFLite network; an unknown name lists them",
    )
    command.add_argument(
        "--precision", choices=PRECISIONS, help="of the operands of products in an ONNX network (default: float32)"
    )


def _examples(*lines):
    width = max(len(command) for command, _ in lines)
    return "\n".join(["examples:", *(f"  {command:{width}}  # {meaning}" for command, meaning in lines)])


def _count(text):
    if not text.isdecimal() or not 1 <= int(text) <= 1024:
        raise argparse.ArgumentTypeError(f"must be a whole number between 1 and 1024, not {text}")
    return int(text)


def _dimension(text):
    name, _, size = text.partition("=")
    if not name or not size.isdecimal() or int(size) == 0:
        raise argparse.ArgumentTypeError(f"must be a name and a size, such as batch=8, not {text}")
    return name, int(size)


def _info(options):
    print(f"{'processor':19}{report.processor()}")
    print(f"{'caches':19}{report.caches()}")
    print(runtime.show_config())


def _bench(options):
    if options.plot:  # a missing extra or an unknown kind of picture is told before the minute of measuring
        report.check_picture(options.plot)
    if options.dim and options.model is None:
        raise ValueError("--dim is of a network's dimensions: name a MODEL")
    if options.disabled and options.model is None:
        raise ValueError("--disable-pass is of the passes over a network: name a MODEL")
    if options.precision and options.model is None:
        raise ValueError("--precision is of a network's products: name a MODEL")
    for path in filter(None, (options.json, options.plot)):
        open(path, "ab").close()  # so is a place that cannot be written
    if options.model is None:
        results = report.measure(options.threads, options.quick)
        print(report.table(results))
    else:
        sizes = dict(options.dim)
        times, profile, results = report.measure_network(
            options.model, options.threads, sizes, options.quick, options.disabled, options.precision
        )
        heading = filter(None, (report.setting(results), report.disturbed(times, profile)))
        print(*heading, times, "", profile, sep="\n")
    if options.json:
        report.write_json(results, options.json)
    if options.plot and options.model is None:
        report.plot(results, options.plot)
    elif options.plot:
        report.plot_network(profile, results, options.plot)


def _explain(options):
    print(report.network(options.model, options.disabled, options.precision).explain())


_OTHER_FORMATS = ".onnx", ".tflite", ".pt", ".pt2", ".pth", ".npz", ".npy"


def _quantize(options):
    folder = os.path.dirname(options.output) or "."
    if not os.access(folder, os.W_OK) or os.path.isdir(options.output):
        raise ValueError(f"{options.output} cannot be written: name a file in a folder that exists")
    kind = os.path.splitext(options.output)[1].lower()
    if kind in _OTHER_FORMATS:
        raise ValueError(f"{options.output}: fusedops writes a format of its own, .fo, and not {kind}")
    if str(options.samples or "").lower().endswith(".fo"):
        raise ValueError(f"{options.samples} is a saved network, not samples; the network to write is named with -o")
    if (options.samples is None) == (options.weights is None):
        raise ValueError("quantize takes SAMPLES, or --weights int4 or int8 in their place")
    if options.weights and not (options.time and options.threads == 1):
        raise ValueError("--no-time and --threads are of SAMPLES: with --weights nothing is timed")
    bounds = dict(calibration=options.calibration, keep=options.keep, layer_snr=options.layer_snr, snr=options.snr)
    try:
        if options.weights:
            small = report.network(options.model).quantize(weights=options.weights, progress=True, **bounds)
        else:
            model, small, sample = report.quantize_network(
                options.model, options.samples, options.threads, measure=options.time, **bounds
            )
    except TypeError as e:  # samples of another type than the network takes, or bounds without samples
        raise ValueError(str(e)) from None
    small.save(options.output)
    print(small.explain().quantized, flush=True)
    if options.samples and options.time:
        print("", report.time_quantized(model, small, sample, options.threads), sep="\n")
