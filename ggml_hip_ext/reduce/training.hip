// CROSS_ENTROPY_LOSS and its backward pass, a wave a row; OPT_STEP_ADAMW, OPT_STEP_SGD, a work-item a weight. f32.
#include "strata/args/backward.h"
#include "strata/math.h"
#include "strata/memory.h"
#include "strata/reduce.h"

namespace strata {

// A row of logits: its largest, and the sum of e^(logit - largest).
struct soft_row {
    float largest, sum;
};

STRATA_DEVICE soft_row find_soft_row(const float * logits, uint32_t row) {
    float largest = -infinity();
    for (uint32_t e = lane_id(); e < row; e += wave_size) {
        largest = max(largest, logits[e]);
    }
    largest = wave_max(largest);
    float sum = 0.0f;
    for (uint32_t e = lane_id(); e < row; e += wave_size) {
        sum += exp(logits[e] - largest);
    }
    return {largest, wave_sum(sum)};
}

STRATA_DEVICE uint32_t wave_row() { return uniform(block_x() * (backward_block / wave_size) + thread_x() / wave_size); }

}  // namespace strata

using namespace strata;

STRATA_KERNEL(backward_block) void cross_entropy_loss(cross_entropy_args a) {
    const uint32_t row = wave_row();
    if (row >= a.rows) {
        return;
    }
    const uint64_t begin = static_cast<uint64_t>(row) * a.row;
    const soft_row soft = find_soft_row(a.logits + begin, a.row);
    const float log_sum = log(soft.sum);
    float sum = 0.0f;
    for (uint32_t e = lane_id(); e < a.row; e += wave_size) {
        sum = fma((a.logits[begin + e] - soft.largest) - log_sum, a.labels[begin + e], sum);
    }
    sum = wave_sum(sum);
    if (lane_id() == 0) {
        a.dst[row] = -sum / static_cast<float>(a.rows);
    }
}

STRATA_KERNEL(backward_block) void cross_entropy_loss_back(cross_entropy_args a) {
    const uint32_t row = wave_row();
    if (row >= a.rows) {
        return;
    }
    const uint64_t begin = static_cast<uint64_t>(row) * a.row;
    const soft_row soft = find_soft_row(a.logits + begin, a.row);
    const float scale = *a.gradient / static_cast<float>(a.rows);
    for (uint32_t e = lane_id(); e < a.row; e += wave_size) {
        a.dst[begin + e] = (exp(a.logits[begin + e] - soft.largest) / soft.sum - a.labels[begin + e]) * scale;
    }
}

STRATA_KERNEL(backward_block) void opt_step_adamw(opt_step_args a) {
    const uint32_t i = block_x() * backward_block + thread_x();
    if (i >= a.count) {
        return;
    }
    const float alpha = a.params[0], beta1 = a.params[1], beta2 = a.params[2], eps = a.params[3], decay = a.params[4];
    const float gradient = a.gradient[i];
    const float mean = a.mean[i] * beta1 + gradient * (1.0f - beta1);
    const float square = a.square[i] * beta2 + gradient * gradient * (1.0f - beta2);
    a.mean[i] = mean;
    a.square[i] = square;
    a.weights[i] = a.weights[i] * (1.0f - alpha * decay) - alpha * (mean * a.params[5]) / (sqrt(square * a.params[6]) + eps);
}

STRATA_KERNEL(backward_block) void opt_step_sgd(opt_step_args a) {
    const uint32_t i = block_x() * backward_block + thread_x();
    if (i < a.count) {
        const float alpha = a.params[0];
        a.weights[i] = a.weights[i] * (1.0f - alpha * a.params[1]) - alpha * a.gradient[i];
    }
}
