# The kinds of steps: the tensors, the options and the function of each. Included by _core.pyx.

STEPS = {}  # name: StepKind
REFUSALS = {}  # fo_step_kind: what values it refuses


cdef StepKind step(str name, fo_step_kind call, fill_step fill, str arguments, list at, dict defaults={},
                   str refuses=None):
    """Describes a kind of step. A tensor of its arguments is written `name:form`, with `~other` if it has the shape of
    another, `!` if it is written and `?` if it may be None. Forms: an image of four axes, in `lines` if pixels or
    channels are neighbors, in `pixels` if channels are; `rows`, if the last axis is contiguous; `indices` of int64;
    any other `tensor`. `bytes`, `rows_any` and `image_any` have elements of any type. `at` are the places of their
    pointers in fo_step. `refuses`: what it means that the function in C returns FO_OUTSIDE."""
    cdef StepKind k = StepKind.__new__(StepKind)
    cdef int i
    words = [word.partition(":") for word in arguments.split()]
    marks = [(*word.rstrip("!?").partition("~"), word, form) for word, colon, form in words if colon]
    k.name, k.names, k.call, k.fill = name, tuple([word.rstrip("!?").partition("~")[0] for word,
                                                   *_ in words]), call, fill
    k.tensors, k.count = tuple([m[0] for m in marks]), len(marks)
    k.results, optional = tuple([m[0] for m in marks if "!" in m[3]]), [m[0] for m in marks if "?" in m[3]]
    k.indices = frozenset([m[0] for m in marks if m[4] == "indices"])
    k.options = tuple([n for n in k.names if n not in k.tensors])
    k.defaults, k.independent_rows = dict.fromkeys(optional) | defaults, lambda arguments: True
    for i, m in enumerate(marks):
        k.forms[i], k.at[i], k.optional[i] = FORMS.index(m[4]), at[i], "?" in m[3]
        k.alike[i] = k.tensors.index(m[2]) if m[2] else -1
    k.refuses = refuses
    if refuses is not None:
        REFUSALS[call] = refuses
    STEPS[name] = k
    return k


cdef fo_step sample  # its fields are where those of every step are


cdef inline Py_ssize_t at(const void *field):
    """The bytes before a field of the sample."""
    return <const char *>field - <const char *>&sample


