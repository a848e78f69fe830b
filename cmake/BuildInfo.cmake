# lib/build.json: what `strata-hip --version` says. Looked at in every build, since a commit touches none of the sources.

execute_process(COMMAND "${STRATA_DEVICE_CLANG}" --version OUTPUT_VARIABLE _compiler OUTPUT_STRIP_TRAILING_WHITESPACE)
string(REGEX MATCH "^[^\n]*" _compiler "${_compiler}")
list(JOIN STRATA_TARGETS " " _targets)
find_package(Python3 REQUIRED COMPONENTS Interpreter)
set(STRATA_BUILD_INFO "${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/build.json")
add_custom_target(build_info ALL
    COMMAND "${Python3_EXECUTABLE}" "${CMAKE_SOURCE_DIR}/cmake/build_info.py" "${STRATA_BUILD_INFO}" "${CMAKE_SOURCE_DIR}"
            "version=${PROJECT_VERSION}" "llama_cpp_python=${STRATA_LLAMA_CPP_PYTHON_VERSION}" "ggml=${STRATA_GGML_VERSION}"
            "compiler=${_compiler}" "llvm=${LLVM_PACKAGE_VERSION}" "targets=${_targets}"
    BYPRODUCTS "${STRATA_BUILD_INFO}"
    COMMENT "What this build is made from"
    VERBATIM)
install(FILES "${STRATA_BUILD_INFO}" DESTINATION strata_hip/lib COMPONENT strata)
