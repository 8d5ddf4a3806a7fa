# Compiles ${DIRECTORY}/${STEM}.comp, validates it, and writes it as a C++ header, as kernel NAME. VARIANT is
# "", a weight format (FORMAT_<format> is defined then), "simd" (SIMD is), or both: "q8_0_simd". Its push constants are STEM_params, unless the shader has a line "// params: OTHER_TYPE" (no_params when it has
# no push constants). Run by tq_add_shaders with cmake -P.
cmake_policy(VERSION 3.25)
set(source ${SOURCE_DIR}/${DIRECTORY}/${STEM}.comp)
set(defines)
if(VARIANT MATCHES "(^|_)simd$")
  list(APPEND defines -DSIMD)
endif()
string(REGEX REPLACE "_?simd$" "" format "${VARIANT}")
if(format)
  list(APPEND defines -DFORMAT_${format})
endif()

function(run_or_fail)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE failed OUTPUT_VARIABLE said ERROR_VARIABLE said)
  if(failed OR said MATCHES "WARNING:")
    message(FATAL_ERROR "${said}")
  endif()
endfunction()

run_or_fail(${GLSLANG} -V --target-env vulkan1.2 ${defines} -I${SOURCE_DIR}/${DIRECTORY} -o ${OUTPUT}.spv ${source})
if(SPIRV_VAL)
  run_or_fail(${SPIRV_VAL} --target-env vulkan1.2 ${OUTPUT}.spv)
endif()

set(params ${STEM}_params)
file(STRINGS ${source} line REGEX "^// params: [a-z0-9_]+$")
if(line)
  string(REPLACE "// params: " "" params ${line})
endif()

file(READ ${OUTPUT}.spv hex HEX)
string(REGEX REPLACE "(..)(..)(..)(..)" "0x\\4\\3\\2\\1," words ${hex})
string(REPEAT "0x........," 8 row)
string(REGEX REPLACE "(${row})" "\\1\n" words ${words})
file(WRITE ${OUTPUT}.gen.h "// Generated from ${DIRECTORY}/${STEM}.comp.
#pragma once
#include \"${DIRECTORY}/params.h\"
#include \"runtime/shader.h\"
namespace tq::${NAMESPACE} {
inline constexpr uint32_t ${NAME}_words[] = {
${words}};
inline constexpr Shader<${params}> ${NAME}{{\"${NAME}\", ${NAME}_words, reflect(${NAME}_words)}};
static_assert(well_formed<${NAME}>);
} // namespace tq::${NAMESPACE}
")
