#include "tables.h"
namespace strata::emulator::STRATA_ISA {
const operation_table table_packed = {nullptr, 0};
}
