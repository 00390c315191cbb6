# What the processor has, and how many threads there are. Included by _core.pyx.

def isa_names():
    return [fo_isa_name(i).decode() for i in range(fo_isa_count()) if fo_isa_available(i)]


def isa_count():
    """Those of this build, which the processor may lack."""
    return fo_isa_count()


def get_isa():
    return fo_isa_name(fo_get_isa()).decode()


def set_isa(str name):
    for i in range(fo_isa_count()):
        if fo_isa_available(i) and fo_isa_name(i).decode() == name:
            fo_set_isa(i)
            return
    raise ValueError(f"instruction set {name!r} is not available; this machine has {', '.join(isa_names())}")


def set_num_threads(int n):
    fo_set_num_threads(n)


def get_num_threads():
    return fo_get_num_threads()


def limit_threads(int n):
    """Limits the threads of operations that the calling thread starts, 0 for no limit; returns the limit it had."""
    return fo_limit_threads(n)


def cgroup_quota(str root, str list):
    """For tests: the processors that the cgroups of a list (/proc/self/cgroup) allow, mounted under `root`
    (/sys/fs/cgroup); 0 for no limit."""
    return fo_cgroup_quota(root.encode(), list.encode())


def build_info():
    return {"threading": fo_threading().decode(), "compiler": fo_compiler().decode()}


def choices():
    """For tests: how often a convolution's algorithm has been chosen: calls of known sizes choose none."""
    return fo_conv2d_choices()


def activation_names():
    """The activations of csrc/include/fusedops/activations.h, in the order of their codes."""
    return tuple([fo_activation_name(kind).decode() for kind in range(FO_ACTIVATIONS)])


def machine():
    """Returns the description of this machine (csrc/machine/machine.h): caches, whose sizes are held to what blocks are
    made for, processors, and what is used of its instructions."""
    return dict(fo_this_machine()[0])


def set_machine(**fields):
    """For tests: what is made from now on is as on another machine, of which some fields are told."""
    cdef fo_machine m = {**machine(), **fields}
    fo_set_machine(&m)
    fo_forget_kernels()


def variants():
    """For tests: the names of the kernel variants that ran since the last call of this; None in a build without
    FUSEDOPS_TRACE=1."""
    cdef int i, most = fo_variants_most()
    if not most:
        return None
    names = {fo_variant(i).decode() for i in range(most) if fo_variant(i) != NULL}
    fo_forget_variants()
    return names
