import pytest

from catalog import INT8_PRODUCTS, using_int8_products
from fusedops import _core


@pytest.fixture(params=INT8_PRODUCTS)
def products(isa, request):
    """With the processor's tiles or int8 dot product, and without."""
    with using_int8_products(request.param) as there:
        if not there and request.param != "words":
            pytest.skip(f"no {request.param} of bytes")
        yield request.param


@pytest.fixture(params=["tiles", "dots", "float32"])
def bf16_products(isa, request):
    """By the processor's tiles, by its dot product of bfloat16, and by neither."""
    with using_int8_products({"float32": "words"}.get(request.param, request.param)) as there:
        there = _core.has_bfloat16() == (request.param != "float32") and (there or request.param == "float32")
        if not there:
            pytest.skip(f"no {request.param} of bfloat16")
        yield request.param
