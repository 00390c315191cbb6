"""Processes and threads around fusedops: forks, workers, many callers, other libraries, signals, and what the system
allows.

Each test is a process of its own, which must end: one that hangs is a failure after a minute.
"""

import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import fusedops as fo
from catalog import python
from fusedops import _core

THREADS, CALLERS = 4, 16

# A product, a convolution and a recurrent layer, all large enough for several threads, and the results of the parent.
WORK = f"""
import os, sys, threading
import numpy as np
import fusedops as fo

fo.set_num_threads({THREADS})
rng = np.random.default_rng(0)
draw = lambda *shape: rng.uniform(-1, 1, shape).astype(np.float32)
work = [(fo.Linear(draw(300, 300)), draw(300, 300)), (fo.Conv2d(draw(64, 64, 3, 3), padding=1), draw(1, 64, 28, 28)),
        (fo.LSTM(draw(512, 128), draw(512, 128)), draw(8, 16, 128))]
expected = [np.array(layer(x)[0]) for layer, x in work]

def right():
    return all(np.array_equal(layer(x)[0], y) for (layer, x), y in zip(work, expected))

def in_child(check=right):
    "Forks; the child's verdict."
    pid = os.fork()
    if pid == 0:
        os._exit(0 if check() else 1)
    return os.waitpid(pid, 0)[1] == 0
"""


