// Elementwise kernels: exp and tanh, norms, gated activations, rotary embedding.
// Included only by the levels' .cpp files, inside the level's own namespace.

// e^x = 2^n * (1 + tail). Cody-Waite reduction to |r| <= ln(2) / 2, then a degree-6 polynomial (Cephes expf, in
// pairs of terms: a shorter chain of dependent operations); below 2 ulp. The low bits of `biased` are those of n + kBias.
struct Exponential {
    FW tail, n;
    UW biased;
};

template <int kBias>
LANES Exponential reduce_exp(FW x) {
    const FW magic = splat_wide(12582912.0f + kBias);  // 1.5 * 2^23: adding it rounds to an integer in the low bits
    const FW shifted = fused(x, splat_wide(1.44269504088896341f), magic);
    const FW n = shifted - magic;
    const FW r = fused(n, splat_wide(2.12194440e-4f), fused(n, splat_wide(-0.693359375f), x));
    const FW r2 = r * r;
    const FW p5 = fused(r, splat_wide(1.9875691500e-4f), splat_wide(1.3981999507e-3f));
    const FW p3 = fused(r, splat_wide(8.3334519073e-3f), splat_wide(4.1665795894e-2f));
    const FW p1 = fused(r, splat_wide(1.6666665459e-1f), splat_wide(5.0000001201e-1f));
    const FW p = fused(fused(p5, r2, p3), r2, p1);
    return {fused(p, r2, r), n, as_bits(shifted)};
}

// e^x, but e^-87 below -87. Results over the largest float become infinity, NaN stays NaN.
LANES FW exp_from_87(FW x) {
    const Exponential e = reduce_exp<2 * 127>(smaller(splat_wide(89.0f), larger(splat_wide(-87.0f), x)));
    const FW significand = e.tail + splat_wide(1.0f);
#if defined(__AVX512F__) || defined(MILLSTREAM_EMULATE)
    return times_power_of_two(significand, e.n);
#else
    // n may be 128: scale in two steps, by 2^(n / 2) and the rest. The exponents of both have the bias of 127.
    const UW half = e.biased << 22 & 0xff800000u;
    return significand * as_float(half) * as_float((e.biased << 23) - half);
#endif
}

// e^x. Results under e^-87 become zero, results over the largest float infinity, NaN stays NaN.
LANES FW exp_wide(FW x) { return select(x < splat_wide(-87.0f), splat_wide(0.0f), exp_from_87(x)); }

// e^x for x <= 0, or little more, or NaN, with less work: at -88 n is -127, whose "power" is zero.
LANES FW exp_of_negative(FW x) {
    const Exponential e = reduce_exp<127>(larger(splat_wide(-88.0f), x));
    const FW power = as_float(e.biased << 23);
    return fused(e.tail, power, power);
}

// tanh x: odd polynomial near zero (Cephes tanhf), else from e^2|x|.
LANES FW tanh_wide(FW x) {
    const FW a = magnitude(x);
    const FW z = x * x;
    FW p = splat_wide(-5.70498872745e-3f);
    p = p * z + splat_wide(2.06390887954e-2f);
    p = p * z + splat_wide(-5.37397155531e-2f);
    p = p * z + splat_wide(1.33314422036e-1f);
    p = p * z + splat_wide(-3.33332819422e-1f);
    const FW small = (p * z) * x + x;
    const FW large = splat_wide(1.0f) - splat_wide(2.0f) / (exp_from_87(a + a) + splat_wide(1.0f));
    const FW signed_large = as_float(as_int(large) | (as_int(x) & INT32_MIN));
    return select(a < splat_wide(0.625f), small, signed_large);
}

// To 1, e^-87 adds nothing.
LANES FW silu(FW x) { return x / (splat_wide(1.0f) + exp_from_87(-x)); }

// 0.5 x (1 + tanh(u)) = x / (1 + e^-2u) with u = sqrt(2 / pi) (x + 0.044715 x^3)
LANES FW gelu_tanh(FW x) {
    const FW u2 = splat_wide(-2 * 0.7978845608028654f) * (x + splat_wide(0.044715f) * (x * x * x));
    return x / (splat_wide(1.0f) + exp_from_87(u2));
}

