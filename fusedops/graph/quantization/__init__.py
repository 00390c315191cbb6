"""A float32 network in int8: calibration, choice and insertion of QuantizeLinear and DequantizeLinear."""
