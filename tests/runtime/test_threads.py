import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import fusedops as fo
from catalog import MANY_TASKS, python, results


@pytest.fixture
def restored():
    before = fo.get_num_threads()
    yield
    fo.set_num_threads(before)


@pytest.mark.parametrize("name", MANY_TASKS)
def test_same_bits_for_any_number_of_threads(isa, draw, restored, name):
    function, shapes, options = MANY_TASKS[name]
    arrays = [draw(*shape) for shape in shapes]
    ys = []
    for n in (1, 2, 3, 7):
        fo.set_num_threads(n)
        ys.append(results(function(*arrays, **options)))
    for other in ys[1:]:
        for y, y_one in zip(other, ys[0]):
            np.testing.assert_array_equal(y, y_one)


def test_set_and_get(restored):
    for n in (1, 2, 5):
        fo.set_num_threads(n)
        assert fo.get_num_threads() == n


@pytest.mark.parametrize("n", [0, -1])
def test_fewer_than_one_thread(n):
    with pytest.raises(ValueError, match=str(n)):
        fo.set_num_threads(n)


@pytest.mark.parametrize("n", ["two", 1.5, None])
def test_not_a_number_of_threads(n):
    with pytest.raises(TypeError, match=f"number of threads must be an int from 1 to 1024, not {n!r}"):
        fo.set_num_threads(n)


def test_environment():
    show = "import fusedops as fo; print(fo.get_num_threads())"
    assert python(show, FUSEDOPS_NUM_THREADS="3").stdout == "3\n"
    assert python(show, FUSEDOPS_NUM_THREADS="1").stdout == "1\n"


@pytest.mark.parametrize("value", ["0", "-2", "many", "2.5", "5000"])
def test_environment_that_makes_no_sense(value):
    done = python("import fusedops", FUSEDOPS_NUM_THREADS=value)
    assert done.returncode != 0
    assert "FUSEDOPS_NUM_THREADS must be a whole number between 1 and 1024" in done.stderr and value in done.stderr


COUNT = """
import os
import numpy as np
import fusedops as fo
from threadpoolctl import threadpool_limits
{before}
x = w = np.ones(({size}, {size}), np.float32)
with {context}:
    for _ in range(3):
        fo.linear(x, w)
    print(fo.get_num_threads(), len(os.listdir("/proc/self/task")))
"""


def count(before="", context="threadpool_limits(None)", size=400):
    """What get_num_threads() says, and how many threads the operating system counts, after some products: a team has a
    keeper, too."""
    code = COUNT.format(before=before, context=context, size=size)
    done = python(code, OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="4")
    assert done.returncode == 0, done.stderr
    return tuple(map(int, done.stdout.split()))


@pytest.mark.parametrize("n", [1, 3])
def test_as_many_threads_as_asked_for(n):
    assert count(f"fo.set_num_threads({n})") == (n, n + (n > 1))


@pytest.mark.parametrize("limit", [1, 2])
def test_limits_of_threadpoolctl_hold(limit):
    assert count("fo.set_num_threads(3)", f"threadpool_limits({limit}, user_api='openmp')") == (
        limit,
        limit + (limit > 1),
    )


def test_a_team_that_grows():
    """A smaller one after it wakes as many as it needs."""
    assert count(
        "for n in (2, 5, 3, 6, 2): fo.set_num_threads(n); fo.linear(np.ones((400, 400), np.float32), np.ones((400, "
        "400), np.float32))"
    ) == (2, 7)


def test_limits_of_threadpoolctl_end():
    """Also where the first call of all is under a limit."""
    show = "import fusedops as fo, threadpoolctl\n{}print(fo.get_num_threads())"
    limited = "with threadpoolctl.threadpool_limits(1): assert fo.get_num_threads() == 1\n"
    assert python(show.format(limited)).stdout == python(show.format("")).stdout != ""


SAME_LIMIT = """
import threadpoolctl
import fusedops as fo
{}
with threadpoolctl.threadpool_limits(1):
    assert fo.get_num_threads() == 1
assert fo.get_num_threads() == 4
fo.set_num_threads(1)
assert all(pool["num_threads"] == 1 for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "openmp")
fo.set_num_threads(4)
assert fo.get_num_threads() == 4
with threadpoolctl.threadpool_limits(1):
    fo.set_num_threads(3)
assert fo.get_num_threads() == 3
fo.set_num_threads(4)
with threadpoolctl.threadpool_limits(1):
    assert fo.get_num_threads() == 1
"""


@pytest.mark.parametrize("asked", ["", "fo.set_num_threads(4)"], ids=["environment", "call"])
def test_a_limit_that_openmp_had_at_the_start(asked):
    """As where there is one processor: one thread, of four that were asked for."""
    done = python(SAME_LIMIT.format(asked), OMP_NUM_THREADS="1", **({} if asked else {"FUSEDOPS_NUM_THREADS": "4"}))
    assert done.returncode == 0, done.stderr


def test_small_work_stays_on_one_thread():
    """A tiny product is not worth waking anybody up: no second thread is ever started."""
    assert count("fo.set_num_threads(4)", size=4) == (4, 1)


