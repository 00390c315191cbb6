"""The interface of ONNX Runtime: each test runs with fusedops.onnxruntime, and with ONNX Runtime itself where that is
installed, so that what is tested is what it does."""

import json
import threading

import numpy as np
import pytest

pytest.importorskip("onnx")
from onnx import TensorProto
from onnx.parser import parse_model

import fusedops as fo

TEXT = """<ir_version: 8, opset_import: ["" : 17], producer_name: "me", model_version: 7, doc_string: "what it is",
          domain: "here", metadata_props: ["labels": "cat,dog", "empty": ""]>
net (float[n, 3] x, float[3] bias = {1, 2, 3}, int64 k) => (float[n, 3] y, float total, int64 m) {
    h = Add(x, bias)
    y = Relu(h)
    total = ReduceSum<keepdims = 0>(h)
    m = Add(k, k)
}"""
X = np.float32([[1, 2, -9]])
K = np.array(2)
FEED = {"x": X, "k": K}
Y = np.float32([[2, 4, 0]])


@pytest.fixture(params=["fusedops.onnxruntime", "onnxruntime"])
def ort(request):
    module = pytest.importorskip(request.param)
    module.set_default_logger_severity(3)
    return module


def data(text=TEXT):
    return parse_model(text).SerializeToString()


def graph(body, opset=17):
    return data(f'<ir_version: 8, opset_import: ["" : {opset}, "mine" : 1]> net {body}')


@pytest.fixture
def session(ort):
    return ort.InferenceSession(data(), providers=["CPUExecutionProvider"])


def kind(error):
    return type(error.value).__name__


# ---- what there is


def test_inputs_and_outputs(session):
    described = [
        [(v.name, v.type, v.shape) for v in values] for values in (session.get_inputs(), session.get_outputs())
    ]
    assert described[0] == [("x", "tensor(float)", ["n", 3]), ("k", "tensor(int64)", [])]
    assert described[1] == [
        ("y", "tensor(float)", ["n", 3]),
        ("total", "tensor(float)", []),
        ("m", "tensor(int64)", []),
    ]
    assert [(v.name, v.type, v.shape) for v in session.get_overridable_initializers()] == [
        ("bias", "tensor(float)", [3])
    ]


@pytest.mark.parametrize(
    ("declared", "type_", "shape"),
    [
        ("float16[n]", "tensor(float16)", ["n"]),
        ("bfloat16[2]", "tensor(bfloat16)", [2]),
        ("double[?, 3]", "tensor(double)", [None, 3]),
        ("bool[n]", "tensor(bool)", ["n"]),
        ("uint8[1]", "tensor(uint8)", [1]),
        ("int32", "tensor(int32)", []),
        ("seq(float[n])", "seq(tensor(float))", []),
    ],
)
def test_types_of_the_file(ort, declared, type_, shape):
    body = f"({declared} x) => ({declared} y) {{ y = Identity(x) }}"
    for v in (*(s := ort.InferenceSession(graph(body))).get_inputs(), *s.get_outputs()):
        assert (v.type, v.shape) == (type_, shape)


def test_sizes_of_outputs_that_the_file_leaves_out(ort):
    session = ort.InferenceSession(graph("(float[2, 3] x, float[3, 5] w) => (float[?, m] y) { y = MatMul(x, w) }"))
    assert session.get_outputs()[0].shape == [2, 5]


def test_metadata(session):
    meta = session.get_modelmeta()
    assert (meta.producer_name, meta.graph_name, meta.domain, meta.version) == ("me", "net", "here", 7)
    assert (meta.description, meta.graph_description) == ("what it is", "")
    assert meta.custom_metadata_map == {"labels": "cat,dog", "empty": ""}


def test_devices(ort, session):
    assert session.get_providers() == ["CPUExecutionProvider"] and ort.get_device() == "CPU"
    assert "CPUExecutionProvider" in ort.get_available_providers()
    with pytest.warns(UserWarning, match="'CUDAExecutionProvider' is not in available provider names"):
        session = ort.InferenceSession(data(), providers=["CUDAExecutionProvider", "CPUExecutionProvider"])
    assert session.get_providers() == ["CPUExecutionProvider"]


