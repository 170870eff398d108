// Elementwise kernels: exp and tanh, norms, gated activations, rotary embedding, activation quantisation.
// Included only by the levels' .cpp files, inside the level's own namespace.

// e^x = 2^n * (1 + tail). Cody-Waite reduction to |r| <= ln(2) / 2, then a degree-6 polynomial (Cephes expf, in
// pairs of terms: a shorter chain of dependent operations); below 2 ulp.
struct Exponential {
    F8 tail;
    I8x32 n;
};

LANES Exponential reduce_exp(F8 x) {
    const F8 magic = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer in the low bits
    const F8 shifted = fused(x, splat(1.44269504088896341f), magic);
    const F8 n = shifted - magic;
    const F8 r = fused(n, splat(2.12194440e-4f), fused(n, splat(-0.693359375f), x));
    const F8 r2 = r * r;
    const F8 p5 = fused(r, splat(1.9875691500e-4f), splat(1.3981999507e-3f));
    const F8 p3 = fused(r, splat(8.3334519073e-3f), splat(4.1665795894e-2f));
    const F8 p1 = fused(r, splat(1.6666665459e-1f), splat(5.0000001201e-1f));
    const F8 p = fused(fused(p5, r2, p3), r2, p1);
    return {fused(p, r2, r), as_int(shifted) - as_int(magic)};
}

LANES F8 power_of_two(I8x32 n) { return as_float((n + splat_int(127)) << 23); }

// e^x. Results under 2^-126 become zero, results over the largest float infinity, NaN stays NaN (max8 and min8 give
// their second operand then).
LANES F8 exp8(F8 x) {
    const Exponential e = reduce_exp(min8(splat(89.0f), max8(splat(-87.0f), x)));
    const I8x32 half = e.n >> 1;  // n may be 128: scale in two steps
    const F8 result = (e.tail + splat(1.0f)) * power_of_two(half) * power_of_two(e.n - half);
    return select(x < splat(-87.0f), splat(0.0f), result);
}

// e^x for x <= 0, or little more, or NaN, with less work: at -88 n is -127, whose "power" is zero.
LANES F8 exp8_of_negative(F8 x) {
    const Exponential e = reduce_exp(max8(splat(-88.0f), x));
    const F8 power = power_of_two(e.n);
    return fused(e.tail, power, power);
}

// tanh x: odd polynomial near zero (Cephes tanhf), else from e^2|x|.
LANES F8 tanh8(F8 x) {
    const F8 a = abs8(x);
    const F8 z = x * x;
    F8 p = splat(-5.70498872745e-3f);
    p = p * z + splat(2.06390887954e-2f);
    p = p * z + splat(-5.37397155531e-2f);
    p = p * z + splat(1.33314422036e-1f);
    p = p * z + splat(-3.33332819422e-1f);
    const F8 small = (p * z) * x + x;
    const F8 large = splat(1.0f) - splat(2.0f) / (exp8(a + a) + splat(1.0f));
    const F8 signed_large = as_float(as_int(large) | (as_int(x) & splat_int(INT32_MIN)));
    return select(a < splat(0.625f), small, signed_large);
}

LANES F8 silu8(F8 x) { return x / (splat(1.0f) + exp8(-x)); }

// 0.5 x (1 + tanh(u)) = x / (1 + e^-2u) with u = sqrt(2 / pi) (x + 0.044715 x^3)
LANES F8 gelu_tanh8(F8 x) {
    const F8 u = splat(0.7978845608028654f) * (x + splat(0.044715f) * (x * x * x));
    return x / (splat(1.0f) + exp8(splat(-2.0f) * u));
}

LANES F8 softcap8(F8 x, float cap) { return splat(cap) * tanh8(x / splat(cap)); }

