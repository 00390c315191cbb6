import pytest

from catalog import BYTE_PRODUCTS, using_byte_products


@pytest.fixture(params=BYTE_PRODUCTS)
def products(isa, request):
    """With the processor's tiles or dot product of bytes, and without."""
    with using_byte_products(request.param) as there:
        if not there and request.param != "words":
            pytest.skip(f"no {request.param} of bytes")
        yield request.param