# ---- calls


@pytest.mark.parametrize("names", [None, [], ["y", "total", "m"]])
def test_all_outputs(session, names):
    y, total, m = session.run(names, FEED)
    assert np.array_equal(y, Y) and total == 0 and m == 4
    assert all(isinstance(a, np.ndarray) for a in (y, total, m)) and m.dtype == np.int64


def test_some_outputs(session):
    assert np.array_equal(session.run(["m"], FEED), [4])
    first, second = session.run(("y", "y"), FEED)
    assert np.array_equal(first, Y) and np.array_equal(second, Y)


def test_values_that_do_not_fit(ort):
    session = ort.InferenceSession(graph("(float[n] x, int64[1] s) => (float[m] y) { y = Reshape(x, s) }"))
    with pytest.raises(Exception, match="3") as error:
        session.run(["y"], {"x": np.ones(3, np.float32), "s": np.array([7])})
    assert kind(error) == "Fail"


def test_an_initializer_is_overridden(session):
    assert np.array_equal(session.run(["y"], FEED | {"bias": np.zeros(3, np.float32)})[0], [[1, 2, 0]])
    assert np.array_equal(session.run(["y"], FEED)[0], Y)


@pytest.mark.parametrize(
    "x",
    [[[1, 2, -9]], [[1.0, 2.0, -9.0]], [np.float32([1, 2, -9])], [np.array([1.0, 2.0, -9.0])], np.asfortranarray(X)],
    ids=["ints", "floats", "rows", "wider rows", "Fortran's order"],
)
def test_lists_become_the_type_of_the_input(session, x):
    (y,) = session.run(["y"], {"x": x, "k": K})
    assert y.dtype == np.float32 and np.array_equal(y, Y)


def test_a_number_may_come_in_an_array_of_one_element(session):
    assert session.run(["m"], {"x": X, "k": [2]})[0].item() == 4
    assert session.run(["m"], {"x": X, "k": np.array([2])})[0].item() == 4


def test_an_empty_batch(session):
    assert session.run(["y"], {"x": np.zeros((0, 3), np.float32), "k": K})[0].shape == (0, 3)


@pytest.mark.parametrize(
    ("names", "feed", "name", "words"),
    [
        (None, {"x": X}, "ValueError", r"Required inputs \(\['k'\]\) are missing from input feed \(\['x'\]\)"),
        (None, FEED | {"z": X}, "InvalidArgument", "Invalid input name: z"),
        (["z"], FEED, "InvalidArgument", "Invalid output name:z"),
        (["h"], FEED, "InvalidArgument", "Invalid output name:h"),
        ("y", FEED, "TypeError", "run"),
        (None, [X], "AttributeError", "list"),
        (
            None,
            FEED | {"x": X.astype(float)},
            "InvalidArgument",
            r"Actual: \(tensor\(double\)\) , expected: \(tensor\(f",
        ),
        (None, FEED | {"x": X > 0}, "InvalidArgument", r"Actual: \(tensor\(bool\)\)"),
        (None, FEED | {"x": X.astype(np.float16)}, "InvalidArgument", r"Actual: \(tensor\(float16\)\)"),
        (None, FEED | {"x": X[0]}, "InvalidArgument", "x"),
        (None, FEED | {"x": X[:, :2]}, "InvalidArgument", "x"),
        (None, FEED | {"x": [[1, 2], [3]]}, "RuntimeError", "Could not create tensor from given input list"),
        (None, FEED | {"x": None}, "Fail", "."),
        (None, FEED | {"x": "text"}, "RuntimeError", "'x'"),
    ],
)
def test_wrong_calls(session, names, feed, name, words):
    with pytest.raises(Exception, match=words) as error:
        session.run(names, feed)
    assert kind(error) == name


def test_run_options(ort, session):
    options = ort.RunOptions()
    options.logid = "call"
    assert np.array_equal(session.run(["y"], FEED, options)[0], Y)
    options.terminate = True
    with pytest.raises(Exception, match="terminate") as error:
        session.run(["y"], FEED, options)
    assert kind(error) == "Fail"
    with pytest.raises(TypeError):
        session.run(["y"], FEED, 3)
    with pytest.raises(TypeError):
        options.terminate = "yes"
    with pytest.raises(AttributeError):
        options.terminated = True


