#include "tables.h"
namespace strata::emulator::STRATA_ISA {
const operation_table table_cross_lane = {nullptr, 0};
}
