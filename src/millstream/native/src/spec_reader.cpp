#include "spec_reader.h"

#include <algorithm>
#include <string>

#include "nanobind/stl/string.h"
#include "nanobind/stl/vector.h"

namespace nb = nanobind;

namespace millstream {

namespace {

template <class T>
T attribute(nb::handle object, const char* name) {
    if (!nb::hasattr(object, name)) throw nb::value_error(("spec has no attribute " + std::string(name)).c_str());
    T value{};
    if (!nb::try_cast<T>(object.attr(name), value))
        throw nb::value_error(("spec attribute " + std::string(name) + " has the wrong type or range").c_str());
    return value;
}

// One of two words; true for the second.
bool choice(nb::handle object, const char* name, const char* no, const char* yes) {
    const auto value = attribute<std::string>(object, name);
    if (value != no && value != yes)
        throw nb::value_error(("spec attribute " + std::string(name) + ": " + value + " is not supported").c_str());
    return value == yes;
}

int read_rope(nb::handle spec, std::vector<RopeConfig>& ropes) {
    RopeConfig rope;
    rope.interleaved = choice(spec, "style", "half", "interleaved");
    rope.inv_freq = attribute<std::vector<double>>(spec, "inv_freq");
    rope.scale = static_cast<float>(attribute<double>(spec, "scale"));
    const auto found = std::find(ropes.begin(), ropes.end(), rope);
    if (found != ropes.end()) return static_cast<int>(found - ropes.begin());
    ropes.push_back(std::move(rope));
    return static_cast<int>(ropes.size()) - 1;
}

LayerConfig read_layer(nb::handle spec, std::vector<RopeConfig>& ropes) {
    LayerConfig layer;
    layer.heads = attribute<int>(spec, "heads");
    layer.kv_heads = attribute<int>(spec, "kv_heads");
    layer.head_dim = attribute<int>(spec, "head_dim");
    layer.intermediate = attribute<int>(spec, "intermediate");
    layer.attention_scale = static_cast<float>(attribute<double>(spec, "attention_scale"));
    layer.rope = read_rope(spec.attr("rope"), ropes);
    layer.window = attribute<int>(spec, "window");
    layer.softcap = static_cast<float>(attribute<double>(spec, "softcap"));
    layer.qk_norm = attribute<bool>(spec, "qk_norm");
    layer.qkv_bias = attribute<bool>(spec, "qkv_bias");
    layer.post_norms = attribute<bool>(spec, "post_norms");
    layer.gelu = choice(spec, "activation", "silu", "gelu_tanh");
    return layer;
}

}  // namespace

ModelConfig read_spec(nb::handle spec) {
    ModelConfig config;
    config.vocab = attribute<int>(spec, "vocab_size");
    config.hidden = attribute<int>(spec, "hidden");
    config.context_length = attribute<int>(spec, "context_length");
    config.norm_eps = static_cast<float>(attribute<double>(spec, "norm_eps"));
    config.embedding_scale = static_cast<float>(attribute<double>(spec, "embedding_scale"));
    config.final_softcap = static_cast<float>(attribute<double>(spec, "final_softcap"));
    config.tied_output = attribute<bool>(spec, "tied_output");
    for (nb::handle layer : attribute<nb::sequence>(spec, "layers")) config.layers.push_back(read_layer(layer, config.ropes));
    return config;
}

}  // namespace millstream