def test_float16_goes_in_and_out(ort):
    session = ort.InferenceSession(graph("(float16[n] x) => (float16[n] y) { y = Relu(x) }"))
    (y,) = session.run(None, {"x": np.float16([-1, 2])})
    assert y.dtype == np.float16 and np.array_equal(y, [0, 2])


def test_sequences(ort):
    session = ort.InferenceSession(graph("(seq(float[n]) x) => (float[m] y) { y = ConcatFromSequence<axis = 0>(x) }"))
    assert np.array_equal(session.run(None, {"x": [X[0], X[0, :1]]})[0], [1, 2, -9, 1])
    with pytest.raises(RuntimeError, match="Iterable of"):
        session.run(None, {"x": (X[0], X[0])})
    session = ort.InferenceSession(graph("(float[n] x) => (seq(float[n]) y) { y = SequenceConstruct(x, x) }"))
    (y,) = session.run(None, {"x": X[0]})
    assert isinstance(y, list) and len(y) == 2 and np.array_equal(y[1], X[0])


def test_many_threads(session):
    found = {}

    def work(n):
        for _ in range(20):
            found[n] = session.run(["y"], {"x": n * X, "k": K})[0]

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(found[n], np.maximum(n * X + np.float32([1, 2, 3]), 0)) for n in range(8))


def test_run_async(session):
    done, found = threading.Event(), []

    def callback(results, data, error):
        found.append((results, data, error))
        done.set()

    session.run_async(["y"], FEED, callback, "mine")
    assert done.wait(20)
    assert np.array_equal(found[0][0][0], Y) and found[0][1:] == ("mine", "")


# ---- values and bindings


def test_values(ort, session):
    value = ort.OrtValue.ortvalue_from_numpy(X)
    assert (value.data_type(), value.shape(), value.device_name()) == ("tensor(float)", [1, 3], "cpu")
    assert value.element_type() == TensorProto.FLOAT and value.tensor_size_in_bytes() == 12
    assert value.is_tensor() and value.has_value() and not value.is_sparse_tensor() and not value.is_tensor_sequence()
    assert (
        value.data_ptr() == X.ctypes.data and np.array_equal(value.numpy(), X) and np.array_equal(np.asarray(value), X)
    )
    assert np.array_equal(session.run(["y"], {"x": value, "k": K})[0], Y)
    k = ort.OrtValue.ortvalue_from_numpy(K)
    y, total = session.run_with_ort_values(["y", "total"], {"x": value, "k": k})
    assert np.array_equal(y.numpy(), Y) and total.numpy() == 0
    with pytest.raises(ValueError, match="Required inputs"):
        session.run_with_ort_values(["y"], {"x": value})


def test_a_value_is_written(ort):
    value = ort.OrtValue.ortvalue_from_shape_and_type((2, 3), np.float32)
    address = value.data_ptr()
    value.update_inplace(np.full((2, 3), 7, np.float32))
    assert value.data_ptr() == address and (value.numpy() == 7).all()
    assert ort.OrtValue.ortvalue_from_shape_and_type([2], TensorProto.FLOAT16).data_type() == "tensor(float16)"
    with pytest.raises(RuntimeError):
        value.update_inplace(np.ones((2, 2), np.float32))
    with pytest.raises(TypeError, match="numpy"):
        value.update_inplace([1])
    with pytest.raises(RuntimeError):
        ort.OrtValue.ortvalue_from_numpy([1])
    with pytest.raises(RuntimeError):
        ort.OrtValue.ortvalue_from_numpy(X, "cuda", 0)


def test_dlpack(ort):
    value = ort.OrtValue.from_dlpack(X.copy())
    assert np.array_equal(np.from_dlpack(value), X)


def test_a_binding_of_arrays(session):
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_cpu_input("k", K)
    binding.bind_output("total")
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    total, y = binding.copy_outputs_to_cpu()
    assert total == 0 and np.array_equal(y, Y)
    assert np.array_equal(binding.get_outputs()[1].numpy(), Y)
    assert np.array_equal(binding.get_outputs_as_ortvaluevector()[1].numpy(), Y)


