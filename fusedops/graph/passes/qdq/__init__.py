"""Networks with QuantizeLinear and DequantizeLinear: their layers and values become int8 ones."""
