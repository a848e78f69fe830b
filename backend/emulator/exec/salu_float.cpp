#include "tables.h"
namespace strata::emulator::STRATA_ISA {
const operation_table table_salu_float = {nullptr, 0};
}