def test_a_binding_of_memory(ort, session):
    x, y = X.copy(), np.empty((1, 3), np.float32)
    binding = session.io_binding()
    binding.bind_input("x", "cpu", 0, np.float32, x.shape, x.ctypes.data)
    binding.bind_ortvalue_input("k", ort.OrtValue.ortvalue_from_numpy(K))
    binding.bind_output("y", "cpu", 0, np.float32, y.shape, y.ctypes.data)
    session.run_with_iobinding(binding)
    assert np.array_equal(y, Y)
    x *= -1
    session.run_with_iobinding(binding)
    assert np.array_equal(y, [[0, 0, 12]])
    target = ort.OrtValue.ortvalue_from_shape_and_type((1, 3), np.float32)
    binding.bind_ortvalue_output("y", target)
    session.run_with_iobinding(binding)
    assert np.array_equal(target.numpy(), [[0, 0, 12]])
    with pytest.raises(RuntimeError, match="Failed to find NodeArg with name: bias"):
        binding.bind_cpu_input("bias", np.zeros(3, np.float32))


def test_wrong_bindings(session):
    binding = session.io_binding()
    with pytest.raises(RuntimeError, match="Failed to find NodeArg with name: z"):
        binding.bind_cpu_input("z", X)
    with pytest.raises(RuntimeError):
        binding.bind_cpu_input("x", [1])
    with pytest.raises(ValueError, match="`element_type` and `shape`"):
        binding.bind_output("y", buffer_ptr=X.ctypes.data)
    binding.bind_cpu_input("x", X)
    with pytest.raises(RuntimeError, match="At least one output should be requested"):
        session.run_with_iobinding(binding)
    binding.bind_output("m")
    with pytest.raises(RuntimeError, match="Error in execution"):  # of k, which is missing
        session.run_with_iobinding(binding)
    y = np.empty((2, 3), np.float32)
    binding.bind_cpu_input("k", K)
    binding.clear_binding_outputs()
    binding.bind_output("y", "cpu", 0, np.float32, y.shape, y.ctypes.data)
    with pytest.raises(RuntimeError, match="Error in execution"):
        session.run_with_iobinding(binding)


# ---- loading


def test_files_that_are_no_models(ort, tmp_path):
    (tmp_path / "text.onnx").write_bytes(b"no model at all, but some text")
    (tmp_path / "empty.onnx").write_bytes(b"")
    for source, name in {
        str(tmp_path / "none.onnx"): "NoSuchFile",
        str(tmp_path / "text.onnx"): "InvalidProtobuf",
        str(tmp_path / "empty.onnx"): "InvalidArgument",
        str(tmp_path): "InvalidProtobuf",
        b"no model at all, but some text": "InvalidProtobuf",
        data()[:-3]: "InvalidProtobuf",
        graph("(float[n] x) => (float[n] y) { y = mine.Unknown(x) }"): "Fail",
        graph("(float[n] x) => (float[n] y) { y = Unknown(x) }"): "InvalidGraph",
        graph("(float[2, 3] x) => (float[2, m] y) { y = MatMul(x, x) }"): "Fail",
    }.items():
        with pytest.raises(Exception, match=r".") as error:
            ort.InferenceSession(source)
        assert kind(error) == name, source


@pytest.mark.parametrize("source", [3, None, bytearray(b"abc")])
def test_what_is_no_source(ort, source):
    with pytest.raises(TypeError, match="Unable to load from type"):
        ort.InferenceSession(source)


def test_a_path(ort, tmp_path):
    (tmp_path / "net.onnx").write_bytes(data())
    for path in (tmp_path / "net.onnx", str(tmp_path / "net.onnx")):
        assert np.array_equal(ort.InferenceSession(path).run(["y"], FEED)[0], Y)


# ---- options


