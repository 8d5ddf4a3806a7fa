# tq_add_shaders(TARGET DIRECTORY NAMESPACE): every DIRECTORY/NAME.comp becomes the constant tq::NAMESPACE::NAME, its SPIR-V and
# its interface, in NAME.gen.h. TARGET is an interface library named tq_SOMETHING that offers all of them as SOMETHING.gen.h, and
# as the array tq::NAMESPACE::all, in alphabetical order. A kernel that has a line "// once per weight format" becomes NAME_FORMAT
# for each of these, compiled with FORMAT_<format> defined; one with a line "// once more for SIMD" is compiled a second time, as
# NAME_simd, with SIMD defined (shaders/read.glsl).
set(tq_weight_formats f32 f16 bf16 q8_0 q4_0 q4_1 q5_0 q5_1 q2_k q3_k q4_k q5_k q6_k iq4_nl iq4_xs mxfp4)

function(tq_add_shaders target directory namespace)
  file(GLOB kernels CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${directory}/*.comp)
  file(GLOB includes CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/shaders/*.glsl ${CMAKE_SOURCE_DIR}/shaders/*.h
    ${CMAKE_SOURCE_DIR}/${directory}/*.glsl ${CMAKE_SOURCE_DIR}/${directory}/*.h)
  set(embed ${CMAKE_SOURCE_DIR}/shaders/embed.cmake)
  set(output_directory ${CMAKE_BINARY_DIR}/${target})
  string(REGEX REPLACE "^tq_" "" all ${target})

  set(text "// Generated from ${directory}/*.comp: every kernel as a constant of namespace tq::${namespace}.\n#pragma once\n")
  set(headers)
  set(pointers)
  foreach(kernel ${kernels})
    get_filename_component(stem ${kernel} NAME_WE)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${kernel})
    file(STRINGS ${kernel} per_format REGEX "^// once per weight format$")
    set(names ${stem})
    if(per_format)
      list(TRANSFORM tq_weight_formats PREPEND ${stem}_ OUTPUT_VARIABLE names)
    endif()
    file(STRINGS ${kernel} for_simd REGEX "^// once more for SIMD$")
    if(for_simd)
      list(TRANSFORM names APPEND _simd OUTPUT_VARIABLE simd_names)
      list(APPEND names ${simd_names})
    endif()
    foreach(name ${names})
      string(REGEX REPLACE "^${stem}_?" "" variant ${name})
      add_custom_command(OUTPUT ${output_directory}/${name}.gen.h DEPENDS ${kernel} ${includes} ${embed} VERBATIM
        COMMENT "Shader ${directory}/${stem}.comp ${variant}"
        COMMAND ${CMAKE_COMMAND} -DGLSLANG=${GLSLANG} -DSPIRV_VAL=$<$<BOOL:${SPIRV_VAL}>:${SPIRV_VAL}>
          -DSOURCE_DIR=${CMAKE_SOURCE_DIR} -DDIRECTORY=${directory}
          -DNAMESPACE=${namespace} -DSTEM=${stem} -DVARIANT=${variant} -DNAME=${name}
          -DOUTPUT=${output_directory}/${name} -P ${embed})
      list(APPEND headers ${output_directory}/${name}.gen.h)
      string(APPEND text "#include \"${name}.gen.h\"\n")
      list(APPEND pointers "&${name}")
    endforeach()
  endforeach()
  list(SORT pointers)
  list(JOIN pointers ",\n    " pointers)
  string(APPEND text "namespace tq::${namespace} {\n"
    "inline constexpr const AnyShader* all[] = {\n    ${pointers}};\n} // namespace tq::${namespace}\n")
  file(CONFIGURE OUTPUT ${output_directory}/${all}.gen.h CONTENT "${text}")

  add_custom_target(${target}_compiled DEPENDS ${headers})
  add_library(${target} INTERFACE)
  add_dependencies(${target} ${target}_compiled)
  target_include_directories(${target} INTERFACE ${output_directory})
  # Interfaces are read from the SPIR-V while compiling: more steps than compilers allow by default.
  target_compile_options(${target} INTERFACE $<$<CXX_COMPILER_ID:Clang,AppleClang>:-fconstexpr-steps=50000000>
    $<$<CXX_COMPILER_ID:MSVC>:/constexpr:steps50000000>)
endfunction()

tq_add_shaders(tq_shaders shaders shader)
if(BUILD_TESTING)
  tq_add_shaders(tq_test_shaders tests/shaders test_shader)
endif()
