# Compiles ${DIRECTORY}/${STEM}.comp, validates it, and writes it as C++ (shaders/embed.cpp), as kernel NAME. VARIANT is "", a weight format
# (FORMAT_<format> is defined then), "texel", "subgroup" or "trellis" (TEXEL, SUBGROUP or TRELLIS is), or several: "q8_0_texel". Its push constants are
# STEM_params, unless the shader has a line "// params: OTHER_TYPE" (no_params when it has no push constants). Run by tq_add_shaders
# with cmake -P.
cmake_policy(VERSION 3.25)
set(source ${SOURCE_DIR}/${DIRECTORY}/${STEM}.comp)
set(defines)
set(format "${VARIANT}")
foreach(once_more trellis subgroup texel)
  if(format MATCHES "(^|_)${once_more}$")
    string(TOUPPER ${once_more} define)
    list(APPEND defines -D${define})
    string(REGEX REPLACE "_?${once_more}$" "" format "${format}")
  endif()
endforeach()
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

run_or_fail(${EMBED} ${NAME} ${STEM} ${NAMESPACE} ${DIRECTORY} ${params} ${OUTPUT})
