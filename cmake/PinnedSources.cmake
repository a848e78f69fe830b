# ggml's headers and llama.cpp's tests come from the llama-cpp-python source distribution, pinned by version and sha256
# in scripts/fetch_sources.py, which fetches it through pip into a cache outside the tree.

if(NOT STRATA_LLAMA_CPP)
    find_package(Python3 REQUIRED COMPONENTS Interpreter)
    execute_process(
        COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_SOURCE_DIR}/scripts/fetch_sources.py"
        OUTPUT_VARIABLE _path OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE _failed)
    if(_failed)
        message(FATAL_ERROR "The pinned llama.cpp sources could not be fetched; the lines above say why.")
    endif()
    set(STRATA_LLAMA_CPP "${_path}" CACHE PATH "llama.cpp of the pinned llama-cpp-python source distribution" FORCE)
endif()

file(STRINGS "${STRATA_LLAMA_CPP}/ggml/CMakeLists.txt" _version_lines REGEX "^set\\(GGML_VERSION_(MAJOR|MINOR|PATCH) ")
string(REGEX REPLACE "[^0-9;]" "" _version "${_version_lines}")
list(JOIN _version "." STRATA_GGML_VERSION)
file(STRINGS "${CMAKE_CURRENT_SOURCE_DIR}/scripts/fetch_sources.py" _pin REGEX "^VERSION = ")
string(REGEX REPLACE "[^0-9.]" "" STRATA_LLAMA_CPP_PYTHON_VERSION "${_pin}")

add_library(ggml_headers INTERFACE)
target_include_directories(ggml_headers SYSTEM INTERFACE "${STRATA_LLAMA_CPP}/ggml/include" "${STRATA_LLAMA_CPP}/ggml/src")
