// The code objects carried inside the library: a table made by cmake/DeviceCode.cmake.
#pragma once

namespace strata {

/// One kernel family compiled for one target.
struct embedded_code_object {
    const char * family;          ///< file name of the source without its ending, e.g. "matvec_q4_k"
    const char * target;          ///< e.g. "gfx1151"
    const unsigned char * begin;  ///< an ELF file, page aligned
    const unsigned char * end;
};

extern const embedded_code_object embedded_code_objects[];
extern const unsigned embedded_code_object_count;

}  // namespace strata