@pytest.mark.parametrize(
    "w, x, padding",
    [
        ((256, 256, 3, 3), (2, 256, 56, 56), 1),
        ((1, 1, 1, 1), (1, 1, 1, 1), 3000),
        ((1, 1, 129, 129), (1, 1, 128, 128), 192),
    ],
)
def test_gil_is_released(draw, restored, w, x, padding):
    """While a long convolution runs, another Python thread goes on: its time stamps lie inside of the call. On a busy
    machine it may get no time slice in one call."""
    fo.set_num_threads(1)
    layer = fo.Conv2d(draw(*w), padding=padding, algorithm="direct")
    x = draw(*x)

    def goes_on():
        stamps, stop = [], threading.Event()

        def tick():
            while not stop.wait(0.001):
                stamps.append(time.perf_counter())

        ticker = threading.Thread(target=tick)
        ticker.start()
        start = time.perf_counter()
        layer(x)
        end = time.perf_counter()
        stop.set()
        ticker.join()
        quarter = (end - start) / 4
        return any(start + quarter < t < end - quarter for t in stamps)

    assert any(goes_on() for _ in range(5))


def test_a_thread_whose_first_call_needs_no_scratch(draw):
    x, w, results = draw(1, 0, 5, 5), draw(4, 0, 1, 1), []
    thread = threading.Thread(target=lambda: results.append(fo.conv2d(x, w)))
    thread.start()
    thread.join()
    assert results and not results[0].any()


SMALL_STACKS = """
import sys, threading
sys.path.insert(0, {tests!r})
import fusedops as fo
from catalog import MANY_TASKS, OPERATIONS, Draw, using_isa
draw, done = Draw(0), []

def run():
    for isa in fo.available_isas():
        with using_isa(isa):
            for operation in OPERATIONS.values():
                operation(operation.draw(draw))
    for function, shapes, options in MANY_TASKS.values():
        function(*(draw(*shape) for shape in shapes), **options)
    done.append(True)

fo.set_num_threads(3)
threading.stack_size(128 << 10)
thread = threading.Thread(target=run)
thread.start()
thread.join()
assert done
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere Python itself may want more")
def test_threads_of_small_stacks():
    """A caller and a team of 128 KB each."""
    done = python(
        SMALL_STACKS.format(tests=str(Path(__file__).parents[1] / "support")),
        OMP_STACKSIZE="128k",
        OPENBLAS_NUM_THREADS="1",
    )
    assert done.returncode == 0, done.stderr


MANY = """
import numpy as np
import fusedops as fo
fo.set_num_threads(2)
x = np.arange({images} * 9, dtype=np.float32).reshape(-1, 1, 3, 3) % 64
np.testing.assert_array_equal(fo.depthwise_conv2d(x, np.ones((1, 3, 3), np.float32))[:, 0, 0, 0], x.sum((1, 2, 3)))
"""


@pytest.mark.parametrize("images", [65535, 65536, 131070, 131071, 196607])
def test_more_tasks_than_claims(images):
    """A claim is for several tasks then, and the number of claims has its bits to the last."""
    done = python(MANY.format(images=images))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["conv3x3_direct", "linear_row", "lstm_cell"])
def test_many_python_threads_at_once(draw, name):
    function, shapes, options = MANY_TASKS[name]
    arrays = [draw(*shape) for shape in shapes]
    expected = results(function(*arrays, **options))
    wrong = []

    def work():
        for _ in range(5):
            if any((y != y_one).any() for y, y_one in zip(results(function(*arrays, **options)), expected)):
                wrong.append(name)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


HOGGED = """
import subprocess, sys, time
import numpy as np
import fusedops as fo
x, w = np.ones((1, 128, 28, 28), np.float32), np.ones((256, 128, 1, 1), np.float32)
layer = fo.Conv2d(w)
y = layer(x)

threads = fo.get_num_threads()

def seconds(threads):
    fo.set_num_threads(threads)
    start = time.perf_counter()
    for _ in range(300):
        layer(x, out=y)
    return time.perf_counter() - start

hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(4 * threads)]
try:
    alone = min(seconds(1) for _ in range(3))
    print(min(seconds(threads) for _ in range(3)) / alone)
finally:
    for hog in hogs:
        hog.kill()
"""


@pytest.mark.thorough
def test_other_processes_on_every_core():
    """A caller that waits for a time slice at each call takes five to ten times as long as one thread."""
    done = python(HOGGED)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 3


PAUSED = """
import time
import numpy as np
import fusedops as fo
fo.set_num_threads(3)
x, w = np.ones((1, 64, 28, 28), np.float32), np.ones((96, 64, 1, 1), np.float32)
layer = fo.Conv2d(w)
for pause in (0, 1e-4, 1e-3, 1e-2) * 10:
    time.sleep(pause)
    assert (layer(x) == 64).all()
"""


@pytest.mark.parametrize("policy", ["active", "passive"])
def test_threads_that_have_gone_to_sleep(policy):
    assert python(PAUSED, OMP_WAIT_POLICY=policy).returncode == 0
