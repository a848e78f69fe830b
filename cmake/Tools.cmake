# llama.cpp's programs for the wheel, linked so that they find llama_cpp/lib of the environment they are installed in.
# scripts/build_tools.py builds and keeps them; it asks the Python that runs it for llama_cpp, a build requirement (pyproject.toml).

find_package(Python3 REQUIRED COMPONENTS Interpreter)
set(STRATA_TOOLS_FOLDER "${CMAKE_BINARY_DIR}/tools")
add_custom_target(tools ALL
    COMMAND "${CMAKE_COMMAND}" -E env "STRATA_CLANG=${STRATA_DEVICE_CLANG}" "CMAKE=${CMAKE_COMMAND}" "NINJA=${CMAKE_MAKE_PROGRAM}"
            "${Python3_EXECUTABLE}" "${CMAKE_SOURCE_DIR}/scripts/build_tools.py" --pack "${STRATA_TOOLS_FOLDER}"
    COMMENT "llama.cpp's programs"
    USES_TERMINAL
    VERBATIM)
install(DIRECTORY "${STRATA_TOOLS_FOLDER}/" DESTINATION strata_hip/bin COMPONENT strata USE_SOURCE_PERMISSIONS)
