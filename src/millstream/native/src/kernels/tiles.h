// The AMX instructions that matmul_amx.h and attention_amx.h use. With MILLSTREAM_EMULATE, for tests on machines without them, what the manual
// says they do. Included only by amx.cpp, inside the level's own namespace.

// Operand of LDTILECFG.
struct alignas(64) TileConfig {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {};
    uint8_t rows[16] = {};
};

#if defined(MILLSTREAM_EMULATE)
static thread_local TileConfig tile_config{.palette = 0};
static thread_local uint8_t tile_bytes[8][16][64];

// Ends the process where the processor would fault.
LANES void must(bool condition) {
    if (!condition) __builtin_trap();
}

LANES void configure_tiles(const TileConfig& config) {
    must(tile_config.palette == 0);  // released by whoever had them
    must(config.palette == 1 && config.start_row == 0);
    for (int t = 0; t < 16; ++t) {
        must(config.rows[t] <= 16 && config.row_bytes[t] <= 64);
        must(t < 8 ? config.rows[t] > 0 && config.row_bytes[t] > 0 : config.rows[t] == 0 && config.row_bytes[t] == 0);
    }
    tile_config = config;
    __builtin_memset(tile_bytes, 0, sizeof tile_bytes);
}
LANES void release_tiles() { tile_config = TileConfig{.palette = 0}; }

template <int kTile>
LANES void tile_zero() {
    must(tile_config.palette == 1);
    __builtin_memset(tile_bytes[kTile], 0, sizeof tile_bytes[kTile]);
}

template <int kTile>
LANES void tile_load(const void* from, int64_t stride) {
    must(tile_config.palette == 1);
    __builtin_memset(tile_bytes[kTile], 0, sizeof tile_bytes[kTile]);
    for (int r = 0; r < tile_config.rows[kTile]; ++r)
        __builtin_memcpy(tile_bytes[kTile][r], static_cast<const uint8_t*>(from) + r * stride, tile_config.row_bytes[kTile]);
}

template <int kTile>
LANES void tile_store(void* to, int64_t stride) {
    must(tile_config.palette == 1);
    for (int r = 0; r < tile_config.rows[kTile]; ++r)
        __builtin_memcpy(static_cast<uint8_t*>(to) + r * stride, tile_bytes[kTile][r], tile_config.row_bytes[kTile]);
}

// Ends the process unless the shapes of three tiles suit a product.
LANES void must_suit(int sums, int x, int w) {
    must(tile_config.palette == 1 && tile_config.row_bytes[x] % 4 == 0 && tile_config.row_bytes[w] % 4 == 0);
    must(tile_config.rows[sums] == tile_config.rows[x] && tile_config.row_bytes[sums] == tile_config.row_bytes[w] &&
         tile_config.row_bytes[x] == 4 * tile_config.rows[w]);
}

// sums[m][n] += the signed bytes of row m of x times column n of w, which is quad k of every row k.
template <bool kSignedWeights, int kSums, int kX, int kW>
LANES void tile_products() {
    static_assert(kSums != kX && kX != kW && kSums != kW);
    must_suit(kSums, kX, kW);
    for (int m = 0; m < tile_config.rows[kX]; ++m)
        for (int n = 0; n < tile_config.row_bytes[kW] / 4; ++n) {
            int32_t sum;
            __builtin_memcpy(&sum, tile_bytes[kSums][m] + n * 4, sizeof sum);
            for (int k = 0; k < tile_config.row_bytes[kX]; ++k) {
                const uint8_t weight = tile_bytes[kW][k / 4][n * 4 + k % 4];
                sum += static_cast<int8_t>(tile_bytes[kX][m][k]) * (kSignedWeights ? static_cast<int8_t>(weight) : weight);
            }
            __builtin_memcpy(tile_bytes[kSums][m] + n * 4, &sum, sizeof sum);
        }
}

LANES FW without_denormals(FW v) { return (v < 0.0f ? -v : v) < 0x1p-126f ? v * 0.0f : v; }

// sums[m][n] += the bf16 numbers of row m of x times column n of w, which is pair k of every row k. The first numbers of all
// pairs have a sum of their own, and so have the second; then the two are added, then what was there. Each addition is
// rounded to nearest even, the products are not; denormals count as zero and become it.
template <int kSums, int kX, int kW>
static void tile_bfloat_products() {
    static_assert(kSums != kX && kX != kW && kSums != kW);
    must_suit(kSums, kX, kW);
    const int pairs = tile_config.rows[kW];
    FW weights[16][2];
    for (int k = 0; k < pairs; ++k) {
        uint32_t words __attribute__((vector_size(64)));
        __builtin_memcpy(&words, tile_bytes[kW][k], sizeof words);
        weights[k][0] = without_denormals(reinterpret_cast<FW>(words << 16));
        weights[k][1] = without_denormals(reinterpret_cast<FW>(words & 0xffff0000u));
    }
    for (int m = 0; m < tile_config.rows[kX]; ++m) {
        uint16_t x[16][2];
        __builtin_memcpy(x, tile_bytes[kX][m], sizeof x);
        FW halves[2] = {FW{}, FW{}}, sums;
        for (int k = 0; k < pairs; ++k)
            for (int i = 0; i < 2; ++i)
                halves[i] = without_denormals(
                    fused(weights[k][i], without_denormals(splat_wide(bfloat_to_float(x[k][i]))), halves[i]));
        __builtin_memcpy(&sums, tile_bytes[kSums][m], sizeof sums);
        sums = without_denormals(without_denormals(sums) + without_denormals(halves[0] + halves[1]));
        __builtin_memcpy(tile_bytes[kSums][m], &sums, tile_config.row_bytes[kSums]);
    }
}
#else
// Instructions instead of the compilers' intrinsics: GCC's tell too little about the memory that they read (8 of the 64
// bytes of the configuration, nothing of what tiles are loaded from), so that stores before them are lost, and take no
// template parameter as a tile's number.
LANES void configure_tiles(const TileConfig& config) { asm volatile("ldtilecfg %0" : : "m"(config) : "memory"); }
LANES void release_tiles() { asm volatile("tilerelease"); }

template <int kTile>
LANES void tile_zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
}

template <int kTile>
LANES void tile_load(const void* from, int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(kTile) : "memory");
}

template <int kTile>
LANES void tile_store(void* to, int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(kTile) : "memory");
}

// Sums += signed activations times weights.
template <bool kSignedWeights, int kSums, int kX, int kW>
LANES void tile_products() {
    if constexpr (kSignedWeights) {
        asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSums), "i"(kX), "i"(kW));
    } else {
        asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSums), "i"(kX), "i"(kW));
    }
}

template <int kSums, int kX, int kW>
LANES void tile_bfloat_products() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSums), "i"(kX), "i"(kW));
}
#endif
