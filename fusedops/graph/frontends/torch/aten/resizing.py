"""Resizing of images and sampling at computed places."""

import numpy as np

from ..fx_values import sizes


def _resize(n, mode, **attrs):
    """By sizes, or by factors, which torch then uses for positions too."""

    def read(p, x, output_size=None, align_corners=False, scale_factors=None, scales=None, **given):
        coordinates = "align_corners" if align_corners else attrs.get("transform", "half_pixel")
        factors = scale_factors or [given.get(f"scales_{a}") for a in "dhw"[3 - n :]] if scales is None else [scales]
        settings = {k: v for k, v in attrs.items() if k not in ("transform", "exact_for")}
        settings |= dict(mode=mode, coordinate_transformation_mode=coordinates)
        if factors and all(f is not None for f in factors) and output_size is None:
            settings["exact_for"] = attrs.get("exact_for", [1])
            return p.op("Resize", x, None, np.array([1, 1, *factors], np.float32), **settings)
        return p.op("Resize", x, None, None, p.shape(p.made.shape), **settings)

    return read


def _weighted(mode, **attrs):
    """Cubic or antialiased: between known sizes each axis is a product with the weights that torch gives each pixel,
    which its resizing of unit vectors shows."""

    def read(p, x, output_size=None, align_corners=False, scale_factors=None, **given):
        (h, w), (oh, ow) = x.shape[2:], sizes(p.made.shape)[2:]
        if not all(isinstance(n, int) for n in (h, w, oh, ow)):
            return _resize(2, mode, **attrs)(p, x, output_size, align_corners, scale_factors, **given)
        resize = getattr(p.torch.ops.aten, p.fx_node.target._schema.name.split("::")[1]).default
        fh, fw = scale_factors or (given.get("scales_h"), given.get("scales_w"))
        rows, columns = (p.torch.eye(n, dtype=x.dtype)[None, :, :, None].repeat(1, 1, 1, 2) for n in (h, w))
        rows = resize(rows, [oh, 2], align_corners, fh, None)[0, :, :, 0]
        columns = resize(columns.mT, [2, ow], align_corners, None, fw)[0, :, 0]
        return p.op("MatMul", rows.T, p.op("MatMul", x, columns))

    return read


def _grid_sampler(p, x, grid, interpolation_mode, padding_mode, align_corners):
    modes, borders = ("linear", "nearest", "cubic"), ("zeros", "border", "reflection")
    return p.op(
        "GridSample",
        x,
        grid,
        mode=modes[interpolation_mode],
        padding_mode=borders[padding_mode],
        align_corners=int(align_corners),
    )


_NAMES = {1: "linear1d", 2: "bilinear2d", 3: "trilinear3d"}
READERS = {
    **{
        f"upsample_nearest{n}d": _resize(n, "nearest", transform="asymmetric", nearest_mode="floor", exact_for=[1, 2])
        for n in (1, 2, 3)
    },
    **{
        f"_upsample_nearest_exact{n}d": _resize(n, "nearest", nearest_mode="round_prefer_ceil", exact_for=[])
        for n in (1, 2, 3)
    },
    **{f"upsample_{name}": _resize(n, "linear") for n, name in _NAMES.items()},
    "upsample_bicubic2d": _weighted("cubic", cubic_coeff_a=-0.75),
    "_upsample_bilinear2d_aa": _weighted("linear", antialias=1, exclude_outside=1),
    "_upsample_bicubic2d_aa": _weighted("cubic", antialias=1, exclude_outside=1, cubic_coeff_a=-0.5),
    **dict.fromkeys(("grid_sampler", "grid_sampler_2d", "grid_sampler_3d"), _grid_sampler),
}
