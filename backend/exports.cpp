// The plugin's own C functions.
#include "strata_hip.h"

#include <cstdio>
#include <string_view>

#include "ops/mul_mat.h"
#include "ops/tile_columns.h"
#include "plan/fusion_stats.h"
#include "plugin.h"
#include "runtime/code_objects.h"
#include "runtime/counters.h"
#include "runtime/settings.h"
#include "switches.h"

namespace strata {

namespace {

std::string quoted(const std::string & text) {
    std::string result = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') {
            result += '\\';
            result += c;
        } else if (static_cast<unsigned char>(c) < 0x20) {
            result += format("\\u%04x", c);
        } else {
            result += c;
        }
    }
    return result + '"';
}

/// FNV-1a, 64 bits: tells two builds apart.
uint64_t hash_of(const unsigned char * begin, const unsigned char * end) {
    uint64_t hash = 0xcbf29ce484222325;
    for (; begin != end; ++begin) {
        hash = (hash ^ *begin) * 0x100000001b3;
    }
    return hash;
}

std::string devices_json(plugin & self) {
    std::string text;
    for (const auto & each : self.devices) {
        const gpu & target = each->target;
        std::size_t free = 0;
        std::size_t total = 0;
        target.memory(&free, &total);
        text += (text.empty() ? "" : ", ") + format("{\"name\": %s, \"description\": %s, \"arch\": %s, \"device_id\": %s, "
            "\"compute_units\": %u, \"memory_free\": %zu, \"memory_total\": %zu}", quoted(target.name).c_str(),
            quoted(target.description).c_str(), quoted(target.caps.arch).c_str(),
            target.pci_id.empty() ? "null" : quoted(target.pci_id).c_str(), target.caps.compute_units, free, total);
    }
    return text;
}

std::string code_objects_json() {
    std::string text;
    for (unsigned i = 0; i < embedded_code_object_count; ++i) {
        const embedded_code_object & object = embedded_code_objects[i];
        text += (text.empty() ? "" : ", ") + format("{\"family\": %s, \"target\": %s, \"size\": %zu, \"hash\": \"%016llx\"}",
            quoted(object.family).c_str(), quoted(object.target).c_str(), static_cast<std::size_t>(object.end - object.begin),
            static_cast<unsigned long long>(hash_of(object.begin, object.end)));
    }
    return text;
}

std::string switches_json() {
    const settings now = settings::from_environment();
    std::string text;
    for (const std::string & name : all_switches()) {
        text += (text.empty() ? "" : ", ") + quoted(name) + (now.disabled.count(name) ? ": false" : ": true");
    }
    return text;
}

std::string describe_plugin() {
    std::string text = format("{\"version\": %s, \"ggml_version\": %s, ", quoted(STRATA_HIP_VERSION).c_str(),
        quoted(STRATA_GGML_VERSION).c_str());
    try {
        plugin & self = start();
        text += format("\"runtime\": %s, \"library\": %s, \"driver_version\": %d, \"runtime_version\": %d, ", quoted(self.library.kind).c_str(),
            quoted(self.library.path).c_str(), self.library.driver_version, self.library.runtime_version);
        text += "\"devices\": [" + devices_json(self) + "], ";
        return text + "\"code_objects\": [" + code_objects_json() + "], \"switches\": {" + switches_json() + "}}";
    } catch (const std::exception & error) {
        report(error.what());
        return text + "\"error\": " + quoted(error.what()) + "}";
    }
}

bool is_weight(int type) { return type >= 0 && type < GGML_TYPE_COUNT && weight_name(ggml_type(type)) != nullptr; }

}  // namespace

}  // namespace strata

extern "C" {

const char * strata_hip_version(void) {
    return STRATA_HIP_VERSION;
}

const char * strata_hip_last_error(void) {
    return strata::last_error();
}

uint64_t strata_hip_thread_errors(void) {
    return strata::thread_errors();
}

const char * strata_hip_device_json(void) {
    thread_local std::string text;
    try {
        text = strata::describe_plugin();
    } catch (const std::exception & error) {
        strata::report(error.what());
        return "{}";
    }
    return text.c_str();
}

uint64_t strata_hip_counter(const char * name) {
    uint64_t value = 0;
    constexpr std::string_view fusion = "fusion.";
    if (std::string_view(name).substr(0, fusion.size()) == fusion) {
        return strata::fusions_counted(name + fusion.size(), &value) ? value : UINT64_MAX;
    }
    return strata::counted(name, &value) ? value : UINT64_MAX;
}

const char * strata_hip_refusal(const ggml_tensor * op) {
    const strata::plugin * self = strata::started();
    return self == nullptr ? "the plugin has not been started" : strata::op_refusal(self->devices.front()->target.caps, op);
}

uint32_t strata_hip_tile_columns(int type, double rows_an_expert) {
    return strata::is_weight(type) ? strata::expert_tile_columns(ggml_type(type), rows_an_expert) : 0;
}

uint32_t strata_hip_dense_tile_columns(int type, int64_t rows, int64_t columns) {
    const strata::plugin * self = strata::started();
    return self && strata::is_weight(type) ? strata::dense_tile_columns(self->devices.front()->target.caps, ggml_type(type), rows, columns, 1) : 0;
}

int strata_hip_force_tile_columns(uint32_t columns) {
    return strata::force_tile_columns(columns) ? 1 : 0;
}

}
