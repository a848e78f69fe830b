// Arguments of the mat-vec that multiplies several matrices of one type with the same column of activations.
#pragma once

#include "strata/args/gates.h"
#include "strata/args/mul_mat.h"

namespace strata {

constexpr uint32_t most_in_group = 4;

struct mul_mat_group_args {
    const void * values;               ///< int8 [k]
    const void * meta;                 ///< q8_1_meta [k / 32]
    struct member {
        const void * weights;
        float * dst;                   ///< [row]
        uint32_t stride1;              ///< bytes between weight rows
        uint32_t rows;
        uint32_t end;                  ///< workgroups of this member and those before it
    } members[most_in_group];
    uint32_t k;                        ///< a multiple of the type's block
    uint32_t end;                      ///< workgroups of all members
    gates_args gates;                  ///< of the workgroups behind those
};

}  // namespace strata
