"""Options of ``pytest bench``, and what each of its JSON files says of the machine."""

import re
from importlib.metadata import distributions

import pytest
from threadpoolctl import threadpool_limits

import fusedops as fo
from fusedops.benchmark.report import instructions, processor

from . import machine
from .peers import PEERS


def pytest_addoption(parser):
    group = parser.getgroup("fusedops")
    group.addoption("--quick", action="store_true", help="fewer rounds and cases: all of it within two minutes")
    group.addoption("--networks", metavar="FOLDER", help="measure the ONNX files of a folder too")
    group.addoption(
        "--threads", type=int, default=1, metavar="N", help="threads of fusedops and of its peers (default: 1)"
    )


COLUMNS = "min", "median", "stddev", "rounds"  # of tables, which fit into a terminal so


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    """Rounds of a tenth of a millisecond at least; how long in all, and which columns, unless options of
    pytest-benchmark say otherwise."""
    option = config.option
    if not any(argument.startswith("--benchmark-columns") for argument in config.invocation_params.args):
        option.benchmark_columns = list(COLUMNS)
    option.benchmark_min_time = max(float(option.benchmark_min_time), 1e-4)
    if float(option.benchmark_max_time) == 1.0:  # pytest-benchmark's default
        option.benchmark_max_time = 0.04 if option.quick else 0.4


def pytest_itemcollected(item):
    """Rows such as dw3x3_512x14 are found by -k depthwise, too."""
    if re.search(r"\bdw\d", item.name):
        item.extra_keyword_matches.add("depthwise")


@pytest.fixture(scope="session")
def quick(pytestconfig):
    return pytestconfig.option.quick


@pytest.fixture(autouse=True)
def threads(pytestconfig):
    """As many for fusedops as for NumPy's BLAS."""
    number, before = pytestconfig.option.threads, fo.get_num_threads()
    fo.set_num_threads(number)
    with threadpool_limits(number, user_api="blas"):
        yield number
    fo.set_num_threads(before)


def pytest_benchmark_update_machine_info(config, machine_info):
    """What must be the same for two runs to be compared."""
    packages = {"fusedops", "numpy", *(package for peer in PEERS.values() for package in peer.package.split())}
    versions = {d.name: d.version for d in distributions() if d.name in packages}
    machine_info["fusedops"] = {
        "isa": instructions(),
        "processor": processor(),
        "threads": config.option.threads,
        "versions": versions,
    }


def pytest_benchmark_update_json(config, benchmarks, output_json):
    """What ``python -m bench.report`` draws the roofline with."""
    output_json["roof"] = machine.roof(config.option.threads)
