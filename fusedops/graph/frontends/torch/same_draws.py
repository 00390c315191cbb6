"""Modules that draw the numbers that a network draws under `draws.fixed`, so that the two can be compared."""

import numpy as np

from ...operators.random_numbers import multinomial, normal, uniform


def called_alike(torch, call):
    """Calls a module with fixed numbers where it draws any; torch's own generator stays as it is. Torch has control
    flow that runs in no mode: one is used only if numbers were drawn."""
    before = torch.get_rng_state()
    result = call()
    if torch.equal(before, torch.get_rng_state()):
        return result
    torch.set_rng_state(before)
    with _drawing_alike(torch):
        result = call()
    torch.set_rng_state(before)
    return result


def _drawing_alike(torch):
    """A mode of torch in which each operator that draws random numbers makes its own of those that are fixed."""

    class SameDraws(torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[name-defined]
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            kwargs = kwargs or {}
            made = func(*args, **kwargs)
            draw = torch.Tag.nondeterministic_seeded in func.tags and _DRAWN.get(func._schema.name.split("::")[1])
            if draw:
                given = dict(zip((a.name for a in func._schema.arguments), args, strict=False)) | kwargs
                numbers = {
                    k: v.detach().float().numpy() if isinstance(v, torch.Tensor) else v for k, v in given.items()
                }
                dtype = np.float64 if made.dtype == torch.float64 else np.float32
                found = draw(np.random.default_rng(0), tuple(made.shape), dtype, numbers)
                made.copy_(torch.as_tensor(np.asarray(found)))
            return made

    return SameDraws()


def _rand(g, shape, dtype, given):
    return uniform(g, shape, dtype, given.get("from", 0), given.get("to", 1))


def _normal(g, shape, dtype, given):
    return normal(g, shape, dtype) * given.get("std", 1) + given.get("mean", 0)


def _exponential(g, shape, dtype, given):
    return -np.log(1 - uniform(g, shape, dtype)) / given.get("lambd", 1)


def _bernoulli(g, shape, dtype, given):
    return uniform(g, shape, np.float32) < np.asarray(given.get("p", given["self"]), np.float32)


def _bernoulli_changed(g, shape, dtype, given):
    return _bernoulli(g, shape, dtype, {"self": 0.5} | ({"p": given["p"]} if "p" in given else {}))


def _integers(g, shape, dtype, given):
    low = given.get("low", 0)
    return np.floor(uniform(g, shape, np.float64) * (given["high"] - low)) + low


def _classes(g, shape, dtype, given):
    with np.errstate(divide="ignore"):
        logits, n = np.log(given["self"]), given["num_samples"]
        if given.get("replacement"):
            return multinomial(g, np.atleast_2d(logits), n, np.int64).reshape(shape)
        race = logits - np.log(-np.log(uniform(g, logits.shape, np.float32)))
    return np.argsort(-race, -1, "stable")[..., :n]


def _order(g, shape, dtype, given):
    return np.argsort(uniform(g, shape, np.float64), kind="stable")


_DRAWN = {
    "bernoulli": _bernoulli,
    "bernoulli_": _bernoulli_changed,
    "exponential": _exponential,
    "exponential_": _exponential,
    "multinomial": _classes,
    "normal": _normal,
    "normal_": _normal,
    "normal_functional": _normal,
    "rand": _rand,
    "rand_like": _rand,
    "randint": _integers,
    "randint_like": _integers,
    "randn": _normal,
    "randn_like": _normal,
    "randperm": _order,
    "uniform": _rand,
    "uniform_": _rand,
}
