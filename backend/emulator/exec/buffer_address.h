// Addresses of buffer instructions: a 128-bit descriptor with base, stride and size.
#pragma once

#include "lanes.h"

namespace strata::emulator::STRATA_ISA {

struct descriptor {
    uint64_t base;
    uint32_t stride, records, check;
    bool plain;
};
static STRATA_INLINE descriptor read_descriptor(const wave * w, const inst * i) {
    const uint32_t * v = &w->s[i->sdst];
    descriptor d;
    d.base = v[0] | uint64_t(v[1] & 0xffff) << 32;
    d.stride = v[1] >> 16 & 0x3fff;
    d.records = v[2];
    d.check = v[3] >> 28 & 3;
    d.plain = (v[1] >> 30) == 0 && (v[3] >> 23 & 1) == 0;
    return d;
}

struct target {
    bool inside;
    uint64_t address;
};
/// The out-of-bounds rules of OOB_SELECT 0..3 (structured, structured without offset, never but for no records, raw).
static STRATA_INLINE target buffer_address(const wave * w, const inst * i, const descriptor & d, int lane, uint32_t bytes) {
    uint32_t words[2];
    std::memcpy(&words[0], w->v + i->src[0] + lane * 4, 4);
    std::memcpy(&words[1], w->v + i->src[0] + row_bytes + lane * 4, 4);
    const bool idxen = i->aux & memory_idxen, offen = i->aux & memory_offen;
    const uint32_t index = idxen ? words[0] : 0;
    const uint32_t offset = (offen ? words[idxen ? 1 : 0] : 0) + uint32_t(i->imm & 0xfff);
    const uint32_t scalar = w->s[i->src[2]] + uint32_t(i->imm >> 32);
    bool out;
    switch (d.check) {
    case 0: out = index >= d.records || (d.stride && uint64_t(offset) + bytes > d.stride); break;
    case 1: out = index >= d.records; break;
    case 2: out = d.records == 0; break;
    default: out = uint64_t(index) * d.stride + offset + bytes > d.records; break;
    }
    return {!out, d.base + scalar + uint64_t(index) * d.stride + offset};
}

}  // namespace strata::emulator::STRATA_ISA
