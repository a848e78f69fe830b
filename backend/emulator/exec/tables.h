// The operation tables of one build; each exec/*.cpp defines one of them.
#pragma once

#include "lanes.h"

namespace strata::emulator::STRATA_ISA {

#define STRATA_TABLE(name, entries) const operation_table table_##name = {entries, sizeof(entries) / sizeof(entries[0])};

extern const operation_table table_valu_f32, table_valu_int, table_valu_16, table_valu_64, table_packed, table_cross_lane, table_wmma,
    table_salu, table_salu_float, table_control, table_global, table_lds, table_buffer;

/// instruments/hook.cpp
void instrument_hook(wave * w, const inst * i, uint64_t count);

extern const isa_build build;

}  // namespace strata::emulator::STRATA_ISA
