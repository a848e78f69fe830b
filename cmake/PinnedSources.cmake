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

add_library(ggml_headers INTERFACE)
target_include_directories(ggml_headers SYSTEM INTERFACE "${STRATA_LLAMA_CPP}/ggml/include" "${STRATA_LLAMA_CPP}/ggml/src")
