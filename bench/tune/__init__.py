"""Measurements that judge the cost model of convolutions (csrc/conv/cost.c), and the scripts that make and use them."""