def test_options_are_checked(ort):
    options = ort.SessionOptions()
    options.intra_op_num_threads = np.int64(3)
    assert options.intra_op_num_threads == 3 and options.graph_optimization_level.name == "ORT_ENABLE_ALL"
    with pytest.raises(TypeError):
        options.intra_op_num_threads = "3"
    with pytest.raises(TypeError):
        options.graph_optimization_level = 99
    with pytest.raises(AttributeError):
        options.threads = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"
    with pytest.raises(RuntimeError, match="does not have configuration with key: more"):
        options.get_session_config_entry("more")
    with pytest.raises(Exception) as error:
        options.register_custom_ops_library("/none.so")
    assert kind(error) in ("Fail", "NotImplemented")


def test_a_session_keeps_its_options(ort):
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(data(), options)
    options.intra_op_num_threads = 2
    assert session.get_session_options().intra_op_num_threads == 1


def test_free_dimensions(ort):
    options = ort.SessionOptions()
    options.add_free_dimension_override_by_name("n", 2)
    session = ort.InferenceSession(data(), options)
    assert session.get_inputs()[0].shape == [2, 3] and session.get_outputs()[0].shape == [2, 3]
    assert session.run(["y"], {"x": np.ones((2, 3), np.float32), "k": K})[0].shape == (2, 3)
    with pytest.raises(Exception, match="Got: 1 Expected: 2") as error:
        session.run(["y"], FEED)
    assert kind(error) == "InvalidArgument"


@pytest.mark.parametrize("level", ["ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL"])
def test_levels(ort, level):
    options = ort.SessionOptions()
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    assert np.array_equal(ort.InferenceSession(data(), options).run(["y"], FEED)[0], Y)


def test_modes(ort):
    options = ort.SessionOptions()
    assert options.execution_mode == ort.ExecutionMode.ORT_SEQUENTIAL
    options.execution_mode = ort.ExecutionMode.ORT_PARALLEL
    options.inter_op_num_threads = 2
    assert np.array_equal(ort.InferenceSession(data(), options).run(["y"], FEED)[0], Y)
    with pytest.raises(TypeError):
        options.execution_mode = "parallel"


def test_profiling(ort, tmp_path):
    options = ort.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, str(tmp_path / "profile")
    session = ort.InferenceSession(data(), options)
    session.run(["y"], FEED)
    assert session.get_profiling_start_time_ns() > 0
    path = session.end_profiling()
    assert path.startswith(str(tmp_path / "profile_")) and path.endswith(".json")
    with open(path) as f:
        events = json.load(f)
    assert {"ts", "dur", "ph", "cat", "name"} <= events[0].keys()
    nodes = [event for event in events if event["cat"] == "Node"]
    assert "Add" in {event["args"]["op_name"] for event in nodes} and all(event["dur"] >= 0 for event in nodes)
    assert session.end_profiling() == ""


def test_without_profiling(session):
    assert session.end_profiling() == ""


# ---- what fusedops does differently


@pytest.fixture
def ours():
    import fusedops.onnxruntime

    return fusedops.onnxruntime


def test_only_wanted_outputs_are_computed(ours):
    session = ours.InferenceSession(graph("(float[n] x, int64[1] s) => (float[m] y, float[n] z) {"
                                          " y = Reshape(x, s)  z = Neg(x) }"))  # fmt: skip
    wrong = {"x": np.ones(3, np.float32), "s": np.array([7])}
    assert np.array_equal(session.run(["z"], wrong)[0], [-1, -1, -1])
    with pytest.raises(ours.errors.Fail):
        session.run(["y"], wrong)


def test_providers_are_checked(ours):
    """ONNX Runtime prints these errors and goes on without the options."""
    with pytest.raises(ValueError, match="same length"):
        ours.InferenceSession(data(), providers=["CPUExecutionProvider"], provider_options=[{}, {}])
    with pytest.raises(ValueError, match=r"either strings or \(string, dict\) tuples"):
        ours.InferenceSession(data(), providers=[3])


def test_levels_are_passes(ours, monkeypatch):
    seen = []
    monkeypatch.setattr(fo, "load_onnx", lambda source, **options: seen.append(options) or load(source, **options))
    load = fo.graph.load_onnx
    for level in ours.GraphOptimizationLevel:
        options = ours.SessionOptions()
        options.graph_optimization_level = level
        ours.InferenceSession(data(), options)
    assert [(o["fold"], o["fuse"]) for o in seen] == [(False, False), (True, False), *[(True, True)] * 3]


