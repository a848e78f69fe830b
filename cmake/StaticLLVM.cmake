# The parts of LLVM 19 that the emulator uses, as static libraries: STRATA_LLVM_LIBRARIES, for its linker line.
# Static, because libLLVM-19.so has 130 MB, takes 30 ms to load, is not everywhere, and would meet another LLVM in the process.
# The imported targets of LLVM's own CMake files are no use: they ask for shared zstd, z3 and libxml2 that nothing here needs.

find_package(LLVM 19.1 REQUIRED CONFIG HINTS /usr/lib/llvm-19/lib/cmake/llvm)

if(NOT STRATA_LLVM_LIBRARIES)
    execute_process(
        COMMAND "${LLVM_TOOLS_BINARY_DIR}/llvm-config" --link-static --libfiles
                amdgpudisassembler amdgpudesc amdgpuinfo mcdisassembler debuginfodwarf object binaryformat support
        OUTPUT_VARIABLE _libraries OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_VARIABLE _why RESULT_VARIABLE _failed)
    if(_failed)
        message(FATAL_ERROR "LLVM 19's static libraries were not found: ${_why}\nOn Debian:  apt-get install llvm-19-dev")
    endif()
    separate_arguments(_libraries)
    # What reads compressed debug sections.
    foreach(_name z zstd)
        find_library(STRATA_STATIC_${_name} NAMES lib${_name}.a)
        if(NOT STRATA_STATIC_${_name})
            message(FATAL_ERROR "lib${_name}.a was not found. On Debian:  apt-get install zlib1g-dev libzstd-dev")
        endif()
        list(APPEND _libraries "${STRATA_STATIC_${_name}}")
    endforeach()
    set(STRATA_LLVM_LIBRARIES "${_libraries}" CACHE STRING "static libraries of LLVM, zlib and zstd")
    mark_as_advanced(STRATA_LLVM_LIBRARIES)
endif()