def passes(code, **environment):
    """The code, after WORK, runs to its end; what it printed."""
    done = python(WORK + code, **environment | {"OMP_NUM_THREADS": str(THREADS), "OPENBLAS_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    return done.stdout


# Forks


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
class TestFork:
    def test_after_parallel_work(self):
        passes("assert right() and in_child() and in_child() and right()")

    def test_from_another_thread(self):
        passes(
            "verdict = []\n"
            "t = threading.Thread(target=lambda: verdict.append(right() and in_child()))\n"
            "t.start(); t.join()\nassert verdict == [True] and right()"
        )

    def test_while_other_threads_compute(self):
        passes("""
stop, wrong = threading.Event(), []
def compute():
    while not stop.is_set():
        right() or wrong.append(1)
threads = [threading.Thread(target=compute) for _ in range(3)]
[t.start() for t in threads]
verdicts = [in_child() for _ in range(10)]
stop.set()
[t.join() for t in threads]
assert all(verdicts) and not wrong
""")

    def test_while_another_thread_plans_a_network(self):
        network = str(Path(__file__).parents[2] / "examples" / "digits.fo")
        passes(f"""
model = fo.load({network!r})
with model._session._lock:  # as that thread has it
    assert in_child(lambda: model(np.zeros((3, 1, 8, 8), np.float32)).shape == (3, 10))
assert model(np.zeros((3, 1, 8, 8), np.float32)).shape == (3, 10)
""")

    def test_of_a_forked_child(self):
        passes("assert in_child(lambda: right() and in_child())")

    def test_the_child_says_that_it_is_serial(self):
        said = "assert in_child(lambda: fo.show_config()['threading'] == 'serial: forked child')"
        passes(said + "\nassert fo.show_config()['threading'] == 'openmp'")
        passes("assert in_child(lambda: fo.get_num_threads() == 1)\nassert fo.get_num_threads() == " + str(THREADS))

    def test_before_parallel_work(self):
        """A child of a parent that computed nothing in parallel has all its threads."""
        code = (
            "import os\nimport fusedops as fo\nfo.set_num_threads(2)\npid = os.fork()\n"
            "if pid == 0: os._exit(0 if fo.show_config()['threading'] == 'openmp' else 1)\n"
            "assert os.waitpid(pid, 0)[1] == 0"
        )
        assert python(code).returncode == 0


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(method):
    """A prepared layer travels to the workers and computes the same bits there."""
    passes(f"""
import multiprocessing
if {method!r} in multiprocessing.get_all_start_methods():
    with multiprocessing.get_context({method!r}).Pool(2) as pool:
        for (layer, x), y in zip(work, expected):
            assert all(np.array_equal(z[0], y) for z in pool.map(layer, [x] * 4))
    assert right()
""")


# Many callers


def test_many_callers_of_one_layer():
    """16 Python threads get the right bits, and the system few threads more than these."""
    shown = passes(f"""
barrier, wrong = threading.Barrier({CALLERS + 1}), []
def call():
    for _ in range(20):
        right() or wrong.append(1)
    barrier.wait()
    barrier.wait()
threads = [threading.Thread(target=call) for _ in range({CALLERS})]
[t.start() for t in threads]
barrier.wait()
if os.path.isdir("/proc/self/task"):
    print(len(os.listdir("/proc/self/task")))
barrier.wait()
[t.join() for t in threads]
assert not wrong
""")
    assert int(shown or 0) <= 1 + CALLERS + THREADS, "there is one team, with its keeper"


@pytest.mark.parametrize(
    "pool",
    [
        "concurrent.futures.ThreadPoolExecutor(4).map",
        "multiprocessing.pool.ThreadPool(4).map",
        "concurrent.futures.ProcessPoolExecutor(2).map",
    ],
)
def test_inside_of_a_pool(pool):
    passes(f"""
import concurrent.futures, multiprocessing.pool
for (layer, x), y in zip(work, expected):
    assert all(np.array_equal(z[0], y) for z in {pool}(layer, [x] * 8))
""")


@pytest.mark.skipif(not importlib.util.find_spec("joblib"), reason="joblib is not installed")
@pytest.mark.parametrize("backend", ["loky", "threading", "multiprocessing"])
def test_inside_of_joblib(backend):
    passes(f"""
from joblib import Parallel, delayed
for (layer, x), y in zip(work, expected):
    assert all(np.array_equal(z[0], y) for z in Parallel(2, backend={backend!r})(delayed(layer)(x) for _ in range(4)))
""")


@pytest.mark.thorough
@pytest.mark.skipif(not importlib.util.find_spec("joblib"), reason="joblib is not installed")
@pytest.mark.parametrize("jobs", [1, 2, 4])
def test_workers_of_joblib_share_the_processors(jobs):
    """joblib divides the processors among its workers, and each takes its part."""
    done = python(f"""
import os
os.environ.pop("OMP_NUM_THREADS", None)  # which joblib would hand on as it is
import joblib, fusedops as fo
print(*joblib.Parallel({jobs}, backend="loky")(joblib.delayed(fo.get_num_threads)() for _ in range({jobs})))
""")
    assert done.returncode == 0, done.stderr
    assert set(map(int, done.stdout.split())) == {max(len(os.sched_getaffinity(0)) // jobs, 1)}


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="threads are counted in /proc")
def test_a_pool_of_threads_is_not_oversubscribed():
    """Its threads and the team's, not a team for each: the 64 threads of the pool do not become 256."""
    shown = passes("""
import concurrent.futures
with concurrent.futures.ThreadPoolExecutor(64) as pool:
    assert all(pool.map(lambda _: right(), range(256)))
    print(len(os.listdir("/proc/self/task")))
""")
    assert int(shown) <= 1 + 64 + THREADS


# Other libraries


OTHERS = {
    "torch": "import torch; other = lambda: torch.nn.functional.conv2d(torch.ones(1, 64, 28, 28), torch.ones(64, 64, "
    "3, 3)).sum()",
    "sklearn": "import sklearn.cluster; other = lambda: sklearn.cluster.KMeans(3, n_init=1, "
    "random_state=0).fit(np.eye(300)).inertia_",
    "scipy": "import scipy.linalg; other = lambda: scipy.linalg.lu(np.eye(300))[0].sum()",
}


@pytest.mark.thorough
@pytest.mark.parametrize("library", OTHERS)
@pytest.mark.parametrize("first", [True, False], ids=["first", "second"])
def test_beside_another_library(library, first):
    """Either import comes first; both compute in turn."""
    if not importlib.util.find_spec(library):
        pytest.skip(f"{library} is not installed")
    parts = ["import numpy as np\n" + OTHERS[library], WORK]
    done = python(
        "\n".join(parts if first else parts[::-1])
        + "\nbefore = other()\nassert right() and other() == before and right()",
        OMP_NUM_THREADS=str(THREADS),
    )
    assert done.returncode == 0, done.stderr


# Signals


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_keyboard_interrupt():
    """Ctrl-C during a loop of calls ends it as soon as the call that it finds has returned."""
    # A parent that runs in the background of a shell hands down that SIGINT is ignored.
    listen = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    code = WORK + listen + "print('ready', flush=True)\nwhile True: right()"
    child = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(fo.__file__).parent.parent,
    )
    try:
        assert child.stdout.readline() == "ready\n"
        start = time.monotonic()
        child.send_signal(signal.SIGINT)
        _, said = child.communicate(timeout=30)
    finally:
        child.kill()
    assert "KeyboardInterrupt" in said and time.monotonic() - start < 10


@pytest.mark.skipif(not hasattr(signal, "sigtimedwait"), reason="signals of POSIX")
def test_a_signal_that_is_waited_for():
    """A thread of the team does not take what the program's own threads have blocked: the process would end."""
    passes("""
import signal
assert right()
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
os.kill(os.getpid(), signal.SIGTERM)
assert signal.sigtimedwait([signal.SIGTERM], 10)
""")


# What the system allows


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity masks here")
def test_affinity_mask():
    code = (
        "import os\nos.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:{}])\nimport fusedops as fo\n"
        "print(fo.get_num_threads() == len(os.sched_getaffinity(0)))"
    )
    for processors in range(1, len(os.sched_getaffinity(0)) + 1):
        assert python(code.format(processors), OMP_NUM_THREADS="").stdout == "True\n"


PROCESSORS = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]


@pytest.mark.skipif(len(PROCESSORS) < 2, reason="nothing to bind threads to")
@pytest.mark.parametrize(
    "binding, threads",
    [
        ({"OMP_PROC_BIND": "true"}, len(PROCESSORS)),
        ({"OMP_PROC_BIND": "spread"}, len(PROCESSORS)),
        ({"OMP_PROC_BIND": "close", "OMP_PLACES": "threads"}, len(PROCESSORS)),
        ({"OMP_PLACES": "cores"}, len(PROCESSORS)),
        ({"OMP_PLACES": "threads(1)"}, 1),
        ({"OMP_PLACES": f"{{{PROCESSORS[-1]}}}"}, 1),
        ({"GOMP_CPU_AFFINITY": " ".join(map(str, PROCESSORS))}, len(PROCESSORS)),
        ({"GOMP_CPU_AFFINITY": str(PROCESSORS[-1])}, 1),
        ({"OMP_PROC_BIND": "true", "OMP_NUM_THREADS": "1"}, 1),
    ],
    ids=str,
)
def test_openmp_that_binds_its_threads(binding, threads):
    """It binds the thread that loads it before anyone counts the processors."""
    others = {"OMP_NUM_THREADS": "", "OPENBLAS_NUM_THREADS": "1"}
    done = python(
        WORK.replace("fo.set_num_threads", "print(fo.get_num_threads()) #") + "assert right()", **others | binding
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{threads}\n"


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere OpenMP's threads have other stacks")
@pytest.mark.parametrize("size", ["16k", "16", "64k", "100 k"])
def test_stacks_that_are_too_small(size):
    """They are not used, and show_config() says so; the results are right."""
    said = passes("assert right() and right()\nprint(fo.show_config()['threading'])", OMP_STACKSIZE=size)
    assert "serial: OpenMP's threads have less than the 128 KB of stack that they need; raise OMP_STACKSIZE" in said


def test_stacks_that_are_large_enough():
    said = passes("assert right()\nprint(fo.show_config()['threading'])", OMP_STACKSIZE="128k")
    assert said == "openmp\n"


@pytest.mark.parametrize(
    "files, processors",
    [
        ({"cpu.max": "200000 100000\n"}, 2),
        ({"cpu.max": "150000 100000\n"}, 2),
        ({"cpu.max": "1000 100000\n"}, 1),
        ({"cpu.max": "9223372036854775807 1\n"}, 0),
        ({"cpu.max": "max 100000\n"}, 0),
        ({"cpu.max": "200000 0\n"}, 0),
        ({"cpu.max": "garbage"}, 0),
        ({"cpu.max": ""}, 0),
        ({"cpu/cpu.cfs_quota_us": "400000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 4),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 0),
        ({"cpu/cpu.cfs_quota_us": "400000\n"}, 0),
        ({}, 0),
    ],
    ids=str,
)
def test_quota_of_the_cgroup(tmp_path, files, processors):
    assert quota(tmp_path, files) == processors
    assert quota(tmp_path, files, "0::/\n") == processors


def quota(folder, files, groups=None):
    """What fusedops makes of the files of cgroups and of a process's list of groups."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    if groups is not None:
        (folder / "groups").write_text(groups)
    return _core.cgroup_quota(str(folder), str(folder / "groups"))


def v1(quota):
    return {"cpu.cfs_quota_us": f"{quota}\n", "cpu.cfs_period_us": "100000\n"}


UNIT = "user.slice/user-1000.slice/run-1.scope"  # as of systemd-run -p CPUQuota=...
JOB = "slurm/uid_0/job_7/step_0"


@pytest.mark.parametrize(
    "files, groups, processors",
    [
        ({f"{UNIT}/cpu.max": "150000 100000\n"}, f"0::/{UNIT}\n", 2),
        ({"user.slice/cpu.max": "300000 100000\n", f"{UNIT}/cpu.max": "max 100000\n"}, f"0::/{UNIT}\n", 3),
        ({"user.slice/cpu.max": "100000 100000\n", f"{UNIT}/cpu.max": "400000 100000\n"}, f"0::/{UNIT}\n", 1),
        ({"cpu.max": "200000 100000\n", f"{UNIT}/cpu.max": "400000 100000\n"}, f"0::/{UNIT}\n", 2),
        ({f"{UNIT}/cpu.max": "100000 100000\n"}, "0::/user.slice/another\n", 0),
        ({f"{UNIT}/cpu.max": "100000 100000\n"}, "0::/user.slice", 0),
        ({"a:b/cpu.max": "100000 100000\n"}, "0::/a:b\n", 1),
        ({f"cpu/{JOB}/{k}": v for k, v in v1(250000).items()}, f"4:memory:/x\n3:cpu,cpuacct:/{JOB}\n0::/\n", 3),
        ({f"cpu/slurm/uid_0/{k}": v for k, v in v1(100000).items()}, f"3:cpuacct,cpu:/{JOB}\n", 1),
        ({f"cpu/{JOB}/{k}": v for k, v in v1(100000).items()}, f"3:cpuset,cpuacct:/{JOB}\n", 0),
        ({f"cpu/{k}": v for k, v in v1(100000).items()}, f"3:cpu:/docker/{JOB}\n", 1),  # a container's own tree
        ({}, "", 0),
        ({}, "garbage\n:\n::\n0:/no:\n", 0),
    ],
)
def test_quotas_of_nested_cgroups(tmp_path, files, groups, processors):
    """The least of the process's group and those around it."""
    assert quota(tmp_path, files, groups) == processors