def test_threads_of_a_session(ours):
    options = ours.SessionOptions()
    options.intra_op_num_threads = 1
    assert ours.InferenceSession(data(), options)._model.num_threads == 1
    assert ours.InferenceSession(data())._model.num_threads is None
    options.use_per_session_threads = False
    assert ours.InferenceSession(data(), options)._model.num_threads is None


def test_a_saved_network(ours, tmp_path):
    fo.load_onnx(data()).save(tmp_path / "net.fo")
    for source in (tmp_path / "net.fo", (tmp_path / "net.fo").read_bytes()):
        session = ours.InferenceSession(source)
        assert np.array_equal(session.run(["y"], FEED)[0], Y)
        assert session.get_modelmeta().custom_metadata_map == {"labels": "cat,dog", "empty": ""}


def test_the_optimized_model(ours, tmp_path):
    options = ours.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "net.fo")
    ours.InferenceSession(data(), options)
    assert np.array_equal(ours.InferenceSession(tmp_path / "net.fo").run(["y"], FEED)[0], Y)


def test_what_is_not_there_is_told(ours, caplog):
    options = ours.SessionOptions()
    with pytest.warns(UserWarning, match=r"does not know the entry 'session.unheard_of'"):
        options.add_session_config_entry("session.unheard_of", "1")
    for refused in (
        lambda: options.add_free_dimension_override_by_denotation("DATA_BATCH", 1),
        lambda: options.register_custom_ops_library("/none.so"),
        lambda: options.add_session_config_entry("session.load_model_format", "ORT"),
        lambda: options.add_initializer("w", None),
        lambda: ours.RunOptions().add_active_adapter(None),
        lambda: ours.InferenceSession(b"1234ORTM5678"),
    ):
        with pytest.raises(ours.errors.NotImplemented):
            refused()
    with pytest.warns(UserWarning, match="it has no effect"):
        ours.InferenceSession(data(), disabled_optimizers=["GeluFusion"])
    with pytest.warns(UserWarning, match="options in the model are not read"):
        ours.InferenceSession(data(), read_config_from_model=1)
    with pytest.warns(UserWarning, match=r"write providers=\['CPUExecutionProvider'\]"):
        ours.InferenceSession(data(), providers="CPUExecutionProvider")
    with pytest.raises(TypeError, match="no argument 'sess_option'"):
        ours.InferenceSession(data(), sess_option=options)
    options.enable_cpu_mem_arena = False
    with caplog.at_level("INFO", "fusedops.onnxruntime"):
        ours.InferenceSession(data(), options)
    assert "enable_cpu_mem_arena = False has no counterpart" in caplog.text
    assert "session.unheard_of" in caplog.text


def test_numbers_become_the_type_of_the_input(ours):
    session = ours.InferenceSession(data())
    assert session.run(["m"], {"x": X, "k": 2})[0] == 4 and session.run(["m"], {"x": X, "k": np.int32(2)})[0] == 4
    for wrong in (2.5, 2**70, [2.5]):
        with pytest.raises(RuntimeError, match="'k'"):
            session.run(["m"], {"x": X, "k": wrong})
    big = X.astype(X.dtype.newbyteorder())
    assert np.array_equal(session.run(["y"], {"x": big, "k": K})[0], Y)


def test_a_seed_of_all_sessions(ours):
    noise = graph("(float[n] x) => (float[n] y) { r = RandomNormalLike(x)  y = Add(x, r) }")
    try:
        ours.set_seed(3)
        first, second = (ours.InferenceSession(noise).run(None, {"x": X[0]})[0] for _ in range(2))
    finally:
        ours.set_seed(None)
    assert np.array_equal(first, second)


def test_unsupported_types_are_not_implemented(ours):
    with pytest.raises(ours.errors.NotImplemented, match="'x'"):
        ours.InferenceSession(graph("(string[2] x) => (string[2] y) { y = Identity(x) }"))