def _describe_steps():
    cdef fo_step *s = &sample
    not_first, never = (lambda a: a["axis"] > 0), (lambda a: False)
    padding, plain = {"top": 0, "left": 0}, {"activation": None}
    outside = "an index is outside its axis: one of n elements has indices -n..n-1"
    gathered = outside + ", and lengths of sequences 0..n"  # which become indices
    step("conv2d", FO_STEP_CONV2D, fill_conv2d, "layer x:lines y!:lines residual~y?:image top left",
         [at(&s.conv2d.x), at(&s.conv2d.y), at(&s.conv2d.residual)], padding)
    step("separable", FO_STEP_SEPARABLE, fill_separable, "layer x:lines y!:lines residual~y?:image top left",
         [at(&s.separable.x), at(&s.separable.y), at(&s.separable.residual)], padding)
    step("conv_transpose", FO_STEP_CONV_TRANSPOSE, fill_conv_transpose,
         "layer x:lines y!:pixels residual~y?:pixels top left",
         [at(&s.conv_transpose.x), at(&s.conv_transpose.y), at(&s.conv_transpose.residual)], padding)
    step("linear", FO_STEP_LINEAR, fill_linear, "layer x:rows y!:rows residual~y?:rows",
         [at(&s.linear.x), at(&s.linear.y), at(&s.linear.residual)])
    step("recurrent", FO_STEP_SEQUENCE, fill_recurrent, "layer x:rows y!:rows h0?:tensor c0?:tensor hn!?:tensor "
                                                        "cn!?:tensor lengths?:indices",
         [at(&s.sequence.x), at(&s.sequence.y), at(&s.sequence.h0), at(&s.sequence.c0), at(&s.sequence.hn),
          at(&s.sequence.cn), at(&s.sequence.lengths)]).independent_rows = never
    step("affine", FO_STEP_POINTWISE, fill_affine, "x~y:tensor y!:tensor residual~y?:tensor scale shift activation",
         [at(&s.pointwise.x), at(&s.pointwise.y), at(&s.pointwise.residual)],
         {"scale": None, "shift": None, "activation": None}).in_place = True
    step("unary", FO_STEP_ELEMENTWISE, fill_unary, "name x~y:tensor y!:tensor activation",
         [at(&s.elementwise.a), at(&s.elementwise.y)], plain).in_place = True
    step("binary", FO_STEP_ELEMENTWISE, fill_binary, "name a~y:tensor b~y:tensor y!:tensor activation",
         [at(&s.elementwise.a), at(&s.elementwise.b), at(&s.elementwise.y)], plain).in_place = True
    step("copy", FO_STEP_COPY, fill_copy, "x~y:bytes y!:bytes size", [at(&s.copy.x), at(&s.copy.y)], {"size": 4})
    step("fill", FO_STEP_FILL, fill_fill, "y!:bytes value size", [at(&s.fill.y)], {"size": 4})
    step("map", FO_STEP_MAP, fill_map, "name a~y:bytes b~y?:bytes c~y?:bytes y!:bytes of to",
         [at(&s.map.a), at(&s.map.b), at(&s.map.c), at(&s.map.y)])
    step("gather", FO_STEP_MAP, fill_gather, "x:bytes indices:indices y!:bytes along to single",
         [at(&s.map.a), at(&s.map.b), at(&s.map.y)],
         {"to": FLOAT32, "single": False}, gathered).independent_rows = (
             lambda a: a["along"] > 0 and not a.get("single"))  # single elements' indices have rows, too
    step("grid_sample", FO_STEP_GRID_SAMPLE, fill_grid_sample,
         "x:pixels rows:tensor columns~rows:tensor y!:pixels mode beyond coordinates",
         [at(&s.grid_sample.x), at(&s.grid_sample.rows.places), at(&s.grid_sample.columns.places),
          at(&s.grid_sample.y)], {}, "the images have no pixels")
    step("roi_align", FO_STEP_ROI_ALIGN, fill_roi_align,
         "x:pixels boxes:rows images:indices y!:pixels samples scale shift centred",
         [at(&s.roi_align.x), at(&s.roi_align.boxes), at(&s.roi_align.batch), at(&s.roi_align.y)],
         {}, "a box is not finite, or in no image").independent_rows = never
    step("scatter", FO_STEP_SCATTER, fill_scatter,
         "x~y:bytes indices:indices updates:bytes y!:bytes reduction along of",
         [at(&s.scatter.x), at(&s.scatter.indices), at(&s.scatter.updates), at(&s.scatter.y)],
         {}, outside).independent_rows = never
    step("argmax", FO_STEP_ARGMAX, fill_argmax, "least x:tensor y!:bytes axis",
         [at(&s.argmax.x), at(&s.argmax.y)]).independent_rows = not_first
    step("top_k", FO_STEP_TOP_K, fill_top_k, "least x:tensor y!:tensor places!:bytes axis",
         [at(&s.top_k.x), at(&s.top_k.y), at(&s.top_k.places)]).independent_rows = not_first
    step("cumsum", FO_STEP_CUMSUM, fill_cumsum, "x~y:bytes y!:bytes axis exclusive reverse of",
         [at(&s.cumsum.x), at(&s.cumsum.y)]).independent_rows = not_first
    step("rotate", FO_STEP_ROTATE, fill_rotate, "x~y:tensor y!:tensor cos:rows sin~cos:rows interleaved",
         [at(&s.rotate.x), at(&s.rotate.y), at(&s.rotate.c), at(&s.rotate.s)])
    step("max_pool", FO_STEP_POOL, fill_max_pool, "x:image y!:image kernel stride before dilation",
         [at(&s.pool.x), at(&s.pool.y)], {"before": (0, 0), "dilation": (1, 1)})
    step("avg_pool", FO_STEP_POOL, fill_avg_pool, "x:image y!:image kernel stride before dilation counted",
         [at(&s.pool.x), at(&s.pool.y)])
    step("resize", FO_STEP_RESIZE, fill_resize, "x:lines y!:lines rows columns", [at(&s.resize.x), at(&s.resize.y)])
    step("lrn", FO_STEP_LRN, fill_lrn, "x~y:pixels y!:pixels size alpha beta bias", [at(&s.lrn.x), at(&s.lrn.y)])
    step("reduce", FO_STEP_REDUCE, fill_reduce, "name x:tensor y!:tensor axes",
         [at(&s.reduce.x), at(&s.reduce.y)]).independent_rows = \
        lambda a: 0 not in a["axes"]
    step("softmax", FO_STEP_SOFTMAX, fill_softmax, "x~y:tensor y!:tensor axis log",
         [at(&s.softmax.x), at(&s.softmax.y)], {"log": False}).independent_rows = not_first
    step("norm", FO_STEP_NORM, fill_norm, "x~y:tensor y!:tensor eps scale shift first_axis residual~y?:tensor rms",
         [at(&s.norm.x), at(&s.norm.y), at(&s.norm.residual)],
         {"scale": None, "shift": None, "first_axis": -1, "rms": False}).independent_rows = \
        lambda a: a["first_axis"] > 0
    step("instance_norm", FO_STEP_NORM, fill_instance_norm, "x~y:tensor y!:tensor eps scale shift",
         [at(&s.norm.x), at(&s.norm.y)], {"scale": None, "shift": None})
    step("matmul", FO_STEP_MATMUL, fill_matmul, "a:tensor b:tensor y!:tensor scale activation",
         [at(&s.matmul.a), at(&s.matmul.b), at(&s.matmul.y)], {"scale": 1.0, "activation": None}).independent_rows = \
        lambda a: len(a["y"].shape) > 2
    step("grouped_matmul", FO_STEP_GROUPED_MATMUL, fill_grouped_matmul, "x:tensor w:tensor ends:indices y!:rows",
         [at(&s.grouped_matmul.each.a), at(&s.grouped_matmul.each.b), at(&s.grouped_matmul.ends),
          at(&s.grouped_matmul.each.y)],
         {}, "the ends of the groups do not rise from 0 to the number of rows").independent_rows = never
    step("attention", FO_STEP_ATTENTION, fill_attention,
         "q:tensor k:bytes v:bytes y!:tensor mask?:tensor kv_type scale causal diagonal window softcap precision "
         "diagonals?:indices sinks?:rows",
         [at(&s.attention.q), at(&s.attention.k), at(&s.attention.v), at(&s.attention.y), at(&s.attention.added),
          at(&s.attention.diagonals), at(&s.attention.sinks)],
         {"kv_type": FLOAT32, "scale": 1.0, "causal": False, "diagonal": 0, "window": 0, "softcap": 0.0,
          "precision": "float32"}
         ).independent_rows = lambda a: len(a["y"].shape) > 3 and a.get("diagonals") is None
    step("append", FO_STEP_APPEND, fill_append, "past?:rows_any x:rows_any y!:rows_any begins:indices size",
         [at(&s.append.past), at(&s.append.x), at(&s.append.y), at(&s.append.begins)],
         {"size": 4}, "the rows do not follow those of earlier calls").independent_rows = never
    step("qconv2d", FO_STEP_CONV2D, fill_qconv2d,
         "layer types x:image_any y!:image_any residual~y?:image_any top left",
         [at(&s.conv2d.x), at(&s.conv2d.y), at(&s.conv2d.residual)], padding)
    step("qlinear", FO_STEP_LINEAR, fill_qlinear, "layer types x:bytes y!:bytes residual~y?:bytes",
         [at(&s.linear.x), at(&s.linear.y), at(&s.linear.residual)]).independent_rows = \
        lambda a: a["types"][0] != np.float32
    step("convert", FO_STEP_CONVERT, fill_convert, "x~y:bytes y!:bytes from to q",
         [at(&s.convert.x), at(&s.convert.y)])
    fixed = step("requantize", FO_STEP_REQUANTIZE, fill_requantize, "x~y:tensor y!:tensor q",
                 [at(&s.requantize.x), at(&s.requantize.y)], {"q": None})
    fixed.in_place, fixed.independent_rows = True, lambda a: a.get("q") is not None
    step("lookup", FO_STEP_LOOKUP, fill_lookup, "x~y:bytes y!:bytes table",
         [at(&s.lookup.x), at(&s.lookup.y)]).in_place = True
    step("qbinary", FO_STEP_QBINARY, fill_qbinary, "name types q a~y:bytes b~y:bytes y!:bytes activation",
         [at(&s.qbinary.a), at(&s.qbinary.b), at(&s.qbinary.y)], plain)
    step("qpool", FO_STEP_QPOOL, fill_qpool,
         "types q x:image_any y!:image_any kernel stride before dilation counted",
         [at(&s.qpool.pool.x), at(&s.qpool.pool.y)], {"dilation": (1, 1), "counted": None})
    step("nearest", FO_STEP_NEAREST, fill_nearest, "x:image_any y!:image_any rows columns",
         [at(&s.nearest.x), at(&s.nearest.y)])


_describe_steps()
