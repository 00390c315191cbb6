"""Operators of ONNX Runtime's domain com.microsoft."""
