"""Triton kernels of BatchNorm with ReLU: images as rows of channels, every sum in float32.

A pass is two kernels over the rows and a small one between them. Each program of the first sums
its own rows, and the small one adds those sums in a fixed order, so that results do not vary.
"""

import triton
import triton.language as tl


@triton.jit
def not_below_zero(value):
    """Return max(value, 0), and NaN for NaN: a network that diverges must show it."""
    return tl.maximum(value, 0.0, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def sum_rows(
    x,
    means,
    squares,
    rows,
    channels,
    per_program,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """Give the mean of some rows, and the sum of squares about it, per channel."""
    program = tl.program_id(0)
    c = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    inside_c = c < channels
    first = program * per_program
    last = tl.minimum(first + per_program, rows)

    # About one of the values, so that a mean far from 0 costs no digits.
    origin = tl.load(x + first * channels + c, mask=inside_c, other=0.0).to(tl.float32)
    total = tl.zeros((ROWS, CHANNELS), tl.float32)
    total_squares = tl.zeros((ROWS, CHANNELS), tl.float32)
    for start in range(first, last, ROWS):
        r = start + tl.arange(0, ROWS)
        inside = (r < last)[:, None] & inside_c[None, :]
        value = tl.load(x + r[:, None] * channels + c[None, :], mask=inside, other=0.0)
        value = tl.where(inside, value.to(tl.float32) - origin[None, :], 0.0)
        total += value
        total_squares += value * value

    count = (last - first).to(tl.float32)
    away = tl.sum(total, 0) / count
    tl.store(means + program * channels + c, origin + away, mask=inside_c)
    about_mean = tl.sum(total_squares, 0) - count * away * away
    tl.store(squares + program * channels + c, not_below_zero(about_mean), mask=inside_c)


@triton.jit
def join_moments(
    means,
    squares,
    weight,
    bias,
    running_mean,
    running_var,
    batches,
    mean_out,
    scale_out,
    inverse_out,
    shift_out,
    rows,
    channels,
    per_program,
    programs,
    momentum,
    eps,
    counters,
    PROGRAMS: tl.constexpr,
    COUNTERS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """Join the moments of all programs, and move the running statistics."""
    c = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)
    inside_c = c < channels

    # About the mean of the first program, so that one look at the parts is enough.
    origin = tl.load(means + c, mask=inside_c, other=0.0)
    total = tl.zeros((PROGRAMS, CHANNELS), tl.float32)
    total_squares = tl.zeros((PROGRAMS, CHANNELS), tl.float32)
    for start in range(0, programs, PROGRAMS):
        p = start + tl.arange(0, PROGRAMS)
        inside = (p < programs)[:, None] & inside_c[None, :]
        at = p[:, None] * channels + c[None, :]
        count = tl.minimum(per_program, rows - p * per_program).to(tl.float32)[:, None]
        part = tl.load(means + at, mask=inside, other=0.0) - origin[None, :]
        within = tl.load(squares + at, mask=inside, other=0.0)
        total += tl.where(inside, count * part, 0.0)
        total_squares += tl.where(inside, within + count * part * part, 0.0)

    away = tl.sum(total, 0) / rows
    mean = origin + away
    variance = not_below_zero(tl.sum(total_squares, 0) / rows - away * away)

    inverse = 1.0 / tl.sqrt(variance + eps)
    scale = tl.load(weight + c, mask=inside_c, other=0.0) * inverse
    shift = tl.load(bias + c, mask=inside_c, other=0.0) - mean * scale
    tl.store(mean_out + c, mean, mask=inside_c)
    tl.store(inverse_out + c, inverse, mask=inside_c)
    tl.store(scale_out + c, scale, mask=inside_c)
    tl.store(shift_out + c, shift, mask=inside_c)

    unbiased = variance * rows / (rows - 1)
    old_mean = tl.load(running_mean + c, mask=inside_c, other=0.0)
    old_var = tl.load(running_var + c, mask=inside_c, other=0.0)
    tl.store(running_mean + c, old_mean + momentum * (mean - old_mean), mask=inside_c)
    tl.store(running_var + c, old_var + momentum * (unbiased - old_var), mask=inside_c)
    # Where members of an ensemble share the layer, each counts its batches.
    if tl.program_id(0) == 0:
        m = tl.arange(0, COUNTERS)
        tl.store(batches + m, tl.load(batches + m, mask=m < counters) + 1, mask=m < counters)


@triton.jit
def scale_and_rectify(
    x,
    residual,
    out,
    scale,
    shift,
    rows,
    channels,
    ADD: tl.constexpr,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """Write relu(scale x + shift), or relu(scale x + shift + residual)."""
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    inside = (r < rows)[:, None] & (c < channels)[None, :]
    at = r[:, None] * channels + c[None, :]

    a = tl.load(scale + c, mask=c < channels, other=0.0)
    b = tl.load(shift + c, mask=c < channels, other=0.0)
    value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32) * a[None, :] + b[None, :]
    if ADD:
        value += tl.load(residual + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + at, not_below_zero(value).to(out.dtype.element_ty), mask=inside)


@triton.jit
def sum_gradients(
    gradient,
    x,
    out,
    rectified,
    mean,
    inverse,
    scale,
    shift,
    sums,
    products,
    rows,
    channels,
    per_program,
    ADD: tl.constexpr,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """Sum the gradient before ReLU, and its products with the normalised values, over some rows.

    With a residual (`ADD`), `out` says where ReLU was open, and the gradient before it is written
    to `rectified`, since it is the gradient of the residual too.
    """
    program = tl.program_id(0)
    c = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    inside_c = c < channels
    first = program * per_program
    last = tl.minimum(first + per_program, rows)

    m = tl.load(mean + c, mask=inside_c, other=0.0)
    inv = tl.load(inverse + c, mask=inside_c, other=0.0)
    a = tl.load(scale + c, mask=inside_c, other=0.0)
    b = tl.load(shift + c, mask=inside_c, other=0.0)
    total = tl.zeros((ROWS, CHANNELS), tl.float32)
    total_products = tl.zeros((ROWS, CHANNELS), tl.float32)
    for start in range(first, last, ROWS):
        r = start + tl.arange(0, ROWS)
        inside = (r < last)[:, None] & inside_c[None, :]
        at = r[:, None] * channels + c[None, :]
        value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
        g = tl.load(gradient + at, mask=inside, other=0.0).to(tl.float32)
        if ADD:
            g = tl.where(tl.load(out + at, mask=inside, other=0.0).to(tl.float32) <= 0, 0.0, g)
            tl.store(rectified + at, g.to(rectified.dtype.element_ty), mask=inside)
        else:
            g = tl.where(value * a[None, :] + b[None, :] <= 0, 0.0, g)
        total += g
        total_products += g * (value - m[None, :]) * inv[None, :]

    tl.store(sums + program * channels + c, tl.sum(total, 0), mask=inside_c)
    tl.store(products + program * channels + c, tl.sum(total_products, 0), mask=inside_c)


@triton.jit
def join_gradients(
    sums,
    products,
    weight_gradient,
    bias_gradient,
    channels,
    programs,
    PROGRAMS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """Add up the sums of all programs: the gradients of weight and bias."""
    c = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)
    total = tl.zeros((PROGRAMS, CHANNELS), tl.float32)
    total_products = tl.zeros((PROGRAMS, CHANNELS), tl.float32)
    for start in range(0, programs, PROGRAMS):
        p = start + tl.arange(0, PROGRAMS)
        inside = (p < programs)[:, None] & (c < channels)[None, :]
        at = p[:, None] * channels + c[None, :]
        total += tl.load(sums + at, mask=inside, other=0.0)
        total_products += tl.load(products + at, mask=inside, other=0.0)
    tl.store(bias_gradient + c, tl.sum(total, 0), mask=c < channels)
    tl.store(weight_gradient + c, tl.sum(total_products, 0), mask=c < channels)


@triton.jit
def input_gradient(
    gradient,
    x,
    out,
    mean,
    inverse,
    scale,
    shift,
    weight_gradient,
    bias_gradient,
    rows,
    channels,
    RECTIFIED: tl.constexpr,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """Write scale (g - mean of g - normalised x times mean of their product); see `sum_gradients`.

    `RECTIFIED` says that the gradient is that before ReLU already.
    """
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    inside_c = c < channels
    inside = (r < rows)[:, None] & inside_c[None, :]
    at = r[:, None] * channels + c[None, :]

    a = tl.load(scale + c, mask=inside_c, other=0.0)
    b = tl.load(shift + c, mask=inside_c, other=0.0)
    m = tl.load(mean + c, mask=inside_c, other=0.0)
    inv = tl.load(inverse + c, mask=inside_c, other=0.0)
    mean_g = tl.load(bias_gradient + c, mask=inside_c, other=0.0) / rows
    mean_product = tl.load(weight_gradient + c, mask=inside_c, other=0.0) / rows

    value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    g = tl.load(gradient + at, mask=inside, other=0.0).to(tl.float32)
    if not RECTIFIED:
        g = tl.where(value * a[None, :] + b[None, :] <= 0, 0.0, g)
    normalised = (value - m[None, :]) * inv[None, :]
    result = a[None, :] * (g - mean_g[None, :] - normalised * mean_product[None, :])
    tl.store(out + at, result.to(out.dtype.element_ty), mask=inside)
