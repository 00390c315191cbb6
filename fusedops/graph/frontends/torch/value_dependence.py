"""Whether a module's Python looks at the values of tensors that come from its inputs: tracing would keep what it
saw."""

import linecache
import os
import textwrap
import traceback

from .... import _core

_LOOKS = {"__bool__", "__float__", "__int__", "__index__", "item", "tolist", "numpy", "__array__", "__contains__"}


def look_at_values(torch, module, example):
    """The line at which the module looks at a value that its inputs decide, in words, or None."""
    found = []

    class Watch(torch.overrides.TorchFunctionMode):  # type: ignore[name-defined]
        def __init__(self):
            super().__init__()
            self.from_inputs = torch.utils.weak.WeakIdKeyDictionary()

        def __torch_function__(self, func, types, args=(), kwargs=None):
            given = torch.utils._pytree.tree_leaves((args, kwargs or {}))
            depends = any(isinstance(x, torch.Tensor) and x in self.from_inputs for x in given)
            if depends and getattr(func, "__name__", "") in _LOOKS:
                found.append(_line(torch))
            result = func(*args, **(kwargs or {}))
            if depends:
                self.note(result)
            return result

        def note(self, value):
            self.from_inputs.update(
                {x: True for x in torch.utils._pytree.tree_leaves(value) if isinstance(x, torch.Tensor)}
            )

    leaves = [x.clone() for x in example.leaves]
    watch = Watch()
    watch.note(leaves)
    with watch:
        module(*example.replaced(example.args, leaves), **example.replaced(example.kwargs, leaves))
    return found[0] if found else None


def _line(torch):
    """The innermost line of the user's of those that are being run."""
    return line_of(torch, [(f.f_code.co_filename, n) for f, n in traceback.walk_stack(None)][::-1])


def line_of(torch, frames):
    """The innermost line of the user's of some (file, line number)s, in words; none is no words."""
    for file, number in reversed(frames):
        line = linecache.getline(file, number).strip()
        if line and not is_inside(file, torch, _core):
            return f" ({os.path.basename(file)}, line {number}: {textwrap.shorten(line, 80)})"
    return ""


def is_inside(file, *modules):
    """Whether a file is in the folder of one of these modules: torch's is, torchvision's next to it is not."""
    return any(file.startswith(os.path.join(os.path.dirname(m.__file__), "")) for m in modules)