LANES FW softcapped(FW x, float cap) { return splat_wide(cap) * tanh_wide(x / splat_wide(cap)); }

// x[i] = map(x[i], y[i])
template <class Map>
LANES void map_lanes(float* x, const float* y, int n, const Map& map) {
    int i = 0;
    for (; i + kWidth <= n; i += kWidth) store_wide(x + i, map(load_wide(x + i), load_wide(y + i)));
    if (i < n) store_tail(x + i, map(load_tail(x + i, n - i), load_tail(y + i, n - i)), n - i);
}

static void add(float* x, const float* y, int n) {
    for (int i = 0; i < n; ++i) x[i] += y[i];
}

static void scale(float* x, float factor, int n) {
    for (int i = 0; i < n; ++i) x[i] *= factor;
}

static void silu_mul(float* gate, const float* up, int n) {
    map_lanes(gate, up, n, [](FW a, FW b) { return silu(a) * b; });
}

static void gelu_tanh_mul(float* gate, const float* up, int n) {
    map_lanes(gate, up, n, [](FW a, FW b) { return gelu_tanh(a) * b; });
}

static void softcap(float* x, float cap, int n) {
    map_lanes(x, x, n, [&](FW a, FW) { return softcapped(a, cap); });
}

static void rms_norm(const float* x, const float* weight, int n, float eps, float* out) {
    FW squares[kSixteen] = {};
    int i = 0;
    for (; i + 16 <= n; i += 16)
        for (int k = 0; k < kSixteen; ++k) {
            const FW v = load_wide(x + i + k * kWidth);
            squares[k] = squares[k] + v * v;
        }
    for (int k = 0; i < n; ++k, i += kWidth) {
        const FW v = load_tail(x + i, n - i < kWidth ? n - i : kWidth);
        squares[k] = squares[k] + v * v;
    }
    const FW factor = splat_wide(1.0f / __builtin_sqrtf(sum16(squares) / static_cast<float>(n) + eps));
    for (i = 0; i + kWidth <= n; i += kWidth) store_wide(out + i, load_wide(x + i) * factor * load_wide(weight + i));
    if (i < n) store_tail(out + i, load_tail(x + i, n - i) * factor * load_tail(weight + i, n - i), n - i);
}

static void rope_half(float* x, const float* cos, const float* sin, int dims) {
    const int half = dims / 2;
    float* y = x + half;
    for (int i = 0; i < half; ++i) {
        const float a = x[i], b = y[i];
        x[i] = a * cos[i] - b * sin[i];
        y[i] = b * cos[i] + a * sin[i];
    }
}

static void rope_interleaved(float* x, const float* cos, const float* sin, int dims) {
    for (int i = 0; i < dims / 2; ++i) {
        const float a = x[2 * i], b = x[2 * i + 1];
        x[2 * i] = a * cos[i] - b * sin[i];
        x[2 * i + 1] = b * cos[i] + a * sin[i];
    }
}

// Turns scores [0, n), n a multiple of 16, into e^(score * scale - max). Sets max, the largest score * scale, and sum.
LANES void exponentials(float* scores, int n, float scale, float* max, float* sum) {
    FW most[2][kSixteen], sums[kSixteen] = {};  // two times 16 lanes: a chain of operations each
    for (int k = 0; k < kSixteen; ++k) most[0][k] = most[1][k] = splat_wide(-__builtin_inff());
    int i = 0;
    const auto take = [&](int half) {
        for (int k = 0; k < kSixteen; ++k)
            most[half][k] = larger(load_wide(scores + i + half * 16 + k * kWidth), most[half][k]);
    };
    for (; i + 32 <= n; i += 32) {
        take(0);
        take(1);
    }
    if (i < n) take(0);
    for (int k = 0; k < kSixteen; ++k) most[0][k] = larger(most[0][k], most[1][k]);
    *max = max16(most[0]) * scale;
    const FW factor = splat_wide(scale), minus_largest = splat_wide(-*max);
    for (i = 0; i < n; i += 16)
        for (int k = 0; k < kSixteen; ++k) {
            float* at = scores + i + k * kWidth;
            const FW weights = exp_of_negative(fused(load_wide(at), factor, minus_largest));
            store_wide(at, weights);
            sums[k] = sums[k] + weights;
        }
    *sum = sum16(sums);
}