static void rms_norm(const float* x, const float* weight, int n, float eps, float* out) {
    F8 a = splat(0.0f), b = splat(0.0f);
    int i = 0;
    for (; i + 16 <= n; i += 16) {
        const F8 u = load8(x + i), v = load8(x + i + 8);
        a = a + u * u;
        b = b + v * v;
    }
    if (i < n) {
        const int rest = n - i;
        const F8 u = rest >= 8 ? load8(x + i) : load_tail(x + i, rest);
        const F8 v = rest > 8 ? load_tail(x + i + 8, rest - 8) : splat(0.0f);
        a = a + u * u;
        b = b + v * v;
    }
    const float factor = 1.0f / __builtin_sqrtf(sum16(a, b) / static_cast<float>(n) + eps);
    i = 0;
    for (; i + 8 <= n; i += 8) store8(out + i, load8(x + i) * splat(factor) * load8(weight + i));
    if (i < n) store_tail(out + i, load_tail(x + i, n - i) * splat(factor) * load_tail(weight + i, n - i), n - i);
}

static void add(float* x, const float* y, int n) {
    for (int i = 0; i < n; ++i) x[i] += y[i];
}

static void scale(float* x, float factor, int n) {
    for (int i = 0; i < n; ++i) x[i] *= factor;
}

static void silu_mul(float* gate, const float* up, int n) {
    int i = 0;
    for (; i + 8 <= n; i += 8) store8(gate + i, silu8(load8(gate + i)) * load8(up + i));
    if (i < n) store_tail(gate + i, silu8(load_tail(gate + i, n - i)) * load_tail(up + i, n - i), n - i);
}

static void gelu_tanh_mul(float* gate, const float* up, int n) {
    int i = 0;
    for (; i + 8 <= n; i += 8) store8(gate + i, gelu_tanh8(load8(gate + i)) * load8(up + i));
    if (i < n) store_tail(gate + i, gelu_tanh8(load_tail(gate + i, n - i)) * load_tail(up + i, n - i), n - i);
}

