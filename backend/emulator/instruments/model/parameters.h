// The one set of numbers that modelled time rests on. None exists for a single kernel.
//
// From AMD's published descriptions of RDNA 3.5 and of Strix Halo: units, clock, registers, cache sizes, peak rates. Latencies are chosen
// once, for all kernels together, so that the published times of stock kernels come out best (docs/model.md).
#pragma once

namespace strata::emulator::model {

struct parameters {
    double clock_ghz = 2.9;

    // Units.
    unsigned processors = 20;         ///< workgroup processors (WGP) of two compute units
    unsigned arrays = 4;              ///< shader arrays: processors that share an L1
    unsigned simds = 4;               ///< of a processor, two of each compute unit
    unsigned issue_width = 2;         ///< instructions that a SIMD starts a cycle, of different waves and for different units

    // Cycles that an instruction occupies its unit.
    unsigned trans_cycles = 4;        ///< transcendentals run at a quarter of the rate
    unsigned wmma_cycles = 32;        ///< 16x16x16 of f16, bf16 and iu8
    unsigned wmma_iu4_cycles = 16;

    // Cycles until a result can be used.
    unsigned valu_latency = 5;
    unsigned trans_latency = 10;
    unsigned salu_latency = 2;
    unsigned lds_latency = 64;
    unsigned scalar_latency = 60;     ///< scalar cache hit
    unsigned l0_latency = 120;
    unsigned l1_latency = 180;
    unsigned l2_latency = 280;
    unsigned mall_latency = 480;
    unsigned dram_latency = 1000;
    unsigned branch_taken = 8;        ///< until the first instruction behind it
    unsigned barrier_latency = 10;

    // Bytes a cycle.
    double l0_bytes = 64;             ///< a compute unit
    double l1_bytes = 256;            ///< a shader array
    double l2_bytes = 1024;
    double mall_bytes = 345;          ///< 1 TB/s
    double dram_bytes = 71;           ///< 206 GB/s of 256 are reached

    // Bytes.
    unsigned scalar_cache = 16 << 10; ///< a processor
    unsigned l0_size = 32 << 10;      ///< a compute unit
    unsigned l1_size = 256 << 10;     ///< a shader array
    unsigned l2_size = 2 << 20;
    unsigned mall_size = 32 << 20;

    // Cooperative launches.
    double atomic_cycles = 8;         ///< between two atomics on a word
    unsigned spin_cycles = 20;        ///< of a loop that waits for a word, beside its load and s_sleep

    // Launches.
    double dispatch_cycles = 0.5;     ///< between the starts of two waves: two shader engines start one each a cycle
    unsigned launch_latency = 2000;   ///< from a launch to its first instruction
    unsigned workgroup_latency = 250; ///< of a workgroup that takes the place of another
};

}  // namespace strata::emulator::model
