// The hook that runs before every instruction where instruments are on, built once per host instruction set like the handlers.
#pragma once

#include "../exec/address.h"
#include "access.h"
#include "state.h"

namespace strata::emulator::STRATA_ISA {

// init.cpp
void follow_definedness(wave * w, const probe & p, const memory_access & a);

}  // namespace strata::emulator::STRATA_ISA
