// Recurrent layers: states that go through the tokens of a sequence. A column of a state is spread over `Lanes` neighbouring lanes and stays
// in registers; the vectors that the columns of a head share are staged in LDS, some tokens at a time. The sums are a butterfly of
// reduce.h, and nothing depends on how many tokens there are: one call with many tokens gives the bits of many calls with one.
#pragma once

#include "strata/args/recurrence.h"
#include "strata/math.h"
#include "strata/memory.h"
#include "strata/read_together.h"
#include "strata/reduce.h"

namespace strata {

/// A lane's share of a vector: elements 4 (lane + Lanes m) ... + 3 for each m < Quads.
template <uint32_t Quads>
struct vector_part {
    float4v quads[Quads];
};

/// a * b + c, element by element, rounded once.
template <uint32_t Quads>
STRATA_DEVICE vector_part<Quads> fma(const vector_part<Quads> & a, const vector_part<Quads> & b, const vector_part<Quads> & c) {
    vector_part<Quads> r;
    for (uint32_t m = 0; m < Quads; m++) {
        for (uint32_t i = 0; i < 4; i++) {
            r.quads[m][i] = fma(a.quads[m][i], b.quads[m][i], c.quads[m][i]);
        }
    }
    return r;
}

template <uint32_t Quads>
STRATA_DEVICE vector_part<Quads> fma(const vector_part<Quads> & a, float b, const vector_part<Quads> & c) {
    vector_part<Quads> r;
    for (uint32_t m = 0; m < Quads; m++) {
        for (uint32_t i = 0; i < 4; i++) {
            r.quads[m][i] = fma(a.quads[m][i], b, c.quads[m][i]);
        }
    }
    return r;
}

template <uint32_t Quads>
STRATA_DEVICE vector_part<Quads> operator*(const vector_part<Quads> & a, const vector_part<Quads> & b) {
    vector_part<Quads> r;
    for (uint32_t m = 0; m < Quads; m++) {
        r.quads[m] = a.quads[m] * b.quads[m];
    }
    return r;
}

template <uint32_t Quads>
STRATA_DEVICE vector_part<Quads> operator*(const vector_part<Quads> & a, float b) {
    vector_part<Quads> r;
    for (uint32_t m = 0; m < Quads; m++) {
        r.quads[m] = a.quads[m] * b;
    }
    return r;
}

STRATA_DEVICE float4v exp(float4v x) {
    float4v r;
    for (uint32_t i = 0; i < 4; i++) {
        r[i] = exp(x[i]);
    }
    return r;
}

template <uint32_t Quads>
STRATA_DEVICE vector_part<Quads> exp(const vector_part<Quads> & x) {
    vector_part<Quads> r;
    for (uint32_t m = 0; m < Quads; m++) {
        r.quads[m] = exp(x.quads[m]);
    }
    return r;
}

/// The scalar product of two vectors, in all their lanes.
template <uint32_t Lanes, uint32_t Quads>
STRATA_DEVICE float dot(const vector_part<Quads> & a, const vector_part<Quads> & b) {
    float4v sums = a.quads[0] * b.quads[0];
    for (uint32_t m = 1; m < Quads; m++) {
        for (uint32_t i = 0; i < 4; i++) {
            sums[i] = fma(a.quads[m][i], b.quads[m][i], sums[i]);
        }
    }
    return wave_sum<Lanes>((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

/// `Rule` says how a column takes a token in:
///   rows, numbers       how many vectors a token brings, and how many numbers a column needs of it
///   scattered           the elements of a column lie apart in memory, those of a head's columns side by side
///   has_constants       a column has a constant vector, constants_offset(args, column) bytes behind the head's first
///   prepare(r, x)       what is staged for four elements x of vector r
///   read(args, column, own number, scalar(n, index), the head's constants)   up to four numbers of memory that a column needs of a token
///   stage(what read gave, numbers)   makes the column's numbers out of them
///   step<Lanes>(state, row(r), number(n), constants)   the new state; returns the result
template <class Rule, uint32_t Lanes, uint32_t Quads>
STRATA_DEVICE void recurrence(const recurrence_args & a) {
    using part = vector_part<Quads>;
    constexpr uint32_t row_quads = Lanes * Quads;
    constexpr uint32_t block_columns = recurrence_block / Lanes;
    constexpr uint32_t room = 1024 / (Rule::rows * row_quads);  // tokens whose vectors fit into 16 KiB
    constexpr uint32_t tile = room < recurrence_tokens ? room : recurrence_tokens;
    __shared__ float4v staged_rows[tile][Rule::rows][row_quads];
    __shared__ float staged_numbers[tile][Rule::numbers][block_columns];

    // A value out of each line of the arguments: the others follow out of the scalar cache.
    read_together(a.rows[0].tensor.data, a.column.data, a.out.data, a.state, a.tokens);
    const uint32_t head = block_y(), sequence = block_z();
    const uint32_t first_column = block_x() * block_columns;
    const uint32_t lane = thread_x() % Lanes;
    const uint32_t own = thread_x() / Lanes;  // this lane's column in the workgroup
    const uint32_t last_column = a.columns - 1;
    // Lanes without a column double the last one, but write nothing.
    const bool active = first_column + own <= last_column;
    const uint32_t column = smaller(first_column + own, last_column);

    // All pointers are read here: the compiler knows them for pointers to global memory only as long as nothing was written.
    const auto here = [&](const recurrence_tensor & t) {
        return static_cast<const char *>(t.data) + (head * t.head_stride + sequence * t.sequence_stride);
    };
    const char * row_data[Rule::rows];
#pragma unroll
    for (uint32_t r = 0; r < Rule::rows; r++) {
        const recurrence_row & row = a.rows[r];
        const uint32_t row_head = remainder(head, quotient(head, row.heads), row.heads);
        row_data[r] = static_cast<const char *>(row.tensor.data) +
                      (row_head * row.tensor.head_stride + quotient(sequence, row.sequence_share) * row.tensor.sequence_stride);
    }
    const char * const column_data = here(a.column);
    const char * const scalar_data[2] = {here(a.scalars[0]), here(a.scalars[1])};
    const char * const constants_data = here(a.constants);
    char * const out_data = const_cast<char *>(here(a.out));

    // Where the state is.
    const uint64_t state_offset = head * a.head_stride + column * a.column_stride;
    const uint32_t source = a.sequence_ids ? static_cast<uint32_t>(load<int32_t>(a.sequence_ids, sequence * 4)) : sequence;
    char * const new_state = static_cast<char *>(a.new_state) + (sequence * a.new_sequence_stride + state_offset);
    const char * const old_state = static_cast<const char *>(a.state) + (source * a.state_sequence_stride + state_offset);

    // Puts what `count` tokens from `begin` on bring into LDS; `meanwhile` is called when the first of it has been asked for. Loads without
    // conditions, behind the end the last ones again: the compiler counts what it waits for only where no branch is.
    const auto stage = [&](uint32_t begin, uint32_t count, const auto & meanwhile) {
        const uint32_t quads = count * row_quads, columns = count * block_columns;
        float4v x[Rule::rows];
        float4v given;
        const auto ask = [&](uint32_t i) {
            const uint32_t t = i / row_quads, first = smaller(4 * (i % row_quads), a.length - 4);
#pragma unroll
            for (uint32_t r = 0; r < Rule::rows; r++) {
                const uint64_t token_stride = a.rows[r].tensor.token_stride;
                x[r] = load<float4v>(row_data[r] + begin * token_stride, t * static_cast<uint32_t>(token_stride) + first * 4);
            }
        };
        const auto ask_numbers = [&](uint32_t i) {
            const uint32_t t = i / block_columns, of = smaller(first_column + i % block_columns, last_column);
            const auto scalar = [&](uint32_t n, uint32_t index) {
                return load<float>(scalar_data[n] + (begin + t) * a.scalars[n].token_stride, index * 4);
            };
            given = Rule::read(a, of, load<float>(column_data + (begin + t) * a.column.token_stride, of * 4), scalar, constants_data);
        };
        uint32_t quad = thread_x(), at = thread_x();
        ask(smaller(quad, quads - 1));
        ask_numbers(smaller(at, columns - 1));
        keep_order();
        meanwhile();
        keep_order();
        const auto put_numbers = [&] {
            float numbers[Rule::numbers];
            Rule::stage(given, numbers);
            for (uint32_t n = 0; n < Rule::numbers; n++) {
                staged_numbers[at / block_columns][n][at % block_columns] = numbers[n];
            }
        };
        const auto put = [&] {
#pragma unroll
            for (uint32_t r = 0; r < Rule::rows; r++) {
                const bool inside = 4 * (quad % row_quads) < a.length;
                staged_rows[quad / row_quads][r][quad % row_quads] = Rule::prepare(r, inside ? x[r] : float4v{0.0f, 0.0f, 0.0f, 0.0f});
            }
        };
        if (at < columns) {
            put_numbers();
        }
        if (quad < quads) {
            put();
        }
        for (at += recurrence_block; at < columns; at += recurrence_block) {
            ask_numbers(at);
            put_numbers();
        }
        for (quad += recurrence_block; quad < quads; quad += recurrence_block) {
            ask(quad);
            put();
        }
    };

    // The state is asked for behind what the first tokens bring, so that this need not wait for it, and before it is waited for.
    part state;
    stage(0, smaller(tile, a.tokens), [&] {
        for (uint32_t m = 0; m < Quads; m++) {
            const uint32_t first = smaller(4 * (lane + Lanes * m), a.length - 4);
            if constexpr (Rule::scattered) {
                for (uint32_t i = 0; i < 4; i++) {
                    state.quads[m][i] = load<float>(old_state + (first + i) * a.element_stride);
                }
            } else {
                state.quads[m] = load<float4v>(old_state, first * 4);
            }
        }
    });
    for (uint32_t m = 0; m < Quads; m++) {
        if (4 * (lane + Lanes * m) >= a.length) {
            state.quads[m] = float4v{0.0f, 0.0f, 0.0f, 0.0f};
        }
    }
    const auto save = [&](uint32_t snapshot) {
        char * const to = new_state + snapshot * a.snapshot_stride;
        for (uint32_t m = 0; m < Quads; m++) {
            const uint32_t first = 4 * (lane + Lanes * m);
            if (active && first < a.length) {
                if constexpr (Rule::scattered) {
                    for (uint32_t i = 0; i < 4; i++) {
                        store(to + (first + i) * a.element_stride, 0, state.quads[m][i]);
                    }
                } else {
                    store(to, first * 4, state.quads[m]);
                }
            }
        }
    };

    part constants;
    if constexpr (Rule::has_constants) {
        const char * const from = constants_data + Rule::constants_offset(a, column);
        for (uint32_t m = 0; m < Quads; m++) {
            const uint32_t first = 4 * (lane + Lanes * m);
            constants.quads[m] = float4v{0.0f, 0.0f, 0.0f, 0.0f};
            if (first < a.length) {
                constants.quads[m] = load<float4v>(from, first * 4);
            }
        }
    }

    for (uint32_t begin = 0; begin < a.tokens; begin += tile) {
        const uint32_t count = smaller(tile, a.tokens - begin);
        if (begin != 0) {
            lds_barrier();  // the tile before has been read
            stage(begin, count, [] {});
        }
        lds_barrier();
        const bool kept = a.tokens - begin - count < a.snapshots;  // a state of this tile is a snapshot
        for (uint32_t t = 0; t < count; t++) {
            const auto row = [&](uint32_t r) {
                part v;
                for (uint32_t m = 0; m < Quads; m++) {
                    v.quads[m] = staged_rows[t][r][lane + Lanes * m];
                }
                return v;
            };
            const auto number = [&](uint32_t n) { return staged_numbers[t][n][own]; };
            const float result = Rule::template step<Lanes>(state, row, number, constants);
            staged_numbers[t][0][own] = result * a.scale;  // from all its lanes; nobody else reads this column's numbers
            if (kept) {
                const uint32_t left = a.tokens - 1 - begin - t;
                if (left < a.snapshots) {
                    save(left);
                }
            }
        }
        lds_barrier();
        for (uint32_t i = thread_x(); i < count * block_columns; i += recurrence_block) {
            const uint32_t t = i / block_columns, c = i % block_columns;
            if (first_column + c <= last_column) {
                store(out_data + (begin + t) * a.out.token_stride, (first_column + c) * 4, staged_numbers[t][0][c]);
            }
        }
    }
}

}  // namespace strata