static void softcap(float* x, float cap, int n) {
    int i = 0;
    for (; i + 8 <= n; i += 8) store8(x + i, softcap8(load8(x + i), cap));
    if (i < n) store_tail(x + i, softcap8(load_tail(x + i, n - i), cap), n - i);
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

static void store_halves(const float* k, const float* v, int dims, int slot, uint16_t* keys, uint16_t* values) {
    uint16_t *key = keys + slot, *value = values + slot * dims;
    uint16_t halves[8];
    int i = 0;
    for (; i + 8 <= dims; i += 8) {
        store_half8(halves, load8(k + i));
        for (int j = 0; j < 8; ++j) key[(i + j) * kBlockSize] = halves[j];
        store_half8(value + i, load8(v + i));
    }
    for (; i < dims; ++i) {
        key[i * kBlockSize] = float_to_half(k[i]);
        value[i] = float_to_half(v[i]);
    }
}

// n <= 32 numbers: to[i * step] = x[i] / scale to nearest (ties to even), with scale = max|x| / 127. What is not finite must not turn into
// numbers: the scale is NaN then. Below 1e-30, where the inverse would overflow, x is zero for every practical purpose.
static void store_integers(const float* x, int n, int8_t* to, int step, float* scale) {
    I8x32 bits = splat_int(0);
    const auto take = [&](F8 v) {
        const I8x32 magnitude = as_int(abs8(v));
        bits = magnitude > bits ? magnitude : bits;
    };
    int i = 0;
    for (; i + 8 <= n; i += 8) take(load8(x + i));
    if (i < n) take(load_tail(x + i, n - i));
    const float largest = max_magnitude(bits);
    const bool finite = largest < __builtin_inff(), zero = !(largest > 1e-30f);
    const float inverse = zero || !finite ? 0.0f : 127.0f / largest;
    const F8 magic = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer in the low bits
    const auto put = [&](F8 v, int at, int count) {
        const F8 scaled = min8(max8(v * splat(inverse), splat(-127.0f)), splat(127.0f));
        const I8x32 a = as_int(scaled + magic) - as_int(magic);
        for (int j = 0; j < count; ++j) to[(at + j) * step] = static_cast<int8_t>(a[j]);
    };
    for (i = 0; i + 8 <= n; i += 8) put(load8(x + i), i, 8);
    if (i < n) put(load_tail(x + i, n - i), i, n - i);
    *scale = !finite ? __builtin_nanf("") : zero ? 0.0f : largest / 127.0f;
}

static void store_kv(KvType type, const float* k, const float* v, int dims, int slot, uint8_t* keys, uint8_t* values) {
    if (type == KvType::F16)
        return store_halves(k, v, dims, slot, reinterpret_cast<uint16_t*>(keys), reinterpret_cast<uint16_t*>(values));
    auto *key = reinterpret_cast<int8_t*>(keys) + slot, *value = reinterpret_cast<int8_t*>(values) + slot * dims;
    float* key_scales = reinterpret_cast<float*>(keys + dims * kBlockSize) + slot;
    float* value_scales = reinterpret_cast<float*>(values + dims * kBlockSize) + slot;
    for (int d = 0; d < dims; d += kGroup) {
        const int n = dims - d < kGroup ? dims - d : kGroup;
        store_integers(k + d, n, key + d * kBlockSize, kBlockSize, key_scales + d / kGroup * kBlockSize);
        store_integers(v + d, n, value + d, 1, value_scales + d / kGroup * kBlockSize);
    }
}

// One group of 32: scale = max|x| / max_activation, integers to nearest (ties to even).
template <ActivationType kType>
static void quantize_group(const float* x, int16_t* words, int8_t* bytes, float* scale, float* sum) {
    F8 v[4];
    I8x32 bits = splat_int(0);
    for (int i = 0; i < 4; ++i) {
        v[i] = load8(x + 8 * i);
        const I8x32 magnitude = as_int(abs8(v[i]));
        bits = magnitude > bits ? magnitude : bits;
    }
    const float largest = max_magnitude(bits);
    // A group that is not finite must not turn into numbers: its scale is NaN. One below 1e-30, where the inverse would
    // overflow, is zero for every practical purpose.
    const bool finite = largest < __builtin_inff(), zero = !(largest > 1e-30f);
    const float limit = static_cast<float>(max_activation(kType));
    const float inverse = zero ? 0.0f : limit / largest;
    const F8 magic = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer in the low bits
    I8x32 a[4], total = splat_int(0);
    for (int i = 0; i < 4; ++i) {
        const F8 scaled = min8(max8(v[i] * splat(inverse), splat(-limit)), splat(limit));
        a[i] = as_int(scaled + magic) - as_int(magic);
        total = total + a[i];
    }
    store_words(words, a);
    if constexpr (kType == ActivationType::I8) {
        store_bytes(bytes, a);
    } else {
        I8x32 high[4], low[4];
        for (int i = 0; i < 4; ++i) {
            high[i] = a[i] >> 4;
            low[i] = a[i] & splat_int(15);
        }
        store_bytes(bytes, high);
        store_bytes(bytes + kGroup, low);
    }
    *scale = !finite ? __builtin_nanf("") : zero ? 0.0f : largest / limit;
    *sum = *scale * static_cast<float>(sum_ints(total));
}

template <ActivationType kType>
static void quantize_rows(const ActivationsView& a, int begin, int end, int group_begin, int group_end) {
    for (int row = begin; row < end; ++row) {
        const float* x = a.f32 + row * a.stride;
        const int64_t first = static_cast<int64_t>(row) * a.groups;
        for (int g = group_begin; g < group_end; ++g)
            quantize_group<kType>(x + g * kGroup, a.words + (first + g) * kGroup,
                                  a.bytes + (first + g) * activation_bytes(kType), a.scales + first + g, a.sums + first + g);
    }
}

static void quantize(const ActivationsView& a, int begin, int end, int group_begin, int group_end) {
    const auto rows = a.type == ActivationType::I12 ? quantize_rows<ActivationType::I12> : quantize_rows<ActivationType::I8>;
    rows(a, begin, end, group_begin, group_end);
}
