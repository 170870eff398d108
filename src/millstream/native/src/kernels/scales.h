// The scales and minimums of integer formats (IntegerLayout), for kWidth output rows from `lane` on. Products of an f16 and
// a byte are exact in f32, so they are the numbers that ggml decodes. Included only by the levels' .cpp files, inside the
// level's own namespace.

// What is read of a record once for all its groups.
template <Format kFormat>
struct ScaleRecord {
    FW scale, minimum;
    const int8_t* bytes;  // of the first group's first part
};

// The record of group `group` of a matrix, counted over all tiles.
template <Format kFormat>
LANES ScaleRecord<kFormat> load_record(const MatrixView& w, int64_t group, int lane) {
    constexpr IntegerLayout layout = kLayout<kFormat>;
    const uint8_t* at = w.scales + group / layout.run * layout.record_bytes();
    const auto* halves = reinterpret_cast<const uint16_t*>(at) + lane;
    ScaleRecord<kFormat> record{load_half_wide(halves), FW{}, nullptr};
    if constexpr (layout.minimum == Minimum::Stored) record.minimum = load_half_wide(halves + kTileRows);
    if constexpr (layout.minimum == Minimum::Scaled) record.minimum = splat_wide(-8.0f) * record.scale;
    record.bytes = reinterpret_cast<const int8_t*>(at) + layout.numbers() * kTileRows * 2 + lane;
    return record;
}

// The scales of a part of group `index` of the record.
template <Format kFormat>
LANES FW scales_of(const ScaleRecord<kFormat>& record, int index, int part) {
    constexpr IntegerLayout layout = kLayout<kFormat>;
    if constexpr (layout.run == 1) return record.scale;
    return record.scale * load_bytes_wide(record.bytes + (index * layout.parts + part) * layout.part_bytes());
}

template <Format kFormat>
LANES FW minimums_of(const ScaleRecord<kFormat>& record, int index) {
    constexpr IntegerLayout layout = kLayout<kFormat>;
    if constexpr (layout.run == 1) return record.minimum;
    return record.minimum * load_bytes_wide(record.bytes + index * layout.part_bytes() + kTileRows);
}

template <Format kFormat>
LANES FW load_scales(const MatrixView& w, int64_t group, int part, int lane) {
    return scales_of(load_record<kFormat>(w, group, lane), static_cast<int>(group % kLayout<kFormat>.run), part);
}

template <Format kFormat>
LANES FW load_minimums(const MatrixView& w, int64_t group, int lane) {
    return minimums_of(load_record<kFormat>(w, group, lane), static_cast<int>(group % kLayout<kFormat>.run));
}
