// The AMX tiles that matmul_amx.h uses: rows of 16-lane sums, of activations and of weights. With MILLSTREAM_EMULATE, for
// tests on machines without them, what the manual says they do. Included only by amx.cpp, inside the level's own namespace.

enum Tile { kHighSums = 0, kLowSums = 1, kHighActivations = 2, kLowActivations = 3, kWeights = 4 };

// Operand of LDTILECFG.
struct alignas(64) TileConfig {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {};
    uint8_t rows[16] = {};
};

#if defined(MILLSTREAM_EMULATE)
static thread_local TileConfig tile_config;
static thread_local uint8_t tile_bytes[8][16][64];

LANES void configure_tiles(const TileConfig& config) { tile_config = config; }
LANES void release_tiles() { tile_config = TileConfig{}; }

LANES void tile_load(Tile t, const void* from, int64_t stride) {
    for (int r = 0; r < tile_config.rows[t]; ++r)
        __builtin_memcpy(tile_bytes[t][r], static_cast<const uint8_t*>(from) + r * stride, tile_config.row_bytes[t]);
}

LANES void tile_store(Tile t, void* to, int64_t stride) {
    for (int r = 0; r < tile_config.rows[t]; ++r)
        __builtin_memcpy(static_cast<uint8_t*>(to) + r * stride, tile_bytes[t][r], tile_config.row_bytes[t]);
}

// sums[m][n] = the signed bytes of row m of x times quad n of every row of w.
template <bool kSignedWeights>
LANES void tile_products(Tile sums, Tile x, Tile w) {
    for (int m = 0; m < tile_config.rows[x]; ++m)
        for (int n = 0; n < tile_config.row_bytes[w] / 4; ++n) {
            int32_t sum = 0;
            for (int k = 0; k < tile_config.row_bytes[x]; ++k) {
                const uint8_t weight = tile_bytes[w][k / 4][n * 4 + k % 4];
                sum += static_cast<int8_t>(tile_bytes[x][m][k]) * (kSignedWeights ? static_cast<int8_t>(weight) : weight);
            }
            __builtin_memcpy(tile_bytes[sums][m] + n * 4, &sum, sizeof sum);
        }
}

template <bool kSignedWeights>
LANES void multiply_tiles() {
    tile_products<kSignedWeights>(kHighSums, kHighActivations, kWeights);
    tile_products<kSignedWeights>(kLowSums, kLowActivations, kWeights);
}
#else
// The compilers' tile intrinsics say too little about the memory they read: GCC 12 tells of 8 of the 64 bytes of the
// configuration and of nothing that tiles are loaded from, so stores before them must be kept by a barrier.
#define STORES_DONE() asm volatile("" ::: "memory")

LANES void configure_tiles(const TileConfig& config) {
    STORES_DONE();
    _tile_loadconfig(&config);
}
LANES void release_tiles() { _tile_release(); }

// Tile numbers are part of the instruction, and literals for GCC.
LANES void tile_load(Tile t, const void* from, int64_t stride) {
    STORES_DONE();
    switch (t) {
        case kHighActivations: _tile_loadd(2, from, stride); break;
        case kLowActivations: _tile_loadd(3, from, stride); break;
        default: _tile_loadd(4, from, stride);
    }
}

LANES void tile_store(Tile t, void* to, int64_t stride) {
    if (t == kHighSums) {
        _tile_stored(0, to, stride);
    } else {
        _tile_stored(1, to, stride);
    }
    STORES_DONE();
}

// Sums of signed activations times weights, from zero.
template <bool kSignedWeights>
LANES void multiply_tiles() {
    _tile_zero(0);
    _tile_zero(1);
    if constexpr (kSignedWeights) {
        _tile_dpbssd(0, 2, 4);
        _tile_dpbssd(1, 3, 4);
    } else {
        _tile_dpbsud(0, 2, 4);
        _tile_dpbsud(1, 3, 4);
    }
}
#endif
