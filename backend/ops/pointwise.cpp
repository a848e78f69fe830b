#include "ops/pointwise.h"

#include <algorithm>

namespace strata {

namespace {

constexpr int64_t max_elements = int64_t(1) << 31;
constexpr std::size_t max_step = std::size_t(1) << 32;

// Rows shorter than this leave too many lanes of a wave idle.
constexpr int64_t min_row = 32;

// Up to so many elements there are SIMDs without a wave if each wave takes all that it can.
constexpr uint32_t few_elements = 80 * pointwise_tile;

int64_t element_count(const pointwise_operand & t) {
    return t.ne[0] * t.ne[1] * t.ne[2] * t.ne[3];
}

// One loop for two where one continues the other in every operand.
pointwise_loops merge(const pointwise_loops & loops, const pointwise_operand & dst, const std::vector<pointwise_operand> & operands) {
    pointwise_loops merged;
    for (const pointwise_loop & l : loops) {
        if (!merged.empty()) {
            pointwise_loop & last = merged.back();
            bool continues = true;
            for (int k = 0; k < 3; k++) {
                continues = continues && l.step[k] == last.step[k] * std::size_t(last.size);
            }
            if (continues) {
                last.size *= l.size;
                continue;
            }
        }
        merged.push_back(l);
    }
    if (merged.empty()) {
        merged.push_back({1, {dst.size, operands[0].size, operands.size() > 1 ? operands[1].size : 0}});
    }
    return merged;
}

}  // namespace

pointwise_loops make_loops(const pointwise_operand & dst, const std::vector<pointwise_operand> & operands) {
    pointwise_loops loops;
    for (int i = 0; i < 4; i++) {
        // Where the operands repeat, an inner loop runs over the shortest and outer loops over the repetitions.
        int64_t inner = 1;
        while (inner < dst.ne[i]) {
            int64_t next = dst.ne[i];
            for (const pointwise_operand & o : operands) {
                if (o.ne[i] > inner) {
                    next = std::min(next, o.ne[i]);
                }
            }
            pointwise_loop l = {next / inner, {dst.nb[i] * std::size_t(inner), 0, 0}};
            for (std::size_t k = 0; k < operands.size(); k++) {
                l.step[1 + k] = operands[k].ne[i] > inner ? operands[k].nb[i] * std::size_t(inner) : 0;
            }
            loops.push_back(l);
            inner = next;
        }
    }
    std::sort(loops.begin(), loops.end(), [](const pointwise_loop & x, const pointwise_loop & y) { return x.step[0] < y.step[0]; });
    return merge(loops, dst, operands);
}

pointwise_loops make_copy_loops(const pointwise_operand & dst, const pointwise_operand & src) {
    if (std::equal(dst.ne, dst.ne + 4, src.ne)) {
        return make_loops(dst, {src});
    }
    // Both as loops in the order of their elements, then cut into common pieces.
    const auto own_loops = [](const pointwise_operand & t) {
        pointwise_loops loops;
        for (int i = 0; i < 4; i++) {
            if (t.ne[i] != 1) {
                loops.push_back({t.ne[i], {t.nb[i], 0, 0}});
            }
        }
        return merge(loops, t, {t});
    };
    pointwise_loops outer = own_loops(dst), inner = own_loops(src), loops;
    for (std::size_t i = 0, j = 0; i < outer.size() && j < inner.size();) {
        pointwise_loop & d = outer[i];
        pointwise_loop & s = inner[j];
        const int64_t size = std::min(d.size, s.size);
        if (d.size % size || s.size % size) {
            return {};
        }
        loops.push_back({size, {d.step[0], s.step[0], 0}});
        for (pointwise_loop * l : {&d, &s}) {
            l->size /= size;
            l->step[0] *= std::size_t(size);
        }
        i += d.size == 1;
        j += s.size == 1;
    }
    return merge(loops, dst, {src});
}

const char * pointwise_refusal(const pointwise_operand & dst, const pointwise_loops & loops) {
    if (element_count(dst) >= max_elements) {
        return "2^31 elements or more";
    }
    for (const pointwise_loop & l : loops) {
        for (std::size_t step : l.step) {
            if (step >= max_step) {
                return "a stride of 4 GiB or more";
            }
        }
    }
    return nullptr;
}

const char * pointwise_refusal(const pointwise_operand & dst, const std::vector<pointwise_operand> & operands) {
    return element_count(dst) == 0 ? nullptr : pointwise_refusal(dst, make_loops(dst, operands));
}

pointwise_launch make_pointwise(const pointwise_operand & dst, const std::vector<pointwise_operand> & operands, const pointwise_loops & loops,
                                std::initializer_list<float> params) {
    pointwise_launch launch = {};
    pointwise_args & args = launch.args;
    args.dst = const_cast<void *>(dst.data);
    args.a = operands[0].data;
    args.b = operands.size() > 1 ? operands[1].data : nullptr;
    args.count = uint32_t(element_count(dst));
    args.dim_count = uint32_t(loops.size());
    std::copy(params.begin(), params.end(), args.params);
    for (std::size_t i = 0; i < loops.size(); i++) {
        const pointwise_loop & l = loops[i];
        args.dims[i] = {make_divisor(uint32_t(l.size)), uint32_t(l.step[0]), uint32_t(l.step[1]), uint32_t(l.step[2])};
    }

    const pointwise_loop & row = loops[0];
    const bool contiguous = row.step[0] == dst.size && row.step[1] == operands[0].size &&
                            (operands.size() < 2 || row.step[2] == operands[1].size || row.step[2] == 0);
    launch.rows = contiguous && (row.size >= min_row || loops.size() == 1);
    if (launch.rows) {
        args.tile = args.count <= few_elements ? pointwise_tile / 2 : pointwise_tile;
        const uint32_t tiles = (uint32_t(row.size) + args.tile - 1) / args.tile;
        args.row_tiles = make_divisor(tiles);
        args.waves = args.count / uint32_t(row.size) * tiles;
        const uint32_t waves_a_block = pointwise_block / 32;
        launch.blocks = (args.waves + waves_a_block - 1) / waves_a_block;
    } else {
        launch.blocks = (args.count + pointwise_block - 1) / pointwise_block;
    }
    return launch;
}

void plan_pointwise(planner & plan, const char * family, const std::string & kernel, const pointwise_operand & dst,
                    const std::vector<pointwise_operand> & operands, const pointwise_loops & loops, std::initializer_list<float> params) {
    const pointwise_launch launch = make_pointwise(dst, operands, loops, params);
    plan.launch(family, (kernel + (launch.rows ? "_rows" : "_flat")).c_str(), {launch.blocks}, {pointwise_block}, launch.args);
}

void plan_pointwise(planner & plan, const char * family, const std::string & kernel, const pointwise_operand & dst,
                    const std::vector<pointwise_operand> & operands, std::initializer_list<float> params) {
    plan_pointwise(plan, family, kernel, dst, operands, make_loops(dst, operands), params);
}

ggml_tensor contiguous_f32(const ggml_tensor * t) {
    ggml_tensor wide = *t;
    wide.type = GGML_TYPE_F32;
    wide.data = nullptr;
    wide.nb[0] = sizeof(float);
    for (int i = 1; i < 4; i++) {
        wide.nb[i] = wide.nb[i - 1] * std::size_t(wide.ne[i - 1]);
    }
    return wide;
}

const char * float_type_name(ggml_type type) {
    switch (type) {
        case GGML_TYPE_F32: return "f32";
        case GGML_TYPE_F16: return "f16";
        case GGML_TYPE_BF16: return "bf16";
        default: return nullptr;
    }
}

}  // namespace strata
