#include "tables.h"
namespace strata::emulator::STRATA_ISA {
const operation_table table_valu_16 = {nullptr, 0};
}
